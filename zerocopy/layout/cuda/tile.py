"""The tile: records in the shared memory of a block, and how they get there and away again."""

from __future__ import annotations

from typing import Any

from numba import cuda, uint32, uint64

from zerocopy.layout.cuda.plan import THREADS

_device: Any = cuda.jit(device=True)


# Not min and max: the CUDA target that is a part of Numba 0.68 does not compile them (it takes the
# overload for iterables, "Signature mismatch"); numba-cuda 0.30 does.


@_device
def least(a: Any, b: Any) -> Any:
    return a if a < b else b


@_device
def greatest(a: Any, b: Any) -> Any:
    return a if a > b else b


@_device
def swizzled(tile: Any, byte: Any) -> Any:
    """Return where a byte of the tile lies: see :func:`~zerocopy.layout.cuda.plan.swizzle`."""
    return uint32(byte ^ ((byte >> tile.shift) & tile.mask))


@_device
def _put(tile: Any, word: Any, value: Any) -> None:
    """Put 8 bytes into the tile; `word` counts those."""
    place = swizzled(tile, uint32(8 * word)) >> 2
    tile.words[place] = uint32(value & uint64(0xFFFFFFFF))
    tile.words[place ^ 1] = uint32(value >> uint64(32))


@_device
def _get(tile: Any, word: Any) -> Any:
    place = swizzled(tile, uint32(8 * word)) >> 2
    return uint64(tile.words[place]) | (uint64(tile.words[place ^ 1]) << uint64(32))


@_device
def load_tile(
    records8: Any, records64: Any, tile: Any, start: Any, head: Any, size: Any, thread: Any
) -> None:
    """Read the records of a tile into it, 8 bytes a thread, side by side.

    Parameters
    ----------
    records8, records64 : array
        The same memory, from a multiple of 8 on.
    tile : Records
        Of shared memory.
    start : uint64
        Where in that memory the tile's bytes begin, less `head`: a multiple of 8.
    head, size, thread : uint32
        Bytes before the records, below 8; bytes of the records; the thread's number.
    """
    end = uint32(head + size)
    # Words that the tile shares with its neighbours may be half outside of the memory that is
    # ours: those are left to single bytes.
    first, last = uint32((head + 7) >> 3), uint32(end >> 3)
    base = uint64(start >> uint64(3))
    i = uint32(first + thread)
    while i < last:
        # Four loads before the first is waited for. Past the end the last word is read, and
        # put down, once more: cheaper than to ask each time.
        top = uint32(last - 1)
        j = least(uint32(i + THREADS), top)
        k = least(uint32(i + 2 * THREADS), top)
        m = least(uint32(i + 3 * THREADS), top)
        a = records64[base + uint64(i)]
        b = records64[base + uint64(j)]
        c = records64[base + uint64(k)]
        d = records64[base + uint64(m)]
        _put(tile, i, a)
        _put(tile, j, b)
        _put(tile, k, c)
        _put(tile, m, d)
        i = uint32(i + 4 * THREADS)
    at = uint32(head + thread)
    if at < least(uint32(8 * first), end):
        tile.octets[swizzled(tile, at)] = records8[start + uint64(at)]
    at = uint32(8 * greatest(first, last) + thread)
    if at < end:
        tile.octets[swizzled(tile, at)] = records8[start + uint64(at)]


@_device
def store_tile(
    records8: Any, records64: Any, tile: Any, start: Any, head: Any, size: Any, thread: Any
) -> None:
    """Write the tile's records: the mirror of :func:`load_tile`."""
    end = uint32(head + size)
    # Words that are shared with a neighbour are written by another block too: by bytes, so that
    # neither undoes what the other has written.
    first, last = uint32((head + 7) >> 3), uint32(end >> 3)
    base = uint64(start >> uint64(3))
    i = uint32(first + thread)
    while i < last:
        records64[base + uint64(i)] = _get(tile, i)
        i = uint32(i + THREADS)
    at = uint32(head + thread)
    if at < least(uint32(8 * first), end):
        records8[start + uint64(at)] = tile.octets[swizzled(tile, at)]
    at = uint32(8 * greatest(first, last) + thread)
    if at < end:
        records8[start + uint64(at)] = tile.octets[swizzled(tile, at)]


@_device
def clear_tile(tile: Any, nbytes: Any, thread: Any) -> None:
    """Make a tile zero: what no field is put on is padding."""
    words = uint32((nbytes + 127) >> 7 << 5)
    i = thread
    while i < words:
        tile.words[i] = uint32(0)
        i = uint32(i + THREADS)
