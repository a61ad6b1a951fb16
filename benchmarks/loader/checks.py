"""Checks that an epoch has all rows, by their number and the sum of their labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.loader.data import labels


def label_of(batch: Any) -> Any:
    """Return the labels of a batch: a dict or a table of columns, a matrix, or a list of one matrix."""
    if isinstance(batch, (list, tuple)):
        (batch,) = batch
    if isinstance(batch, Mapping) or hasattr(batch, "columns"):
        column = batch["label"]
        return np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    return np.asarray(batch[:, -1])


def all_rows(rows: int) -> Callable[[Iterable[Any]], None]:
    """Return a check of epochs with `rows` rows of `data.numbers`."""
    return partial(_check, rows)


def _check(rows: int, batches: Iterable[Any]) -> None:
    count, total = 0, 0.0
    for batch in batches:
        column = label_of(batch)
        count, total = count + len(column), total + float(column.sum(dtype=np.float64))
    expected = float(labels(rows).sum(dtype=np.float64))
    if (count, total) != (rows, expected):
        raise ValueError(f"gives {count} rows with a sum of labels of {total}, not {rows} with {expected}")


def count_rows(rows: int, length: Callable[[Any], int]) -> Callable[[Iterable[Any]], None]:
    """Return a check of the number of rows only; `length` returns that of a batch."""

    def check(batches: Iterable[Any]) -> None:
        count = sum(map(length, batches))
        if count != rows:
            raise ValueError(f"gives {count} rows, not {rows}")

    return check
