"""The plans of the CUDA kernels: tasks, accesses, swizzle and divisions; no device is needed."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.layout_cases import ON_DEVICE, padding

from zerocopy.layout.cuda.tile_plan import (
    ACCESS,
    ALIGNED,
    GAP,
    HALVES,
    LARGEST_TILE,
    LENGTH,
    OCTETS,
    OFFSET,
    ROW,
    SHIFTED,
    SINGLE,
    START,
    STOP,
    division,
    swizzle,
    tile_plan,
)
from zerocopy.layout.schema import FieldLeaf, leaves


def conflicts(words: np.ndarray) -> int:
    """Return the largest number of words that a warp reads from one bank."""
    return int(np.bincount(np.unique(words) % 32).max())


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
@pytest.mark.parametrize("width", [4, 8])
def test_swizzled_reads_have_no_bank_conflicts(width: int, count: int) -> None:
    """For fields of 4 and 8 bytes in records of 4 bytes to 2 KiB."""
    dtype = np.dtype([(f"f{i}", f"f{width}") for i in range(max(1, count * 4 // width))])
    shift, mask = swizzle(leaves(dtype), dtype.itemsize)
    byte = 8 * np.arange(32)
    for leaf in leaves(dtype)[:4]:
        for half in (0, 4):
            at = leaf.pieces[0][0] + (byte + half) % width + (byte + half) // width * dtype.itemsize
            assert conflicts((at ^ (at >> shift & mask)) // 4) == 1, leaf


def test_swizzle_is_a_permutation_within_lines_that_keeps_words() -> None:
    byte = np.arange(32 << 10)
    for itemsize in (3, 12, 16, 59, 64, 96, 128, 256, 1024):
        dtype = np.dtype([("x", "f4"), ("rest", f"V{itemsize - 4}")]) if itemsize > 4 else np.dtype("V3,")
        shift, mask = swizzle(leaves(dtype), itemsize)
        stored = byte ^ (byte >> shift & mask)
        assert sorted(stored) == list(byte)
        assert (stored % 4 == byte % 4).all()
        assert (stored // 128 == byte // 128).all()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 10, 12, 59, 100, 127, 1000, 1023, 4079])
def test_division_by_multiplication_is_exact(length: int) -> None:
    end = max(8, LARGEST_TILE // length) * length
    byte = np.arange(end, dtype=np.uint64)
    magic, shift = division(length, end)
    assert int(byte[-1]) * magic < 1 << 32
    assert (byte * np.uint64(magic) >> np.uint64(shift) == byte // np.uint64(length)).all()


@pytest.mark.parametrize("layout", ON_DEVICE)
@pytest.mark.parametrize("to_rows", [False, True])
def test_each_byte_belongs_to_one_task(layout: str, to_rows: bool) -> None:
    dtype = ON_DEVICE[layout]
    plan = tile_plan(tuple(leaves(dtype)), dtype.itemsize, 0, None, to_rows)
    seen = np.zeros(plan.rows * dtype.itemsize, int)
    for task in plan.table.reshape(-1, len(ROW)):
        byte = np.arange(task[START], task[STOP])
        seen[byte // task[LENGTH] * dtype.itemsize + task[OFFSET] + byte % task[LENGTH]] += 1
    wanted = np.tile(~padding(dtype), plan.rows)
    assert (seen == (wanted | (to_rows and not plan.shared))).all()


def accesses(dtype: object, **options: object) -> set[int]:
    dtype = np.dtype(dtype)
    table = tile_plan(tuple(leaves(dtype)), dtype.itemsize, **options).table.reshape(-1, len(ROW))
    return set(table[:, ACCESS].tolist())


def test_access_width_depends_on_the_alignment() -> None:
    assert accesses("f4,f8") == {ALIGNED}
    assert accesses("f4,f8", head=4) == {ALIGNED}
    assert accesses("f4,f8", head=3) == {SHIFTED}
    assert accesses("f4,u1") == {SHIFTED, OCTETS}
    assert accesses("f4,u2,S6") == {ALIGNED, HALVES}
    assert accesses("f4,f8", column_offsets=(4, 12)) == {ALIGNED}
    assert accesses("u1,u1", column_offsets=(0, 1)) == {OCTETS, SINGLE}
    assert accesses({"names": ["a"], "formats": ["f4"], "itemsize": 9000}, to_rows=True) == {ALIGNED, GAP}


@pytest.mark.parametrize(
    ("itemsize", "rows"), [(8 << 10, 512), (1 << 20, 512), (8 << 20, 504), (32 << 20, 120)]
)
def test_tiles_of_long_records_fit_32_bit_offsets(itemsize: int, rows: int) -> None:
    plan = tile_plan((FieldLeaf(("x",), np.dtype("f4"), (), 0, ((8, 4),)),), itemsize)
    assert (plan.rows, plan.shared) == (rows, 0)
    assert plan.rows * itemsize < 1 << 32
