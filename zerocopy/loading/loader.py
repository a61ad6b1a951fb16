"""``Loader``: iterates over the batches of a source, epoch after epoch."""

from __future__ import annotations

import copy
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from types import ModuleType
from typing import Any, Never, cast

from zerocopy import forks
from zerocopy._engine.options import ResultT
from zerocopy._engine.target import resolve, text
from zerocopy.errors import LoaderUseError
from zerocopy.errors.tracebacks import public
from zerocopy.formatting import printable
from zerocopy.framework import hook_of
from zerocopy.loading import assembly, state as states
from zerocopy.loading.assembly import Chunk
from zerocopy.loading.batch_plan import plan_batches
from zerocopy.loading.buffers import BufferCache
from zerocopy.loading.dataset import Dataset, Stream, file_name
from zerocopy.loading.dictionaries import digest
from zerocopy.loading.explain import LoaderPlan, explain
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.iteration import BatchIterator, Tracker, schema_of, stream_of
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.order import Layout, Order, Portion
from zerocopy.loading.reading import GroupReader, StreamReader
from zerocopy.loading.state import WorkerUse, is_starting_process, part_of_worker
from zerocopy.loading.stats import Counters, LoaderStats, add_loader

_WRITE_FIX = "pass shuffle=True to the loader, which then copies, or write to a copy of the batch"
#: Bytes of a buffer of a matrix in the order of the source, so that it stays in a cache.
_IN_ORDER_BYTES = 2 << 20


class Loader(Iterable[ResultT]):  # mypy infers the types of [*loader] only from this base class
    """The batches of a source; returned by :func:`zerocopy.loader`.

    Each ``iter(loader)`` starts the next epoch; the first one after `load_state_dict` continues at the
    saved position. Several iterators may be in use: each delivers its own epoch, and `state_dict` returns
    the position of the last one. A loader can be copied and pickled if its source can be read again. The
    copy continues where the last iterator is, or begins the next epoch if that iterator is exhausted.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> loader = zc.loader({"x": np.arange(5)}, to="numpy", batch_size=2)
    >>> len(loader), loader.epoch
    (3, 0)
    >>> batches = iter(loader)
    >>> next(batches)
    {'x': array([0, 1])}
    >>> state = loader.state_dict()
    >>> loader.load_state_dict(state)
    >>> [batch["x"].tolist() for batch in loader]
    [[2, 3], [4]]
    """

    def __init__(self, source: Dataset | Stream, options: LoaderOptions, content: Any) -> None:
        self._source, self._options, self._content = source, options, content
        if isinstance(source, Stream):
            options.check_stream()
        self._plan = plan_batches(content, options)
        self._counters = Counters()
        self._digest = digest(source.dictionaries)
        self._lock, self._read_lock = forks.lock(), forks.plain_lock()
        self._pid = os.getpid()
        sizes = [-1] if isinstance(source, Stream) else [group.rows for group in source.groups]
        rows, self._pitch = int(sum(sizes)), self._plan.pitch
        # All shards have windows of the same size, so that they can continue each other's states.
        shard_rows, largest = -(-rows // options.shard[1]), max(sizes, default=0)
        window = options.window_rows(shard_rows, largest, self._pitch) if options.is_shuffled else 0
        layout = Layout(rows, options.batch_size, options.drop_last)
        self._fresh = Portion(layout, 0, window, options.shard, None)
        self._buffers: BufferCache | None = None
        self._is_begun = False
        self._hook = hook_of(resolve(options.to), LoadingHook)
        # A loader that a worker creates delivers all of its rows to that worker; only copies are divided.
        self._is_divisible = self._hook.worker() is None
        self._use = WorkerUse(self._hook)
        self._tracker = Tracker(states.Progress(self._fresh, 0, options.epochs))
        add_loader(self)

    @property
    def epoch(self) -> int:
        """Number of the epoch of the last iterator; of the next one after creation or `load_state_dict`."""
        return self._tracker.progress.portion.epoch

    @property
    def dictionaries(self) -> dict[str, Any]:
        """The words of each column that is read as codes, as a ``pyarrow.Array``.

        ``encode=loader.dictionaries`` gives another loader the same codes without a pass over its source.
        """
        return dict(self._source.dictionaries)

    # -- iteration ----------------------------------------------------------------------

    @public
    def __iter__(self) -> BatchIterator[ResultT]:
        with self._lock:
            if self._pid != os.getpid():
                # The parent's threads may hold locks of the open files.
                self._source, self._pid = _without_files(self._source), os.getpid()
                self._counters = Counters()  # the others count batches of the parent's iterators
                add_loader(self)
            worker = self._worker()
            progress = part_of_worker(self._next_progress(), self._source, worker)
            if worker is not None:
                self._use.begin(worker[0], progress.portion.epoch)
            # The iterator's tracker refers to neither the iterator nor its thread.
            tracker = Tracker(progress)
            epochs, copies = self._epochs(progress), self._plan.copies
            write_fix = None if self._options.is_shuffled or self._source.is_new else _WRITE_FIX
            batches: BatchIterator[ResultT] = BatchIterator(
                self._chunks, epochs, self._options, tracker, self._counters, copies, write_fix
            )
            self._move(tracker, is_begun=True)
        return batches

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Export the batches of a copy of the loader as a stream (Arrow PyCapsule Interface), by pyarrow.

        Consumers such as DuckDB request a stream for the schema and another one for the rows. If the loader
        cannot be copied, the stream has the batches of ``iter(loader)``.
        """
        try:
            batches = copy.copy(self)
        except LoaderUseError:
            batches = self
        return stream_of(batches, requested_schema)

    def __array__(self, *_: object, **__: object) -> Any:
        why = "its batches are not one array"
        fix = "iterate: for batch in loader; or pyarrow.table(loader) reads all of them"
        raise LoaderUseError("numpy.asarray(loader)", why, fix, code="not-an-array")

    def __arrow_c_schema__(self) -> Any:
        """Export the schema of the batches; a copy of the loader reads the first one."""
        return schema_of(copy.copy(self))

    def __getitem__(self, index: Never) -> Never:
        """Refuse an index, which libraries request if they treat the loader as a sequence."""
        raise LoaderUseError(
            f"loader[{index!r}]",
            "the batches of a loader have no indices",
            "iterate: for batch in loader. A DataLoader of torch iterates over a loader with "
            'to="torch": DataLoader(zc.loader(source, to="torch"), batch_size=None)',
            code="no-indices",
        )

    def __len__(self) -> int:
        """Return the number of batches of the next ``iter(loader)``.

        After `load_state_dict` it is the number of remaining batches. With ``on_error="skip"``, it includes
        batches whose rows cannot be read.
        """
        if isinstance(self._source, Stream):
            raise LoaderUseError(
                "len(loader)",
                f"the number of rows of {self._source.name} is not known before it is read",
                "count the batches while iterating, or pass a source in files or in memory",
                code="unknown-length",
            )
        progress, batches = self._tracker.progress, self._fresh.batches()
        if self._is_begun:
            return batches * self._options.epochs
        later = progress.until - progress.portion.epoch - 1
        return progress.portion.batches() - progress.done + batches * later

    def _next_progress(self) -> states.Progress:
        """Return the start of the next iteration."""
        progress = self._tracker.progress
        if not self._is_begun:
            return progress
        if isinstance(self._source, Stream) and self._source.once:
            raise LoaderUseError(
                "iter(loader)",
                f"{self._source.name} can be read only once, and was already read",
                "pass a source that can be read again, such as a path or a table",
                code="used-up",
            )
        epoch = progress.portion.epoch + 1
        return states.Progress(self._fresh._replace(epoch=epoch), 0, epoch + self._options.epochs)

    def _worker(self) -> tuple[int, int] | None:
        """Return the number of this worker process and the number of workers; None in other processes."""
        return self._hook.worker() if self._is_divisible else None

    def _move(self, tracker: Tracker, is_begun: bool) -> None:
        """Set the position, and whether an iterator has begun there."""
        worker = self._worker()
        self._tracker, self._is_begun = tracker, is_begun
        self._use.move(None if worker is None else worker[0])

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch with the next ``iter(loader)``.

        A ``DataLoader`` whose workers are not persistent needs the call before each epoch: its new workers
        get copies of this loader, which has itself not been iterated over.

        Parameters
        ----------
        epoch : int
            Number of the epoch. It begins with its first row, or at the position that `load_state_dict` has
            set for it.
        """
        with self._lock:
            tracker = self._tracker
            if self._is_begun or epoch != self.epoch:
                fresh = self._fresh._replace(epoch=epoch)
                tracker = Tracker(states.Progress(fresh, 0, epoch + self._options.epochs))
            self._move(tracker, is_begun=False)

    def _epochs(self, progress: states.Progress) -> Iterator[tuple[Portion, int]]:
        """Return the epochs of an iteration, and how many batches of each have been delivered."""
        yield progress.portion, progress.done
        number, workers, _ = progress.portion.worker
        for epoch in range(progress.portion.epoch + 1, progress.until):
            yield self._fresh._replace(epoch=epoch, worker=(number, workers, 0)), 0

    def _chunks(self, portion: Portion, done: int) -> Generator[Chunk]:
        """Return the chunks of an epoch after some batches; called in the reader's thread."""
        options, plan = self._options, self._plan
        key = (options.seed, portion.epoch) if options.is_shuffled else None
        reader = self._reader(key)
        try:
            for before, run in portion.rest(done):
                grid = assembly.Grid(run, before, options.batch_size, options.drop_last)
                if key is None:
                    is_written = plan.is_matrix and plan.pitch
                    buffers = self._buffers_of(self._in_order_rows()) if is_written else None
                    yield from assembly.in_order(plan, reader, grid, buffers)
                else:
                    buffers = self._buffers_of(portion.window)
                    yield from assembly.Windows(plan, portion.window, key, buffers)(reader, grid)
        finally:
            reader.close()

    def _reader(self, key: tuple[int, int] | None) -> GroupReader | StreamReader:
        """Return a reader of the rows of an epoch by their positions."""
        if isinstance(self._source, Stream):
            return StreamReader(self._source, self._counters)
        rows = [group.rows for group in self._source.groups]
        order = Order(rows) if key is None else Order(rows, *key)
        skips_errors = self._options.on_error == "skip"
        # Rows on a device need little work of the host between two reads, unless they are shuffled.
        ahead = not self._source.in_memory and (key is not None or not self._plan.is_decoded)
        lock, pitch = self._read_lock, self._pitch
        return GroupReader(self._source, order, skips_errors, self._counters, lock, ahead, pitch)

    def _in_order_rows(self) -> int:
        """Return the rows of a buffer of a matrix in the order of the source."""
        rows = self._options.batch_size
        return max(1, _IN_ORDER_BYTES // max(1, self._pitch * rows)) * rows

    def _buffers_of(self, rows: int) -> BufferCache:
        """Return the buffers of windows of `rows` rows, or of all rows if they are fewer."""
        total, options = self._fresh.layout.rows, self._options
        nbytes, copies = (min(rows, total) if total >= 0 else rows) * self._pitch, self._plan.copies
        if self._buffers is None or self._buffers.nbytes != nbytes:
            # Batches that are ready, and those whose copies to a device have begun, may be in many buffers.
            keep = 2 + 2 * options.prefetch * options.batch_size // rows
            if copies is not None and self._plan.is_matrix:
                self._buffers = copies.window_cache(nbytes, keep)  # its rows are copied to the device
            else:
                self._buffers = BufferCache(nbytes, keep)
        return self._buffers

    # -- reports --------------------------------------------------------------------------

    def explain(self) -> LoaderPlan:
        """Return the batches of an epoch, the copies for each batch, and the reasons.

        It inspects the first rows of a source in memory or in mapped files, and reads no other rows.

        Returns
        -------
        LoaderPlan
            ``print(plan)`` shows the bytes that are copied for a batch, and each column's reason and fix.
        """
        window_rows = self._fresh.window or self._in_order_rows()
        return explain(_without_files(self._source), self._options, self._plan, self._fresh, window_rows)

    def stats(self) -> LoaderStats:
        """Return counts of the rows read and delivered so far, and the times that each side waited.

        Returns
        -------
        LoaderStats
            Sums over all iterators of this loader.
        """
        return self._counters.stats(0 if self._buffers is None else self._buffers.allocated)

    @cached_property
    def _title(self) -> str:
        """The source and the target; of paths and URLs the last part, because the rest may be private."""
        groups = () if isinstance(self._source, Stream) else self._source.groups
        files = list(dict.fromkeys(group.file for group in groups if group.file))
        name = file_name(files[0]) if files else self._source.name
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        return f"{name}{more} -> {text(self._options.to).strip(chr(39))}"

    def __repr__(self) -> str:
        options = self._options
        order = "" if not options.is_shuffled else f", shuffle={options.shuffle!r}, seed={options.seed}"
        shard = "" if options.rank is None else f", rank={options.rank}, world_size={options.world_size}"
        route = f"{self._source.name} -> {text(options.to)}"
        return printable(f"<Loader: {route}, batch_size={options.batch_size}{order}{shard}>")

    # -- state ----------------------------------------------------------------------------

    @public
    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data, for ``json``, ``pickle`` and ``torch.save``.

        Returns
        -------
        dict
            The position of the last iterator, after the batch that it returned last. The caller may change
            the dict.

        Raises
        ------
        LoaderStateError
            Workers of a ``DataLoader`` iterate over copies of this loader, and only they know the position.
        """
        if self._worker() is None:
            self._use.check_state()
        return states.dump(self._tracker.progress, self._identity())

    @public
    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue at a saved position with the next ``iter(loader)``.

        Parameters
        ----------
        state : dict, or list of dict
            The result of `state_dict`. If it is of another shard, or of another number of shards, all shards
            continue as if each had delivered as many batches as this one. The states of all shards, in any
            order, continue exactly: each batch that no shard has delivered goes to one of the new shards.

        Raises
        ------
        LoaderStateError
            The state has another source, seed, batch size, shuffling, ``drop_last`` or version, or is
            damaged. The loader stays as it is.
        """
        progress = states.load(state, self._identity(), self._fresh, self._options.epochs)
        with self._lock:
            self._move(Tracker(progress), is_begun=False)

    @cached_property
    def _fingerprint(self) -> str:
        return self._source.fingerprint()

    def _identity(self) -> dict[str, Any]:
        """Return the properties that a state and a loader must share."""
        options = self._options
        return {
            "version": states.VERSION,
            "source": self._fingerprint,
            "dictionaries": self._digest,
            "rows": self._fresh.layout.rows,
            "seed": options.seed,
            "batch_size": options.batch_size,
            "shuffle": options.shuffle or False,
            "drop_last": bool(options.drop_last),
        }

    def __reduce__(self) -> tuple[Any, ...]:
        source, options = self._source, self._options
        if source.only_here:
            raise LoaderUseError(
                "copying or pickling a loader",
                f"{source.name} {source.only_here}",
                "create another loader, where it is read; or pass a source that can be read again",
                code="unpicklable-loader",
            )
        if isinstance(options.to, ModuleType):
            options = replace(options, to=options.to.__name__)
        # A process that is forked or spawned begins where `iter(loader)` would begin here.
        is_begun = self._is_begun and (self._tracker.is_exhausted or is_starting_process())
        progress, use = self._tracker.progress, self._use.for_copy()
        return _restored, (_without_files(source), options, self._content, progress, is_begun, use)


def loader_class(to: Any) -> type[Loader[Any]]:
    """Return `Loader`, or its subclass with the base classes that a framework requires."""
    return _class_with(hook_of(resolve(to), LoadingHook).bases())


@cache
def _class_with(bases: tuple[type, ...]) -> type[Loader[Any]]:
    """Return `Loader` with further base classes."""
    if not bases:
        return Loader
    attributes = {"__module__": Loader.__module__, "__doc__": Loader.__doc__}
    return cast(type[Loader[Any]], type(Loader.__name__, (Loader, *bases), attributes))


def _restored(
    source: Any, options: LoaderOptions, content: Any, progress: states.Progress, is_begun: bool, use: Any
) -> Loader[Any]:
    """Return a copy of a loader with its progress."""
    loader = loader_class(options.to)(source, options, content)
    loader._tracker, loader._is_begun = Tracker(progress, is_begun), is_begun
    loader._use = WorkerUse(loader._hook, use)
    return loader


def _without_files(source: Dataset | Stream) -> Dataset | Stream:
    """Return the source with its own open files, because each loader locks only its own reads."""
    return source if isinstance(source, Stream) else copy.copy(source)
