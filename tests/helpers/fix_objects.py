"""Objects of every installed framework, and options, for the test that pastes and runs their fixes."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

#: The option values that cause the most refusals.
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"copy": False},
    {"dtype": "float32"},
    {"layout": "matrix"},
    {"nulls": 0},
    {"encode": True},
)
#: Objects for which no call of `convert` helps: text that has no column.
NO_FIX = frozenset[str]()

Make = Callable[[], Any]


def modules() -> list[str]:
    """Return the names of the installed modules that have objects."""
    needed = {name: (name, *_NEEDS.get(name, ())) for name in _OBJECTS}
    return [name for name, all_of in needed.items() if all(map(importlib.util.find_spec, all_of))]


def objects(of: str = "") -> dict[str, Make]:
    """Return functions that make objects, by the framework and a noun; of one framework or all."""
    named = [name for name in modules() if name == (of or name)]
    return {f"{name} {noun}": make for name in named for noun, make in _OBJECTS[name]().items()}


def _numpy() -> dict[str, Make]:
    cells = np.empty(2, object)
    cells[:] = [np.arange(2), np.arange(3)]
    mixed = [("x", "f4"), ("b", "U3"), ("t", "M8[s]")]
    return {
        "complex": lambda: np.ones((2, 2), "c8"),
        "memoryview of complex": lambda: memoryview(np.ones((2, 2), "c8")),
        "memoryview big-endian": lambda: memoryview(np.arange(6, dtype=">f4")),
        "memoryview reversed": lambda: memoryview(np.arange(6, dtype="f4"))[::-1],
        "memoryview of text": lambda: memoryview(np.array(["a", "bb"])),
        "booleans": lambda: np.eye(2, dtype=bool),
        "masked": lambda: np.ma.masked_equal(np.arange(4.0), 2.0),
        "masked integers": lambda: np.ma.masked_equal(np.arange(4), 2),
        "masked text": lambda: np.ma.masked_equal(np.array(["a", "b"]), "b"),
        "masked dates": lambda: np.ma.masked_array(np.arange(3).astype("M8[s]"), [0, 1, 0]),
        "masked matrix": lambda: np.ma.masked_equal(np.arange(4.0).reshape(2, 2), 2.0),
        "masked records": lambda: np.ma.masked_array(
            np.zeros(2, [("x", "f4"), ("n", "i4")]), [(0, 1), (1, 0)]
        ),
        "dict of masked": lambda: {
            "x": np.ma.masked_equal(np.arange(3), 1),
            "n": np.ma.masked_equal(np.arange(3.0), 2),
        },
        "dict of masked and text": lambda: {
            "x": np.ma.masked_equal(np.arange(3), 1),
            "n": np.array(["a", "b", "c"]),
            "t": np.arange(3).astype("M8[s]"),
        },
        "records": lambda: np.zeros(3, mixed),
        "records with NaT": lambda: np.array([(1, "a", "NaT")], mixed),
        "dates": lambda: np.arange(4).astype("M8[D]"),
        "NaT": lambda: np.array(["2020-01-01", "NaT"], "M8[s]"),
        "durations": lambda: np.arange(4).astype("m8[ns]"),
        "text": lambda: np.array(["a", "bb"]),
        "text matrix": lambda: np.array([["a", "bb"]]),
        "bytes": lambda: np.array([b"a", b"bb"]),
        "StringDType": lambda: np.array(["a", "bb"], np.dtypes.StringDType()),
        "objects": lambda: np.array(["a", 3, None], object),
        "cells": lambda: cells,
        "void": lambda: np.zeros(2, "V5"),
        "0-d": lambda: np.array(3.0, "f4"),
        "scalar": lambda: np.complex64(1j),
        "transposed": lambda: np.ones((3, 4), "f4").T,
        "broadcast": lambda: np.broadcast_to(np.float32(1), (3, 4)),
        "half": lambda: np.ones(3, "f2"),
        "long double": lambda: np.ones(3, np.longdouble),
        "uint16": lambda: np.ones(3, "u2"),
        "empty": lambda: np.ones((0, 2), "f4"),
        "dict of text": lambda: {"x": np.array(["a", "b"]), "n": np.arange(2)},
        "dict of complex": lambda: {"x": np.ones(2, "c8"), "n": np.arange(2)},
        "dict of dates": lambda: {"x": np.arange(2).astype("M8[s]"), "n": np.arange(2)},
        "memmap": lambda: np.ones(3, ">i2"),
        "recarray": lambda: np.rec.array([(1, "a")], dtype=[("x", "i4"), ("s", "U2")]),
    }


def _torch() -> dict[str, Make]:
    import torch

    return {
        "complex": lambda: torch.ones(2, 2, dtype=torch.complex64),
        "complex half": lambda: torch.ones(2, 2, dtype=torch.complex64).to(torch.complex32),
        "conjugate": lambda: torch.ones(2, dtype=torch.complex64).conj(),
        "grad": lambda: torch.ones(2, requires_grad=True),
        "bool": lambda: torch.ones(2, dtype=torch.bool),
        "bfloat16": lambda: torch.ones(2, dtype=torch.bfloat16),
        "float8": lambda: torch.ones(2).to(torch.float8_e5m2),
        "transposed": lambda: torch.ones(2, 3).T,
        "expanded": lambda: torch.ones(1, 3).expand(2, 3),
        "sparse": lambda: torch.eye(2).to_sparse(),
        "sparse bool": lambda: torch.eye(2).bool().to_sparse(),
        "sparse complex": lambda: torch.eye(2).to(torch.complex64).to_sparse(),
        "sparse half": lambda: torch.eye(2).half().to_sparse_csr(),
        "csc": lambda: torch.eye(2).to_sparse_csc(),
        "bsr": lambda: torch.eye(2).to_sparse_bsr(1),
        "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "meta": lambda: torch.ones(2, device="meta"),
        "storage": lambda: torch.ones(2).untyped_storage(),
        "dict of storage": lambda: {"x": torch.ones(2).untyped_storage()},
        "typed storage": lambda: torch.TypedStorage([1.0, 2.0]),
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        "module": lambda: torch.nn.Linear(2, 2),
        "state dict": lambda: torch.nn.Linear(2, 2).state_dict(),
        "0-d": lambda: torch.tensor(1.0),
        "dict of grad": lambda: {"x": torch.ones(2, requires_grad=True), "n": torch.arange(2)},
    }


def _tensorflow() -> dict[str, Make]:
    tf = importlib.import_module("tensorflow")
    return {
        "complex": lambda: tf.constant([[1j, 2j]]),
        "bool": lambda: tf.constant([True, False]),
        "text": lambda: tf.constant(["a", "bb"]),
        "text matrix": lambda: tf.constant([["a", "bb"]]),
        "half": lambda: tf.constant([1.0], tf.float16),
        "bfloat16": lambda: tf.constant([1.0], tf.bfloat16),
        "ragged": lambda: tf.ragged.constant([[1.0], [2.0, 3.0]]),
        "ragged text": lambda: tf.ragged.constant([["a"], ["b", "c"]]),
        "ragged twice": lambda: tf.ragged.constant([[[1.0]], [[2.0], [3.0, 4.0]]]),
        "sparse": lambda: tf.sparse.from_dense([[1.0, 0.0]]),
        "sparse bool": lambda: tf.SparseTensor([[0, 1]], [True], [2, 2]),
        "sparse complex": lambda: tf.SparseTensor([[0, 1]], [1j], [2, 2]),
        "sparse text": lambda: tf.SparseTensor([[0, 1]], ["a"], [2, 2]),
        "sparse vector": lambda: tf.SparseTensor([[1]], [1.0], [2]),
        "slices": lambda: tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0]), tf.constant([3, 2])),
        "variable": lambda: tf.Variable([1.0, 2.0]),
        "quantized": lambda: tf.cast(tf.constant([1, 2]), tf.qint8),
        "dataset": lambda: tf.data.Dataset.from_tensor_slices([1.0, 2.0]),
        "0-d text": lambda: tf.constant("a"),
        "dict of text": lambda: {"x": tf.constant(["a", "b"]), "n": tf.constant([1.0, 2.0])},
    }


def _jax() -> dict[str, Make]:
    jax = importlib.import_module("jax")
    sparse = importlib.import_module("jax.experimental.sparse")
    jnp = jax.numpy
    return {
        "complex": lambda: jnp.ones((2, 2), "complex64"),
        "bool": lambda: jnp.ones(2, bool),
        "bfloat16": lambda: jnp.ones(2, "bfloat16"),
        "key": lambda: jax.random.key(0),
        "int4": lambda: jnp.ones(4, jnp.int4),
        "BCOO": lambda: sparse.BCOO.fromdense(jnp.eye(3)),
        "BCOO bool": lambda: sparse.BCOO.fromdense(jnp.eye(3, dtype=bool)),
        "BCOO complex": lambda: sparse.BCOO.fromdense(jnp.eye(3, dtype="complex64")),
        "BCOO batches": lambda: sparse.BCOO.fromdense(jnp.ones((2, 2)), n_batch=1),
        "BCSR": lambda: sparse.BCSR.fromdense(jnp.eye(3)),
        "dict of bool": lambda: {"x": jnp.ones(2, bool), "n": jnp.ones(2)},
    }


def _pyarrow() -> dict[str, Make]:
    pa = importlib.import_module("pyarrow")
    nested = pa.array([[["a"], []], [["b"]]])
    interval = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    two = pa.concat_tables([pa.table({"x": [1.0], "n": [2.0]})] * 2)
    return {
        "booleans": lambda: pa.array([True, None]),
        "text": lambda: pa.array(["a", None]),
        "text view": lambda: pa.array(["a", "b"], pa.string_view()),
        "table of text": lambda: pa.table({"x": ["a", "b"], "n": [1, 2]}),
        "table of text views": lambda: pa.table({"x": pa.array(["a", None], pa.string_view())}),
        "table of nulls": lambda: pa.table({"x": [1, None], "n": [None, 0.5], "s": ["a", None]}),
        "table of dates": lambda: pa.table({"x": pa.array([0, None], pa.timestamp("us")), "n": [1, 2]}),
        "interval": lambda: interval,
        "table of intervals": lambda: pa.table({"x": interval, "n": [1]}),
        "durations": lambda: pa.array([1, 2], pa.duration("ns")),
        "table of durations": lambda: pa.table({"x": pa.array([1, 2], pa.duration("ns"))}),
        "decimals": lambda: pa.array([Decimal("1.5"), None]),
        "lists": lambda: pa.array([[1], [2, 3]]),
        "lists with nulls": lambda: pa.array([[1], None, [2, None]]),
        "lists of text": lambda: pa.array([["a"], ["b", "c"]]),
        "lists of structs": lambda: pa.array([[{"a": 1}], [{"a": 2}, {"a": 3}]]),
        "nested text": lambda: nested,
        "table of lists": lambda: pa.table({"x": [[1], [2, 3]], "n": [1, 2]}),
        "table of lists of text": lambda: pa.table({"x": [["a"], ["b", "c"]], "n": [1, 2]}),
        "fixed lists": lambda: pa.array([[[1, 2]], [[3, 4]]], pa.list_(pa.list_(pa.int8(), 2), 1)),
        "structs": lambda: pa.array([{"a": 1, "b": "x"}, None]),
        "table of structs": lambda: pa.table({"x": [{"a": 1, "b": "x"}], "n": [1]}),
        "maps": lambda: pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
        "runs": lambda: pa.compute.run_end_encode(pa.array([1, 1, 2])),
        "dictionary": lambda: pa.array(["a", "b"]).dictionary_encode(),
        "dictionaries": lambda: pa.chunked_array([pa.array([w]).dictionary_encode() for w in "ab"]),
        "unions": lambda: pa.UnionArray.from_sparse(
            pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
        ),
        "tensor": lambda: pa.Tensor.from_numpy(np.ones((2, 2))),
        "tensors": lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 3), "f4")),
        "sparse tensor": lambda: pa.SparseCOOTensor.from_dense_numpy(np.eye(2)),
        "sparse csr": lambda: pa.SparseCSRMatrix.from_dense_numpy(np.eye(2)),
        "null": lambda: pa.nulls(3),
        "scalar": lambda: pa.scalar("a"),
        "chunks": lambda: pa.chunked_array([[1.0], [2.0]]),
        "table of chunks": lambda: two,
        "table of twice": lambda: pa.table([[1.0], [2.0]], names=["x", "x"]),
        "batch": lambda: pa.RecordBatch.from_pydict({"x": [1, 2], "n": [0.5, None]}),
        "reader": lambda: pa.RecordBatchReader.from_batches(two.schema, two.to_batches()),
        "buffer": lambda: pa.py_buffer(b"1234"),
    }


def _pandas() -> dict[str, Make]:
    pa, pd = importlib.import_module("pyarrow"), importlib.import_module("pandas")
    dates = pd.to_datetime(["2020-01-01", None])
    frames: dict[str, Make] = {
        "text": lambda: pd.Series(["a", None]),
        "complex": lambda: pd.Series([1j, 2j]),
        "booleans": lambda: pd.Series([True, None], dtype="boolean"),
        "integers": lambda: pd.Series([1, None], dtype="Int64"),
        "dates": lambda: pd.Series(dates),
        "zoned": lambda: pd.Series(dates.tz_localize("UTC")),
        "durations": lambda: pd.Series(pd.to_timedelta([1, None], "s")),
        "periods": lambda: pd.Series(pd.period_range("2020", periods=2, freq="M")),
        "periods with nulls": lambda: pd.Series(pd.PeriodIndex(["2020", None], freq="M")),
        "intervals with nulls": lambda: pd.Series(pd.arrays.IntervalArray.from_tuples([(0, 1), None])),
        "categories with nulls": lambda: pd.Series(["a", None], dtype="category"),
        "codes with nulls": lambda: pd.Series([1, None], dtype="category"),
        "Arrow's booleans": lambda: pd.Series([True, None], dtype="bool[pyarrow]"),
        "Arrow's decimals": lambda: pd.Series(
            pd.array(pa.array([Decimal("1.5"), None]), pd.ArrowDtype(pa.decimal128(9, 2)))
        ),
        "intervals": lambda: pd.Series(pd.interval_range(0, 2)),
        "categories": lambda: pd.Series(["a", "b"], dtype="category"),
        "sparse": lambda: pd.Series(pd.arrays.SparseArray([0, 1])),
        "objects": lambda: pd.Series([Decimal("1.5"), None], dtype=object),
        "lists": lambda: pd.Series([[1], [2, 3]]),
        "arrays": lambda: pd.Series([np.arange(2), np.arange(2)]),
        "dicts": lambda: pd.Series([{"a": 1}, {"a": 2}]),
        "big-endian": lambda: pd.Series(np.arange(2, dtype=">f4")),
        "strided": lambda: pd.Series(np.arange(4.0)[::2], copy=False),
    }
    made = {f"series of {noun}": make for noun, make in frames.items()}
    made |= {
        f"index of {n}": lambda make=make: pd.Index(make()) for n, make in frames.items() if n != "dicts"
    }
    made |= {
        f"frame of {n}": lambda m=make: pd.DataFrame({"x": m(), "n": [1, 2]}) for n, make in frames.items()
    }
    return made | {
        "index": lambda: pd.RangeIndex(3),
        "levels": lambda: pd.MultiIndex.from_tuples([(1, "a"), (2, "b")]),
        "frame by date": lambda: pd.DataFrame({"x": [1.0, 2.0]}, index=pd.date_range("2020", periods=2)),
        "frame by level": lambda: pd.DataFrame(
            {"x": [1.0, 2.0]}, index=pd.MultiIndex.from_tuples([(1, "a"), (2, "b")])
        ),
        "frame with levels of columns": lambda: pd.DataFrame(np.ones((2, 2)), columns=[["a", "b"], [1, 2]]),
        "frame of twice": lambda: pd.DataFrame(np.ones((2, 2)), columns=["x", "x"]),
        "frame of numbers as names": lambda: pd.DataFrame({0: ["a"], 1: [2]}),
        "frame": lambda: pd.DataFrame({"x": [1.0, 2.0], "n": [1, 2]}),
        "array of integers": lambda: pd.array([1, None]),
        "categorical": lambda: pd.Categorical(["a", "b", None]),
        "empty": lambda: pd.DataFrame(),
        "groups": lambda: pd.DataFrame({"x": [1, 2]}).groupby("x"),
    }


def _polars() -> dict[str, Make]:
    pl = importlib.import_module("polars")
    columns: dict[str, Make] = {
        "text": lambda: pl.Series("x", ["a", None]),
        "booleans": lambda: pl.Series("x", [True, None]),
        "integers": lambda: pl.Series("x", [1, None]),
        "dates": lambda: pl.Series("x", [0, None]).cast(pl.Date),
        "times": lambda: pl.Series("x", [0, None]).cast(pl.Datetime("us", "UTC")),
        "durations": lambda: pl.Series("x", [0, None]).cast(pl.Duration("ns")),
        "decimals": lambda: pl.Series("x", [Decimal("1.5"), None]),
        "lists": lambda: pl.Series("x", [[1], [2, 3]]),
        "lists of text": lambda: pl.Series("x", [["a"], ["b", "c"]]),
        "arrays": lambda: pl.Series("x", [[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2)),
        "structs": lambda: pl.Series("x", [{"a": 1}, {"a": 2}]),
        "categories": lambda: pl.Series("x", ["a", "b"], dtype=pl.Categorical),
        "enum": lambda: pl.Series("x", ["a", "b"], dtype=pl.Enum(["a", "b"])),
        "int128": lambda: pl.Series("x", [1, 2], dtype=pl.Int128),
        "nothing": lambda: pl.Series("x", [None, None]),
        "binary": lambda: pl.Series("x", [b"a", None]),
        "objects": lambda: pl.Series("x", [object(), None], dtype=pl.Object),
        "chunks": lambda: pl.concat([pl.Series("x", [1.0]), pl.Series("x", [2.0])], rechunk=False),
    }
    made = {f"series of {noun}": make for noun, make in columns.items()}
    made |= {
        f"frame of {n}": lambda m=make: pl.DataFrame({"x": m(), "n": [1.0, 2.0]})
        for n, make in columns.items()
    }
    part = pl.DataFrame({"x": [1.0, 2.0], "n": [3.0, 4.0]})
    return made | {
        "frame in chunks": lambda: pl.concat([part, part], rechunk=False),
        "lazy": lambda: part.lazy(),
        "expression": lambda: pl.col("x"),
        "frame": lambda: part,
    }


def _duckdb() -> dict[str, Make]:
    duckdb = importlib.import_module("duckdb")
    sql = (
        "'a'",
        "NULL::INT",
        "1.5::DECIMAL(10, 2)",
        "[1, 2]",
        "['a']",
        "{'a': 1}",
        "MAP {'a': 1}",
        "DATE '2020-01-01'",
    )
    sql += (
        "INTERVAL 1 DAY",
        "INTERVAL 1 MONTH",
        "1::UHUGEINT",
        "'101'::BIT",
        "true",
        "'a'::ENUM('a', 'b')",
        "uuid()",
    )
    return {f"relation of {s}": lambda s=s: duckdb.sql(f"select {s} as x, 1 as n") for s in sql}


def _nanoarrow() -> dict[str, Make]:
    na = importlib.import_module("nanoarrow")
    return {
        "text": lambda: na.Array(["a", None], na.string()),
        "integers": lambda: na.Array([1, None], na.int64()),
        "booleans": lambda: na.Array([True, False], na.bool_()),
        "stream": lambda: na.ArrayStream([1, 2], na.int64()),
        "buffer": lambda: na.c_buffer(b"1234"),
        "schema": lambda: na.int64(),
    }


def _awkward() -> dict[str, Make]:
    ak = importlib.import_module("awkward")
    return {
        "numbers": lambda: ak.Array([1.0, 2.0]),
        "complex": lambda: ak.Array(np.ones(2, "c8")),
        "ragged": lambda: ak.Array([[1.0], [2.0, 3.0]]),
        "ragged twice": lambda: ak.Array([[[1.0]], [[2.0], []]]),
        "missing": lambda: ak.Array([1.0, None]),
        "missing lists": lambda: ak.Array([[1.0], None]),
        "missing inside": lambda: ak.Array([[1.0, None], [2.0]]),
        "text": lambda: ak.Array(["a", "bb"]),
        "missing text": lambda: ak.Array(["a", None]),
        "bytes": lambda: ak.Array([b"a", b"bb"]),
        "ragged text": lambda: ak.Array([["a"], ["b", "c"]]),
        "categories": lambda: ak.str.to_categorical(ak.Array(["a", "b", "a"])),
        "records": lambda: ak.Array([{"x": 1, "n": 2.0}, {"x": 2, "n": 3.0}]),
        "ragged records": lambda: ak.Array([[{"x": 1}], []]),
        "union": lambda: ak.Array([1, "a"]),
        "dates": lambda: ak.Array(np.arange(2).astype("M8[s]")),
        "booleans": lambda: ak.Array([True, False]),
        "indexed": lambda: ak.Array([[1.0], [2.0, 3.0], []])[[2, 0]],
        "regular": lambda: ak.to_regular(ak.Array([[1.0], [2.0]])),
        "record": lambda: ak.Record({"x": 1}),
        "empty": lambda: ak.Array([]),
    }


def _scipy() -> dict[str, Make]:
    sp = importlib.import_module("scipy.sparse")
    eye = np.eye(3)
    return {
        "csr": lambda: sp.csr_array(eye),
        "csc": lambda: sp.csc_array(eye),
        "coo": lambda: sp.coo_array(eye),
        "coo twice": lambda: sp.coo_array(([1.0, 2.0], ([0, 0], [0, 0])), (2, 2)),
        "bsr": lambda: sp.bsr_array(eye),
        "dia": lambda: sp.dia_array(eye),
        "lil": lambda: sp.lil_array(eye),
        "dok": lambda: sp.dok_array(eye),
        "bool": lambda: sp.csr_array(eye.astype(bool)),
        "complex": lambda: sp.csr_array(eye.astype("c8")),
        "coo bool": lambda: sp.coo_array(eye.astype(bool)),
        "coo complex": lambda: sp.coo_array(eye.astype("c8")),
        "vector": lambda: sp.coo_array(np.array([0.0, 1.0])),
        "long double": lambda: sp.csr_array(eye.astype(np.longdouble)),
        "matrix": lambda: sp.csr_matrix(eye),
    }


def _sparse() -> dict[str, Make]:
    sparse = importlib.import_module("sparse")
    return {
        "COO": lambda: sparse.COO.from_numpy(np.eye(3)),
        "COO bool": lambda: sparse.COO.from_numpy(np.eye(3, dtype=bool)),
        "COO complex": lambda: sparse.COO.from_numpy(np.eye(3, dtype="c8")),
        "COO 3-d": lambda: sparse.COO.from_numpy(np.ones((2, 2, 2))),
        "GCXS": lambda: sparse.GCXS.from_numpy(np.eye(3)),
        "DOK": lambda: sparse.DOK.from_numpy(np.eye(3)),
        "filled": lambda: sparse.COO.from_numpy(np.eye(3), fill_value=1.0),
    }


def _xarray() -> dict[str, Make]:
    xr = importlib.import_module("xarray")
    return {
        "array": lambda: xr.DataArray(np.ones((2, 3)), dims=("r", "c"), coords={"r": [1, 2]}),
        "complex": lambda: xr.DataArray(np.ones((2, 3), "c8")),
        "text": lambda: xr.DataArray(np.array(["a", "b"])),
        "dates": lambda: xr.DataArray(np.arange(2).astype("M8[ns]"), dims="r"),
        "transposed": lambda: xr.DataArray(np.ones((2, 3))).T,
        "dataset": lambda: xr.Dataset({"x": ("r", [1.0, 2.0]), "n": ("r", [1, 2])}),
        "dataset of text": lambda: xr.Dataset(
            {"x": ("r", ["a", "b"]), "n": ("r", [1, 2])}, {"r": ["u", "v"]}
        ),
        "dataset of dimensions": lambda: xr.Dataset(
            {"x": ("r", [1.0, 2.0]), "n": (("r", "c"), np.ones((2, 2)))}
        ),
        "variable": lambda: xr.Variable("r", np.ones(2)),
        "big-endian": lambda: xr.DataArray(np.arange(3, dtype=">f4")),
        "tree": lambda: xr.DataTree.from_dict({"/": xr.Dataset({"x": ("r", [1.0])})}),
    }


def _dask() -> dict[str, Make]:
    da, dd = importlib.import_module("dask.array"), importlib.import_module("dask.dataframe")
    pd, xr = importlib.import_module("pandas"), importlib.import_module("xarray")
    return {
        "array": lambda: da.ones((4, 4), chunks=2),
        "complex": lambda: da.ones(4, chunks=2).astype("c8"),
        "frame": lambda: dd.from_pandas(pd.DataFrame({"x": [1.0, 2.0], "s": ["a", "b"]}), 2),
        "series": lambda: dd.from_pandas(pd.Series([1.0, 2.0]), 2),
        "in xarray": lambda: xr.DataArray(da.ones((4, 4), chunks=2)),
    }


def _astropy() -> dict[str, Make]:
    table, units = importlib.import_module("astropy.table"), importlib.import_module("astropy.units")
    time = importlib.import_module("astropy.time")
    return {
        "column": lambda: table.Column([1.0, 2.0], name="x"),
        "masked column": lambda: table.MaskedColumn([1.0, 2.0], mask=[0, 1], name="x"),
        "table": lambda: table.Table({"x": [1.0, 2.0], "s": ["a", "b"]}),
        "masked table": lambda: table.Table({"x": table.MaskedColumn([1, 2], mask=[0, 1])}),
        "quantity": lambda: np.ones(2) * units.m,
        "complex quantity": lambda: np.ones(2, "c8") * units.m,
        "time": lambda: time.Time(["2020-01-01", "2020-01-02"]),
        "masked quantity": lambda: importlib.import_module("astropy.utils.masked").Masked(
            np.ones(2) * units.m, mask=[True, False]
        ),
    }


def _pil() -> dict[str, Make]:
    image = importlib.import_module("PIL.Image")
    return {
        mode: lambda mode=mode: image.new(mode, (4, 3))
        for mode in ("RGB", "RGBA", "L", "1", "I;16", "P", "CMYK", "F", "LA")
    }


def _h5py() -> dict[str, Make]:
    h5py = importlib.import_module("h5py")

    def dataset(values: Any, **options: Any) -> Any:
        file = h5py.File.in_memory()
        return file.create_dataset("x", data=values, **options)

    return {
        "dataset": lambda: dataset(np.ones((2, 3))),
        "chunked": lambda: dataset(np.ones((2, 3)), chunks=(1, 3)),
        "complex": lambda: dataset(np.ones(2, "c8")),
        "big-endian": lambda: dataset(np.ones(2, ">f4")),
        "text": lambda: dataset(["a", "b"]),
        "bytes": lambda: dataset(np.array([b"a", b"b"])),
        "records": lambda: dataset(np.zeros(2, [("x", "f4"), ("n", "i4")])),
        "booleans": lambda: dataset(np.ones(2, bool)),
        "ragged": lambda: dataset([np.arange(2), np.arange(3)], dtype=h5py.vlen_dtype("i4")),
        "empty": lambda: dataset(h5py.Empty("f4")),
        "group": lambda: dataset(np.ones(2)).parent,
    }


def _zarr() -> dict[str, Make]:
    zarr = importlib.import_module("zarr")
    return {
        "array": lambda: zarr.array(np.ones((4, 4)), chunks=(2, 2)),
        "complex": lambda: zarr.array(np.ones(4, "c8")),
        "text": lambda: zarr.array(np.array(["a", "bb"])),
        "group": lambda: zarr.group(),
    }


def _datasets() -> dict[str, Make]:
    datasets = importlib.import_module("datasets")
    rows = {"x": [1, 2], "s": ["a", "b"], "l": [[1], [2, 3]]}
    return {
        "dataset": lambda: datasets.Dataset.from_dict(rows),
        "of numbers": lambda: datasets.Dataset.from_dict({"x": [1, 2], "n": [0.5, None]}),
        "selected": lambda: datasets.Dataset.from_dict(rows).select([1, 0]),
        "dict": lambda: datasets.DatasetDict(train=datasets.Dataset.from_dict(rows)),
        "iterable": lambda: datasets.Dataset.from_dict(rows).to_iterable_dataset(),
        "column": lambda: datasets.Dataset.from_dict(rows)["s"],
    }


def _mlx() -> dict[str, Make]:
    mx = importlib.import_module("mlx.core")
    return {
        "complex": lambda: mx.ones((2, 2)).astype(mx.complex64),
        "bool": lambda: mx.ones((2, 2)).astype(mx.bool_),
        "bfloat16": lambda: mx.ones((2, 2)).astype(mx.bfloat16),
        "transposed": lambda: mx.ones((2, 3)).T,
    }


def _paddle() -> dict[str, Make]:
    paddle = importlib.import_module("paddle")
    return {
        "complex": lambda: paddle.ones([2, 2]).astype("complex64"),
        "bool": lambda: paddle.ones([2]).astype("bool"),
        "bfloat16": lambda: paddle.ones([2]).astype("bfloat16"),
        "sparse": lambda: paddle.sparse.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0], [2, 2]),
        "grad": lambda: paddle.to_tensor([1.0], stop_gradient=False),
    }


def _warp() -> dict[str, Make]:
    wp = importlib.import_module("warp")
    return {
        "array": lambda: wp.array(np.ones(3, "f4")),
        "vectors": lambda: wp.array(np.ones((3, 3), "f4"), dtype=wp.vec3),
        "transposed": lambda: wp.array(np.ones((2, 3), "f4")).transpose(),
        "bool": lambda: wp.array(np.ones(3, bool), dtype=wp.bool),
    }


def _onnxruntime() -> dict[str, Make]:
    ort = importlib.import_module("onnxruntime")
    return {
        "value": lambda: ort.OrtValue.ortvalue_from_numpy(np.ones(3, "f4")),
        "bool": lambda: ort.OrtValue.ortvalue_from_numpy(np.ones(3, bool)),
    }


def _narwhals() -> dict[str, Make]:
    nw, pd = importlib.import_module("narwhals"), importlib.import_module("pandas")
    pl = importlib.import_module("polars")
    return {
        "frame": lambda: nw.from_native(pd.DataFrame({"x": [1.0, 2.0], "s": ["a", "b"]})),
        "lazy": lambda: nw.from_native(pl.LazyFrame({"x": [1.0, 2.0]})),
        "series": lambda: nw.from_native(pl.Series("x", ["a", None]), series_only=True),
    }


def _capsule_objects() -> dict[str, Make]:
    class Exporter:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    class Interface:
        def __init__(self, array: Any) -> None:
            self.array = array
            self.__array_interface__ = array.__array_interface__

    class Method:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return self.array

    kinds = {"DLPack": Exporter, "array interface": Interface, "array method": Method}
    arrays = {
        "complex": np.ones((2, 2), "c8"),
        "transposed": np.ones((2, 3), "f4").T,
        "text": np.array(["a", "b"]),
    }
    arrays |= {
        "bool": np.ones(2, bool),
        "dates": np.arange(2).astype("M8[s]"),
        "big-endian": np.arange(2, dtype=">f4"),
    }
    return {
        f"{kind} of {noun}": lambda make=make, array=array: make(array)
        for kind, make in kinds.items()
        for noun, array in arrays.items()
        if not (make is Exporter and noun in ("text", "dates", "big-endian"))
    }


def _python() -> dict[str, Make]:
    values: dict[str, Any] = {
        "text": "abc",
        "words": ["a", "b"],
        "mixed": [1, "a"],
        "None": [1, None],
        "rows": [[1, 2], [3]],
        "records": [{"x": 1}, {"x": 2}],
        "tuple": (1.0, 2.0),
        "complex": [1j, 2],
        "large": [2**70],
        "nested": {"x": [1, 2], "n": {"s": "a"}},
        "empty": [],
        "none": None,
        "set": {1, 2},
        "number": 1j,
        "bytes": b"ab",
        "decimals": [Decimal("1.5")],
        "range": range(3),
    }
    return {noun: lambda value=value: value for noun, value in values.items()} | _capsule_objects()


#: Functions that make the objects of each framework, by the module that they need.
_OBJECTS: dict[str, Callable[[], dict[str, Make]]] = {
    "builtins": _python,
    "numpy": _numpy,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "pyarrow": _pyarrow,
    "pandas": _pandas,
    "polars": _polars,
    "duckdb": _duckdb,
    "nanoarrow": _nanoarrow,
    "awkward": _awkward,
    "scipy": _scipy,
    "sparse": _sparse,
    "xarray": _xarray,
    "dask": _dask,
    "astropy": _astropy,
    "PIL": _pil,
    "h5py": _h5py,
    "zarr": _zarr,
    "datasets": _datasets,
    "mlx": _mlx,
    "paddle": _paddle,
    "warp": _warp,
    "onnxruntime": _onnxruntime,
    "narwhals": _narwhals,
}
_NEEDS = {"dask": ("pandas", "xarray"), "narwhals": ("pandas", "polars"), "pandas": ("pyarrow",)}
