"""The object of a handle, over mapped memory or over a copy of a small block."""

from __future__ import annotations

from typing import Any

from zerocopy.frames import from_frames
from zerocopy.frames.header import framework_of as header_framework
from zerocopy.shared import index
from zerocopy.shared.handle import INDEXED, SMALL, Handle
from zerocopy.shared.reading import check_extent, mapping, read_small
from zerocopy.shared.segment import Array


def open_array(handle: Handle) -> Array:
    """Return the array of a handle as a read-only ndarray over the memory, which it keeps."""
    return from_frames(*_frames(handle), "numpy")  # type: ignore[no-any-return]


def open_table(handle: Handle) -> Any:
    """Return the table or column of a handle as pyarrow's, over the memory, which it keeps."""
    return from_frames(*_frames(handle), "pyarrow")


def framework_of(handle: Handle) -> str:
    """Return the framework and form of a handle's object."""
    header = index.unpack(memoryview(_data(handle)))[0] if handle.flags & INDEXED else handle.header
    return header_framework(header)


def _frames(handle: Handle) -> tuple[bytes, list[Array]]:
    data = _data(handle)
    if not handle.flags & INDEXED:
        return handle.header, [data]
    header, blocks, frames = index.unpack(memoryview(data))
    mapped = [mapping(block) for block in blocks]
    parts = []
    for block, first, count in frames:
        whole = data if block == index.SAME_BLOCK else mapped[block].bytes()
        check_extent(first, count, whole.nbytes)
        parts.append(whole[first : first + count])
    return header, parts


def _data(handle: Handle) -> Array:
    """Return the data of a handle's block as read-only bytes, which keep the memory."""
    if handle.flags & SMALL:
        return read_small(handle.location, handle.first, handle.count)
    mapped = mapping(handle.location)
    check_extent(handle.first, handle.count, mapped.size)
    return mapped.bytes()[handle.first : handle.first + handle.count]
