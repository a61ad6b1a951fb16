"""`copy` and `explain` for every table source, layout and number of columns (promises P2 and P3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.table_cases import TABLES, TENSORS, pa

import zerocopy as zc

ROWS = 16
SOURCES = ["dict", "matrix columns", "strided", "records", *TABLES]
WIDTHS = {"one column": 1, "three columns": 3}
VALUES: dict[str, Any] = {
    "float64": np.arange(ROWS) * 0.5,
    "int16": np.arange(ROWS, dtype="i2"),
    "dates": np.arange(ROWS).astype("M8[us]"),
}


def source_of(kind: str, values: np.ndarray, width: int) -> Any:
    """Return a table of `width` columns, each with the same values."""
    names = [f"c{i}" for i in range(width)]
    if kind == "matrix columns":  # of one row-major array, which has the memory of records
        matrix = np.stack([values] * width, axis=1)
        return {name: matrix[:, i] for i, name in enumerate(names)}
    if kind == "strided":
        matrix = np.stack([values] * (width + 1), axis=1)
        return {name: matrix[:, i] for i, name in enumerate(names)}
    if kind == "records":
        records = np.zeros(len(values), [(name, values.dtype) for name in names])
        for name in names:
            records[name] = values
        return records
    columns = {name: values.copy() for name in names}
    return columns if kind == "dict" else zc.convert(pa.table(columns), kind)


def check(source: Any, to: str, **options: Any) -> Any:
    """Convert, and compare the result's memory with the plan and with ``copy=``."""
    plan = zc.explain(source, to, **options)
    try:
        result = zc.convert(source, to, **options)
    except zc.CopyRequiredError:
        assert options.get("copy") is False
        assert not plan.possible
        return None
    assert plan.possible, plan
    if plan.unread:  # a query: it has no memory
        return result
    shared = zc.shares_memory(source, result)
    assert plan.zero_copy == shared, plan
    if options.get("copy") is not None:
        assert shared is (options["copy"] is False), plan
    return result


@pytest.mark.parametrize("copy", [True, False, None])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("kind", SOURCES)
def test_records_alias_or_copy_as_asked_and_as_explained(
    kind: str, dtype: str, width: str, copy: bool | None
) -> None:
    source = source_of(kind, VALUES[dtype], WIDTHS[width])
    records = check(source, "numpy", layout="records", copy=copy)
    if records is not None:
        assert all(np.array_equal(records[name], VALUES[dtype]) for name in records.dtype.names)
        assert len(records.dtype.names) == WIDTHS[width]


@pytest.mark.parametrize("copy", [True, False, None])
@pytest.mark.parametrize(
    "layout",
    [{"layout": "columns"}, *({"layout": "matrix", "order": order} for order in (None, "C", "F"))],
    ids=str,
)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("to", TENSORS)
def test_layouts_alias_or_copy_as_asked_and_as_explained(
    to: str, kind: str, layout: dict[str, Any], copy: bool | None
) -> None:
    for width in WIDTHS.values():
        source = source_of(kind, VALUES["float64"].astype("f4"), width)
        if layout["layout"] == "columns" and width > 1 and copy is not True:
            continue  # each column is aliased by itself: `zero_copy` of the leaves has its own tests
        result = check(source, to, **layout, copy=copy)
        if result is None:
            continue
        parts = list(result.values()) if isinstance(result, dict) else [result]
        whole = np.column_stack([zc.convert(part, "numpy") for part in parts])
        assert np.array_equal(whole, np.column_stack([VALUES["float64"]] * width))


def test_one_column_of_one_row_becomes_one_record() -> None:
    for copy in (True, False, None):
        one = check({"a": np.arange(4.0)[1::2][:1]}, "numpy", layout="records", copy=copy)
        assert one.tolist() == [(1.0,)]


def test_records_over_immutable_memory_are_read_only() -> None:
    table = pa.table({"a": [1.0, 2.0]})
    assert not zc.convert(table, "numpy", layout="records").flags.writeable
    assert zc.convert(table, "numpy", layout="records", writable=True).flags.writeable
    assert not zc.convert(table, "numpy", layout="records", copy=True, writable=False).flags.writeable


@pytest.mark.parametrize("values", [np.broadcast_to(np.float64(3), ROWS), np.arange(ROWS)[::-1]])
def test_columns_that_are_not_rows_of_records_are_copied(values: np.ndarray) -> None:
    records = check({"a": values}, "numpy", layout="records")
    assert np.array_equal(records["a"], values)
    with pytest.raises(zc.CopyRequiredError):
        zc.convert({"a": values}, "numpy", layout="records", copy=False)


def test_records_keep_the_memory_of_their_columns_alive() -> None:
    import gc

    records = zc.convert({"a": np.arange(ROWS * 1.0)}, "numpy", layout="records", copy=False)
    gc.collect()
    _ = [np.full(ROWS, -1.0) for _ in range(100)]  # would reuse freed memory
    assert records["a"].tolist() == list(range(ROWS))
