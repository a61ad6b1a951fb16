"""``Loader``: iterates over the batches of a source, epoch after epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerocopy.errors import ZeroCopyError
from zerocopy.loading import assembly, state as states
from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.buffers import BufferCache
from zerocopy.loading.chunks import Chunk, Cut
from zerocopy.loading.dataset import Dataset, Stream
from zerocopy.loading.iteration import BatchIterator
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.order import Order, Run, shard_run
from zerocopy.loading.reading import GroupReader, StreamReader
from zerocopy.loading.stats import Counters

#: Bytes of a window of a matrix in the order of the source: a part of the cache of the last level.
_IN_ORDER_BYTES = 16 << 20


class Loader:
    """The batches of a source; returned by :func:`zerocopy.loader`.

    Each ``iter(loader)`` starts the next epoch; the first one after `load_state_dict` continues at the
    saved position.

    Attributes
    ----------
    epoch : int
        Number of the epoch that the last iterator has begun, or that the next one will begin.
    """

    def __init__(self, source: Dataset | Stream, options: LoaderOptions, content: Any) -> None:
        self._source, self._options = source, options
        self._plan = BatchPlan(content, options)
        self._counters = Counters()
        self.epoch = 0
        self._begun = False
        self._position = (0, 0)  # run, and rows of it that were delivered
        self._runs: list[Run] = self._runs_of(0)
        self._until = options.epochs
        if isinstance(source, Dataset):
            rows, largest = self._runs[0].rows, max((group.rows for group in source.groups), default=0)
        else:
            rows, largest = -1, 0
        pitch = self._plan.template.pitch if self._plan.template is not None else 0
        self._window = options.window_rows(rows, largest, pitch) if options.is_shuffled else 0
        in_order_rows = max(1, _IN_ORDER_BYTES // max(1, pitch * options.batch)) * options.batch
        nbytes, copies = (self._window or in_order_rows) * pitch, self._plan.copies
        if copies is not None and self._plan.is_matrix:
            self._buffers = copies.window_cache(nbytes)  # its rows are copied to the device
        else:
            self._buffers = BufferCache(nbytes)

    # -- iteration ----------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        if self._begun:
            if isinstance(self._source, Stream) and self._source.once:
                raise ZeroCopyError(
                    "iter(loader)",
                    f"{self._source.name} can be read once, and has been",
                    "pass a source that can be read again, such as a path or a table",
                    code="used-up",
                )
            self._start_epoch(self.epoch + 1)
            self._until = self.epoch + self._options.epochs
        self._begun = True
        first = (self.epoch, states.rest_of(self._runs, *self._position))
        later = [(epoch, self._runs_of(epoch)) for epoch in range(self.epoch + 1, self._until)]
        # The iterator's callbacks hold no reference to it, so dropping it ends its thread.
        self._runs, self._position = first[1], (0, first[1][0].first if first[1] else 0)
        epochs, ahead = [first, *later], self._options.prefetch
        return BatchIterator(self._chunks, epochs, ahead, self._delivered, self._plan.copies)

    def __len__(self) -> int:
        """Number of batches of one iteration."""
        if isinstance(self._source, Stream):
            raise TypeError(f"the number of rows of {self._source.name} is not known before it is read")
        run, batch = self._runs_of(self.epoch)[0], self._options.batch
        batches = run.rows // batch if self._options.drop_last else -(-run.rows // batch)
        return batches * self._options.epochs

    def _runs_of(self, epoch: int) -> list[Run]:
        if isinstance(self._source, Stream):
            return [Run(0, -1)]
        total = sum(group.rows for group in self._source.groups)
        return [shard_run(total, *self._options.shard, even=self._options.drop_last)]

    def _start_epoch(self, epoch: int) -> None:
        self.epoch, self._position, self._runs = epoch, (0, 0), self._runs_of(epoch)

    def _delivered(self, epoch: int, cut: Cut | None) -> None:
        if epoch != self.epoch:
            self._start_epoch(epoch)
        self._position = (cut.run, cut.done) if cut is not None else (len(self._runs), 0)

    def _chunks(self, epoch: int, runs: Sequence[Run]) -> Iterator[Chunk]:
        """Return the chunks of an epoch; called in the reader's thread."""
        options, plan = self._options, self._plan
        reader: GroupReader | StreamReader
        if isinstance(self._source, Stream):
            reader = StreamReader(self._source, self._counters)
        else:
            rows = [group.rows for group in self._source.groups]
            order = Order(rows, options.seed, epoch) if options.is_shuffled else Order(rows)
            reader = GroupReader(self._source, order, options.on_error == "skip", self._counters)
        key = (options.seed, epoch) if options.is_shuffled else None
        try:
            for number, run in enumerate(runs):
                grid = assembly.Grid(number, run, options.batch, options.drop_last)
                if plan.template is not None and (key is not None or plan.is_matrix):
                    rows_of_window = self._window or self._buffers.nbytes // max(1, plan.template.pitch)
                    yield from assembly.Windows(plan, rows_of_window, key, self._buffers)(reader, grid)
                elif key is not None:
                    yield from assembly.shuffled_tables(plan, reader, grid, self._window, key)
                else:
                    yield from assembly.in_order(plan, reader, grid)
        finally:
            reader.close()

    # -- state ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data, for ``json``, ``pickle`` and ``torch.save``."""
        rest = states.rest_of(self._runs, *self._position)
        return {
            **self._identity(),
            "epoch": self.epoch,
            "until": self._until,
            "shard": list(self._options.shard),
            "runs": [list(run) for run in rest],
        }

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue at a saved position with the next ``iter(loader)``."""
        saved = [state] if isinstance(state, Mapping) else list(state)
        for each in saved:
            states.check(each, self._identity())
        runs = [Run(*run) for each in saved for run in each["runs"]]
        rank, world = self._options.shard
        if len(saved) > 1:
            runs = states.split(runs, rank, world)
        self.epoch, self._until, self._begun = saved[0]["epoch"], saved[0]["until"], False
        self._runs, self._position = runs, (0, runs[0].first if runs else 0)

    def _identity(self) -> dict[str, Any]:
        return {
            "version": states.VERSION,
            "source": self._source.fingerprint(),
            "seed": self._options.seed,
            "batch": self._options.batch,
            "window": self._window,
        }
