"""The order in which an epoch delivers rows, as a function of seed, epoch and position.

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

    The batches of a run begin at multiples of the batch size, counted from `start`.

    Attributes
    ----------
    start, stop : int
        Positions in the epoch. `stop` is -1 for the end of a stream.
    first, last : int
        First row and the row after the last one, counted from `start` in the order of delivery; `last` is
        -1 for all rows.
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
        self.groups = np.arange(len(sizes))
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
