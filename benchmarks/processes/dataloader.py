"""torch's DataLoader: a worker returns a batch of 32 MiB, and the main process reads one element."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import from_numpy
from torch.utils.data import DataLoader, Dataset

from benchmarks.processes.pipes import Row
from benchmarks.processes.row import Contender, memcpy, row
from benchmarks.suite import Case, Settings
from zerocopy.integrations.multiprocessing import shared_collate

BATCH_BYTES = 32 << 20
_WARM = 8  # batches: segments are allocated, and the queue is filled
SIDES = ("today", "zerocopy")


class _Batches(Dataset[Any]):
    """Batches that are in the worker's memory already: nothing is measured but their way."""

    def __init__(self, count: int, framework: str) -> None:
        self._count, self._framework, self._array = count, framework, np.empty(0, np.float32)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        if not self._array.nbytes:
            self._array = np.random.default_rng(0).random(BATCH_BYTES // 4, dtype=np.float32)
        # torch's own reducer moves a tensor to shared memory for good, so that each batch needs another.
        return self._array if self._framework == "numpy" else from_numpy(self._array).clone()


def measure(
    frameworks: Sequence[str] = ("numpy", "torch"),
    workers: Sequence[int] = (1, 2),
    batches: int = 30,
    rounds: int = 3,
) -> list[Row]:
    """Return rows of the sides "today" and "zerocopy"; the framework of a row is like "torch, 2 workers"."""
    result = []
    for framework in frameworks:
        for count in workers:
            result += _compare(framework, count, batches, rounds)
    return result


def rows(settings: Settings) -> Iterable[Case]:
    """Return the cases of the suite: "DataLoader, 1 worker, torch" and the others."""
    batches = 2 if settings.quick else 12
    for framework in filter(settings.wants, ("numpy", "torch")):
        for workers in (1, 2):
            name = f"DataLoader, {workers} worker{'s' * (workers > 1)}, {framework}"
            contenders = [
                Contender(label, role, partial(_nanoseconds, framework, workers, batches, side))
                for label, role, side in (("zerocopy", "ours", "zerocopy"), ("torch", "idiom", "today"))
            ]
            yield row(name, [*contenders, memcpy(BATCH_BYTES)], settings)


def _nanoseconds(framework: str, workers: int, batches: int, side: str) -> float:
    return _per_batch(framework, workers, batches, side) * 1e9


def _compare(framework: str, workers: int, batches: int, rounds: int) -> list[Row]:
    times: dict[str, list[float]] = {"memcpy": [], **{side: [] for side in SIDES}}
    one, other = np.ones(BATCH_BYTES, np.uint8), np.ones(BATCH_BYTES, np.uint8)
    for _ in range(rounds):
        times["memcpy"] += [_copy(one, other) for _ in range(5)]
        for side in SIDES:
            times[side].append(_per_batch(framework, workers, batches, side))
    median = {side: statistics.median(values) for side, values in times.items()}
    name = f"{framework}, {workers} worker{'s' * (workers > 1)}"
    return [Row(name, side, median[side], median["memcpy"]) for side in SIDES]


def _copy(source: Any, target: Any) -> float:
    start = time.perf_counter()
    np.copyto(target, source)
    return time.perf_counter() - start


def _unchanged(batch: Any) -> Any:
    return batch


def _per_batch(framework: str, workers: int, batches: int, side: str) -> float:
    # Without a copy of the dataset's tensor, the zerocopy side starts from the same batch as NumPy's.
    source = framework if side == "today" else "numpy"
    collate = _unchanged if side == "today" else shared_collate(framework, stack=False)
    loader = DataLoader(
        _Batches(batches + _WARM, source),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=2,
        collate_fn=collate,
    )
    start = 0.0
    for index, batch in enumerate(_read(loader)):
        if index == _WARM:
            start = time.perf_counter()
        del batch
    return (time.perf_counter() - start) / (batches - 1)


def _read(loader: Any) -> Iterator[float]:
    for batch in loader:
        yield float(batch[5])
