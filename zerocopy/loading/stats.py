"""``LoaderStats``: counts of rows read and delivered, and times of reading and waiting."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakValueDictionary

from zerocopy import forks
from zerocopy.errors import ReadError
from zerocopy.formatting import format_count
from zerocopy.loading.dataset import Group

if TYPE_CHECKING:
    from zerocopy.loading.prefetcher import Channel

#: Share of the time that the consumer waits, from which the loader is the bottleneck.
_WAITS = 0.05


class Skipped(NamedTuple):
    """A group that could not be read, with ``on_error="skip"``.

    Attributes
    ----------
    file : str
        Path or URL of the file; empty for memory.
    row_group : int
        Its number in the file.
    rows : int
        Its rows.
    error : str
        The message of the error.

    Examples
    --------
    >>> print(Skipped("a.parquet", 3, 100, "reading a.parquet, row group 3: ..."))
    Skipped(file='a.parquet', row_group=3, rows=100, error='reading a.parquet, row group 3: ...')
    """

    file: str
    row_group: int
    rows: int
    error: str


class LoaderStats(NamedTuple):
    """Counts and times of all iterators since the loader was created; returned by ``loader.stats()``.

    Attributes
    ----------
    batches, rows : int
        Delivered batches, and their rows.
    nbytes : int
        Bytes of the rows that were delivered; for text and lists, a window's or row group's mean.
    groups : int
        Groups of rows that were read: row groups of a file that are read together, or record batches.
        Reading ahead is included.
    read_seconds : float
        Time of reading and decoding in both threads.
    assemble_seconds : float
        Time in which the reader's thread converts, shuffles and copies rows.
    assembly_waited : float
        Seconds in which this thread waited for a group that was being read.
    reader_waited, consumer_waited : float
        Seconds in which the thread waited for the consumer, because enough batches were ready, and the
        consumer for the thread, because no batch was ready.
    seconds : float
        Time from the start of an iterator to its last batch, summed over all iterators.
    ready : int
        Batches that are ready now.
    buffers : int
        Buffers of windows that were allocated; the loader reuses them.
    skipped : tuple of Skipped
        Groups that could not be read.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> loader = zc.loader({"x": np.arange(10.0)}, to="numpy", batch_size=4)
    >>> print(loader.stats())
    No batch has been delivered.
    >>> batches = list(loader)
    >>> loader.stats().batches, loader.stats().rows, loader.stats().nbytes
    (3, 10, 80)
    """

    batches: int = 0
    rows: int = 0
    nbytes: int = 0
    groups: int = 0
    read_seconds: float = 0.0
    assemble_seconds: float = 0.0
    assembly_waited: float = 0.0
    reader_waited: float = 0.0
    consumer_waited: float = 0.0
    seconds: float = 0.0
    ready: int = 0
    buffers: int = 0
    skipped: tuple[Skipped, ...] = ()

    def __str__(self) -> str:
        if not self.batches:
            text = "No batch has been delivered."
        else:
            rate = self.rows / self.seconds if self.seconds else 0.0
            text = f"{self.batches:,} batches, {self.rows:,} rows at {rate:,.0f} rows/s. {self.bottleneck}"
        if self.skipped:
            rows = sum(group.rows for group in self.skipped)
            text += f" {format_count(len(self.skipped), 'group')} with {rows:,} rows could not be read."
        return textwrap.fill(text, 80)

    def _repr_html_(self) -> str:
        """Return tables for notebooks: the counts, and the groups that could not be read."""
        from zerocopy.formatting import html

        rows = [
            (name.replace("_", " "), f"{value:,.3f}" if isinstance(value, float) else f"{value:,}")
            for name, value in self._asdict().items()
            if name != "skipped"
        ]
        tables = [html.table(self.bottleneck, rows)]
        if self.skipped:
            skipped = [tuple(map(str, group)) for group in self.skipped]
            tables.append(html.table("Skipped", skipped, ("file", "row group", "rows", "error")))
        return "".join(tables)

    @property
    def bottleneck(self) -> str:
        """A sentence: which side waited for the other."""
        if not self.batches:
            return "No batch has been delivered."
        share = self.consumer_waited / self.seconds if self.seconds else 0.0
        waited = f"The consumer waited {share:.0%} of the time"
        if share < _WAITS:
            return f"{waited}, and the reader {self.reader_waited:,.1f} s: the loader is not the bottleneck."
        reads = self.read_seconds >= self.assemble_seconds
        return (
            f"{waited}: {'reading and decoding' if reads else 'assembling batches'} is the bottleneck "
            f"(reading {self.read_seconds:,.1f} s, assembling {self.assemble_seconds:,.1f} s, "
            f"which waited {self.assembly_waited:,.1f} s for reading)."
        )


class Delivered:
    """Counts of one iterator's batches; only the consumer's thread changes them."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel  # not the iterator, so that dropping the iterator ends the thread
        self.batches: int = 0
        self.rows: int = 0
        self.nbytes: int = 0
        self.began: float = time.perf_counter()
        self.last: float = self.began

    def add(self, rows: int, row_bytes: float) -> None:
        """Count a batch."""
        self.batches += 1
        self.rows += rows
        self.nbytes += int(rows * row_bytes)
        self.last = time.perf_counter()


class Counters:
    """Counts of one loader, in all of its iterators. Their pickle is empty."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self.groups: int = 0
        self.skipped: list[Skipped] = []
        self._seconds = {"read": 0.0, "wait": 0.0, "make": 0.0}
        self._iterators: list[Delivered] = []
        self._ended = LoaderStats()

    def __reduce__(self) -> tuple[Any, ...]:
        return Counters, ()

    @contextmanager
    def timed(self, work: Literal["read", "wait", "make"]) -> Iterator[None]:
        """Count the time of reading a group, of waiting for one, or of making a chunk, waits included."""
        began = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._seconds[work] += time.perf_counter() - began

    def count_group(self) -> None:
        """Count a group that was read."""
        with self._lock:
            self.groups += 1

    def skip(self, group: Group, error: ReadError) -> None:
        """Count a group that could not be read."""
        with self._lock:
            self.skipped.append(Skipped(group.file, group.number, group.rows, str(error)))

    def attach(self, delivered: Delivered) -> None:
        """Include an iterator in the counts."""
        with self._lock:
            ended = [each for each in self._iterators if each.channel.is_closed]
            self._ended = _sum(self._ended, ended)
            self._iterators = [each for each in self._iterators if each not in ended]
            self._iterators.append(delivered)

    def open_iterators(self) -> int:
        """Return the number of iterators of this process that have batches left."""
        pid = os.getpid()
        with self._lock:
            channels = [each.channel for each in self._iterators]
        return sum(not channel.is_closed and channel.pid == pid for channel in channels)

    def stats(self, buffers: int) -> LoaderStats:
        """Return the current counts."""
        with self._lock:
            return _sum(self._ended, self._iterators)._replace(
                groups=self.groups,
                read_seconds=self._seconds["read"],
                assemble_seconds=max(0.0, self._seconds["make"] - self._seconds["wait"]),
                assembly_waited=self._seconds["wait"],
                ready=sum(each.channel.depth for each in self._iterators),
                buffers=buffers,
                skipped=tuple(self.skipped),
            )


def _sum(stats: LoaderStats, iterators: list[Delivered]) -> LoaderStats:
    """Return the counts with those of some iterators added."""
    return stats._replace(
        batches=stats.batches + sum(each.batches for each in iterators),
        rows=stats.rows + sum(each.rows for each in iterators),
        nbytes=stats.nbytes + sum(each.nbytes for each in iterators),
        reader_waited=stats.reader_waited + sum(each.channel.reader_waited for each in iterators),
        consumer_waited=stats.consumer_waited + sum(each.channel.consumer_waited for each in iterators),
        seconds=stats.seconds + sum(each.last - each.began for each in iterators),
    )


#: By `id`, in the order of creation; the references are weak.
_live: WeakValueDictionary[int, Any] = WeakValueDictionary()


def _forget_loaders() -> None:
    """In a forked child, which adds the loaders that it iterates over."""
    global _live
    _live = WeakValueDictionary()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_loaders)


def add_loader(loader: Any) -> None:
    """Add a loader that was created, or that a forked child begins to use."""
    _live[id(loader)] = loader


def live_loaders() -> list[Any]:
    """Return the loaders that exist now."""
    return [loader for loader in (reference() for reference in _live.valuerefs()) if loader is not None]


def read_records() -> list[dict[str, Any]]:
    """Return the fields of `zerocopy.monitor.sample.LoaderRecord` for each loader, the oldest first."""
    records = []
    for loader in live_loaders():
        stats, iterators = loader.stats(), loader._counters.open_iterators()
        records.append(
            {
                "name": loader._title,
                "batches": stats.batches,
                "rows": stats.rows,
                "bytes": stats.nbytes,
                "depth": stats.ready,
                "limit": loader._options.prefetch * max(1, iterators),
                "reader_wait": stats.reader_waited,
                "consumer_wait": stats.consumer_waited,
                "bottleneck": stats.bottleneck,
                "running": iterators > 0,
            }
        )
    return records
