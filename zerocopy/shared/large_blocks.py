"""Blocks with a segment each, which is used again after the block is dropped.

Sharing 64 MiB in a fresh segment takes 5 times as long as in one that was used before, because the
kernel zeroes each new page. Segments of dropped blocks are therefore kept, up to `LIMIT` bytes.

A dropped block first gets another generation, which makes its handles stale. Its segment is used again
when no reader has a lease. A reader takes its lease before it reads the generation: either the reader
reads the new generation, or the owner meets the lease.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence

from zerocopy import forks
from zerocopy.shared.block import Block, random_generation
from zerocopy.shared.errors import SharedMemoryError
from zerocopy.shared.segment import Array, Segment

#: Bytes before the data, which starts at a page.
HEAD_BYTES = 4096
#: Bytes of idle segments that are kept, by default.
LIMIT = 1 << 30
#: How many segments with readers are passed over before a fresh one is allocated.
_TRIES = 8


class LargeBlocks:
    """The large blocks of this process.

    Attributes
    ----------
    limit : int
        Bytes of idle segments to keep.
    idle_bytes : int
        Bytes of idle segments now.
    fresh, recycled : int
        How many blocks had a fresh segment, or one that was used before.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit, self.idle_bytes, self.fresh, self.recycled = limit, 0, 0, 0
        self._lock = forks.plain_lock()
        #: Filled by finalizers, which must not wait for the lock: their thread may hold it.
        self._dropped: deque[tuple[Segment, int]] = deque()
        #: Idle segments and their next generation, by size; the one idle for longest comes first.
        self._idle: dict[int, dict[Segment, int]] = {}
        self._forks = 0
        os.register_at_fork(before=self._count_fork, after_in_child=self._forget)

    def take(self, nbytes: int, frames: Sequence[tuple[int, Array]] = (), committed: bool = False) -> Block:
        """Return a block of at least `nbytes`, with bytes written at offsets of its data.

        Raises
        ------
        SharedMemoryError
            There is no room for a fresh segment.
        """
        size = size_class(nbytes + HEAD_BYTES)
        self._settle()
        reused = self._reusable(size)
        if reused is None:
            return self._fresh(size, frames, committed)
        segment, generation = reused
        block = self._block(segment, generation)  # a block that is dropped after an error is idle again
        segment.commit(size if committed else nbytes + HEAD_BYTES)
        for offset, frame in frames:
            block.write(offset, frame)
        self.recycled += 1
        return block

    def drop(self, segment: Segment, start: int, generation: int, forks: int) -> None:
        """Take a block back; see `Allocator`."""
        if not segment.is_open():
            return  # the program has closed its descriptor
        segment.set_generation(start, generation + 1)
        if forks == self._forks:  # else a child may have views of it
            self._dropped.append((segment, generation + 1))
            self._settle()

    def trim(self, limit: int = 0) -> None:
        """Free idle segments, the one idle for longest first, until `limit` bytes of them are left."""
        self._settle()
        with self._lock:
            self._evict(limit)

    def _fresh(self, size: int, frames: Sequence[tuple[int, Array]], committed: bool) -> Block:
        placed = [(HEAD_BYTES + offset, frame) for offset, frame in frames]
        try:
            segment = Segment(size, placed, committed)
        except SharedMemoryError:
            if not self.idle_bytes:
                raise
            self.trim()
            segment = Segment(size, placed, committed)
        generation = random_generation()
        segment.begin_block(0, generation)
        self.fresh += 1
        return self._block(segment, generation)

    def _block(self, segment: Segment, generation: int) -> Block:
        return Block(segment, 0, HEAD_BYTES, segment.size - HEAD_BYTES, generation, self, self._forks)

    def _reusable(self, size: int) -> tuple[Segment, int] | None:
        """Return an idle segment without readers, and its generation, or None."""
        with self._lock:
            idle = self._idle.get(size, {})
            for _ in range(min(len(idle), _TRIES)):
                segment = next(iter(idle))
                generation = idle.pop(segment)
                if segment.is_open() and segment.is_idle():
                    self.idle_bytes -= size
                    return segment, generation
                idle[segment] = generation  # behind the others
        return None

    def _settle(self) -> None:
        """Move dropped segments to the idle ones, unless another call is doing so."""
        while self._dropped and self._lock.acquire(blocking=False):
            try:
                while self._dropped:
                    segment, generation = self._dropped.popleft()
                    self._idle.setdefault(segment.size, {})[segment] = generation
                    self.idle_bytes += segment.size
                self._evict(self.limit)
            finally:
                self._lock.release()

    def _evict(self, limit: int) -> None:
        """Free idle segments of the size that has most bytes; the caller holds the lock."""
        while self.idle_bytes > limit:
            size = max(self._idle, key=lambda size: size * len(self._idle[size]))
            self._idle[size].pop(next(iter(self._idle[size])))
            self.idle_bytes -= size

    def _count_fork(self) -> None:
        self._forks += 1

    def _forget(self) -> None:
        """In a forked child: the idle segments are the parent's."""
        self._dropped.clear()
        self._idle.clear()
        self.idle_bytes = 0


def size_class(size: int) -> int:
    """Return the size of the segment for `size` bytes: whole pages, 8 sizes for each power of two."""
    step = max(4096, 1 << max(12, size.bit_length() - 4))
    return -(-size // step) * step
