"""Use every part of zerocopy in threads: ``python -m tests.native.stress --threads 8 --seconds 60``.

Each thread converts arrays, tables and trees between the installed frameworks, shares and opens memory, reads
loaders and takes snapshots of the monitor, in an order of its own, and checks each value. Meanwhile one
thread drops all routes, and host memory has the mode ``"aligned"`` if it is supported. The exit status is 1
after a wrong value or an exception, and the last line counts the operations. Run it on free-threaded builds.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

import numpy as np  # noqa: E402 - after the path is set
from helpers.frameworks import HOST  # noqa: E402

import zerocopy as zc  # noqa: E402
from zerocopy import registry  # noqa: E402

TABLES = [name for name in ("pyarrow", "pandas", "polars") if zc.frameworks()[name].installed]
#: Elements of an array: small ones share a segment, large ones have one of their own.
SIZES = (7, 1_000, 20_000)


class Failed(Exception):
    """A result has wrong values."""


def check(result: object, expected: np.ndarray) -> None:
    """Raise `Failed` unless a result has the expected values."""
    if not np.array_equal(zc.convert(result, "numpy"), expected):
        raise Failed(f"{type(result)} differs from {expected!r}")


def convert_arrays(rng: random.Random) -> None:
    first = rng.randrange(1_000)
    expected = np.arange(first, first + rng.choice(SIZES), dtype="float32")
    source = zc.convert(expected, rng.choice(HOST), copy=rng.choice((True, None)))
    check(zc.convert(source, rng.choice(HOST)), expected)


def convert_trees(rng: random.Random) -> None:
    expected = np.full(rng.choice(SIZES), rng.random(), "float32")
    tree = {"a": [expected, expected], "b": (expected,)}
    tree = zc.convert(tree, rng.choice(HOST), copy=rng.choice((True, None)))
    for leaf in (*tree["a"], *tree["b"]):
        check(leaf, expected)


def convert_tables(rng: random.Random) -> None:
    expected = np.full(rng.choice(SIZES), rng.randrange(1_000), "int64")
    table = {"x": expected, "y": expected + 1}
    for _ in range(2):
        if TABLES:
            table = zc.convert(table, rng.choice(TABLES))
    columns = zc.convert(table, "numpy")
    check(columns["x"], expected)
    check(columns["y"], expected + 1)


def share_arrays(rng: random.Random) -> None:
    expected = np.full(rng.choice(SIZES), rng.random())
    with zc.share(expected) as shared:
        opened = zc.convert(shared, "numpy")
        check(opened, expected)
    check(opened, expected)


def refuse(rng: random.Random) -> None:
    try:
        zc.convert(np.arange(3.0), "numpy", dtype="int8", copy=False)
    except zc.ZeroCopyError:
        return
    raise Failed("copy=False with a cast was not refused")


def read_a_loader(rng: random.Random) -> None:
    rows = rng.choice((64, 1_000))
    expected = np.arange(rows) + rng.randrange(1_000)
    seen = [batch["x"] for batch in zc.loader({"x": expected}, "numpy", batch_size=rows // 4)]
    check(np.sort(np.concatenate(seen)), expected)


def take_a_snapshot(rng: random.Random) -> None:
    zc.monitor.snapshot()


def use_host_memory(rng: random.Random) -> None:
    value = rng.randrange(100)
    array = np.full(rng.choice((100, 200_000)), value)
    if np.zeros(rng.choice((100, 5_000_000)), "u1").any() or not (array == value).all():
        raise Failed("memory of NumPy's allocator changed")


OPERATIONS: tuple[Callable[[random.Random], None], ...] = (
    *(convert_arrays, convert_arrays, convert_trees, convert_tables, share_arrays, refuse),
    *(read_a_loader, take_a_snapshot, use_host_memory),
)


class Stress:
    """Runs the operations in threads until a time is over or one of them fails."""

    def __init__(self, threads: int, seconds: float, seed: int) -> None:
        self._end, self._seed = time.monotonic() + seconds, seed
        self._ready = threading.Barrier(threads + 1)
        self.counts = [Counter() for _ in range(threads)]
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]

    def run(self) -> None:
        """Run the threads, and meanwhile drop all routes 100 times a second."""
        for thread in self._threads:
            thread.start()
        self._ready.wait()
        while any(thread.is_alive() for thread in self._threads):
            time.sleep(0.01)
            for clear in registry._listeners:
                clear()

    def _run(self, number: int) -> None:
        rng = random.Random(f"{self._seed} {number}")
        self._ready.wait()
        while time.monotonic() < self._end and not self.errors:
            operation = rng.choice(OPERATIONS)
            try:
                operation(rng)
            except BaseException as error:
                self.errors.append(f"{operation.__name__}: {type(error).__name__}: {error}")
                raise
            self.counts[number][operation.__name__] += 1


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.native.stress", description=__doc__)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--host", default="aligned", help="the mode of host memory; off for none")
    options = parser.parse_args()
    try:
        pool = zc.install_pool(host=options.host)
        mode = str(pool.host_stats())
    except zc.errors.PoolUnavailableError as error:
        mode = str(error)
    print("host memory:", mode, flush=True)
    zc.monitor.start()
    for operation in OPERATIONS:
        operation(random.Random(0))  # imports the frameworks
    stress = Stress(options.threads, options.seconds, options.seed)
    stress.run()
    zc.monitor.stop()
    counts = sum(stress.counts, Counter())
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"frameworks: {', '.join(HOST)}; load: {os.getloadavg()[0]:.1f}; GIL: {'on' if gil else 'off'}")
    print(f"{sum(counts.values())} operations in {options.threads} threads: {dict(counts)}")
    for error in stress.errors:
        print("failed:", error)
    return 1 if stress.errors else 0


if __name__ == "__main__":
    sys.exit(main())
