"""Blocks: the memory of this process that holds shared objects, and its reuse.

A large block has a segment of its own. Sharing 64 MiB in a fresh segment takes 5 times as long as in a
reused one, because the kernel zeroes each new page. Segments of dropped blocks are therefore kept, up to
`kept_bytes`. A dropped block first gets another generation, which makes its handles stale. Its segment is
reused when no reader has a lease. A reader takes its lease before it reads the generation. Therefore either
the reader reads the new generation, or the owner sees the lease and does not reuse the segment.

Small blocks share a segment, a slab, so that none needs a file descriptor of its own. Readers copy a small
block and hold no lease: see :func:`zerocopy.shared.reading.read_small`.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from zerocopy.errors import OptionError, SharedMemoryError
from zerocopy.shared import room
from zerocopy.shared.handle import LARGEST_SMALL, Location, broker_number, host_id
from zerocopy.shared.linux import resource
from zerocopy.shared.segment import Array, Segment

T = TypeVar("T")

#: Bytes of unused segments that are kept by default, or the free memory divided by `_PART` if that is less.
LIMIT = 64_000_000
_PART = 8
#: The most of these bytes for slabs without blocks in use: one slab for each of the 11 sizes of blocks.
_SLABS = 11 << 20
#: Bytes before the data of a large block, which starts at a page.
_LARGE_HEAD = 4096
#: Idle segments that are kept, because each has one file descriptor (before Python 3.13 two).
_MOST = 64
#: How many segments with readers are passed over before a fresh one is allocated.
_TRIES = 8
SLAB_BYTES = 1 << 20
#: Bytes before the data of a small block, and the exponent of the smallest size.
_SMALL_HEAD, _SMALLEST = 64, 7
_chosen: int | None = None


def kept_bytes() -> int:
    """Return how many bytes of unused segments this process keeps for its next objects."""
    chosen = _chosen  # read once: another thread may set it
    return min(LIMIT, room.last_free() // _PART) if chosen is None else chosen


def _kept_in_slabs() -> int:
    return min(_SLABS, kept_bytes() // 4)


class Block:
    """A part of a segment. Its allocator uses the memory again when the block is dropped.

    Parameters
    ----------
    segment : Segment
    start, data, capacity : int
        The first byte of its head and of its data in the segment, and the bytes of its data.
    generation : int
        See `Location`.
    allocator : LargeBlocks or Slab
        Takes the memory back.
    forks : int
        How often the process had forked when the block was taken.
    """

    __slots__ = (
        *("__weakref__", "_allocator", "_host", "_location", "_pid"),
        *("capacity", "data", "forks", "generation", "segment", "start"),
    )

    def __init__(
        self,
        segment: Segment,
        start: int,
        data: int,
        capacity: int,
        generation: int,
        allocator: LargeBlocks | Slab,
        forks: int,
    ) -> None:
        self.segment = segment
        self.start = start
        self.data = data
        self.capacity = capacity
        self.generation = generation
        self._allocator = allocator
        self.forks = forks
        self._pid, self._host = os.getpid(), host_id()
        self._location = Location(
            self._host, self._pid, segment.fd, segment.inode, generation, start, broker_number()
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
        # The identifier is another object after a fork. getpid() takes 0.4 us.
        return self._host is host_id() or self.segment.is_open()  # a daemon may have closed it

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


class _Counts:
    """Numbers of blocks, written by all threads: not in `LargeBlocks`, to which a forked child must write."""

    fresh = recycled = 0


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
        self._counts = _Counts()
        #: Idle segments and their next generation, by size; the one idle for longest comes first.
        self._idle: dict[int, deque[tuple[Segment, int]]] = {}
        self._forks = 0
        os.register_at_fork(before=self._count_fork, after_in_child=self._forget)

    @property
    def fresh(self) -> int:
        return self._counts.fresh

    @property
    def recycled(self) -> int:
        return self._counts.recycled

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
        size = size_class(nbytes + _LARGE_HEAD)
        reused = self._reusable(size)
        if reused is None:
            return self._fresh(size, frames, committed)
        block = self._block(*reused)  # a block that is dropped after an error is idle again
        del reused
        if not block.segment.has_room(size if committed else nbytes + _LARGE_HEAD):
            del block
            return self._fresh(size, frames, committed)  # which frees idle segments
        for offset, frame in frames:
            block.write(offset, frame)
        self._counts.recycled += 1
        return block

    def drop(self, block: Block) -> None:
        """Take a block's memory back; called by its finalizer, in any thread and within any call."""
        segment, generation = block.segment, block.generation
        segment.set_generation(block.start, generation + 1)
        # A child that was forked meanwhile may have views of it. A daemon may have closed its descriptor.
        if block.forks == self._forks and segment.is_open():
            self._idle.setdefault(segment.size, deque()).append((segment, generation + 2))
            self.shrink()

    def shrink(self) -> None:
        """Free idle segments beyond the limit; at most 64 are kept, or fewer if descriptors are few."""
        self.trim(kept_bytes() - _kept_in_slabs(), _most())

    def trim(self, limit: int = 0, count: int = 0) -> int:
        """Free idle segments until at most `limit` bytes and `count` segments are left; return the bytes."""
        freed = 0
        while self.idle_bytes > limit:
            size, segments = max(self._idle.copy().items(), key=lambda item: item[0] * len(item[1]))
            freed += size * (_removed(segments.popleft) is not None)
        while sum(map(len, list(self._idle.values()))) > count:
            size, segments = max(self._idle.copy().items(), key=lambda item: len(item[1]))
            freed += size * (_removed(segments.popleft) is not None)
        return freed

    def _fresh(self, size: int, frames: Sequence[tuple[int, Array]], committed: bool) -> Block:
        placed = [(_LARGE_HEAD + offset, frame) for offset, frame in frames]
        try:
            segment = Segment(size, placed, committed)
        except SharedMemoryError:
            if not self.idle_bytes:
                raise
            self.trim()
            segment = Segment(size, placed, committed)
        generation = random_generation()
        segment.begin_blocks(size, generation)
        self._counts.fresh += 1
        return self._block(segment, generation)

    def _block(self, segment: Segment, generation: int) -> Block:
        return Block(segment, 0, _LARGE_HEAD, segment.size - _LARGE_HEAD, generation, self, self._forks)

    def _reusable(self, size: int) -> tuple[Segment, int] | None:
        """Return an idle segment without readers, and its generation, or None."""
        segments = self._idle.get(size)
        if segments is None:
            return None
        for _ in range(min(len(segments), _TRIES)):
            entry = _removed(segments.popleft)
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
        self._idle = {}


def _most() -> int:
    """Return how many idle segments may keep their descriptors."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if soft == resource.RLIM_INFINITY else min(_MOST, soft // 16)


def _removed(pop: Callable[[], T]) -> T | None:
    """Return the entry that ``pop()`` removes from a deque, or None if another thread took the last one."""
    try:
        return pop()
    except IndexError:
        return None


def size_class(size: int) -> int:
    """Return the size of the segment for `size` bytes: whole pages, 8 sizes for each power of two."""
    step = max(4096, 1 << max(12, size.bit_length() - 4))
    return -(-size // step) * step


class Slab:
    """A segment of blocks of one size."""

    __slots__ = ("_slabs", "count", "free", "segment", "size")

    def __init__(self, size: int, slabs: Slabs) -> None:
        self.segment: Segment = Segment(SLAB_BYTES, committed=True)
        self.size: int = size
        self._slabs = slabs
        self.count: int = SLAB_BYTES // size
        generation = random_generation()
        self.segment.begin_blocks(size, generation)
        #: The first byte and the next generation of each free block.
        self.free: deque[tuple[int, int]] = deque((start, generation) for start in range(0, SLAB_BYTES, size))

    @property
    def is_idle(self) -> bool:
        """Whether no block of it is in use."""
        return len(self.free) == self.count

    def drop(self, block: Block) -> None:
        """Take a block's memory back; called by its finalizer, in any thread and within any call."""
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
        most = _kept_in_slabs()
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
        size = 1 << max(_SMALLEST, (nbytes + _SMALL_HEAD - 1).bit_length())
        slab, start, generation = self._take(size)
        slab.segment.set_generation(start, generation)
        block = Block(slab.segment, start, start + _SMALL_HEAD, size - _SMALL_HEAD, generation, slab, 0)
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
        while (block := _removed(slab.free.pop)) is not None:
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
            block = _removed(slab.free.pop) if slab.segment.is_open() else None
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
        self._slabs, self._spare = {}, {}


def _last(slabs: dict[Slab, None]) -> Slab | None:
    while True:
        try:
            return next(reversed(slabs), None)
        except RuntimeError:  # another thread has changed the dict between the two calls
            continue


slabs: Slabs = Slabs()
large_blocks: LargeBlocks = LargeBlocks()


def set_limit(nbytes: int | None) -> None:
    """Set how many bytes of shared memory this process keeps for reuse when no handle needs them.

    Parameters
    ----------
    nbytes : int, optional
        0 keeps nothing. None: the default, 64 MB or an eighth of the memory that was free when the last
        segment was made, whichever is less.

    Raises
    ------
    TypeError, ValueError
        It is not an int, or is negative.

    Notes
    -----
    A larger limit is useful for a process that shares large objects one after the other: sharing 64 MiB in
    memory that was used before takes a fifth of the time, because the kernel zeroes fresh memory.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.shared.set_limit(1_000_000_000)
    >>> zc.shared.set_limit(None)
    """
    global _chosen
    if nbytes is not None and (isinstance(nbytes, bool) or not isinstance(nbytes, int)):
        kind = type(nbytes).__name__
        raise TypeError(
            f"zerocopy.shared.set_limit({nbytes!r}): a {kind} is not a number of bytes; pass an int"
        )
    if nbytes is not None and nbytes < 0:
        raise OptionError(f"zerocopy.shared.set_limit({nbytes})", "the limit is negative", "pass 0 or more")
    _chosen = nbytes
    slabs.shrink()
    large_blocks.shrink()


def trim() -> int:
    """Return the shared memory that no handle needs to the system.

    Returns
    -------
    int
        Bytes returned.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.share(np.ones(1_000_000)).close()
    >>> zc.shared.trim() >= 8_000_000
    True
    """
    return slabs.trim() + large_blocks.trim()
