"""Which way records and columns are moved: by the kernels, or by NumPy where these cannot."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from zerocopy.forks import LOADING
from zerocopy.layout import threads
from zerocopy.layout.arena import working_memory
from zerocopy.layout.blocks import BLOCK, blocks
from zerocopy.layout.plan import LINE, Plan
from zerocopy.layout.rows import WIDE, RecordType, view_of
from zerocopy.protocols.array_interface import address

Array = np.ndarray[Any, Any]

#: Bytes of records below which NumPy does it: it is then as fast, and needs no Numba.
SMALL = 256 << 10

# Bytes between records up to which what follows one may be read: they are in a page of either.
_NEAR = 16

#: Bytes of output from which stores go past the caches: smaller ones are better off in a
#: cache, where who asked for them finds them.
STREAM = 16 << 20


def to_columns(records: Array, kind: RecordType, columns: Sequence[Array], most: int | None) -> None:
    """Write records into their columns.

    Parameters
    ----------
    records : ndarray, shape (n,)
        Structured, of any stride.
    kind : RecordType
        Its type.
    columns : sequence of ndarray, each of shape (n, *leaf.shape)
        In the order of the leaves; native.
    most : int
        Threads; None: as many as cores.
    """
    (stride,) = records.strides
    if len(columns) == 1 and records.nbytes >= SMALL and 2 * kind.leaves[0].width <= abs(stride):
        _one_field(columns[0], view_of(records, kind.leaves[0]), records.nbytes, most)
        return
    kernel = _kernel("to_columns") if records.nbytes >= SMALL else None
    chosen = () if kernel is None else _movable(kind, columns)
    if kernel is not None and chosen:
        # A window that reaches past its record reads the next one: which must follow it.
        plan = kind.plan(chosen, to_rows=False, spill=0 <= stride - records.itemsize < _NEAR)
        addresses, aligned = _addresses(plan, chosen, columns)
        size = sum(columns[i].nbytes for i in chosen)
        safe = len(records) - plan.spills
        tasks: list[Callable[[], None]] = []
        for first, last in threads.cuts(len(records), size, most, LINE):
            call = (plan.address, addresses.ctypes.data, address(records), stride, first, last)
            more = (min(last, safe), aligned and size >= STREAM, working_memory(plan.scratch))
            tasks.append(partial(_call, kernel, *call, *more))
        threads.run(tasks)
    if len(chosen) < len(columns):
        rest = [i for i in kind.every if i not in chosen]
        _by_numpy([(columns[i], view_of(records, kind.leaves[i])) for i in rest], records)


def to_rows(columns: Sequence[Array], kind: RecordType, records: Array, most: int | None) -> None:
    """Write columns as records: the mirror of :func:`to_columns`.

    Padding is zero afterwards.
    """
    # Where fields overlap, who is written last matters: that is NumPy's way.
    suits = records.nbytes >= SMALL and kind.apart and records.flags.c_contiguous
    suits = suits and records.itemsize <= WIDE
    kernel = _kernel("to_rows") if suits else None
    chosen = () if kernel is None else _movable(kind, columns)
    if kind.padded and (not chosen or len(chosen) < len(columns)):
        _clear(records)
    if kernel is not None and chosen:
        plan = kind.plan(chosen, to_rows=True)
        addresses, _ = _addresses(plan, chosen, columns)
        start, size = address(records), records.nbytes
        streaming = start % LINE == 0 and size >= STREAM
        if kind.padded:
            _clear(records[-plan.unit :])  # the rows that fill no line are among them
        tasks: list[Callable[[], None]] = []
        for first, last in threads.cuts(len(records), size, most, LINE):
            call = (plan.address, addresses.ctypes.data, start, records.itemsize, first, last)
            tasks.append(partial(_call, kernel, *call, streaming, working_memory(plan.scratch)))
        threads.run(tasks)
    if len(chosen) < len(columns):
        rest = [i for i in kind.every if i not in chosen]
        _by_numpy([(view_of(records, kind.leaves[i]), columns[i]) for i in rest], records)


def _one_field(column: Array, field: Array, nbytes: int, most: int | None) -> None:
    """Copy one field of many: nothing is transposed, and NumPy's loop reads ahead better.

    One field of 4 bytes of a particle of 59, 256 MiB of them, two cores: 10 ms, the kernel 17.
    """
    parts = threads.cuts(len(field), nbytes, most, LINE)
    threads.run([partial(np.copyto, column[low:high], field[low:high]) for low, high in parts])


def _call(kernel: Any, *arguments: Any) -> None:
    *numbers, scratch = arguments
    kernel(*numbers, scratch.ctypes.data)


def _movable(kind: RecordType, columns: Sequence[Array]) -> tuple[int, ...]:
    """Return the leaves that the kernels can move to or from these columns."""
    return tuple(i for i in kind.movable if columns[i].flags.c_contiguous)


def _addresses(plan: Plan, chosen: tuple[int, ...], columns: Sequence[Array]) -> tuple[Array, bool]:
    """Return the columns' addresses in the plan's order, and whether each begins a line."""
    found = [address(columns[chosen[i]]) for i in plan.order]
    return np.array(found, np.intp), all(start % LINE == 0 for start in found)


def _clear(records: Array) -> None:
    """Make all bytes zero, those of padding too: or what other arrays have left there would travel."""
    if records.size and records.itemsize:
        records.view(f"V{records.itemsize}")[...] = np.zeros((), f"V{records.itemsize}")


def _by_numpy(pairs: list[tuple[Array, Array]], records: Array) -> None:
    """Copy the second of each pair into the first, a block of rows after the other."""
    if records.nbytes <= BLOCK:
        for target, source in pairs:
            target[...] = source
        return
    for rows in blocks(len(records), records.itemsize):
        for target, source in pairs:
            target[rows] = source[rows]


@cache
def _kernel(name: str) -> Callable[..., None] | None:
    """Return a kernel, or None where there is no Numba: NumPy then does all of it."""
    if find_spec("numba") is None or find_spec("llvmlite") is None:
        return None
    with LOADING:  # a fork waits for it
        from zerocopy.layout.machine_code import load

        try:
            return load(name)
        except (ImportError, OSError) as error:
            # Each version of Numba takes NumPy up to one version, and says so when it is imported.
            # And who imports us from an archive has no sources to make a key of.
            warnings.warn(f"NumPy moves records, since Numba fails: {error}", RuntimeWarning, stacklevel=2)
            return None
