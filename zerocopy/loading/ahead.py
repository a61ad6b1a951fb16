"""``Ahead``: batches whose copies to a device have started."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from zerocopy.loading.chunks import Chunk, Cut
from zerocopy.loading.device import DeviceCopies, Transfer
from zerocopy.loading.portion import Portion
from zerocopy.protocols.exporter_errors import is_error


class Step(NamedTuple):
    """A batch of an epoch; `chunk` and `cut` are None at the end of the epoch."""

    portion: Portion
    chunk: Chunk | None
    cut: Cut | None

    def batch(self) -> Any:
        """Return the batch; None at the end of the epoch, or if too few of its rows could be read."""
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

    def next(self, make: Callable[[], tuple[Step, Any]], is_ready: Callable[[], bool]) -> tuple[Step, Any]:
        """Return a step and its batch, for which the consumer's current stream waits.

        ``is_ready()`` is False while ``make()`` would wait for the reader's thread. An error of ``make()``
        is raised after the batches before it, and the next call makes the batch again.
        """
        queue = self._queue  # another thread may call `clear`
        if not queue:
            self._start(queue, make)
        while len(queue) <= self._copies.ahead and isinstance(queue[-1], _Started) and is_ready():
            self._start(queue, make)
        first = queue[0]
        if isinstance(first, Exception):
            queue.popleft()
            try:
                raise first
            finally:
                del first  # its traceback refers to this frame
        step, batch, transfer = first
        while transfer is not None and not self._copies.deliver(transfer):
            # The consumer has changed its stream since the copy was started.
            batch = step.batch()
            transfer = self._copies.take_latest()
        queue.popleft()
        return step, batch

    def clear(self) -> None:
        """Drop the batches; `DeviceCopies` keeps their memory until the copies are done."""
        self._queue = deque()

    def _start(self, queue: deque[_Started | Exception], make: Callable[[], tuple[Step, Any]]) -> None:
        """Start the copies of one batch; an error is raised after the batches before it."""
        try:
            self._copies.take_latest()
            step, batch = make()
            queue.append(_Started(step, batch, self._copies.take_latest()))
        except BaseException as error:  # the consumer raises it
            if not is_error(error):
                raise
            queue.append(error)
