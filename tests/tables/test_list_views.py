"""Columns of lists of every layout, in sliced chunks: the items that their rows refer to, and no others."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from helpers.seeds import chosen_seed
from helpers.table_cases import TENSORS, pa
from helpers.tiers import sample_size

import zerocopy as zc

SEEDS: list[int | None] = [0, 1, 2, None]
ITEMS = pa.int16()
KINDS = {
    "list": pa.list_(ITEMS),
    "large_list": pa.large_list(ITEMS),
    "list_view": pa.list_view(ITEMS),
    "large_list_view": pa.large_list_view(ITEMS),
    "fixed_size_list": pa.list_(ITEMS, 2),
}


def views(rng: Random, kind: Any, size: int | None, nulls: bool, count: int = 4) -> Any:
    """Return views that overlap, leave gaps and lie in any order; the extents of null rows are undefined."""
    items = pa.array([rng.randrange(1, 999) for _ in range(9)], kind.value_type)
    valid = [not nulls or rng.random() < 0.7 for _ in range(count)]
    sizes = [rng.randrange(4) if size is None else size for _ in range(count)]
    starts = [rng.randrange(9 - n) for n in sizes]
    for row in range(count):
        if not valid[row]:
            starts[row], sizes[row] = rng.choice([(-5, 7), (2**31 - 1, 2**31 - 1), (3, 2)])
    width = "i8" if "large" in str(kind) else "i4"
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes()) if nulls else None
    parts = [pa.py_buffer(np.array(part, width)) for part in (starts, sizes)]
    buffers, of = [bitmap, *parts], pa.LargeListViewArray if width == "i8" else pa.ListViewArray
    return of.from_buffers(kind, count, buffers, children=[items])


def column(rng: Random, name: str, size: int | None, nulls: bool = False) -> Any:
    """Return three chunks of a type, each a slice."""
    kind, chunks = KINDS[name], []
    for _ in range(3):
        if name.endswith("view"):
            chunk = views(rng, kind, size, nulls)
        else:
            lengths = [2 if name == "fixed_size_list" else rng.randrange(4) if size is None else size] * 4
            rows = [[rng.randrange(1, 999) for _ in range(n)] for n in lengths]
            chunk = pa.array([None if nulls and rng.random() < 0.3 else row for row in rows], kind)
        chunks.append(chunk.slice(rng.randrange(3), rng.randrange(1, 4)))
    return pa.chunked_array(chunks)


def plain(result: Any) -> Any:
    """Return the rows of a result, also of ragged and nested tensors."""
    if getattr(result, "is_nested", False):
        return [row.tolist() for row in result.unbind()]
    if hasattr(result, "to_list"):
        return result.to_list()
    return (
        result.to_pylist()
        if isinstance(result, (zc.Encoded, zc.Masked))
        else zc.convert(result, "numpy").tolist()
    )


@pytest.mark.parametrize("to", TENSORS)
def test_sliced_chunks_of_views_keep_their_items(to: str) -> None:
    whole = [pa.array(rows, KINDS["list_view"]) for rows in ([[1, 2], [3, 4]], [[5, 6], [7, 8]])]
    x = pa.chunked_array([whole[0].slice(1), whole[1]])
    expected = [[3, 4], [5, 6], [7, 8]]
    for source in (x, pa.table({"e": x})):
        for lists in (None, "dense", "pad", "ragged"):
            result = zc.convert(source, to, lists=lists)
            assert plain(result if source is x else result["e"]) == expected, lists
    assert plain(zc.convert(pa.table({"e": x}), to, layout="matrix")) == expected


def generator(seed: int | None) -> Random:
    """Return the generator of a seed, which the environment chooses for None."""
    value = chosen_seed(3) if seed is None else seed
    print("seed", value)
    return Random(value)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KINDS)
def test_every_layout_gives_the_rows_of_arrow(name: str, seed: int | None) -> None:
    rng = generator(seed)
    for _ in range(sample_size(8, 3)):
        x = column(rng, name, 2)
        for source in (x, x.slice(1), x.chunk(1), pa.chunked_array([x.chunk(0)])):
            table = pa.table({"e": source})
            rows = source.to_pylist()
            for lists in ("dense", "pad", None):
                assert zc.convert(table, "numpy", lists=lists)["e"].tolist() == rows
            assert zc.convert(table, "numpy", layout="matrix").tolist() == rows
            assert plain(zc.convert(table, "numpy", encode=True)["e"]) == rows
            assert plain(zc.convert(table, "torch", lists="dense")["e"]) == rows
            assert plain(zc.convert(source, "numpy", encode=True)) == rows


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KINDS)
def test_nulls_and_several_lengths(name: str, seed: int | None) -> None:
    rng = generator(seed)
    for _ in range(sample_size(8, 3)):
        x = column(rng, name, None, nulls=True)
        rows = x.to_pylist()
        assert plain(zc.convert(x, "numpy", lists="ragged", encode=True, nulls="mask")) == rows
        longest = max((len(row) for row in rows if row is not None), default=0)
        if name != "fixed_size_list":
            padded = [[*(row or []), *[None] * (longest - len(row or []))] for row in rows]
            masked = zc.convert(x, "numpy", lists="pad", nulls="mask")
            assert masked.to_pylist() == padded
            filled = zc.convert(x, "numpy", lists="pad", pad_value=-1, nulls=-2).tolist()
            assert filled == [
                [-2] * longest if row is None else [-1 if v is None else v for v in pads]
                for row, pads in zip(rows, padded, strict=True)
            ]
        y = column(rng, name, 2, nulls=True)
        if any(row is not None for row in y.to_pylist()):
            dense = zc.convert(y, "numpy", nulls=-2).tolist()
            assert dense == [[-2, -2] if row is None else row for row in y.to_pylist()]


@pytest.mark.parametrize("to", ["pyarrow", "polars", "pandas", "duckdb", "nanoarrow"])
@pytest.mark.parametrize("name", KINDS)
def test_tables_share_and_loader_keep_the_rows(name: str, to: str) -> None:
    pytest.importorskip(to)
    rng = Random(5)
    x = column(rng, name, 2)
    table = pa.table({"e": x, "i": range(len(x))})
    rows = table["e"].to_pylist()
    plan = zc.explain(table, to)
    if plan.possible:
        assert zc.convert(zc.convert(table, to), "pyarrow.Table")["e"].to_pylist() == rows
    assert zc.convert(zc.share(table), "pyarrow")["e"].to_pylist() == rows
    for shuffle in (False, True):
        seen = {}
        for batch in zc.loader(table, "numpy", batch_size=3, shuffle=shuffle):
            seen |= dict(zip(batch["i"].tolist(), batch["e"].tolist(), strict=True))
        assert [seen[i] for i in range(len(rows))] == rows


def test_masks_of_several_dimensions_hide_elements() -> None:
    rows = [[1, None], [2, 3], None]
    x = pa.array(rows, pa.list_(pa.int32(), 2))
    inner = pa.array([[[1, 2], [3, None]], [], [[5, 6]]], pa.list_(pa.list_(pa.int32(), 2)))
    for to in TENSORS:
        assert zc.convert(x, to, nulls="mask").to_pylist() == [[1, None], [2, 3], [None, None]]
        padded = pa.table({"e": pa.array([[7, None, 9], [4]], pa.list_(pa.int32()))})
        result = zc.convert(padded, to, lists="pad", nulls="mask")["e"]
        assert result.to_pylist() == [[7, None, 9], [4, None, None]]
        encoded = zc.convert(inner, to, encode=True, nulls="mask")
        if isinstance(encoded, (zc.Encoded, zc.Masked)):
            assert encoded.to_pylist() == inner.to_pylist()


@pytest.mark.parametrize("seed", SEEDS)
def test_masks_of_nested_fixed_size_lists(seed: int | None) -> None:
    rng = generator(seed)

    def value(sizes: list[int]) -> Any:
        if not sizes:
            return None if rng.random() < 0.3 else rng.randrange(9)
        return [value(sizes[1:]) for _ in range(sizes[0])]

    for _ in range(6):
        sizes = [rng.randrange(1, 4) for _ in range(rng.randrange(1, 4))]
        kind = pa.int32()
        for size in reversed(sizes):
            kind = pa.list_(kind, size)
        x = pa.array([value(sizes) for _ in range(4)], kind)
        lists = pa.array([[value(sizes) for _ in range(rng.randrange(3))] for _ in range(4)], pa.list_(kind))
        for to in ("numpy", "torch"):
            assert plain(zc.convert(x, to, nulls="mask")) == x.to_pylist()
            assert plain(zc.convert(x.slice(1, 2), to, nulls="mask")) == x.slice(1, 2).to_pylist()
            made = zc.convert(pa.table({"e": lists}), to, nulls="mask", encode=True)["e"]
            assert made.to_pylist() == lists.to_pylist()
