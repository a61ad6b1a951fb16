"""The order of rows is a function of seed, epoch and position."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from helpers.paths import ROOT
from hypothesis import given, settings, strategies as st

from zerocopy.loading.order import Layout, Order, Portion, Run, deal, shard_run, window_positions

SIZES = st.lists(st.integers(0, 5), max_size=8)


@settings(max_examples=200, deadline=None)
@given(SIZES, st.one_of(st.none(), st.integers(0, 2**70)), st.integers(0, 100), st.data())
def test_pieces_are_the_positions_of_groups(sizes: list[int], seed: int | None, epoch: int, data) -> None:
    order = Order(sizes, seed, epoch)
    assert sorted(order.groups.tolist()) == list(range(len(sizes)))
    rows = [(group, row) for group in order.groups.tolist() for row in range(sizes[group])]
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    pieces = list(order.pieces(start, stop))
    assert [(piece.group, row) for piece in pieces for row in range(piece.low, piece.high)] == rows[
        start:stop
    ]
    assert all(piece.low < piece.high for piece in pieces)
    assert [piece.position for piece in pieces] == [
        start + sum(each.high - each.low for each in pieces[:k]) for k in range(len(pieces))
    ]


@pytest.mark.hazard("robustness#seed-and-epoch")
def test_order_differs_between_seeds_epochs_and_windows() -> None:
    keys = list(itertools.product((0, 1, 2**32, 2**32 + 1), (0, 1, 2), (0, 1, 64, 2**32)))
    windows = {tuple(window_positions(*key, 64)) for key in keys}
    assert len(windows) == len(keys)
    groups = {tuple(Order([1] * 64, seed, epoch).groups) for seed, epoch, _ in keys}
    assert len(groups) == 12
    assert not groups & windows


@pytest.mark.hazard("robustness#seed-and-epoch")
def test_keys_of_wide_seeds_do_not_collide() -> None:
    """A seed of two words is not a seed of one word in another epoch."""
    assert Order([1] * 64, 5 + (1 << 32), 0).groups.tolist() != Order([1] * 64, 5, 1).groups.tolist()


def test_positions_have_the_type_of_the_kernel() -> None:
    positions = window_positions(3, 1, 0, 1000)
    assert positions.dtype == np.int64
    assert sorted(positions.tolist()) == list(range(1000))


@pytest.mark.hazard("robustness#numbers-of-generators")
def test_order_is_the_same_in_other_processes() -> None:
    code = (
        "from zerocopy.loading.order import Order, window_positions as w;"
        "print(Order([1] * 9, 7, 2).groups.tolist(), w(7, 2, 64, 9).tolist())"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    expected = f"{Order([1] * 9, 7, 2).groups.tolist()} {window_positions(7, 2, 64, 9).tolist()}"
    assert output.stdout.strip() == expected, output.stderr


@pytest.mark.hazard("robustness#numbers-of-generators")
def test_order_of_a_seed_is_that_of_all_versions_of_numpy() -> None:
    """NumPy may change the numbers of a generator in a version (NEP 19); states would continue wrongly."""
    assert Order([1] * 9, 7, 2).groups.tolist() == [6, 2, 8, 1, 5, 4, 7, 3, 0]
    assert window_positions(7, 2, 64, 9).tolist() == [8, 2, 3, 0, 5, 4, 6, 7, 1]


@pytest.mark.parametrize("even", [False, True])
def test_shards_are_disjoint_and_complete(even: bool) -> None:
    for rows, world in itertools.product(range(20), range(1, 7)):
        runs = [shard_run(rows, rank, world, even) for rank in range(world)]
        positions = [position for run in runs for position in range(run.start, run.stop)]
        assert positions == list(range(rows - rows % world if even else rows))
        assert max(run.rows for run in runs) - min(run.rows for run in runs) <= (0 if even else 1)


@pytest.mark.parametrize("drop_last", [False, True])
def test_dealt_batches_are_those_of_the_runs(drop_last: bool) -> None:
    """Every batch goes to one shard; with ``drop_last``, all shards have equally many."""
    layout = Layout(100, 4, drop_last)
    for first, middle, last, world in itertools.product((0, 4, 8), (4, 20), (28, 33, 40), range(1, 5)):
        runs = [Run(0, 40, first, last), Run(40, 65, middle), Run(65, 67)]

        def batches(parts: list[Run]) -> list[tuple[int, int, int]]:
            ends = [
                (run, begin, min(begin + 4, run.end))
                for run in parts
                for begin in range(run.first, run.end, 4)
            ]
            return [(run.start, low, high) for run, low, high in ends if high - low == 4 or not drop_last]

        runs[0] = runs[0]._replace(last=-1 if last == 40 else last - last % 4)
        parts = [deal(runs, rank, world, layout) for rank in range(world)]
        dealt = [batch for part in parts for batch in batches(part)]
        left = len(batches(runs)) % world if drop_last else 0
        assert dealt == batches(runs)[: len(batches(runs)) - left]
        counts = [len(batches(part)) for part in parts]
        assert max(counts) - min(counts) <= (0 if drop_last else 1)
        assert counts == [sum(map(layout.batches, part)) for part in parts]


def test_rest_of_a_portion() -> None:
    """The rest after `done` batches is the rest of the batches."""
    runs = (Run(0, 10, 4), Run(10, 20, 6, 8), Run(20, 21))
    portion = Portion(Layout(21, 2, False), 0, 0, (0, 1), runs)
    all_batches = [(2, 10, 0), (2, 10, 1), (2, 10, 2), (12, 20, 3), (20, 21, 4)]
    assert portion.batches() == 5
    for done in range(7):
        rest = [before for before, run in portion.rest(done) for _ in range(-(-run.rows // 2))]
        assert sum(-(-run.rows // 2) for _, run in portion.rest(done)) == max(len(all_batches) - done, 0)
        assert not rest or min(rest) == done
