"""Small blocks: a slab is a segment with many of them, so that none needs a file descriptor of its own.

Readers copy a small block and hold no lease: see :func:`zerocopy.shared.reading.read_small`.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress

from zerocopy import forks
from zerocopy.shared.block import Block, random_generation
from zerocopy.shared.handle import LARGEST_SMALL
from zerocopy.shared.segment import Array, Segment

HEAD_BYTES = 64
SLAB_BYTES = 1 << 20

#: A free block: its slab, its first byte, and its next generation.
_Free = tuple[Segment, int, int]


class Slabs:
    """The small blocks of this process. Taking and dropping one needs no lock, as in `LargeBlocks`."""

    def __init__(self) -> None:
        #: Free blocks by their size, and how many of a size there are when slabs are next freed.
        self._free: dict[int, deque[_Free]] = {}
        self._most: dict[int, int] = {}
        self._lock = forks.plain_lock()  # held while slabs are freed
        os.register_at_fork(after_in_child=self._forget)

    @property
    def free_bytes(self) -> int:
        """Bytes of free blocks now."""
        return sum(
            size * len(free) for size, free in self._free.copy().items()
        )  # see `LargeBlocks.idle_bytes`

    def take(self, nbytes: int, frames: Sequence[tuple[int, Array]] = ()) -> Block:
        """Return a block of at least `nbytes`, with bytes written at offsets of its data.

        Raises
        ------
        SharedMemoryError
            There is no room for a further slab.
        """
        assert nbytes <= LARGEST_SMALL
        size = 1 << max(7, (nbytes + HEAD_BYTES - 1).bit_length())
        segment, start, generation = self._take(size)
        segment.set_generation(start, generation)
        block = Block(segment, start, start + HEAD_BYTES, size - HEAD_BYTES, generation, self, 0)
        for offset, frame in frames:
            block.write(offset, frame)
        return block

    def drop(self, block: Block) -> None:
        """Take a block's memory back; see `Allocator`."""
        segment, start, size = block.segment, block.start, block.capacity + HEAD_BYTES
        segment.set_generation(start, block.generation + 1)
        if segment.is_open():  # a daemon may have closed its descriptor
            free = self._free.setdefault(size, deque())
            free.append((segment, start, block.generation + 2))
            if len(free) > self._most.get(size, 2 * SLAB_BYTES // size):
                self.trim(size)

    def trim(self, size: int) -> None:
        """Free the slabs whose blocks of `size` bytes are all free, except one slab."""
        if not self._lock.acquire(blocking=False):
            return  # another thread, or a call that this finalizer interrupts, is doing so
        try:
            free, count = self._free[size], SLAB_BYTES // size
            entries: list[_Free] = []
            with suppress(IndexError):  # other threads take blocks meanwhile
                entries.extend(free.popleft() for _ in range(len(free)))
            used = Counter(segment for segment, _, _ in entries)
            unused = {segment for segment in used if used[segment] == count}
            if unused:
                unused.pop()
            free.extend(entry for entry in entries if entry[0] not in unused)
            self._most[size] = 2 * max(len(free), count)
        finally:
            self._lock.release()

    def _take(self, size: int) -> _Free:
        free = self._free.setdefault(size, deque())
        while True:
            try:
                entry = free.pop()
            except IndexError:
                break
            if entry[0].is_open():
                return entry
        slab = Segment(SLAB_BYTES, committed=True)
        generation = random_generation()
        slab.begin_blocks(size, generation)
        free.extend((slab, start, generation) for start in range(size, SLAB_BYTES, size))
        return slab, 0, generation

    def _forget(self) -> None:
        """In a forked child: the slabs are the parent's."""
        self._free.clear()
        self._most.clear()
