"""Parquet files that cuDF decodes on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from zerocopy import registry
from zerocopy.loading.dataset import Dataset, DecodedRows
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.sources.columnar import DecodedFiles, ParquetFiles


class Loading(LoadingHook):
    """cuDF reads row groups, with GPUDirect Storage if KvikIO is configured for it."""

    can_decode = True

    def decoder(self, files: ParquetFiles, device: int) -> Dataset | None:
        registry.by_name("cudf").module()
        return DecodedFiles(files, partial(_decode, device), "cudf")


class FrameRows(DecodedRows):
    """Rows of a ``cudf.DataFrame`` with the default index."""

    def __init__(self, table: Any, device: int) -> None:
        self.table, self._device = table, device

    @property
    def num_rows(self) -> int:
        return len(self.table)

    @property
    def nbytes(self) -> int:
        with _on(self._device):
            return sum(int(self.table[name].memory_usage(index=False)) for name in self.table)

    def slice(self, start: int, length: int) -> FrameRows:
        with _on(self._device):
            part = self.table.iloc[start : start + length]
            # zc.convert would convert an index that does not start at 0 as a column.
            part.index = registry.by_name("cudf").module().RangeIndex(length)
        return FrameRows(part, self._device)

    def joined(self, others: Sequence[Any]) -> FrameRows:
        frames = [self.table, *(other.table for other in others)]
        with _on(self._device):
            table = registry.by_name("cudf").module().concat(frames, ignore_index=True)
            _finish()
        return FrameRows(table, self._device)


def _decode(device: int, path: str, row_groups: list[int], columns: list[str]) -> FrameRows:
    """Return row groups of a file; called in the reader's thread."""
    cudf = registry.by_name("cudf").module()
    with _on(device):
        # Folders such as year=2024 would become columns: the loader's columns are those of the file.
        options = {"use_pandas_metadata": False, "dataset_kwargs": {"partitioning": None}}
        table = cudf.read_parquet(path, columns=columns, row_groups=[row_groups], **options)
        if any(name not in table for name in columns):
            # pandas' metadata makes columns an index.
            levels = enumerate(table.index.names)
            table.index.names = [f"__index_level_{k}__" if name is None else name for k, name in levels]
            table = table.reset_index()
        table = table[columns]
        table.index = cudf.RangeIndex(len(table))
        _finish()
    return FrameRows(table, device)


def _on(device: int) -> Any:
    """Make a device current in this thread; cuDF depends on CuPy."""
    return registry.by_name("cupy").module().cuda.Device(device)


def _finish() -> None:
    """Wait for cuDF's work. Its stream can be this thread's own, for which the consumer cannot wait."""
    streams = registry.by_name("cupy").module().cuda.Stream
    streams.null.synchronize()
    streams.ptds.synchronize()
