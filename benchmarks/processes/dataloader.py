"""torch's DataLoader: a worker returns a batch of 32 MiB, and the main process reads one element."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from time import perf_counter_ns
from typing import Any

import numpy as np
from torch import from_numpy
from torch.utils.data import DataLoader, Dataset

from benchmarks.processes.row import Contender, memcpy, row
from benchmarks.suite import Case, Settings
from zerocopy.integrations.multiprocessing import shared_collate

BATCH_BYTES, QUICK_BATCH_BYTES = 32 << 20, 4 << 20
FRAMEWORKS = ("numpy", "torch")
#: Batches that are read before the clock starts: segments are allocated, and the queue is filled.
_WARM, _BATCHES = 6, 9
#: Each round starts the workers of a loader.
_ROUNDS = 3


def rows(settings: Settings) -> Iterator[Case]:
    """Yield the cases with 1 and with 2 workers."""
    # Not forked from this process, which has threads of JAX and TensorFlow.
    get_context("forkserver").set_forkserver_preload([__name__])
    nbytes = QUICK_BATCH_BYTES if settings.quick else BATCH_BYTES
    for workers in (1, 2):
        for framework in filter(settings.wants, FRAMEWORKS):
            contenders = [
                Contender("DataLoader", "idiom", partial(_batch, framework, workers, nbytes, False)),
                Contender(
                    "DataLoader and zerocopy", "ours", partial(_batch, framework, workers, nbytes, True)
                ),
                memcpy(nbytes),
            ]
            name = f"DataLoader, {workers} worker{'s' * (workers > 1)}, {framework}"
            yield row(name, contenders, settings, rounds=_ROUNDS)


class _Batches(Dataset[Any]):
    """Batches that are in the worker's memory already: only their way is measured."""

    def __init__(self, nbytes: int, framework: str) -> None:
        self._nbytes, self._framework, self._array = nbytes, framework, np.empty(0, np.float32)

    def __len__(self) -> int:
        return _WARM + _BATCHES

    def __getitem__(self, index: int) -> Any:
        if not self._array.nbytes:
            self._array = np.random.default_rng(0).random(self._nbytes // 4, dtype=np.float32)
        # torch's own reducer moves a tensor to shared memory for good, so that each batch needs another.
        return self._array if self._framework == "numpy" else from_numpy(self._array).clone()


def _batch(framework: str, workers: int, nbytes: int, ours: bool) -> float:
    """Return the nanoseconds of a batch, over several batches in a row."""
    # A tensor without zerocopy is a copy of the worker's batch; with it, the batch itself is shared.
    source = "numpy" if ours else framework
    loader: Any = DataLoader(
        _Batches(nbytes, source),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=2,
        collate_fn=shared_collate(framework, stack=False) if ours else _unchanged,
        multiprocessing_context="forkserver",
    )
    start = 0
    for index, batch in enumerate(loader):
        float(batch[5])
        if index == _WARM:
            start = perf_counter_ns()
        del batch
    return (perf_counter_ns() - start) / (_BATCHES - 1)


def _unchanged(batch: Any) -> Any:
    return batch
