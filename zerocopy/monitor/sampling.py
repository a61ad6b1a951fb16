"""The loop of a thread that samples, and the history of samples."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from zerocopy import forks

Item = TypeVar("Item")

#: Seconds that `Sampler.stop` waits for the thread. A call that takes longer ends the thread when it returns.
_PATIENCE = 1.0


class Sampler:
    """Calls `tick` every `every` seconds in a daemon thread, which ends before a fork and begins again later.

    Python warns of forks while other threads run, and the child of a fork during a call would have
    its incomplete state. The thread pauses for at least `pause` times the CPU time of the last call.
    """

    def __init__(self, tick: Callable[[], Any], every: float, pause: float = 0.0) -> None:
        self._tick, self._every, self._pause = tick, every, pause
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
            pause = max(self._every, (time.thread_time() - began) * self._pause)


class Ring(Generic[Item]):
    """Items with their times, at most `most`, of which those older than `keep` seconds are dropped."""

    def __init__(self, keep: float, most: int = 100_000) -> None:
        self.keep = keep
        self._items: deque[tuple[float, Item]] = deque(maxlen=most)

    def add(self, time: float, item: Item) -> None:
        """Append an item. After the clock was set back, later items are dropped."""
        while self._items and self._items[-1][0] > time:
            self._items.pop()
        self._items.append((time, item))
        while self._items[0][0] < time - self.keep:
            self._items.popleft()

    def at(self, time: float) -> Item | None:
        """Return the last item that is not later than `time`, else the oldest; None if there are none."""
        earlier = (item for when, item in reversed(self._items) if when <= time)
        return next(earlier, self._items[0][1] if self._items else None)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over a copy, oldest first: another thread may append."""
        return (item for _, item in self._items.copy())

    def __len__(self) -> int:
        return len(self._items)
