"""Device functions that copy one task: words of a column from the bytes of records, or back.

A thread copies 8 bytes of a column, or twice 4. A task with a STEP has loops that only add it to the
position in the records; for other tasks a multiplication locates each word: see MAGIC in
:mod:`~zerocopy.layout.cuda.tile_plan`. How the records are accessed is the same for all threads of a warp.
"""

from __future__ import annotations

from collections import namedtuple
from functools import partial
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
    STEP,
    STOP,
    SWAP,
    WARP,
    WIDE,
    WIDTH,
)

_device: Any = cuda.jit(device=True)

#: One range of memory as arrays of several types: columns; and records, with the swizzle of a
#: tile in shared memory.
Columns: Any = namedtuple("Columns", "octets words longs")
Records: Any = namedtuple("Records", "octets halves words shift mask")

#: A task, in registers: see :data:`~zerocopy.layout.cuda.tile_plan.ROW`. Words are copied from START
#: to WORDS_STOP, single bytes from there to STOP. COLUMN and ORIGIN are where the tile's part of the
#: column and its records start, and STRIDE is the size of a record.
Task: Any = namedtuple(
    "Task",
    "access wide start words_stop stop offset length magic shift width into swap step column origin stride",
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
        uint32(tasks[at + STEP]),
        uint64(column),
        origin,
        stride,
    )


@_device
def record_of(task: Any, byte: Any) -> Any:
    """Return which record a byte of the task belongs to: byte // length."""
    return uint32(uint32(byte * task.magic) >> task.shift)


@_device
def source(task: Any, byte: Any) -> Any:
    """Return the position of a byte of the task in the records."""
    gap = uint32(record_of(task, byte) * uint32(task.stride - task.length))
    return task.origin + uint32(task.offset + byte + gap)


@_device
def nth_source(task: Any, byte: Any, i: Any) -> Any:
    """Return the position in the records of the byte `i` after a byte of the task."""
    return source(task, uint32(byte + i))


@_device
def nth_place(task: Any, place: Any, i: Any) -> Any:
    """Return the position of the byte `i`, up to 7, after the first of 8 bytes of a task with a STEP.

    `place` is the position of that first byte. The distance is the same in each iteration of a loop.
    """
    return place + uint32(i + record_of(task, i) * uint32(task.stride - task.length))


@_device
def target(task: Any, byte: Any) -> Any:
    """Return the position of a byte of the task in the column."""
    # If the piece is the whole leaf, width - length is 0: the column's bytes are contiguous.
    gap = uint32(record_of(task, byte) * uint32(task.width - task.length))
    return task.column + uint64(uint32(task.into + byte + gap))


@_device
def word_flip(task: Any) -> Any:
    """Return the mask that reverses the order of words, for swapped units of two words or more."""
    return uint32(task.swap - 4) if task.swap > 4 else uint32(0)


@_device
def octet_target(task: Any, byte: Any) -> Any:
    """Return the position of a single byte in the column, with the byte order reversed if needed."""
    record = record_of(task, byte)
    flip = uint32(task.swap - 1) if task.swap > 1 else uint32(0)
    inner = uint32(task.into + byte - record * task.length)
    return task.column + uint64(uint32((inner ^ flip) + record * task.width))


# -- words of a column, and words of 4 bytes in the records, by kind of access ---------------------

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


# -- the copies ------------------------------------------------------------------------


def to_column(index: Any, position: Any) -> Any:
    """Return the function that copies a task's bytes from records to their column.

    Parameters
    ----------
    index : device function
        Maps records and the number of a byte to its index in their memory. It must not change
        the order of bytes within a word.
    position : numba type
        Type of the number of a byte.
    """
    copy_words = by_access(map(_words_to_column, loads(index, nth_source)))
    copy_steps = by_access(map(partial(_steps_to_column, position), loads(index, nth_place)))

    @_device
    def copy(records: Any, columns: Any, task: Any, lane: Any) -> None:
        if task.step:
            copy_steps(records, columns, task, lane)
        else:
            copy_words(records, columns, task, lane)
        byte = uint32(task.words_stop + lane)
        while byte < task.stop:
            columns.octets[octet_target(task, byte)] = records.octets[index(records, source(task, byte))]
            byte = uint32(byte + WARP)

    return copy


def from_column(index: Any, position: Any) -> Any:
    """Return the function that copies a task's bytes from a column to the records: see :func:`to_column`."""
    copy_words = by_access(map(_words_from_column, stores(index, nth_source)))
    copy_steps = by_access(map(partial(_steps_from_column, position), stores(index, nth_place)))

    @_device
    def copy(records: Any, columns: Any, task: Any, lane: Any) -> None:
        if task.step:
            copy_steps(records, columns, task, lane)
        else:
            copy_words(records, columns, task, lane)
        byte = uint32(task.words_stop + lane)
        while byte < task.stop:
            octet = uint8(0)
            if task.access != GAP:
                octet = columns.octets[octet_target(task, byte)]
            records.octets[index(records, source(task, byte))] = octet
            byte = uint32(byte + WARP)

    return copy


def _steps_to_column(position: Any, load: Any) -> Any:
    """Return the loop for tasks with a STEP, which has no branch and no multiplication.

    The loop for whole words has 20 instructions on sm_90. The loop of `_words_to_column` would execute 43.
    """

    @_device
    def copy(records: Any, columns: Any, task: Any, lane: Any) -> None:
        byte = uint32(task.start + 8 * lane)
        place = position(source(task, byte))
        word = uint64((task.column + uint64(byte)) >> uint64(3))
        while byte < task.words_stop:
            low, high = load(records, task, place, uint32(0)), load(records, task, place, uint32(4))
            columns.longs[word] = join(low, high)
            place, word = position(place + task.step), uint64(word + uint64(WARP))
            byte = uint32(byte + 8 * WARP)

    return copy


def _words_to_column(load: Any) -> Any:
    @_device
    def copy(records: Any, columns: Any, task: Any, lane: Any) -> None:
        byte = uint32(task.start + 8 * lane)
        flip = word_flip(task)
        while byte < task.words_stop:
            first = uint32(byte ^ flip)
            low, high = load(records, task, first, 0), load(records, task, uint32(first ^ 4), 0)
            value = join(low, high)
            write_pair(columns, task, byte, swapped(task, value) if task.swap else value)
            byte = uint32(byte + 8 * WARP)

    return copy


def _steps_from_column(position: Any, store: Any) -> Any:
    """Return the loop for tasks with a STEP."""

    @_device
    def put(records: Any, task: Any, place: Any, value: Any) -> None:
        store(records, task, place, uint32(0), low_word(value))
        store(records, task, place, uint32(4), high_word(value))

    @_device
    def copy(records: Any, columns: Any, task: Any, lane: Any) -> None:
        byte = uint32(task.start + 8 * lane)
        place = position(source(task, byte))
        word = uint64((task.column + uint64(byte)) >> uint64(3))
        while uint32(byte + 8 * WARP) < task.words_stop:  # two loads precede the first store
            value, other = columns.longs[word], columns.longs[word + uint64(WARP)]
            put(records, task, place, value)
            put(records, task, position(place + task.step), other)
            place, word = position(place + 2 * task.step), uint64(word + uint64(2 * WARP))
            byte = uint32(byte + 16 * WARP)
        if byte < task.words_stop:
            put(records, task, place, columns.longs[word])

    return copy


def _words_from_column(store: Any) -> Any:
    @_device
    def put(records: Any, task: Any, byte: Any, value: Any) -> None:
        if task.swap:
            value = swapped(task, value)
        store(records, task, byte, 0, low_word(value))
        store(records, task, uint32(byte ^ 4), 0, high_word(value))

    @_device
    def copy(records: Any, columns: Any, task: Any, lane: Any) -> None:
        byte = uint32(task.start + 8 * lane)
        flip = word_flip(task)
        while byte < task.words_stop:
            # Two loads precede the first store. Past the end, the last word is copied again.
            then = minimum(uint32(byte + 8 * WARP), uint32(task.words_stop - 8))
            value, other = read_pair(columns, task, byte), read_pair(columns, task, then)
            put(records, task, uint32(byte ^ flip), value)
            put(records, task, uint32(then ^ flip), other)
            byte = uint32(byte + 16 * WARP)

    return copy
