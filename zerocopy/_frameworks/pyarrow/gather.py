"""Rows of Arrow arrays in any order, also of types that pyarrow's ``take`` lacks: views, runs, their nests.

Views are gathered without their text. The functions take the module pyarrow as `pa`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy._frameworks.pyarrow.views import is_view, items_of, joined
from zerocopy.source import Array


def take(pa: Any, array: Any, rows: Array) -> Any:
    """Return a copy of some rows of an array, or of a column."""
    if isinstance(array, pa.ChunkedArray):
        if not len(array):
            return pa.chunked_array([], array.type)
        if pa.types.is_run_end_encoded(array.type):
            return _runs(pa, array, rows)
        # Arrow takes rows from one chunk five times as fast as from several; 2 GiB of text stay in several.
        try:
            array = pa.table([array], ["x"]).combine_chunks().column(0)
        except pa.ArrowNotImplementedError:
            array = pa.chunked_array([joined(pa, array.chunks)], array.type)
        several = array.num_chunks > 1
        return array.take(rows) if several else pa.chunked_array([take(pa, array.chunk(0), rows)], array.type)
    if _nests_fixed_lists(pa, array.type):
        return _take(pa, array, rows) if len(rows) else array.slice(0, 0)
    try:
        return array.take(pa.array(rows, pa.int64()))
    except pa.ArrowNotImplementedError:
        return _take(pa, array, rows) if len(rows) else array.slice(0, 0)


def _nests_fixed_lists(pa: Any, kind: Any, inside: bool = False) -> bool:
    """Whether a type has fixed-size lists of such lists: pyarrow 26 takes other rows of their slices."""
    if isinstance(kind, pa.BaseExtensionType):
        return _nests_fixed_lists(pa, kind.storage_type, inside)
    is_fixed = pa.types.is_fixed_size_list(kind)
    fields = (kind.field(number).type for number in range(kind.num_fields))
    return (inside and is_fixed) or any(_nests_fixed_lists(pa, each, inside or is_fixed) for each in fields)


def _runs(pa: Any, column: Any, rows: Array) -> Any:
    """Return rows of a column of runs, in as many chunks as their type of run ends needs."""
    values = take(pa, joined(pa, [chunk.values for chunk in column.chunks]), _run_of_rows(column)[rows])
    kind = column.type.run_end_type
    most = np.iinfo(kind.to_pandas_dtype()).max
    parts = [values.slice(low, most) for low in range(0, len(values), most)]
    ends = [pa.array(np.arange(1, len(part) + 1)).cast(kind) for part in parts]
    runs = [pa.RunEndEncodedArray.from_arrays(*pair) for pair in zip(ends, parts, strict=True)]
    return pa.chunked_array(runs, column.type)


def _run_of_rows(column: Any) -> Array:
    """Return the number of the run of each row, counted over all chunks."""
    runs, first = [], 0
    for chunk in column.chunks:
        places = np.arange(chunk.offset, chunk.offset + len(chunk))
        runs.append(first + np.searchsorted(chunk.run_ends.to_numpy(), places, side="right"))
        first += len(chunk.values)
    return np.concatenate(runs)


def _take(pa: Any, array: Any, rows: Array) -> Any:
    kind, types, count = array.type, pa.types, len(rows)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, take(pa, array.storage, rows))
    if is_view(pa, kind):
        return _views(pa, array, rows)
    if types.is_run_end_encoded(kind):
        return joined(pa, _runs(pa, pa.chunked_array([array]), rows).chunks)
    if types.is_struct(kind):
        parts = [take(pa, array.field(number), rows) for number in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, count, [_bitmap(pa, array, rows)], -1, 0, parts)
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        places = ((rows + array.offset)[:, None] * size + np.arange(size)).ravel()
        part = take(pa, array.values, places)
        return pa.Array.from_buffers(kind, count, [_bitmap(pa, array, rows)], -1, 0, [part])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        return _lists(pa, array, rows)
    return joined(pa, [array.slice(row, 1) for row in rows.tolist()])  # unions of such types


def _views(pa: Any, array: Any, rows: Array) -> Any:
    """Return rows of views of text over the same text: a view has 16 bytes."""
    bitmap, views, *texts = array.buffers()
    units = pa.Array.from_buffers(pa.binary(16), len(array), [bitmap, views], -1, array.offset)
    # pyarrow 24 reads the text of short views, which may be NULL.
    texts = [pa.py_buffer(b"") if text is None else text for text in texts]
    taken = units.take(pa.array(rows, pa.int64()))
    return pa.Array.from_buffers(array.type, len(rows), [*taken.buffers()[:2], *texts], -1)


def _lists(pa: Any, array: Any, rows: Array) -> Any:
    """Return rows of lists with offsets; the items of a null are left out."""
    offsets = array.offsets.to_numpy()
    starts, sizes = offsets[:-1][rows].astype(np.int64), np.diff(offsets)[rows].astype(np.int64)
    if array.null_count:
        sizes[~array.is_valid().to_numpy(zero_copy_only=False)[rows]] = 0
    ends = np.concatenate([[0], np.cumsum(sizes)])
    items = take(pa, array.values, np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1]))
    own = pa.py_buffer(ends.astype(offsets.dtype))
    return pa.Array.from_buffers(array.type, len(rows), [_bitmap(pa, array, rows), own], -1, 0, [items])


def _bitmap(pa: Any, array: Any, rows: Array) -> Any:
    """Return the validity of some rows as a bitmap; None without nulls."""
    if not array.null_count:
        return None
    return array.is_valid().take(pa.array(rows, pa.int64())).buffers()[1]


def own_items(pa: Any, array: Any) -> Any:
    """Return an array, or a column, whose lists and text have the items of its rows alone.

    A slice of Arrow's lists has the items of all rows. Offsets are copied, and items are
    aliased. Arrays without offsets are returned as they are.
    """
    kind, types = array.type, pa.types
    if isinstance(array, pa.ChunkedArray):
        chunks = [own_items(pa, chunk) for chunk in array.chunks]
        return pa.chunked_array(chunks, kind)
    if isinstance(kind, pa.BaseExtensionType):
        storage = own_items(pa, array.storage)
        return array if storage is array.storage else pa.ExtensionArray.from_storage(kind, storage)
    count, every = len(array), np.arange(len(array))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        offsets = array.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        items = own_items(pa, array.values.slice(first, last - first))
        buffers = [_bitmap(pa, array, every), pa.py_buffer(offsets - first)]
        return pa.Array.from_buffers(kind, count, buffers, -1, 0, [items])
    if types.is_struct(kind) and kind.num_fields:
        parts = [own_items(pa, array.field(number)) for number in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, count, [_bitmap(pa, array, every)], -1, 0, parts)
    if types.is_fixed_size_list(kind) and (array.offset or len(array.values) > count * kind.list_size):
        items = own_items(pa, array.values.slice(array.offset * kind.list_size, count * kind.list_size))
        return pa.Array.from_buffers(kind, count, [_bitmap(pa, array, every)], -1, 0, [items])
    if type(kind).__name__ in ("ListViewType", "LargeListViewType") and count:
        sizes = np.where(array.is_valid().to_numpy(zero_copy_only=False), array.sizes.to_numpy(), 0)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        buffers = [pa.py_buffer(part.astype(array.sizes.to_numpy().dtype)) for part in (starts, sizes)]
        items = own_items(pa, items_of(pa, array))
        return pa.Array.from_buffers(kind, count, [_bitmap(pa, array, every), *buffers], -1, 0, [items])
    is_text = types.is_string(kind) or types.is_binary(kind)
    if is_text or types.is_large_string(kind) or types.is_large_binary(kind):
        _, offsets, text = array.buffers()
        if offsets is None or text is None:
            return array
        own = np.frombuffer(offsets, np.int32 if is_text else np.int64)
        own = own[array.offset : array.offset + count + 1]
        text = text.slice(own[0], own[-1] - own[0])
        buffers = [_bitmap(pa, array, every), pa.py_buffer(own - own[0]), text]
        return pa.Array.from_buffers(kind, count, buffers, -1)
    return array
