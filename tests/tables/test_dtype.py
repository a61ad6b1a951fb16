"""``dtype=`` for tables: columns cast for every table framework, dicts of tensors, matrices and records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted
from helpers.table_cases import TABLES, TENSORS

import zerocopy as zc

pa = pytest.importorskip("pyarrow")
HOST = [name for name in TABLES if name not in ("cudf", "pylibcudf")]


def frame() -> Any:
    """Return columns of several types: numbers with and without nulls, booleans, one in two chunks."""
    return pa.table(
        {
            "price": pa.array([1.5, 2.5, -3.0]),
            "count": pa.array([1, None, 3]),
            "small": pa.array([1, 2, 3], pa.uint8()),
            "flag": pa.array([True, False, True]),
            "chunks": pa.chunked_array([pa.array([7, 8]), pa.array([9])]),
        }
    )


EXPECTED = {"price": [1.5, 2.5, -3.0], "count": [1.0, None, 3.0], "small": [1.0, 2.0, 3.0],
            "flag": [1.0, 0.0, 1.0], "chunks": [7.0, 8.0, 9.0]}  # fmt: skip


def arrow(result: Any) -> Any:
    """Return a table of any framework as pyarrow's."""
    return zc.convert(result, "pyarrow")


@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize("source", HOST)
def test_columns_are_cast_for_every_table_framework(source: str, target: str) -> None:
    x = zc.convert(frame(), source)
    if source == "nanoarrow":
        pytest.skip("a nanoarrow.Array is one column of structs")
    plan = zc.explain(x, target, dtype="float32")
    assert plan.possible, plan
    assert not plan.zero_copy
    result = arrow(zc.convert(x, target, dtype="float32"))
    columns = dict(zip(result.schema.names, result.columns, strict=True)) if hasattr(result, "schema") else {
        field.name: result.field(i) for i, field in enumerate(result.type)
    }  # fmt: skip
    assert {str(column.type) for column in columns.values()} == {"float"}
    assert {name: column.to_pylist() for name, column in columns.items()} == EXPECTED
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(x, target, dtype="float32", copy=False)


@pytest.mark.parametrize("target", HOST)
def test_columns_of_the_requested_type_are_aliased(target: str) -> None:
    x = pa.table({"a": np.arange(100.0, dtype="f4"), "b": np.arange(100.0)})
    plan = zc.explain(x, target, dtype="float32")
    plain = zc.explain(x, target)
    if plain.leaves:  # pyarrow returns its own table unchanged, as one
        assert plan.leaves["['a']"].zero_copy == plain.leaves["['a']"].zero_copy
    assert not plan.leaves["['b']"].zero_copy
    assert "dtype-requested" in [reason.code for reason in plan.leaves["['b']"].reasons]
    result = zc.convert(x, target, dtype="float32")
    if target != "duckdb":  # a relation is a query: its memory is not known
        assert zc.shares_memory(x["a"], result) == plan.leaves["['a']"].zero_copy
        assert not zc.shares_memory(x["b"], result)


@pytest.mark.parametrize("target", TENSORS)
def test_columns_are_cast_for_every_tensor_framework(target: str) -> None:
    result = zc.convert(frame(), target, dtype="float32", nulls="nan")
    for name, values in EXPECTED.items():
        expected = np.array([np.nan if v is None else v for v in values], "f4")
        np.testing.assert_array_equal(zc.convert(result[name], "numpy"), expected, strict=True)
    masked = zc.convert(frame(), target, dtype="int8", columns=["count"], nulls="mask")["count"]
    np.testing.assert_array_equal(zc.convert(masked.mask, "numpy"), [False, True, False])
    assert zc.convert(masked.values, "numpy").dtype == np.int8


@pytest.mark.parametrize("order", [None, "C", "F"])
@pytest.mark.parametrize(("nulls", "fill"), [("nan", np.nan), (0, 0.0), (-1.5, -1.5)])
@pytest.mark.parametrize("source", HOST)
def test_mixed_columns_become_one_matrix(source: str, order: str | None, nulls: Any, fill: float) -> None:
    if source == "nanoarrow":
        pytest.skip("a nanoarrow.Array is one column of structs")
    x = zc.convert(frame(), source)
    options = {"layout": "matrix", "order": order, "dtype": "float32", "nulls": nulls}
    result = zc.convert(x, "numpy", **options)
    expected = np.array([[fill if v is None else v for v in values] for values in EXPECTED.values()], "f4").T
    np.testing.assert_array_equal(result, expected, strict=True)
    assert result.flags.c_contiguous == (order != "F")
    plan = zc.explain(x, "numpy", **options)
    if not plan.unread:
        assert (plan.zero_copy, plan.copied_bytes) == (False, expected.nbytes)


@pytest.mark.parametrize("rows", [0, 1, 1000, 100_003])
@pytest.mark.parametrize("order", ["C", "F"])
def test_matrices_of_many_blocks_keep_their_values(rows: int, order: str) -> None:
    columns = {f"c{i}": np.arange(rows) * (i + 1) for i in range(3)} | {"f": np.arange(rows, dtype="f8")}
    columns["same"] = np.arange(rows, dtype="f4")
    result = zc.convert(columns, "torch", layout="matrix", order=order, dtype="float32")
    expected = np.stack([values.astype("f4") for values in columns.values()], 1)
    np.testing.assert_array_equal(result.numpy(), expected)


def test_a_matrix_is_written_without_copies_of_its_columns() -> None:
    import tracemalloc

    columns = {f"c{i}": np.arange(1_000_000) for i in range(8)}
    zc.convert(columns, "numpy", layout="matrix", dtype="float32")
    tracemalloc.start()
    result = zc.convert(columns, "numpy", layout="matrix", dtype="float32")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < result.nbytes + 3_000_000


def test_records_are_cast() -> None:
    result = zc.convert(
        frame(), "numpy", layout="records", dtype={"float64": "float32", "small": "int64"}, nulls=0
    )
    assert [str(result.dtype[name]) for name in ("price", "count", "small", "flag")] == [
        "float32", "int64", "int64", "bool",
    ]  # fmt: skip
    assert result["price"].tolist() == EXPECTED["price"]


def test_structured_arrays_are_cast() -> None:
    x = np.array([(1, 2.5), (3, 4.5)], [("a", "i8"), ("b", "f8")])
    np.testing.assert_array_equal(
        zc.convert(x, "torch", layout="matrix", dtype="float32"), [[1, 2.5], [3, 4.5]]
    )
    assert zc.convert(x, "numpy", dtype={"a": "int8"})["a"].dtype == np.int8


# -- mappings ------------------------------------------------------------------------------


def test_labels_win_over_types() -> None:
    x = pa.table({"float64": [1, 2], "b": [1.0, 2.0], "c": [1.0, 2.0]})
    result = zc.convert(x, "numpy", dtype={"float64": "int8", "c": "float16", "int64": "int32"})
    assert [str(array.dtype) for array in result.values()] == ["int8", "float64", "float16"]
    result = zc.convert(x, "numpy", columns=["b", "c"], dtype={"float64": "float32", "c": "float16"})
    assert [str(array.dtype) for array in result.values()] == ["float64", "float16"]


@pytest.mark.parametrize("target", ["numpy", "pandas"])
def test_unknown_labels_are_a_value_error(target: str) -> None:
    for function in (zc.convert, zc.explain):
        with pytest.raises(
            ValueError, match="'prise' is not the name of a dtype, nor one of the columns 'price'"
        ):
            function(frame(), target, dtype={"prise": "float32"})


def test_row_labels_of_pandas_keep_their_type() -> None:
    pd = pytest.importorskip("pandas")
    x = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.Index([2**40, 5], name="id"))
    result = zc.convert(x, "polars", dtype="float32")
    assert str(result["id"].dtype) == "Int64"
    assert zc.convert(x, "pandas", dtype="float32").index.equals(x.index)
    assert str(zc.convert(x, "polars", dtype={"id": "float64"})["id"].dtype) == "Float64"
    np.testing.assert_array_equal(zc.convert(x, "numpy", layout="matrix", dtype="float32"), [[1], [2]])


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [*HOST, "numpy", "torch"])
def test_errors_name_the_column_and_the_row(target: str) -> None:
    x = pa.table({"a": [1, 2, 3], "b": pa.chunked_array([[1, 2], [300]])})
    with pytest.raises(zc.LossyConversionError) as error:
        zc.convert(x, target, dtype="uint8")
    assert (
        error.value.why
        == "column 'b': dtype uint8 cannot hold the value 300 in row 2: it is outside 0 to 255"
    )
    assert error.value.calls[0] == f'zc.convert(x, "{target}", dtype="uint16")'
    assert zc.explain(x, target, dtype="uint8").error.why == error.value.why
    with pytest.raises(zc.LossyConversionError) as error:
        zc.convert(x, target, dtype={"b": "uint8"})
    assert error.value.calls[0] == f'zc.convert(x, "{target}", dtype={{"b": "uint16"}})'
    pasted(error.value.calls[0], {"zc": zc, "x": x})


def test_values_at_nulls_are_not_checked() -> None:
    values = pa.array([1, 300, 3], mask=np.array([False, True, False]))
    result = zc.convert(pa.table({"a": values}), "numpy", dtype="uint8", nulls=0)["a"]
    np.testing.assert_array_equal(result, np.array([1, 0, 3], "u1"), strict=True)
    assert zc.convert(pa.table({"a": values}), "polars", dtype="uint8")["a"].to_list() == [1, None, 3]


@pytest.mark.parametrize("target", HOST)
def test_text_and_dates_are_refused_with_a_fix_that_casts_the_numbers(target: str) -> None:
    import datetime

    x = pa.table({"t": ["a"], "d": [datetime.date(2020, 1, 1)], "x": [1.5], "n": [1]})
    plan = zc.explain(x, target, dtype="float32")
    assert [plan.error.columns[name].code for name in ("t", "d")] == ["not-numbers"] * 2
    for call in plan.error.calls:
        assert arrow(pasted(call, {"zc": zc, "x": x})) is not None
    with pytest.raises(zc.UnsupportedConversionError, match="keeps its type"):
        zc.convert(x, target, dtype={"t": "float32"})


def test_encoded_columns_keep_their_types() -> None:
    x = pa.table({"t": ["a"], "when": pa.array([5], pa.timestamp("us")), "x": [1.5]})
    result = zc.convert(x, "torch", dtype="float32", encode=True)
    assert [str(t.dtype) for t in (result["t"].values, result["when"].values, result["x"])] == [
        "torch.int32", "torch.int64", "torch.float32",
    ]  # fmt: skip
    assert "encode=True" in zc.explain(x.select(["when", "x"]), "numpy", dtype="float32").error.remedy
    assert "encode=True" in zc.explain(x, "torch", dtype="float32").error.remedy


def test_lists_of_one_length_are_cast_as_tensors() -> None:
    x = pa.table({"v": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2)), "x": [1, 2]})
    result = zc.convert(x, "torch", dtype="float32")
    assert result["v"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert str(result["v"].dtype) == "torch.float32"


@pytest.mark.parametrize("target", ["pandas", "polars", "numpy"])
def test_streams_are_cast_when_they_are_read(target: str) -> None:
    pytest.importorskip(target)
    options = {"dtype": "float32"} | ({"nulls": 0} if target == "numpy" else {})
    reader = frame().to_reader()
    plan = zc.explain(reader, target, **options)
    assert (plan.possible, plan.unread) == (True, True)
    result = zc.convert(reader, target, **options)
    assert zc.convert(result["price"], "numpy").dtype == np.float32
    with pytest.raises(zc.LossyConversionError, match="in row 2"):
        zc.convert(pa.table({"a": [1, 2, 300]}).to_reader(), target, dtype="uint8")


def test_a_mixed_matrix_error_names_the_cast() -> None:
    x = pa.table({"a": [1.5], "b": [1]})
    plan = zc.explain(x, "numpy", layout="matrix")
    assert pasted(plan.error.calls[0], {"zc": zc, "x": x}).tolist() == [[1.5, 1.0]]


def test_a_series_is_cast() -> None:
    pl = pytest.importorskip("polars")
    assert zc.convert(pl.Series("a", [1, None, 3]), "polars", dtype="float32").to_list() == [1.0, None, 3.0]
    np.testing.assert_array_equal(
        zc.convert(pl.Series("a", [1, 2]), "numpy", dtype="int8"), np.array([1, 2], "i1")
    )
    assert zc.convert(np.arange(3.0), "polars", dtype="float32").dtype == pl.Float32
