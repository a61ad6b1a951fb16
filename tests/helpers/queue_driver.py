"""A CUDA driver over host memory that runs work as late as possible, to show wrong orders.

Work on a stream runs only when the host, or an eager stream, waits for it. A copy that reads memory
after it was written again, or writes memory that other work still reads, then gives wrong values. Real
devices run work earlier, and most of the time hide such errors.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from zerocopy.protocols import cuda_copies, cuda_driver

_NOT_READY = 600
_FIRST = 1 << 20  # the first handle of the driver; other stand-ins use lower ones


class _Stream:
    def __init__(self) -> None:
        self.work: deque[Callable[[], None]] = deque()
        self.added = self.done = 0

    def add(self, work: Callable[[], None]) -> None:
        self.work.append(work)
        self.added += 1

    def run(self, until: int) -> None:
        while self.done < until:
            self.work.popleft()()
            self.done += 1


def _run(points: list[tuple[_Stream, int]]) -> None:
    for stream, position in points:
        stream.run(position)


class QueueDriver:
    """The functions of the driver that the loader calls.

    Attributes
    ----------
    eager : set of int
        Streams whose work runs at once.
    own_streams_alone : bool
        Whether all streams are eager except those that ``cuStreamCreate`` returned.
    calls : list of str
        The names of the functions that were called.
    refuses_to_lock : bool
        Whether ``cuMemHostAlloc`` fails.
    """

    def __init__(self) -> None:
        self.streams: dict[int, _Stream] = defaultdict(_Stream)
        self.eager: set[int] = set()
        self.calls: list[str] = []
        self.own_streams_alone = self.refuses_to_lock = False
        self.locked: dict[int, Any] = {}
        self._events: dict[int, list[tuple[_Stream, int]]] = {}
        self._handles = iter(range(_FIRST, 1 << 30))

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu"):
            object.__getattribute__(self, "calls").append(name)
        return object.__getattribute__(self, name)

    def launch(self, stream: int, work: Callable[[], None]) -> None:
        """Add work of a consumer to a stream."""
        self.streams[stream].add(work)
        self._progress(stream)

    def synchronize(self, stream: int) -> None:
        self.streams[stream].run(self.streams[stream].added)

    def _progress(self, stream: int) -> None:
        if stream in self.eager or (self.own_streams_alone and stream < _FIRST):
            self.synchronize(stream)

    def is_locked(self, ptr: int) -> bool:
        return any(start <= ptr < start + len(memory) for start, memory in self.locked.items())

    def cuGetErrorName(self, code: Any, name: Any) -> int:
        return 1

    def cuStreamCreate(self, result: Any, flags: Any) -> int:
        assert flags.value == 1, "the legacy default stream would wait for the loader's"
        result._obj.value = next(self._handles)
        return 0

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: Any) -> int:
        points = self._events[event.value]
        self.launch(stream.value, lambda: _run(points))
        return 0

    def cuEventCreate(self, result: Any, flags: Any) -> int:
        result._obj.value = next(self._handles)
        self._events[result._obj.value] = []
        return 0

    def cuEventDestroy_v2(self, event: Any) -> int:
        del self._events[event.value]
        return 0

    def cuEventRecord(self, event: Any, stream: Any) -> int:
        on = self.streams[stream.value]
        self._events[event.value] = [(on, on.added)]
        return 0

    def cuCtxGetCurrent(self, context: Any) -> int:
        return 0

    def cuCtxRecordEvent(self, context: Any, event: Any) -> int:
        self._events[event.value] = [(stream, stream.added) for stream in self.streams.values()]
        return 0

    def cuEventQuery(self, event: Any) -> int:
        points = self._events[event.value]
        return 0 if all(stream.done >= position for stream, position in points) else _NOT_READY

    def cuEventSynchronize(self, event: Any) -> int:
        _run(self._events[event.value])
        return 0

    def cuMemcpyHtoDAsync_v2(self, ptr: Any, host: Any, nbytes: Any, stream: Any) -> int:
        to, source, size = ptr.value, host.value, nbytes.value
        self.launch(stream.value, lambda: ctypes.memmove(to, source, size) and None)
        return 0

    def cuMemHostAlloc(self, result: Any, nbytes: Any, flags: Any) -> int:
        if self.refuses_to_lock:
            return 2
        memory = np.empty(nbytes.value, np.uint8)
        result._obj.value = memory.ctypes.data
        self.locked[memory.ctypes.data] = memory
        return 0

    def cuMemFreeHost(self, ptr: Any) -> int:
        del self.locked[ptr.value]
        return 0


def install(monkeypatch: pytest.MonkeyPatch) -> QueueDriver:
    """Replace the driver for one test."""
    driver = QueueDriver()

    @contextmanager
    def on_device(index: int) -> Iterator[QueueDriver]:
        yield driver

    monkeypatch.setattr(cuda_driver, "driver", lambda: driver)
    monkeypatch.setattr(cuda_driver, "missing", lambda: None)
    monkeypatch.setattr(cuda_driver, "count", lambda: 2)
    monkeypatch.setattr(cuda_driver, "hold", lambda device: None)
    monkeypatch.setattr(cuda_driver, "on_device", on_device)
    cuda_copies.copy_stream.cache_clear()
    return driver
