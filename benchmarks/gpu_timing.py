"""The clock on a CUDA device: two events on a stream, and beside them what the host pays.

They are different figures. *Host* is the time until a call returns, with nobody waiting for
the device: what a program pays in which kernels are queued. *Device* is the time that the
stream takes for the work, between two events around it. Events are the driver's own, by ctypes:
so they can be put on any framework's stream, and need no framework.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter_ns
from typing import Any

from benchmarks.timing import Loop, Pace, Raised, Statement, Timing, take_turns
from zerocopy.protocols import cuda_driver

#: The legacy default stream, as DLPack and the driver number it.
DEFAULT_STREAM = 1

# CUevent_flags, cuda.h.
_WITH_TIMING = 0

# More calls than that are not queued in a block: a device's queue is finite, and a host that
# has to wait for room in it is timed for the device.
_MOST_CALLS = 500

# Memory that is cleared again and again, to keep a stream busy.
_FILLER = 64 << 20


@dataclass(frozen=True)
class GpuTiming:
    """One contender on a device.

    Attributes
    ----------
    host : Timing
        Until the call returns; nobody waits for the device.
    device : Timing
        Between two events on the stream. Work that makes the host wait for the device has that
        wait in it.
    """

    host: Timing
    device: Timing


def measure(
    statements: Mapping[str, Statement], pace: Pace, stream: int = DEFAULT_STREAM, device: int = 0
) -> dict[str, GpuTiming | Raised]:
    """Time statements against each other on a stream: :func:`benchmarks.timing.measure` of a device.

    Parameters
    ----------
    statements : dict of str to Statement
        Each has to give its work to `stream`.
    pace : Pace
        How long.
    stream : int
        The driver's handle: ``torch.cuda.Stream.cuda_stream``, ``cupy.cuda.Stream.ptr``.
    device : int

    Returns
    -------
    dict of str to GpuTiming or Raised
        By the same labels.

    Raises
    ------
    DeviceError
        There is no such device.

    Notes
    -----
    The stream is kept busy with other work while the host queues a block. Otherwise the device
    would wait for the host between short calls, and the events would show the host's time twice.
    """
    with _Stream(stream, device).opened() as clock:

        def begin(loop: Loop) -> tuple[int, int]:
            return _block(loop, clock, pace.block)

        def sample(loop: Loop, calls: int, before: list[Any]) -> tuple[float, float]:
            # The least and not the last: a call that waits for the device has waited for what
            # kept it busy too, which would grow from round to round.
            expected = min(host for host, _ in before) * calls if before else 0.0
            spent, elapsed = clock.block(loop, calls, expected)
            return spent / calls, elapsed / calls

        samples, calls, raised = take_turns(statements, pace, begin, sample)
    return {
        label: raised[label]
        if label in raised
        else GpuTiming(*(Timing.of(several, calls[label]) for several in zip(*samples[label], strict=True)))
        for label in statements
    }


def _block(loop: Loop, clock: _Stream, block: int) -> tuple[int, int]:
    """Return how many calls fill a block, and how long it takes, whoever is slower; it warms up too."""
    clock.block(loop, 1)  # first-time costs: modules that are loaded, kernels that are compiled
    count = 1
    while (spent := int(max(clock.block(loop, count)))) < block // 2 and count < _MOST_CALLS:
        count *= 2
    return min(count, _MOST_CALLS), spent


class _Stream:
    """A stream, two events on it, and something to keep it busy with."""

    def __init__(self, stream: int, device: int) -> None:
        self._stream, self._device = ctypes.c_void_p(stream), device
        self._start, self._stop = ctypes.c_void_p(), ctypes.c_void_p()
        self._filler = ctypes.c_uint64()
        self._fill_time = 0.0  # ns

    @contextmanager
    def opened(self) -> Iterator[_Stream]:
        """Make the events and the memory, and give them back."""
        with cuda_driver.on_device(self._device) as library:
            self._library, call = library, cuda_driver.call
            for event in (self._start, self._stop):
                call(library.cuEventCreate, ctypes.byref(event), ctypes.c_uint(_WITH_TIMING))
            call(library.cuMemAlloc_v2, ctypes.byref(self._filler), ctypes.c_size_t(_FILLER))
            try:
                self._fill(1)
                self._record(self._start)
                self._fill(10)
                self._record(self._stop)
                self._fill_time = max(self._elapsed() / 10, 1.0)
                yield self
            finally:
                call(library.cuStreamSynchronize, self._stream)
                call(library.cuMemFree_v2, self._filler)
                for event in (self._start, self._stop):
                    call(library.cuEventDestroy_v2, event)

    def block(self, loop: Loop, calls: int, expected: float = 0.0) -> tuple[int, float]:
        """Run a loop, and return the nanoseconds of the host and those of the stream.

        Parameters
        ----------
        loop : callable
        calls : int
        expected : float
            Nanoseconds that the host is expected to take: the stream is kept busy for twice that,
            so that all of the block is queued when the stream comes to it.
        """
        self._fill(min(_MOST_CALLS, 1 + int(2 * expected / self._fill_time)))
        self._record(self._start)
        spent = loop(repeat(None, calls), perf_counter_ns)
        self._record(self._stop)
        return spent, self._elapsed()

    def _fill(self, times: int) -> None:
        for _ in range(times):
            cuda_driver.call(
                self._library.cuMemsetD8Async,
                self._filler,
                ctypes.c_ubyte(0),
                ctypes.c_size_t(_FILLER),
                self._stream,
            )

    def _record(self, event: ctypes.c_void_p) -> None:
        cuda_driver.call(self._library.cuEventRecord, event, self._stream)

    def _elapsed(self) -> float:
        """Wait for the second event, and return the nanoseconds since the first."""
        milliseconds = ctypes.c_float()
        cuda_driver.call(self._library.cuEventSynchronize, self._stop)
        cuda_driver.call(
            self._library.cuEventElapsedTime, ctypes.byref(milliseconds), self._start, self._stop
        )
        return milliseconds.value * 1e6
