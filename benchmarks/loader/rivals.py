"""Batches without `zerocopy.loader`: recipes, code by hand, and other libraries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import zerocopy as zc
from benchmarks.loader.data import BATCH, NAMES, SMALL_BATCH, folder, row_groups
from benchmarks.loader.turns import Batches


def record_batches(path: Path) -> Iterator[Any]:
    """Return batches as Arrow's record batches."""
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(BATCH)


def recipe(path: Path, **options: Any) -> Batches:
    """Return ``zc.convert`` of each batch of ``iter_batches``, the recipe before there was a loader."""
    return lambda: (zc.convert(batch, "torch", **options) for batch in record_batches(path))


def by_hand(path: Path) -> Batches:
    """Return columns of torch by ``from_numpy``."""
    return lambda: map(_columns, record_batches(path))


def _columns(batch: Any) -> dict[str, Any]:
    import torch

    return {name: torch.from_numpy(batch[name].to_numpy()) for name in batch.schema.names}


def stack(path: Path) -> Batches:
    """Return matrices by ``torch.stack`` of the columns of each batch."""
    import torch

    def batches() -> Iterator[Any]:
        for batch in record_batches(path):
            yield torch.stack([torch.from_numpy(column.to_numpy()) for column in batch.columns], dim=1)

    return batches


def polars(path: Any, kind: str) -> Batches:
    """Return what polars streams: a dict of tensors, or with ``"tensor"`` a matrix."""
    import polars as pl

    def batches() -> Iterator[Any]:
        frames: Any = pl.scan_parquet(path).collect_batches(chunk_size=BATCH)
        return (frame.to_torch(kind) for frame in frames)

    return batches


def data_loader(path: Path, workers: int) -> Batches:
    """Return torch's DataLoader over ``iter_batches``; its workers exist before the clock runs."""
    from torch.utils.data import DataLoader

    from benchmarks.loader.worker import RecordBatches

    context = {"multiprocessing_context": "forkserver", "persistent_workers": True} if workers else {}
    loader: Any = DataLoader(RecordBatches(str(path), BATCH), batch_size=None, num_workers=workers, **context)  # type: ignore[arg-type]
    return lambda: loader


def data_loader_in_memory(path: Path) -> Batches:
    """Return a shuffled DataLoader over a TensorDataset, which is in memory before the clock runs."""
    from torch import from_numpy, stack
    from torch.utils.data import DataLoader, TensorDataset

    table = pq.read_table(path)
    rows = stack([from_numpy(table[name].to_numpy()) for name in NAMES], dim=1)
    loader: Any = DataLoader(TensorDataset(rows), batch_size=BATCH, shuffle=True)
    return lambda: loader


def shuffled_by_hand(path: Path) -> Batches:
    """Return rows in a random order within a row group: ``torch.stack``, then rows of a permutation."""
    import torch

    def batches() -> Iterator[Any]:
        for group in row_groups(path):
            rows = torch.stack([torch.from_numpy(column.to_numpy()) for column in group.columns], dim=1)
            order = torch.randperm(len(rows))
            for low in range(0, len(rows), BATCH):
                yield rows[order[low : low + BATCH]]

    return batches


def taken_by_hand(path: Path) -> Batches:
    """Return columns in a random order within a row group: rows of a permutation by ``Table.take``."""
    random = np.random.default_rng(0)

    def batches() -> Iterator[Any]:
        for group in row_groups(path):
            order = random.permutation(group.num_rows)
            for low in range(0, len(order), BATCH):
                batch = group.take(order[low : low + BATCH]).combine_chunks()
                yield _columns(batch.to_batches()[0])

    return batches


def interactions_by_hand(path: Path, shuffled: bool) -> Batches:
    """Return batches of a recommender's table; shuffled, in a random order within a row group."""
    import torch

    def batches() -> Iterator[Any]:
        for group in row_groups(path, read_dictionary=["shop"]):
            columns = {}
            for name, chunks in zip(group.column_names, group.columns, strict=True):
                column = chunks.combine_chunks()
                column = column.chunk(0) if hasattr(column, "chunks") else column
                if name == "embedding":
                    values = column.flatten().to_numpy().reshape(len(column), -1)
                elif name == "shop":
                    values = column.indices.to_numpy()
                else:
                    values = column.fill_null(0).to_numpy()
                    columns[f"{name}, null"] = column.is_null().to_numpy(zero_copy_only=False)
                columns[name] = values
            tensors = {name: torch.from_numpy(values) for name, values in columns.items()}
            if shuffled:
                order = torch.randperm(group.num_rows)
                tensors = {name: tensor[order] for name, tensor in tensors.items()}
            for low in range(0, group.num_rows, SMALL_BATCH):
                yield {name: tensor[low : low + SMALL_BATCH] for name, tensor in tensors.items()}

    return batches


@cache
def _dataset(path: Path) -> Any:
    """Return a Hugging Face data set, whose Arrow file is written before the clock runs."""
    import datasets

    datasets.disable_progress_bars()
    return datasets.Dataset.from_parquet(str(path), cache_dir=str(folder() / "datasets"))


def hugging_face(path: Path, form: str) -> Batches:
    """Return batches of Hugging Face datasets in the order of the file; from Arrow, with ``zc.convert``."""
    dataset = _dataset(path).with_format(form)
    if form == "arrow":
        return lambda: (zc.convert(table, "torch") for table in dataset.iter(batch_size=BATCH))
    return lambda: dataset.iter(batch_size=BATCH)


def hugging_face_shuffled(path: Path) -> Batches:
    """Return batches of Hugging Face datasets, shuffled anew for each epoch; with ``zc.convert``."""
    dataset = _dataset(path)

    def batches() -> Iterator[Any]:
        for table in dataset.shuffle().with_format("arrow").iter(batch_size=BATCH):
            yield zc.convert(table, "torch")

    return batches


def tf_data(path: Path) -> Batches:
    """Return matrices of ``tf.data.Dataset.from_generator``."""
    import tensorflow as tf

    def rows() -> Iterator[Any]:
        for batch in record_batches(path):
            yield np.stack([column.to_numpy() for column in batch.columns], axis=1)

    signature = tf.TensorSpec(shape=(None, len(NAMES)), dtype=tf.float32)
    dataset = tf.data.Dataset.from_generator(rows, output_signature=signature).prefetch(2)
    return lambda: dataset
