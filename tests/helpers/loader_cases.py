"""Loaders over small data whose rows have numbers, and the order in which rows are delivered."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zerocopy as zc
from zerocopy.errors import ReadError
from zerocopy.loading.dataset import Dataset, Group, Stream
from zerocopy.loading.loader import Loader
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.order import Order, window_positions


class Groups(Dataset):
    """Groups of given sizes, some of which cannot be read; columns ``id`` and ``x = id / 2``."""

    def __init__(self, sizes: Sequence[int], broken: Sequence[int] = (), text: bool = False) -> None:
        self.name = "groups"
        self.groups = [Group(size, "memory", k) for k, size in enumerate(sizes)]
        self.starts = [0, *np.cumsum(sizes).tolist()]
        self.broken = set(broken)
        fields = {"id": pa.int64(), "x": pa.float64()} | ({"text": pa.string()} if text else {})
        self.schema = pa.schema(fields)
        self.reads: list[int] = []

    def read(self, index: int) -> Any:
        self.reads.append(index)
        if index in self.broken:
            raise ReadError("reading", "it is broken", file="memory", row_group=index)
        ids = np.arange(self.starts[index], self.starts[index + 1])
        columns: dict[str, Any] = {"id": ids, "x": ids / 2}
        if "text" in self.schema.names:
            columns["text"] = [str(number) for number in ids]
        return pa.table(columns, schema=self.schema)

    def fingerprint(self) -> str:
        return f"{self.starts}"


class Tables(Stream):
    """A stream of tables of given sizes; columns ``id`` and ``x``."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.groups = Groups(sizes)
        self.name, self.schema = "tables", self.groups.schema

    def batches(self) -> Any:
        return (self.groups.read(index) for index in range(len(self.groups.groups)))

    def fingerprint(self) -> str:
        return self.groups.fingerprint()


def loader_of(source: Dataset | Stream, to: str = "numpy", *, batch_size: int, **options: Any) -> Loader:
    """Return a loader of a dataset or stream."""
    return Loader(source, LoaderOptions(to, batch_size, **options), source.schema.empty_table())


def ids(batch: Any) -> list[int]:
    """Return the numbers of the rows of a batch, whose columns must be aligned."""
    if isinstance(batch, pa.Table):
        batch = {name: batch[name].to_numpy() for name in batch.column_names}
    elif not isinstance(batch, dict):
        array = np.asarray(batch)
        batch = {"id": array[:, 0], "x": array[:, 1]}
    numbers = np.asarray(batch["id"])
    assert np.array_equal(np.asarray(batch["x"]), numbers / 2)
    if "text" in batch:
        assert [int(text) for text in batch["text"]] == numbers.tolist()
    return [int(number) for number in numbers]


def parquet_file(folder: Path, rows: int, group: int, name: str = "rows.parquet") -> str:
    """Write a file with the columns ``id`` and ``x``."""
    path = folder / name
    numbers = np.arange(rows)
    pq.write_table(pa.table({"id": numbers, "x": numbers / 2}), path, row_group_size=group)
    return str(path)


def expected_batches(
    sizes: Sequence[int],
    batch: int,
    window: int,
    seed: int = 0,
    epoch: int = 0,
    shard: tuple[int, int] = (0, 1),
    drop_last: bool = False,
    broken: Sequence[int] = (),
) -> list[list[int]]:
    """Return the row numbers of the batches of an epoch, computed row by row; `window` 0 does not shuffle."""
    starts = [0, *np.cumsum(sizes).tolist()]
    order = Order(sizes, seed, epoch) if window else Order(sizes)
    rows = [(group, row) for group in order.groups for row in range(starts[group], starts[group + 1])]
    total, (rank, world) = len(rows), shard
    if drop_last:
        total -= total % world
    low, high = total * rank // world, total * (rank + 1) // world
    sequence = rows[low:high]
    if window:
        sequence = []
        for start in range(low, high, window):
            part = rows[start : min(start + window, high)]
            places = window_positions(seed, epoch, start, len(part)).tolist()
            placed = dict(zip(places, part, strict=True))
            sequence += [placed[place] for place in range(len(part))]
    batches = []
    for start in range(0, len(sequence), batch):
        kept = [row for group, row in sequence[start : start + batch] if group not in broken]
        if len(kept) == batch or (kept and not drop_last):
            batches.append(kept)
    return batches


def random_points(count: int, most: int, seed: int = 0) -> list[int]:
    """Return `count` numbers from 0 to `most`."""
    source = random.Random(seed)
    return [source.randint(0, most) for _ in range(count)]


__all__ = ["Groups", "Tables", "expected_batches", "ids", "loader_of", "parquet_file", "random_points", "zc"]
