"""A process of the scale measurements: it holds leases, opens handles and shares arrays.

It reads a call from each line of its input, and writes the result as a line.
"""

from __future__ import annotations

import gc
import signal
from time import perf_counter_ns, process_time_ns
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.children import serve
from zerocopy.shared.reading import map_block


class Worker:
    """The calls that the process supports. Handles are their bytes in hexadecimal digits."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._array: Any = None
        self._shared: Any = None

    def hold(self, handle: str, count: int) -> None:
        """Hold `count` leases of a block, each with a mapping of its own."""
        location = zc.Shared.from_bytes(bytes.fromhex(handle)).handle.location
        self._kept = [map_block(location) for _ in range(count)]

    def open(self, handle: str, rounds: int) -> list[int]:
        """Open a handle and drop the result; return the nanoseconds of each round."""
        data = bytes.fromhex(handle)
        samples = []
        for _ in range(rounds):
            start = perf_counter_ns()
            zc.convert(zc.Shared.from_bytes(data), to="numpy")
            samples.append(perf_counter_ns() - start)
        return samples

    def prepare(self, nbytes: int) -> str:
        """Create the array that `work` shares, and return a handle for another worker."""
        self._array = np.ones(nbytes, np.uint8)
        self._shared = zc.share(self._array)
        return bytes(self._shared).hex()

    def work(self, handle: str, rounds: int) -> tuple[float, float]:
        """Return the CPU time of one `share` and of opening another worker's handle once, in nanoseconds."""
        data = bytes.fromhex(handle)
        gc.collect()
        start = process_time_ns()
        for _ in range(rounds):
            zc.share(self._array)
        middle = process_time_ns()
        for _ in range(rounds):
            zc.convert(zc.Shared.from_bytes(data), to="numpy")
        return (middle - start) / rounds, (process_time_ns() - middle) / rounds


if __name__ == "__main__":
    # The terminal sends Ctrl-C to all its processes; this one ends when its input ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Worker)
