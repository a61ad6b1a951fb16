"""``BatchIterator``: the batches of one iteration over a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import length_hint
from typing import Any

from zerocopy.loading.ahead import Ahead, Step
from zerocopy.loading.chunks import Chunk, Cut
from zerocopy.loading.device import DeviceCopies
from zerocopy.loading.order import Run
from zerocopy.loading.prefetcher import Prefetcher


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
    copies : DeviceCopies, optional
        Copies batches to a device in advance.
    """

    def __init__(
        self,
        chunks: Callable[[int, Sequence[Run]], Iterator[Chunk]],
        epochs: Sequence[tuple[int, Sequence[Run]]],
        ahead: int,
        delivered: Callable[[int, Cut | None], None],
        copies: DeviceCopies | None = None,
    ) -> None:
        self._delivered = delivered
        self._chunk: tuple[int, Chunk] | None = None
        self._cuts: Iterator[Cut] = iter(())
        self._ahead = None if copies is None else Ahead(copies)
        self.prefetcher = Prefetcher(lambda: _all_chunks(chunks, epochs), ahead)

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Any:
        if self._ahead is not None:
            return self._next_on_device(self._ahead)
        while True:
            for cut in self._cuts:
                assert self._chunk is not None
                epoch, chunk = self._chunk
                batch = chunk.batch(cut)
                self._delivered(epoch, cut)
                if batch is not None:
                    return batch
            self._chunk = None
            item = next(self.prefetcher)
            if item.chunk is None:
                self._delivered(item.epoch, None)
            else:
                self._chunk, self._cuts = (item.epoch, item.chunk), iter(item.chunk.cuts)

    def _next_on_device(self, ahead: Ahead) -> Any:
        while True:
            step, batch = ahead.next(self._next_step, self._is_ready)
            self._delivered(step.epoch, step.cut)
            if batch is not None:
                return batch

    def _next_step(self) -> Step:
        """Return the next batch, or the end of an epoch; waits for the thread."""
        while True:
            for cut in self._cuts:
                assert self._chunk is not None
                return Step(*self._chunk, cut)
            self._chunk = None
            item = next(self.prefetcher)
            if item.chunk is None:
                return Step(item.epoch, None, None)
            self._chunk, self._cuts = (item.epoch, item.chunk), iter(item.chunk.cuts)

    def _is_ready(self) -> bool:
        """Whether `_next_step` returns at once."""
        return length_hint(self._cuts) > 0 or self.prefetcher.depth > 0

    def close(self) -> None:
        """End the reader's thread; the loader's state keeps the position."""
        self._cuts, self._chunk = iter(()), None
        if self._ahead is not None:
            self._ahead.clear()
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
