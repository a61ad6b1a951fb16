"""``arrow.fixed_shape_tensor``: a column of tensors of one shape.

This is a canonical extension type of Arrow's columnar format: its storage is a fixed-size
list; its metadata, in JSON, holds the shape and the permutation of the dimensions.
"""

from __future__ import annotations

import json
from math import prod
from typing import Any

from zerocopy.errors import UnsupportedConversionError
from zerocopy.protocols.arrow_schema import Field


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
