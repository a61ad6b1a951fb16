"""Nested Arrow types that pyarrow reads wrongly or refuses: unions in null structs, types inside runs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from helpers.hostile.nested import nested_array, plain

import zerocopy as zc

pa = pytest.importorskip("pyarrow")

WRAPPERS: dict[str, Any] = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
    "fixed_list": lambda kind: pa.list_(kind, 2),
    "map": lambda kind: pa.map_(pa.string(), kind),
    "struct": lambda kind: pa.struct([("a", kind), ("b", pa.int8())]),
    "dense_union": lambda kind: pa.dense_union([pa.field("a", kind)]),
    "sparse_union": lambda kind: pa.sparse_union([pa.field("a", kind)]),
    "runs": lambda kind: pa.run_end_encoded(pa.int32(), kind),
}
#: Types that pyarrow 26 does not build, take, or cast in another type.
INNER = {
    "bool8": pa.bool8(),
    "runs of bool8": pa.run_end_encoded(pa.int16(), pa.bool8()),
    "views": pa.string_view(),
    "views of bytes": pa.binary_view(),
    "runs of views": pa.run_end_encoded(pa.int16(), pa.string_view()),
    "decimals": pa.dictionary(pa.int8(), pa.decimal64(12, 3)),
}


@pytest.mark.hazard("pyarrow#unions-in-null-structs")
@pytest.mark.parametrize("to", ["polars", "duckdb"])
@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_unions_in_null_structs_do_not_abort_the_process(run_warm: Any, to: str, mode: str) -> None:
    pytest.importorskip(to)
    result = run_warm(
        f"""
        import pyarrow as pa, zerocopy as zc
        ids, moments = pa.array([0, 0], pa.int8()), pa.array([1, 2], pa.timestamp("s"))
        places = [pa.array([0, 1], pa.int32())] if {mode!r} == "dense" else []
        union = pa.UnionArray.from_{mode}(ids, *places, [moments])
        for depth in range(3):
            x = pa.StructArray.from_arrays([union, moments], ["u", "t"], mask=pa.array([True, False]))
            x = [x, pa.StructArray.from_arrays([x], ["x"]), pa.ListArray.from_arrays([0, 2], x)][depth]
            for source in (x, pa.chunked_array([x, x]), pa.table({{"x": x}})):
                plan = zc.explain(source, {to!r})
                try:
                    made = zc.convert(source, {to!r})
                except zc.ZeroCopyError as error:
                    assert not plan.possible and error.code == plan.reasons[0].code, error
                else:
                    assert plan.possible and made is not None
        print("done")
        """
    )
    assert (result.returncode, result.stdout.strip()) == (0, "done"), result.stderr[-2000:]


@pytest.mark.parametrize("to", ["polars", "duckdb"])
def test_values_hidden_by_a_null_struct_are_not_out_of_range(to: str) -> None:
    pytest.importorskip(to)
    far = pa.array([2**62, 5], pa.timestamp("s"))
    inner = pa.StructArray.from_arrays([far], ["t"], mask=pa.array([True, False]))
    made = zc.convert(pa.table({"x": inner}), to)
    rows = made.fetchall() if to == "duckdb" else made.rows()
    assert rows[0] in [(None,), ({"t": None},)]
    with pytest.raises(zc.ZeroCopyError, match=r"bounds|range|hold"):
        zc.convert(pa.table({"x": pa.StructArray.from_arrays([far], ["t"])}), to)


@pytest.mark.hazard("pyarrow#extension-types-inside-others")
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", WRAPPERS)
@pytest.mark.parametrize("to", ["pyarrow", "pyarrow.Array", "pandas", "nanoarrow"])
def test_types_inside_others_keep_their_rows(outer: str, inner: str, to: str) -> None:
    pytest.importorskip(to.partition(".")[0])
    if outer == "runs" and "runs" in inner:
        pytest.skip("pyarrow 26 does not import runs of runs")
    kind = WRAPPERS[outer](INNER[inner])
    for seed, nulls in ((1, 0), (2, 0.4)):
        if nulls and inner == "runs of bool8":
            continue  # to_pylist of pyarrow crashes for null lists of runs of other types
        chunks = [
            nested_array(Random(seed + place), kind, rows, nulls) for place, rows in enumerate((2, 0, 3))
        ]
        column = pa.chunked_array(chunks, kind)
        source = pa.table({"x": column}) if to == "nanoarrow" else column
        for copy in (None, True):
            plan = zc.explain(source, to, copy=copy)
            if not plan.possible:
                with pytest.raises(zc.ZeroCopyError) as refusal:
                    zc.convert(source, to, copy=copy)
                assert refusal.value.code == plan.reasons[0].code
                continue
            made = zc.convert(source, to, copy=copy)
            shares = zc.shares_memory(source, made)
            assert plan.shares_memory in (None, shares), plan
            if to == "pandas":
                made = made.array.__arrow_array__()
            back = pa.chunked_array(made).to_pylist() if to == "nanoarrow" else made.to_pylist()
            rows = [row["x"] for row in back] if to == "nanoarrow" else back
            ours, theirs = ([plain(row, kind, False) for row in each] for each in (rows, column.to_pylist()))
            assert ours == theirs


def test_views_next_to_runs_without_values_reach_nanoarrow() -> None:
    pytest.importorskip("nanoarrow")
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([3, 9, 13, 17], pa.int32()), pa.nulls(4))
    structs = pa.StructArray.from_arrays([runs.slice(3, 10)], ["b"])
    lists = pa.FixedSizeListArray.from_arrays(structs, 2)
    for start, stop in ((0, 5), (1, 4), (3, 5)):
        text = pa.array(["a", "b", None, "a longer text", "e"], pa.string_view())
        x = pa.StructArray.from_arrays([text, lists], ["t", "x"]).slice(start, stop - start)
        back = pa.array(zc.convert(x, "nanoarrow"))
        back.validate(full=True)
        assert back.to_pylist() == x.to_pylist()


@pytest.mark.parametrize("mode", ["sparse", "dense"])
@pytest.mark.parametrize("child", [pa.null(), pa.struct([("a", pa.null())]), pa.struct([])], ids=str)
@pytest.mark.parametrize("to", ["pyarrow", "nanoarrow"])
def test_type_ids_of_unions_are_shared_memory(to: str, child: Any, mode: str) -> None:
    pytest.importorskip(to)
    ids, children = pa.array([0] * 12, pa.int8()), [pa.nulls(12, child)]
    places = [pa.array(range(12), pa.int32())] if mode == "dense" else []
    union = getattr(pa.UnionArray, f"from_{mode}")(ids, *places, children)
    for x in (union, union.slice(3, 5), pa.chunked_array([union, union]), pa.table({"x": union})):
        for copy in (None, True, False):
            plan, made = zc.explain(x, to, copy=copy), zc.convert(x, to, copy=copy)
            assert plan.shares_memory == zc.shares_memory(x, made) == (copy is not True)
        assert zc.shares_memory(x, x)
