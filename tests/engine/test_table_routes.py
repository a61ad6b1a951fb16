"""Tables and columns convert by routes; the plan gives the same values, types, aliases and refusals."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from helpers.oracle import check, sources_of, tables_of_arrow

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine.routes import NO_ROUTE, routes_of
from zerocopy._native import core

pa = pytest.importorskip("pyarrow")
TABLES = ("pandas", "polars", "pyarrow", "duckdb", "nanoarrow")


@pytest.mark.parametrize("to", ["pandas", "polars", "pyarrow"])
def test_a_matrix_without_columns_keeps_its_rows(to: str) -> None:
    pytest.importorskip(to)
    assert [len(zc.convert(np.zeros((4, 0)), to, names=[])) for _ in range(3)] == [4, 4, 4]


@pytest.mark.skipif(core is None, reason="the core has these routes")
@pytest.mark.parametrize("to", TABLES)
def test_matrices_with_names_have_a_route_and_kept_leaves_none(to: str) -> None:
    pytest.importorskip(to)
    for _ in range(2):
        zc.convert(np.arange(6.0).reshape(3, 2), to, names=["a", "b"])
        assert not isinstance(zc.convert({"a": np.ones(3)}, to), dict)
        assert isinstance(zc.convert({"a": np.ones(3)}, to, leaves="keep"), dict)  # no table after a table
    assert routes_of(to, {"names": ["a", "b"]})[np.ndarray] is not NO_ROUTE


def test_frames_of_the_private_constructor_are_equal() -> None:
    pd = pytest.importorskip("pandas")
    from zerocopy._frameworks.pandas import tables

    x, y = np.arange(3.0), pd.arrays.ArrowExtensionArray(pa.chunked_array([["a", None, "c"]]))
    for arrays in ([x, x], [x, y], [y, y], [np.arange(3), x]):
        public, private = (
            build(pd)(("a", "b"), list(arrays)) for build in (tables.public_frame, tables.private_frame)
        )
        pd.testing.assert_frame_equal(public, private)
        assert [len(f._mgr.blocks) for f in (public, private)] == [2, 2]
        assert public.columns.equals(private.columns)
        assert public.index.equals(private.index)
        for frame in (public, private):  # both alias, and pandas can work with them
            assert not isinstance(arrays[0], np.ndarray) or np.shares_memory(frame["a"].to_numpy(), arrays[0])
            frame.sort_values("a").assign(c=1).loc[1:].describe()
    build = tables.private_frame(pd)
    first, second = build(("a", "b"), [x, x]), build(("a", "b"), [x, x])
    first.columns.name = "k"
    assert second.columns.name is None
    second["c"] = second["a"] + 1
    assert list(first) == ["a", "b"]
    assert tables.frame_builder() is not None


@pytest.mark.skipif(core is None, reason="the core has these routes")
@pytest.mark.parametrize(("source", "to"), [(a, b) for a in TABLES for b in TABLES if a != b])
def test_tables_of_numbers_and_text_have_a_route(source: str, to: str) -> None:
    for name in {source, to}:
        pytest.importorskip(name)
    (table, *_) = sources_of("numbers", source)
    for _ in range(2):
        zc.convert(table, to)
    route = routes_of(to, {})[type(table)]
    assert route is not NO_ROUTE
    assert type(route(table)) is type(zc.convert(table, to))


def test_chunks_of_dates_and_text_have_a_route_to_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("polars")
    table = tables_of_arrow()["chunks of dates and text"]
    expected = zc.convert(table, "polars")
    target = registry.by_name("polars")
    monkeypatch.setattr(target, "column_reasons", lambda column: pytest.fail("the plan was made"))
    result = zc.convert(table, "polars")
    assert result.equals(expected)
    assert result.schema == expected.schema
    assert zc.shares_memory(table["e"], result["e"])


@pytest.mark.parametrize("to", ["pandas", "pyarrow", "duckdb", "nanoarrow"])
def test_text_of_polars_takes_a_route(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pl = pytest.importorskip("polars")
    pytest.importorskip(to)
    table = pl.DataFrame({"t": ["a", None, "text longer than a view"], "x": [1.0, 2.0, 3.0]})
    objects = (table,) if to == "duckdb" else (table, table["t"])
    for x in objects:
        zc.convert(x, to)
    monkeypatch.setattr(registry.by_name(to), "column_reasons", lambda column: pytest.fail("a plan was made"))
    for x in objects:
        assert zc.convert(zc.convert(x, to), type(x)).equals(x)


def test_a_result_keeps_the_memory_of_its_source() -> None:
    nanoarrow = pytest.importorskip("nanoarrow")
    for to in ("numpy", "pyarrow", "polars", "pandas"):
        pytest.importorskip(to)
        for _ in range(2):
            table = nanoarrow.Array(pa.table({"a": np.arange(5000.0), "b": np.arange(1.0, 5001.0)}))
            result = zc.convert(table, to)
            del table
            np.random.default_rng(0).random(50_000)  # new memory would reuse what was freed
            assert list(zc.convert(result, "numpy")["b"][:3]) == [1.0, 2.0, 3.0]


def test_a_query_runs_once() -> None:
    duckdb = pytest.importorskip("duckdb")
    runs: list[int] = []

    def tick(x: int) -> int:
        runs.append(x)
        return x

    with duckdb.connect() as con:
        con.create_function("tick", tick, ["BIGINT"], "BIGINT", side_effects=True)
        relation = con.sql("SELECT tick(7) AS a, 'x' AS b")
        for to in ("pyarrow", "polars", "pandas", "nanoarrow"):
            for _ in range(3):
                runs.clear()
                zc.convert(relation, to)
                assert runs == [7], to


@pytest.mark.parametrize(("source", "to"), [("pandas", "polars"), ("polars", "pandas")])
def test_a_series_keeps_its_name(source: str, to: str) -> None:
    module = pytest.importorskip(source)
    pytest.importorskip(to)
    for values in ([1.5, 2.5], ["a", None], [1, 2]):
        for name in ("x", "", "y"):
            for _ in range(2):
                series = (
                    module.Series(values, name=name) if source == "pandas" else module.Series(name, values)
                )
                assert (zc.convert(series, to).name or "") == name


@pytest.mark.skipif(core is None, reason="the routes of the core")
@pytest.mark.parametrize("source", ["pandas", "polars"])
def test_a_table_of_pyarrow_takes_the_route_of_pyarrow(source: str) -> None:
    """Other routes describe each column, and call several functions for it."""
    pytest.importorskip(source)
    pytest.importorskip("pyarrow")
    table = zc.convert({"a": np.arange(3.0), "b": np.arange(3)}, source)
    counts = []
    for to in ("pyarrow", "pyarrow.Table"):
        zc.convert(table, to)
        calls: list[str] = []
        sys.setprofile(lambda frame, event, _, calls=calls: event == "call" and calls.append(event))
        try:
            zc.convert(table, to)
        finally:
            sys.setprofile(None)
        counts.append(len(calls))
    assert counts[1] <= counts[0] + 2


DATES = [
    "Date",
    "Boolean",
    *(("Datetime", unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")),
]


@pytest.mark.parametrize("to", TABLES)
@pytest.mark.filterwarnings("ignore")  # nanoarrow, when it prints nanoseconds
@pytest.mark.parametrize("kind", DATES, ids=str)
def test_frames_of_dates_and_booleans_take_a_route(kind: Any, to: str) -> None:
    pl = pytest.importorskip("polars")
    pytest.importorskip(to)
    dtype = getattr(pl, kind) if type(kind) is str else pl.Datetime(*kind[1:])
    for values in ([0, 1, 1, 0], [None, 1, 0, None], [1, -(2**19), 2**20, 0]):
        column = pl.Series("x", values, pl.Int64 if type(kind) is tuple else pl.Int32).cast(dtype)
        frame = pl.DataFrame([column, pl.Series("n", [1, 2, 3, 4])])
        other = frame.with_columns(pl.col("x").cast(pl.Int8, strict=False).alias("x"))
        for warm in (frame, other, frame[1:3]):
            for x in (frame, frame[1:], frame[:0], pl.concat([frame, frame], rechunk=False)):
                check(x, warm, to, {}, "convert")


def test_frames_of_dates_are_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"x": [1, 2], "t": pl.Series([1, 2]).cast(pl.Datetime("ms", "UTC")), "b": True})
    expected = zc.convert(frame, "pyarrow")
    target = registry.by_name("pyarrow")
    monkeypatch.setattr(type(target), "from_table", lambda *args: pytest.fail("planned"))
    assert zc.convert(frame, "pyarrow").equals(expected)
