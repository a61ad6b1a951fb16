"""Arrow arrays whose buffers end where a page without access begins: a read past the end is a fault."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import pyarrow as pa

_PAGE = mmap.PAGESIZE
_mprotect = ctypes.CDLL(None, use_errno=True).mprotect


def guarded_buffer(buffer: Any) -> Any:
    """Return a copy of a buffer, the last byte of which is the last one of an accessible page."""
    if buffer is None:
        return None
    size = -(-max(buffer.size, 1) // _PAGE) * _PAGE
    region = mmap.mmap(-1, size + _PAGE)
    start = size - buffer.size
    region[start:size] = buffer.to_pybytes()
    address = ctypes.addressof(ctypes.c_char.from_buffer(region))
    if _mprotect(ctypes.c_void_p(address + size), ctypes.c_size_t(_PAGE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return pa.foreign_buffer(address + start, buffer.size, base=region)


def guarded(array: Any) -> Any:
    """Return a copy of an array (not chunked) with guarded buffers, trimmed to their lengths."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, guarded(array.storage))
    if pa.types.is_dictionary(kind):
        codes, words = guarded(array.indices), guarded(array.dictionary)
        return pa.DictionaryArray.from_arrays(codes, words, ordered=kind.ordered)
    if pa.types.is_run_end_encoded(kind):
        return pa.RunEndEncodedArray.from_arrays(guarded(array.run_ends), guarded(array.values))
    whole = pa.concat_arrays([array])  # its buffers start with the first row
    return _guarded_parts(kind, len(whole), iter(whole.buffers()), _children(whole))


def _guarded_parts(kind: Any, length: int, buffers: Any, children: list[Any]) -> Any:
    count = None if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) else kind.num_buffers
    own = [guarded_buffer(buffer) for _, buffer in zip(range(count or 1 << 30), buffers, strict=False)]
    return pa.Array.from_buffers(kind, length, own, children=[guarded(child) for child in children])


def _children(array: Any) -> list[Any]:
    kind = array.type
    if not kind.num_fields:
        return []
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return [array.field(i) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        pairs = pa.StructArray.from_arrays([array.keys, array.items], fields=list(kind.field(0).type))
        return [pairs]
    return [array.values]
