"""Memory that is released later: by an owner when no reader has a lease, by a reader when its work is done.

A thread waits, so that neither the program's threads nor its streams do. It runs while there is something
to release.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable

from zerocopy import forks
from zerocopy.errors import ZeroCopyError

#: Returns whether it has released its memory.
Release = Callable[[], bool]

_SHORTEST, _LONGEST = 0.001, 0.25  # seconds between two tries


class _Waiting:
    """A function that is called until it returns True; it counts until its memory is free.

    A free-threaded build frees an object in the thread that created it: later than the last ``del``.
    """

    __slots__ = ("_alive", "release")

    def __init__(self, release: Release, alive: set[int]) -> None:
        self.release, self._alive = release, alive
        alive.add(id(self))

    def __del__(self) -> None:
        del self.release
        self._alive.discard(id(self))


class Releases:
    """Calls functions in a thread until each has returned True.

    Its length is the number of functions whose memory is not free.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._alive: set[int] = set()
        self._lock = forks.lock()
        self._parents = self._waiting  # in a forked child, those of its parent
        self._running = False
        os.register_at_fork(after_in_child=self._forget)

    def add(self, release: Release) -> None:
        """Call a function from now on; finalizers may call this in any thread."""
        self._waiting.append(_Waiting(release, self._alive))
        with self._lock:
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="zerocopy-releases", daemon=True).start()

    def __len__(self) -> int:
        return len(self._alive)

    def _run(self) -> None:
        pause = _SHORTEST
        while True:
            before = len(self._waiting)
            for _ in range(before):
                waiting = self._waiting[0]  # which stays there for forked children
                try:
                    released = waiting.release()
                except ZeroCopyError:
                    released = True  # the driver has lost the context, with all memory in it
                if released:
                    self._waiting.popleft()
                else:
                    self._waiting.rotate(-1)
                del waiting  # it keeps memory
            with self._lock:
                if not self._waiting:
                    self._running = False
                    return
            pause = _SHORTEST if len(self._waiting) < before else min(2 * pause, _LONGEST)
            time.sleep(pause)

    def _forget(self) -> None:
        """In a forked child: the memory is the parent's, and its thread does not exist here."""
        # Those of the parent are kept: finalizers would call the driver.
        self._parents, self._waiting, self._alive = self._waiting, deque(), set()
        self._running = False


releases: Releases = Releases()
