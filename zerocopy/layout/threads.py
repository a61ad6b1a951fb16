"""Parts of one task on all cores: threads of our own, which stay for the next task.

Numba has layers of threads too. They are not for a library under other libraries: its
``workqueue`` layer ends the process when two Python threads enter it at once ("Concurrent
access has been detected", Numba's manual, "The Threading Layers"), and GNU OpenMP's ends a
child of a fork. A kernel that releases the GIL needs neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Event, Lock
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


def run(tasks: Sequence[Callable[[], Any]]) -> None:
    """Run tasks side by side, the first of them in this thread; return when none is left.

    They write to memory whose owner waits here. So nothing returns before all of them have:
    no error, and no signal that interrupts the waiting, which keeps others from being begun.
    """
    parts = [_Part(task) for task in tasks]
    error: BaseException | None = None
    try:
        for part in parts[1:]:
            _start(part)
        for part in parts:
            part()  # what no other thread has begun
    except BaseException as interrupt:  # noqa: BLE001 - raised again when the memory is at rest
        error = interrupt
    for part in parts:
        while not part.ended.is_set():
            try:
                if error is not None:
                    part.forget()
                part.ended.wait()
            except BaseException as interrupt:  # noqa: BLE001 - the same
                error = error or interrupt
    error = error or next((part.error for part in parts if part.error is not None), None)
    if error is not None:
        raise error


class _Part:
    """A task that is run once, by whoever is first."""

    def __init__(self, task: Callable[[], Any]) -> None:
        self.error: BaseException | None = None
        self.ended = Event()
        self._task, self._claim = task, Lock()

    def __call__(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._task()
        except BaseException as error:  # noqa: BLE001 - it is raised where the tasks came from
            self.error = error
        finally:
            self.ended.set()

    def forget(self) -> None:
        """Leave it, if nobody has begun it."""
        if self._claim.acquire(blocking=False):
            self.ended.set()


def _start(part: _Part) -> None:
    try:
        _pool().submit(part)
    except RuntimeError:
        # No thread can be started any more: when the interpreter ends, or past a limit. The pool
        # may have the part in its queue all the same, which is why it must not run twice.
        return


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, cores() - 1), thread_name_prefix="zerocopy-layout")


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's threads, and would wait for them for ever.
    os.register_at_fork(after_in_child=_pool.cache_clear)
