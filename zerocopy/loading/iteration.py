"""``BatchIterator``: the batches of one iteration over a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zerocopy.loading.chunks import Chunk, Cut
from zerocopy.loading.order import Run
from zerocopy.loading.prefetcher import Prefetcher
from zerocopy.loading.stats import Delivered


class BatchIterator:
    """Iterates over the batches of one epoch or several.

    Dropping the last reference, or `close`, ends the reader's thread.

    Parameters
    ----------
    chunks : callable
        ``chunks(epoch, runs)`` returns the chunks of an epoch; called in the reader's thread.
    epochs : iterable of (int, list of Run)
        Each epoch's number and runs.
    ahead : int
        Number of batches that the thread makes in advance.
    delivered : callable
        ``delivered(epoch, cut)`` is called with each batch, and with None at the end of an epoch.
    """

    def __init__(
        self,
        chunks: Callable[[int, Sequence[Run]], Iterator[Chunk]],
        epochs: Sequence[tuple[int, Sequence[Run]]],
        ahead: int,
        delivered: Callable[[int, Cut | None], None],
    ) -> None:
        self._delivered = delivered
        self._chunk: tuple[int, Chunk] | None = None
        self._cuts: Iterator[Cut] = iter(())
        self.prefetcher = Prefetcher(lambda: _all_chunks(chunks, epochs), ahead)
        self.counts = Delivered(self.prefetcher)

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Any:
        while True:
            for cut in self._cuts:
                assert self._chunk is not None
                epoch, chunk = self._chunk
                batch = chunk.batch(cut)
                self._delivered(epoch, cut)
                if batch is not None:
                    self.counts.add(chunk, cut)
                    return batch
            self._chunk = None
            item = next(self.prefetcher)
            if item.chunk is None:
                self._delivered(item.epoch, None)
            else:
                self._chunk, self._cuts = (item.epoch, item.chunk), iter(item.chunk.cuts)

    def close(self) -> None:
        """End the reader's thread; the loader's state keeps the position."""
        self._cuts, self._chunk = iter(()), None
        self.prefetcher.close()


class _Item:
    """A chunk of an epoch, or the end of an epoch."""

    def __init__(self, epoch: int, chunk: Chunk | None) -> None:
        self.epoch, self.chunk = epoch, chunk
        self.batches = 0 if chunk is None else chunk.batches


def _all_chunks(
    chunks: Callable[[int, Sequence[Run]], Iterator[Chunk]], epochs: Sequence[tuple[int, Sequence[Run]]]
) -> Iterator[_Item]:
    for epoch, runs in epochs:
        for chunk in chunks(epoch, runs):
            item = _Item(epoch, chunk)
            del chunk  # the consumer alone keeps it
            yield item
            del item
        yield _Item(epoch, None)
