"""Columns of many chunks become one tensor, without a description of each chunk."""

from __future__ import annotations

import mmap
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from helpers.table_cases import pa

import zerocopy as zc
from zerocopy.protocols import arrow_c

pl = pytest.importorskip("polars")

COLUMNS = {
    "numbers": pa.array([1, None, 3, 4]),
    "floats": pa.array([1.5, 2.5, 3.5, 4.5]),
    "booleans": pa.array([True, None, False, True]),
    "times": pa.array([1, 2, None, 4], pa.timestamp("us")),
    "dates": pa.array([1, 2, 3, None], pa.date32()),
    "decimals": pa.array([Decimal("1.25"), None, Decimal("-2.50"), Decimal("0.00")], pa.decimal128(9, 2)),
}
OPTIONS: dict[str, dict[str, Any]] = {
    name: {"nulls": "mask"} | ({"encode": True} if name in ("times", "dates", "decimals") else {})
    for name in COLUMNS
}


def in_chunks(name: str, source: str) -> Any:
    array = COLUMNS[name]
    if source == "polars":
        whole = pl.Series(array)
        return pl.concat([whole[1:1], whole[:1], whole[1:3], whole[3:]], rechunk=False)
    return pa.chunked_array([array[1:1], array[:1], array[1:3], array[3:]])


@pytest.mark.parametrize("source", ["pyarrow", "polars"])
@pytest.mark.parametrize("name", COLUMNS)
def test_chunks_are_joined(name: str, source: str) -> None:
    column, options = in_chunks(name, source), OPTIONS[name]
    plan = zc.explain(column, "numpy", **options)
    result = zc.convert(column, "numpy", **options)
    assert result.to_pylist() == zc.convert(COLUMNS[name], "numpy", **options).to_pylist()
    assert not plan.zero_copy
    assert "chunks" in str(plan) or name == "booleans"
    assert not zc.shares_memory(column, result)


@pytest.mark.parametrize("source", ["pyarrow", "polars"])
@pytest.mark.parametrize("options", [{}, {"writable": True}, {"dtype": "float32"}], ids=str)
def test_the_copy_is_writable(source: str, options: dict[str, Any]) -> None:
    result = zc.convert(in_chunks("floats", source), "numpy", **options)
    result[0] = 7
    assert result.tolist() == [7, 2.5, 3.5, 4.5]


@pytest.mark.parametrize("source", ["pyarrow", "polars"])
def test_one_chunk_with_rows_is_aliased(source: str) -> None:
    array = COLUMNS["floats"]
    column = pa.chunked_array([array[:0], array, array[:0]])
    if source == "polars":
        whole = pl.Series(array)
        column = pl.concat([whole[:0], whole, whole[:0]], rechunk=False)
    assert zc.shares_memory(zc.convert(column, "numpy", copy=False), column)


@pytest.mark.parametrize("source", ["pyarrow", "polars"])
def test_chunks_are_not_described_one_by_one(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = np.arange(3000.0).reshape(-1, 3)
    table = pa.Table.from_batches([pa.record_batch({"a": part, "b": part}) for part in parts])
    if source == "polars":
        table = pl.concat([pl.DataFrame({"a": part, "b": part}) for part in parts], rechunk=False)
    described, make = [], arrow_c.Memory.__init__

    def counted(self: Any, *args: Any, **options: Any) -> None:
        described.append(self)
        make(self, *args, **options)

    monkeypatch.setattr(arrow_c.Memory, "__init__", counted)
    result = zc.convert(table, "numpy")
    assert result["b"].tolist() == parts.ravel().tolist()
    assert len(described) <= 4


@pytest.mark.parametrize("kind", ["string", "binary"])
@pytest.mark.parametrize(
    ("to", "options"),
    [("pyarrow.RecordBatch", {}), ("pyarrow.Array", {}), ("numpy", {"encode": "bytes"})],
    ids=str,
)
def test_text_beyond_the_offsets_of_one_array_is_refused_by_explain(kind: str, to: str, options: Any) -> None:
    count = 1_100_000_000
    text = pa.py_buffer(mmap.mmap(-1, count))  # its pages are never touched
    chunk = pa.Array.from_buffers(
        pa.type_for_alias(kind), 1, [None, pa.py_buffer(np.array([0, count], "i4")), text]
    )
    table = pa.table({"s": pa.chunked_array([chunk, chunk])})
    error = zc.explain(table, to, **options).error
    assert error is not None
    assert error.code == "too-many-elements"
    assert f"x['s'].cast('large_{kind}')" in str(error)
    assert zc.explain(table.slice(1), to, **options).error is None
