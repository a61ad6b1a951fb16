"""The compiled copies between columns and rows: references, arguments and positions that change."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

from zerocopy._native import core
from zerocopy.protocols.array_interface import aligned_empty

if not hasattr(core, "write_rows"):
    pytest.skip("needs the compiled core", allow_module_level=True)


def pieces_of(*pieces: tuple[int, ...]) -> Any:
    """Return a table of pieces: column, offset in the row, bytes, and bytes of a swapped unit or nothing."""
    return np.array([(*piece, 0)[:4] for piece in pieces], np.int64)


ONE = pieces_of((0, 0, 8))


def test_references_are_balanced() -> None:
    out, columns = np.zeros((100, 12), np.uint8), [np.ones(100), np.ones(100, np.float32)]
    pieces, outside = pieces_of((0, 0, 8), (1, 8, 4)), pieces_of((0, 0, 8), (1, 9, 4))
    positions = np.arange(100)
    wrong = positions + 1
    objects = [out, columns, *columns, pieces, positions, wrong]
    counts = [sys.getrefcount(x) for x in objects]
    for _ in range(100):
        core.write_rows(out, columns, pieces, False, positions)
        core.write_rows(out, columns, pieces, True)
        core.read_rows(out, columns, pieces)
        with pytest.raises(IndexError):
            core.write_rows(out, columns, pieces, False, wrong)
        with pytest.raises(ValueError, match="pieces"):
            core.read_rows(out, columns, outside)
        with pytest.raises(TypeError):
            core.write_rows(out, [columns[0], None], pieces)
    assert [sys.getrefcount(x) for x in objects] == counts


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (np.zeros((1, 8), np.uint8),),
        ([[0]], [np.zeros(1)], ONE),
        (np.zeros((1, 8), np.uint8), 5, ONE),
        (np.zeros((1, 8), np.uint8), [np.zeros(1)], 5),
        (np.zeros((1, 8), np.uint8), [5], ONE),
    ],
)
def test_arguments_of_other_types_are_refused(arguments: Any) -> None:
    for function in (core.write_rows, core.read_rows):
        with pytest.raises(TypeError):
            function(*arguments)


@pytest.mark.parametrize(
    "pieces",
    [
        pieces_of(),
        pieces_of((0, 0, 8)),
        pieces_of((1, 8, 8), (0, 0, 8)),
        pieces_of((0, 0, 8), (1, 8, 8), (0, 0, 8)),
        pieces_of((0, 0, 8), (2, 8, 8)),
        pieces_of((0, 0, 8), (-1, 8, 8)),
        pieces_of((0, -1, 8), (1, 8, 8)),
        pieces_of((0, 0, 8), (1, 9, 8)),
        pieces_of((0, 0, 8), (1, 8, 9)),
        pieces_of((0, 0, 8), (1, 2**63 - 1, 8)),
        pieces_of((0, 0, 8), (1, 8, -8)),
        pieces_of((0, 0, 8), (1, 8, 8, 3)),
        pieces_of((0, 0, 8), (1, 8, 8, -1)),
        pieces_of((0, 0, 8), (1, 8, 8)).astype(np.int32),
        pieces_of((0, 0, 8), (1, 8, 8)).T.copy(),
        np.asfortranarray(pieces_of((0, 0, 8), (1, 8, 8))),
        pieces_of((0, 0, 8), (1, 8, 8))[:, :3].copy(),
        pieces_of((0, 0, 8), (1, 8, 8)).reshape(-1),
    ],
)
def test_pieces_that_do_not_fit_are_refused(pieces: Any) -> None:
    out, columns = np.full((4, 16), 0xA5, np.uint8), [np.zeros(4), np.zeros(4)]
    for function in (core.write_rows, core.read_rows):
        with pytest.raises(ValueError, match="pieces"):
            function(out, columns, pieces)
    assert {*out.flat} == {0xA5}
    assert not any(column.any() for column in columns)


def test_arrays_are_read_after_the_last_python_code_ran() -> None:
    """Iterating over the columns may resize an array."""
    out = np.zeros((4, 8), np.uint8)

    class Columns:
        def __iter__(self) -> Any:
            out.resize((0, 8), refcheck=False)
            yield np.ones(4)

    with pytest.raises(ValueError, match="more items"):
        core.write_rows(out, Columns(), ONE)


def test_positions_that_another_thread_changes_stay_inside_the_rows() -> None:
    count = 20_000
    block = np.full((count + 2, 64), 0xA5, np.uint8)
    columns, positions = [np.ones(count)] * 8, np.arange(count)
    pieces = pieces_of(*((k, 8 * k, 8) for k in range(8)))
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            positions[count // 2 :] = -1
            positions[count // 2 :] = np.arange(count // 2, count)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(100):
            try:
                core.write_rows(block[1:-1], columns, pieces, False, positions)
            except IndexError:
                continue
    finally:
        stop.set()
        thread.join()
    assert {*block[0], *block[-1]} == {0xA5}


def random_pieces(rng: np.random.Generator) -> Any:
    """Return pieces of random sizes and byte orders, often equal ones next to each other, and gaps."""
    rows, offset, column = [], 0, 0
    while column < rng.integers(1, 12):
        size = int(rng.choice([1, 2, 3, 4, 4, 5, 8, 8, 10, 16, 40]))
        swap = int(rng.choice([0, 0, size])) if size in (2, 4, 8) else 0
        for _ in range(int(rng.integers(1, 6))):
            rows.append((column, offset, size, swap))
            offset, column = offset + size, column + 1
        offset += int(rng.choice([0, 0, 0, 3]))
    return np.array(rows, np.int64), offset


GUARD = 200  # bytes before and after memory that is written


def guarded(start: int, count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of bytes that start `start` bytes after a cache line does, and all their memory."""
    memory = aligned_empty((GUARD + 64 + count * size + GUARD,), np.dtype(np.uint8))
    memory[...] = 0xA5
    first = GUARD // 64 * 64 + 64 + start
    return np.ndarray((count, size), np.uint8, memory, first), memory  # an empty slice would start at 0


def is_guarded(rows: np.ndarray, memory: np.ndarray) -> bool:
    """Whether the bytes before and after rows have not changed."""
    first = rows.ctypes.data - memory.ctypes.data
    return bool((memory[:first] == 0xA5).all() and (memory[first + rows.size :] == 0xA5).all())


@pytest.mark.parametrize("seed", range(60))
def test_all_instruction_sets_give_the_same_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pieces, width = random_pieces(rng)
    count, chosen = int(rng.choice([0, 15, 64, 130, 1000])), core.isa()
    rows = rng.integers(0, 256, (count, width), np.uint8)
    start = int(rng.choice([0, 16, rng.integers(64)]))
    starts = [int(rng.choice([start, start, 16])) for _ in pieces]
    expected = np.zeros_like(rows)
    try:
        for isa in core.isas:
            assert core.isa(isa) == core.isa() == isa
            for streams in (False, True):
                places = [guarded(at, count, size) for at, size in zip(starts, pieces[:, 2], strict=True)]
                columns = [column for column, _ in places]
                core.read_rows(rows, columns, pieces, streams)
                for column, (_, offset, size, swap) in zip(columns, pieces, strict=True):
                    items = rows[:, offset : offset + size]
                    expected[:, offset : offset + size] = items
                    assert np.array_equal(column, items[:, ::-1] if swap else items), (isa, streams)
                back, memory = guarded(start, count, width)
                core.write_rows(back, columns, pieces, streams)
                assert np.array_equal(back, expected), (isa, streams)
                assert all(is_guarded(*place) for place in (*places, (back, memory))), (isa, streams)
                core.write_rows(back, columns, pieces, False, np.arange(count)[::-1].copy())
                assert np.array_equal(back, expected[::-1]), isa
    finally:
        core.isa(chosen)


def test_an_instruction_set_that_the_processor_does_not_have_is_refused() -> None:
    chosen = core.isa()
    with pytest.raises(ValueError, match="no instruction set mmx"):
        core.isa("mmx")
    assert core.isa() == chosen


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("count", [1, 63, 64, 300])
@pytest.mark.parametrize("swaps", [(4, 2), (2, 4), (0, 4), (4, 0), (1, 4), (0, 2, 8), (2, 2)])
def test_pieces_of_one_column_may_swap_units_of_several_sizes(
    swaps: tuple[int, ...], count: int, streams: bool
) -> None:
    width = 8 * len(swaps)
    rows = np.random.default_rng(count).integers(0, 256, (count, width), np.uint8)
    memory = np.zeros(count * width + 64, np.uint8)
    start = -memory.ctypes.data % 64  # of a cache line, where columns are written past the caches
    column = memory[start : start + count * width].reshape(count, width)
    pieces = pieces_of(*((0, 8 * i, 8, swap) for i, swap in enumerate(swaps)))
    core.read_rows(rows, [column], pieces, streams)
    for i, swap in enumerate(swaps):
        part = rows[:, 8 * i : 8 * i + 8].reshape(count, -1, swap or 1)[..., ::-1]
        assert np.array_equal(column[:, 8 * i : 8 * i + 8], part.reshape(count, 8))
    back = np.zeros_like(rows)
    core.write_rows(back, [column], pieces, streams)
    assert np.array_equal(back, rows)
