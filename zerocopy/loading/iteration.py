"""``BatchIterator``: the batches of one iteration over a loader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from zerocopy import forks
from zerocopy._engine import recording
from zerocopy._engine.convert import convert
from zerocopy._engine.options import ResultT
from zerocopy.errors import LoaderUseError, ZeroCopyError
from zerocopy.errors.tracebacks import public
from zerocopy.loading.assembly import Chunk, Cut
from zerocopy.loading.device import DeviceCopies, Transfer
from zerocopy.loading.options import LoaderOptions, in_terms_of_loader
from zerocopy.loading.order import Portion
from zerocopy.loading.prefetcher import Prefetcher
from zerocopy.loading.state import Progress
from zerocopy.loading.stats import Counters, Delivered


class Step(NamedTuple):
    """A batch of an epoch; `chunk` and `cut` are None at its end. `write_fix` is as in `recording`."""

    portion: Portion
    chunk: Chunk | None
    cut: Cut | None
    write_fix: str | None

    def batch(self) -> Any:
        """Return the batch; None at the end of the epoch, or if too few of its rows could be read."""
        if self.chunk is None or self.cut is None:
            return None
        if recording.counters is None:
            return self.chunk.batch(self.cut)
        with recording.own_work(self.write_fix):
            return self.chunk.batch(self.cut)


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
        except Exception as error:  # noqa: BLE001 - the consumer raises it
            queue.append(error)


class Tracker:
    """Holds the progress of an iteration, which the iterator replaces and the loader reads."""

    def __init__(self, progress: Progress, is_exhausted: bool = False) -> None:
        self.progress = progress
        self.is_exhausted = is_exhausted


class BatchIterator(Iterator[ResultT]):
    """Iterates over the batches of one epoch or several.

    Dropping the last reference, or `close`, ends the reader's thread. Several threads may call ``next``:
    each batch goes to one of them. If a batch cannot be made, the next call makes it again.
    """

    def __init__(
        self,
        chunks: Callable[[Portion, int], Generator[Chunk]],
        epochs: Iterable[tuple[Portion, int]],
        options: LoaderOptions,
        tracker: Tracker,
        counters: Counters,
        copies: DeviceCopies | None = None,
        write_fix: str | None = None,
    ) -> None:
        """Start a thread that makes ``options.prefetch`` batches in advance.

        ``chunks(portion, done)`` returns the chunks of an epoch after the first `done` batches, and `epochs`
        has the arguments of the calls, in the thread. The progress of `tracker` is replaced with each batch,
        and at the end of an epoch. `copies` copies batches to a device in advance. For `write_fix`, see Step.
        """
        self._tracker, self._options, self._write_fix = tracker, options, write_fix
        self._ahead = None if copies is None else Ahead(copies)
        self._lock = forks.lock()
        self._item: _Item | None = None
        self.prefetcher: Prefetcher = Prefetcher(
            partial(_all_chunks, chunks, epochs, counters), options.prefetch
        )
        self._counts = Delivered(self.prefetcher.channel)
        counters.attach(self._counts)

    def __iter__(self) -> BatchIterator[ResultT]:
        return self

    @public
    def __next__(self) -> ResultT:
        with self._lock:
            self.prefetcher.check_process()
            while True:
                try:
                    if self._ahead is None:
                        step, batch = self._make()
                    else:
                        step, batch = self._ahead.next(self._make, self._is_ready)
                except ZeroCopyError as error:
                    in_terms_of_loader(error, self._options)
                    raise
                self._track(step, batch)
                if batch is not None:
                    return batch  # type: ignore[no-any-return]

    def _make(self) -> tuple[Step, Any]:
        """Make the next batch; wait for the thread. An error leaves the position as it is."""
        item = self._item
        if item is None:
            is_closed = self.prefetcher.channel.stopped
            item = self._item = self.prefetcher.first()
            if item is None:
                self._tracker.is_exhausted |= not is_closed
                raise StopIteration
        cut = item.chunk.cuts[item.made] if item.chunk is not None and item.made < item.batches else None
        step = Step(item.portion, item.chunk, cut, self._write_fix)
        batch = step.batch()
        item.made += 1
        if item.made >= item.batches:
            # Drop the chunk now, so that its memory is reused as soon as the consumer drops its batches.
            self._item = None
            self.prefetcher.drop_first()
        return step, batch

    def _is_ready(self) -> bool:
        """Whether `_make` does not wait."""
        return self._item is not None or self.prefetcher.depth > 0

    def _track(self, step: Step, batch: Any) -> None:
        """Count a batch that is delivered, or the end of an epoch."""
        progress = self._tracker.progress
        if step.chunk is None:  # the end of an epoch, of which the last batches may have been skipped
            done = step.portion.batches()
            if done < 0:  # a stream
                done = progress.done if progress.portion.epoch == step.portion.epoch else 0
        elif step.cut is None:
            return  # a chunk without batches
        else:
            done = step.cut.done
            if batch is not None:
                self._counts.add(step.chunk.rows_of(step.cut), step.chunk.row_bytes)
        self._tracker.progress = Progress(step.portion, done, progress.until)

    def close(self) -> None:
        """End the reader's thread; the loader's state keeps the position."""
        if self._ahead is not None:
            self._ahead.clear()
        self.prefetcher.close()
        self._item = None


class _Item:
    """A chunk of an epoch, and how many of its batches were made; or the end of an epoch."""

    def __init__(self, portion: Portion, chunk: Chunk | None) -> None:
        self.portion, self.chunk = portion, chunk
        self.batches = 0 if chunk is None else chunk.batches
        self.made = 0


def _all_chunks(
    chunks: Callable[[Portion, int], Generator[Chunk]],
    epochs: Iterable[tuple[Portion, int]],
    counters: Counters,
) -> Iterator[_Item]:
    """Return the chunks of all epochs, and the end of each epoch."""
    for portion, done in epochs:
        # Closed here, so that the consumer gets the errors of closing files.
        with closing(chunks(portion, done)) as made:
            while True:
                with counters.timed("make"):
                    item = _Item(portion, next(made, None))
                if item.chunk is None:
                    break
                yield item
                del item  # only the consumer keeps a reference
        yield item


# -- batches as Arrow data, for consumers of the Arrow PyCapsule Interface --------------------


def stream_of(batches: Iterable[Any], requested_schema: object) -> Any:
    """Return the capsule of a stream, which makes each batch when the consumer asks for it."""
    import pyarrow as pa

    made = _record_batches(batches)
    schema = next(made)
    return pa.RecordBatchReader.from_batches(schema, made).__arrow_c_stream__(requested_schema)


def schema_of(batches: Iterable[Any]) -> Any:
    """Return the capsule of the schema of the first batch."""
    return next(_record_batches(batches)).__arrow_c_schema__()


def _record_batches(batches: Iterable[Any]) -> Generator[Any]:
    """Return the schema of the first batch, then all batches as ``pyarrow.RecordBatch``."""
    schema = None
    for batch in batches:
        table = _table(batch)
        if schema is None:
            schema = table.schema
            yield schema
        yield from table.cast(schema).to_batches()
    if schema is None:
        why = "it has no batches, so the types of its columns are unknown"
        raise _refused(why, "check the source: it has no rows")


def _table(batch: Any) -> Any:
    import pyarrow as pa

    with recording.own_work():
        columns = convert(batch, "pyarrow")
    if isinstance(columns, pa.Table):
        return columns
    why = f"its batches are matrices or arrays without names, such as {type(batch).__qualname__}"
    raise _refused(why, "leave out layout=, so that each batch has columns")


def _refused(why: str, remedy: str) -> LoaderUseError:
    return LoaderUseError("loader.__arrow_c_stream__()", why, remedy, code="not-a-column")
