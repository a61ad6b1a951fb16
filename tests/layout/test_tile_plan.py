"""The plans of the CUDA kernels: tasks, accesses, swizzle and divisions; no device is needed."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.layout_cases import ON_DEVICE, padding

from zerocopy.layout.cuda.tile_plan import (
    ACCESS,
    ALIGNED,
    COLUMN_OFFSET,
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
    STEP,
    STOP,
    SWAP,
    WARP,
    WIDE,
    WIDTH,
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


@pytest.mark.parametrize("layout", ON_DEVICE)
@pytest.mark.parametrize("head", [0, 5])
def test_shared_memory_has_room_for_a_tile(layout: str, head: int) -> None:
    dtype = ON_DEVICE[layout]
    plan = tile_plan(tuple(leaves(dtype)), dtype.itemsize, head=head)
    assert not plan.shared or plan.shared >= head + plan.rows * dtype.itemsize


@pytest.mark.parametrize("layout", ON_DEVICE)
@pytest.mark.parametrize("to_rows", [False, True])
@pytest.mark.parametrize("head", [0, 3])
def test_the_step_of_a_task_is_the_distance_to_its_next_words(layout: str, to_rows: bool, head: int) -> None:
    """So are the distances between the 8 bytes of a thread, and the column has no gaps."""
    dtype = ON_DEVICE[layout]
    plan = tile_plan(tuple(leaves(dtype)), dtype.itemsize, head, None, to_rows)
    for task in plan.table.reshape(-1, len(ROW)):
        length, regular = int(task[LENGTH]), 0 < task[LENGTH] <= 8 * WARP and 8 * WARP % task[LENGTH] == 0
        native = not task[SWAP] and task[LENGTH] == task[WIDTH] and task[ACCESS] < SINGLE
        assert bool(task[STEP]) == bool(regular and native and task[WIDE])
        if not task[STEP]:
            continue
        byte = np.arange(task[START], task[STOP] // 8 * 8).reshape(-1, 8)
        place = task[OFFSET] + byte // length * dtype.itemsize + byte % length
        assert (place[WARP:] - place[:-WARP] == task[STEP]).all()
        assert (place - place[:, :1] == place[0] - place[0, 0]).all()


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
    assert accesses("f4,f8", alignments=(4, 4)) == {ALIGNED}
    assert accesses("u1,u1", alignments=(0, 1)) == {OCTETS, SINGLE}
    assert accesses({"names": ["a"], "formats": ["f4"], "itemsize": 9000}, to_rows=True) == {ALIGNED, GAP}


@pytest.mark.parametrize("layout", ON_DEVICE)
@pytest.mark.parametrize("to_rows", [False, True])
def test_columns_at_other_addresses_need_no_new_plan(layout: str, to_rows: bool) -> None:
    """The plan depends on the addresses modulo 8; the table contains the addresses."""
    dtype = ON_DEVICE[layout]
    record_leaves = tuple(leaves(dtype))
    plan = tile_plan(record_leaves, dtype.itemsize, 0, (0,) * len(record_leaves), to_rows)
    before = plan.table.copy()
    offsets = [4096 * (i + 1) for i in range(len(record_leaves))]
    tasks = plan.table_for(offsets).reshape(-1, len(ROW))
    assert tasks.shape[0] == len(plan.task_leaves)
    others = [column for column in range(len(ROW)) if column != COLUMN_OFFSET]
    unchanged = before.reshape(-1, len(ROW))
    assert (tasks[:, others] == unchanged[:, others]).all()
    assert (plan.table == before).all()
    for task in tasks[tasks[:, ACCESS] != GAP]:
        leaf = record_leaves[task[COLUMN_OFFSET] // 4096 - 1]
        assert task[WIDTH] == leaf.width
        assert any(offset <= task[OFFSET] < offset + length for offset, length in leaf.pieces)


@pytest.mark.parametrize(
    ("itemsize", "rows"), [(8 << 10, 512), (1 << 20, 512), (8 << 20, 504), (32 << 20, 120)]
)
def test_tiles_of_long_records_fit_32_bit_offsets(itemsize: int, rows: int) -> None:
    plan = tile_plan((FieldLeaf(("x",), np.dtype("f4"), (), 0, ((8, 4),)),), itemsize)
    assert (plan.rows, plan.shared) == (rows, 0)
    assert plan.rows * itemsize < 1 << 32
