"""Values that are no group: text, bytes, short arrays, records within sub-arrays."""

from __future__ import annotations

from typing import Any

from numba import njit

from zerocopy.layout.kernels.instructions import entry, move1, move4, move8, move16, swap2, swap4, swap8
from zerocopy.layout.kernels.table import leaf_entry, piece_entry
from zerocopy.layout.plan import FIRST, GROUPED, LAST, LENGTH, OFFSET, SWAP


@njit
def leaf_to_column(
    plan: Any, leaf: Any, column: Any, record: Any, stride: Any, rows: Any, spill: Any
) -> None:
    """Copy one leaf of some records, `stride` bytes apart, into a column.

    With `spill`, up to 16 bytes past a value may be read, and past the column's end written.
    """
    width, swap = leaf_entry(plan, leaf, LENGTH), leaf_entry(plan, leaf, SWAP)
    whole = leaf_entry(plan, leaf, LAST) - leaf_entry(plan, leaf, FIRST) == 1
    if spill and whole and swap == 0 and width <= 32 and stride >= 16:
        _move_loosely(column, record + leaf_entry(plan, leaf, OFFSET), stride, rows, width)
        return
    if leaf < entry(plan, GROUPED):
        _copy(column, width, record + leaf_entry(plan, leaf, OFFSET), stride, rows, width, swap)
    for piece in range(leaf_entry(plan, leaf, FIRST), leaf_entry(plan, leaf, LAST)):
        length = piece_entry(plan, piece, 1)
        _copy(column, width, record + piece_entry(plan, piece, 0), stride, rows, length, swap)
        column += length


@njit
def column_to_leaf(plan: Any, leaf: Any, column: Any, record: Any, stride: Any, rows: Any) -> None:
    """Copy a column into one leaf of some records, and write no other byte of them."""
    width, swap = leaf_entry(plan, leaf, LENGTH), leaf_entry(plan, leaf, SWAP)
    if leaf < entry(plan, GROUPED):
        _copy(record + leaf_entry(plan, leaf, OFFSET), stride, column, width, rows, width, swap)
    for piece in range(leaf_entry(plan, leaf, FIRST), leaf_entry(plan, leaf, LAST)):
        length = piece_entry(plan, piece, 1)
        _copy(record + piece_entry(plan, piece, 0), stride, column, width, rows, length, swap)
        column += length


@njit
def _move_loosely(column: Any, source: Any, stride: Any, rows: Any, width: Any) -> None:
    """Copy values side by side, in moves of 16 bytes: what is too much of one, the next overwrites."""
    if width <= 16:
        for row in range(rows):
            move16(column + row * width, source + row * stride)
    else:
        for row in range(rows):
            t, s = column + row * width, source + row * stride
            move16(t, s)
            move16(t + 16, s + 16)


@njit
def _copy(
    target: Any, target_step: Any, source: Any, source_step: Any, rows: Any, length: Any, unit: Any
) -> None:
    """Copy so many bytes of each row, turned round in units if there is a unit."""
    if unit == 0:
        _move(target, target_step, source, source_step, rows, length)
        return
    for row in range(rows):
        t, s = target + row * target_step, source + row * source_step
        if unit == 2:
            for byte in range(0, length, 2):
                swap2(t + byte, s + byte)
        elif unit == 4:
            for byte in range(0, length, 4):
                swap4(t + byte, s + byte)
        else:
            for byte in range(0, length, 8):
                swap8(t + byte, s + byte)


@njit
def _move(target: Any, target_step: Any, source: Any, source_step: Any, rows: Any, length: Any) -> None:
    """Copy so many bytes of each row, and no byte more.

    Two moves that overlap do any length between one of theirs and both: 13 bytes are 8 and 8.
    Which ones is decided once, and not once a row.
    """
    if length < 4:
        for row in range(rows):
            t, s = target + row * target_step, source + row * source_step
            for byte in range(length):
                move1(t + byte, s + byte)
    elif length < 8:
        for row in range(rows):
            t, s = target + row * target_step, source + row * source_step
            move4(t, s)
            move4(t + length - 4, s + length - 4)
    elif length <= 16:
        for row in range(rows):
            t, s = target + row * target_step, source + row * source_step
            move8(t, s)
            move8(t + length - 8, s + length - 8)
    elif length <= 32:
        for row in range(rows):
            t, s = target + row * target_step, source + row * source_step
            move16(t, s)
            move16(t + length - 16, s + length - 16)
    else:
        for row in range(rows):
            t, s = target + row * target_step, source + row * source_step
            for byte in range(0, length - 16, 16):
                move16(t + byte, s + byte)
            move16(t + length - 16, s + length - 16)
