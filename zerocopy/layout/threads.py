"""Parts of one task on all cores: threads of our own, which stay for the next task.

Numba has layers of threads too. They are not for a library under other libraries: its
``workqueue`` layer ends the process when two Python threads enter it at once ("Concurrent
access has been detected", Numba's manual, "The Threading Layers"), and GNU OpenMP's ends a
child of a fork. A kernel that releases the GIL needs neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

#: Bytes of a task for which another thread is worth waking.
WORTH = 1 << 20


def cores() -> int:
    """Return how many cores this process may use, which can be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check(threads: int | None, asked: str) -> None:
    """Raise ValueError unless it is a whole number of at least one, or None."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ValueError(f"{asked}: threads is a whole number from 1, or None for all cores, not {threads!r}")


def cuts(rows: int, nbytes: int, threads: int | None, unit: int) -> list[tuple[int, int]]:
    """Return the parts of some rows: first and last row, each first a multiple of `unit`.

    As many as threads, None: as cores, and fewer where a part would be too small for one.

    Examples
    --------
    >>> cuts(1000, 8 << 20, 3, 64)
    [(0, 320), (320, 640), (640, 1000)]
    >>> cuts(1000, 8000, 3, 64)
    [(0, 1000)]
    """
    parts = min(nbytes // WORTH, rows // unit)
    if parts < 2:
        return [(0, rows)]
    parts = min(parts, cores() if threads is None else threads)
    ends = [rows * i // parts // unit * unit for i in range(parts)]
    return list(zip(ends, [*ends[1:], rows], strict=True))


def run(tasks: list[Callable[[], Any]]) -> None:
    """Run tasks side by side, the first of them in this thread; return when all are done."""
    first, *others = tasks
    started = [_start(task) for task in others]
    try:
        first()
    finally:
        # All of them write to the caller's memory: none may be left behind.
        errors = [future.exception() for future in started]
    for error in errors:
        if error is not None:
            raise error


def _start(task: Callable[[], Any]) -> Future[Any]:
    try:
        return _pool().submit(task)
    except RuntimeError:
        # When the interpreter ends no thread can be started any more: then here.
        done: Future[Any] = Future()
        done.set_result(task())
        return done


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, cores() - 1), thread_name_prefix="zerocopy-layout")


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's threads, and would wait for them for ever.
    os.register_at_fork(after_in_child=_pool.cache_clear)
