"""NumPy's ``S`` and ``U``, which pad with NULs: other frameworks get the values without the padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.table_cases import TABLES, pa
from hypothesis import given, settings, strategies as st

import zerocopy as zc

HOST = [name for name in TABLES if name not in ("cudf", "pylibcudf")]
VALUES = [b"M31", b"ab\0c", b"", b"123456", b"\0x", b" "]


def lists(result: Any) -> list[Any]:
    """Return a column of any framework as a list of Python objects."""
    converted = zc.convert(result, "pyarrow")
    column = converted.column(0) if hasattr(converted, "column") else converted
    return column.to_pylist()


@pytest.mark.hazard("pyarrow#padding-of-bytes")
@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize("dtype", ["S6", "S9", "U6", ">U6"])
@pytest.mark.parametrize("form", ["array", "strided", "dict", "records", "nested"])
def test_values_arrive_as_numpy_gives_them(target: str, dtype: str, form: str) -> None:
    values = np.array([v if dtype[0] == "S" else v.decode() for v in VALUES], dtype)
    expected = values.tolist()
    assert expected[0] in (b"M31", "M31")
    source: Any = {"array": values, "strided": np.repeat(values, 2)[::2], "dict": {"a": values}}.get(form)
    if form == "records":
        source = np.zeros(len(values), [("a", dtype), ("b", "i4")])
        source["a"] = values
    if form == "nested":
        source = np.zeros(len(values), [("a", [("in", dtype)]), ("b", "i4")])
        source["a"]["in"] = values
        expected = [{"in": value} for value in expected]
    assert lists(zc.convert(source, target)) == expected
    assert lists(zc.convert(source, target, copy=True)) == expected
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(source, target, copy=False)
    assert not zc.explain(source, target).zero_copy


@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize("dtype", ["S6", "U6", "M8[s]", "M8[D]", "m8[ms]", "O", "i4"])
def test_array_without_rows_is_converted(target: str, dtype: str) -> None:
    for x in (np.zeros(0, dtype), np.zeros(0, [("a", dtype)]), {"a": np.zeros(0, dtype)}):
        assert lists(zc.convert(x, target)) == []
        assert zc.shares_memory(x, x) is False


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.lists(st.binary(max_size=5), max_size=8), st.integers(5, 8))
def test_bytes_survive_arrow_and_come_back_as_records(values: list[bytes], width: int) -> None:
    rows = np.zeros(len(values), [("s", f"S{width}"), ("l", f"S{width}", (2,))])
    rows["s"], rows["l"][:, 1] = values, values
    for target in ("pyarrow", "nanoarrow"):
        table = zc.convert(rows, target)
        assert lists(table) == rows["s"].tolist()
        back = zc.convert(table, "numpy", layout="records")
        assert back.dtype == rows.dtype
        assert back.tobytes() == rows.tobytes()


def test_sliced_and_chunked_bytes_come_back_as_records() -> None:
    rows = np.array([(v,) for v in VALUES], [("s", "S6")])
    table = zc.convert(rows, "pyarrow")
    pieces = pa.concat_tables([table.slice(4), table.slice(1, 2), table.slice(0, 0)])
    back = zc.convert(pieces, "numpy", layout="records")
    assert back["s"].tolist() == [b"\0x", b" ", b"ab\0c", b""]


@pytest.mark.parametrize("value", [b"1234567", b"12\0"])
def test_bytes_that_do_not_fit_their_old_type_are_refused(value: bytes) -> None:
    table = zc.convert(np.array([(b"a",)], [("s", "S6")]), "pyarrow")
    changed = table.set_column(0, table.schema.field(0), pa.array([value]))
    assert not zc.explain(changed, "numpy", layout="records").possible
    with pytest.raises(zc.LossyConversionError, match=r"longer than|end with a NUL"):
        zc.convert(changed, "numpy", layout="records")
    missing = table.set_column(0, table.schema.field(0), pa.array([None], pa.binary()))
    with pytest.raises(zc.LossyConversionError, match="null"):
        zc.convert(missing, "numpy", layout="records")


def test_tensors_get_the_bytes_with_the_padding_as_an_alias() -> None:
    values = np.array(VALUES, "S6")
    plan = zc.explain({"a": values}, "numpy", encode=True)
    assert plan.zero_copy
    encoded = zc.convert({"a": values}, "numpy", encode=True)["a"]
    assert encoded.values.shape == (len(VALUES), 6)
    assert zc.shares_memory(encoded.values, values)
    assert zc.convert(values, "numpy", copy=False) is values


def test_void_keeps_all_its_bytes() -> None:
    values = np.array(VALUES, "S6").view("V6")
    for target in HOST:
        assert lists(zc.convert(values, target)) == [v.ljust(6, b"\0") for v in VALUES]
    back = zc.convert(zc.convert({"v": values}, "pyarrow"), "numpy", layout="records")
    assert back.dtype["v"] == "V6"
