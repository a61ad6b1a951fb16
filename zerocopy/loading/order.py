"""The order in which an epoch delivers rows, and the part of it that one shard delivers.

The rows of an epoch have positions from 0 to the number of rows, in the epoch's order of row groups. A
shard is a range of positions. With shuffling, a run is cut into windows, whose rows are permuted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from zerocopy.framework import while_forks_wait
from zerocopy.source import Array

_GROUPS, _ROWS = 0, 1  # parts of keys: an epoch's generators of groups and of rows must differ


class Run(NamedTuple):
    """Rows to deliver: `first` to `last` (excluded) of the rows at positions `start` to `stop` (excluded).

    The batches of a run begin at multiples of the batch size, counted from `start`. `first` and `last` are
    counted from there too, in the order of delivery. `stop` is -1 for the end of a stream, and `last` for all
    rows.
    """

    start: int
    stop: int
    first: int = 0
    last: int = -1

    @property
    def end(self) -> int:
        """The row after the last one; -1 for the end of a stream."""
        return self.stop - self.start if self.last < 0 <= self.stop else self.last

    @property
    def rows(self) -> int:
        """Number of rows to deliver; negative for a stream."""
        return self.end - self.first


class Piece(NamedTuple):
    """Consecutive rows of one group, and their positions in the epoch."""

    group: int
    low: int
    high: int
    position: int


class Order:
    """The groups of an epoch in their order.

    Examples
    --------
    >>> order = Order([3, 4, 2])
    >>> list(order.pieces(2, 8))  # doctest: +NORMALIZE_WHITESPACE
    [Piece(group=0, low=2, high=3, position=2), Piece(group=1, low=0, high=4, position=3),
     Piece(group=2, low=0, high=1, position=7)]
    """

    def __init__(self, rows: Sequence[int], seed: int | None = None, epoch: int = 0) -> None:
        """`rows` are the sizes of the groups, which a `seed` permutes."""
        sizes = np.asarray(rows, np.int64)
        self.groups: Array = np.arange(len(sizes))
        if seed is not None:
            self.groups = _generator(seed, epoch, _GROUPS).permutation(len(sizes))
        self._ends = np.cumsum(sizes[self.groups], dtype=np.int64)
        self._sizes = sizes

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """Return the parts of groups at positions from `start` to `stop`."""
        k = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            group, end = int(self.groups[k]), int(self._ends[k])
            begin = end - int(self._sizes[group])
            high = min(end, stop)
            if high > start:
                yield Piece(group, start - begin, high - begin, start)
            start, k = high, k + 1


def shard_run(rows: int, rank: int, world: int, even: bool = False) -> Run:
    """Return the positions of a shard; with `even`, all shards have the same number of rows.

    Examples
    --------
    >>> [shard_run(10, rank, 3)[:2] for rank in range(3)]
    [(0, 3), (3, 6), (6, 10)]
    >>> [shard_run(10, rank, 3, even=True)[:2] for rank in range(3)]
    [(0, 3), (3, 6), (6, 9)]
    """
    if even:
        rows -= rows % world
    return Run(rows * rank // world, rows * (rank + 1) // world)


def window_positions(seed: int, epoch: int, start: int, rows: int) -> Array:
    """Return the row within the window at which each of its rows is delivered: int64 of shape (rows,)."""
    # `permutation(rows)` has the type int32 on Windows with NumPy 1.
    positions = np.arange(rows, dtype=np.int64)
    _generator(seed, epoch, _ROWS, start).shuffle(positions)
    return positions


def _generator(seed: int, *key: int) -> Any:
    """Return a generator; `spawn_key` keeps its numbers independent of those of other seeds and keys."""
    # The first use imports it, in the reader's thread: a fork during an import inherits a held lock.
    random = while_forks_wait(lambda: import_module("numpy.random"))
    return random.Generator(random.PCG64(random.SeedSequence(seed, spawn_key=key)))


class Layout(NamedTuple):
    """The rows of all epochs, and how they are cut into batches.

    `rows` is -1 for a stream. With `drop_last`, a batch with fewer rows is left out, and all shards have
    equally many batches.
    """

    rows: int
    batch_size: int
    drop_last: bool

    def batches(self, run: Run) -> int:
        """Return the number of batches of a run that is not a stream."""
        return run.rows // self.batch_size if self.drop_last else -(-run.rows // self.batch_size)


class Portion(NamedTuple):
    """The batches of an epoch that one shard delivers.

    Attributes
    ----------
    window : int
        Rows of a window; 0 without shuffling.
    shard : (int, int)
        Rank of the shard, and number of shards.
    dealt : tuple of Run or None
        The rest of an epoch that other shards have begun, for all shards. None: the whole epoch.
    worker : (int, int, int)
        Number of the worker process that delivers a part of the shard's batches, number of all workers, and
        how many batches of the shard were delivered before the rest was dealt to the workers.

    Examples
    --------
    >>> epoch = Portion(Layout(10, 2, False), 0, 0, (1, 2), None)
    >>> epoch.runs(), epoch.batches()
    ([Run(start=5, stop=10, first=0, last=-1)], 3)
    >>> list(epoch.rest(2))
    [(2, Run(start=5, stop=10, first=4, last=-1))]
    """

    layout: Layout
    epoch: int
    window: int
    shard: tuple[int, int]
    dealt: tuple[Run, ...] | None
    worker: tuple[int, int, int] = (0, 1, 0)

    def runs(self) -> list[Run]:
        """Return the rows of the shard, or of a worker's part of it."""
        layout, (rank, world), (number, workers, skipped) = self.layout, self.shard, self.worker
        if workers > 1:  # the parts have whole batches
            rest = self._replace(worker=(0, 1, 0)).rest(skipped)
            return deal([run for _, run in rest], number, workers, layout, even=False)
        if self.dealt is not None:
            return deal(self.dealt, rank, world, layout)
        if layout.rows < 0:
            return [Run(0, -1)]
        run = shard_run(layout.rows, rank, world, even=layout.drop_last)
        return [run] if run.rows else []

    def batches(self) -> int:
        """Return the number of batches; -1 for a stream."""
        return -1 if self.layout.rows < 0 else sum(map(self.layout.batches, self.runs()))

    def rest(self, done: int) -> Iterator[tuple[int, Run]]:
        """Return the runs without the first `done` batches, each with the number of batches before it."""
        before = 0
        for run in self.runs():
            skipped = max(done - before, 0)
            count = skipped + 1 if run.stop < 0 else self.layout.batches(run)
            if skipped < count:
                yield before + skipped, run._replace(first=run.first + skipped * self.layout.batch_size)
            before += count


def deal(runs: Sequence[Run], rank: int, world: int, layout: Layout, even: bool = True) -> list[Run]:
    """Return the batches of `runs` that one of `world` shards delivers, in their order.

    Each batch stays as it is, and goes to one shard. With ``drop_last``, the shards have equally many: at
    most ``world - 1`` batches at the end are left out, unless `even` is False.

    Examples
    --------
    >>> deal([Run(0, 10, 4), Run(10, 20, 6)], 0, 2, Layout(20, 2, False))
    [Run(start=0, stop=10, first=4, last=8)]
    >>> deal([Run(0, 10, 4), Run(10, 20, 6)], 1, 2, Layout(20, 2, False))
    [Run(start=0, stop=10, first=8, last=10), Run(start=10, stop=20, first=6, last=10)]
    """
    counts = [layout.batches(run) for run in runs]
    total = sum(counts)
    if layout.drop_last and even:
        total -= total % world
    low, high = total * rank // world, total * (rank + 1) // world
    parts, before = [], 0
    for run, count in zip(runs, counts, strict=True):
        first, last = max(low - before, 0), min(high - before, count)
        if first < last:
            ends = run.first + first * layout.batch_size, min(run.first + last * layout.batch_size, run.end)
            parts.append(run._replace(first=ends[0], last=ends[1]))
        before += count
    return parts
