"""``Column`` and ``Table``: how every table framework describes its objects."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, overload

from zerocopy.device import HOST, Device
from zerocopy.dtype import DType
from zerocopy.errors import Reason, ZeroCopyError
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array, Source

#: A pyarrow array, chunked or not: pyarrow has no types for type checkers.
ArrowArray: TypeAlias = Any


class Column:
    """One column, or one level of a nested one: a type, and the memory of its values.

    A framework describes its columns by a subclass: ``zerocopy.tables.arrow_column.ArrowColumn`` over
    Arrow's buffers, ``zerocopy.tables.tensor_column.TensorColumn`` over an array. Methods that do not
    apply to a type (the text of integers, the dictionary of floats) are never called.

    Attributes
    ----------
    name : str
        Its name in messages: ``"polars.Series"``.
    field : Field or None
        Its Arrow type; None for a tensor, whose type is that of its elements.
    length : int
        Rows.
    reasons : tuple of Reason
        Why all memory that its methods return is a copy (of a query's result, for example).
    device : Device
        The device of its memory.
    changes : bool
        Whether its owner may write to the memory in place.
    is_unread : bool
        Whether it belongs to a stream or a query that is not read, so that it has a type and no values.
    refusal : Reason or None
        Why tensors cannot hold it, if that is known without its Arrow type: finding
        the type of Python objects costs a copy.
    missing : callable or None
        Returns the column with the values as nulls that its framework counts as missing besides
        its nulls: NaN in pandas' floats.
    source : Source or None
        The tensor that holds its rows; None for a column in Arrow's memory, or of objects.
    in_place : Column or None
        The same column without a copy, with strides that not every target supports, such as
        a field of records.
    dims : tuple of hashable, optional
        Names of its dimensions, if the columns of its table can have different rows.
    held : ndarray, optional
        The array that its owner holds, if others need the values in another form: Python objects, text.
        Only the owner's own objects alias it.
    of_rows : callable, optional
        ``of_rows(part, rows)`` sets the attributes that only its own framework reads on `part`, a column of
        the rows at the positions `rows`.

    Notes
    -----
    The parts are those of the Arrow Columnar Format: values, offsets, sizes, children, a dictionary. `mask`
    is the opposite of its validity bitmap.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from zerocopy import registry
    >>> from zerocopy.dtype import by_name
    >>> column = registry.by_name("pyarrow").table(pa.array([1, None, 3])).columns[0]
    >>> str(column.field), column.length, column.null_count, column.nbytes
    ('int64', 3, 1, 25)
    >>> column.values(by_name("int64")).view.shape
    (3,)
    """

    name: str
    field: Field | None
    length: int
    reasons: tuple[Reason, ...] = ()
    device: Device = HOST
    is_unread: bool = False
    changes: bool = False
    refusal: Reason | None = None
    #: Whether the mask has one value for each item of a row.
    masks_items: bool = False
    #: Whether its owner has booleans, which are cast.
    of_booleans: bool = False
    missing: Callable[[], Column] | None = None
    source: Source | None = None
    in_place: Column | None = None
    dims: tuple[Hashable, ...] | None = None
    held: Array | None = None
    of_rows: Callable[[Column, Array], None] | None = None

    @property
    def shown(self) -> Field | None:
        """Its type for messages; None if it takes long to find."""
        return self.field

    @property
    def null_count(self) -> int:
        """Number of null rows; counted here if the producer does not report it."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of the memory that a reader of the whole column reads."""
        raise NotImplementedError

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        """Return the elements; they are undefined where they are null.

        Parameters
        ----------
        dtype : DType
            The type to read the bytes as, of the width of the column's own type.
        shape : tuple of int
            The shape of one row's elements.

        Returns
        -------
        Source
            ``(length, *shape)``; an alias of the column's memory where it has no `reasons`.
        """
        raise NotImplementedError

    def mask(self) -> Source:
        """Return which rows are null.

        Returns
        -------
        Source
            ``(length,)`` of bool: a copy if the column keeps bits.
        """
        raise NotImplementedError

    def filled(self, value: object) -> Callable[[], object] | None:
        """Return a function that makes an object on the column's device with its nulls filled.

        Parameters
        ----------
        value : number or bool
            The value that fills them.

        Returns
        -------
        callable or None
            ``fill() -> object``, a copy; None if only the host can fill them.
        """
        return None

    def offsets(self) -> Source:
        """Return the offset of each row in `child` or `text`, in elements.

        Returns
        -------
        Source
            ``(length + 1,)`` of integers, of which the last is the end of the last row; ``(length,)`` for a
            list view.
        """
        raise NotImplementedError

    def sizes(self) -> Source:
        """Return the sizes of the rows of a list view, in elements.

        Returns
        -------
        Source
            ``(length,)`` of integers.
        """
        raise NotImplementedError

    def dense(self) -> Column:
        """Return the column for tensors: for Python objects of one shape, a column of tensors.

        Returns
        -------
        Column
            The column itself, unless it holds arrays or lists of numbers as objects.
        """
        return self

    def as_lists(self) -> Column:
        """Return the column for ``lists="pad"`` and ``"ragged"``: Python objects as Arrow's lists of numbers.

        Returns
        -------
        Column
            The column itself, or as `dense` returns it, if it does not hold vectors or lists as objects.
        """
        return self

    def text(self) -> Source:
        """Return the bytes that `offsets` refer to.

        Returns
        -------
        Source
            One dimension of uint8.
        """
        raise NotImplementedError

    def child(self, index: int = 0) -> Column:
        """Return a child of a nested column: a list's values, a struct's field.

        Parameters
        ----------
        index : int
            The position of a struct's field.

        Returns
        -------
        Column
            Over the same memory.
        """
        raise NotImplementedError

    def items(self, start: int, count: int) -> Column:
        """Return a part of the items of a column of lists.

        Parameters
        ----------
        start, count : int
            The first item, as `offsets` count them, and their number.

        Returns
        -------
        Column
            ``(count,)`` items, over the same memory.
        """
        raise NotImplementedError

    def dictionary(self) -> Column:
        """Return the values that a dictionary's codes refer to.

        Returns
        -------
        Column
            Over the same memory.
        """
        raise NotImplementedError

    def arrow(self) -> ArrowArray:
        """Return it as a pyarrow array, which other table frameworks can import.

        Returns
        -------
        pyarrow.Array or pyarrow.ChunkedArray
            An alias of the column's memory if `arrow_reasons` is empty.
        """
        raise NotImplementedError

    def plan_key(self) -> Hashable | None:
        """Return a key that columns with equal plans share.

        Returns
        -------
        hashable or None
            None if the key is not known.
        """
        return None

    def arrow_reasons(self) -> list[Reason]:
        """Return why `arrow` copies; overrides raise an error for a type that Arrow lacks.

        Returns
        -------
        list of Reason
            Empty if it aliases.
        """
        return list(self.reasons)

    def extents(self) -> Iterator[tuple[int, int]]:
        """Yield the first address of each block of host memory, and the address past its last byte.

        Yields
        ------
        tuple of int
            Both in bytes, for :func:`zerocopy.shares_memory`.
        """
        raise NotImplementedError

    def own_extents(self) -> Iterator[tuple[int, int]]:
        """Return the blocks of a column with `reasons` that its own framework aliases.

        Returns
        -------
        iterator of tuple of int
            As `extents` yields them.
        """
        return iter(())


class RefusedColumn(Column):
    """A column that no other framework can hold; conversions that leave it out succeed."""

    def __init__(self, name: str, length: int, error: ZeroCopyError, nbytes: int = 0) -> None:
        self.name = name
        self.field: None = None
        self.length = length
        self._error, self._nbytes = error, nbytes
        self.refusal: Reason = error.reason

    null_count = 0

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        raise self._refuse() from self._error.__cause__

    def arrow(self) -> ArrowArray:
        raise self._refuse() from self._error.__cause__

    def arrow_reasons(self) -> list[Reason]:
        raise self._refuse() from self._error.__cause__

    def extents(self) -> Iterator[tuple[int, int]]:
        raise self._refuse() from self._error.__cause__

    def _refuse(self) -> ZeroCopyError:
        # A new error for each raise, because callers add context to it.
        error = self._error
        return type(error)("", error.why, error.remedy, code=error.code, fixes=error.fixes)


class Columns(Sequence[Column]):
    """The columns of a table, each described when it is first read: ``columns=`` can take 2 of 2,000.

    ``describe(item)`` returns the column of one of `items`.
    """

    __slots__ = ("_describe", "_items", "_known")

    def __init__(self, items: Sequence[Any], describe: Callable[[Any], Column]) -> None:
        self._items, self._describe = items, describe
        self._known: list[Column | None] = [None] * len(items)

    def __len__(self) -> int:
        return len(self._known)

    @overload
    def __getitem__(self, place: int) -> Column: ...
    @overload
    def __getitem__(self, place: slice) -> list[Column]: ...
    def __getitem__(self, place: int | slice) -> Column | list[Column]:
        if isinstance(place, slice):
            return self.all()[place]
        column = self._known[place]
        if column is None:
            column = self._known[place] = self._describe(self._items[place])
        return column

    def all(self) -> list[Column]:
        """Return the columns as a list, which is faster to iterate over."""
        known = zip(self._items, self._known, strict=True)
        columns = [self._describe(item) if column is None else column for item, column in known]
        self._known[:] = columns
        return columns


@dataclass(slots=True, eq=False)
class Table:
    """Columns by label, as a framework describes an object of its own.

    Attributes
    ----------
    name : str
        The object's name in messages: ``"polars.DataFrame"``.
    labels : sequence
        The columns' labels, which need be neither strings nor unique.
    columns : sequence of Column
        One for each label.
    length : int
        Rows; a table without columns may have some.
    single : bool
        Whether the object is one column and not a table: a series.
    index : int
        How many of the columns, at the end, are row labels.
    metadata : dict of bytes to bytes
        The schema's metadata.
    warnings : tuple of str
        Warnings about the object for any target.
    missing_warnings : tuple of str
        Warnings about values that count as missing, such as NaN of pandas, where ``nulls=`` does not decide.
    read : callable, optional
        ``read() -> Table`` for a query or a stream, which has memory only after it has
        been read; `columns` then have types and no memory.
    once : bool
        Whether reading uses the object up.
    read_reasons : tuple of Reason
        Why reading allocates memory; empty if it does not.
    obj : object
        The object itself, for a target that returns it unchanged.
    row_labels : callable, optional
        ``row_labels() -> object``: row labels that become columns only with ``index=True``.
    by_columns : callable, optional
        ``by_columns() -> bool``: whether the columns are those of one array in column-major order, which
        a matrix of cast values keeps.
    options : mapping of str to object
        For `from_table`: the options of the call that the target lists in ``Framework.options``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from zerocopy import registry
    >>> table = registry.by_name("pyarrow").table(pa.table({"x": [1, 2], "name": ["a", "b"]}))
    >>> table.name, table.labels, table.shape
    ('pyarrow.Table', ['x', 'name'], (2, 2))
    """

    name: str
    labels: Sequence[Hashable]
    columns: Sequence[Column]
    length: int
    single: bool = False
    index: int = 0
    metadata: dict[bytes, bytes] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    missing_warnings: tuple[str, ...] = ()
    read: Callable[[], Table] | None = None
    once: bool = False
    read_reasons: tuple[Reason, ...] = ()
    obj: Any = None
    row_labels: Callable[[], object] | None = None
    by_columns: Callable[[], bool] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_rows(self) -> bool:
        """Whether its columns have the same rows: labelled arrays can have several dimensions, or none."""
        dims = {column.dims for column in self.columns if column.dims is not None}
        return self.single or not dims or (len(dims) == 1 and len(dims.pop()) == 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns; a series has rows only."""
        return (self.length,) if self.single else (self.length, len(self.columns))

    def dense(self, keeps_lists: bool = False) -> Table:
        """Return the table with tensors in place of columns whose cells are arrays or lists of numbers.

        Parameters
        ----------
        keeps_lists : bool
            Whether they become Arrow's lists instead, for ``lists="pad"`` and ``"ragged"``.

        Returns
        -------
        Table
            The table itself if it has no such columns.
        """
        columns = [column.as_lists() if keeps_lists else column.dense() for column in self.columns]
        if columns == list(self.columns):
            return self
        return replace(self, columns=columns, obj=None)

    def distinct(self) -> Table:
        """Return the table with one column for each set of columns with equal plans.

        Returns
        -------
        Table
            A view of the same columns, the first of each set.
        """
        first: dict[Hashable, int] = {}
        for place, column in enumerate(self.columns):
            key = column.plan_key()
            first.setdefault((place,) if key is None else key, place)
        places = first.values()
        labels = [self.labels[place] for place in places]
        return replace(self, labels=labels, columns=[self.columns[place] for place in places], obj=None)
