"""Results for columns that one tensor cannot represent: ``Masked`` and ``Encoded``."""

from __future__ import annotations

import decimal
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from zerocopy.errors import CopyRequiredError, UnsupportedConversionError
from zerocopy.formatting import printable
from zerocopy.protocols.pytree_node import Attribute, Node
from zerocopy.source import Array, type_name

#: The fields that hold tensors, or results of the columns inside.
_PARTS = ("values", "offsets", "sizes", "categories", "mask")
_TEXT = ("string", "large_string", "binary", "large_binary")


class _Result:
    """Base of `Masked` and `Encoded`: exports their rows as an Arrow array, and refuses ``__array__``."""

    __slots__ = ()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Export the rows as one Arrow array with nulls (Arrow PyCapsule Interface), through pyarrow."""
        from zerocopy.tables.hub import hub

        array, _ = hub().array_of_result(self)
        exported: tuple[object, object] = array.__arrow_c_array__(requested_schema)
        return exported

    def __zerocopy_node__(self) -> Node:
        """Return the parts; `convert` to a tensor framework converts each."""
        names = [name for name in _PARTS if getattr(self, name, None) is not None]

        def rebuilt(parts: list[Any]) -> object:
            return replace(self, **dict(zip(names, parts, strict=True)))  # type: ignore[type-var]

        return Node([*map(Attribute, names)], [getattr(self, name) for name in names], rebuilt)

    def __array__(self, *_: object, **__: object) -> Any:
        asked = f"numpy.asarray(zerocopy.{type(self).__name__})"
        why = "it may have several arrays, and the values alone are not the rows"
        fix = 'use x.values; or zc.convert(x, "pandas") or x.to_pylist(), which have the rows'
        raise UnsupportedConversionError(asked, why, fix, code="not-an-array")

    def to(self, *args: object, **options: object) -> Self:
        """Return the column with ``part.to(...)`` for each of its tensors, as PyTorch's libraries call it.

        Parameters
        ----------
        *args, **options
            Those of the tensors' own method: ``"cuda"``, ``non_blocking=True``. Parts without the method,
            such as NumPy's arrays, stay as they are.

        Returns
        -------
        Masked or Encoded
            A new column; its tensors are those of this one if they are there already.

        Examples
        --------
        >>> import pyarrow as pa, zerocopy as zc
        >>> day = zc.convert(pa.array([1, 2], pa.date32()), "torch", encode=True)
        >>> day.to("meta").values.device
        device(type='meta')
        """
        return self._each("to", *args, **options)

    def pin_memory(self) -> Self:
        """Return the column with its tensors in page-locked memory, as ``DataLoader(pin_memory=True)`` does.

        Returns
        -------
        Masked or Encoded
            Its tensors are ``part.pin_memory()``; parts without the method stay as they are.
        """
        return self._each("pin_memory")

    def _each(self, method: str, *args: object, **options: object) -> Self:
        def called(leaf: object, path: str = "") -> object:
            call = getattr(leaf, method, None)
            return leaf if call is None else call(*args, **options)

        moved: Self = rebuild(self, called)
        if isinstance(moved, Encoded) and moved.mask is not None:  # `rebuild` leaves it to `masked`
            moved.mask = called(moved.mask)
        return moved


# Not frozen: Lightning sets the fields of a copy when it moves a batch to a device.
@dataclass(slots=True, eq=False)
class Masked(_Result):
    """Values, and which of them are null: ``convert(..., nulls="mask")``.

    ``values, mask = masked`` unpacks it. In a table framework it is one column with nulls:
    ``zc.convert(masked, "polars.Series")``, ``pyarrow.array(masked)``.

    Attributes
    ----------
    values : tensor
        Undefined where a value is null.
    mask : tensor
        One bool per row, True where a value is null, as in ``numpy.ma`` and pandas; one per element for lists
        that are padded or have nulls inside.

    Notes
    -----
    The mask is always a copy: Arrow's validity bitmap is the opposite, with one bit per row (Arrow Columnar
    Format, "Validity bitmaps"). `values` are an alias if the column's memory allows it.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> values, mask = zc.convert(pa.array([1, None, 3]), to="numpy", nulls="mask")
    >>> mask
    array([False,  True, False])
    """

    values: Any
    mask: Any

    def __iter__(self) -> Iterator[Any]:
        """Iterate over `values` and `mask`."""
        return iter((self.values, self.mask))

    # pandas makes a list of an iterable without a length before it calls ``__array__``; polars makes one of
    # an iterable without ``__arrow_c_stream__`` before it calls ``__arrow_c_array__``.
    def __len__(self) -> int:
        return 2

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the rows as a stream of one Arrow array (Arrow PyCapsule Interface)."""
        from zerocopy.tables.hub import hub

        return hub().stream_of_result(self, requested_schema)

    def to_pylist(self) -> list[Any]:
        """Return the rows as Python objects; None where the mask is True.

        Returns
        -------
        list
            One object for each row. It shares no memory with the values. Where the mask is one of the
            elements of lists, a null list is a list of None.

        Examples
        --------
        >>> import numpy as np
        >>> Masked(np.array([1, 2]), np.array([False, True])).to_pylist()
        [1, None]
        """
        return _unmasked(to_pylist(self.values), self.mask)


@dataclass(slots=True, eq=False)
class Encoded(_Result):
    """A column of a type that tensors lack, as numbers: ``convert(..., encode=True)``.

    Attributes
    ----------
    type : str
        Its Arrow type: ``"timestamp[us, tz=UTC]"``.
    values : tensor, Encoded or dict
        Integers, codes, the bytes of text, the elements of lists, a struct's fields.
    offsets : tensor, optional
        For text and lists: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``.
    sizes : tensor, optional
        For list views: row ``i`` is ``values[offsets[i]:offsets[i] + sizes[i]]``.
    categories : tensor or Encoded, optional
        For codes: row ``i`` is ``categories[values[i]]``.
    unit : str, optional
        For dates, times and durations: ``"D"``, ``"s"``, ``"ms"``, ``"us"``, ``"ns"``; dates and
        timestamps count from 1970-01-01T00:00:00, in UTC if there is a time zone.
    timezone : str, optional
        For timestamps: its name, ``"Europe/Zurich"``, or an offset, ``"+01:00"``.
    scale : int, optional
        For decimals: the value is the integer times ``10 ** -scale``.
    ordered : bool
        Whether the categories have an order.
    mask : tensor, optional
        With ``nulls="mask"``: the mask of the :class:`Masked` that holds this.

    Notes
    -----
    The parts are Arrow's buffers (Arrow Columnar Format, "Variable-size Binary Layout", "Variable-size
    List Layout", "ListView Layout", "Dictionary-encoded Layout"), and are aliased if the target takes them.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> city = zc.convert(pa.array(["Bern", "Oslo", "Bern"]).dictionary_encode(), to="numpy", encode=True)
    >>> city.values, city.categories.to_pylist()
    (array([0, 1, 0], dtype=int32), ['Bern', 'Oslo'])
    """

    type: str
    values: Any
    offsets: Any = None
    sizes: Any = None
    categories: Any = None
    unit: str | None = None
    timezone: str | None = None
    scale: int | None = None
    ordered: bool = False
    mask: Any = field(default=None, repr=False)

    def to_pylist(self) -> list[Any]:
        """Return the rows as Python objects.

        Returns
        -------
        list
            A copy. Rows of dates, times and timestamps are integers in `unit`, rows of a struct
            are dicts, rows of a map are lists of pairs. A null that a mask marks is None.
        """
        return self._rows() if self.mask is None else _unmasked(self._rows(), self.mask)

    def _rows(self) -> list[Any]:
        """Return the rows, with undefined values where a mask of this column is True."""
        if isinstance(self.values, dict):
            fields = {name: to_pylist(part) for name, part in self.values.items()}
            return [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
        if self.offsets is not None:
            return self._slices()
        rows = to_pylist(self.values)
        if self.scale is not None:
            return [None if row is None else _decimal(row, self.scale) for row in rows]
        if self.categories is not None:
            names = to_pylist(self.categories)
            # nulls=-1 fills nulls with the code -1; codes of nulls under a mask are undefined.
            return [_words(code, names) for code in rows]
        return rows

    def _slices(self) -> list[Any]:
        """Return rows that are slices of `values`: text, bytes, lists and maps."""
        nested = isinstance(self.values, (dict, Encoded, Masked))
        values: Any = to_pylist(self.values) if nested else _array(self.values)
        starts = to_pylist(self.offsets)
        if self.sizes is None:
            slices = [values[start:end] for start, end in itertools.pairwise(starts)]
        else:
            sizes = to_pylist(self.sizes)
            slices = [values[start : start + n] for start, n in zip(starts, sizes, strict=True)]
        if self.type.startswith("map"):
            return [[(pair["key"], pair["value"]) for pair in row] for row in slices]
        if self.type.startswith(_TEXT):
            rows = [row.tobytes() for row in slices]
            return [row.decode() for row in rows] if "string" in self.type else rows
        return slices if nested else [row.tolist() for row in slices]

    def __repr__(self) -> str:
        parts = (
            f"{f.name}={v!r}"
            for f in fields(self)
            if f.repr and (v := getattr(self, f.name)) is not None and v is not False
        )
        return printable(f"Encoded({', '.join(parts)})", "\n")


@dataclass(slots=True, eq=False)
class Together:
    """Rows that a data set has read together, as the only sample of a batch."""

    rows: object


def first_row(tree: object) -> object:
    """Return the elements of the columns of a batch of one row; text and lists stay columns of one row."""
    if isinstance(tree, dict):
        return {name: first_row(part) for name, part in tree.items()}
    if isinstance(tree, Masked):
        return masked(first_row(tree.values), tree.mask[0])
    if isinstance(tree, Encoded):
        return tree if tree.offsets is not None else replace(tree, values=first_row(tree.values))
    try:
        return tree[0]  # type: ignore[index]
    except (TypeError, RuntimeError) as error:  # such as tvm_ffi's tensors, and Warp's arrays
        if type(error) not in (TypeError, RuntimeError):
            raise  # a failure, such as that of a GPU
        asked, fix = f"dataset[...]: a row of {type_name(tree)}", "take a batch of one row: data[3:4]"
        raise UnsupportedConversionError(asked, str(error), fix, code="framework-error") from error


def to_pylist(result: object) -> list[Any]:
    """Return the rows of a tensor, `Masked` or `Encoded` as Python objects; None where a mask is True."""
    if isinstance(result, (Masked, Encoded)):
        return result.to_pylist()
    rows: list[Any] = _array(result).tolist()
    return rows


def _words(codes: list[Any] | int | None, names: list[Any]) -> object:
    """Return the words of codes, or of lists of codes, which `stack_results` makes."""
    if isinstance(codes, list):
        return [_words(code, names) for code in codes]
    return None if codes is None or not 0 <= codes < len(names) else names[codes]


def stack_results(columns: Sequence[Any], stack: Callable[[list[Any]], Any]) -> object:
    """Return one column with a further dimension, for functions that collate samples.

    ``stack(parts)`` stacks the numbers and the masks. The categories must be the same.
    """
    first = columns[0]
    if isinstance(first, Together):
        return first.rows
    if isinstance(first, Masked):
        if any(_kind(column) != _kind(first) for column in columns):
            raise _unequal(columns, "the samples are of different types", "return one type from the dataset")
        values, masks = zip(*columns, strict=True)
        inner = stack_results(values, stack) if isinstance(first.values, Encoded) else stack([*values])
        return masked(inner, stack([*masks]))
    if (
        first.offsets is not None
        or first.scale is not None
        or isinstance(first.values, (dict, Masked, Encoded))
    ):
        why = f"a row of {first.type} is not one number, so samples cannot be stacked"
        fix = "pass collate_fn=list to the DataLoader, which keeps the samples apart; or zc.loader(source, "
        raise _unequal(columns, why, fix + '"torch", encode=True) makes batches of such columns')
    words = None if first.categories is None else to_pylist(first.categories)
    for place, column in enumerate(columns):
        if (kind := _kind(column)) != _kind(first):
            why = f"sample 0 is {_kind(first)}, and sample {place} is {kind}"
            raise _unequal(columns, why, "return columns of one type from the dataset")
        if column.categories is not first.categories and to_pylist(column.categories) != words:
            why = f"samples 0 and {place} have different categories, so equal codes mean different words"
            fix = 'pass the words of all samples to each conversion: encode={"column": words}; or '
            raise _unequal(columns, why, fix + 'zc.loader(source, "torch", encode=True) collects them')
    mask = None if first.mask is None else stack([column.mask for column in columns])
    stacked: Encoded = replace(first, values=stack([column.values for column in columns]), mask=mask)
    return stacked


def _kind(column: object) -> str:
    """Return the properties that columns must share to be stacked, as a text."""
    if isinstance(column, Masked):
        return f"Masked of {_kind(column.values)}" if isinstance(column.values, Encoded) else "Masked"
    if not isinstance(column, Encoded):
        return type(column).__qualname__
    parts = {"ordered": column.ordered or None, "categories": column.categories, "a mask": column.mask}
    with_parts = ", ".join(name for name, part in parts.items() if part is not None)
    return column.type + (with_parts and f" with {with_parts}")


def _unequal(columns: Sequence[object], why: str, fix: str) -> UnsupportedConversionError:
    asked = f"collate({len(columns)} samples of zerocopy.Encoded)"
    return UnsupportedConversionError(asked, why, fix, code="unequal-samples")


def _unmasked(rows: list[Any], mask: object) -> list[Any]:
    def each(null: Any, row: Any) -> object:
        # A mask of several dimensions has one value for each element of the lists of a row.
        return [*map(each, null, row)] if isinstance(null, list) else None if null else row

    return [*map(each, to_pylist(mask), rows)]


def _array(tensor: object) -> Any:
    from zerocopy import convert

    return convert(tensor, "numpy")


def host_array(part: object, dtype: str = "") -> Array:
    """Return a part as an ndarray that aliases it.

    Raises
    ------
    CopyRequiredError
        It is on a device, or requires a copy for another reason.
    UnsupportedConversionError
        It has another dtype than `dtype`, that of a mask.
    """
    from zerocopy import convert

    try:
        array: Array = convert(part, "numpy", copy=False)
    except CopyRequiredError as error:
        remedy = 'copy it first: zc.convert(x, "numpy")'
        why = f"Arrow cannot alias a part: {error.why}"
        raise CopyRequiredError("", why, remedy, code=error.code) from error
    if dtype and array.dtype != dtype:
        why = f"the mask has dtype {array.dtype}; expected {dtype}"
        raise UnsupportedConversionError("", why, "pass one bool per row", code="invalid-mask")
    return array


def _decimal(limbs: int | list[int], scale: int) -> decimal.Decimal:
    """Return a decimal from its integer, which wide types store as 64-bit limbs, the lowest first."""
    if isinstance(limbs, list):
        integer = sum(limb << (64 * i) for i, limb in enumerate(limbs))
        limbs = integer - (1 << (64 * len(limbs))) if limbs[-1] >> 63 else integer
    # From text: arithmetic would round to the context's 28 digits.
    return decimal.Decimal(f"{limbs}E{-scale}")


def masked(values: object, mask: object) -> Masked:
    """Return values with their mask, which encoded values hold too: `Encoded.to_pylist` reads it."""
    return Masked(replace(values, mask=mask) if isinstance(values, Encoded) else values, mask)


def result_leaves(tree: object, path: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of a result, or of a plan's tree, with their paths."""
    leaves: list[tuple[str, Any]] = []
    rebuild(tree, lambda leaf, place: leaves.append((place, leaf)), path)
    return leaves


def rebuild(tree: object, leaf: Callable[[Any, str], Any], path: str = "", categories: bool = True) -> Any:
    """Return the same result with ``leaf(value, path)`` in place of each of its leaves.

    Without `categories`, those of codes stay as they are.
    """
    if not isinstance(tree, (dict, Masked, Encoded)):
        return leaf(tree, path)
    if isinstance(tree, dict):
        return {key: rebuild(value, leaf, f"{path}[{key!r}]", categories) for key, value in tree.items()}
    if isinstance(tree, Masked):
        values = rebuild(tree.values, leaf, path + ".values", categories)
        return masked(values, rebuild(tree.mask, leaf, path + ".mask"))
    inner = {
        name: rebuild(value, leaf, f"{path}.{name}", categories)
        for name in ("values", "offsets", "sizes", "categories")[: 4 if categories else 3]
        if (value := getattr(tree, name)) is not None
    }
    return replace(tree, **inner)
