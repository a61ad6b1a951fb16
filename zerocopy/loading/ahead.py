"""``Ahead``: batches whose copies to a device have started."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from zerocopy.loading.chunks import Chunk, Cut
from zerocopy.loading.device import DeviceCopies, Transfer


class Step(NamedTuple):
    """A batch of an epoch, not yet made; `chunk` and `cut` are None at the end of the epoch."""

    epoch: int
    chunk: Chunk | None
    cut: Cut | None

    def batch(self) -> Any:
        """Return the batch; None if there is none."""
        return None if self.chunk is None or self.cut is None else self.chunk.batch(self.cut)


class _Started(NamedTuple):
    step: Step
    batch: Any
    transfer: Transfer | None


class Ahead:
    """Makes batches on a device before the consumer asks for them."""

    def __init__(self, copies: DeviceCopies) -> None:
        self._copies = copies
        self._queue: deque[_Started | Exception] = deque()

    def next(self, next_step: Callable[[], Step], is_ready: Callable[[], bool]) -> tuple[Step, Any]:
        """Return a step and its batch, for which the consumer's current stream waits.

        ``next_step()`` may wait for the reader's thread; ``is_ready()`` is whether it returns at once.
        """
        if not self._queue:
            self._start(next_step)
        first = self._queue.popleft()
        if isinstance(first, Exception):
            try:
                raise first
            finally:
                del first  # its traceback refers to this frame
        while len(self._queue) < self._copies.ahead and is_ready():
            self._start(next_step)
        step, batch, transfer = first
        while transfer is not None and not self._copies.deliver(transfer):
            # The consumer has changed its stream since the copy was started.
            batch = step.batch()
            transfer = self._copies.take_latest()
        return step, batch

    def clear(self) -> None:
        """Drop the batches; `DeviceCopies` keeps their memory until the copies are done."""
        self._queue.clear()

    def _start(self, next_step: Callable[[], Step]) -> None:
        """Start the copies of one batch; an error is raised after the batches before it."""
        try:
            step = next_step()
            self._copies.take_latest()
            self._queue.append(_Started(step, step.batch(), self._copies.take_latest()))
        except Exception as error:  # noqa: BLE001 - the consumer raises it
            self._queue.append(error)
