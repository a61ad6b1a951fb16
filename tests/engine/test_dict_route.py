"""Dicts of arrays become tables by a route; the plan gives the same tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine.convert import convert_slowly
from zerocopy._engine.routes import NO_ROUTE, routes_of
from zerocopy._native import core

pa = pytest.importorskip("pyarrow")
TARGETS = [
    name for name, info in registry.frameworks().items() if info.installed and registry.by_name(name).tables
]


def _dicts() -> dict[str, dict[Any, Any]]:
    x, y = np.arange(50.0), np.arange(50)
    days = np.arange(50).astype("M8[D]")
    days[7] = "NaT"
    matrix = np.asfortranarray(np.arange(100.0).reshape(50, 2))
    frozen = np.arange(50, dtype="f4")
    frozen.flags.writeable = False
    cases: dict[str, dict[Any, Any]] = {
        "arrays": {"a": x, "b": y, "c": np.arange(50, dtype="u1")},
        "one": {"a": x},
        "columns of a matrix": {"a": matrix[:, 0], "b": matrix[:, 1]},
        "read-only": {"a": frozen, "b": x},
        "gaps": {"a": np.arange(100.0)[::2], "b": x},
        "reversed": {"a": x[::-1], "b": y},
        "two dimensions": {"a": x.reshape(25, 2), "b": np.arange(25)},
        "lengths": {"a": x, "b": y[:3]},
        "no rows": {"a": x[:0], "b": y[:0]},
        "nothing": {},
        "booleans": {"a": x > 2, "b": x},
        "text": {"a": np.array(["x", "y"]), "b": x[:2]},
        "times": {"a": np.array(["2020-01-01"], "M8[s]"), "b": x[:1]},
        **{
            f"dates in {unit}": {"a": days.astype(f"M8[{unit}]"), "b": y}
            for unit in ("ms", "us", "ns", "D", "h")
        },
        "dates with gaps": {"a": np.repeat(days, 2).astype("M8[ms]")[::2], "b": y},
        "dates in the other byte order": {"a": days.astype(">M8[ms]"), "b": y},
        "dates in tens": {"a": days.astype("M8[10ms]"), "b": y},
        "misaligned dates": {"a": np.frombuffer(b"\0" + days.tobytes(), "u1")[1:].view("M8[ms]"), "b": y},
        "dates in two dimensions": {"a": days.astype("M8[ms]").reshape(25, 2), "b": np.arange(25)},
        "no dates": {"a": days.astype("M8[ms]")[:0], "b": y[:0]},
        "durations": {"a": days.astype("M8[ms]") - np.datetime64("2020-01-01", "ms"), "b": y},
        "dates and text": {"a": days.astype("M8[ms]")[:2], "b": np.array(["x", "y"])},
        "NaN": {"a": np.array([1.0, np.nan]), "b": y[:2]},
        "float16": {"a": x.astype("f2"), "b": y},
        "complex": {"a": x.astype("c8"), "b": y},
        "scalars": {"a": np.array(1.0), "b": np.array(2)},
        "labels of numbers": {0: x, 1: y},
        "an empty label": {"": x, "b": y},
        "a zero byte": {"a\0b": x, "c": y},
        "Arrow": {"a": pa.array(x), "b": y},
        "lists": {"a": [1, 2], "b": [1.5, 2.5]},
        "a dict": {"a": {"b": x}},
        "Python numbers": {"a": 1, "b": 2},
        "masked": {"a": np.ma.masked_array([1, 2, 3], [0, 1, 0]), "b": np.arange(3)},
        "masked, none hidden": {"a": np.ma.masked_array([1, 2, 3]), "b": np.arange(3)},
        "longdouble": {"a": x.astype("g"), "b": y},
        "the other byte order": {"a": x.astype(">f8"), "b": y},
        "bfloat16": {},
    }
    for name, make in (("torch", "from_numpy"), ("pandas", "Series"), ("polars", "Series")):
        module = pytest.importorskip(name)
        cases[name] = {"a": getattr(module, make)(x.copy()), "b": y}
    ml_dtypes = pytest.importorskip("ml_dtypes")
    cases["bfloat16"] = {"a": x.astype(ml_dtypes.bfloat16), "b": y}
    return cases


def _outcome(convert: Any, columns: Any, to: str) -> Any:
    try:
        table = convert(columns, to, {})
        arrow = zc.convert(table, "pyarrow")
        values = zc.convert(arrow, "polars").to_dict(as_series=False)
    except zc.ZeroCopyError as error:
        return error.code
    source = next(iter(columns.values()), None)
    shared = (
        zc.shares_memory(arrow[arrow.column_names[0]], source)
        if to != "duckdb" and len(arrow) and source is not None
        else None
    )
    types = list(map(str, table.dtypes)) if to in ("pandas", "polars") else []
    return type(table), arrow.schema.remove_metadata(), str(values), types, shared


@pytest.mark.parametrize("to", TARGETS)
def test_the_plan_is_the_oracle_of_the_route(to: str) -> None:
    fast = lambda obj, to, options: zc.convert(obj, to)  # noqa: E731
    zc.convert({"a": np.arange(4.0), "b": np.arange(4)}, to)
    for name, columns in _dicts().items():
        results = [_outcome(call, columns, to) for call in (convert_slowly, fast)]
        assert results[0] == results[1], name


@pytest.mark.skipif(core is None, reason="the core has the routes of dicts")
@pytest.mark.parametrize("to", ["pyarrow", "pandas", "polars"])
def test_a_dict_has_a_route_that_aliases(to: str) -> None:
    pytest.importorskip(to)
    columns = {"a": np.arange(3000.0), "b": np.arange(3000)}
    zc.convert(columns, to)
    route = routes_of(to, {})[dict]
    assert route is not NO_ROUTE
    table = route(columns)
    assert zc.shares_memory(table["a"], columns["a"])
    assert zc.shares_memory(table["b"], columns["b"])


@pytest.mark.skipif(core is None, reason="the core has the routes of dicts")
@pytest.mark.parametrize("to", ["pyarrow", "polars"])
def test_a_dict_with_dates_has_a_route_that_aliases(to: str) -> None:
    pytest.importorskip(to)
    columns = {"a": np.arange(3000).astype("M8[us]"), "b": np.arange(3000)}
    zc.convert(columns, to)
    table = routes_of(to, {})[dict](columns)
    assert zc.shares_memory(table["a"], columns["a"])
    del columns["a"]
    assert str(table["a"][2999]).endswith("00:00:00.002999")


def test_a_type_of_another_table_framework_keeps_its_own_type() -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for column in (pa.array([1, 2]), pl.Series([1, 2])):
        zc.convert(column, "numpy")  # a route to NumPy exists now
        frame = zc.convert({"a": np.arange(2), "b": column}, "pandas")
        assert isinstance(frame["b"].dtype, pd.ArrowDtype)


@pytest.mark.parametrize("item", [np.array(1), 1.5, "x", None])
def test_lists_that_are_no_columns_are_refused_with_a_fix(item: Any) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert({"a": [item, np.array(2)]}, "pandas")
    assert caught.value.code == "not-a-column"
    with pytest.raises(zc.UnsupportedConversionError, match=r"pyarrow\.array\(x\['a'\]\)"):
        zc.convert({"a": [np.arange(2), np.arange(1)]}, "pandas")
