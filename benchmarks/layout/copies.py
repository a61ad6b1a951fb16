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


def copy(target: Array, source: Array) -> None:
    """Copy bytes with NumPy, a part on each thread."""
    _side_by_side([partial(np.copyto, target[part], source[part]) for part in _parts(len(source))])


def stream(target: Array, source: Array) -> None:
    """Copy bytes with non-temporal stores, which bypass the caches, a part on each thread.

    `target` must be 64-byte-aligned.
    """
    from benchmarks.layout.loops import copy_lines

    to, at = target.ctypes.data, source.ctypes.data
    _side_by_side(
        [partial(copy_lines, to + p.start, at + p.start, p.stop - p.start) for p in _parts(len(source))]
    )


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
