"""``Block``: memory of a segment that this process owns and has shared."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

from zerocopy.shared.host import broker_number, host_id
from zerocopy.shared.location import Location
from zerocopy.shared.segment import Array, Segment


class Allocator(Protocol):
    """Takes dropped blocks back."""

    def drop(self, block: Block) -> None:
        """Take a block's memory back; called by its finalizer, in any thread and within any call."""


class Block:
    """A part of a segment. Its allocator uses the memory again when the block is dropped.

    Parameters
    ----------
    segment : Segment
    start, data, capacity : int
        The first byte of its head and of its data in the segment, and the bytes of its data.
    generation : int
        See `Location`.
    allocator : Allocator
    forks : int
        How often the process had forked when the block was taken.
    """

    __slots__ = (
        *("__weakref__", "_allocator", "_location", "_pid"),
        *("capacity", "data", "forks", "generation", "segment", "start"),
    )

    def __init__(
        self,
        segment: Segment,
        start: int,
        data: int,
        capacity: int,
        generation: int,
        allocator: Allocator,
        forks: int,
    ) -> None:
        self.segment, self.start, self.data, self.capacity = segment, start, data, capacity
        self.generation, self._allocator, self.forks = generation, allocator, forks
        self._pid = os.getpid()
        self._location = Location(
            host_id(), self._pid, segment.fd, segment.inode, generation, start, broker_number()
        )

    def own_location(self) -> Location:
        """Return where other processes find the block: in this process, which may be a forked child."""
        host = host_id()
        if self._location.host is not host:  # the process was forked
            pid = os.getpid()
            generation = self.generation | (pid != self._pid)
            self._location = self._location._replace(
                host=host, pid=pid, generation=generation, broker=broker_number()
            )
        return self._location

    @property
    def extent(self) -> tuple[int, int]:
        """The first address of its segment in this process, and the address past the last."""
        return self.segment.address, self.segment.address + self.segment.size

    def can_hand_on(self, address: int, length: int) -> bool:
        """Whether the block has the bytes at an address as this process sees them."""
        return self._pid == os.getpid() or self.segment.is_open()  # a daemon may have closed it

    def write(self, offset: int, frame: Array) -> None:
        """Copy bytes into the block, `offset` bytes after the start of its data."""
        first = self.data + offset
        self.segment.bytes[first : first + frame.nbytes] = frame

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The writable data, as NumPy's array interface; an array made of it keeps the block."""
        return {
            "shape": (self.capacity,),
            "typestr": "|u1",
            "data": (self.segment.address + self.data, False),
            "version": 3,
        }

    # In a forked child the block is the parent's. At interpreter exit modules are cleared already.
    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_exiting() and self._pid == os.getpid():
            self._allocator.drop(self)


def random_generation() -> int:
    """Return the first generation of a block: even, and small enough to be counted up."""
    return int.from_bytes(os.urandom(8), "little") >> 2 << 1 or 2
