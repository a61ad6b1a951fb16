"""The index of an object with several frames: its header, and where each frame lies."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from zerocopy.shared import location as locations
from zerocopy.shared.errors import HandleFormatError
from zerocopy.shared.location import Location

_COUNTS = struct.Struct("<III")
_FRAME = struct.Struct("<IQQ")
#: Stands for the block of the index itself, instead of a position in the list of locations.
SAME_BLOCK = 0xFFFF_FFFF

#: Where a frame lies: the position of its block in the list of locations; its first byte, in the block's
#: segment or counted from the start of the index; its size in bytes.
Frame = tuple[int, int, int]


def pack(header: bytes, blocks: Sequence[Location], frames: Sequence[Frame]) -> bytes:
    """Return an index as bytes."""
    parts = [_COUNTS.pack(len(header), len(blocks), len(frames)), header]
    parts += [block.pack() for block in blocks]
    parts += [_FRAME.pack(*frame) for frame in frames]
    return b"".join(parts)


def size(header: bytes, blocks: int, frames: int) -> int:
    """Return the bytes of an index."""
    return _COUNTS.size + len(header) + blocks * locations.SIZE + frames * _FRAME.size


def unpack(data: bytes | memoryview) -> tuple[bytes, list[Location], list[Frame]]:
    """Return the header, the blocks and the frames of an index, which bytes of frames may follow.

    Raises
    ------
    HandleFormatError
        The index is longer than `data`, or refers to a block that it lacks.
    """
    if len(data) < _COUNTS.size:
        raise _damaged()
    length, blocks, frames = _COUNTS.unpack_from(data)
    if len(data) < _COUNTS.size + length + blocks * locations.SIZE + frames * _FRAME.size:
        raise _damaged()
    at = _COUNTS.size
    header = bytes(data[at : at + length])
    at += length
    places = [Location.unpack(data, at + i * locations.SIZE) for i in range(blocks)]
    at += blocks * locations.SIZE
    parts = [_FRAME.unpack_from(data, at + i * _FRAME.size) for i in range(frames)]
    if any(block != SAME_BLOCK and block >= blocks for block, _, _ in parts):
        raise _damaged()
    return header, places, parts


def _damaged() -> HandleFormatError:
    return HandleFormatError("", "the index of the frames of the object is damaged", "share the object again")
