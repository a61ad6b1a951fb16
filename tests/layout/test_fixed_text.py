"""Records whose fields are fixed text: from arrays of objects, and back from tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc

RECORD = np.dtype([("a", "S8"), ("b", ">i4"), ("c", "f8")], align=True)


def _records() -> Any:
    rows = np.zeros(3, RECORD)
    rows["a"], rows["b"], rows["c"] = [b"abc", b"\xff", b""], [1, 2, 3], [0.5, 1.5, 2.5]
    return rows


@pytest.mark.parametrize("target", ["polars", "pandas", "pyarrow", "duckdb"])
def test_records_come_back_from_tables_with_their_dtype(target: str) -> None:
    pytest.importorskip(target)
    pytest.importorskip("pyarrow")
    rows = _records()
    by_layout = zc.convert(zc.convert(rows, target), "numpy", layout="records", dtype=RECORD)
    out = np.zeros(3, RECORD)
    into = zc.soa_to_aos(zc.convert(rows, target), out=out)
    for back in (by_layout, zc.soa_to_aos(zc.convert(rows, target), RECORD), into):
        assert back.dtype == RECORD
        assert back.tolist() == rows.tolist()
    assert into is out


def test_objects_become_fixed_text() -> None:
    columns = {"s": np.array(["\u00e9", b"b"], object), "u": np.array([b"\xc3\xa9", "c"], object)}
    rows = zc.soa_to_aos(columns, [("s", "S2"), ("u", ">U1")])
    assert rows.tolist() == [("\u00e9".encode(), "\u00e9"), (b"b", "c")]
    assert rows.dtype["u"].str == ">U1"


@pytest.mark.parametrize(
    ("value", "dtype", "why"),
    [
        ("abc", "S2", "3 bytes"),
        ("\u00e9", "S1", "2 bytes"),
        (b"a\0", "S4", "NUL"),
        ("ab", "U1", "2 characters"),
        (b"\xff", "U4", "not UTF-8"),
        ("\ud800", "S8", "not UTF-8"),
        (None, "S4", "not text"),
        (3, "U4", "not text"),
    ],
)
def test_values_that_do_not_fit_are_refused(value: Any, dtype: str, why: str) -> None:
    with pytest.raises(zc.LossyConversionError, match=why):
        zc.soa_to_aos({"a": np.array([value], object)}, [("a", dtype)])


@pytest.mark.parametrize("dtype", [[("a", "S1")], [("x", "S4")]])
def test_a_table_that_does_not_fit_is_refused_by_the_plan(dtype: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": ["abc"]})
    assert not zc.explain(table, "numpy", layout="records", dtype=np.dtype(dtype)).possible
    with pytest.raises(zc.ZeroCopyError):
        zc.soa_to_aos(table, dtype)


def test_a_dtype_with_fields_needs_records() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="only records"):
        zc.convert(np.zeros(3), "numpy", dtype=RECORD)


def test_a_column_that_needs_a_cast_has_a_call_that_casts_it() -> None:
    x = {"a": np.array([3])}
    with pytest.raises(zc.LossyConversionError) as caught:
        zc.soa_to_aos(x, [("a", "u1")])
    code = caught.value.fixes[0].source.format(x="x")
    assert pasted(code, {"x": x, "zc": zc}).tolist() == [3]
