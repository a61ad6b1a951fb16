"""Device functions that access words of a column, and words of 4 bytes in the records, by kind of access."""

from __future__ import annotations

from typing import Any

from numba import cuda, uint8, uint16, uint32, uint64

from zerocopy.layout.cuda.task import target
from zerocopy.layout.cuda.tile_plan import ALIGNED, HALVES, OCTETS, SHIFTED

_device: Any = cuda.jit(device=True)

# Masks of every other byte of 8, and of every other pair of bytes.
_ODD, _LOW = 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF


@_device
def swapped(task: Any, value: Any) -> Any:
    """Reverse the bytes of both words of a pair, or of their halves."""
    value = ((value >> uint64(8)) & uint64(_ODD)) | ((value & uint64(_ODD)) << uint64(8))
    if task.swap >= 4:
        value = ((value >> uint64(16)) & uint64(_LOW)) | ((value & uint64(_LOW)) << uint64(16))
    return value


@_device
def join(low: Any, high: Any) -> Any:
    return uint64(low) | (uint64(high) << uint64(32))


@_device
def low_word(value: Any) -> Any:
    return uint32(value & uint64(0xFFFFFFFF))


@_device
def high_word(value: Any) -> Any:
    return uint32(value >> uint64(32))


@_device
def read_pair(columns: Any, task: Any, byte: Any) -> Any:
    """Return 8 bytes of a column: in one load if it is aligned to 8 and has no gaps, else in two."""
    if task.wide:
        return columns.longs[target(task, byte) >> uint64(3)]
    low = columns.words[target(task, byte) >> uint64(2)]
    high = columns.words[target(task, uint32(byte + 4)) >> uint64(2)]
    return join(low, high)


@_device
def write_pair(columns: Any, task: Any, byte: Any, value: Any) -> None:
    """Write 8 bytes of a column: the inverse of :func:`read_pair`."""
    if task.wide:
        columns.longs[target(task, byte) >> uint64(3)] = value
    else:
        columns.words[target(task, byte) >> uint64(2)] = low_word(value)
        columns.words[target(task, uint32(byte + 4)) >> uint64(2)] = high_word(value)


def by_access(copies: Any) -> Any:
    """Return the function that copies a task's words, with one loop for each kind of access.

    All threads of a warp agree on the kind, so it is tested once, not per word.
    """
    copy_aligned, copy_shifted, copy_halves, copy_octets = copies

    @_device
    def copy_words(records: Any, columns: Any, task: Any, lane: Any) -> None:
        if task.access == ALIGNED:
            copy_aligned(records, columns, task, lane)
        elif task.access == SHIFTED:
            copy_shifted(records, columns, task, lane)
        elif task.access == HALVES:
            copy_halves(records, columns, task, lane)
        elif task.access == OCTETS:
            copy_octets(records, columns, task, lane)

    return copy_words


def loads(index: Any, nth: Any) -> Any:
    """Return the functions that load a word of 4 bytes from the records, one for each kind of access.

    Parameters
    ----------
    index : device function
        See `to_column`.
    nth : device function
        `nth_source` or `nth_place`.
    """

    @_device
    def aligned(records: Any, task: Any, at: Any, i: Any) -> Any:
        return records.words[index(records, nth(task, at, i)) >> 2]

    @_device
    def shifted(records: Any, task: Any, at: Any, i: Any) -> Any:
        byte = nth(task, at, i)
        # The second word contains the last byte, so it is never past the records.
        low, high = records.words[index(records, byte) >> 2], records.words[index(records, byte + 3) >> 2]
        return low_word(join(low, high) >> uint64((byte & 3) << 3))

    @_device
    def halves(records: Any, task: Any, at: Any, i: Any) -> Any:
        low = records.halves[index(records, nth(task, at, i)) >> 1]
        high = records.halves[index(records, nth(task, at, uint32(i + 2))) >> 1]
        return uint32(uint32(low) | (uint32(high) << 16))

    @_device
    def octets(records: Any, task: Any, at: Any, i: Any) -> Any:
        value = uint32(0)
        for j in (0, 1, 2, 3):
            octet = records.octets[index(records, nth(task, at, uint32(i + j)))]
            value = uint32(value | (uint32(octet) << (8 * j)))
        return value

    return aligned, shifted, halves, octets


def stores(index: Any, nth: Any) -> Any:
    """Return the functions that store a word of 4 bytes in the records: see `loads`."""

    @_device
    def aligned(records: Any, task: Any, at: Any, i: Any, value: Any) -> None:
        records.words[index(records, nth(task, at, i)) >> 2] = value

    @_device
    def shifted(records: Any, task: Any, at: Any, i: Any, value: Any) -> None:
        byte = nth(task, at, i)
        # Byte by byte: other threads write the remaining bytes of the two words.
        for j in (0, 1, 2, 3):
            records.octets[index(records, byte + j)] = uint8((value >> (8 * j)) & 255)

    @_device
    def halves(records: Any, task: Any, at: Any, i: Any, value: Any) -> None:
        records.halves[index(records, nth(task, at, i)) >> 1] = uint16(value & 0xFFFF)
        records.halves[index(records, nth(task, at, uint32(i + 2))) >> 1] = uint16(value >> 16)

    @_device
    def octets(records: Any, task: Any, at: Any, i: Any, value: Any) -> None:
        for j in (0, 1, 2, 3):
            octet = uint8((value >> (8 * j)) & 255)
            records.octets[index(records, nth(task, at, uint32(i + j)))] = octet

    return aligned, shifted, halves, octets
