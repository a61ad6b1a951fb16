"""The tables of plans in device memory, cached there for the next call."""

from __future__ import annotations

import sys
import threading
from functools import lru_cache
from typing import Any

from numba import cuda

from zerocopy.device import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM
from zerocopy.layout.cuda.memory import SIMULATED, Stream, default_stream, numba_stream
from zerocopy.layout.cuda.tile_plan import Table, TilePlan


class DeviceTable:
    """A plan's table on a device, which must be current when the object is created.

    Numba allocates and frees it on its default stream, where a pool reuses the memory as soon as it
    is freed. So before that, the default stream waits for the last kernel that reads the table on
    each other stream. Kernels on the default stream need no event.
    """

    def __init__(self, table: Table, device: int) -> None:
        self._last: dict[tuple[int, int], Any] = {}  # first: __del__ reads it if the rest fails
        self._device = device
        default = numba_stream(default_stream(), device)
        self._array = cuda.to_device(table, stream=default)
        self._ready: Any = None
        if not SIMULATED:
            self._ready = cuda.event(timing=False)
            self._ready.record(default)

    def array_for(self, stream: Stream) -> Any:
        """Return the table, for a kernel that is launched on a stream next."""
        if not (SIMULATED or _is_legacy_default(stream)):
            self._ready.wait(stream.to_numba(self._device))
        return self._array

    def used_on(self, stream: Stream) -> None:
        """Record that a kernel that reads the table was launched on a stream."""
        if SIMULATED or _is_legacy_default(stream):
            return
        # The per-thread default stream has one number, but is another stream in each thread.
        thread = threading.get_ident() if stream.handle == PER_THREAD_DEFAULT_STREAM else 0
        key = stream.handle, thread
        event = self._last.get(key)
        if event is None:
            event = self._last.setdefault(key, cuda.event(timing=False))
        event.record(stream.to_numba(self._device))

    def __del__(self) -> None:
        if not self._last or sys.is_finalizing():
            return
        with cuda.gpus[self._device]:
            for event in self._last.values():
                event.wait(numba_stream(default_stream(), self._device))


def _is_legacy_default(stream: Stream) -> bool:
    """Whether a stream is the legacy default one, and Numba's default too."""
    return stream.handle == default_stream() == LEGACY_DEFAULT_STREAM


@lru_cache(maxsize=128)
def device_table(plan: TilePlan, device: int, column_offsets: tuple[int, ...] | None) -> DeviceTable:
    """Return a plan's table on a device, which must be current: see `TilePlan.table_for`."""
    return DeviceTable(plan.table_for(column_offsets), device)
