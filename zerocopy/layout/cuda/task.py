"""A task of a plan in a kernel: its row of the table in registers, and the positions of its bytes."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from numba import cuda, uint32, uint64

from zerocopy.layout.cuda.tile import maximum, minimum
from zerocopy.layout.cuda.tile_plan import (
    ACCESS,
    COLUMN_OFFSET,
    INTO,
    LENGTH,
    MAGIC,
    OFFSET,
    PITCHES,
    SHIFT,
    SINGLE,
    START,
    STEP,
    STOP,
    SWAP,
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
