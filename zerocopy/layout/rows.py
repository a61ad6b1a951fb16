"""Columns copied to rows and back: by the compiled core, by Numba without it, by NumPy without both.

All three give the same bytes. Each copies a range of rows without the GIL, so that threads share the work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from math import prod
from operator import index
from typing import Any

import numpy as np

from zerocopy._native import core
from zerocopy.errors.warning import warn
from zerocopy.forks import LOADING
from zerocopy.layout.schema import LINE, RecordType, view_of
from zerocopy.layout.threads import run, split_rows
from zerocopy.source import Array

#: Bytes of output from which stores bypass the caches; smaller results stay in a cache for the caller.
MIN_STREAMING_BYTES = 16 << 20

#: Bytes of rows from which Numba is imported, which takes seconds.
MIN_NUMBA_BYTES = 1 << 20

#: Bytes of rows that NumPy copies at a time, so that each cache line of the rows is fetched once, not
#: once per column. Measured, 1M rows x 10 float64 to rows: 34 ms with 20 KiB, 25 with 80 KiB, 20 with
#: 640 KiB, 18 with 1.25 MiB, 20 with 5 MiB, 38 for all rows at once; the second-level cache has 1 MiB.
BLOCK_BYTES = 1 << 20

#: Arrays to write, and arrays to read of the same shape and type.
Pairs = Sequence[tuple[Array, Array]]


def to_columns(records: Array, kind: RecordType, columns: Sequence[Array], threads: int | None) -> None:
    """Write records of any stride into their columns, which are in the order of the leaves."""
    if not columns:
        return
    if core is not None:
        copy_rows(core.read_rows, records, kind, columns, sum([column.nbytes for column in columns]), threads)
    elif (kernels := _numba(records, kind, columns)) is not None:
        copy_rows(kernels.read_rows, records, kind, columns, 0, threads)
    else:
        views = [view_of(records, leaf) for leaf in kind.leaves]
        _by_numpy(list(zip(columns, views, strict=True)), records, threads)


def to_rows(columns: Sequence[Array], kind: RecordType, records: Array, threads: int | None) -> None:
    """Write columns as records with zero padding: the inverse of :func:`to_columns`.

    If fields overlap, the last one in the order of the leaves wins.
    """
    if core is not None and columns:
        copy_rows(core.write_rows, records, kind, columns, records.nbytes, threads)
        return
    clear_padding(records, kind)
    if columns and (kernels := _numba(records, kind, columns)) is not None:
        copy_rows(kernels.write_rows, records, kind, columns, 0, threads)
    else:
        views = [view_of(records, leaf) for leaf in kind.leaves]
        _by_numpy(list(zip(views, columns, strict=True)), records, threads)


def copy_rows(
    copy: Callable[..., None],
    records: Array,
    kind: RecordType,
    columns: Sequence[Array],
    written: int,
    threads: int | None,
) -> None:
    """Copy all rows with a function of the core or of the Numba kernels."""
    ordered = [columns[i] for i in kind.order]
    streams = written >= MIN_STREAMING_BYTES
    parts = split_rows(len(records), records.nbytes, threads, LINE)
    if len(parts) == 1:
        copy(records, ordered, kind.pieces, streams)
        return
    tasks = []
    for low, high in parts:
        some = [column[low:high] for column in ordered]
        tasks.append(partial(copy, records[low:high], some, kind.pieces, streams))
    run(tasks)


def clear_padding(records: Array, kind: RecordType) -> None:
    """Set records with padding to zero, so that no uninitialised memory leaves the process."""
    if kind.has_padding:
        records.view(f"V{records.itemsize}")[...] = np.zeros((), f"V{records.itemsize}")


def _by_numpy(pairs: Pairs, rows: Array, threads: int | None) -> None:
    """Copy the second of each pair into the first, one block of rows after the other."""

    def copy(low: int, high: int) -> None:
        for block in row_blocks(low, high, rows.itemsize):
            for target, source in pairs:
                target[block] = source[block]

    run([partial(copy, *part) for part in split_rows(len(rows), rows.nbytes, threads, LINE)])


def row_blocks(first: int, last: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices that cover rows, each of about :data:`BLOCK_BYTES`.

    Examples
    --------
    >>> [(s.start, s.stop) for s in row_blocks(0, 300_000, 8)]
    [(0, 131072), (131072, 262144), (262144, 300000)]
    """
    step = max(1, BLOCK_BYTES // max(1, row_bytes))
    for start in range(first, last, step):
        yield slice(start, min(start + step, last))


def _numba(records: Array, kind: RecordType, columns: Sequence[Array]) -> Any:
    """Return the module of the Numba kernels, or None if NumPy copies these records."""
    if records.nbytes < MIN_NUMBA_BYTES:
        return None
    kernels = _numba_kernels()
    return kernels if kernels is not None and kernels.suits(records, kind, columns) else None


@cache
def _numba_kernels() -> Any:
    if find_spec("numba") is None:
        return None
    with LOADING:  # a fork waits until it is released
        try:
            from zerocopy.layout import numba_kernels
        except Exception as error:  # noqa: BLE001 - the warning shows it
            # At import, Numba refuses NumPy versions that are newer than it supports.
            warn(f"zerocopy converts records with NumPy, because Numba fails: {error}")
            return None
        return numba_kernels


# -- rows of bytes ------------------------------------------------------------------


def write_rows(
    out: Array,
    columns: Sequence[Array],
    offsets: Sequence[int],
    positions: Array | None = None,
    threads: int | None = None,
) -> None:
    """Write row ``i`` of the columns to row ``positions[i]`` of `out`, or to row ``i``.

    Bytes of a written row that no column covers become zero; other rows stay as they are. Nothing is
    written if the arguments are refused.

    Parameters
    ----------
    out : ndarray of uint8, shape (rows, pitch)
        C-contiguous and writable. It must not overlap the columns or the positions.
    columns : sequence of ndarray, shape (n, ...)
        At least one. Axis 0 may have any stride; the other axes are C-contiguous. Any types but
        Python objects, in any byte order: items are copied as bytes.
    offsets : sequence of int
        The first byte of each column's item in the row. Items are in order and do not overlap.
    positions : ndarray of int64, shape (n,), optional
        Distinct row numbers, C-contiguous; None: the rows 0 to n-1. If two are equal, the row's
        content is undefined.
    threads : int, optional
        The most threads to use; None: one per core.

    Raises
    ------
    ValueError
        If the arrays or offsets do not fit each other.
    IndexError
        If a position is negative or at least the number of rows.
    TypeError
        If a column is not an ndarray.

    Examples
    --------
    >>> out = np.zeros((3, 8), np.uint8)
    >>> a, b = np.array([1, 2], np.int32), np.array([0.5, 0.25], np.float32)
    >>> write_rows(out, [a, b], [0, 4], np.array([2, 0]))
    >>> out.view([("a", "i4"), ("b", "f4")])[:, 0].tolist()
    [(2, 0.25), (0, 0.0), (1, 0.5)]
    """
    pieces = _pieces_of(out, columns, offsets)
    count = len(columns[0])
    parts = split_rows(count, count * out.shape[1], threads, LINE)
    if core is None or len(parts) > 1:
        # Before any part is written; the core checks the arguments of each part again.
        _check_columns(columns)
        if positions is not None:
            _check_positions(out, count, positions)
    if positions is None:
        _check_count(out, count)
    if not out.flags.writeable:
        raise ValueError("out is read-only")
    streams = positions is None and out.nbytes >= MIN_STREAMING_BYTES
    tasks = []
    for low, high in parts:
        some = columns if len(parts) == 1 else [column[low:high] for column in columns]
        rows = out[low:high] if positions is None else out
        places = None if positions is None else positions[low:high]
        if core is not None:
            tasks.append(partial(core.write_rows, rows, some, pieces, streams, places))
        else:
            tasks.append(partial(_write_items, rows, some, pieces, places))
    run(tasks)


def read_rows(
    records: Array, columns: Sequence[Array], offsets: Sequence[int], threads: int | None = None
) -> None:
    """Fill columns from the first rows of `records`, the inverse of `write_rows` without positions.

    Parameters
    ----------
    records : ndarray of uint8, shape (rows, pitch)
        C-contiguous.
    columns : sequence of ndarray, shape (n, ...)
        At least one; writable, n at most `rows`, any types but Python objects. Axis 0 may have any stride;
        the other axes are C-contiguous. They must not overlap the records or each other.
    offsets : sequence of int
        The first byte of each column's item in the row. Items are in order and do not overlap.
    threads : int, optional
        The most threads to use; None: one per core.

    Raises
    ------
    ValueError
        If the arrays or offsets do not fit each other.
    TypeError
        If a column is not an ndarray.

    Examples
    --------
    >>> records = np.array([(1, 0.5), (2, 0.25)], [("a", "i4"), ("b", "f4")])
    >>> a, b = np.empty(2, np.int32), np.empty(2, np.float32)
    >>> read_rows(records.view(np.uint8).reshape(2, 8), [a, b], [0, 4])
    >>> a.tolist(), b.tolist()
    ([1, 2], [0.5, 0.25])
    """
    pieces = _pieces_of(records, columns, offsets)
    count = len(columns[0])
    parts = split_rows(count, count * records.shape[1], threads, LINE)
    _check_count(records, count)
    if core is None or len(parts) > 1:
        _check_columns(columns)
    streams = records.nbytes >= MIN_STREAMING_BYTES
    tasks = []
    for low, high in parts:
        some = columns if len(parts) == 1 else [column[low:high] for column in columns]
        if core is not None:
            tasks.append(partial(core.read_rows, records[low:high], some, pieces, streams))
        else:
            tasks.append(partial(_read_items, records[low:high], some, pieces))
    run(tasks)


def _pieces_of(block: Any, columns: Sequence[Any], offsets: Sequence[int]) -> Array:
    """Return the table of pieces of columns at some offsets of a row, see :attr:`RecordType.pieces`."""
    if not isinstance(block, np.ndarray) or not all(isinstance(column, np.ndarray) for column in columns):
        raise TypeError("the rows and each column must be an ndarray")
    if block.ndim != 2 or block.dtype != np.uint8 or not block.flags.c_contiguous:
        raise ValueError("the rows must be a C-contiguous ndarray of uint8 with two dimensions")
    sizes = [c.itemsize if c.ndim == 1 else c.itemsize * prod(c.shape[1:]) for c in columns]
    try:
        numbers = tuple(map(index, offsets))
    except TypeError as error:
        raise ValueError("offsets must be integers") from error
    pieces = _pieces(tuple(sizes), numbers)
    if numbers[-1] + sizes[-1] > block.shape[1] or not columns[0].ndim:
        raise ValueError("columns must have a dimension, and the offsets must place them inside the row")
    return pieces


@lru_cache(maxsize=64)
def _pieces(sizes: tuple[int, ...], offsets: tuple[int, ...]) -> Array:
    if not sizes or len(sizes) != len(offsets):
        raise ValueError("there must be at least one column, and one offset per column")
    end = 0
    for size, offset in zip(sizes, offsets, strict=True):
        if not end <= offset <= sys.maxsize - size:
            raise ValueError("offsets must place the columns in order, without overlap and inside the row")
        end = offset + size
    rows = [(i, *item, 0) for i, item in enumerate(zip(offsets, sizes, strict=True))]
    return np.array(rows, np.int64)


def _check_count(block: Array, count: int) -> None:
    """Refuse columns that are longer than the rows in order."""
    if count > len(block):
        raise ValueError("there are more items in a column than rows")


def _check_columns(columns: Sequence[Array]) -> None:
    """Refuse columns that the core refuses."""
    if len({column.shape[:1] for column in columns}) != 1:
        raise ValueError("columns must have equal lengths")
    if any(column.dtype.hasobject for column in columns):
        raise ValueError("columns must have no Python objects")
    if not all(column.ndim == 1 or column[:1].flags.c_contiguous for column in columns):
        raise ValueError("columns must have C-contiguous items")


def _check_positions(out: Array, count: int, positions: Any) -> None:
    """Refuse positions that are not `count` numbers of rows of `out`."""
    if (
        not isinstance(positions, np.ndarray)
        or positions.dtype != np.int64
        or positions.shape != (count,)
        or not (positions.flags.c_contiguous and positions.flags.aligned)
    ):
        raise ValueError("positions must be None or a contiguous ndarray of int64, one position per row")
    # A negative number is a large one without its sign.
    if count and int(positions.view(np.uint64).max()) >= len(out):
        raise IndexError(f"a position is not in the {len(out)} rows")


def _items(rows: Array, columns: Sequence[Array], pieces: Array) -> Pairs:
    """Return the items of each column in rows of bytes, as an array of the column's type, and the column."""
    pitch = rows.shape[1]
    return [
        (np.ndarray((len(rows), *c.shape[1:]), c.dtype, rows, offset, (pitch, *c.strides[1:])), c)
        for c, offset in zip(columns, pieces[:, 1].tolist(), strict=True)
        if c.size and c.itemsize
    ]


def _write_items(rows: Array, columns: Sequence[Array], pieces: Array, positions: Array | None) -> None:
    places = slice(len(columns[0])) if positions is None else positions
    if pieces[:, 2].sum() < rows.shape[1]:
        rows[places] = 0
    for items, column in _items(rows, columns, pieces):
        items[places] = column


def _read_items(rows: Array, columns: Sequence[Array], pieces: Array) -> None:
    for items, column in _items(rows, columns, pieces):
        column[...] = items[: len(column)]
