"""Interpreter shutdown: pools free nothing, and the operating system reclaims the memory.

Frameworks free arrays until the process ends, when the driver or a Python allocator may already
be unloaded. A daemon thread that requests the GIL after that point is ended by unwinding its stack
(CPython before 3.14, ``PyEval_RestoreThread``); in RMM's C++ frames this aborts the process.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable

#: Seconds that daemon threads get to reach a Python allocator, where `park` stops them.
_GRACE = 0.05


def _watch() -> tuple[Callable[[], bool], Callable[[], None], Callable[[], None]]:
    ended: list[bool] = []
    grace: list[float] = []
    # Kept in closures: CPython clears the names of this module at shutdown.
    main, identity, sleep, active = (
        threading.main_thread().ident,
        threading.get_ident,
        time.sleep,
        threading.active_count,
    )

    def end() -> None:
        ended.append(True)
        if grace and active() > 1:
            sleep(grace[0])

    def park() -> None:
        if ended and identity() != main:
            while True:  # a sleeping thread requests no lock, and ends with the process
                sleep(1e6)

    atexit.register(end)
    return (lambda: bool(ended)), park, (lambda: grace.append(_GRACE))


#: ``in_progress() -> bool``; ``park()`` stops a daemon thread during shutdown;
#: ``wait_for_threads()`` makes shutdown wait until daemon threads can have reached `park`.
in_progress: Callable[[], bool]
park: Callable[[], None]
wait_for_threads: Callable[[], None]
in_progress, park, wait_for_threads = _watch()
