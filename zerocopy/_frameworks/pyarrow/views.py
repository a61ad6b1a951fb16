"""Views of text that pyarrow reads out of bounds: repaired arrays over the same memory.

pyarrow 24 casts short text to views whose text buffer is NULL. It reads the buffer in ``nbytes`` and when it
exports the array, also inside other types (apache/arrow#49740, fixed in 25). A cast of views to text adds up
the lengths of nulls too, which may be negative: it then writes beyond its memory (pyarrow 26). The functions
take the module pyarrow as `pa`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

_VIEWS = ("Type_STRING_VIEW", "Type_BINARY_VIEW")


@cache
def may_lack_text(pa: Any) -> bool:
    """Whether this pyarrow casts text to views without a text buffer."""
    return int(pa.__version__.partition(".")[0]) < 25


def holds_views(pa: Any, kind: Any) -> bool:
    """Whether the type, or a type inside it, stores text as views."""
    if isinstance(kind, pa.BaseExtensionType):
        return holds_views(pa, kind.storage_type)
    if pa.types.is_dictionary(kind):
        return holds_views(pa, kind.value_type)
    return is_view(pa, kind) or any(holds_views(pa, kind.field(i).type) for i in range(kind.num_fields))


def is_view(pa: Any, kind: Any) -> bool:
    """Whether a type stores text or bytes as views."""
    # By number, because a pyarrow without views has no function for them.
    return any(kind.id == getattr(pa.lib, name, None) for name in _VIEWS)


def with_text(pa: Any, array: Any) -> Any:
    """Return an array, chunked or not, without NULL text buffers: itself if it has none."""
    chunks = list(getattr(array, "chunks", [array]))
    lacking = [_lacks_text(pa, chunk) for chunk in chunks]
    if not any(lacking):
        return array
    both = zip(chunks, lacking, strict=True)
    chunks = [_rebuilt(pa, each, _with_text) if lacks else each for each, lacks in both]
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
    has_null_views = array.null_count or not is_view(pa, array.type)
    return (_rebuilt(pa, array, _with_empty_nulls) if has_null_views else array).cast(kind)


#: ``repair(pa, buffers, offset, length)`` returns the buffers of repaired views.
Repair = Callable[[Any, list[Any], int, int], list[Any]]


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


def _rebuilt(pa: Any, array: Any, repair: Repair, before: int = 0) -> Any:
    """Return an array over the same buffers but those of views, from `before` rows earlier on."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _rebuilt(pa, array.storage, repair, before))
    offset, length = array.offset - before, len(array) + before
    if types.is_dictionary(kind):
        codes = pa.Array.from_buffers(kind.index_type, length, array.indices.buffers(), -1, offset)
        words = _rebuilt(pa, array.dictionary, repair)
        return pa.DictionaryArray.from_arrays(codes, words, ordered=kind.ordered, safe=False)
    buffers = array.buffers()
    if is_view(pa, kind):
        return pa.Array.from_buffers(kind, length, repair(pa, buffers, offset, length), -1, offset)
    if not kind.num_fields:
        return pa.Array.from_buffers(kind, length, buffers, -1, offset) if before else array
    # pyarrow slices the fields of structs and of sparse unions to the rows of their array.
    is_sliced = types.is_struct(kind) or (types.is_union(kind) and kind.mode == "sparse")
    parts = [_rebuilt(pa, part, repair, array.offset if is_sliced else 0) for part in _parts(pa, array)]
    if types.is_run_end_encoded(kind):
        parts = [array.run_ends, *parts]
    nulls = 0 if types.is_union(kind) or types.is_run_end_encoded(kind) else -1
    return pa.Array.from_buffers(kind, length, buffers[: kind.num_buffers], nulls, offset, parts)
