"""Whether the interpreter is ending: memory is the operating system's to take back then.

Frameworks free arrays until the last; what frees them may be gone by then: a driver, a
module's names, somebody's allocator. And a daemon thread that asks for the interpreter's lock
afterwards is ended on the spot (CPython before 3.14, ``PyEval_RestoreThread``), by unwinding its
stack: through C++ that does not allow for it, RMM's under an allocator in Python, this aborts
the process.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable

#: For daemon threads to come to a Python allocator, and stop there.
_GRACE = 0.05


def _watch() -> tuple[Callable[[], bool], Callable[[], None], Callable[[], None]]:
    over: list[bool] = []
    graceful: list[float] = []
    # In what the functions close over: this module's names are cleared at the end too.
    main, identity, sleep, alive = threading.main_thread().ident, threading.get_ident, time.sleep, threading

    def end() -> None:
        over.append(True)
        if graceful and alive.active_count() > 1:
            sleep(graceful[0])

    def park() -> None:
        if over and identity() != main:
            while True:  # asleep, it asks for no lock, and goes with the process
                sleep(1e6)

    atexit.register(end)
    return (lambda: bool(over)), park, (lambda: graceful.append(_GRACE))


#: ``ended() -> bool``; ``park()`` stops a daemon thread when the interpreter is ending;
#: ``wait_for_threads()`` has the end give daemon threads time to come to one.
ended, park, wait_for_threads = _watch()
