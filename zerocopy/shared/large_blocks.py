"""Large blocks: each has a segment, which is reused after the block is dropped.

Sharing 64 MiB in a fresh segment takes 5 times as long as in a reused one, because the kernel zeroes
each new page. Segments of dropped blocks are therefore kept, up to the limit of `zerocopy.shared.idle`.

A dropped block first gets another generation, which makes its handles stale. Its segment is reused when
no reader has a lease. A reader takes its lease before it reads the generation. Therefore either the reader
reads the new generation, or the owner sees the lease and does not reuse the segment.
"""

from __future__ import annotations

import os
import resource
from collections import deque
from collections.abc import Sequence

from zerocopy.shared import idle
from zerocopy.shared.block import Block, random_generation
from zerocopy.shared.errors import SharedMemoryError
from zerocopy.shared.segment import Array, Segment

#: Bytes before the data, which starts at a page.
HEAD_BYTES = 4096
#: Idle segments that are kept, because each has one file descriptor (before Python 3.13 two).
_MOST = 64
#: How many segments with readers are passed over before a fresh one is allocated.
_TRIES = 8


class LargeBlocks:
    """The large blocks of this process.

    It has no lock, because a finalizer can drop a block during any other call of the same thread. The
    operations of dict and deque that it uses are atomic.

    Attributes
    ----------
    fresh, recycled : int
        How many blocks had a fresh segment, or one that was used before; approximate with threads.
    """

    def __init__(self) -> None:
        self.fresh = self.recycled = 0
        #: Idle segments and their next generation, by size; the one idle for longest comes first.
        self._idle: dict[int, deque[tuple[Segment, int]]] = {}
        self._forks = 0
        os.register_at_fork(before=self._count_fork, after_in_child=self._forget)

    @property
    def idle_bytes(self) -> int:
        """Bytes of idle segments now."""
        # A copy: the tuples of items() can start a garbage collection, whose finalizers drop blocks.
        return sum(size * len(segments) for size, segments in self._idle.copy().items())

    def take(self, nbytes: int, frames: Sequence[tuple[int, Array]] = (), committed: bool = False) -> Block:
        """Return a block of at least `nbytes`, with bytes written at offsets of its data.

        Raises
        ------
        SharedMemoryError
            There is no room for a fresh segment.
        """
        size = size_class(nbytes + HEAD_BYTES)
        reused = self._reusable(size)
        if reused is None:
            return self._fresh(size, frames, committed)
        block = self._block(*reused)  # a block that is dropped after an error is idle again
        del reused
        if not block.segment.has_room(size if committed else nbytes + HEAD_BYTES):
            del block
            return self._fresh(size, frames, committed)  # which frees idle segments
        for offset, frame in frames:
            block.write(offset, frame)
        self.recycled += 1
        return block

    def drop(self, block: Block) -> None:
        """Take a block's memory back; see `Allocator`."""
        segment, generation = block.segment, block.generation
        segment.set_generation(block.start, generation + 1)
        # A child that was forked meanwhile may have views of it. A daemon may have closed its descriptor.
        if block.forks == self._forks and segment.is_open():
            self._idle.setdefault(segment.size, deque()).append((segment, generation + 2))
            self.shrink()

    def shrink(self) -> None:
        """Free idle segments beyond the limit; at most 64 are kept, or fewer if descriptors are few."""
        self.trim(idle.limit() - idle.limit_of_slabs(), _most())

    def trim(self, limit: int = 0, count: int = 0) -> int:
        """Free idle segments until at most `limit` bytes and `count` segments are left; return the bytes."""
        freed = 0
        while self.idle_bytes > limit:
            size, segments = max(self._idle.copy().items(), key=lambda item: item[0] * len(item[1]))
            freed += size * (_pop(segments) is not None)
        while sum(map(len, list(self._idle.values()))) > count:
            size, segments = max(self._idle.copy().items(), key=lambda item: len(item[1]))
            freed += size * (_pop(segments) is not None)
        return freed

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
        segment.begin_blocks(size, generation)
        self.fresh += 1
        return self._block(segment, generation)

    def _block(self, segment: Segment, generation: int) -> Block:
        return Block(segment, 0, HEAD_BYTES, segment.size - HEAD_BYTES, generation, self, self._forks)

    def _reusable(self, size: int) -> tuple[Segment, int] | None:
        """Return an idle segment without readers, and its generation, or None."""
        segments = self._idle.get(size)
        if segments is None:
            return None
        for _ in range(min(len(segments), _TRIES)):
            entry = _pop(segments)
            if entry is None:
                return None
            segment, generation = entry
            if segment.is_open():
                if segment.claim(generation):
                    return entry
                segments.append(entry)  # a reader still uses it: try others first
        return None

    def _count_fork(self) -> None:
        self._forks += 1

    def _forget(self) -> None:
        """In a forked child: the idle segments are the parent's."""
        self._idle.clear()


def _most() -> int:
    """Return how many idle segments may keep their descriptors."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if soft == resource.RLIM_INFINITY else min(_MOST, soft // 16)


def _pop(segments: deque[tuple[Segment, int]]) -> tuple[Segment, int] | None:
    """Remove and return the first entry, or None if another thread took the last one."""
    try:
        return segments.popleft()
    except IndexError:
        return None


def size_class(size: int) -> int:
    """Return the size of the segment for `size` bytes: whole pages, 8 sizes for each power of two."""
    step = max(4096, 1 << max(12, size.bit_length() - 4))
    return -(-size // step) * step
