"""Loops for one dtype, compiled with Numba: as users write them, and those of zerocopy without its core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import config, njit, prange

from zerocopy.layout import numba_kernels, rows
from zerocopy.layout.schema import record_type

# Threads of the OpenMP layer spin after a parallel loop, on the cores of the next contender; those
# of this layer sleep. It has an effect only before the first parallel loop.
config.THREADING_LAYER = "workqueue"


def columns_by_numba(records: Any, columns: dict[str, Any]) -> None:
    """Write the fields of records to columns, as ``aos_to_soa`` does without the compiled core."""
    kind = record_type(records.dtype)
    rows.copy_rows(numba_kernels.read_rows, records, kind, [*columns.values()], 0, None)


def rows_by_numba(columns: dict[str, Any], records: Any) -> None:
    """Write columns to the fields of records, as ``soa_to_aos`` does without the compiled core."""
    kind = record_type(records.dtype)
    rows.clear_padding(records, kind)
    rows.copy_rows(numba_kernels.write_rows, records, kind, [*columns.values()], 0, None)


def split(dtype: np.dtype[Any], *, parallel: bool) -> Callable[..., None]:
    """Return ``loop(records, *columns)``, compiled for this dtype when it is first called."""
    return _loop(dtype, "c{i}[row] = records[row].{name}", parallel)


def merge(dtype: np.dtype[Any], *, parallel: bool) -> Callable[..., None]:
    """Return ``loop(records, *columns)``, which writes the records."""
    return _loop(dtype, "records[row].{name} = c{i}[row]", parallel)


def _loop(dtype: np.dtype[Any], line: str, parallel: bool) -> Callable[..., None]:
    """Compile a loop with a line for each field."""
    names = dtype.names or ()
    lines = [
        f"def loop(records, {', '.join(f'c{i}' for i in range(len(names)))}):",
        f"    for row in {'prange' if parallel else 'range'}(len(records)):",
        *("        " + line.format(i=i, name=name) for i, name in enumerate(names)),
    ]
    names_used: dict[str, Any] = {"prange": prange}
    exec(compile("\n".join(lines), f"<a loop for {dtype.itemsize} bytes>", "exec"), names_used)
    compiled: Callable[..., None] = njit(parallel=parallel)(names_used["loop"])
    return compiled
