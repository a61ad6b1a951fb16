"""SoA to AoS on the CPU: records are put together in the first cache, and leave it in full lines."""

from __future__ import annotations

from typing import Any

import numba as nb
from numba import njit

from zerocopy.layout.kernels.instructions import entry, move_line, prefetch_second, store_fence, stream_line
from zerocopy.layout.kernels.odd import column_to_leaf
from zerocopy.layout.kernels.table import leaf_entry, run_entry
from zerocopy.layout.kernels.transposes import scatter
from zerocopy.layout.plan import (
    FIELDS,
    GROUPED,
    KIND,
    LEAF_COUNT,
    LENGTH,
    LINE,
    OFFSET,
    ROWS,
    RUN_COUNT,
    START,
    STOP,
    UNIT,
    WIDTH,
)

#: Tiles ahead of the one that is read that the columns of groups are fetched. Many columns at once
#: are more than the hardware keeps track of: so each line is asked for here. Measured, two cores
#: (Zen 4), with 1, 2, 4, 8 tiles: 16.9, 20.0, 21.1 and 19.7 GB/s of 8 x f4; 11.4, 13.7, 13.2 and 12.6 of 64.
TILES_AHEAD = 2

_move_group = scatter()


@njit
def _fill_groups(plan: Any, columns: Any, tile: Any, stride: Any, row: Any, rows: Any) -> None:
    """Fill the fields of a tile that are groups."""
    for run in range(entry(plan, RUN_COUNT)):
        kind, fields, width = (
            run_entry(plan, run, KIND),
            run_entry(plan, run, FIELDS),
            run_entry(plan, run, WIDTH),
        )
        lines = rows * width // LINE
        ahead = TILES_AHEAD * entry(plan, ROWS) * width
        for leaf in range(run_entry(plan, run, START), run_entry(plan, run, STOP), fields):
            at, place = tile + leaf_entry(plan, leaf, OFFSET), columns + 8 * leaf
            _move_group(kind, place, row * width, at, stride, lines, ahead, 0)


@njit
def _fill_odd(plan: Any, columns: Any, tile: Any, stride: Any, row: Any, rows: Any) -> None:
    """Fill the fields that are no group."""
    for leaf in range(entry(plan, GROUPED), entry(plan, LEAF_COUNT)):
        width = leaf_entry(plan, leaf, LENGTH)
        column = entry(columns, leaf) + row * width
        column_to_leaf(plan, leaf, column, tile, stride, rows)
        for byte in range(0, rows * width, LINE):
            prefetch_second(column + entry(plan, ROWS) * width + byte)


@njit
def _flush(target: Any, scratch: Any, size: Any, streaming: Any) -> None:
    """Write a tile out: its size is a multiple of a line."""
    if streaming:
        for byte in range(0, size, LINE):
            stream_line(target + byte, scratch + byte)
    else:
        for byte in range(0, size, LINE):
            move_line(target + byte, scratch + byte)


@njit
def _fill_last(plan: Any, columns: Any, records: Any, stride: Any, first: Any, last: Any) -> None:
    """Write the rows that fill no line, value by value."""
    for leaf in range(entry(plan, LEAF_COUNT)):
        column = entry(columns, leaf) + first * leaf_entry(plan, leaf, LENGTH)
        column_to_leaf(plan, leaf, column, records + first * stride, stride, last - first)


@njit(nb.void(*(nb.intp,) * 6, nb.boolean, nb.intp), nogil=True, error_model="numpy")
def to_rows(
    plan: Any,
    columns: Any,
    records: Any,
    stride: Any,
    first: Any,
    last: Any,
    streaming: Any,
    scratch: Any,
) -> None:
    """Write rows `first` to `last` of some columns as contiguous records.

    Parameters
    ----------
    plan, columns, records, scratch : int
        Addresses: of the plan's table, of the columns' addresses in its order, of the first
        record, and of zeroed memory at the start of a page, to put records together in.
    stride : int
        Bytes of a record.
    first, last : int
        The rows; `first` is a multiple of 64.
    streaming : bool
        Write past the caches; the records are then at a multiple of 64 bytes.

    Notes
    -----
    Bytes of a record that are no field's become those in `scratch`, and stay as they are
    in the last rows, which fill no line.
    """
    row = first
    while row + entry(plan, UNIT) <= last:
        rows = min(entry(plan, ROWS), (last - row) // entry(plan, UNIT) * entry(plan, UNIT))
        _fill_groups(plan, columns, scratch, stride, row, rows)
        _fill_odd(plan, columns, scratch, stride, row, rows)
        _flush(records + row * stride, scratch, rows * stride, streaming)
        row += rows
    store_fence()
    _fill_last(plan, columns, records, stride, row, last)
