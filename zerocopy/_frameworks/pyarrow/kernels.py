"""Kernels that pyarrow lacks or has with faults: for views, run-end encoding, and types inside others.

pyarrow 24 casts short text to views whose text buffer is NULL. It reads the buffer in ``nbytes`` and when it
exports the array, also inside other types (apache/arrow#49740, fixed in 25). A cast of views to text adds up
the lengths of nulls too, which may be negative: it then writes beyond its memory (pyarrow 26). The functions
take the module pyarrow as `pa`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from zerocopy.errors import UnsupportedConversionError
from zerocopy.source import Array

_VIEWS = ("Type_STRING_VIEW", "Type_BINARY_VIEW")


@cache
def may_lack_text(pa: Any) -> bool:
    """Whether this pyarrow casts text to views without a text buffer."""
    return int(pa.__version__.partition(".")[0]) < 25


def contains(pa: Any, kind: Any, names: tuple[str, ...]) -> bool:
    """Whether the type, or a type inside it, has one of these names in `pyarrow.lib`."""
    if isinstance(kind, pa.BaseExtensionType):
        return contains(pa, kind.storage_type, names)
    if pa.types.is_dictionary(kind):
        return contains(pa, kind.value_type, names)
    # By the type's id, because the text of a nested type contains the names of its fields.
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return kind.id in _ids(pa, names) or any(contains(pa, each, names) for each in inner)


@cache
def _ids(pa: Any, names: tuple[str, ...]) -> frozenset[int]:
    return frozenset(number for name in names if (number := getattr(pa.lib, name, None)) is not None)


def holds_views(pa: Any, kind: Any) -> bool:
    """Whether the type, or a type inside it, stores text as views."""
    return contains(pa, kind, _VIEWS)


def is_view(pa: Any, kind: Any) -> bool:
    """Whether a type stores text or bytes as views."""
    return kind.id in _ids(pa, _VIEWS)


def with_text(pa: Any, array: Any) -> Any:
    """Return an array, chunked or not, without NULL text buffers: itself if it has none."""
    chunks = list(getattr(array, "chunks", [array]))
    lacking = [_lacks_text(pa, chunk) for chunk in chunks]
    if not any(lacking):
        return array
    both = zip(chunks, lacking, strict=True)
    chunks = [_rebuilt(pa, each, _of_views(_with_text)) if lacks else each for each, lacks in both]
    return pa.chunked_array(chunks, array.type) if isinstance(array, pa.ChunkedArray) else chunks[0]


def _lacks_text(pa: Any, array: Any) -> bool:
    if is_view(pa, array.type):
        return any(text is None for text in array.buffers()[2:])  # a concatenation has those of each part
    return holds_views(pa, array.type) and any(_lacks_text(pa, part) for part in _parts(pa, array))


def _parts(pa: Any, array: Any) -> Iterator[Any]:
    """Yield the arrays inside an array; the fields of structs and sparse unions begin at its first row."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield array.storage
    elif pa.types.is_dictionary(kind):
        yield array.dictionary
    elif pa.types.is_struct(kind) or pa.types.is_union(kind):
        yield from (array.field(i) for i in range(kind.num_fields))
    elif kind.num_fields:
        yield array.values


def cast_views(pa: Any, array: Any, kind: Any) -> Any:
    """Return an array, chunked or not, cast to `kind`, after the views of nulls are made empty."""
    if array.type == kind:
        return array
    if not len(array) or not holds_views(pa, array.type):
        return array.cast(kind)
    if isinstance(array, pa.ChunkedArray):
        # pyarrow 26 casts an array without rows to an invalid one if it has runs inside it.
        return pa.chunked_array([cast_views(pa, chunk, kind) for chunk in array.chunks if len(chunk)], kind)
    if is_view(pa, array.type):
        return (_rebuilt(pa, array, _of_views(_with_empty_nulls)) if array.null_count else array).cast(kind)
    # One view at a time: pyarrow 26 casts runs inside views of lists, and slices of them, to invalid arrays.
    made = _rebuilt(pa, array, _as_large)
    return made if made.type == kind else made.cast(kind)


def without_invalid_empties(pa: Any, array: Any, name: str) -> Any:
    """Return the array with new chunks in place of empty ones that pyarrow refuses."""
    chunks = list(getattr(array, "chunks", [array]))
    for i, chunk in enumerate(chunks):
        try:
            chunk.validate()
        except pa.ArrowInvalid as error:
            if len(chunk):
                why, remedy = f"its content is invalid: {error}", "fix it where it is created"
                asked = f"convert({name})"
                raise UnsupportedConversionError(asked, why, remedy, code="invalid-content") from error
            # pyarrow 26 imports valid empty slices of views as arrays that it refuses in a table.
            chunks[i] = pa.nulls(0, chunk.type)
    return pa.chunked_array(chunks, array.type) if isinstance(array, pa.ChunkedArray) else chunks[0]


#: ``change(pa, array, before)`` returns a replacement that begins `before` rows before the array, or None.
Change = Callable[[Any, Any, int], Any]


def _of_views(repair: Callable[[Any, list[Any], int, int], list[Any]]) -> Change:
    """Return a change that gives views the buffers ``repair(pa, buffers, offset, length)``."""

    def change(pa: Any, array: Any, before: int) -> Any:
        if not is_view(pa, array.type):
            return None
        offset, length = array.offset - before, len(array) + before
        buffers = repair(pa, array.buffers(), offset, length)
        return pa.Array.from_buffers(array.type, length, buffers, -1, offset)

    return change


def _as_large(pa: Any, array: Any, before: int) -> Any:
    """Return views as text or bytes with 64-bit offsets."""
    if not is_view(pa, array.type):
        return None
    views = _of_views(_with_empty_nulls)(pa, array, before)
    return views.cast(pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary())


def with_decoded_lists(pa: Any, array: Any) -> Any:
    """Return an array with decoded categories inside its fixed-size lists, at any depth."""
    return _rebuilt(pa, array, _decode_lists)


def _decode_lists(pa: Any, array: Any, before: int) -> Any:
    return _rebuilt(pa, array, _decode, before) if pa.types.is_fixed_size_list(array.type) else None


def _decode(pa: Any, array: Any, before: int) -> Any:
    kind = array.type
    if not pa.types.is_dictionary(kind):
        return None
    codes = _codes(pa, array, before)
    words = array.dictionary
    if holds_views(pa, kind.value_type):  # pyarrow 26 cannot gather views
        words = cast_views(
            pa, words, pa.large_binary() if "binary" in str(kind.value_type) else pa.large_string()
        )
    return words.take(codes)


def _codes(pa: Any, array: Any, before: int) -> Any:
    offset, length = array.offset - before, len(array) + before
    return pa.Array.from_buffers(array.type.index_type, length, array.indices.buffers(), -1, offset)


def _with_text(pa: Any, buffers: list[Any], offset: int, length: int) -> list[Any]:
    # An empty buffer instead, because views of longer text have the position of theirs.
    return [*buffers[:2], *(pa.py_buffer(b"") if text is None else text for text in buffers[2:])]


def _with_empty_nulls(pa: Any, buffers: list[Any], offset: int, length: int) -> list[Any]:
    bitmap, views, *texts = buffers
    if bitmap is None:
        return buffers
    is_valid = pa.BooleanArray.from_buffers(pa.bool_(), length, [None, bitmap], 0, offset)
    source = np.frombuffer(views, np.uint8)[: 16 * (offset + length)].reshape(-1, 16)
    own = np.empty_like(source)  # rows before the offset are not read
    own[offset:] = source[offset:]
    own[offset:][~is_valid.to_numpy(zero_copy_only=False)] = 0
    return [bitmap, pa.py_buffer(own), *texts]


def _rebuilt(pa: Any, array: Any, change: Change, before: int = 0) -> Any:
    """Return an array that begins `before` rows earlier, over the same buffers but those of changed parts."""
    changed = change(pa, array, before)
    if changed is not None:
        return changed
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _rebuilt(pa, array.storage, change, before))
    offset, length = array.offset - before, len(array) + before
    if types.is_dictionary(kind):
        words = _rebuilt(pa, array.dictionary, change)
        codes = _codes(pa, array, before)
        return pa.DictionaryArray.from_arrays(codes, words, ordered=kind.ordered, safe=False)
    buffers = array.buffers()
    if not kind.num_fields:
        return pa.Array.from_buffers(kind, length, buffers, -1, offset) if before else array
    # pyarrow slices the fields of structs and of sparse unions to the rows of their array.
    is_sliced = types.is_struct(kind) or (types.is_union(kind) and kind.mode == "sparse")
    parts = [_rebuilt(pa, part, change, array.offset if is_sliced else 0) for part in _parts(pa, array)]
    kind = _of_parts(pa, kind, [part.type for part in parts])
    if types.is_run_end_encoded(kind):
        parts = [array.run_ends, *parts]
    nulls = 0 if types.is_union(kind) or types.is_run_end_encoded(kind) else -1
    return pa.Array.from_buffers(kind, length, buffers[: kind.num_buffers], nulls, offset, parts)


def _of_parts(pa: Any, kind: Any, parts: list[Any]) -> Any:
    """Return a type whose parts have these types."""
    types = pa.types
    if types.is_run_end_encoded(kind):
        return kind if kind.value_type == parts[0] else pa.run_end_encoded(kind.run_end_type, parts[0])
    if all(kind.field(i).type == part for i, part in enumerate(parts)):
        return kind
    fields = [kind.field(i).with_type(part) for i, part in enumerate(parts)]
    if types.is_struct(kind):
        return pa.struct(fields)
    if types.is_union(kind):
        return pa.union(fields, kind.mode, kind.type_codes)
    if types.is_map(kind):
        return pa.map_(*parts[0], keys_sorted=kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    makers = {types.is_list: pa.list_, types.is_large_list: pa.large_list}
    makers |= {types.is_list_view: pa.list_view, types.is_large_list_view: pa.large_list_view}
    return next(make for is_kind, make in makers.items() if is_kind(kind))(fields[0])


# -- joined arrays ----------------------------------------------------------------


def whole_array(array: Any) -> Any:
    """Return an array, chunked or not, as one array; concat_arrays() would copy a single chunk."""
    if not hasattr(array, "chunks"):
        return array
    import pyarrow as pa

    if array.num_chunks == 0:  # combine_chunks() of pyarrow 24 refuses some types
        return pa.nulls(0, array.type)
    return array.chunk(0) if array.num_chunks == 1 else joined(pa, array.chunks)


class _Retyped:
    """An array with a type of the same layout, such as the storage of its extension types."""

    def __init__(self, array: Any, kind: Any) -> None:
        self._array, self._kind = array, kind

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._kind.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def _of_storage(pa: Any, operation: Callable[[Any], Any], arrays: Sequence[Any], result: Any) -> Any:
    """Return ``operation(arrays)`` as type `result`; by storage types if pyarrow needs them."""
    try:
        return operation(arrays)
    except pa.ArrowNotImplementedError:
        storage = _storage_type(pa, arrays[0].type)
        parts = [pa.array(_Retyped(array, storage)) for array in arrays if len(array)]
        if not parts:
            return pa.nulls(0, result)
        # pyarrow 26 imports some empty arrays as invalid ones, so that empty slices stand for them.
        made = operation([*parts, parts[0].slice(0, 0)] if len(parts) < len(arrays) else parts)
        return pa.array(_Retyped(made, result))


def _storage_type(pa: Any, kind: Any) -> Any:
    """Return a type with storage in place of the extension types in it."""
    if isinstance(kind, pa.BaseExtensionType):
        return _storage_type(pa, kind.storage_type)
    if pa.types.is_run_end_encoded(kind):
        return _of_parts(pa, kind, [_storage_type(pa, kind.value_type)])
    return _of_parts(pa, kind, [_storage_type(pa, kind.field(i).type) for i in range(kind.num_fields)])


def joined(pa: Any, arrays: Sequence[Any]) -> Any:
    """Return the arrays one after the other, as a copy that begins at row 0."""
    return _of_storage(pa, pa.concat_arrays, arrays, arrays[0].type)


def items_of(pa: Any, lists: Any) -> Any:
    """Return the items of lists, or of views of lists, that are not null."""
    return _of_storage(pa, lambda arrays: arrays[0].flatten(), [lists], lists.type.value_type)


# -- rows in any order ------------------------------------------------------------------------


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
