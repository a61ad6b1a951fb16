"""Small blocks: a slab is a segment with many of them, so that none needs a file descriptor of its own.

Readers copy a small block and hold no lease: see :func:`zerocopy.shared.reading.read_small`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence

from zerocopy.shared import idle
from zerocopy.shared.block import Block, random_generation
from zerocopy.shared.handle import LARGEST_SMALL
from zerocopy.shared.segment import Array, Segment

HEAD_BYTES = 64
SLAB_BYTES = 1 << 20
_SMALLEST = 7


class Slab:
    """A segment of blocks of one size; it is their `Allocator`."""

    __slots__ = ("_slabs", "count", "free", "segment", "size")

    def __init__(self, size: int, slabs: Slabs) -> None:
        self.segment, self.size, self._slabs = Segment(SLAB_BYTES, committed=True), size, slabs
        self.count = SLAB_BYTES // size
        generation = random_generation()
        self.segment.begin_blocks(size, generation)
        #: The first byte and the next generation of each free block.
        self.free = deque((start, generation) for start in range(0, SLAB_BYTES, size))

    @property
    def is_idle(self) -> bool:
        """Whether no block of it is in use."""
        return len(self.free) == self.count

    def drop(self, block: Block) -> None:
        """Take a block's memory back; see `Allocator`."""
        self.segment.set_generation(block.start, block.generation + 1)
        if self.segment.is_open():  # a daemon may have closed its descriptor
            self.free.append((block.start, block.generation + 2))
            self._slabs.add(self)


class Slabs:
    """The small blocks of this process. Taking and dropping one needs no lock, as in `LargeBlocks`."""

    def __init__(self) -> None:
        #: The slabs with free blocks, by block size; a slab whose last block was taken can remain listed.
        self._slabs: dict[int, dict[Slab, None]] = {}
        #: The slab without blocks in use that is kept, by size.
        self._spare: dict[int, Slab] = {}
        os.register_at_fork(after_in_child=self._forget)

    @property
    def free_bytes(self) -> int:
        """Bytes of free blocks now."""
        # Copies, as in `LargeBlocks.idle_bytes`.
        slabs = [slab for each in list(self._slabs.values()) for slab in each.copy()]
        return sum(slab.size * len(slab.free) for slab in slabs)

    def shrink(self) -> None:
        """Free slabs without blocks in use beyond the limit."""
        most = idle.limit_of_slabs()
        if SLAB_BYTES * len(self._spare) > most:
            self.trim(most)

    def take(self, nbytes: int, frames: Sequence[tuple[int, Array]] = ()) -> Block:
        """Return a block of at least `nbytes`, with bytes written at offsets of its data.

        Raises
        ------
        SharedMemoryError
            There is no room for a further slab.
        """
        assert nbytes <= LARGEST_SMALL
        size = 1 << max(_SMALLEST, (nbytes + HEAD_BYTES - 1).bit_length())
        slab, start, generation = self._take(size)
        slab.segment.set_generation(start, generation)
        block = Block(slab.segment, start, start + HEAD_BYTES, size - HEAD_BYTES, generation, slab, 0)
        for offset, frame in frames:
            block.write(offset, frame)
        return block

    def add(self, slab: Slab) -> None:
        """Record that a slab has one more free block, and free a slab if too many have no block in use."""
        self._slabs.setdefault(slab.size, {})[slab] = None
        if not slab.is_idle:
            return
        spare = self._spare.get(slab.size)
        if spare is None or spare is slab or not spare.is_idle:
            self._spare[slab.size] = slab
            self.shrink()
        else:
            self._free(slab)

    def trim(self, limit: int = 0) -> int:
        """Free slabs without blocks in use until at most `limit` bytes are left; return the bytes freed."""
        unused = [slab for each in list(self._slabs.values()) for slab in each.copy() if slab.is_idle]
        return sum(map(self._free, unused[limit // SLAB_BYTES :]))

    def _free(self, slab: Slab) -> int:
        """Free a slab unless another thread takes a block of it; return the bytes freed."""
        blocks = []
        while (block := _pop(slab.free)) is not None:
            blocks.append(block)
        if len(blocks) < slab.count:
            slab.free.extend(blocks)
            self._slabs[slab.size][slab] = None  # another thread may have found it empty
            return 0
        self._slabs[slab.size].pop(slab, None)
        if self._spare.get(slab.size) is slab:
            self._spare.pop(slab.size, None)
        return SLAB_BYTES

    def _take(self, size: int) -> tuple[Slab, int, int]:
        slabs = self._slabs.setdefault(size, {})
        while (slab := _last(slabs)) is not None:
            block = _pop(slab.free) if slab.segment.is_open() else None
            if block is not None:
                return (slab, *block)
            slabs.pop(slab, None)
            if slab.free and slab.segment.is_open():  # a block was dropped meanwhile
                slabs[slab] = None
        slab = Slab(size, self)
        start, generation = slab.free.popleft()
        slabs[slab] = None
        return slab, start, generation

    def _forget(self) -> None:
        """In a forked child: the slabs are the parent's."""
        self._slabs.clear()
        self._spare.clear()


def _last(slabs: dict[Slab, None]) -> Slab | None:
    """Return the slab that was added last, or None if there is none."""
    while True:
        try:
            return next(reversed(slabs), None)
        except RuntimeError:  # another thread has changed the dict between the two calls
            continue


def _pop(free: deque[tuple[int, int]]) -> tuple[int, int] | None:
    """Remove and return the last free block, or None if there is none."""
    try:
        return free.pop()
    except IndexError:
        return None
