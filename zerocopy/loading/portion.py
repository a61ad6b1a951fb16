"""``Portion``: the batches of an epoch that one shard delivers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zerocopy.loading.order import Run, shard_run


class Layout(NamedTuple):
    """The rows of all epochs, and how they are cut into batches.

    Attributes
    ----------
    rows : int
        Rows of an epoch; -1 for a stream.
    batch : int
        Rows of a batch.
    drop_last : bool
        Whether a batch with fewer rows is left out, and all shards have equally many batches.
    """

    rows: int
    batch: int
    drop_last: bool

    def batches(self, run: Run) -> int:
        """Return the number of batches of a run that is not a stream."""
        return run.rows // self.batch if self.drop_last else -(-run.rows // self.batch)


class Portion(NamedTuple):
    """The batches of an epoch that one shard delivers.

    Attributes
    ----------
    layout : Layout
        The rows of the epoch.
    epoch : int
        Number of the epoch.
    window : int
        Rows of a window; 0 without shuffling.
    shard : (int, int)
        Rank of the shard, and number of shards.
    dealt : tuple of Run or None
        The rows that are dealt to all shards: the rest of an epoch that other shards have begun. None:
        the whole epoch, by positions.
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
        number, workers, skipped = self.worker
        if workers == 1:
            return self._runs_of_shard()
        whole = self._replace(worker=(0, 1, 0))
        return deal([run for _, run in whole.rest(skipped)], number, workers, self.layout, even=False)

    def of_worker(self, number: int, workers: int, done: int) -> Portion:
        """Return a worker's part of the batches after the first `done`; the parts have whole batches."""
        return self._replace(worker=(number, workers, done))

    def _runs_of_shard(self) -> list[Run]:
        layout, (rank, world) = self.layout, self.shard
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
                yield before + skipped, run._replace(first=run.first + skipped * self.layout.batch)
            before += count

    def of_shard(self, rank: int, world: int) -> Portion:
        """Return the batches of shard `rank` of `world` shards."""
        return self._replace(shard=(rank, world))


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
            ends = run.first + first * layout.batch, min(run.first + last * layout.batch, run.end)
            parts.append(run._replace(first=ends[0], last=ends[1]))
        before += count
    return parts
