"""``Encoded.to_pylist``: the rows that Arrow's ``to_pylist`` returns, for every encoded type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import zerocopy as zc

pa = pytest.importorskip("pyarrow")

COLUMNS = {
    "wide decimal": pa.array([Decimal(10**37 + 1), Decimal(-5)], pa.decimal128(38, 0)),
    "decimal": pa.array([Decimal("-0.05"), Decimal("12.30")], pa.decimal128(12, 2)),
    "string": pa.array(["", "Zürich"]),
    "binary": pa.array([b"a", b""], pa.large_binary()),
    "string view": pa.array(["a", "longer than twelve bytes"], pa.string_view()),
    "dictionary": pa.array(["x", None, "yy"]).dictionary_encode(),
    "list": pa.array([[1, 2], []]),
    "list view": pa.array([[1], [2, 3]], pa.list_view(pa.int8())),
    "nested list": pa.array([[["a"], []], []]),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
    "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int8())),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_are_those_of_arrow(name: str) -> None:
    column = COLUMNS[name]
    options: dict[str, Any] = {"nulls": -1} if column.null_count else {}
    assert zc.convert(column, "numpy", encode=True, **options).to_pylist() == column.to_pylist()


def test_masked_rows_are_none() -> None:
    column = pa.array([{"a": [1, None]}, {"a": None}])
    result = zc.convert(column, "numpy", encode=True, nulls="mask")
    assert result.values.to_pylist() == column.to_pylist()
