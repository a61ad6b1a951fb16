"""Code compiled with Numba: a non-temporal copy, and loops for one dtype as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np
from numba import config, njit, prange

from zerocopy.layout.kernels.instructions import copy1, store_fence, stream_line
from zerocopy.layout.record_plan import LINE

# Threads of the OpenMP layer spin after a parallel loop, on the cores of the next contender; those
# of this layer sleep. It has an effect only before the first parallel loop.
config.THREADING_LAYER = "workqueue"


@njit(nb.void(*(nb.intp,) * 3), nogil=True)  # type: ignore[untyped-decorator]
def copy_lines(target: Any, source: Any, nbytes: Any) -> None:
    """Copy bytes with non-temporal stores; `target` must be a multiple of 64."""
    whole = nbytes // LINE * LINE
    for byte in range(0, whole, LINE):
        stream_line(target + byte, source + byte)
    store_fence()
    for byte in range(whole, nbytes):
        copy1(target + byte, source + byte)


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
