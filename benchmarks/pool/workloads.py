"""Workloads for each mode: some that should gain, some that could lose."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import installed
from benchmarks.suite import Settings
from zerocopy.errors import CopyRequiredError

KIB, MIB = 1 << 10, 1 << 20

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Workload:
    """One workload: a line of code with the names in :func:`namespace`, of the framework that it needs.

    `gain` is the goal: the least speed relative to that without the mode. A `slow` one is left out with
    ``--quick``: a call takes tens of milliseconds, or each process would import a framework for it alone.
    """

    name: str
    code: str
    needs: str = "numpy"
    gain: float = 0.95
    slow: bool = False

    def wanted(self, settings: Settings) -> bool:
        """Whether its framework is installed and wanted, and it is quick enough."""
        return not (settings.quick and self.slow) and settings.wants(self.needs) and installed(self.needs)


#: Workloads by group: those of a group run in the same processes, in sequence.
GROUPS: dict[str, tuple[Workload, ...]] = {
    "large blocks": (
        Workload("torch, fill 64 MB on one thread", "torch.full((16 * MIB,), 1.0)", "torch", 5, slow=True),
        Workload("NumPy, empty and touch 256 MB", "touch(256 * MIB)", gain=10),
        Workload(
            "two threads, fill blocks of 1-48 MB", "both(mixed, MIB, 48 * MIB, 12)", gain=1.5, slow=True
        ),
        Workload("one thread, fill blocks of 1-48 MB", "mixed(MIB, 48 * MIB, 12)", slow=True),
        Workload("NumPy, (a + a) * a of 64 MB", "(large + large) * large"),
        Workload("NumPy, copy 64 MB", "large.copy()"),
        Workload("NumPy, concatenate to 64 MB", "np.concatenate([middle] * 16)", slow=True),
        Workload("torch, (t + t) * t of 64 MB on one thread", "(t + t) * t", "torch", slow=True),
    ),
    "zeros": (
        Workload("zeros of 8 KB", "np.zeros(1000)"),
        Workload("zeros of 1 MB, then filled", "np.zeros(MIB, np.uint8).fill(1)"),
        Workload("zeros of 16 MB, then filled", "np.zeros(16 * MIB, np.uint8).fill(1)"),
        Workload("zeros of 64 MB, then filled", "np.zeros(64 * MIB, np.uint8).fill(1)"),
        Workload("zeros of 64 MB, not touched", "np.zeros(64 * MIB, np.uint8)"),
        Workload(
            "zeros of 1 GB, touched every 16 MB", "np.zeros(1024 * MIB, np.uint8)[:: 16 * MIB] = 1", slow=True
        ),
    ),
    "small blocks": (
        Workload("np.empty(100)", "np.empty(100)", gain=1 / 1.1),
        Workload("a + a of 100 values", "tiny + tiny"),
        Workload("np.empty of 4 KB", "np.empty(4 * KIB, np.uint8)"),
        Workload("np.empty of 64 KB", "np.empty(64 * KIB, np.uint8)"),
        Workload("a + a of 64 KB", "small + small"),
        Workload("fill blocks of 100 B-20 KB", "mixed(100, 20 * KIB, 500)"),
        Workload("fill blocks of 1 KB-1 MB", "mixed(KIB, MIB, 500)"),
        Workload("two threads, fill blocks of 100 B-20 KB", "both(mixed, 100, 20 * KIB, 3000)"),
        Workload("two threads, fill blocks of 1 KB-1 MB", "both(mixed, KIB, MIB, 500)", slow=True),
        Workload("sort 8 MB", "np.sort(numbers)", slow=True),
        Workload("fromiter, 300,000 values", "np.fromiter(iter(range(300_000)), np.int64)"),
        Workload("ndarray.resize from 1 to 40 MB in steps of 1 MB", "grow()", slow=True),
        Workload("100,000 Python strings", "[str(i) for i in range(100_000)]"),
        Workload("200 bytes objects of 100 KB", "[bytes(100_000) for _ in range(200)]"),
    ),
    "tables": (
        Workload("pandas, groupby().sum() of 300,000 rows", "frame.groupby('k').sum()", "pandas"),
        Workload("pandas, sort_values of 300,000 rows", "frame.sort_values('v')", "pandas", slow=True),
        Workload("pandas, merge", "frame.merge(frame.iloc[:1000], on='k')", "pandas"),
        Workload("pandas, arithmetic of columns", "frame['v'] * 2 + frame['w']", "pandas"),
        Workload("pyarrow, sort_by of 300,000 rows", "table.sort_by('v')", "pyarrow", slow=True),
        Workload(
            "pyarrow, group_by().aggregate()", "table.group_by('k').aggregate([('v', 'sum')])", "pyarrow"
        ),
        Workload("pyarrow to pandas", "table.to_pandas()", "pyarrow"),
    ),
}


def touch(nbytes: int) -> None:
    """Write to each page of a new block."""
    np.empty(nbytes, np.uint8)[::4096] = 1


def mixed(least: int, most: int, blocks: int, seed: int = 0) -> None:
    """Fill blocks of random sizes, of which eight are alive at a time."""
    chance = random.Random(seed)
    held: list[Array | None] = [None] * 8
    for _ in range(blocks):
        block: Array = np.empty(chance.randint(least, most), np.uint8)
        block.fill(1)
        held[chance.randrange(8)] = block


def both(work: Callable[..., None], *arguments: int) -> None:
    """Run `work` on two threads at once."""
    threads = [threading.Thread(target=work, args=(*arguments, seed)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def grow() -> None:
    """Resize one array repeatedly."""
    array: Array = np.empty(MIB, np.uint8)
    for step in range(2, 41):
        array.resize(step * MIB, refcheck=False)


def namespace(group: str, wanted: Collection[str] | None = None) -> dict[str, Any]:
    """Return the names that the workloads of a group use, importing its frameworks or those in `wanted`."""
    names: dict[str, Any] = {"np": np, "KIB": KIB, "MIB": MIB}
    names |= {f.__name__: f for f in (touch, mixed, both, grow)}
    needed = {workload.needs for workload in GROUPS[group]} if wanted is None else wanted
    random_ = np.random.default_rng(0).random
    names |= {"tiny": random_(100), "small": random_(8 * KIB), "middle": random_(MIB // 2)}
    names |= {"numbers": random_(MIB), "large": random_(8 * MIB)}
    if "torch" in needed and installed("torch"):
        names["torch"] = import_module("torch")
        # Its idle threads spin, on the cores of the next contender.
        names["torch"].set_num_threads(1)
        names["t"] = names["torch"].ones(16 * MIB)
    columns = {"k": np.arange(300_000) % 1000, "v": random_(300_000), "w": random_(300_000)}
    if "pandas" in needed and installed("pandas"):
        names["frame"] = import_module("pandas").DataFrame(columns)
    if "pyarrow" in needed and installed("pyarrow"):
        names["table"] = import_module("pyarrow").table(columns)
    return names


# -- arrays that JAX aliases or copies --------------------------------------------------

ARRAY_SIZES = {"1 KB": 1 << 10, "1 MB": 1 << 20, "64 MB": 1 << 26, "256 MB": 1 << 28}

#: Each creates an array of `n` float32 values.
ARRAYS: dict[str, Callable[[int], Any]] = {
    "empty": lambda n: np.empty(n, np.float32),
    "zeros": lambda n: np.zeros(n, np.float32),
    "full": lambda n: np.full(n, 3, np.float32),
    "arange": lambda n: np.arange(n, dtype=np.float32),
    "random": lambda n: np.random.default_rng(0).random(n, np.float32),
    "astype": lambda n: np.zeros(n, np.int16).astype(np.float32),
}


def arrays() -> Iterator[tuple[str, Any]]:
    """Create the arrays, one at a time."""
    for size, nbytes in ARRAY_SIZES.items():
        for name, make in ARRAYS.items():
            yield f"{name}, {size}", make(nbytes // 4)


def aliased_by_jax() -> dict[str, bool]:
    """Return for each array whether JAX aliases it."""
    aliased = {}
    for name, array in arrays():
        try:
            aliased[name] = zc.shares_memory(array, zc.convert(array, to="jax", copy=False))
        except CopyRequiredError:
            aliased[name] = False
    return aliased
