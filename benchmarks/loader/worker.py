"""The data set of torch's DataLoader; workers import this module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import from_numpy
from torch.utils.data import IterableDataset, get_worker_info


class RecordBatches(IterableDataset[Any]):
    """Batches of ``iter_batches`` as dicts of tensors; a worker has its share of the row groups."""

    def __init__(self, path: str, batch: int) -> None:
        self._path, self._batch = path, batch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        import pyarrow.parquet as pq

        info = get_worker_info()
        rank, world = (info.id, info.num_workers) if info is not None else (0, 1)
        with pq.ParquetFile(self._path) as file:
            groups = list(range(rank, file.num_row_groups, world))
            for batch in file.iter_batches(self._batch, row_groups=groups):
                yield {name: from_numpy(batch[name].to_numpy()) for name in batch.schema.names}
