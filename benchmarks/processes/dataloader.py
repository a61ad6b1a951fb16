"""torch's DataLoader: a worker returns a batch of 32 MiB, and the main process reads one element."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

import numpy as np
from torch import from_numpy
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.processes.row import Contender, elapsed, memcpy, row
from benchmarks.suite import Case, Settings
from zerocopy.integrations.multiprocessing import shared_collate

BATCH_BYTES, QUICK_BATCH_BYTES = 32 << 20, 4 << 20
FRAMEWORKS = ("numpy", "torch")
#: Batches that a worker makes in advance.
_PREFETCH = 2
#: Batches of one sample of the clock, after those that were made while other contenders had their turn.
_BATCHES = 6
_ROUNDS = 5


def rows(settings: Settings) -> Iterator[Case]:
    """Yield the cases with 1 and with 2 workers."""
    # Not forked from this process, which has threads of JAX and TensorFlow.
    get_context("forkserver").set_forkserver_preload([__name__])
    nbytes = QUICK_BATCH_BYTES if settings.quick else BATCH_BYTES
    for workers in (1, 2):
        for framework in filter(settings.wants, FRAMEWORKS):
            today, ours = (_Loader(framework, workers, nbytes, side) for side in (False, True))
            contenders = [
                Contender("DataLoader", "idiom", today.per_batch),
                Contender("DataLoader and zerocopy", "ours", ours.per_batch),
                memcpy(nbytes),
            ]
            name = f"DataLoader, {workers} worker{'s' * (workers > 1)}, {framework}"
            yield row(name, contenders, settings, rounds=_ROUNDS)
            today.close()
            ours.close()


class _Batches(IterableDataset[Any]):
    """Batches that are in the worker's memory already: only their way is measured."""

    def __init__(self, nbytes: int, framework: str) -> None:
        self._nbytes, self._framework = nbytes, framework

    def __iter__(self) -> Iterator[Any]:
        array = np.random.default_rng(0).random(self._nbytes // 4, dtype=np.float32)
        while True:
            # torch's own reducer moves a tensor to shared memory for good, so that each batch needs another.
            yield array if self._framework == "numpy" else from_numpy(array).clone()


class _Loader:
    """A loader whose workers run until it is closed."""

    def __init__(self, framework: str, workers: int, nbytes: int, ours: bool) -> None:
        # A tensor without zerocopy is a copy of the worker's batch; with it, the batch itself is shared.
        source = "numpy" if ours else framework
        loader: Any = DataLoader(
            _Batches(nbytes, source),
            batch_size=None,
            num_workers=workers,
            prefetch_factor=_PREFETCH,
            collate_fn=shared_collate(framework, stack=False) if ours else _unchanged,
            multiprocessing_context="forkserver",
        )
        self._batches, self._made = iter(loader), _PREFETCH * workers + 1

    def per_batch(self) -> float:
        """Return the nanoseconds of a batch, over several batches in a row."""
        self._read(self._made)
        return elapsed(lambda: self._read(_BATCHES)) / _BATCHES

    def _read(self, count: int) -> None:
        for _ in range(count):
            batch = next(self._batches)
            float(batch[5])
            del batch

    def close(self) -> None:
        del self._batches


def _unchanged(batch: Any) -> Any:
    return batch
