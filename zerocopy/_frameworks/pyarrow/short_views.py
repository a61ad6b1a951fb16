"""Views of short text whose text buffer is NULL, as pyarrow 24 casts it: arrays without that buffer.

pyarrow reads the buffer in ``nbytes`` and when it exports the array, also inside other types
(apache/arrow#49740, fixed in 25). The functions take the module pyarrow as `pa`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

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
    return _is_view(pa, kind) or any(holds_views(pa, kind.field(i).type) for i in range(kind.num_fields))


def _is_view(pa: Any, kind: Any) -> bool:
    # By number, because a pyarrow without views has no function for them.
    return any(kind.id == getattr(pa.lib, name, None) for name in _VIEWS)


def with_text(pa: Any, array: Any) -> Any:
    """Return an array, chunked or not, without NULL text buffers: itself if it has none."""
    chunks = list(getattr(array, "chunks", [array]))
    lacking = [_lacks_text(pa, chunk) for chunk in chunks]
    if not any(lacking):
        return array
    chunks = [_rebuilt(pa, each) if lacks else each for each, lacks in zip(chunks, lacking, strict=True)]
    return pa.chunked_array(chunks, array.type) if isinstance(array, pa.ChunkedArray) else chunks[0]


def _lacks_text(pa: Any, array: Any) -> bool:
    if _is_view(pa, array.type):
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


def _rebuilt(pa: Any, array: Any, before: int = 0) -> Any:
    """Return an array over the same buffers but NULL text, from `before` rows earlier on."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _rebuilt(pa, array.storage, before))
    offset, length = array.offset - before, len(array) + before
    if types.is_dictionary(kind):
        codes = pa.Array.from_buffers(kind.index_type, length, array.indices.buffers(), -1, offset)
        words = _rebuilt(pa, array.dictionary)
        return pa.DictionaryArray.from_arrays(codes, words, ordered=kind.ordered, safe=False)
    buffers = array.buffers()
    if _is_view(pa, kind):
        # An empty buffer instead, because views of longer text have the position of theirs.
        texts = (pa.py_buffer(b"") if text is None else text for text in buffers[2:])
        return pa.Array.from_buffers(kind, length, [*buffers[:2], *texts], -1, offset)
    if not kind.num_fields:
        return pa.Array.from_buffers(kind, length, buffers, -1, offset) if before else array
    # pyarrow slices the fields of structs and of sparse unions to the rows of their array.
    is_sliced = types.is_struct(kind) or (types.is_union(kind) and kind.mode == "sparse")
    parts = [_rebuilt(pa, part, array.offset if is_sliced else 0) for part in _parts(pa, array)]
    if types.is_run_end_encoded(kind):
        parts = [array.run_ends, *parts]
    nulls = 0 if types.is_union(kind) or types.is_run_end_encoded(kind) else -1
    return pa.Array.from_buffers(kind, length, buffers[: kind.num_buffers], nulls, offset, parts)
