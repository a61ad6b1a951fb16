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


def _with_null(column: Any) -> Any:
    return pa.array([*column.to_pylist()[:1], None, *column.to_pylist()[1:]], column.type)


@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_mask_is_honoured(name: str, to: str) -> None:
    column = _with_null(COLUMNS[name])
    results = [zc.convert(column, to, encode=True, nulls="mask")]
    if name != "map" and "list" not in name:
        (batch,) = zc.loader(pa.table({"x": column}), to, batch_size=8, encode=True, nulls="mask")
        results.append(batch["x"])
    for result in results:
        assert result.to_pylist() == column.to_pylist()
        assert result.values.to_pylist() == column.to_pylist()
    numbers = zc.convert(pa.array([1, None]), to, nulls="mask")
    assert numbers.to_pylist() == [1, None]


def test_batches_of_a_loader_have_their_own_mask() -> None:
    text = ["a", None, "b", "a", None]
    batches = list(zc.loader(pa.table({"x": text}), "numpy", batch_size=2, encode=True, nulls="mask"))
    assert [row for batch in batches for row in batch["x"].values.to_pylist()] == text
