"""A null is refused on a route that was composed for objects without nulls."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

import zerocopy as zc

TARGETS = ("numpy", "torch", "jax", "tensorflow")
PANDAS = ("int64[pyarrow]", "double[pyarrow]", "bool[pyarrow]", "Int64", "Float64", "boolean")
FRAMEWORKS = ("pyarrow", "polars", "duckdb", "nanoarrow", *(f"pandas {dtype}" for dtype in PANDAS))


def table_of(framework: str, values: list[int | None], width: int) -> Any:
    """Return a table of some equal columns."""
    name, _, dtype = framework.partition(" ")
    pytest.importorskip(name)
    if dtype:
        pd = import_module("pandas")
        return pd.DataFrame({f"c{i}": pd.Series(values, dtype=dtype) for i in range(width)})
    pa = pytest.importorskip("pyarrow")
    table = pa.table({f"c{i}": pa.array(values, "float64") for i in range(width)})
    return zc.convert(table, name)


def outcome(call: Callable[[], Any]) -> str:
    """Return the code of an error, or "converted"."""
    try:
        call()
        return "converted"
    except zc.ZeroCopyError as error:
        return error.code


@pytest.mark.parametrize("options", [{}, {"layout": "matrix"}], ids=["dict", "matrix"])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_warm_route_refuses_nulls(framework: str, target: str, width: int, options: dict[str, Any]) -> None:
    pytest.importorskip(target)
    with_nulls = table_of(framework, [1, None, 0], width)
    expected = outcome(lambda: zc.convert(with_nulls, target, **options))
    plain = table_of(framework, [1, 1, 0], width)
    for _ in range(2):  # the second call takes the route
        zc.convert(plain, target, **options)
    assert outcome(lambda: zc.convert(with_nulls, target, **options)) == expected == "nulls"
