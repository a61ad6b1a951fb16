"""The tile: records in the shared memory of a thread block, and copies to and from global memory."""

from __future__ import annotations

from typing import Any

from numba import cuda, uint32, uint64

from zerocopy.layout.cuda.tile_plan import THREADS

_device: Any = cuda.jit(device=True)


# Numba 0.68's own CUDA target does not compile min and max: it selects their overload for iterables
# ("Signature mismatch"). numba-cuda 0.30 compiles them.


@_device
def minimum(a: Any, b: Any) -> Any:
    return a if a < b else b


@_device
def maximum(a: Any, b: Any) -> Any:
    return a if a > b else b


@_device
def swizzled(tile: Any, byte: Any) -> Any:
    """Return where a byte of the tile is stored: see :func:`~zerocopy.layout.cuda.tile_plan.swizzle`."""
    low = uint32(byte)
    return uint32(low ^ uint32(uint32(low >> tile.shift) & tile.mask))


@_device
def _put(tile: Any, word: Any, value: Any) -> None:
    """Store 8 bytes in the tile; `word` counts units of 8."""
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
    """Load the records of a tile; adjacent threads read adjacent words of 8 bytes.

    Parameters
    ----------
    records8, records64 : array
        The same memory, which starts at a multiple of 8.
    tile : Records
        In shared memory.
    start : uint64
        Position of the tile's first byte in that memory, minus `head`: a multiple of 8.
    head, size, thread : uint32
        Bytes before the records, fewer than 8; bytes of the records; number of the thread.
    """
    end = uint32(head + size)
    # The first and last word may be partly outside the caller's memory: they are read by bytes.
    first, last = uint32((head + 7) >> 3), uint32(end >> 3)
    base = uint64(start >> uint64(3))
    i = uint32(first + thread)
    # Four loads are issued before the first store.
    while uint32(i + 3 * THREADS) < last:
        at = base + uint64(i)
        a, b = records64[at], records64[at + uint64(THREADS)]
        c, d = records64[at + uint64(2 * THREADS)], records64[at + uint64(3 * THREADS)]
        _put(tile, i, a)
        _put(tile, uint32(i + THREADS), b)
        _put(tile, uint32(i + 2 * THREADS), c)
        _put(tile, uint32(i + 3 * THREADS), d)
        i = uint32(i + 4 * THREADS)
    while i < last:
        # Past the end, the last word is copied again, which is cheaper than a branch.
        top = uint32(last - 1)
        j = minimum(uint32(i + THREADS), top)
        k = minimum(uint32(i + 2 * THREADS), top)
        m = minimum(uint32(i + 3 * THREADS), top)
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
    if at < minimum(uint32(8 * first), end):
        tile.octets[swizzled(tile, at)] = records8[start + uint64(at)]
    at = uint32(8 * maximum(first, last) + thread)
    if at < end:
        tile.octets[swizzled(tile, at)] = records8[start + uint64(at)]


@_device
def store_tile(
    records8: Any, records64: Any, tile: Any, start: Any, head: Any, size: Any, thread: Any
) -> None:
    """Write the tile's records: the inverse of :func:`load_tile`."""
    end = uint32(head + size)
    # Another block writes the remaining bytes of the first and last word: both write single
    # bytes, so that neither overwrites the other's.
    first, last = uint32((head + 7) >> 3), uint32(end >> 3)
    base = uint64(start >> uint64(3))
    i = uint32(first + thread)
    while i < last:
        records64[base + uint64(i)] = _get(tile, i)
        i = uint32(i + THREADS)
    at = uint32(head + thread)
    if at < minimum(uint32(8 * first), end):
        records8[start + uint64(at)] = tile.octets[swizzled(tile, at)]
    at = uint32(8 * maximum(first, last) + thread)
    if at < end:
        records8[start + uint64(at)] = tile.octets[swizzled(tile, at)]


@_device
def clear_tile(tile: Any, nbytes: Any, thread: Any) -> None:
    """Set a tile to zero, for the padding that no task writes."""
    words = uint32((nbytes + 127) >> 7 << 5)
    i = thread
    while i < words:
        tile.words[i] = uint32(0)
        i = uint32(i + THREADS)
