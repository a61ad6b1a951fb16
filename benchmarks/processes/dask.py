"""Dask: a task whose argument lies in another worker of the machine, against an empty task.

Three clusters run at the same time: Dask alone, frames over TCP, and handles. They take turns in each
round, so that changes of the machine affect all of them.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

#: 64 MiB of float32, or 80 MB of float64 in ten columns.
ARRAY_SIZE, ROWS, COLUMNS = 1 << 24, 1_000_000, 10
ARRAYS = ("numpy", "torch", "jax", "tensorflow")
TABLES = ("pyarrow", "pandas", "polars")
#: Options of `zerocopy.integrations.dask.install` for each side; None without it.
SIDES: dict[str, dict[str, Any] | None] = {
    "Dask alone": None,
    "frames over TCP": {"same_host": False},
    "handles": {},
}
_WARM = 3


class Row(NamedTuple):
    """Medians of one framework and side.

    Attributes
    ----------
    framework, side : str
    seconds : float
        From submitting a task in one worker to its result, when its argument lies in the other worker.
    empty_task : float
        The same without an argument.
    memcpy : float
        Copying as many bytes in one process, to memory that was used before.
    """

    framework: str
    side: str
    seconds: float
    empty_task: float
    memcpy: float


def measure(frameworks: Sequence[str] = ARRAYS + TABLES, rounds: int = 9) -> list[Row]:
    """Return the rows of frameworks; each round measures every side once, in random order."""
    import dask

    rows = []
    # All objects of a round fit into memory, and no side must spill.
    with dask.config.set({"distributed.worker.memory.terminate": False}), ExitStack() as stack:
        sides = {name: stack.enter_context(Side(options)) for name, options in SIDES.items()}
        for framework in frameworks:
            rows += _measure_framework(sides, framework, rounds)
    return rows


def _measure_framework(sides: dict[str, Side], framework: str, rounds: int) -> Iterable[Row]:
    times: dict[str, list[float]] = {name: [] for name in sides}
    empty: dict[str, list[float]] = {name: [] for name in sides}
    copies: list[float] = []
    for number in range(_WARM + rounds):
        for name in random.sample(list(sides), len(sides)):
            without, with_argument = sides[name].transfer(None), sides[name].transfer(framework)
            if number >= _WARM:
                empty[name].append(without)
                times[name].append(with_argument)
        copies.append(_memcpy(ROWS * COLUMNS * 8 if framework in TABLES else ARRAY_SIZE * 4))
    median = statistics.median
    return [Row(framework, name, median(times[name]), median(empty[name]), median(copies)) for name in sides]


class Side:
    """A cluster of two workers, with or without the serializers of zerocopy."""

    def __init__(self, options: dict[str, Any] | None) -> None:
        self._options = options
        self._stack = ExitStack()

    def __enter__(self) -> Side:
        from distributed import Client, LocalCluster

        import zerocopy.integrations.dask

        cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
        )
        self._stack.enter_context(cluster)
        self._client = self._stack.enter_context(Client(cluster, set_as_default=False))
        if self._options is not None:
            zerocopy.integrations.dask.install(self._client, **self._options)
        self._sender, self._receiver = sorted(self._client.scheduler_info()["workers"])
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def transfer(self, framework: str | None) -> float:
        """Return the seconds of one task in the receiver, whose argument is in the sender."""
        argument = self._client.submit(make, framework, workers=[self._sender], pure=False)
        self._client.submit(_nothing, argument, workers=[self._sender], pure=False).result()
        start = perf_counter()
        self._client.submit(read, argument, workers=[self._receiver], pure=False).result()
        return perf_counter() - start


def make(framework: str | None) -> Any:
    """Return an object of a framework; 0 for None."""
    if framework is None:
        return 0
    values = np.random.default_rng(0).random(ARRAY_SIZE, dtype="f4")
    if framework in TABLES:
        columns = {f"c{i}": values[:ROWS].astype("f8") for i in range(COLUMNS)}
        return _table(framework, columns)
    if framework == "torch":
        import torch

        return torch.from_numpy(values)
    if framework == "jax":
        import jax

        return jax.numpy.array(values).block_until_ready()
    if framework == "tensorflow":
        import tensorflow as tf

        return tf.constant(values)
    return values


def _table(framework: str, columns: dict[str, Any]) -> Any:
    if framework == "pyarrow":
        import pyarrow as pa

        return pa.table(columns)
    if framework == "pandas":
        import pandas as pd

        return pd.DataFrame(columns)
    import polars as pl

    return pl.DataFrame(columns)


def read(obj: Any) -> float:
    """Return one element without creating an array of the framework, which can compile a kernel."""
    if isinstance(obj, int):
        return 0
    if hasattr(obj, "__dataframe__") or hasattr(obj, "columns"):
        return float(len(obj))
    return float(np.asarray(obj)[5])


def _nothing(obj: Any) -> int:
    return 0


def _memcpy(nbytes: int) -> float:
    source, target = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    start = perf_counter()
    np.copyto(target, source)
    return perf_counter() - start


def main() -> None:
    """Print the rows."""
    for row in measure():
        over = row.seconds - row.empty_task
        print(
            f"{row.framework:10} {row.side:16} {row.seconds * 1e3:8.1f} ms, {over * 1e3:8.1f} ms over an "
            f"empty task of {row.empty_task * 1e3:.1f} ms; memcpy {row.memcpy * 1e3:.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
