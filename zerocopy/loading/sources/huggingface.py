"""Data sets of Hugging Face, which are recognised by their structure."""

from __future__ import annotations

import hashlib
from functools import cached_property, partial
from typing import Any

import numpy as np

from zerocopy.loading.dataset import Dataset, Group, Stream
from zerocopy.loading.sources.files import digest
from zerocopy.loading.sources.streams import BatchStream
from zerocopy.loading.sources.table import TableDataset, table_digest
from zerocopy.source import Array

_ROWS = 1 << 14


def is_data_set(obj: Any) -> bool:
    """Whether an object is a ``datasets.Dataset`` or ``datasets.IterableDataset``."""
    return type(obj).__module__.partition(".")[0] == "datasets" and hasattr(obj, "with_format")


def open_data_set(obj: Any) -> Dataset | Stream:
    """Return the rows of a data set, in the order of its indices; its format is ignored."""
    name = f"datasets.{type(obj).__name__}"
    table = getattr(getattr(obj, "data", None), "table", None)
    if table is not None and hasattr(obj, "_indices"):
        if obj._indices is None:
            return TableDataset(table, None, name)
        indices = obj._indices.column(0).to_numpy()
        return _IndexedTable(table, indices, name)
    batches = obj.with_format("arrow")
    features = getattr(obj, "features", None)
    schema = features.arrow_schema if features else next(iter(batches.iter(1))).schema
    return BatchStream(name, schema, partial(batches.iter, _ROWS))


class _IndexedTable(Dataset):
    """Rows of a table in the order of indices, as ``shuffle()`` and ``select()`` make them.

    Arrow takes 16,384 rows of 8 columns in 6 ms; the data set takes them one by one in 0.1 s.
    """

    in_memory = True

    def __init__(self, table: Any, indices: Array, name: str) -> None:
        self.name, self.schema = name, table.schema
        self._table, self._indices = table, indices
        self.groups = [
            Group(min(_ROWS, len(indices) - start), number=number)
            for number, start in enumerate(range(0, len(indices), _ROWS))
        ]

    def read(self, index: int) -> Any:
        start = index * _ROWS
        return self._table.take(self._indices[start : start + _ROWS]).combine_chunks()

    @cached_property
    def _digest(self) -> str:
        indices = np.ascontiguousarray(self._indices)
        return digest(table_digest(self._table), hashlib.sha256(indices.data).hexdigest())

    def fingerprint(self) -> str:
        return self._digest
