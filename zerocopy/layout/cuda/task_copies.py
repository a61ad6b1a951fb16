"""Device functions that copy one task: words of a column from the bytes of records, or back.

A thread copies 8 bytes of a column, or twice 4. A task with a STEP has loops that only add it to the
position in the records; for other tasks a multiplication locates each word: see MAGIC in
:mod:`~zerocopy.layout.cuda.tile_plan`. How the records are accessed is the same for all threads of a warp.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from numba import cuda, uint8, uint32, uint64

from zerocopy.layout.cuda.accesses import (
    by_access,
    high_word,
    join,
    loads,
    low_word,
    read_pair,
    stores,
    swapped,
    write_pair,
)
from zerocopy.layout.cuda.task import nth_place, nth_source, octet_target, source, word_flip
from zerocopy.layout.cuda.tile import minimum
from zerocopy.layout.cuda.tile_plan import GAP, WARP

_device: Any = cuda.jit(device=True)


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
