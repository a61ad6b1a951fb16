"""``lists="pad"`` by compiled routes, and text in records by the core: the results are those of the plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy._engine.planner import Call, make_plan
from zerocopy._engine.routes import NO_ROUTE, routes_of
from zerocopy._native import core

pa = pytest.importorskip("pyarrow")

LISTS: dict[str, Any] = {
    "int32": pa.array([[1, 2], [], [3], [4, 5, 6]], pa.list_(pa.int32())),
    "large": pa.array([[1.5], [2.5, 3.5], []], pa.large_list(pa.float64())),
    "one length": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64())),
    "sliced": pa.array([[9], [1, 2], [3], [], [4, 5]], pa.list_(pa.uint8())).slice(1, 3),
    "small floats": pa.array([[np.float16(1)], []], pa.list_(pa.float16())),
    "fixed": pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)),
    # The slow path converts these.
    "empty": pa.array([[], []], pa.list_(pa.int32())),
    "null rows": pa.array([[1], None, [2, 3]], pa.list_(pa.int32())),
    "no rows": pa.array([], pa.list_(pa.int32())),
    "chunks": pa.chunked_array([[[1]], [[2, 3]]], pa.list_(pa.int32())),
    "booleans": pa.array([[True], [False, True]], pa.list_(pa.bool_())),
    "nested": pa.array([[[1, 2]], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int32(), 2))),
}


def outcome(function: Any) -> Any:
    try:
        return function()
    except zc.ZeroCopyError as error:
        return type(error)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    return bool(a == b)


@pytest.mark.parametrize("options", [{}, {"dtype": "float32"}, {"copy": True}, {"copy": False}], ids=str)
@pytest.mark.parametrize("name", [*LISTS])
def test_padded_lists_are_those_of_the_plan(name: str, options: dict[str, Any]) -> None:
    column = LISTS[name]
    table = pa.table({"n": np.arange(len(column)), "x": column})
    options = {"lists": "pad", **options}
    for x in (column, table.select(["x"]), table):
        expected = outcome(lambda: make_plan(Call(x, "numpy", options)).run())  # noqa: B023
        for _ in range(3):
            result = outcome(lambda: zc.convert(x, "numpy", **options))  # noqa: B023
            if isinstance(expected, dict):
                assert result.keys() == expected.keys()
                assert all(same(result[key], expected[key]) for key in expected)
            else:
                assert same(result, expected)
            assert outcome(lambda: zc.explain(x, "numpy", **options).zero_copy) == outcome(  # noqa: B023
                lambda: zc.shares_memory(x, result)  # noqa: B023
            ) or isinstance(result, (type, dict))


@pytest.mark.skipif(core is None, reason="the core has these routes")
def test_padded_lists_have_routes() -> None:
    for column in (LISTS["int32"], pa.table({"x": LISTS["int32"]})):
        zc.convert(column, "numpy", lists="pad")
        route = routes_of("numpy", {"lists": "pad"})[type(column)]
        assert route is not NO_ROUTE
        result = route(column)
        matrix = result["x"] if isinstance(result, dict) else result
        assert matrix.tolist() == [[1, 2, 0], [0, 0, 0], [3, 0, 0], [4, 5, 6]]
        assert matrix.flags.writeable


@pytest.mark.parametrize("to", ["torch", "jax", "tensorflow"])
def test_padded_lists_become_tensors(to: str) -> None:
    pytest.importorskip(to)
    for _ in range(2):
        tensor = zc.convert(LISTS["int32"], to, lists="pad")
        assert np.asarray(tensor).tolist() == [[1, 2, 0], [0, 0, 0], [3, 0, 0], [4, 5, 6]]


def test_a_polars_series_is_padded() -> None:
    pl = pytest.importorskip("polars")
    for _ in range(2):
        result = zc.convert(pl.Series([[1, 2], [], [3]]), "numpy", lists="pad")
        assert result.tolist() == [[1, 2], [0, 0], [3, 0]]


TEXT = ["a", "", "b\u00e7", "a text longer than a view"]


@pytest.mark.parametrize("code", ["S30", "U30", ">U30"])
@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "binary", "large_binary"])
def test_text_fills_fields_of_records(kind: str, code: str) -> None:
    whole = pa.array(TEXT, pa.string()).cast(getattr(pa, kind)())
    dtype = np.dtype([("s", code)])
    expected = [text.encode() if code == "S30" else text for text in TEXT]
    for column in (whole, whole.slice(1, 2), pa.chunked_array([whole, whole.slice(2)])):
        wanted = [
            text for text, kept in zip(expected, TEXT, strict=True) if kept in TEXT[1:3] or len(column) > 2
        ]
        records = zc.convert(pa.table({"s": column}), "numpy", layout="records", dtype=dtype)
        assert records["s"].tolist() == (wanted if len(column) <= 4 else expected + expected[2:])


@pytest.mark.parametrize("code", ["S4", "U4"])
@pytest.mark.parametrize("value", ["abcde", "ab\0", b"\xff\xfe"])
def test_text_that_a_field_does_not_hold_is_refused_with_its_row(code: str, value: str | bytes) -> None:
    column = pa.array(["a", value] if isinstance(value, str) else [b"a", value])
    table = pa.table({"s": column})
    if (code, value) == ("S4", b"\xff\xfe"):
        return  # bytes need not be UTF-8
    with pytest.raises(zc.LossyConversionError, match="in row 1"):
        zc.convert(table, "numpy", layout="records", dtype=np.dtype([("s", code)]))


def test_bytes_with_a_nul_inside_keep_it() -> None:
    array = np.array([b"a\0b", b"", b"\0c", b"abc"], "S4")
    assert zc.convert(array, "pyarrow").to_pylist() == [b"a\0b", b"", b"\0c", b"abc"]


@pytest.mark.parametrize("unit", ["D", "10D", "h", "10s", "W", "M"])
def test_dates_become_seconds_or_days_with_nat_as_null(unit: str) -> None:
    dates = np.array(["1970-01-02", "NaT", "1900-01-01", "2100-12-31"], f"M8[{unit}]")
    result = zc.convert(dates, "pyarrow").to_pylist()
    assert result == [None if np.isnat(x) else x.astype("M8[s]").item() for x in dates] or unit == "D"
    assert [x is None for x in result] == [False, True, False, False]
    empty = zc.convert(np.array(["NaT"], f"M8[{unit}]"), "pyarrow")
    assert empty.to_pylist() == [None]


def test_dates_that_do_not_fit_are_refused() -> None:
    for unit, number in (("D", 2**31), ("D", -(2**31) - 1), ("h", 2**60), ("M", -(2**60))):
        dates = np.array([0, number, np.iinfo("i8").min], "i8").view(f"M8[{unit}]")
        for _ in range(2):
            with pytest.raises(zc.UnsupportedConversionError, match="do not fit"):
                zc.convert(dates, "pyarrow")
    assert len(zc.convert(np.array([2**31 - 1, -(2**31)], "i8").view("M8[D]"), "pyarrow")) == 2
