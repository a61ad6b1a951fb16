"""``Location``: where a block lies, in fields of fixed width."""

from __future__ import annotations

import struct
from typing import NamedTuple

from zerocopy.shared import host

#: Host ID, process, file descriptor, inode, generation, first byte of the block, broker.
FORMAT = f"{host.SIZE}sIIQQQQ"
_FIELDS = struct.Struct(f"<{FORMAT}")

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
        The number in the block's head while the block holds this content. The first number is even,
        and random with 62 bits, so that another process's block does not have the same one. The owner
        adds 1 when it drops the block, and 1 again before it writes other content. An odd number in a
        location means that `pid` is not the owner, but holds a lease or was forked from the owner: the
        block keeps its content after the owner has dropped it.
    start : int
        The first byte of the block's head in the segment.
    broker : int
        `zerocopy.shared.host.broker_number` of the process.
    """

    host: bytes
    pid: int
    fd: int
    inode: int
    generation: int
    start: int
    broker: int

    def matches(self, generation: int) -> bool:
        """Whether a block with a generation in its head has the content of this location.

        Examples
        --------
        >>> through_owner = Location(bytes(24), 1, 3, 9, 10, 0, 0)
        >>> [through_owner.matches(generation) for generation in (10, 11, 12)]
        [True, False, False]
        >>> through_reader = through_owner._replace(generation=11)
        >>> [through_reader.matches(generation) for generation in (10, 11, 12)]
        [True, True, False]
        """
        expected = self.generation
        return generation == expected or (expected % 2 == 1 and generation == expected - 1)

    def pack(self) -> bytes:
        """Return the fields as bytes."""
        return _FIELDS.pack(*self)

    @classmethod
    def unpack(cls, data: bytes | memoryview, at: int = 0) -> Location:
        """Return the location whose bytes start at position `at`; `data` is long enough."""
        return cls(*_FIELDS.unpack_from(data, at))
