"""Arrays that become tables: their number of columns is bounded, and names are UTF-8."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from helpers.table_cases import TABLES

import zerocopy as zc
from zerocopy import registry

#: Frameworks that have arrays too make an array of it.
TARGETS = [n for n in TABLES if n not in ("cudf", "pylibcudf") and registry.by_name(n).kind == "table"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [2**24 + 1, 2**62])
def test_empty_array_of_too_many_columns_is_refused(target: str, columns: int) -> None:
    zc.convert(np.zeros((2, 3), np.uint8), to=target)  # keeps a route
    x = np.empty((0, columns), np.uint8)
    with pytest.raises(zc.UnsupportedConversionError, match="columns") as caught:
        zc.convert(x, to=target)
    assert caught.value.code == "too-many-elements"
    assert not zc.explain(x, target).possible


#: Installed frameworks whose arrays have no name.
NAMELESS = [name for name in ("pyarrow", "nanoarrow") if zc.frameworks()[name].installed]


@pytest.mark.parametrize("target", TARGETS)
def test_names_without_utf8_are_refused_by_the_plan(target: str) -> None:
    x, half = np.arange(6.0).reshape(3, 2), "a\ud800"
    cases: list[tuple[Any, dict[str, Any]]] = [
        ({half: x[:, 0].copy()}, {}),
        ({"b": x[:, 0].copy(), half: x[:, 1].copy()}, {}),
        (x, {"names": ["b", half]}),
    ]
    for obj, options in cases:
        for _ in range(2):
            plan = zc.explain(obj, target, **options)
            assert (plan.possible, plan.error.code) == (False, "column-name")
            with pytest.raises(zc.UnsupportedConversionError, match="a lone surrogate") as caught:
                zc.convert(obj, target, **options)
            assert caught.value.code == "column-name"
    if target == "pandas":  # labels that are objects may hold anything
        assert list(zc.convert({half: x[:, 0].copy(), 1: x[:, 1].copy()}, target)) == [half, 1]
        assert zc.convert({half: x[:, 0].copy()}, "pandas.Series").name == half
        frame = zc.convert({half: x[:, 0].copy(), 1: x[:, 1].copy()}, target)
        assert list(zc.convert(frame, target, copy=True)) == [half, 1]
        series = importlib.import_module("pandas").Series([1.0, 2.0], name=half)
        for _ in range(2):
            assert zc.convert(series, "pandas", copy=True).name == half
            for drops in NAMELESS:
                assert zc.explain(series, drops).possible
                assert len(zc.convert(series, drops)) == 2
    pair = {"\U0001f600": x[:, 0].copy()}  # a pair of surrogates in UTF-16
    assert zc.convert(zc.convert(pair, target), "pyarrow.Table").column_names == ["\U0001f600"]


@pytest.mark.parametrize("target", ["pyarrow", "pandas", "polars", "duckdb", "nanoarrow"])
def test_a_batch_known_by_protocol_alone_becomes_a_table(target: str) -> None:
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip(target)
    batch = pa.record_batch({"a": [1, 2], "b": [["x"], []]})

    class Exporter:
        def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
            return batch.__arrow_c_array__()

    result = zc.convert(Exporter(), target)
    assert zc.convert(result, "pyarrow.Table").to_pydict() == batch.to_pydict()
