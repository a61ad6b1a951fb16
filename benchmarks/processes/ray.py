"""``ray.put`` and ``ray.get``: Ray alone, and with zerocopy's serializers; in turns, in one process.

``python -m benchmarks.processes.ray`` prints the medians of one run on a local cluster.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

MIB = 1 << 20
VALUES = 64 * MIB // 4
ROWS, COLUMNS = 1_000_000, 10
STORE = 1 << 30
SIDES = ("today", "zerocopy")


@dataclass(frozen=True)
class Row:
    """The medians of one framework on one side.

    Attributes
    ----------
    framework, side : str
        `side` is one of `SIDES`.
    nbytes : int
        Size of the object.
    put, get : float
        Seconds of ``ray.put`` and of ``ray.get`` in the same process.
    memcpy : float
        Seconds of a copy of `nbytes` bytes to memory that was written before, in the same rounds.
    private : int
        Bytes by which the private memory of another process grew when it got the object; the smallest of
        three.
    """

    framework: str
    side: str
    nbytes: int
    put: float
    get: float
    memcpy: float
    private: int

    def __str__(self) -> str:
        put, get = (f"{t * 1e3:7.2f} ms = {t / self.memcpy:6.2f}x" for t in (self.put, self.get))
        return (
            f"{self.framework:10} {self.side:9} put {put}  get {get}  private {self.private / MIB:5.1f} MiB"
        )


def objects() -> dict[str, Callable[[], Any]]:
    """Return functions that make one object of each framework."""

    def torch() -> Any:
        import torch

        return torch.from_numpy(_values())

    def jax() -> Any:
        import jax.numpy

        return jax.numpy.array(_values()).block_until_ready()

    def tensorflow() -> Any:
        import tensorflow

        return tensorflow.constant(_values())

    def polars() -> Any:
        import polars

        return polars.DataFrame({f"c{i}": np.random.default_rng(i).random(ROWS) for i in range(COLUMNS)})

    return {"torch": torch, "jax": jax, "tensorflow": tensorflow, "polars": polars}


def _values() -> Any:
    return np.random.default_rng(0).random(VALUES, np.float32)


@contextmanager
def cluster() -> Iterator[Any]:
    """Start a local Ray with a reader in another process, and yield the reader."""
    import ray

    from zerocopy.integrations.ray import runtime_env

    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=STORE,
        include_dashboard=False,
        configure_logging=False,
        log_to_driver=False,
        runtime_env=runtime_env(),
    )
    try:
        # Pages of the store that were never written take seven times as long.
        touched = [ray.put(_values()) for _ in range(STORE // (VALUES * 4) - 2)]
        del touched
        yield ray.remote(_Reader).remote()
    finally:
        ray.shutdown()


class _Reader:
    """An actor that reads objects and reports the growth of its private memory."""

    def __init__(self) -> None:
        self._kept: Any = None

    def growth(self, held: list[Any]) -> int:
        """Return the growth; `held` has a reference, because Ray resolves plain arguments."""
        import psutil
        import ray

        self._kept = None
        gc.collect()
        before = psutil.Process().memory_full_info().uss
        self._kept = ray.get(held[0])
        return int(psutil.Process().memory_full_info().uss - before)


def measure(rounds: int = 9) -> list[Row]:
    """Return the rows of each framework and side, on a cluster of their own."""
    with cluster() as reader:
        return [row for name, make in objects().items() for row in _rows(name, make(), reader, rounds)]


def _rows(name: str, obj: Any, reader: Any, rounds: int) -> list[Row]:
    nbytes = ROWS * COLUMNS * 8 if name == "polars" else VALUES * 4
    source, target = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    times: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    copies = []
    for i in range(-1, rounds):  # the first round is not counted
        for side in SIDES if i % 2 else SIDES[::-1]:
            pair = _put_and_get(obj, side)
            if i >= 0:
                times[side].append(pair)
        start = perf_counter()
        np.copyto(target, source)
        copies.append(perf_counter() - start)
    medians = {side: [statistics.median(each) for each in zip(*times[side], strict=True)] for side in SIDES}
    memcpy = statistics.median(copies)
    return [Row(name, side, nbytes, *medians[side], memcpy, _private(obj, side, reader)) for side in SIDES]


def _put_and_get(obj: Any, side: str) -> tuple[float, float]:
    import ray

    _switch(side)
    start = perf_counter()
    reference = ray.put(obj)
    middle = perf_counter()
    result = ray.get(reference)
    end = perf_counter()
    del result
    return middle - start, end - middle


def _private(obj: Any, side: str, reader: Any) -> int:
    import ray

    _switch(side)
    growths = [ray.get(reader.growth.remote([ray.put(obj)])) for _ in range(3)]
    return max(min(growths), 0)  # the framework frees caches meanwhile


def _switch(side: str) -> None:
    from zerocopy.integrations.ray import install, uninstall

    install() if side == "zerocopy" else uninstall()


if __name__ == "__main__":
    from benchmarks.processes.ray import measure as _measure  # not of __main__, which the actor cannot import

    for _row in _measure():
        print(_row)
