"""Dicts of arrays become tables by a route; the plan gives the same tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy._engine.routes import NO_ROUTE, routes_of
from zerocopy._native import core

pa = pytest.importorskip("pyarrow")


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
