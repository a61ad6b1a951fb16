"""Rows of Hugging Face datasets, for the loader."""

from __future__ import annotations

from functools import partial
from typing import Any

from zerocopy._frameworks.datasets import PRIVATE
from zerocopy.errors import Fix, UnsupportedConversionError
from zerocopy.loading.dataset import Dataset, Stream
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.sources.memory import ORDERED_ROWS, TableDataset
from zerocopy.loading.sources.streams import BatchStream


class Loading(LoadingHook):
    """Data sets and streams in the order of their indices; a format that keeps the values is ignored."""

    def open(self, obj: Any, columns: Any) -> Dataset | Stream | None:
        """Return the rows of a data set, a table in memory, or of an iterable data set, a stream."""
        if not hasattr(obj, "with_format"):
            return None
        name = f"datasets.{type(obj).__name__}"
        _refuse_changed_values(obj, name)
        table = getattr(getattr(obj, "data", None), "table", None)
        if table is not None and PRIVATE():
            order = None if obj._indices is None else obj._indices.column(0).to_numpy()
            return TableDataset(table, name, order)
        batches = obj.with_format("arrow")
        features = getattr(obj, "features", None)
        schema = features.arrow_schema if features else next(iter(batches.iter(1))).schema
        return BatchStream(name, schema, partial(batches.iter, ORDERED_ROWS))


def _refuse_changed_values(obj: Any, name: str) -> None:
    """Refuse a data set whose rows have other values than its table, through a transform or a format."""
    applied, plain = getattr(obj, "format", {"type": None}), "{x}.with_format(None)"  # a stream has none
    fixes = [Fix(plain, "gives the rows without it")]
    if applied["type"] == "custom":
        why = "it has a transform, which the loader does not call"
        call = f"{plain}.map({{x}}.format['format_kwargs']['transform'], batched=True"
        fixes.insert(0, Fix(f"{call}, remove_columns={{x}}.column_names)", "writes its rows once"))
    elif "dtype" in applied.get("format_kwargs", ()):
        why = "its format casts the values (dtype=), and the loader reads them without a format"
    else:
        return
    raise UnsupportedConversionError(f"loader({name})", why, code="not-a-source", fixes=fixes)
