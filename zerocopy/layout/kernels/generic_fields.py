"""Copies of fields that are in no group: text, bytes, short arrays, records within sub-arrays."""

from __future__ import annotations

from typing import Any

from numba import njit

from zerocopy.layout.kernels.instructions import copy1, copy4, copy8, copy16, entry, swap2, swap4, swap8
from zerocopy.layout.kernels.plan_table import leaf_entry, piece_entry
from zerocopy.layout.record_plan import FIRST, GROUPED, LAST, LENGTH, OFFSET, SWAP


@njit
def leaf_to_column(
    plan: Any, leaf: Any, column: Any, record: Any, stride: Any, rows: Any, overrun: Any
) -> None:
    """Copy one leaf of some records, `stride` bytes apart, into a column.

    With `overrun`, up to 16 bytes may be read past a value and written past the column's end.
    """
    width, swap = leaf_entry(plan, leaf, LENGTH), leaf_entry(plan, leaf, SWAP)
    one_piece = leaf_entry(plan, leaf, LAST) - leaf_entry(plan, leaf, FIRST) == 1
    if overrun and one_piece and swap == 0 and width <= 32 and stride >= 16:
        _copy_overrunning(column, record + leaf_entry(plan, leaf, OFFSET), stride, rows, width)
        return
    if leaf < entry(plan, GROUPED):
        _copy(column, width, record + leaf_entry(plan, leaf, OFFSET), stride, rows, width, swap)
    for piece in range(leaf_entry(plan, leaf, FIRST), leaf_entry(plan, leaf, LAST)):
        length = piece_entry(plan, piece, 1)
        _copy(column, width, record + piece_entry(plan, piece, 0), stride, rows, length, swap)
        column += length


@njit
def column_to_leaf(plan: Any, leaf: Any, column: Any, record: Any, stride: Any, rows: Any) -> None:
    """Copy a column into one leaf of some records; no other byte of them is written."""
    width, swap = leaf_entry(plan, leaf, LENGTH), leaf_entry(plan, leaf, SWAP)
    if leaf < entry(plan, GROUPED):
        _copy(record + leaf_entry(plan, leaf, OFFSET), stride, column, width, rows, width, swap)
    for piece in range(leaf_entry(plan, leaf, FIRST), leaf_entry(plan, leaf, LAST)):
        length = piece_entry(plan, piece, 1)
        _copy(record + piece_entry(plan, piece, 0), stride, column, width, rows, length, swap)
        column += length


@njit
def _copy_overrunning(column: Any, source: Any, stride: Any, rows: Any, width: Any) -> None:
    """Copy adjacent values, 16 bytes at a time: each value overwrites the excess of the one before."""
    if width <= 16:
        for row in range(rows):
            copy16(column + row * width, source + row * stride)
    else:
        for row in range(rows):
            t, s = column + row * width, source + row * stride
            copy16(t, s)
            copy16(t + 16, s + 16)


@njit
def _copy(
    target: Any, target_step: Any, source: Any, source_step: Any, rows: Any, length: Any, unit: Any
) -> None:
    """Copy `length` bytes of each row; reverse the bytes of each unit if `unit` is not 0."""
    if unit == 0:
        _copy_exactly(target, target_step, source, source_step, rows, length)
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
def _copy_exactly(
    target: Any, target_step: Any, source: Any, source_step: Any, rows: Any, length: Any
) -> None:
    """Copy exactly `length` bytes of each row.

    Two overlapping copies cover any length between the size of one and of both: 13 bytes are 8
    and 8. The branch is outside the loop over rows.
    """
    if length < 4:
        for row in range(rows):
            t, s = target + row * target_step, source + row * source_step
            for byte in range(length):
                copy1(t + byte, s + byte)
    elif length < 8:
        for row in range(rows):
            t, s = target + row * target_step, source + row * source_step
            copy4(t, s)
            copy4(t + length - 4, s + length - 4)
    elif length <= 16:
        for row in range(rows):
            t, s = target + row * target_step, source + row * source_step
            copy8(t, s)
            copy8(t + length - 8, s + length - 8)
    elif length <= 32:
        for row in range(rows):
            t, s = target + row * target_step, source + row * source_step
            copy16(t, s)
            copy16(t + length - 16, s + length - 16)
    else:
        for row in range(rows):
            t, s = target + row * target_step, source + row * source_step
            for byte in range(0, length - 16, 16):
                copy16(t + byte, s + byte)
            copy16(t + length - 16, s + length - 16)
