"""Device functions that copy one task: words of a column from the bytes of records, or back.

A thread copies 8 bytes of a column, or twice 4. A multiplication locates them in the records: see
MAGIC in :mod:`~zerocopy.layout.cuda.tile_plan`. How the records are accessed is the same for all
threads of a warp.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from numba import cuda, uint8, uint16, uint32, uint64

from zerocopy.layout.cuda.tile import maximum, minimum
from zerocopy.layout.cuda.tile_plan import (
    ACCESS,
    ALIGNED,
    COLUMN_OFFSET,
    GAP,
    HALVES,
    INTO,
    LENGTH,
    MAGIC,
    OCTETS,
    OFFSET,
    PITCHES,
    SHIFT,
    SHIFTED,
    SINGLE,
    START,
    STOP,
    SWAP,
    WARP,
    WIDE,
    WIDTH,
)

_device: Any = cuda.jit(device=True)

#: One range of memory as arrays of several types: columns; and records, with the swizzle of a
#: tile in shared memory.
Columns = namedtuple("Columns", "octets words longs")
Records = namedtuple("Records", "octets halves words shift mask")

# Masks of every other byte of 8, and of every other pair of bytes.
_ODD, _LOW = 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF

#: A task, in registers: see :data:`~zerocopy.layout.cuda.tile_plan.ROW`. Words are copied from START
#: to WORDS_STOP, single bytes from there to STOP. COLUMN and ORIGIN are where the tile's part of the
#: column and its records start, and STRIDE is the size of a record.
Task = namedtuple(
    "Task", "access wide start words_stop stop offset length magic shift width into swap column origin stride"
)


@_device
def read_task(tasks: Any, at: Any, first: Any, count: Any, origin: Any, stride: Any, pitch: Any) -> Any:
    """Return the task at an index of the table, limited to the tile's `count` records from `first` on."""
    access, length = uint32(tasks[at + ACCESS]), uint32(tasks[at + LENGTH])
    start = uint32(tasks[at + START])
    stop = maximum(start, minimum(uint32(tasks[at + STOP]), uint32(count * length)))
    column = tasks[at + COLUMN_OFFSET] + tasks[at + PITCHES] * pitch + first * tasks[at + WIDTH]
    return Task(
        access,
        uint32(tasks[at + WIDE]),
        start,
        start if access >= SINGLE else uint32(stop & uint32(0xFFFFFFF8)),
        stop,
        uint32(tasks[at + OFFSET]),
        length,
        uint32(tasks[at + MAGIC]),
        uint32(tasks[at + SHIFT]),
        uint32(tasks[at + WIDTH]),
        uint32(tasks[at + INTO]),
        uint32(tasks[at + SWAP]),
        uint64(column),
        origin,
        stride,
    )


@_device
def _record(task: Any, byte: Any) -> Any:
    """Return which record a byte of the task belongs to: byte // length."""
    return uint32(uint32(byte * task.magic) >> task.shift)


@_device
def _source(task: Any, byte: Any) -> Any:
    """Return the position of a byte of the task in the records."""
    gap = uint32(_record(task, byte) * uint32(task.stride - task.length))
    return task.origin + uint32(task.offset + byte + gap)


@_device
def _target(task: Any, byte: Any) -> Any:
    """Return the position of a byte of the task in the column."""
    # If the piece is the whole leaf, width - length is 0: the column's bytes are contiguous.
    gap = uint32(_record(task, byte) * uint32(task.width - task.length))
    return task.column + uint64(uint32(task.into + byte + gap))


@_device
def _word_flip(task: Any) -> Any:
    """Return the mask that reverses the order of words, for swapped units of two words or more."""
    return uint32(task.swap - 4) if task.swap > 4 else uint32(0)


@_device
def _octet_target(task: Any, byte: Any) -> Any:
    """Return the position of a single byte in the column, with the byte order reversed if needed."""
    record = _record(task, byte)
    flip = uint32(task.swap - 1) if task.swap > 1 else uint32(0)
    inner = uint32(task.into + byte - record * task.length)
    return task.column + uint64(uint32((inner ^ flip) + record * task.width))


@_device
def _swapped(task: Any, value: Any) -> Any:
    """Reverse the bytes of both words of a pair, or of their halves."""
    value = ((value >> uint64(8)) & uint64(_ODD)) | ((value & uint64(_ODD)) << uint64(8))
    if task.swap >= 4:
        value = ((value >> uint64(16)) & uint64(_LOW)) | ((value & uint64(_LOW)) << uint64(16))
    return value


@_device
def _pair(low: Any, high: Any) -> Any:
    return uint64(low) | (uint64(high) << uint64(32))


@_device
def _low(value: Any) -> Any:
    return uint32(value & uint64(0xFFFFFFFF))


@_device
def _high(value: Any) -> Any:
    return uint32(value >> uint64(32))


# -- columns ----------------------------------------------------------------------


@_device
def _read(columns: Any, task: Any, byte: Any) -> Any:
    """Return 8 bytes of a column: in one load if it is aligned to 8 and has no gaps, else in two."""
    if task.wide:
        return columns.longs[_target(task, byte) >> uint64(3)]
    low = columns.words[_target(task, byte) >> uint64(2)]
    high = columns.words[_target(task, uint32(byte + 4)) >> uint64(2)]
    return _pair(low, high)


@_device
def _write(columns: Any, task: Any, byte: Any, value: Any) -> None:
    """Write 8 bytes of a column: the inverse of :func:`_read`."""
    if task.wide:
        columns.longs[_target(task, byte) >> uint64(3)] = value
    else:
        columns.words[_target(task, byte) >> uint64(2)] = _low(value)
        columns.words[_target(task, uint32(byte + 4)) >> uint64(2)] = _high(value)


# -- records ----------------------------------------------------------------------


def _by_access(words: Any, accessors: Any) -> Any:
    """Return the function that copies a task's words, with one loop for each kind of access.

    All threads of a warp agree on the kind, so it is tested once, not per word.
    """
    copy_aligned, copy_shifted, copy_halves, copy_octets = map(words, accessors)

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


def to_column(index: Any) -> Any:
    """Return the function that copies a task's bytes from records to their column.

    Parameters
    ----------
    index : device function
        Maps records and the number of a byte to its index in their memory. It must not change
        the order of bytes within a word.
    """

    @_device
    def aligned(records: Any, task: Any, byte: Any) -> Any:
        return records.words[index(records, _source(task, byte)) >> 2]

    @_device
    def shifted(records: Any, task: Any, byte: Any) -> Any:
        at = _source(task, byte)
        # The second word contains the last byte, so it is never past the records.
        low, high = records.words[index(records, at) >> 2], records.words[index(records, at + 3) >> 2]
        return _low(_pair(low, high) >> uint64((at & 3) << 3))

    @_device
    def halves(records: Any, task: Any, byte: Any) -> Any:
        low = records.halves[index(records, _source(task, byte)) >> 1]
        high = records.halves[index(records, _source(task, uint32(byte + 2))) >> 1]
        return uint32(uint32(low) | (uint32(high) << 16))

    @_device
    def octets(records: Any, task: Any, byte: Any) -> Any:
        value = uint32(0)
        for i in (0, 1, 2, 3):
            octet = records.octets[index(records, _source(task, uint32(byte + i)))]
            value = uint32(value | (uint32(octet) << (8 * i)))
        return value

    def words(load: Any) -> Any:
        @_device
        def copy(records: Any, columns: Any, task: Any, lane: Any) -> None:
            byte = uint32(task.start + 8 * lane)
            flip = _word_flip(task)
            while byte < task.words_stop:
                first = uint32(byte ^ flip)
                value = _pair(load(records, task, first), load(records, task, uint32(first ^ 4)))
                _write(columns, task, byte, _swapped(task, value) if task.swap else value)
                byte = uint32(byte + 8 * WARP)

        return copy

    copy_words = _by_access(words, (aligned, shifted, halves, octets))

    @_device
    def copy(records: Any, columns: Any, task: Any, lane: Any) -> None:
        copy_words(records, columns, task, lane)
        byte = uint32(task.words_stop + lane)
        while byte < task.stop:
            columns.octets[_octet_target(task, byte)] = records.octets[index(records, _source(task, byte))]
            byte = uint32(byte + WARP)

    return copy


def from_column(index: Any) -> Any:
    """Return the function that copies a task's bytes from a column to the records."""

    @_device
    def aligned(records: Any, task: Any, byte: Any, value: Any) -> None:
        records.words[index(records, _source(task, byte)) >> 2] = value

    @_device
    def shifted(records: Any, task: Any, byte: Any, value: Any) -> None:
        at = _source(task, byte)
        # Byte by byte: other threads write the remaining bytes of the two words.
        for i in (0, 1, 2, 3):
            records.octets[index(records, at + i)] = uint8((value >> (8 * i)) & 255)

    @_device
    def halves(records: Any, task: Any, byte: Any, value: Any) -> None:
        records.halves[index(records, _source(task, byte)) >> 1] = uint16(value & 0xFFFF)
        records.halves[index(records, _source(task, uint32(byte + 2))) >> 1] = uint16(value >> 16)

    @_device
    def octets(records: Any, task: Any, byte: Any, value: Any) -> None:
        for i in (0, 1, 2, 3):
            records.octets[index(records, _source(task, uint32(byte + i)))] = uint8((value >> (8 * i)) & 255)

    def words(store: Any) -> Any:
        @_device
        def put(records: Any, task: Any, byte: Any, value: Any) -> None:
            if task.swap:
                value = _swapped(task, value)
            store(records, task, byte, _low(value))
            store(records, task, uint32(byte ^ 4), _high(value))

        @_device
        def copy(records: Any, columns: Any, task: Any, lane: Any) -> None:
            byte = uint32(task.start + 8 * lane)
            flip = _word_flip(task)
            while byte < task.words_stop:
                # Two loads precede the first store. Past the end, the last word is copied again.
                then = minimum(uint32(byte + 8 * WARP), uint32(task.words_stop - 8))
                value, other = _read(columns, task, byte), _read(columns, task, then)
                put(records, task, uint32(byte ^ flip), value)
                put(records, task, uint32(then ^ flip), other)
                byte = uint32(byte + 16 * WARP)

        return copy

    copy_words = _by_access(words, (aligned, shifted, halves, octets))

    @_device
    def copy(records: Any, columns: Any, task: Any, lane: Any) -> None:
        copy_words(records, columns, task, lane)
        byte = uint32(task.words_stop + lane)
        while byte < task.stop:
            octet = uint8(0)
            if task.access != GAP:
                octet = columns.octets[_octet_target(task, byte)]
            records.octets[index(records, _source(task, byte))] = octet
            byte = uint32(byte + WARP)

    return copy
