"""Copies records to columns and back: with the kernels, or with NumPy where they do not apply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from zerocopy.errors.warning import warn
from zerocopy.forks import LOADING
from zerocopy.layout import threads
from zerocopy.layout.arena import page_aligned_zeros
from zerocopy.layout.record_plan import LINE, RecordPlan
from zerocopy.layout.record_type import MAX_COPY_BYTES, RecordType, view_of
from zerocopy.protocols.array_interface import address
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Array

#: Bytes of records from which the kernels are used: below, NumPy is as fast and does not need Numba.
MIN_KERNEL_BYTES = 256 << 10

# Largest gap between records across which bytes may be read: record and gap share a page.
_MAX_GAP = 16

#: Bytes of output from which stores bypass the caches; smaller results stay in a cache for the caller.
MIN_STREAMING_BYTES = 16 << 20

#: Bytes of rows that NumPy copies at a time, so that each cache line of the rows is fetched once, not
#: once per column. Measured, 1M rows x 10 float64 to rows: 34 ms with 20 KiB, 25 with 80 KiB, 20 with
#: 640 KiB, 18 with 1.25 MiB, 20 with 5 MiB, 38 for all rows at once; the second-level cache has 1 MiB.
BLOCK_BYTES = 1 << 20


def to_columns(records: Array, kind: RecordType, columns: Sequence[Array], max_threads: int | None) -> None:
    """Write records of any stride into their columns, which are in the order of the leaves."""
    (stride,) = records.strides
    if len(columns) == 1 and records.nbytes >= MIN_KERNEL_BYTES and 2 * kind.leaves[0].width <= abs(stride):
        _copy_field(columns[0], view_of(records, kind.leaves[0]), records.nbytes, max_threads)
        return
    kernel = _kernel("to_columns") if records.nbytes >= MIN_KERNEL_BYTES else None
    chosen = () if kernel is None else _kernel_leaves(kind, columns)
    if kernel is not None and chosen:
        # A read past the end of a record reads the next one, which must therefore follow it.
        plan = kind.plan(chosen, to_rows=False, overrun=0 <= stride - records.itemsize < _MAX_GAP)
        addresses, aligned = _addresses(plan, chosen, columns)
        size = sum(columns[i].nbytes for i in chosen)
        safe, streaming = len(records) - plan.overruns, aligned and size >= MIN_STREAMING_BYTES
        tasks: list[Callable[[], None]] = []
        for first, last in threads.split_rows(len(records), size, max_threads, LINE):
            call = (plan.address, addresses.ctypes.data, address(records), stride, first, last)
            more = (min(last, safe), streaming, page_aligned_zeros(plan.scratch))
            tasks.append(partial(_call, kernel, *call, *more))
        threads.run(tasks)
    rest = sorted({*range(len(columns))}.difference(chosen))
    if rest:
        _by_numpy([(columns[i], view_of(records, kind.leaves[i])) for i in rest], records)


def to_rows(columns: Sequence[Array], kind: RecordType, records: Array, max_threads: int | None) -> None:
    """Write columns as records with zero padding: the inverse of :func:`to_columns`."""
    # Where fields overlap, the order of the writes matters, which only NumPy keeps.
    suits = records.nbytes >= MIN_KERNEL_BYTES and kind.disjoint and records.flags.c_contiguous
    suits = suits and records.itemsize <= MAX_COPY_BYTES
    kernel = _kernel("to_rows") if suits else None
    chosen = () if kernel is None else _kernel_leaves(kind, columns)
    if kind.has_padding and (not chosen or len(chosen) < len(columns)):
        _clear(records)
    if kernel is not None and chosen:
        plan = kind.plan(chosen, to_rows=True)
        addresses, _ = _addresses(plan, chosen, columns)
        start, size = address(records), records.nbytes
        streaming = start % LINE == 0 and size >= MIN_STREAMING_BYTES
        if kind.has_padding:
            _clear(records[-plan.unit :])  # includes the rows that do not fill a line
        tasks: list[Callable[[], None]] = []
        for first, last in threads.split_rows(len(records), size, max_threads, LINE):
            call = (plan.address, addresses.ctypes.data, start, records.itemsize, first, last)
            tasks.append(partial(_call, kernel, *call, streaming, page_aligned_zeros(plan.scratch)))
        threads.run(tasks)
    rest = sorted({*range(len(columns))}.difference(chosen))
    if rest:
        _by_numpy([(view_of(records, kind.leaves[i]), columns[i]) for i in rest], records)


def _copy_field(column: Array, field: Array, nbytes: int, max_threads: int | None) -> None:
    """Copy one of many fields with NumPy, whose strided loop prefetches better than the kernel.

    Measured with a 4-byte field of 59-byte records, 256 MiB, two cores: 10 ms, and 17 ms with the
    kernel.
    """
    parts = threads.split_rows(len(field), nbytes, max_threads, LINE)
    threads.run([partial(np.copyto, column[low:high], field[low:high]) for low, high in parts])


def _call(kernel: Any, *arguments: Any) -> None:
    *numbers, scratch = arguments
    kernel(*numbers, scratch.ctypes.data)


def _kernel_leaves(kind: RecordType, columns: Sequence[Array]) -> tuple[int, ...]:
    """Return the leaves that the kernels can copy to or from these columns."""
    return tuple(i for i in kind.kernel_leaves if columns[i].flags.c_contiguous)


def _addresses(plan: RecordPlan, chosen: tuple[int, ...], columns: Sequence[Array]) -> tuple[Array, bool]:
    """Return the columns' addresses in the plan's order, and whether each starts a cache line."""
    starts = [address(columns[chosen[i]]) for i in plan.order]
    return np.array(starts, np.intp), all(start % LINE == 0 for start in starts)


def _clear(records: Array) -> None:
    """Set all bytes to zero, padding included, so that no uninitialised memory leaves the process."""
    if records.size and records.itemsize:
        records.view(f"V{records.itemsize}")[...] = np.zeros((), f"V{records.itemsize}")


def _by_numpy(pairs: list[tuple[Array, Array]], records: Array) -> None:
    """Copy the second of each pair into the first, one block of rows after the other."""
    if records.nbytes <= BLOCK_BYTES:
        for target, source in pairs:
            target[...] = source
        return
    for rows in row_blocks(len(records), records.itemsize):
        for target, source in pairs:
            target[rows] = source[rows]


def row_blocks(rows: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices that cover rows, each of about :data:`BLOCK_BYTES`.

    Examples
    --------
    >>> [(s.start, s.stop) for s in row_blocks(300_000, 8)]
    [(0, 131072), (131072, 262144), (262144, 300000)]
    """
    step = max(1, BLOCK_BYTES // max(1, row_bytes))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


@cache
def _kernel(name: str) -> Callable[..., None] | None:
    """Return a kernel, or None without Numba: NumPy then copies everything."""
    if find_spec("numba") is None or find_spec("llvmlite") is None:
        return None
    with LOADING:  # a fork waits until it is released
        from zerocopy.layout.kernel_cache import load

        try:
            return load(name)
        except BaseException as error:  # the warning shows it
            if not is_error(error):
                raise
            # At import, Numba refuses NumPy versions that are newer than it supports. In a zip archive
            # there are no source files from which to compute the cache key.
            warn(f"zerocopy converts records with NumPy, because Numba fails: {error}")
            return None
