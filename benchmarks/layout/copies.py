"""Copies to compare with: of the same size, on the same number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.layout.data import LINE, Array


def cores() -> int:
    """Return how many cores this process may use, which is the number of copying threads."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


#: Bytes that NumPy copies at a time. Above a threshold, glibc copies with non-temporal stores, which are 1.45
#: times as fast. It depends on the caches: 114 MiB on an Emerald Rapids
#: (glibc.cpu.x86_non_temporal_threshold).
BLOCK = 1 << 19


def copy(target: Array, source: Array) -> None:
    """Copy bytes with NumPy by ordinary stores, a part on each thread."""
    _side_by_side([partial(_by_blocks, target[part], source[part]) for part in _parts(len(source))])


def _by_blocks(target: Array, source: Array) -> None:
    for start in range(0, len(source), BLOCK):
        np.copyto(target[start : start + BLOCK], source[start : start + BLOCK])


def stream(target: Array, source: Array) -> None:
    """Copy bytes with non-temporal stores, which bypass the caches, a part on each thread.

    `target` must be 64-byte-aligned.
    """
    from zerocopy._native import core

    lines = np.array([(0, 0, LINE, 0)])  # one field, of which the core copies whole lines
    whole = len(source) // LINE * LINE
    to, at = target[:whole].reshape(-1, LINE), source[:whole].reshape(-1, LINE)
    parts = [slice(part.start // LINE, part.stop // LINE) for part in _parts(len(source))]
    _side_by_side([partial(core.read_rows, at[part], [to[part]], lines, True) for part in parts])
    target[whole:] = source[whole:]


def _parts(nbytes: int) -> list[slice]:
    """Return one part for each core; each starts at a cache line."""
    ends = [nbytes * i // cores() // LINE * LINE for i in range(cores())]
    return [slice(start, stop) for start, stop in zip(ends, [*ends[1:], nbytes], strict=True)]


def _side_by_side(tasks: list[Callable[[], Any]]) -> None:
    """Run the first task in this thread and the others in a thread pool, as zerocopy does."""
    started = [_pool().submit(task) for task in tasks[1:]]
    tasks[0]()
    for future in started:
        future.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, cores() - 1), thread_name_prefix="benchmarks-copy")
