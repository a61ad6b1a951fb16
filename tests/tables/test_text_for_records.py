"""The fix of text for ``layout="records"`` has a dtype with the bytes of the longest value."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from helpers.oracle import CALLERS, check
from helpers.pasting import pasted
from helpers.tiers import sampled

import zerocopy as zc

pa = pytest.importorskip("pyarrow")

COLUMNS: dict[str, dict[str, Any]] = {
    "text": {"s": ["a", "b\u00e7b"], "n": [1, 2]},
    "nulls": {"s": ["a", None], "n": [1, 2]},
    "two": {"s": ["a", "bb"], "t": ["long text", ""], "n": [0.5, 1.5]},
    "empty text": {"s": ["", ""], "n": [1, 2]},
    "dates": {"s": ["a", "bb"], "when": np.arange(2).astype("M8[s]")},
    "no rows": {"s": pa.array([], pa.string()), "n": pa.array([], pa.int8())},
    "lists": {"s": ["a", "bb"], "v": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2))},
    "views": {"s": pa.array(["a", "a text longer than a view"], pa.string_view()), "n": [1, 2]},
}


@pytest.mark.parametrize("source", ["pyarrow", "pandas", "polars", "dict"])
@pytest.mark.parametrize("name", [*COLUMNS])
@pytest.mark.parametrize("options", [{}, {"columns": ["s"]}, {"encode": True}], ids=str)
def test_the_first_fix_of_text_is_a_dtype_of_records(source: str, name: str, options: dict[str, Any]) -> None:
    table = pa.table(COLUMNS[name])
    columns = dict(zip(table.column_names, table.columns, strict=True))
    if source != "dict":
        pytest.importorskip(source)
    x = columns if source == "dict" else zc.convert(table, source)
    with pytest.raises(zc.ZeroCopyError) as caught:
        zc.convert(x, "numpy", layout="records", **options)
    code = caught.value.calls[0]
    assert "dtype=[" in code
    records = pasted(code, {"x": x, "zc": zc})
    texts = [text for text in table["s"].to_pylist() if text is not None]
    assert [text.decode() for text in records["s"].tolist()] == texts
    assert records.dtype["s"].itemsize == max([len(text.encode()) for text in texts if text], default=1)


def test_a_record_inside_a_record_has_no_literal_and_keeps_the_other_fixes() -> None:
    table = pa.table({"s": ["a"], "r": [{"k": 1}]})
    with pytest.raises(zc.ZeroCopyError) as caught:
        zc.convert(table, "numpy", layout="records")
    assert caught.value.calls
    assert not any("dtype=" in code for code in caught.value.calls)


@pytest.mark.parametrize("kind", ["S3", "U3"])
def test_nulls_of_text_are_no_empty_text(kind: str) -> None:
    with pytest.raises(zc.LossyConversionError, match="None is not text"):
        zc.convert(pa.table({"s": ["a", None]}), "numpy", layout="records", dtype=[("s", kind)], nulls="mask")


WORDS = ["a", "", "b\u00e7b", "\u20ac", "four", "x\0y"]
OTHERS: dict[str, Any] = {
    "nulls": [*WORDS[:2], None],
    "a NUL at the end": ["a\0", "b"],
    "long": ["a", "longer than eight"],
    "no rows": pa.array([], pa.string()),
    "dictionary": pa.array(["a", "b"]).dictionary_encode(),
    "numbers": [1, 2],
    "nulls among numbers": [1, None],
    "dates": pa.array([1, 2], pa.date32()),
}
KINDS: list[Any] = [
    *(
        [("s", "S8"), ("n", "f8")],
        [("s", "U8"), ("n", "f4")],
        [("n", "<i8"), ("s", "S4")],
        [("s", ">U4"), ("n", "i8")],
    ),
    *(
        [("s", "S8")],
        [("s", "S8"), ("t", "S2")],
        [("s", "S8", (1,)), ("n", "i8")],
        [("s", "S0"), ("n", "i8")],
    ),
    *(np.dtype([("s", "U3"), ("n", "i8")], align=True), [("s", "i8"), ("n", "i8")]),
]


def tables_with_text() -> list[Any]:
    """Return tables with the columns ``s`` and ``n``; the first has records of most types."""
    kinds = [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
    ]
    columns = [pa.array([x.encode() for x in WORDS], kind) for kind in kinds[3:]]
    columns = [
        *(pa.array(WORDS, kind) for kind in kinds[:3]),
        *columns,
        pa.array([b"ab", b"cd"], pa.binary(2)),
    ]
    columns += [columns[0][1:4], columns[1][2:], *map(pa.array, OTHERS.values())]
    tables = [pa.table({"s": column, "n": np.arange(len(column))}) for column in columns]
    first = tables[0]
    tables += [
        pa.concat_tables([first, first]),
        first.rename_columns(["s", "s"]),
        first.rename_columns(["n", "s"]),
    ]
    return [
        *tables,
        first.append_column("t", columns[0]),
        first.set_column(1, "n", [pa.array([1, None] * 3)]),
    ]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("source", ["pyarrow", "RecordBatch", "pandas", "polars", "nanoarrow"])
def test_the_route_gives_the_records_of_the_plan(source: str, caller: str) -> None:
    tables: list[Any] = tables_with_text()
    if source == "RecordBatch":
        tables = [table.to_batches()[0] for table in tables if table.num_rows]
    elif source != "pyarrow":
        pytest.importorskip(source)
        arrow, tables = tables, []
        for table in arrow:
            with suppress(zc.ZeroCopyError):
                tables.append(zc.convert(table, source))
    options = [
        {"dtype": kind, **more}
        for kind in KINDS
        for more in ({}, {"columns": ["s", "n"]}, {"columns": ["s"]})
    ]
    for each, table in sampled(17, options, tables, first=[*CALLERS].index(caller)):
        check(table, tables[0], "numpy", {"layout": "records", **each}, caller)


def test_lists_of_any_length_are_refused_by_the_route_too() -> None:
    dtype = [("s", "S2"), ("v", "f4", (2,))]
    fixed, lists = (
        pa.table({"s": ["a"], "v": pa.array([[1, 2]], kind)})
        for kind in (pa.list_(pa.float32(), 2), pa.list_(pa.float32()))
    )
    for table in (lists, fixed, lists):  # the second call composes the route
        if table is fixed:
            assert zc.convert(table, "numpy", layout="records", dtype=dtype)["v"].tolist() == [[1.0, 2.0]]
            continue
        with pytest.raises(zc.UnsupportedConversionError, match="which records lack"):
            zc.convert(table, "numpy", layout="records", dtype=dtype)


def test_a_tuple_of_tuples_is_not_the_dtype_of_a_list_of_tuples() -> None:
    table = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})
    fields = [("a", "i4"), ("b", "S3")]
    with pytest.raises((zc.ZeroCopyError, TypeError)):
        zc.convert(table, "numpy", layout="records", dtype=tuple(fields))
    assert zc.convert(table, "numpy", layout="records", dtype=fields).tolist() == [(1, b"x")]
    with pytest.raises((zc.ZeroCopyError, TypeError)):
        zc.convert(table, "numpy", layout="records", dtype=tuple(fields))


def test_deeply_nested_tuples_are_refused() -> None:
    nested: tuple[object, ...] = ()
    for _ in range(100_000):
        nested = (nested,)
    for dtype in (nested, [nested]):
        with pytest.raises((zc.ZeroCopyError, TypeError, RecursionError)):
            zc.convert(np.arange(3), "torch", dtype=dtype)
