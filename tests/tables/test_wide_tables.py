"""Tables of many columns: the work grows with the number of columns, not with its square.

The tests count calls and comparisons of labels, because times depend on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.table_cases import TABLES, pa

import zerocopy as zc
from zerocopy._engine import routes
from zerocopy._engine.planner import Call, make_plan

HOST = [name for name in TABLES if name not in ("cudf", "pylibcudf")]
FEW, MANY = 40, 160
#: The most by which the work for four times as many columns may grow; quadratic work grows 16 times.
GROWTH = 6.0


class Label(str):
    """A label that counts how often it is hashed or compared."""

    count = 0
    __slots__ = ()

    def __hash__(self) -> int:
        Label.count += 1
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        Label.count += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        Label.count += 1
        return str.__ne__(self, other)


def comparisons(convert: Callable[[dict[Any, Any]], Any], columns: int) -> int:
    source = {Label(f"c{i}"): np.zeros(2) for i in range(columns)}
    Label.count = 0
    convert(source)
    return Label.count


def calls(convert: Callable[[], Any]) -> int:
    """Return the number of calls of functions, those in C included."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        convert()
    finally:
        sys.setprofile(None)
    return count


OPTIONS: dict[str, Callable[[dict[Any, Any]], dict[str, Any]]] = {
    "columns": lambda source: {"layout": "columns"},
    "matrix": lambda source: {"layout": "matrix"},
    "records": lambda source: {"layout": "records"},
    "columns=": lambda source: {"columns": list(source)},
    "nulls=": lambda source: {"nulls": dict.fromkeys(source, 0)},
}


@pytest.fixture(autouse=True)
def checked_extents() -> None:
    """Leave out the checks of `conftest`, because these tests count calls."""


@pytest.mark.parametrize("option", OPTIONS)
def test_labels_are_compared_a_few_times_each_for_tensors(option: str) -> None:
    def convert(source: dict[Any, Any]) -> None:
        options = OPTIONS[option](source)
        zc.explain(source, "numpy", **options)
        zc.convert(source, "numpy", **options)

    comparisons(convert, 3)
    assert comparisons(convert, MANY) < 40 * MANY


@pytest.mark.parametrize("target", HOST)
def test_labels_are_compared_a_few_times_each_for_tables(target: str) -> None:
    def convert(source: dict[Any, Any]) -> None:
        zc.explain(source, target)
        zc.convert(source, target)

    comparisons(convert, 3)
    assert comparisons(convert, MANY) < 40 * MANY


def test_duplicates_are_found_with_a_few_comparisons() -> None:
    def refused(source: dict[Any, Any]) -> None:
        table = pa.table([[1]] * (2 * len(source)), names=[*source, *source])
        for to in ("numpy", "polars", "duckdb"):
            assert not zc.explain(table, to).possible
        assert not zc.explain(table, "numpy", columns=list(source)).possible

    comparisons(refused, 3)
    assert comparisons(refused, MANY) < 40 * MANY


def source_of(kind: str, columns: int) -> Any:
    arrays = {f"c{i}": np.zeros(2) for i in range(columns)}
    if kind == "dict":
        return arrays
    if kind == "records":
        return np.zeros(2, [(name, "f8") for name in arrays])
    if kind == "pandas matrix":
        import pandas as pd

        return pd.DataFrame(np.zeros((2, columns)), columns=list(arrays))
    if kind == "pandas numbers":
        import pandas as pd

        return pd.DataFrame(np.zeros((2, columns)))
    return zc.convert(pa.table(arrays), kind)


@pytest.mark.parametrize("target", ["numpy", *HOST])
@pytest.mark.parametrize("source", ["dict", "records", "pandas matrix", "pandas numbers", *HOST])
def test_calls_grow_with_the_number_of_columns(source: str, target: str) -> None:
    if source in ("duckdb", "records") and source == target:
        pytest.skip("the object itself")
    few, many = source_of(source, FEW), source_of(source, MANY)
    for convert in (zc.explain, zc.convert):
        convert(few, target)  # imports, and the caches of types
        before = calls(lambda c=convert: c(few, target))
        after = calls(lambda c=convert: c(many, target))
        assert after < GROWTH * before + 500, f"{before} calls for {FEW} columns, {after} for {MANY}"


#: The most calls for each column, C functions included: of the first conversion of a type, and of explain.
CALLS = {
    ("dict", "pyarrow"): (110, 165),
    ("pyarrow", "numpy"): (12, 165),
    ("pyarrow", "polars"): (16, 140),
    ("pyarrow", "pandas"): (100, 115),
    ("polars", "pyarrow"): (20, 125),
    ("polars", "numpy"): (20, 290),
    ("pandas matrix", "pyarrow"): (105, 130),
    ("records", "pyarrow"): (130, 135),
}


@pytest.mark.parametrize(("kind", "target"), CALLS)
def test_each_column_takes_few_calls(kind: str, target: str) -> None:
    few, many = source_of(kind, FEW), source_of(kind, MANY)
    for convert, limit in zip((zc.convert, zc.explain), CALLS[kind, target], strict=True):
        counts = []
        for source in (few, few, many):  # the first one imports, and fills the caches of types
            routes.clear()
            counts.append(calls(lambda c=convert, s=source: c(s, target)))
        assert (counts[2] - counts[1]) / (MANY - FEW) < limit


@pytest.mark.parametrize("target", ["numpy", "pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_the_first_table_of_a_type_becomes_the_same_with_and_without_a_plan(kind: str, target: str) -> None:
    source = source_of(kind, 3)
    routes.clear()
    first = zc.convert(source, target)
    planned = make_plan(Call(source, target, {})).run()
    assert type(first) is type(planned)
    assert zc.shares_memory(source, first) == zc.shares_memory(source, planned)
    a, b = (zc.convert(x, "pyarrow.Table") for x in (first, planned))
    assert a.equals(b, check_metadata=True)


@pytest.mark.parametrize("name", ["pandas.DataFrame", "polars.DataFrame", "pyarrow.Table"])
def test_columns_that_are_not_chosen_are_not_described(name: str) -> None:
    pytest.importorskip(name.partition(".")[0])
    table = zc.convert({f"c{i}": np.arange(3.0) for i in range(100)}, name)
    described = []

    def record(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "column_of":
            described.append(frame)

    sys.setprofile(record)
    try:
        result = zc.convert(table, "numpy", columns=["c1", "c7"], encode=True)
    finally:
        sys.setprofile(None)
    assert list(result) == ["c1", "c7"]
    assert 0 < len(described) <= 4
