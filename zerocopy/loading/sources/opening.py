"""``open_source``: the dataset or stream that a caller's object describes."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from typing import Any

from zerocopy.loading.dataset import Dataset, Stream
from zerocopy.loading.errors import ReadError
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.sources.parquet import ParquetFiles
from zerocopy.loading.sources.table import ArrayDataset, TableDataset


def open_source(source: Any, options: LoaderOptions) -> Dataset | Stream:
    """Return what the loader reads.

    Raises
    ------
    UnsupportedConversionError
        `source` is not a source of rows.
    ReadError
        A file does not exist or cannot be read.
    """
    if isinstance(source, (str, os.PathLike)):
        return _files(os.fspath(source), options)
    if isinstance(source, Mapping):
        return ArrayDataset(source, "a dict of arrays")
    import pyarrow as pa

    return TableDataset(pa.table(source), options.columns, type(source).__name__)


def _files(path: str, options: LoaderOptions) -> Dataset:
    paths = sorted(glob.glob(path)) if glob.has_magic(path) else [path]
    if not paths or not os.path.exists(paths[0]):
        raise ReadError(
            f"loader({path!r})",
            "no file matches the pattern" if glob.has_magic(path) else "the file does not exist",
            'pass an existing path, a glob such as "data/*.parquet", or a URL',
            code="missing-file",
            file=path,
        )
    return ParquetFiles(paths, options.columns)
