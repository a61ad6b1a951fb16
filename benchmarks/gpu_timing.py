"""The clock on a CUDA device: the time of the host and that of a stream.

*Host* is the time until a call returns, without waiting for the device: the cost to a program that
queues kernels. *Device* is the time of the stream between two events around the work. The events
are created through the CUDA driver by ctypes, so that they work on any framework's stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter_ns
from typing import Any

from benchmarks.timing import LazyLoop, Loop, Pace, Raised, Statement, Timing, loops, take_turns
from zerocopy.protocols import cuda_driver

#: The legacy default stream in the numbering of DLPack and the driver.
DEFAULT_STREAM = 1

# CUevent_flags, cuda.h.
_WITH_TIMING = 0

# At most this many calls are queued in a block: the queue of a device is finite, and a host that
# waits for space in it would measure the device.
_MOST_CALLS = 500

# Bytes that are cleared repeatedly, to keep a stream busy.
_FILLER = 64 << 20


@dataclass(frozen=True)
class GpuTiming:
    """One contender on a device: until the call returns, and between two events on the stream."""

    host: Timing
    device: Timing


def measure(
    statements: Mapping[str, Statement], pace: Pace, stream: int = DEFAULT_STREAM, device: int = 0
) -> dict[str, GpuTiming | Raised]:
    """Time statements in turns on a stream; DeviceError if the device does not exist.

    Each must submit its work to `stream`, the driver's handle: ``torch.cuda.Stream.cuda_stream``,
    ``cupy.cuda.Stream.ptr``. The stream is kept busy with other work while the host queues a block.
    Otherwise the device would wait for the host between short calls, and the events would measure the host.
    """
    with _Stream(stream, device).opened() as clock:

        def begin(loop: LazyLoop) -> tuple[int, int]:
            return _block(loop(), clock, pace.block)

        def sample(loop: LazyLoop, calls: int, before: list[Any]) -> tuple[float, float]:
            # The minimum, because a call that waits for the device also waits for the filler,
            # whose duration would grow from round to round.
            expected = min(host for host, _ in before) * calls if before else 0.0
            spent, elapsed = clock.block(loop(), calls, expected)
            return spent / calls, elapsed / calls

        samples, calls, raised = take_turns(loops(statements), pace, begin, sample)
    return {
        label: raised[label]
        if label in raised
        else GpuTiming(*(Timing.of(several, calls[label]) for several in zip(*samples[label], strict=True)))
        for label in statements
    }


def _block(loop: Loop, clock: _Stream, block: int) -> tuple[int, int]:
    """Return how many calls fill a block, and the longer of its host and device times; this warms up too."""
    clock.block(loop, 1)  # first-time costs: loading modules, compiling kernels
    count = 1
    while (spent := int(max(clock.block(loop, count)))) < block // 2 and count < _MOST_CALLS:
        count *= 2
    return min(count, _MOST_CALLS), spent


class _Stream:
    """A stream with two events and a filler that keeps it busy."""

    def __init__(self, stream: int, device: int) -> None:
        self._stream, self._device = ctypes.c_void_p(stream), device
        self._start, self._stop = ctypes.c_void_p(), ctypes.c_void_p()
        self._filler = ctypes.c_uint64()
        self._fill_time = 0.0  # ns

    @contextmanager
    def opened(self) -> Iterator[_Stream]:
        """Create the events and the filler, and release them."""
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
        """Run a loop; return the nanoseconds of the host and of the stream.

        The stream is kept busy for twice the nanoseconds that the host is expected to take, so that the
        whole block is queued before the stream reaches it.
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
