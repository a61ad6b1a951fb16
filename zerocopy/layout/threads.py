"""Runs tasks on all cores, in a thread pool that persists between calls.

Numba's own threading layers are not safe in a library: its ``workqueue`` layer ends the process
when two Python threads enter it at once ("Concurrent access has been detected", Numba's manual,
"The Threading Layers"), and GNU OpenMP ends a forked child. A kernel that releases the GIL needs
neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, get_ident
from typing import Any

#: Bytes of work that justify another thread.
MIN_PART_BYTES = 1 << 20


def cores() -> int:
    """Return how many cores this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def split_rows(rows: int, nbytes: int, threads: int | None, unit: int) -> list[tuple[int, int]]:
    """Return parts of some rows: first and last row, each first row a multiple of `unit`.

    There is one part per thread (None: per core), or fewer if the parts would be too small.

    Examples
    --------
    >>> split_rows(1000, 8 << 20, 3, 64)
    [(0, 320), (320, 640), (640, 1000)]
    >>> split_rows(1000, 8000, 3, 64)
    [(0, 1000)]
    """
    parts = min(nbytes // MIN_PART_BYTES, rows // unit)
    if parts < 2:
        return [(0, rows)]
    parts = min(parts, cores() if threads is None else threads)
    starts = [rows * i // parts // unit * unit for i in range(parts)]
    return list(zip(starts, [*starts[1:], rows], strict=True))


def run(tasks: Sequence[Callable[[], Any]]) -> None:
    """Run tasks in parallel, the first one in this thread; return when all have ended.

    The tasks write to memory that the caller owns, so `run` returns only after all of them have
    ended. An error, or a signal that interrupts the wait, only prevents tasks from starting.
    """
    if len(tasks) < 2:
        for task in tasks:
            task()
        return
    parts = [_Part(task) for task in tasks]
    error: BaseException | None = None
    part = parts[0]  # for `del`, if a signal comes before the loops
    try:
        for part in parts[1:]:
            _start(part)
        for part in parts:
            part()  # runs those that no other thread has started
        for part in parts:
            part.wait()
    except BaseException as interrupt:  # noqa: BLE001 - raised below, after all tasks have ended
        error = interrupt
        waiting = parts.copy()
        while waiting:
            try:
                waiting[-1].wait()
                waiting.pop()
            except BaseException as another:  # noqa: BLE001 - the same
                error = error or another  # type: ignore[truthy-bool]
    error = error or next((part.error for part in parts if part.error is not None), None)
    try:
        if error is not None:
            raise error
    finally:
        del error, part, parts  # the error's traceback holds this frame


class _Part:
    """A task that runs once, in the first thread that calls it.

    A signal's handler may raise between any two instructions of the main thread. So the claim names its
    thread in one step, and the end is a flag and a lock: an ``Event`` can stay locked after an interruption.
    """

    def __init__(self, task: Callable[[], Any]) -> None:
        self.error: BaseException | None = None
        self._task, self._owner = task, dict[str, int]()
        self._has_ended, self._end = False, Lock()
        self._end.acquire()

    def _claim(self) -> bool:
        """Whether this thread has the task: if no thread had it, this one has it now."""
        thread = get_ident()
        return self._owner.setdefault("thread", thread) == thread

    def __call__(self) -> None:
        if self._has_ended or not self._claim():
            return
        try:
            self._task()
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self.error = error
        finally:
            self._has_ended = True
            self._end.release()

    def wait(self) -> None:
        """Wait until the thread that has the task has ended it; cancel a task that has not started.

        A task of this thread has ended, or was interrupted.
        """
        if not self._has_ended and not self._claim():
            self._end.acquire()


def _start(part: _Part) -> None:
    try:
        _pool().submit(part)
    except RuntimeError:
        # The system cannot start more threads, or the interpreter exits. The pool may have queued
        # the task anyway, so a task must not run twice.
        return


def _pool() -> ThreadPoolExecutor:
    global _current
    pool = _current
    if pool is None:
        pool = ThreadPoolExecutor(max(1, cores() - 1), thread_name_prefix="zerocopy-layout")
        _current = pool
    return pool


_current: ThreadPoolExecutor | None = None
#: In a forked child, its parent's: to drop it would wake threads that do not exist there.
_parents: ThreadPoolExecutor | None = None


def _forget() -> None:
    """In a forked child, which does not have its parent's threads and would wait for them forever."""
    global _current, _parents
    _current, _parents = None, _current


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
