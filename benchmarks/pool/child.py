"""The process of one contender: a mode applies to a whole process.

It reads a call from each line of its input, and writes the result as a line::

    python -m benchmarks.pool.child recycle
"""

from __future__ import annotations

import gc
import signal
import sys
import warnings
from itertools import repeat
from time import perf_counter_ns
from typing import Any

from benchmarks.children import serve
from benchmarks.timing import Statement
from zerocopy.pool.host import Mode, c_library, parse

_MOST_CALLS = 100_000
_WARM_UP = 10


class Child:
    """The calls that the process supports."""

    def __init__(self, modes: list[Mode]) -> None:
        self.modes = modes
        self.names: dict[str, Any] = {}

    def describe(self) -> list[str]:
        """Return the descriptions of its modes."""
        return [mode.describe() for mode in self.modes]

    def open(self, group: str, needed: list[str] | None = None) -> None:
        """Create the values that the workloads of a group use, for the needed frameworks."""
        from benchmarks.pool.workloads import namespace

        self.names = namespace(group, needed)
        gc.collect()
        gc.freeze()

    def open_jax(self, nbytes: int) -> None:
        """Create an array for JAX."""
        import numpy as np

        import zerocopy as zc

        self.names = {"zc": zc, "x": np.ones(nbytes // 4, np.float32)}

    def calls(self, code: str, block: int) -> int:
        """Return how many calls fill a block of `block` nanoseconds; this is the warm-up too."""
        count = 1
        # The heap takes some calls to settle: glibc first keeps up to seven remainders of aligned
        # blocks of each size in its tcache.
        for _ in range(_WARM_UP):
            self.block(code, 1)
        while (spent := self.block(code, count)) < block // 2 and count < _MOST_CALLS:
            count *= 2
        return max(1, count * block // max(spent, 1)) if count > 1 else 1

    def block(self, code: str, calls: int) -> int:
        """Run a workload `calls` times, and return the nanoseconds."""
        gc.collect()
        gc.disable()
        try:
            return Statement(code, self.names).loop()(repeat(None, calls), perf_counter_ns)
        finally:
            gc.enable()

    def resident(self) -> int:
        """Return the resident set, in bytes."""
        return c_library.resident()

    def trim(self) -> int:
        """Release kept memory."""
        return sum(mode.trim() for mode in self.modes)

    def reach_jax(self) -> dict[str, bool]:
        """Return which arrays JAX aliases."""
        from benchmarks.pool.workloads import aliased_by_jax

        return aliased_by_jax()


def main() -> None:
    """Install the modes, and serve."""
    # The terminal sends Ctrl-C to all its processes; this one ends when its input ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    modes = parse(sys.argv[1])
    for mode in modes:
        mode.install()
    warnings.simplefilter("ignore")
    serve(lambda: Child(modes))


if __name__ == "__main__":
    main()
