"""Small tables and files for the tests of the loader's sources."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zerocopy as zc

ROWS = 10


def small_table(first: int = 0, rows: int = ROWS) -> pa.Table:
    """Return a table of the columns ``x`` (float64) and ``y`` (int64)."""
    return pa.table({"x": np.arange(first, first + rows, dtype="f8"), "y": np.arange(first, first + rows)})


def write_files(folder: Path, count: int = 3, row_group_size: int = 4) -> list[str]:
    """Write Parquet files of `ROWS` rows each; their rows are numbered through."""
    paths = [folder / f"part-{number}.parquet" for number in range(count)]
    for number, path in enumerate(paths):
        pq.write_table(small_table(ROWS * number), path, row_group_size=row_group_size)
    return [str(path) for path in paths]


def columns_of(batches: Any) -> dict[Any, list[Any]]:
    """Return the values of all batches of NumPy arrays, by column."""
    columns: dict[Any, list[Any]] = {}
    for batch in batches:
        for name, values in batch.items():
            columns.setdefault(name, []).extend(values.tolist())
    return columns


def read(source: Any, **options: Any) -> dict[Any, list[Any]]:
    """Return the values that a loader of NumPy batches of 4 rows returns, by column."""
    return columns_of(zc.loader(source, to="numpy", batch_size=4, **options))


def open_files(of: Path) -> list[str]:
    """Return the data files in a folder that this process has open.

    Files of other tests can stay open until the garbage collector frees their exceptions.
    """
    folder = Path("/proc/self/fd")
    links = [os.readlink(link) for link in folder.iterdir() if link.is_symlink() and os.path.lexists(link)]
    suffixes = (".parquet", ".feather", ".arrow")
    return [link for link in links if link.endswith(suffixes) and link.startswith(str(of))]
