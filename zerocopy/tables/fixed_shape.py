"""``arrow.fixed_shape_tensor``: a column of tensors of one shape.

The canonical extension type of Arrow's columnar format: storage is a fixed-size list,
and the metadata, in JSON, has the shape and how the dimensions are permuted.
"""

from __future__ import annotations

import json
from typing import Any

from zerocopy.errors import UnsupportedConversionError
from zerocopy.protocols.arrow_schema import Field


def shape_of(field: Field) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the physical shape of each tensor, and the order of its dimensions, if there is one.

    Raises
    ------
    UnsupportedConversionError
        The metadata is no JSON, or does not fit the lists.

    Examples
    --------
    >>> name, data = b"ARROW:extension:name", b"ARROW:extension:metadata"
    >>> shape_of(Field("+w:6", metadata={name: b"arrow.fixed_shape_tensor", data: b'{"shape": [2, 3]}'}))
    ((2, 3), ())
    """
    text = field.metadata.get(b"ARROW:extension:metadata", b"{}")
    try:
        said = json.loads(text)
        shape = tuple(int(n) for n in said["shape"])
        order = tuple(int(n) for n in said.get("permutation") or ())
        count = 1
        for n in shape:
            count *= n
        if count != field.list_size or (order and sorted(order) != list(range(len(shape)))):
            raise ValueError(f"{shape} and {order} do not fit lists of {field.list_size}")
    except (ValueError, KeyError, TypeError) as error:
        raise UnsupportedConversionError(
            "", f"is a column of tensors with metadata that fit nothing: {text!r}", "mend what wrote it"
        ) from error
    if order == tuple(range(len(shape))):
        order = ()
    return shape, order


def nested_lists(column: Any, pa: Any) -> Any:
    """Return a chunked ``arrow.fixed_shape_tensor`` as lists in lists, which have its physical shape.

    The values and the bitmap of nulls are aliased; `pa` is pyarrow.
    """
    shape = column.type.shape
    made = []
    for chunk in column.chunks:
        rows = chunk.storage
        inner = rows.values
        for size in reversed(shape[1:]):
            inner = pa.FixedSizeListArray.from_arrays(inner, size)
        made.append(
            pa.Array.from_buffers(
                pa.list_(inner.type, shape[0]),
                len(rows),
                rows.buffers()[:1],
                rows.null_count,
                rows.offset,
                [inner],
            )
        )
    kind = column.type.value_type
    for size in reversed(shape):
        kind = pa.list_(kind, size)
    return pa.chunked_array(made, kind)
