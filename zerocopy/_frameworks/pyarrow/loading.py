"""pyarrow's data sets, Parquet files, scanners and readers."""

from __future__ import annotations

from functools import partial
from typing import Any

from zerocopy.loading.dataset import Dataset, Stream, choose
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.sources.columnar import OpenParquet, ParquetFiles
from zerocopy.loading.sources.files import Files
from zerocopy.loading.sources.int96 import refuse_int96
from zerocopy.loading.sources.streams import BatchStream
from zerocopy.protocols.exporter_errors import ignored_errors

_NOT_PICKLED = "cannot be pickled: pyarrow pickles data sets of files without a filter"


class Loading(LoadingHook):
    """Data sets, Parquet files, scanners and readers. Tables and record batches are converted as tables."""

    def open(self, obj: Any, columns: Any) -> Dataset | Stream | None:
        """Return a data set, a ParquetFile, a Scanner or a RecordBatchReader."""
        import pyarrow as pa
        from pyarrow import dataset as ds, parquet as pq

        name = f"pyarrow.{type(obj).__name__}"
        if isinstance(obj, pa.RecordBatchReader):
            return BatchStream(name, obj.schema, partial(iter, obj), once=True)
        if isinstance(obj, pq.ParquetFile):
            return OpenParquet(obj, columns)
        if isinstance(obj, ds.Scanner):
            return BatchStream(name, obj.projected_schema, obj.to_batches, only_here=_NOT_PICKLED)
        if isinstance(obj, ds.Dataset):
            return _data_set(obj, columns, name)
        return None


def _data_set(data: Any, columns: Any, name: str) -> Dataset | Stream:
    """Return the row groups of Parquet files; another data set, or one with a filter, is a stream."""
    from pyarrow import dataset as ds, parquet as pq

    only_here, fragments = _NOT_PICKLED, []
    if isinstance(data, ds.FileSystemDataset):
        with ignored_errors():  # the data set has a filter
            only_here, fragments = "", list(data.get_fragments())
    is_parquet = isinstance(getattr(data, "format", None), ds.ParquetFileFormat)
    if is_parquet and fragments and all(each.row_groups is None or _is_whole(each) for each in fragments):
        infos = data.filesystem.get_file_info([fragment.path for fragment in fragments])
        files = Files(f"loader({name})", infos, data.filesystem)
        return ParquetFiles(files, columns, data.schema, data)
    names = choose(columns, data.schema.names)
    if is_parquet:
        call = "pyarrow.dataset.dataset(path, format=pyarrow.dataset.ParquetFileFormat("
        call += 'coerce_int96_timestamp_unit="us"))'
        for path in data.files:
            refuse_int96(name, pq.read_metadata(path, filesystem=data.filesystem), data.schema, names, call)
    schema = data.scanner(columns=names).projected_schema
    return BatchStream(name, schema, partial(data.to_batches, columns=names), only_here=only_here)


def _is_whole(fragment: Any) -> bool:
    return bool(len(fragment.row_groups) == fragment.metadata.num_row_groups)
