"""``Location``: where a block of shared memory lies, in fields of fixed width."""

from __future__ import annotations

import struct
from typing import NamedTuple

from zerocopy.shared import host

#: Machine and namespace, process, file descriptor, inode, generation, first byte of the block.
_FIELDS = struct.Struct(f"<{host.SIZE}sIIQQQ")

SIZE = _FIELDS.size


class Location(NamedTuple):
    """A block of a segment, and the process that has the segment open.

    Attributes
    ----------
    host : bytes
        `zerocopy.shared.host.host_id` of the process.
    pid, fd : int
        The process, and its file descriptor of the segment.
    inode : int
        The inode of the segment.
    generation : int
        The number in the block's head while the block holds this content. It starts at a random
        number of 63 bits, so that another process's block never has the same one.
    start : int
        The first byte of the block's head in the segment.
    """

    host: bytes
    pid: int
    fd: int
    inode: int
    generation: int
    start: int

    def pack(self) -> bytes:
        """Return the fields as bytes."""
        return _FIELDS.pack(*self)

    @classmethod
    def unpack(cls, data: bytes | memoryview, at: int = 0) -> Location:
        """Return the location whose bytes start at position `at`; `data` is long enough."""
        return cls(*_FIELDS.unpack_from(data, at))
