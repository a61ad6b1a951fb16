"""Nested Arrow types in DuckDB: categories in fixed-size lists, and runs of nested types."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from helpers.hostile.nested import nested_array, plain

import zerocopy as zc

pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")

WORDS = {
    "string": pa.string(),
    "string_view": pa.string_view(),
    "binary_view": pa.binary_view(),
    "int64": pa.int64(),
    "date": pa.date32(),
    "decimal": pa.decimal128(9, 2),
}
#: Types with categories inside a fixed-size list, by the type between them.
INSIDE: dict[str, Any] = {
    "items": lambda kind: pa.list_(kind, 2),
    "fixed-size lists": lambda kind: pa.list_(pa.list_(kind, 2), 3),
    "lists": lambda kind: pa.list_(pa.list_(kind), 2),
    "list views": lambda kind: pa.list_(pa.large_list_view(kind), 2),
    "structs": lambda kind: pa.list_(pa.struct([("a", kind), ("b", pa.null()), ("c", kind)]), 2),
    "maps": lambda kind: pa.list_(pa.map_(pa.string(), kind), 2),
    "in structs": lambda kind: pa.struct([("a", pa.list_(kind, 2)), ("b", kind)]),
    "in lists": lambda kind: pa.large_list(pa.list_(kind, 1)),
    "in maps": lambda kind: pa.map_(pa.string(), pa.list_(pa.struct([("a", kind)]), 1)),
}


@pytest.mark.hazard("duckdb#categories-in-fixed-size-lists")
def test_duckdb_misreads_categories_in_fixed_size_lists(run_warm) -> None:
    code = """
        import duckdb, pyarrow as pa
        words = pa.array(["a", "b", "c", "d"]).dictionary_encode()
        rows = duckdb.from_arrow(pa.table({"x": pa.FixedSizeListArray.from_arrays(words, 2)})).fetchall()
        print(rows == [(("a", "b"),), (("c", "d"),)])
    """
    assert run_warm(code).stdout.split() != ["True"]


@pytest.mark.hazard("duckdb#categories-in-fixed-size-lists")
def test_categories_in_fixed_size_lists_are_decoded() -> None:
    words = pa.array(["a", "b", "c", "d"]).dictionary_encode()
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(words, 2), "i": [1, 2]})
    rows = [["a", "b"], ["b", "a"]]
    kinds = pl.Enum(["a", "b"]), pl.Categorical
    frame = pl.DataFrame({str(kind): pl.Series(rows, dtype=pl.Array(kind, 2)) for kind in kinds})
    for _ in range(2):  # also along the route
        assert zc.convert(table, "duckdb").fetchall() == [(("a", "b"), 1), (("c", "d"), 2)]
        assert zc.convert(frame, "duckdb").fetchall() == [(("a", "b"),) * 2, (("b", "a"),) * 2]
    plan = zc.explain(table, "duckdb")
    assert "categories inside fixed-size lists" in str(plan.leaves["['x']"].reasons)
    assert plan.leaves["['x']"].copied_bytes
    assert plan.leaves["['i']"].zero_copy
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(table, "duckdb", copy=False)
    empty = zc.convert(table.slice(0, 0), "duckdb")
    assert (empty.columns, empty.fetchall()) == (["x", "i"], [])


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("inside", INSIDE)
def test_categories_at_any_depth_keep_their_words(inside: str, words: str) -> None:
    kind = INSIDE[inside](pa.dictionary(pa.int8(), WORDS[words]))
    for seed, nulls in enumerate((0, 0.4)):
        rng = Random(seed)
        column = pa.chunked_array([nested_array(rng, kind, count, nulls) for count in (3, 2)], kind)
        rows = [row for (row,) in zc.convert(pa.table({"x": column}), "duckdb").fetchall()]
        ours, theirs = ([plain(row, kind, False) for row in each] for each in (rows, column.to_pylist()))
        assert ours == theirs


@pytest.mark.hazard("duckdb#runs-of-nested-types")
def test_runs_of_nested_types_are_refused() -> None:
    kinds = [pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.list_(pa.int8(), 2)]
    kinds += [pa.map_(pa.string(), pa.int8()), pa.dictionary(pa.int8(), pa.string())]
    kinds += [pa.run_end_encoded(pa.int32(), pa.int64())]
    for kind in kinds:
        column = nested_array(Random(1), pa.run_end_encoded(pa.int32(), kind), 3, 0)
        for x in (pa.table({"x": column}), pa.table({"x": pa.StructArray.from_arrays([column], ["a"])})):
            assert not zc.explain(x, "duckdb").possible
            with pytest.raises(zc.UnsupportedConversionError, match="decode its run-end encoding"):
                zc.convert(x, "duckdb")
    for kind in (pa.int64(), pa.string(), pa.bool_()):
        column = nested_array(Random(1), pa.run_end_encoded(pa.int32(), kind), 3, 0)
        assert zc.convert(pa.table({"x": column}), "duckdb").fetchall() == [(x,) for x in column.to_pylist()]
