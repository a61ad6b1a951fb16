"""The object of a handle, over mapped memory or over a copy of a small block."""

from __future__ import annotations

from typing import Any

from zerocopy.frames import from_frames
from zerocopy.frames.header import framework_of as header_framework
from zerocopy.frames.tables import is_named_column
from zerocopy.shared import index
from zerocopy.shared.handle import INDEXED, SMALL, TABLE, Handle
from zerocopy.shared.reading import check_extent, mapping, read_small
from zerocopy.shared.segment import Array


def open_array(handle: Handle) -> Array:
    """Return the array of a handle as a read-only ndarray over the memory, which it keeps."""
    return from_frames(*_frames(handle), "numpy")  # type: ignore[no-any-return]


def open_table(handle: Handle) -> Any:
    """Return the table of a handle as pyarrow's, or its column, over the memory, which it keeps.

    A column with a name is returned in its own framework, because pyarrow's columns have no names.
    """
    header, frames = _frames(handle)
    return from_frames(header, frames, None if is_named_column(header) else "pyarrow")


def framework_of(handle: Handle) -> str:
    """Return the framework and form of a handle's object."""
    header = index.unpack(_data(handle).data)[0] if handle.flags & INDEXED else handle.header
    return header_framework(header) or ("pyarrow" if handle.flags & TABLE else "numpy")


def _frames(handle: Handle) -> tuple[bytes, list[Array]]:
    data = _data(handle)
    if not handle.flags & INDEXED:
        return handle.header, [data]
    header, blocks, frames = index.unpack(data.data)
    mapped = [mapping(block) for block in blocks]
    parts = []
    for block, first, count in frames:
        if block != index.SAME_BLOCK:
            parts.append(mapped[block].part(first, count))
            continue
        check_extent(first, count, data.nbytes)
        parts.append(data[first : first + count])
    return header, parts


def _data(handle: Handle) -> Array:
    """Return the data of a handle's block as read-only bytes, which keep the memory."""
    if handle.flags & SMALL:
        return read_small(handle.location, handle.first, handle.length)
    return mapping(handle.location).part(handle.first, handle.length)
