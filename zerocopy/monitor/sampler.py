"""``Sampler``: a thread that calls a function periodically, and uses at most a fiftieth of one core."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from zerocopy import forks

#: The thread pauses for at least this multiple of the CPU time of the last call.
_PAUSE = 50.0
#: Seconds that `stop` waits for the thread. A call that takes longer ends the thread when it returns.
_PATIENCE = 1.0


class Sampler:
    """Calls `tick` every `every` seconds in a daemon thread, which ends before a fork and begins again later.

    Python warns of forks while other threads run, and the child of a fork during a call would have
    its incomplete state.

    Parameters
    ----------
    tick : callable
        Must not raise.
    every : float
        Seconds between two calls.

    Examples
    --------
    >>> called = threading.Event()
    >>> sampler = Sampler(called.set, 0.01)
    >>> sampler.start()
    >>> called.wait(60)
    True
    >>> sampler.stop()
    """

    def __init__(self, tick: Callable[[], None], every: float) -> None:
        self._tick, self._every = tick, every
        self._wake: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._lock = forks.lock()

    @property
    def is_running(self) -> bool:
        """Whether this process has the thread."""
        return self._thread is not None and self._pid == os.getpid()

    def start(self) -> None:
        """Create the thread, unless this process has it."""
        with self._lock:
            if self.is_running:
                return
            # A new event for each thread: one of the parent may have a lock that no thread releases.
            wake = threading.Event()
            thread = threading.Thread(target=self._run, args=(wake,), name="zerocopy-monitor", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter shuts down, or the system has no more threads
                return
            self._thread, self._wake, self._pid = thread, wake, os.getpid()

    def stop(self) -> None:
        """End the thread, and wait for it for a second at most."""
        with self._lock:  # several threads may fork at once
            thread, wake = self._thread, self._wake
            if thread is None or wake is None or self._pid != os.getpid():
                return
            self._thread = None
        wake.set()
        if thread is not threading.current_thread():
            thread.join(_PATIENCE)

    def _run(self, wake: threading.Event) -> None:
        pause = self._every
        while not wake.wait(pause):
            began = time.thread_time()
            self._tick()
            pause = max(self._every, (time.thread_time() - began) * _PAUSE)
