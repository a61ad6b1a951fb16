"""Views of short text that a cast has made have a NULL text buffer, which pyarrow 24 reads."""

from __future__ import annotations

import pytest

import zerocopy as zc

pa = pytest.importorskip("pyarrow")


@pytest.mark.hazard("pyarrow#short-views-of-a-cast")
@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
def test_short_views_of_a_cast(kind: str) -> None:
    wide = pa.large_string() if kind == "string_view" else pa.large_binary()
    values = ["a", None, "b"] if kind == "string_view" else [b"a", None, b"b"]
    column = pa.array(values, wide).cast(getattr(pa, kind)())
    nested = pa.ListArray.from_arrays([0, 1, 3], column)
    flat = pa.table({"a": pa.chunked_array([column, column.slice(1)])})
    assert zc.convert(flat, "polars")["a"].to_list() == values + values[1:]
    table = pa.table({"a": column}), pa.table({"a": nested})
    for each, expected in zip(table, (values, [values[:1], values[1:]]), strict=True):
        assert zc.explain(each, "polars", copy=True).possible
        if each is table[0] or int(pa.__version__.partition(".")[0]) > 24:
            assert zc.convert(each, "polars")["a"].to_list() == expected
        assert zc.convert(zc.share(each), "pyarrow")["a"].to_pylist() == expected
