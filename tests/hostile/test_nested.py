"""Nested Arrow types in every target: ``python -m tests.hostile --family nested`` runs more."""

from __future__ import annotations

from random import Random

import pytest
from helpers.hostile.check import check
from helpers.hostile.generate import case
from helpers.hostile.nested import nested_array

import zerocopy as zc

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

#: Seeds that found bugs: empty lists whose offsets are not 0, empty chunks of dictionaries, one sliced chunk
#: of several; unions in null structs, extension types inside runs and views of lists, views of text in
#: structs with runs, unions of nulls.
FOUND = [0, 100683, 3803, 304210, 131197, 184467, 84768, 85390, 165784, 192462, 156168, 154615, 385931]


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_bugs(seed: int) -> None:
    pytest.importorskip("torch")
    outcome = check(case(seed))
    assert outcome.kind != "finding", outcome.detail


def test_polars_keeps_rows_after_lists_of_categories_without_items() -> None:
    kind = pa.large_list(pa.dictionary(pa.uint8(), pa.string()))
    words = pa.array(["x", "y", "z"]).dictionary_encode().cast(kind.value_type)
    empty, full = (
        pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), words.slice(0, count))
        for offsets, count in (([0, 0, 0], 0), ([0, 2], 2))
    )
    for chunks in ([empty, full], [full, empty, full], [empty, empty]):
        x = pa.chunked_array(chunks)
        for source in (
            x,
            pa.table({"a": x}),
            pa.table({"a": pa.StructArray.from_arrays([x.combine_chunks()], ["s"])}),
        ):
            made = zc.convert(source, "polars")
            rows = (source if source is x else source["a"]).to_pylist()
            assert (made if source is x else made["a"]).to_list() == rows


def test_copies_of_slices_without_inner_rows_reach_polars() -> None:
    kinds = [pa.list_(pa.list_(pa.int8())), pa.large_list(pa.map_(pa.string(), pa.int8()))]
    kinds += [
        pa.struct([("a", pa.list_(pa.list_(pa.string_view())))]),
        pa.list_(pa.list_(pa.list_(pa.int8(), 2))),
    ]
    for kind in kinds:
        for seed in range(12):
            rng = Random(seed)
            column = pa.chunked_array([nested_array(rng, kind, n, 0.4) for n in (2, 1)], kind)
            for copy in (None, True):
                assert len(zc.convert(column, "polars", copy=copy)) == 3
