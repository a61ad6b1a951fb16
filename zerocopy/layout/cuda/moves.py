"""Words of columns, from the bytes of records and back.

What a thread moves is 8 bytes of a column, or twice 4. Where they lie in the records, is found
by a multiplication: see MAGIC in :mod:`~zerocopy.layout.cuda.plan`. How they lie there, is the
same for all threads of a warp.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from numba import cuda, uint8, uint16, uint32, uint64

from zerocopy.layout.cuda.plan import (
    ALIGNED,
    BEFORE,
    GAP,
    HALVES,
    INTO,
    KIND,
    LENGTH,
    MAGIC,
    OCTETS,
    OFFSET,
    PLACE,
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
from zerocopy.layout.cuda.tile import greatest, least

_device: Any = cuda.jit(device=True)

#: One stretch of memory, as arrays of several types: columns; and records, with their swizzle,
#: if they are in shared memory.
Columns = namedtuple("Columns", "octets words longs")
Records = namedtuple("Records", "octets halves words shift mask")

# Every other byte of 8, every other two.
_ODD, _LOW = 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF

#: A task, in registers: see :data:`~zerocopy.layout.cuda.plan.ROW`. Whole words are from START to
#: WHOLE, single bytes from there to STOP. COLUMN is where the tile's part of the column begins,
#: ORIGIN where its records do, and STRIDE is bytes of a record.
Task = namedtuple(
    "Task", "kind wide start whole stop offset length magic shift width into swap column origin stride"
)


@_device
def read_task(tasks: Any, at: Any, first: Any, count: Any, origin: Any, stride: Any, pitch: Any) -> Any:
    """Return the task at a place of the table, as far as the tile has records: `count`, from `first` on."""
    kind, length = uint32(tasks[at + KIND]), uint32(tasks[at + LENGTH])
    start = uint32(tasks[at + START])
    stop = greatest(start, least(uint32(tasks[at + STOP]), uint32(count * length)))
    column = tasks[at + PLACE] + tasks[at + BEFORE] * pitch + first * tasks[at + WIDTH]
    return Task(
        kind,
        uint32(tasks[at + WIDE]),
        start,
        start if kind >= SINGLE else uint32(stop & uint32(0xFFFFFFF8)),
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
    """Return in which record a byte of the task is: byte // length."""
    return uint32(uint32(byte * task.magic) >> task.shift)


@_device
def _source(task: Any, byte: Any) -> Any:
    """Return where in the records a byte of the task is."""
    gap = uint32(_record(task, byte) * uint32(task.stride - task.length))
    return task.origin + uint32(task.offset + byte + gap)


@_device
def _target(task: Any, byte: Any) -> Any:
    """Return where in the column a byte of the task is."""
    # Where the piece is the whole leaf the factor is 0: the column's bytes are side by side.
    gap = uint32(_record(task, byte) * uint32(task.width - task.length))
    return task.column + uint64(uint32(task.into + byte + gap))


@_device
def _turn(task: Any) -> Any:
    """Return what the place of a word is turned round with: in units of two words and more."""
    return uint32(task.swap - 4) if task.swap > 4 else uint32(0)


@_device
def _octet_target(task: Any, byte: Any) -> Any:
    """Return where in the column a single byte is: any one of a unit that is turned round, too."""
    record = _record(task, byte)
    turn = uint32(task.swap - 1) if task.swap > 1 else uint32(0)
    inner = uint32(task.into + byte - record * task.length)
    return task.column + uint64(uint32((inner ^ turn) + record * task.width))


@_device
def _turned(task: Any, value: Any) -> Any:
    """Turn the bytes of the words of a pair round, or of their halves."""
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
    """Return 8 bytes of a column: at once, unless it is not aligned to that, or has gaps."""
    if task.wide:
        return columns.longs[_target(task, byte) >> uint64(3)]
    low = columns.words[_target(task, byte) >> uint64(2)]
    high = columns.words[_target(task, uint32(byte + 4)) >> uint64(2)]
    return _pair(low, high)


@_device
def _write(columns: Any, task: Any, byte: Any, value: Any) -> None:
    """Write 8 bytes of a column: the mirror of :func:`_read`."""
    if task.wide:
        columns.longs[_target(task, byte) >> uint64(3)] = value
    else:
        columns.words[_target(task, byte) >> uint64(2)] = _low(value)
        columns.words[_target(task, uint32(byte + 4)) >> uint64(2)] = _high(value)


# -- records ----------------------------------------------------------------------


def to_column(lies: Any) -> Any:
    """Return the function that moves a task's bytes from records to their column.

    Parameters
    ----------
    lies : device function
        Of records and the number of a byte: where in their memory it lies. Within words, bytes
        are to keep their places.
    """

    @_device
    def aligned(records: Any, task: Any, byte: Any) -> Any:
        return records.words[lies(records, _source(task, byte)) >> 2]

    @_device
    def shifted(records: Any, task: Any, byte: Any) -> Any:
        at = _source(task, byte)
        # The second word is the one that has the last byte: never one past the records.
        low, high = records.words[lies(records, at) >> 2], records.words[lies(records, at + 3) >> 2]
        return _low(_pair(low, high) >> uint64((at & 3) << 3))

    @_device
    def halves(records: Any, task: Any, byte: Any) -> Any:
        low = records.halves[lies(records, _source(task, byte)) >> 1]
        high = records.halves[lies(records, _source(task, uint32(byte + 2))) >> 1]
        return uint32(uint32(low) | (uint32(high) << 16))

    @_device
    def octets(records: Any, task: Any, byte: Any) -> Any:
        value = uint32(0)
        for i in (0, 1, 2, 3):
            octet = records.octets[lies(records, _source(task, uint32(byte + i)))]
            value = uint32(value | (uint32(octet) << (8 * i)))
        return value

    def words(load: Any) -> Any:
        @_device
        def move(records: Any, columns: Any, task: Any, lane: Any) -> None:
            byte = uint32(task.start + 8 * lane)
            turn = _turn(task)
            while byte < task.whole:
                first = uint32(byte ^ turn)
                value = _pair(load(records, task, first), load(records, task, uint32(first ^ 4)))
                _write(columns, task, byte, _turned(task, value) if task.swap else value)
                byte = uint32(byte + 8 * WARP)

        return move

    move_aligned, move_shifted, move_halves, move_octets = map(words, (aligned, shifted, halves, octets))

    @_device
    def move(records: Any, columns: Any, task: Any, lane: Any) -> None:
        # A loop for each kind: what all threads of the warp agree on is asked once, not per word.
        if task.kind == ALIGNED:
            move_aligned(records, columns, task, lane)
        elif task.kind == SHIFTED:
            move_shifted(records, columns, task, lane)
        elif task.kind == HALVES:
            move_halves(records, columns, task, lane)
        elif task.kind == OCTETS:
            move_octets(records, columns, task, lane)
        byte = uint32(task.whole + lane)
        while byte < task.stop:
            columns.octets[_octet_target(task, byte)] = records.octets[lies(records, _source(task, byte))]
            byte = uint32(byte + WARP)

    return move


def from_column(lies: Any) -> Any:
    """Return the function that moves a task's bytes from a column to the records."""

    @_device
    def aligned(records: Any, task: Any, byte: Any, value: Any) -> None:
        records.words[lies(records, _source(task, byte)) >> 2] = value

    @_device
    def shifted(records: Any, task: Any, byte: Any, value: Any) -> None:
        at = _source(task, byte)
        # By bytes: what else is in the two words is another thread's.
        for i in (0, 1, 2, 3):
            records.octets[lies(records, at + i)] = uint8((value >> (8 * i)) & 255)

    @_device
    def halves(records: Any, task: Any, byte: Any, value: Any) -> None:
        records.halves[lies(records, _source(task, byte)) >> 1] = uint16(value & 0xFFFF)
        records.halves[lies(records, _source(task, uint32(byte + 2))) >> 1] = uint16(value >> 16)

    @_device
    def octets(records: Any, task: Any, byte: Any, value: Any) -> None:
        for i in (0, 1, 2, 3):
            records.octets[lies(records, _source(task, uint32(byte + i)))] = uint8((value >> (8 * i)) & 255)

    def words(store: Any) -> Any:
        @_device
        def put(records: Any, task: Any, byte: Any, value: Any) -> None:
            if task.swap:
                value = _turned(task, value)
            store(records, task, byte, _low(value))
            store(records, task, uint32(byte ^ 4), _high(value))

        @_device
        def move(records: Any, columns: Any, task: Any, lane: Any) -> None:
            byte = uint32(task.start + 8 * lane)
            turn = _turn(task)
            while byte < task.whole:
                # Both loads before the first is waited for. Past the end the last word is
                # moved once more: cheaper than to ask.
                then = least(uint32(byte + 8 * WARP), uint32(task.whole - 8))
                value, other = _read(columns, task, byte), _read(columns, task, then)
                put(records, task, uint32(byte ^ turn), value)
                put(records, task, uint32(then ^ turn), other)
                byte = uint32(byte + 16 * WARP)

        return move

    move_aligned, move_shifted, move_halves, move_octets = map(words, (aligned, shifted, halves, octets))

    @_device
    def move(records: Any, columns: Any, task: Any, lane: Any) -> None:
        if task.kind == ALIGNED:
            move_aligned(records, columns, task, lane)
        elif task.kind == SHIFTED:
            move_shifted(records, columns, task, lane)
        elif task.kind == HALVES:
            move_halves(records, columns, task, lane)
        elif task.kind == OCTETS:
            move_octets(records, columns, task, lane)
        byte = uint32(task.whole + lane)
        while byte < task.stop:
            octet = uint8(0)
            if task.kind != GAP:
                octet = columns.octets[_octet_target(task, byte)]
            records.octets[lies(records, _source(task, byte))] = octet
            byte = uint32(byte + WARP)

    return move
