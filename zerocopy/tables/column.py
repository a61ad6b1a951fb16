"""``Column`` and ``Table``: what every table framework describes its objects as."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from zerocopy.device import HOST, Device
from zerocopy.dtype import DType
from zerocopy.errors import Reason
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Source


class Column:
    """One column, or one level of a nested one: a type, and the memory of its values.

    A framework describes its columns by a subclass: ``zerocopy.tables.arrow_column.ArrowColumn`` over
    Arrow's buffers, ``zerocopy.tables.tensor_column.TensorColumn`` over an array. What a type has none of
    (text of integers, a dictionary of floats) is never asked for.

    Attributes
    ----------
    name : str
        How to call it in messages: ``"polars.Series"``.
    field : Field or None
        Its Arrow type; None for a tensor, whose type is that of its elements.
    length : int
        Rows.
    reasons : tuple of Reason
        Why all that is got from here is a copy already (a query's result).
    device : Device
        Where its memory is.
    changes : bool
        Whether its owner may write to the memory in place.
    refusal : Reason or None
        Why tensors cannot have it, where that is known and its type is not: to find
        out what Python objects are costs a copy.
    in_place : Column or None
        The same column without a copy, at strides that not every target takes: a field
        among records.

    Notes
    -----
    The parts are those of the Arrow Columnar Format: values, offsets, sizes, children, a dictionary. Its
    validity bitmap is given as its opposite, `mask`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from zerocopy.dtype import by_name
    >>> from zerocopy.describe import describe
    >>> column = describe(pa.table({"x": pa.array([1, None, 3])})).columns[0]
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
    changes: bool = False
    refusal: Reason | None = None
    in_place: Column | None = None

    @property
    def null_count(self) -> int:
        """How many rows are null; counted where nobody has."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of the memory that a reader of the whole column looks at."""
        raise NotImplementedError

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        """Return the elements, with garbage where they are null.

        Parameters
        ----------
        dtype : DType
            What to take the bytes as, of the width of the column's own type.
        shape : tuple of int
            Of one row's elements.

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
            ``(length,)`` of bool: a copy where the column keeps bits.
        """
        raise NotImplementedError

    def filled(self, value: Any) -> Callable[[], Any] | None:
        """Return how to make an object on the column's device with its nulls filled.

        Parameters
        ----------
        value : number or bool
            What to fill them with.

        Returns
        -------
        callable or None
            ``fill() -> object``, a copy; None where the column knows no way, and is filled by way of
            the host.
        """
        return None

    def offsets(self) -> Source:
        """Return where each row begins in `child` or `text`, in elements.

        Returns
        -------
        Source
            ``(length + 1,)`` of integers, the last one where the last row ends; of a list view ``(length,)``.
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

    def text(self) -> Source:
        """Return the bytes that `offsets` count in.

        Returns
        -------
        Source
            Of uint8, one dimension.
        """
        raise NotImplementedError

    def child(self, index: int = 0) -> Column:
        """Return a nested column's part: a list's values, a struct's field.

        Parameters
        ----------
        index : int
            Of a struct: which field.

        Returns
        -------
        Column
            Over the same memory.
        """
        raise NotImplementedError

    def dictionary(self) -> Column:
        """Return the values that a dictionary's codes stand for.

        Returns
        -------
        Column
            Over the same memory.
        """
        raise NotImplementedError

    def arrow(self) -> Any:
        """Return it as one of pyarrow's, which another table framework can take.

        Returns
        -------
        pyarrow.Array or pyarrow.ChunkedArray
            An alias of the column's memory where there are no `arrow_reasons`.
        """
        raise NotImplementedError

    def arrow_reasons(self) -> list[Reason]:
        """Return why `arrow` copies, where it does; override it to raise what Arrow cannot hold.

        Returns
        -------
        list of Reason
            Empty if it aliases.
        """
        return list(self.reasons)

    def extents(self) -> Iterator[tuple[int, int]]:
        """Yield the first address and the one past the last of each block of host memory.

        Yields
        ------
        tuple of int
            Both in bytes, for :func:`zerocopy.shares_memory`.
        """
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class Table:
    """Columns by label, as a framework describes an object of its own.

    Attributes
    ----------
    name : str
        How to call the object in messages: ``"polars.DataFrame"``.
    labels : sequence
        The columns' labels, which need be neither strings nor unique.
    columns : sequence of Column
        One for each label.
    length : int
        Rows; a table without columns may have some.
    single : bool
        Whether the object is one column and no table: a series.
    index : int
        How many of the columns, at the end, are pandas' index.
    metadata : dict of bytes to bytes
        The schema's.
    warnings : tuple of str
        What to know of the object whatever becomes of it.
    read : callable, optional
        ``read() -> Table`` for what is known only once it has been read, a query or a
        stream; `columns` then have types and no memory.
    once : bool
        Whether reading uses the object up.
    obj : object
        The object itself, for a target that takes it as it is.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from zerocopy.describe import describe
    >>> table = describe(pa.table({"x": [1, 2], "name": ["a", "b"]}))
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
    read: Callable[[], Table] | None = None
    once: bool = False
    obj: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns; rows alone of a series."""
        return (self.length,) if self.single else (self.length, len(self.columns))
