"""Queries of polars as streams of batches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from zerocopy._frameworks.polars.series import has_nul
from zerocopy.errors import UnsupportedConversionError
from zerocopy.loading.dataset import Dataset, Stream, choose
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.sources.streams import BatchStream

#: Rows of a batch if polars collects the whole result first.
_ROWS = 1 << 17


class Loading(LoadingHook):
    """LazyFrames, whose query runs again in each epoch. DataFrames are converted as tables."""

    def open(self, obj: Any, columns: Any) -> Dataset | Stream | None:
        """Return the batches of a LazyFrame, of the chosen columns only."""
        import polars as pl
        import pyarrow as pa

        if not isinstance(obj, pl.LazyFrame):
            return None
        query = obj if columns is None else obj.select(choose(columns, obj.collect_schema().names()))
        kinds = query.collect_schema()
        if has_nul(pl.Struct(kinds)):
            why = "the name of a column or of a field has a NUL, and polars aborts when it exports one"
            raise UnsupportedConversionError("loader(polars.LazyFrame)", why, "rename it", code="nul-in-name")
        schema = pa.table(pl.DataFrame(schema=kinds)).schema
        return BatchStream("polars.LazyFrame", schema, partial(_batches, query))


def _batches(query: Any) -> Iterator[Any]:
    if hasattr(query, "collect_batches"):  # polars 2 calls it unstable
        return iter(query.collect_batches(maintain_order=True))
    frames: Iterator[Any] = query.collect().iter_slices(_ROWS)
    return frames
