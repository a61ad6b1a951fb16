"""Opens handles: builds the object over a mapping of its block, or over a copy of a small block."""

from __future__ import annotations

from typing import Any

from zerocopy.frames import from_frames
from zerocopy.frames.arrays import parse_array
from zerocopy.frames.header import framework_of as header_framework
from zerocopy.frames.tables import needs_own_framework
from zerocopy.shared import index
from zerocopy.shared.handle import INDEXED, SMALL, TABLE, Handle
from zerocopy.shared.reading import check_extent, mapping, own_mapping, read_small
from zerocopy.shared.segment import Array


def open_array(handle: Handle) -> Any:
    """Return the array of a handle as a read-only ndarray over the memory, which it keeps.

    An array of a type that NumPy lacks here is returned in its own framework.
    """
    header, frames = _frames(handle)
    layout = parse_array(header)
    is_lacking = layout.standard is not None and layout.dtype is layout.standard.storage
    return from_frames(header, frames, None if is_lacking else "numpy")


def open_table(handle: Handle) -> Any:
    """Return the table or column of a handle over the memory, which it keeps: as an object of pyarrow.

    An object whose column's name or types pyarrow would lose is returned in its own framework.
    """
    header, frames = _frames(handle)
    return from_frames(header, frames, None if needs_own_framework(header) else "pyarrow")


def open_frames(handle: Handle) -> tuple[bytes, list[Array]]:
    """Return the header and the frames of a handle; writing to the frames changes no other object."""
    header, frames = _frames(handle, own=True)
    for frame in frames:
        frame.flags.writeable = True
    return header, frames


def framework_of(handle: Handle) -> str:
    """Return the framework and form of a handle's object."""
    header = index.unpack(_data(handle).data)[0] if handle.flags & INDEXED else handle.header
    return header_framework(header) or ("pyarrow" if handle.flags & TABLE else "numpy")


def _frames(handle: Handle, own: bool = False) -> tuple[bytes, list[Array]]:
    """Return the header and the frames; `own`: in memory that no other object of this process has."""
    data = _data(handle, own)
    if not handle.flags & INDEXED:
        return handle.header, [data]
    header, blocks, frames = index.unpack(data.data)
    others = [own_mapping(block) if own else mapping(block) for block in blocks]
    opened = []
    for block, first, count in frames:
        if block != index.SAME_BLOCK:
            opened.append(others[block].part(first, count))
            continue
        check_extent(first, count, data.nbytes)
        opened.append(data[first : first + count])
    return header, opened


def _data(handle: Handle, own: bool = False) -> Array:
    """Return the data of a handle's block as bytes, which keep the memory."""
    if handle.flags & SMALL:
        return read_small(handle.location, handle.first, handle.length, own)
    mapped = own_mapping(handle.location) if own else mapping(handle.location)
    return mapped.part(handle.first, handle.length)
