"""Series whose memory Arrow does not have, converted to polars itself: categories and objects (P2, P3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.table_cases import TABLES, TENSORS

import zerocopy as zc

pl = pytest.importorskip("polars")

_TEXT = ["b", "a", None, "b"]


def _categorical() -> Any:
    return pl.Series("x", _TEXT, pl.Categorical)


SERIES: dict[str, Callable[[], Any]] = {
    "Categorical": _categorical,
    "Categorical in chunks": lambda: pl.concat([_categorical(), _categorical()], rechunk=False),
    "Categorical, sliced": lambda: _categorical()[1:3],
    "Enum": lambda: pl.Series("x", _TEXT, pl.Enum(["a", "b"])),
    "List(Categorical)": lambda: pl.Series("x", [["a"], ["b", "a"], None], pl.List(pl.Categorical)),
    "Struct(Categorical)": lambda: pl.DataFrame({"c": _categorical(), "n": [1, 2, 3, 4]}).to_struct("x"),
    "Int128": lambda: pl.Series("x", [1, None], pl.Int128),
    "Object": lambda: pl.Series("x", [{1}, None, "text"], pl.Object),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"copy": False},
    {"copy": True},
    {"columns": ["x"]},
    {"columns": ["x"], "copy": False},
    {"columns": ["x"], "copy": True},
]


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("to", ["polars", "polars.DataFrame", "polars.Series"])
def test_explain_is_right_about_results_in_polars(name: str, options: dict[str, Any], to: str) -> None:
    for source in (SERIES[name](), SERIES[name]().to_frame()):
        plan = zc.explain(source, to, **options)
        if not plan.possible:
            with pytest.raises(zc.ZeroCopyError):
                zc.convert(source, to, **options)
            continue
        result = zc.convert(source, to, **options)
        series = result if isinstance(result, pl.Series) else result["x"]
        assert series.dtype == SERIES[name]().dtype
        assert series.to_list() == SERIES[name]().to_list()
        assert zc.shares_memory(source, result) == plan.zero_copy
        if options.get("copy") is False and name != "Object":  # objects have no memory of their own
            assert plan.zero_copy


@pytest.mark.parametrize("target", [name for name in (*TABLES, *TENSORS) if name != "duckdb"])
@pytest.mark.parametrize("name", SERIES)
def test_codes_that_are_computed_are_copies_elsewhere(name: str, target: str) -> None:
    source = SERIES[name]()
    for options in ({}, {"copy": True}, {"encode": True}):
        plan = zc.explain(source, target, **options)
        if plan.possible:
            result = zc.convert(source, target, **options)
            assert plan.shares_memory in (None, zc.shares_memory(source, result))


def test_a_copy_of_objects_holds_the_same_objects() -> None:
    source = SERIES["Object"]()
    copy = zc.convert(source, "polars", copy=True)
    assert copy is not source
    assert [a is b for a, b in zip(copy.to_list(), source.to_list(), strict=True)] == [True] * 3


def test_series_of_categories_share_memory_with_themselves_only() -> None:
    series = _categorical()
    assert zc.shares_memory(series, series.alias("y"))
    assert not zc.shares_memory(series, _categorical())
    assert not zc.shares_memory(series[:2], series[2:])
