"""Columns of vectors of one length, and images, to one tensor.

The vectors are in Arrow, polars, DuckDB, pandas, Hugging Face and the loader, the images in Pillow and PyAV.
"""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest, imported, installed, refusal
from benchmarks.goals import Promise, fastest, judge, labelled, ratio
from benchmarks.suite import Case, Section, Settings, Suite, Task
from benchmarks.tables.contest import Method, Question, array, tasks
from benchmarks.timing import Statement

ROWS, WIDTH = 20_000, 768
#: Of images: the most relative to a copy of Pillow.
LIMIT = 0.1
#: Rows whose numbers are Python objects.
PYTHON_ROWS = 2_000

_OPTIONS = "batch_size=1024, shuffle=True"
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

    def question(name: str, methods: list[Method], extra: Any, *more: str, table: Any = table) -> Question:
        return Question(name, table, methods, array, ("pyarrow", "torch", *more), extra)

    arrow = [
        Method('zc.convert(c, "torch", lists="dense")', "ours"),
        Method(f"torch.from_numpy(c.cast({fixed}).{as_matrix})"),
    ]
    polars = [
        Method('zc.convert(s, "torch")', "ours"),
        Method(f"torch.from_numpy(s.list.to_array({WIDTH}).to_numpy())"),
    ]
    query = [
        Method('zc.convert(duckdb.sql(query), "torch", layout="matrix")', "ours"),
        Method(
            'torch.from_numpy(duckdb.sql(query).to_arrow_table()["vector"].combine_chunks()'
            f".cast({fixed}).{as_matrix})"
        ),
    ]
    loader = [
        Method(f"sum(len(x['vector']) for x in zc.loader(path, 'torch', {_OPTIONS}))", "ours"),
        Method("sum(pq.ParquetFile(path).read_row_group(k).num_rows for k in range(5))"),
    ]
    return [
        question("Arrow list", arrow, _column),
        question("polars List", polars, _series, "polars"),
        question("DuckDB over Parquet", query, _file, "duckdb"),
        question("pandas, arrays", stack, _objects, "pandas"),
        question("pandas, lists of numbers", stack, partial(_objects, lists=True), "pandas", table=short),
        question("datasets, List", dataset, _dataset, "datasets"),
        question("datasets, Array2D", dataset, partial(_dataset, images=True), "datasets"),
        question("loader, shuffled", loader, _file),
    ]


PROMISES = tuple(
    Promise(f"vectors, by hand: {limit}x at most", ratio(labelled(start)), limit, cases=(case,))
    for case, (limit, start) in LIMITS.items()
)

#: The call by hand makes a copy of an image; the arrays of PyAV can be aliases, and have no goal.
IMAGES = tuple(
    Promise(
        f"images of Pillow: {LIMIT}x of its copy at most", ratio(fastest("library")), LIMIT, cases=(case,)
    )
    for case in ("Pillow RGB to NumPy", "Pillow RGB to torch")
)

WIDTH_OF_IMAGE, HEIGHT = 1920, 1080


def _image(mode: str) -> Any:
    from PIL import Image

    shape = (HEIGHT, WIDTH_OF_IMAGE, 3) if mode == "RGB" else (HEIGHT, WIDTH_OF_IMAGE)
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, shape, np.uint8), mode)


def _frame(form: str) -> Any:
    import av

    return av.VideoFrame.from_ndarray(np.asarray(_image("RGB")), "rgb24").reformat(format=form)


#: By case: the object, zerocopy's call, that of the library, which gives an equal array, and what they need.
_OBJECTS: dict[str, tuple[Callable[[str], Any], str, str, str, tuple[str, ...]]] = {
    "Pillow RGB to NumPy": (_image, "RGB", 'zc.convert(x, "numpy")', "np.asarray(x)", ("PIL",)),
    "Pillow L to NumPy": (_image, "L", 'zc.convert(x, "numpy")', "np.asarray(x)", ("PIL",)),
    "Pillow RGB to torch": (
        *(_image, "RGB", 'zc.convert(x, "torch")', "torch.from_numpy(np.array(x))"),
        ("PIL", "torch"),
    ),
    "PyAV rgb24 to torch": (
        *(_frame, "rgb24", 'zc.convert(x, "torch")', "torch.from_numpy(x.to_ndarray())"),
        ("PIL", "av", "torch"),
    ),
    "PyAV yuv420p, its luma to torch": (
        *(_frame, "yuv420p", 'zc.convert(x, "torch")["y"]', f"torch.from_numpy(x.to_ndarray()[:{HEIGHT}])"),
        ("PIL", "av", "torch"),
    ),
}


def image_tasks(settings: Settings) -> list[Task]:
    """Return a task for each kind of image whose libraries are installed."""
    if not settings.wants("numpy"):
        return []
    able = [name for name, (*_, needs) in _OBJECTS.items() if installed(*needs)]
    return [Task(name, partial(_images, name, settings)) for name in able]


def _images(name: str, settings: Settings) -> list[Case]:
    """Compare the results, then time both calls in turns."""
    make, form, ours, library, _ = _OBJECTS[name]
    names = imported(ours, library) | {"x": make(form)}

    def wrong() -> str:
        result, expected = (Statement(code, names).value() for code in (ours, library))
        a, b = np.asarray(result), np.asarray(expected)
        if a.dtype != b.dtype or not np.array_equal(a, b):
            return "gives other values"
        return "" if zc.shares_memory(names["x"], result) else "copies"

    contest = Contest()
    case = contest.case(name)
    contest.add(case, ours, "ours", Statement(ours, names), refusal(wrong))
    contest.add(case, library, "library", Statement(library, names))
    return contest.time(settings.pace)


SUITE = Suite(
    "vectors",
    "columns of vectors, images and frames of video to one tensor",
    (
        Section(
            "lists",
            f"{ROWS:,} vectors of {WIDTH} float32, or {PYTHON_ROWS:,} lists of Python numbers, to one tensor",
            partial(tasks, questions),
            "rivals",
            partial(judge, PROMISES),
        ),
        Section(
            "images",
            f"images and frames of {WIDTH_OF_IMAGE} x {HEIGHT} to one tensor",
            image_tasks,
            "rivals",
            partial(judge, IMAGES),
        ),
    ),
    frameworks=("numpy", "torch", "pyarrow", "polars", "pandas"),
    distributions=(
        *("numpy", "torch", "pyarrow", "polars", "pandas", "duckdb", "datasets"),
        *("pillow", "av"),
    ),
)
