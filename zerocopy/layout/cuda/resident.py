"""The tables of plans in the memory of devices, where they stay for the next call."""

from __future__ import annotations

import sys
import threading
from typing import Any

from numba import cuda

from zerocopy.device import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM
from zerocopy.layout.cuda.memory import SIMULATED, Stream, default_stream, numba_stream
from zerocopy.layout.cuda.plan import Plan, Table


class Resident:
    """A plan's table on a device, which is current where one is made.

    It comes and goes on Numba's default stream, where a pool gives its memory to the next one as
    soon as it is dropped. Kernels on other streams may read it even so: that stream waits for the
    last one of each first. A kernel on the default stream costs nothing more.
    """

    def __init__(self, table: Table, device: int) -> None:
        self._last: dict[tuple[int, int], Any] = {}  # first: it is looked at when making it fails
        self._device = device
        default = numba_stream(default_stream(), device)
        self._array = cuda.to_device(table, stream=default)
        self._ready: Any = None
        if not SIMULATED:
            self._ready = cuda.event(timing=False)
            self._ready.record(default)

    def array_for(self, on: Stream) -> Any:
        """Return the table, for what a stream is given next."""
        if not (SIMULATED or _is_the_one(on)):
            self._ready.wait(on.numbas(self._device))
        return self._array

    def used_on(self, on: Stream) -> None:
        """Note that a stream has been given what reads it."""
        if SIMULATED or _is_the_one(on):
            return
        # The per-thread default stream is one number, and another stream in each thread.
        key = on.handle, threading.get_ident() if on.handle == PER_THREAD_DEFAULT_STREAM else 0
        event = self._last.get(key)
        if event is None:
            event = self._last.setdefault(key, cuda.event(timing=False))
        event.record(on.numbas(self._device))

    def __del__(self) -> None:
        if not self._last or sys.is_finalizing():
            return
        with cuda.gpus[self._device]:
            for event in self._last.values():
                event.wait(numba_stream(default_stream(), self._device))


def _is_the_one(on: Stream) -> bool:
    """Whether a stream is the default one of everybody."""
    return on.handle == default_stream() == LEGACY_DEFAULT_STREAM


def resident(plan: Plan, device: int) -> Resident:
    """Return a plan's table on a device, which is current."""
    found = plan.copies.get(device)
    if found is None:
        found = plan.copies.setdefault(device, Resident(plan.table, device))
    kept: Resident = found
    return kept
