"""Columns of vectors of one length to one tensor: Arrow, polars, DuckDB, pandas, Hugging Face, the loader."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from benchmarks.suite import Case, Goal, Section, median
from benchmarks.tables.contest import Method, Question, array, tasks

ROWS, WIDTH = 20_000, 768
#: Rows whose numbers are Python objects.
PYTHON_ROWS = 2_000

_OPTIONS = "batch=1024, shuffle=True"
#: By case: the most that zerocopy may take, relative to the method that starts with this code.
LIMITS = {
    "Arrow list": (1.2, "torch.from_numpy(c.cast"),
    "polars List": (1.2, "torch.from_numpy(s.list"),
    "DuckDB over Parquet": (1.1, "torch.from_numpy(duckdb"),
    "pandas, arrays": (1.0, "torch.from_numpy(np.stack"),
    "pandas, lists of numbers": (1.0, "torch.from_numpy(np.stack"),
    "datasets, List": (0.05, "ds.with_format"),
    "datasets, Array2D": (0.05, "ds.with_format"),
    "loader, shuffled": (2.0, "sum(pq.ParquetFile"),
}


def _table(rows: int) -> Any:
    import pyarrow as pa

    values = pa.array(np.random.default_rng(0).random(rows * WIDTH, np.float32))
    offsets = pa.array(np.arange(0, (rows + 1) * WIDTH, WIDTH, dtype=np.int32))
    return pa.table({"vector": pa.ListArray.from_arrays(offsets, values)})


def _column(table: Any) -> dict[str, Any]:
    return {"c": table["vector"].chunk(0)}


def _series(table: Any) -> dict[str, Any]:
    import polars as pl

    return {"s": pl.from_arrow(table["vector"].chunk(0))}


def _objects(table: Any, lists: bool = False) -> dict[str, Any]:
    """Return the vectors as a series of arrays, as ``pandas.read_parquet`` does, or of lists."""
    import pandas as pd

    matrix = table["vector"].chunk(0).values.to_numpy().reshape(len(table), WIDTH)
    return {"s": pd.Series([row.tolist() if lists else row.copy() for row in matrix])}


def _file(table: Any) -> dict[str, Any]:
    """Return a Parquet file as Spark and DuckDB write it, without Arrow's schema."""
    import pyarrow.parquet as pq

    folder = mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = str(Path(folder, "vectors.parquet"))
    pq.write_table(table, path, row_group_size=-(-len(table) // 5), store_schema=False)
    return {"path": path, "query": f"SELECT vector FROM '{path}'"}


def _dataset(table: Any, images: bool = False) -> dict[str, Any]:
    """Return a data set of the vectors, or of images of the same numbers."""
    import datasets
    import pyarrow as pa

    if images:
        schema = datasets.Features({"vector": datasets.Array2D((WIDTH // 32, 32), "float32")}).arrow_schema
        lines = table["vector"].chunk(0).values
        for size in (32, WIDTH // 32):
            offsets = np.arange(0, len(lines) + 1, size, dtype=np.int32)
            lines = pa.ListArray.from_arrays(pa.array(offsets), lines)
        column = pa.ExtensionArray.from_storage(schema.field("vector").type, lines)
        table = pa.Table.from_arrays([column], schema=schema)
    return {"ds": datasets.Dataset(table)}


def questions(rows: int = ROWS, python_rows: int = PYTHON_ROWS) -> list[Question]:
    """Return a question for each kind of vectors."""
    fixed = f"pa.list_(pa.float32(), {WIDTH})"
    as_matrix = f"flatten().to_numpy().reshape(-1, {WIDTH})"
    stack = [
        Method('zc.convert(s, "torch")', "ours"),
        Method("torch.from_numpy(np.stack(s))"),
        Method("torch.from_numpy(np.array(s.tolist()))"),
    ]
    dataset = [
        Method('zc.convert(ds, "torch")["vector"]', "ours"),
        Method('ds.with_format("torch")[:]["vector"]', "library"),
    ]
    table, short = partial(_table, rows), partial(_table, python_rows)
    return [
        Question(
            "Arrow list",
            table,
            [
                Method('zc.convert(c, "torch", lists="dense")', "ours"),
                Method(f"torch.from_numpy(c.cast({fixed}).{as_matrix})"),
            ],
            array,
            ("pyarrow", "torch"),
            _column,
        ),
        Question(
            "polars List",
            table,
            [
                Method('zc.convert(s, "torch")', "ours"),
                Method(f"torch.from_numpy(s.list.to_array({WIDTH}).to_numpy())"),
            ],
            array,
            ("pyarrow", "polars", "torch"),
            _series,
        ),
        Question(
            "DuckDB over Parquet",
            table,
            [
                Method('zc.convert(duckdb.sql(query), "torch", layout="matrix")', "ours"),
                Method(
                    'torch.from_numpy(duckdb.sql(query).to_arrow_table()["vector"].combine_chunks()'
                    f".cast({fixed}).{as_matrix})"
                ),
            ],
            array,
            ("pyarrow", "duckdb", "torch"),
            _file,
        ),
        Question("pandas, arrays", table, stack, array, ("pyarrow", "pandas", "torch"), _objects),
        Question(
            "pandas, lists of numbers",
            short,
            stack,
            array,
            ("pyarrow", "pandas", "torch"),
            partial(_objects, lists=True),
        ),
        Question("datasets, List", table, dataset, array, ("pyarrow", "datasets", "torch"), _dataset),
        Question(
            "datasets, Array2D",
            table,
            dataset,
            array,
            ("pyarrow", "datasets", "torch"),
            partial(_dataset, images=True),
        ),
        Question(
            "loader, shuffled",
            table,
            [
                Method(f"sum(len(x['vector']) for x in zc.loader(path, 'torch', {_OPTIONS}))", "ours"),
                Method("sum(pq.ParquetFile(path).read_row_group(k).num_rows for k in range(5))"),
            ],
            array,
            ("pyarrow", "torch"),
            _file,
        ),
    ]


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Compare zerocopy with code by hand, and with reading alone."""
    judged = []
    for case in cases:
        limit, start = LIMITS[case.name]
        ours, theirs = case.timed("ours"), [e for e in case.timed() if e.label.startswith(start)]
        if ours and theirs:
            ratio = median(ours[0]) / median(theirs[0])
            judged.append(Goal(f"vectors, by hand: {limit}x at most", case.name, ratio, limit, "x"))
    return judged


SECTIONS = (
    Section(
        "lists",
        f"{ROWS:,} vectors of {WIDTH} float32, or {PYTHON_ROWS:,} lists of Python numbers, to one tensor",
        partial(tasks, questions),
        "rivals",
        goals,
    ),
)
