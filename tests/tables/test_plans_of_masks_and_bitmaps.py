"""Plans report masks, bitmaps and row labels as shared exactly if they are, for each framework."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.oracle import agrees
from helpers.table_cases import TABLES

import zerocopy as zc

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

TENSORS = [name for name in ("numpy", "torch", "tensorflow", "jax") if zc.frameworks()[name].installed]
ROWS = pa.array([1, None, 3], pa.int32())
INNER = [pa.int32(), pa.null(), pa.string(), pa.struct([("a", pa.string())]), pa.list_(pa.int8(), 2)]
BITS = {"": None, "no nulls": [True] * 3, "nulls": [True, False, True]}


@pytest.mark.parametrize("to", TENSORS)
@pytest.mark.parametrize("dtype", ["float64", "int64", "int32", "float32"])
def test_masks_of_columns_that_are_cast(dtype: str, to: str) -> None:
    table = pa.table({"x": ROWS, "b": pa.array([True, None, False]), "y": [1.5, 2.5, None]})
    for obj in (table, table["x"], ROWS):
        for name in ("pyarrow", "polars", "pandas", "nanoarrow"):
            if name in TABLES:
                source = zc.convert(obj, name)
                agrees(source, to, nulls="mask", dtype=dtype)
                agrees(source, to, nulls="mask", dtype={"int32": dtype} if obj is not table else {"x": dtype})
    plan = zc.explain(ROWS, to, nulls="mask", dtype="float64")
    assert not plan.shares_memory
    masked = pd.Series(pd.array([1, None, 3], "Int32"))
    assert not zc.explain(masked, to, nulls="mask", dtype="float64").shares_memory


@pytest.mark.parametrize("to", TABLES)
@pytest.mark.parametrize("bits", BITS)
def test_bitmaps_of_types_without_other_memory(bits: str, to: str) -> None:
    valid = BITS[bits]
    bitmap = None if valid is None else pa.array(valid).buffers()[1]
    arrays = []
    for inner in INNER:
        for items in (pa.array([], inner), pa.nulls(3, inner)):
            arrays.append(pa.Array.from_buffers(pa.list_(inner, 0), 3, [bitmap], children=[items]))
    nothing = pa.Array.from_buffers(pa.struct([("a", pa.null())]), 3, [bitmap], children=[pa.nulls(3)])
    arrays += [nothing, pa.StructArray.from_arrays([nothing], ["b"])]
    arrays += [pa.Array.from_buffers(pa.struct([]), 3, [bitmap])]
    if to != "polars":  # it shifts the bitmap of a slice for each export, so the memory cannot be compared
        arrays += [arrays[0].slice(1), nothing.slice(1), pa.chunked_array([nothing, nothing.slice(2)])]
    for array in arrays:
        for source in (array, pa.table({"x": array, "n": pa.nulls(len(array))})):
            agrees(source, to)
            agrees(source, to, copy=False)


LABELS = {
    "zone": pd.date_range("2020", periods=3, tz="UTC"),
    "zone in s": pd.date_range("2020", periods=3, tz="Europe/Berlin", unit="s"),
    "naive": pd.date_range("2020", periods=3),
    "duration": pd.timedelta_range("1h", periods=3),
    "float32": pd.Index(np.arange(3, dtype="f4")),
    "Int64": pd.Index(pd.array([1, 2, 3], "Int64")),
    "arrow": pd.Index(pd.array([1, 2, 3], "int64[pyarrow]")),
    "text": pd.Index(["a", "b", "c"]),
    "category": pd.CategoricalIndex(["a", "b", "a"]),
    "period": pd.period_range("2020", periods=3, freq="D"),
}


@pytest.mark.parametrize("to", [name for name in ("pandas", "xarray") if name in TABLES])
@pytest.mark.parametrize("name", LABELS)
def test_row_labels(name: str, to: str) -> None:
    labels = LABELS[name]
    frame = pd.DataFrame({"v": [1.0, 2.0, 3.0]}, index=labels.rename("t"))
    for options in ({"columns": ["v", "t"]}, {"columns": ["t"]}, {"writable": True}):
        try:
            plan = zc.explain(frame, to, **options)
            result = zc.convert(frame, to, **options)
        except zc.ZeroCopyError:
            continue
        made = result.index if to == "pandas" else result.indexes["t"]
        assert [*plan.leaves.values()][-1].zero_copy in (False, zc.shares_memory(labels, made)), plan


LISTS = {
    "null items": pa.array([[1, None], None, [3, 4]], pa.list_(pa.int32(), 2)),
    "null items of lists": pa.array([[1, None], [2, 3], [3, 4]], pa.list_(pa.int32())),
    "null rows": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32())),
    "no nulls": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32())),
    "several lengths": pa.array([[1], None, [3, 4]], pa.list_(pa.int32())),
    "bits": pa.array([[True, None], None, [True, False]], pa.list_(pa.bool_())),
    "nested": pa.array([[[1, 2], [3, None]], None, [[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int32(), 2), 2)),
}


@pytest.mark.parametrize("to", TENSORS)
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("lists", ["dense", "pad"])
def test_masks_of_lists_that_are_cast(lists: str, name: str, to: str) -> None:
    rows = LISTS[name]
    chunks = pa.chunked_array([rows.slice(0, 1), rows.slice(1)])
    for source in (rows, chunks, pa.table({"x": chunks}), rows.slice(0, 0)):
        for dtype in ("float32", "int32"):
            agrees(source, to, nulls="mask", lists=lists, dtype=dtype)
        try:
            masked = zc.convert(source, to, nulls="mask", lists=lists, dtype="float32")
        except zc.ZeroCopyError:
            continue  # lists of several lengths are not dense
        values, mask = masked["x"] if isinstance(masked, dict) else masked
        assert tuple(mask.shape) in (tuple(values.shape), tuple(values.shape)[:1])
