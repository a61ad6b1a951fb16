"""Columns of any types written as rows of bytes at given positions, and rows read into columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod

import numpy as np

from zerocopy._native import core
from zerocopy.layout.threads import run, split_rows
from zerocopy.source import Array

#: Most rows that the core stages together.
TILE = 64


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
    write = _write_plain if core is None else core.write_rows
    parts = _split(out, columns, threads)
    if len(parts) == 1:
        write(out, columns, offsets, positions)
        return
    if positions is not None:
        # Check all positions before any part is written; each part checks its own again.
        _check_positions(out, len(columns[0]), positions)
    else:
        _check_count(out, len(columns[0]))
    tasks = []
    for low, high in parts:
        target = out[low:high] if positions is None else out
        places = None if positions is None else positions[low:high]
        tasks.append(partial(write, target, [column[low:high] for column in columns], offsets, places))
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
        At least one; C-contiguous and writable, n at most `rows`, any types but Python objects. They
        must not overlap the records or each other.
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
    read = _read_plain if core is None else core.read_rows
    parts = _split(records, columns, threads)
    if len(parts) == 1:
        read(records, columns, offsets)
        return
    _check_count(records, len(columns[0]))
    run(
        [
            partial(read, records[low:high], [column[low:high] for column in columns], offsets)
            for low, high in parts
        ]
    )


def _split(block: Array, columns: Sequence[Array], threads: int | None) -> list[tuple[int, int]]:
    """Return the parts of the rows that threads handle; one part if the arguments do not fit."""
    if threads == 1 or block.ndim != 2 or not columns:
        return [(0, 0)]
    rows = {column.shape[:1] for column in columns if isinstance(column, np.ndarray)}
    if len(rows) != 1 or rows == {()}:
        return [(0, 0)]
    ((count,),) = rows
    return split_rows(count, count * block.shape[1], threads, TILE)


def _write_plain(
    out: Array, columns: Sequence[Array], offsets: Sequence[int], positions: Array | None
) -> None:
    """Write rows with NumPy."""
    spans = _check(out, columns, offsets)
    count = len(columns[0])
    if not out.flags.writeable:
        raise ValueError("out is read-only")
    if positions is None:
        _check_count(out, count)
    else:
        _check_positions(out, count, positions)
    rows = slice(count) if positions is None else positions
    if sum(size for _, size in spans) < out.shape[1]:
        out[rows] = 0
    for column, (start, size) in zip(columns, spans, strict=True):
        if count and size:
            items = np.ascontiguousarray(column).reshape(-1).view(np.uint8)
            out[rows, start : start + size] = items.reshape(count, size)


def _read_plain(records: Array, columns: Sequence[Array], offsets: Sequence[int]) -> None:
    """Read rows with NumPy."""
    spans = _check(records, columns, offsets)
    _check_count(records, len(columns[0]))
    for column in columns:
        if not column.flags.writeable:
            raise ValueError("a column is read-only")
        if not column.flags.c_contiguous:
            raise ValueError("columns must be C-contiguous")
    for column, (start, size) in zip(columns, spans, strict=True):
        if column.size and size:
            items = column.reshape(-1).view(np.uint8).reshape(len(column), size)
            items[...] = records[: len(column), start : start + size]


def _check(block: Array, columns: Sequence[Array], offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Refuse what the core refuses; return the offset and the bytes of each column's item."""
    if not isinstance(block, np.ndarray):
        raise TypeError("the rows must be an ndarray")
    if block.ndim != 2 or block.dtype != np.uint8 or not block.flags.c_contiguous:
        raise ValueError("the rows must be a C-contiguous ndarray of uint8 with two dimensions")
    if not columns or len(columns) != len(offsets):
        raise ValueError("there must be at least one column, and one offset per column")
    if not all(isinstance(column, np.ndarray) for column in columns):
        raise TypeError("each column must be an ndarray")
    return list(_spans(block, columns, offsets))


def _spans(block: Array, columns: Sequence[Array], offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Check each column and yield the offset and the bytes of its item."""
    end = 0
    for column, offset in zip(columns, offsets, strict=True):
        if column.ndim < 1 or len(column) != len(columns[0]) or column.dtype.hasobject:
            raise ValueError("columns must have equal lengths, C-contiguous items and no Python objects")
        if column.ndim > 1 and column.size and not column[0].flags.c_contiguous:
            raise ValueError("columns must have equal lengths, C-contiguous items and no Python objects")
        if np.may_share_memory(block, column):
            raise ValueError("columns and rows must not overlap in memory")
        size = column.itemsize * prod(column.shape[1:])
        if not isinstance(offset, int | np.integer) or offset < end or offset + size > block.shape[1]:
            raise ValueError("offsets must be integers that place the columns in order, inside the row")
        end = int(offset) + size
        yield int(offset), size


def _check_count(block: Array, count: int) -> None:
    """Refuse columns that are longer than the rows in order."""
    if count > len(block):
        raise ValueError("there are more items in a column than rows")


def _check_positions(out: Array, count: int, positions: Array) -> None:
    """Refuse positions that are not `count` numbers of rows of `out`."""
    if (
        not isinstance(positions, np.ndarray)
        or positions.dtype != np.int64
        or positions.shape != (count,)
        or not (positions.flags.c_contiguous and positions.flags.aligned)
        or np.may_share_memory(out, positions)
    ):
        raise ValueError("positions must be None or a contiguous ndarray of int64, one position per row")
    # A negative number is a large one without its sign.
    if count and int(positions.view(np.uint64).max()) >= len(out):
        raise IndexError(f"a position is not in the {len(out)} rows")
