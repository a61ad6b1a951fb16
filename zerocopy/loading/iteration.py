"""``BatchIterator``: the batches of one iteration over a loader."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from zerocopy import forks
from zerocopy.loading.chunks import Chunk
from zerocopy.loading.portion import Portion
from zerocopy.loading.prefetcher import Prefetcher
from zerocopy.loading.state import Progress
from zerocopy.loading.stats import Delivered


class Tracker:
    """Holds the progress of an iteration, which the iterator replaces and the loader reads."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress


class BatchIterator:
    """Iterates over the batches of one epoch or several.

    Dropping the last reference, or `close`, ends the reader's thread. Several threads may call ``next``:
    each batch goes to one of them. A batch that could not be made is tried again by the next call.

    Parameters
    ----------
    chunks : callable
        ``chunks(portion, done)`` returns the chunks of an epoch after the first `done` batches; called in the
        reader's thread.
    epochs : iterable of (Portion, int)
        The batches of each epoch, and how many of them have been delivered.
    ahead : int
        Number of batches that the thread makes in advance.
    tracker : Tracker
        Its progress is replaced with each batch, and at the end of an epoch.
    """

    def __init__(
        self,
        chunks: Callable[[Portion, int], Generator[Chunk]],
        epochs: Iterable[tuple[Portion, int]],
        ahead: int,
        tracker: Tracker,
    ) -> None:
        self._tracker = tracker
        self._lock = forks.lock()
        self._item: _Item | None = None
        self.prefetcher = Prefetcher(partial(_all_chunks, chunks, epochs), ahead)
        self.counts = Delivered(self.prefetcher)

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Any:
        with self._lock:
            self.prefetcher.check_process()
            while True:
                item = self._item
                if item is None:
                    item = self._item = self.prefetcher.first()
                    if item is None:
                        raise StopIteration
                batch = None
                if item.chunk is not None and item.delivered < item.batches:
                    cut = item.chunk.cuts[item.delivered]
                    batch = item.chunk.batch(cut)
                    item.delivered += 1
                    if batch is not None:
                        self.counts.add(item.chunk, cut)
                    self._track(item, cut.done)
                elif item.chunk is None:
                    self._track(item, self._done_at_end(item.portion))
                if item.delivered >= item.batches:
                    # The chunk's memory is used again as soon as the consumer drops its batches.
                    self._item = None
                    self.prefetcher.drop_first()
                if batch is not None:
                    return batch

    def _done_at_end(self, portion: Portion) -> int:
        """Return the number of batches of an epoch, of which the last ones may have been skipped."""
        progress, batches = self._tracker.progress, portion.batches()
        if batches >= 0:
            return batches
        return progress.done if progress.portion.epoch == portion.epoch else 0  # a stream

    def _track(self, item: _Item, done: int) -> None:
        tracker = self._tracker
        tracker.progress = Progress(item.portion, done, tracker.progress.until)

    def close(self) -> None:
        """End the reader's thread; the loader's state keeps the position."""
        self.prefetcher.close()
        self._item = None


class _Item:
    """A chunk of an epoch, and how many of its batches were delivered; or the end of an epoch."""

    def __init__(self, portion: Portion, chunk: Chunk | None) -> None:
        self.portion, self.chunk = portion, chunk
        self.batches = 0 if chunk is None else chunk.batches
        self.delivered = 0


def _all_chunks(
    chunks: Callable[[Portion, int], Generator[Chunk]], epochs: Iterable[tuple[Portion, int]]
) -> Iterator[_Item]:
    """Return the chunks of all epochs, and the end of each epoch."""
    for portion, done in epochs:
        with closing(chunks(portion, done)) as made:  # an error at the close of files is raised here
            for chunk in made:
                item = _Item(portion, chunk)
                del chunk  # the consumer alone keeps it
                yield item
                del item
        yield _Item(portion, None)
