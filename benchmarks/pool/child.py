"""The process that one contender runs in: a mode is the whole process's, so each has its own.

It reads a line, does what it says, and writes a line::

    python -m benchmarks.pool.child recycle
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from itertools import repeat
from time import perf_counter_ns
from typing import Any

from benchmarks.timing import Statement
from zerocopy.pool.host import c_library, parse
from zerocopy.pool.host.mode import Mode

_MOST_CALLS = 100_000
_WARM_UP = 10


class Child:
    """What is asked of it by name."""

    def __init__(self, modes: list[Mode]) -> None:
        self.modes = modes
        self.names: dict[str, Any] = {}

    def describe(self) -> list[str]:
        """Return what its modes say of themselves."""
        return [mode.describe() for mode in self.modes]

    def open(self, group: str, needed: list[str] | None = None) -> None:
        """Make what the loads of a group use, or those of them that need these frameworks."""
        from benchmarks.pool.loads import namespace

        self.names = namespace(group, needed)
        gc.collect()
        gc.freeze()

    def open_jax(self, nbytes: int) -> None:
        """Make an array for JAX."""
        import numpy as np

        import zerocopy as zc

        self.names = {"zc": zc, "x": np.ones(nbytes // 4, np.float32)}

    def calls(self, code: str, block: int) -> int:
        """Return how many calls fill a block of so many nanoseconds; what is run for it is the warm-up."""
        count = 1
        # A kept heap takes some calls to settle: of a block that is aligned glibc keeps the crumbs, up
        # to seven of each size, apart (tcache), and what is freed is too small until then.
        for _ in range(_WARM_UP):
            self.block(code, 1)
        while (spent := self.block(code, count)) < block // 2 and count < _MOST_CALLS:
            count *= 2
        return max(1, count * block // max(spent, 1)) if count > 1 else 1

    def block(self, code: str, calls: int) -> int:
        """Run a load so many times, and return the nanoseconds."""
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
        """Give back what is kept."""
        return sum(mode.trim() for mode in self.modes)

    def reach_jax(self) -> dict[str, bool]:
        """Return which arrays JAX takes without a copy."""
        from benchmarks.pool.arrays import reached

        return reached()


def main() -> None:
    """Answer until nobody asks."""
    # Ctrl-C goes to all of the terminal's processes; this one ends when nobody asks any more.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    modes = parse(sys.argv[1])
    for mode in modes:
        mode.install()
    warnings.simplefilter("ignore")
    child = Child(modes)
    # What libraries print must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        ask: Callable[..., Any] = getattr(child, name)
        print(json.dumps(ask(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
