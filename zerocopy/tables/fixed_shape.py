"""``arrow.fixed_shape_tensor``: a column of tensors of one shape.

This is a canonical extension type of Arrow's columnar format: its storage is a fixed-size
list; its metadata, in JSON, holds the shape and the permutation of the dimensions.
``lists="variable"`` makes lists with offsets of it, which DuckDB and Spark expect.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from zerocopy.errors import UnsupportedConversionError
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array
from zerocopy.strided_view import StridedView


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


def permuted_tensors(array: Array, order: tuple[int, ...], pa: Any) -> Any:
    """Return an array, whose dimensions after the first are stored in `order`, as a column of tensors."""
    physical = array.transpose(0, *(i + 1 for i in order))
    flat = pa.Array.from_buffers(
        pa.from_numpy_dtype(array.dtype), array.size, [None, pa.py_buffer(physical)], null_count=0
    )
    shape = physical.shape[1:]
    permutation = None if list(order) == sorted(order) else [order.index(i) for i in range(len(order))]
    kind = pa.fixed_shape_tensor(flat.type, shape, permutation=permutation)
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(flat, prod(shape)))


def nested_lists(column: Any, pa: Any) -> Any:
    """Return a chunked ``arrow.fixed_shape_tensor`` as nested lists of its physical shape.

    The values and the bitmap of nulls are aliased; `pa` is the module of the hub.
    """
    kind = column.type.value_type
    for size in reversed(column.type.shape):
        kind = pa.list_(kind, size)
    return pa.chunked_array([_nested(chunk.storage, column.type.shape, pa) for chunk in column.chunks], kind)


def _nested(rows: Any, shape: Any, pa: Any) -> Any:
    inner = rows.values
    for size in reversed(shape[1:]):
        inner = pa.FixedSizeListArray.from_arrays(inner, size)
    kind, bitmap = pa.list_(inner.type, shape[0]), rows.buffers()[:1]
    return pa.Array.from_buffers(kind, len(rows), bitmap, rows.null_count, rows.offset, [inner])


def variable_lists(array: Any, pa: Any, is_wide: bool) -> Any:
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
