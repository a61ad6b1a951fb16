"""Bitmaps of nulls that begin inside a byte: polars shifts them, in new memory, for each export."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from helpers import oracle
from helpers.hostile.nested import nested_array
from helpers.tiers import sampled

import zerocopy as zc

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

NULLS = pa.array([row % 3 == 0 for row in range(43)])


def _struct(child: Any) -> Any:
    return pa.StructArray.from_arrays([child], ["a"], mask=NULLS)


def _without_fields() -> Any:
    bitmap = pa.array([not null for null in NULLS.to_pylist()]).buffers()[1]
    return pa.Array.from_buffers(pa.struct([]), 43, [bitmap])


COLUMNS = {
    "a struct of nulls": _struct(pa.nulls(43)),
    "a struct without fields": _without_fields(),
    "a struct of such a struct": pa.StructArray.from_arrays([_struct(pa.nulls(43))], ["a"]),
    "a list of nulls": pa.FixedSizeListArray.from_arrays(pa.nulls(86), 2, mask=NULLS),
    "a list of such a struct": pa.FixedSizeListArray.from_arrays(_struct(pa.nulls(43)).slice(0, 42), 2),
    "a map without items": pa.array(
        [None if null else [] for null in NULLS.to_pylist()], pa.map_("str", "i1")
    ),
    "a struct of numbers": _struct(pa.array(range(43))),
    "a list of numbers": pa.array(
        [None if null else [1] for null in NULLS.to_pylist()], pa.large_list(pa.int8())
    ),
    "text": pa.array([None if null else "a text of some length" for null in NULLS.to_pylist()]),
}


def _agrees(source: Any, to: str, **options: Any) -> None:
    oracle.agrees(source, to, **options)
    if zc.explain(source, to, **options).possible:
        made = zc.convert(source, to, **options)
        assert zc.convert(made, "pyarrow").to_pylist() == zc.convert(source, "pyarrow").to_pylist()


@pytest.mark.parametrize("offset", [0, 3, 8, 16])
@pytest.mark.parametrize("name", COLUMNS)
def test_plans_of_slices_are_true(name: str, offset: int) -> None:
    whole = COLUMNS[name]
    x = whole.slice(offset)
    for source in (x, pa.chunked_array([x]), pa.chunked_array([x, whole]), pa.table({"x": x})):
        for copy in (None, True, False):
            _agrees(source, "polars", copy=copy)
    if pa.types.is_fixed_size_list(whole.type) and pa.types.is_struct(whole.type.value_type):
        return  # polars shows no bitmap inside an Array
    series = pl.Series("x", whole).slice(offset)
    for source in (series, series.to_frame(), pl.concat([series, series], rechunk=False)):
        for to in ("polars", "pyarrow", "pandas"):
            for copy in (None, False):
                _agrees(source, to, copy=copy)
    assert zc.shares_memory(series, series.clone())


@pytest.mark.hazard("polars#bitmaps-of-slices")
def test_bitmaps_alone_are_copied_with_a_fix_that_works() -> None:
    x = COLUMNS["a struct of nulls"].slice(3)
    plan = zc.explain(x, "polars")
    assert (plan.zero_copy, plan.copied_bytes, plan.reasons[0].code) == (False, 6, "misaligned")
    with pytest.raises(zc.CopyRequiredError) as refusal:
        zc.convert(x, "polars", copy=False)
    fix = str(refusal.value).partition("To fix: ")[2].partition(" copies")[0]
    assert eval(fix, {"zc": zc, "x": x}).to_list() == x.to_pylist()
    series = pl.Series(COLUMNS["a struct of nulls"]).slice(3)
    assert zc.explain(series, "pyarrow").reasons[0].code == "misaligned"
    assert zc.convert(series, "pyarrow").to_pylist() == series.to_list()


def _nested(rng: Random, depth: int) -> Any:
    if not depth:
        leaves = [
            pa.int32(),
            pa.string(),
            pa.large_string(),
            pa.binary(),
            pa.null(),
            pa.float64(),
            pa.string_view(),
        ]
        return rng.choice(leaves)
    inner = _nested(rng, depth - 1)
    makers = [
        pa.list_,
        pa.large_list,
        lambda kind: pa.map_(pa.string(), kind),
        lambda kind: pa.list_(kind, 2),
    ]
    return rng.choice([*makers, lambda kind: pa.struct([("a", kind), ("b", _nested(rng, depth - 1))])])(inner)


@pytest.mark.parametrize("part", range(4))
def test_plans_of_generated_slices_are_true(part: int) -> None:
    for (seed,) in sampled(15, range(part * 250, part * 250 + 250)):
        rng = Random(f"bitmaps {seed}")
        kind = _nested(rng, rng.choice([1, 2, 3]))
        counts = rng.choice([[3], [30], [2, 9], [20, 1]])
        chunks = [nested_array(rng, kind, count, rng.choice([0, 0.3, 0.9])) for count in counts]
        chunks = [chunk.slice(rng.choice([0, 0, 1, 8])) for chunk in chunks]
        source = pa.chunked_array(chunks, kind)
        print(seed, kind)
        for copy in (None, True):
            plan = zc.explain(source, "polars", copy=copy)
            if plan.possible:
                shares = zc.shares_memory(source, zc.convert(source, "polars", copy=copy))
                assert plan.shares_memory in (None, shares), plan
                assert plan.zero_copy <= shares


def test_plans_of_slices_that_are_cast_first_do_not_claim_a_copy() -> None:
    decimals = pa.array([None] * 8, pa.decimal64(12, 3))
    pairs = pa.FixedSizeListArray.from_arrays(decimals, 2, mask=pa.array([True] * 4)).slice(1)
    inner = pa.LargeListArray.from_arrays(pa.array([0, 0, 3]), pairs, mask=pa.array([True, False]))
    source = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), inner, mask=pa.array([True, False]))
    plan = zc.explain(source, "polars")
    assert plan.shares_memory in (None, zc.shares_memory(source, zc.convert(source, "polars")))
