"""Small blocks: many in one segment, so that each needs no file descriptor and no page of its own.

Readers copy a small block and hold no lease: see :func:`zerocopy.shared.reading.read_small`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence

from zerocopy import forks
from zerocopy.shared.block import Block, random_generation
from zerocopy.shared.segment import Array, Segment

#: The largest data of a small block. Copying 64 KiB takes less time than mapping a segment.
LARGEST = 64 * 1024
HEAD_BYTES = 64
SLAB_BYTES = 1 << 20


class Slabs:
    """The small blocks of this process."""

    def __init__(self) -> None:
        self._lock = forks.plain_lock()
        self._dropped: deque[tuple[Segment, int, int]] = deque()
        #: Slabs with free blocks, by the size of their blocks: the start and next generation of each.
        self._free: dict[int, dict[Segment, list[tuple[int, int]]]] = {}
        self._sizes: dict[Segment, int] = {}
        os.register_at_fork(after_in_child=self._forget)

    def take(self, nbytes: int, frames: Sequence[tuple[int, Array]] = ()) -> Block:
        """Return a block of at least `nbytes`, with bytes written at offsets of its data.

        Raises
        ------
        SharedMemoryError
            There is no room for a further slab.
        """
        size = 1 << max(7, (nbytes + HEAD_BYTES - 1).bit_length())
        self._settle()
        with self._lock:
            slabs = self._free.setdefault(size, {})
            if not slabs:
                self._add_slab(size)
            segment, free = next(iter(slabs.items()))
            start, generation = free.pop()
            if not free:
                del slabs[segment]
        segment.begin_block(start, generation)
        block = Block(segment, start, start + HEAD_BYTES, size - HEAD_BYTES, generation, self, 0)
        for offset, frame in frames:
            block.write(offset, frame)
        return block

    def drop(self, segment: Segment, start: int, generation: int, forks: int) -> None:
        """Take a block back; see `Allocator`."""
        segment.set_generation(start, generation + 1)
        self._dropped.append((segment, start, generation + 1))
        self._settle()

    def _settle(self) -> None:
        """Make dropped blocks free, unless another call is doing so."""
        while self._dropped and self._lock.acquire(blocking=False):
            try:
                while self._dropped:
                    self._add(*self._dropped.popleft())
            finally:
                self._lock.release()

    def _add(self, segment: Segment, start: int, generation: int) -> None:
        size = self._sizes.get(segment)
        if size is None or not segment.is_open():
            return  # the program has closed its descriptor
        slabs = self._free[size]
        free = slabs.setdefault(segment, [])
        free.append((start, generation))
        if len(free) == SLAB_BYTES // size and len(slabs) > 1:
            del slabs[segment], self._sizes[segment]

    def _add_slab(self, size: int) -> None:
        segment = Segment(SLAB_BYTES, committed=True)
        base = random_generation()
        self._free[size][segment] = [(start, base) for start in range(0, SLAB_BYTES, size)]
        self._sizes[segment] = size

    def _forget(self) -> None:
        """In a forked child: the slabs are the parent's."""
        self._dropped.clear()
        self._free.clear()
        self._sizes.clear()
