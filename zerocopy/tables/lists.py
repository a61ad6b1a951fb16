"""Columns of lists and of tensors of one shape: ``lists=``, and Arrow's type ``arrow.fixed_shape_tensor``.

Lists of one length lie in memory as the rows of a matrix: the values of an Arrow list column are an alias
of it, because the length determines the offsets ("Variable-size List Layout").

``arrow.fixed_shape_tensor`` is a canonical extension type: its storage is a fixed-size list; its metadata, in
JSON, holds the shape and the permutation of the dimensions. ``lists="variable"`` makes lists with offsets of
it, which DuckDB and Spark expect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables import memory, placement
from zerocopy.tables.column import ArrowArray, Column
from zerocopy.tables.nulls import fits

LISTS = ("list", "list_view")
_PAD = Fix(options={"lists": "pad"}, effect="pads them to one length")
#: Also for lists inside fixed-size ones, which have no offsets of their own.
OBJECTS = Fix(action="objects", alone=True, effect="gives Python objects")
_RAGGED = Fix(options={"lists": "ragged"}, effect="gives their elements and offsets")
_BUILD = "build it from offsets that never go down"
_VIEWS = Reason("its lists are views, which lie in another order", code="list-views")
_NULLS = Reason("its null rows have no elements", code="nulls")


@dataclass(frozen=True, slots=True)
class Lists:
    """The policy for columns of lists.

    Attributes
    ----------
    mode : str
        ``"dense"``: one more dimension. ``"pad"``: the same, with the length of the longest list.
        ``"ragged"``: elements and offsets. ``"refuse"``: none of them.
    pad_value : number or bool
        The value after the last element of a shorter list.
    max_length : int, optional
        With ``"pad"``: elements after these are left out.
    """

    mode: str = "refuse"
    pad_value: Any = 0
    max_length: int | None = None


#: For callers that take no lists.
REFUSED = Lists()


class Rows(NamedTuple):
    """Where the lists of a column are in its items, of which the first used one is number 0.

    `size` is the length of all lists; -1 if they differ.
    """

    starts: Array
    lengths: Array
    items: Column
    size: int

    @property
    def in_order(self) -> bool:
        """Whether each list begins where the one before it ends."""
        return bool((self.starts[1:] == self.starts[:-1] + self.lengths[:-1]).all())


class Tensors(NamedTuple):
    """Lists of one shape: the shape, their elements one after the other, and how rows are made of them.

    Attributes
    ----------
    shape : tuple of int
        The shape of each row.
    elements : Column
        The elements of all lists.
    levels : list of Column
        The lists within the lists.
    gather : tuple of ndarray, optional
        The rows that have elements, and the item with which each of these begins, if rows and items are
        not in one order; and why.
    """

    shape: tuple[int, ...]
    elements: Column
    levels: list[Column]
    gather: tuple[Array, Array, Reason] | None = None


def rows_of(column: Column) -> Rows:
    """Return where the lists of a column of kind ``list`` or ``list_view`` are; it has rows.

    Raises
    ------
    UnsupportedConversionError
        The offsets go down, or lists lie outside the elements.
    """
    assert column.field is not None
    offsets = placement.fetch(column.offsets())
    if column.field.kind == "list_view":
        # In 64 bits, in which the sum of an offset and a size cannot overflow.
        starts, lengths = offsets.astype(np.int64), placement.fetch(column.sizes()).astype(np.int64)
        if column.null_count:  # the extent of a null row is undefined ("ListView Layout")
            hidden = placement.fetch(column.mask())
            lengths[hidden], starts[hidden] = 0, 0 if hidden.all() else starts[~hidden].min()
        first, stop = int(starts.min()), int((starts + lengths).max())
        if first < 0 or stop > column.child().length:
            why = f"its lists go from {first:,} to {stop:,}, and it has {column.child().length:,} elements"
            raise UnsupportedConversionError("", why, _BUILD, code="invalid-offsets")
    else:
        starts, lengths = offsets[:-1], offsets[1:] - offsets[:-1]
        first, stop = int(offsets[0]), int(offsets[-1])  # the importer of the memory has checked these
    size = int(lengths[0])
    is_list = column.field.kind == "list"
    fits = not is_list or size * len(lengths) == stop - first
    has_one_length = fits and size >= 0 and bool((lengths == size).all())
    if not has_one_length:
        # A difference can overflow, so that offsets that go down have positive lengths.
        down = offsets[1:] < offsets[:-1] if is_list else lengths < 0
        if down.any():
            row = int(down.argmax())
            why = f"its offsets go down at [{row + 1}]"
            raise UnsupportedConversionError("", why, _BUILD, code="invalid-offsets")
    items = column.items(first, stop - first)
    return Rows(starts - first if first else starts, lengths, items, size if has_one_length else -1)


def tensors_of(column: Column, is_inner: bool = False) -> Tensors:
    """Return a column of lists, or of lists of lists, as tensors of one shape.

    With `is_inner`, the column is that of the items of lists.

    Raises
    ------
    UnsupportedConversionError
        The lists have different lengths.
    """
    shape, level, levels = [], column, [column]
    gather = None
    while level.field is not None and not level.field.extension:
        if level.field.kind == "fixed_list":
            size, items = level.field.list_size, level.child()
        elif level.field.kind in LISTS:
            size, items, moved = _one_length(level, is_outer=level is column and not is_inner)
            gather = gather or moved
        else:
            break
        shape.append(size)
        levels.append(level := items)
    return Tensors(tuple(shape), levels.pop(), levels[1:], gather)


def _one_length(column: Column, is_outer: bool) -> tuple[int, Column, tuple[Array, Array, Reason] | None]:
    """Return the length of all lists of a column, their items, and how rows are made of these."""
    if not column.length:
        return 0, column.items(0, 0), None
    rows = rows_of(column)
    size = rows.size
    if size >= 0:
        if column.field is not None and (column.field.kind == "list" or rows.in_order):
            return size, rows.items, None
        if is_outer:
            return size, rows.items, (np.arange(column.length), rows.starts, _VIEWS)
    present = (
        np.flatnonzero(~placement.fetch(column.mask())) if column.null_count else np.arange(column.length)
    )
    size = int(rows.lengths[present[0]]) if len(present) else 0
    others = np.flatnonzero(rows.lengths[present] != size)
    if not len(others) and is_outer:
        return size, rows.items, (present, rows.starts[present], _NULLS if column.null_count else _VIEWS)
    noun = "row" if is_outer else "inner list"
    if not len(others):
        why = "its inner lists are views in another order, or have nulls"
        raise UnsupportedConversionError("", why, code="list-views", fixes=[_RAGGED, OBJECTS])
    row, first = int(present[others[0]]), int(present[0])
    why = (
        f"its lists have different lengths: {noun} {row:,} has {int(rows.lengths[row]):,}, "
        f"and {noun} {first:,} has {size:,}"
    )
    fixes = [_PAD, _RAGGED] if is_outer else [_RAGGED, OBJECTS]
    raise UnsupportedConversionError("", why, code="list-lengths", fixes=fixes)


def gathered(flat: Source, tensors: Tensors, rows: int) -> Source:
    """Return one row for each row of the column, from items in another order; null rows are 0."""
    assert tensors.gather is not None
    present, starts, why = tensors.gather
    size, rest = tensors.shape[0], tensors.shape[1:]

    def host() -> Array:
        elements = flat.host()
        out = np.zeros((rows, *tensors.shape), elements.dtype)
        if not out.size:  # the number of items cannot be inferred from no elements
            return out
        items = elements.reshape(-1, *rest)
        out[present] = items[starts[:, None] + np.arange(size)]
        return out

    return _computed(flat, (rows, *tensors.shape), host, why)


class Padded:
    """The lists of a column, each with the length of the longest one.

    Parameters
    ----------
    column : Column
        Of kind ``list`` or ``list_view``.
    policy : Lists
        With the value after the last element, and the greatest length.

    Raises
    ------
    UnsupportedConversionError
        The items are lists of different lengths themselves.
    """

    def __init__(self, column: Column, policy: Lists) -> None:
        if column.length:
            rows = rows_of(column)
        else:
            none = np.zeros(0, np.int64)
            rows = Rows(none, none, column.items(0, 0), 0)
        lengths = rows.lengths.astype(np.int64)
        if column.null_count:
            lengths[placement.fetch(column.mask())] = 0
        longest = int(lengths.max(initial=0))
        self.length: int = longest if policy.max_length is None else min(longest, policy.max_length)
        self._counts, self._starts = np.minimum(lengths, self.length), rows.starts.astype(np.int64)
        self._policy, self._rows = policy, column.length
        inner = tensors_of(rows.items, is_inner=True)
        self.elements: Column = inner.elements
        self._rest = inner.shape
        # Without inner lists, the items are the elements.
        self.levels: list[Column] = [rows.items, *inner.levels] if inner.shape else []
        self.why: Reason = Reason(
            f"its lists have different lengths, and are padded to {self.length:,}", code="padded-lists"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._rows, self.length, *self._rest)

    def values(self, flat: Source) -> Source:
        """Return the elements as one tensor, with the padding after the last of each list."""
        pad, storage = self._policy.pad_value, flat.view.dtype.storage
        if not fits(pad, storage):
            why = f"its elements are {flat.view.dtype}, which cannot hold pad_value={pad!r}"
            raise LossyConversionError(
                "", why, code="lossy", fixes=[Fix(options={"pad_value": None}, effect="pads with 0")]
            )
        return self._spread(flat, pad)

    def mask(self, inner: Source, padding: bool = True) -> Source:
        """Return the mask of the elements: `inner` has the nulls, and the padding has the value `padding`."""
        return self._spread(inner, padding)

    def _spread(self, flat: Source, pad: Any) -> Source:
        def host() -> Array:
            elements = flat.host()
            # The number of items cannot be inferred from no elements.
            items = elements.reshape(-1 if elements.size else 0, *self._rest)
            return memory.padded(items, self._starts, self._counts, self.length, pad)

        return _computed(flat, self.shape, host, self.why)


def _computed(flat: Source, shape: tuple[int, ...], host: Callable[[], Array], why: Reason) -> Source:
    """Return a source of new memory that is made of the elements `flat`."""
    view = replace(
        flat.view,
        ptr=0,
        shape=shape,
        strides=contiguous_strides(shape, flat.view.dtype.itemsize),
        readonly=False,
    )
    source = replace(flat, view=view, host=host, obj=view, reasons=(*flat.reasons, why), writer=None)
    return source if view.device.is_host else placement.via_host(source)


def described(shape: Sequence[int]) -> str:
    """Return the step of a plan about lists that become dimensions."""
    lengths = " and ".join(f"{size:,}" for size in shape)
    return f"its lists have one length, {lengths}: " + (
        "one more dimension" if len(shape) == 1 else "dimensions"
    )


# -- arrow.fixed_shape_tensor -----------------------------------------------------------------


def shape_of(field: Field) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the physical shape of each tensor, and the order of its dimensions, if there is one.

    Raises
    ------
    UnsupportedConversionError
        The metadata is not JSON, or does not fit the lists.

    Examples
    --------
    >>> name, data = b"ARROW:extension:name", b"ARROW:extension:metadata"
    >>> shape_of(Field("+w:6", metadata={name: b"arrow.fixed_shape_tensor", data: b'{"shape": [2, 3]}'}))
    ((2, 3), ())
    """
    text = field.metadata.get(b"ARROW:extension:metadata", b"{}")
    try:
        metadata = json.loads(text)
        shape = tuple(int(n) for n in metadata["shape"])
        order = tuple(int(n) for n in metadata.get("permutation") or ())
        if prod(shape) != field.list_size or (order and sorted(order) != list(range(len(shape)))):
            raise ValueError(f"{shape} and {order} do not fit lists of {field.list_size}")
    except (ValueError, KeyError, TypeError) as error:
        why = f"it is a column of tensors whose metadata does not fit its lists: {text!r}"
        remedy = "fix the program that wrote the metadata"
        raise UnsupportedConversionError("", why, remedy, code="invalid-metadata") from error
    return shape, () if order == tuple(range(len(shape))) else order


def memory_order(view: StridedView) -> tuple[int, ...] | None:
    """Return the dimensions after the first in the order of the memory; None if a reader would need a copy.

    pyarrow 26 writes and reads a permutation that is not its own inverse as the inverse one: wrong
    values. Such an order, and memory with gaps, give None.

    Examples
    --------
    >>> from zerocopy.dtype import by_name
    >>> from zerocopy.device import HOST
    >>> memory_order(StridedView(64, (5, 2, 3), (24, 4, 8), by_name("float32"), HOST, False, None))
    (1, 0)
    """
    inner = range(1, view.ndim)
    # Dimensions of size 1 may have any stride: they keep their places.
    moved = sorted((i for i in inner if view.shape[i] != 1), key=lambda i: -view.strides[i])
    places = iter(moved)
    order = tuple(i if view.shape[i] == 1 else next(places) for i in inner)
    axes = (0, *order)
    shape, strides = (tuple(values[i] for i in axes) for values in (view.shape, view.strides))
    if not replace(view, shape=shape, strides=strides).c_contiguous:
        return None
    order = tuple(i - 1 for i in order)
    return order if all(order[place] == i for i, place in enumerate(order)) else None


def permuted_tensors(array: Array, order: tuple[int, ...], pa: ModuleType) -> ArrowArray:
    """Return an array, whose dimensions after the first are stored in `order`, as a column of tensors."""
    physical = array.transpose(0, *(i + 1 for i in order))
    flat = pa.Array.from_buffers(
        pa.from_numpy_dtype(array.dtype), array.size, [None, pa.py_buffer(physical)], null_count=0
    )
    shape = physical.shape[1:]
    permutation = None if list(order) == sorted(order) else [order.index(i) for i in range(len(order))]
    kind = pa.fixed_shape_tensor(flat.type, shape, permutation=permutation)
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(flat, prod(shape)))


def nested_lists(column: ArrowArray, pa: ModuleType) -> ArrowArray:
    """Return a chunked ``arrow.fixed_shape_tensor`` as nested lists of its physical shape.

    The values and the bitmap of nulls are aliased; `pa` is the module of the hub.
    """
    kind = column.type.value_type
    for size in reversed(column.type.shape):
        kind = pa.list_(kind, size)
    return pa.chunked_array([_nested(chunk.storage, column.type.shape, pa) for chunk in column.chunks], kind)


def _nested(rows: ArrowArray, shape: Sequence[int], pa: ModuleType) -> ArrowArray:
    inner = rows.values
    for size in reversed(shape[1:]):
        inner = pa.FixedSizeListArray.from_arrays(inner, size)
    kind, bitmap = pa.list_(inner.type, shape[0]), rows.buffers()[:1]
    return pa.Array.from_buffers(kind, len(rows), bitmap, rows.null_count, rows.offset, [inner])


def variable_lists(array: ArrowArray, pa: ModuleType, is_wide: bool) -> ArrowArray:
    """Return lists of one length as lists with offsets, whose values alias those of `array`.

    With `is_wide`, the offsets have 64 bits.
    """
    if isinstance(array.type, pa.FixedShapeTensorType):
        array = nested_lists(pa.chunked_array([array]), pa).chunk(0)
    if not pa.types.is_fixed_size_list(array.type):
        return array
    size, count = array.type.list_size, len(array)
    values = variable_lists(array.values.slice(array.offset * size, count * size), pa, is_wide)
    offsets = np.arange(0, (count + 1) * size, size) if size else np.zeros(count + 1, np.int64)
    kind = pa.LargeListArray if is_wide else pa.ListArray
    return kind.from_arrays(pa.array(offsets.astype(np.int64 if is_wide else np.int32)), values)
