"""The position of a loader as plain data, and the positions of worker processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from os import getpid
from typing import Any, NamedTuple

from zerocopy.errors import LoaderStateError, LoaderUseError
from zerocopy.errors.warning import warn
from zerocopy.loading.dataset import Dataset, Stream
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.order import Layout, Portion, Run

VERSION = 1
_LARGEST = 2**53  # JSON parsers with float64 numbers keep integers up to this
_MOST_SHARDS = 1 << 20
_FIX = "pass the unchanged result of loader.state_dict()"
_FIX_SHARDS = (
    "pass the states of all shards, saved after the same number of epochs: "
    "loader.load_state_dict([state of rank 0, state of rank 1, ...])"
)


class Progress(NamedTuple):
    """How far an iteration is: it has delivered `done` batches of an epoch, and ends before epoch `until`."""

    portion: Portion
    done: int
    until: int


def dump(progress: Progress, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the progress of a loader with this identity as plain data."""
    portion = progress.portion
    return {
        **identity,
        "epoch": portion.epoch,
        "until": progress.until,
        "window": portion.window,
        "rank": portion.shard[0],
        "world_size": portion.shard[1],
        "dealt": None if portion.dealt is None else [list(run) for run in portion.dealt],
        "worker": list(portion.worker),
        "done": progress.done,
    }


def load(given: Any, identity: Mapping[str, Any], fresh: Portion, epochs: int) -> Progress:
    """Return the progress of a shard that continues a state, or the states of all shards.

    `fresh` is an epoch of the loader; `epochs` is the number of epochs of its iterations.
    """
    states = [given] if isinstance(given, Mapping) else given
    if not isinstance(states, Sequence) or isinstance(states, (str, bytes)) or not states:
        raise _refusal(f"it must be a dict or a list of dicts, not {type(given).__name__}", _FIX)
    saved = [_parse(state, identity, fresh, epochs) for state in states]
    first = saved[0]
    rank, world = fresh.shard
    if len(saved) == 1:
        if first.portion.shard == (rank, world):
            return first
        # Each shard has delivered as many batches as this one.
        count = first.portion.shard[1]
        shards = [first.portion._replace(shard=(k, count)) for k in range(count)]
        saved = [Progress(each, min(first.done, each.batches()), first.until) for each in shards]
    saved.sort(key=lambda progress: progress.portion.shard)
    if [progress.portion.shard for progress in saved] != [(k, len(saved)) for k in range(len(saved))]:
        listed = ", ".join(str(progress.portion.shard) for progress in saved)
        raise _refusal(f"the states are of the shards {listed}", _FIX_SHARDS)
    for progress in saved:
        shared = progress.portion._replace(shard=first.portion.shard)
        if (shared, progress.until) != (first.portion, first.until):
            raise _refusal("the states are of different epochs or iterations", _FIX_SHARDS)
    is_even = not fresh.layout.drop_last or len({progress.done for progress in saved}) == 1
    if len(saved) == world and is_even:
        return saved[rank]
    rest = [run for progress in saved for _, run in progress.portion.rest(progress.done)]
    portion = first.portion._replace(shard=fresh.shard, dealt=tuple(rest))
    return Progress(portion, 0, first.until)


def _parse(state: Any, identity: Mapping[str, Any], fresh: Portion, epochs: int) -> Progress:
    """Return the progress of one state, which must fit the loader and be possible."""
    if not isinstance(state, Mapping):
        raise _refusal(f"it must be a dict, not {type(state).__name__}", _FIX)
    for name, value in identity.items():
        saved = state.get(name)
        if type(saved) is not type(value) or saved != value:
            why = f"the state has {name}={saved!r}, and this loader has {name}={value!r}"
            fix = "create the loader with the source and the options of the one that made the state"
            raise _refusal(why, fix)
    layout = fresh.layout
    epoch = _integer(state, "epoch", 0, _LARGEST)
    until = _integer(state, "until", epoch + 1, epoch + epochs)
    most = 1 if layout.rows < 0 else _MOST_SHARDS  # a stream is not divided
    world = _integer(state, "world_size", 1, most)
    rank = _integer(state, "rank", 0, world - 1)
    _require(_are_integers(state.get("worker"), 3), state, "worker")
    number, workers, skipped = state["worker"]
    _require(0 <= number < workers <= most and 0 <= skipped <= _LARGEST, state, "worker")
    worker, window = (number, workers, skipped), _window(state, fresh)
    portion = Portion(layout, epoch, window, (rank, world), _dealt(state, layout), worker)
    batches = portion.batches()
    done = _integer(state, "done", 0, _LARGEST // layout.batch_size if batches < 0 else batches)
    return Progress(portion, done, until)


def _window(state: Mapping[str, Any], fresh: Portion) -> int:
    """Return the rows of a window, which may be those of other shards."""
    batch, rows = fresh.layout.batch_size, fresh.layout.rows
    if fresh.window == 0 or rows < 0:
        return _integer(state, "window", fresh.window, fresh.window)
    window = _integer(state, "window", batch, max(fresh.window, -(-rows // batch) * batch))
    _require(window % batch == 0, state, "window")
    return window


def _dealt(state: Mapping[str, Any], layout: Layout) -> tuple[Run, ...] | None:
    """Return the rows that are dealt to all shards; they must be in order, and cut between batches."""
    dealt = state.get("dealt")
    if dealt is None and "dealt" in state:
        return None
    _require(isinstance(dealt, (list, tuple)) and layout.rows >= 0, state, "dealt")
    _require(all(_are_integers(run, 4) for run in dealt or ()), state, "dealt")
    runs = tuple(Run(*run) for run in dealt or ())
    for run in runs:
        rows = run.stop - run.start
        _require(0 <= run.start < run.stop <= layout.rows and run.last >= -1, state, "dealt")
        _require(0 <= run.first < run.end <= rows and run.first % layout.batch_size == 0, state, "dealt")
        _require(run.end % layout.batch_size == 0 or run.end == rows, state, "dealt")
    for run, later in pairwise(runs):
        is_same = (run.start, run.stop) == (later.start, later.stop) and run.end <= later.first
        _require(is_same or run.stop <= later.start, state, "dealt")
    return runs


def _are_integers(value: Any, count: int) -> bool:
    is_list = isinstance(value, (list, tuple)) and len(value) == count
    return is_list and all(type(part) is int for part in value)


def _integer(state: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = state.get(name)
    _require(type(value) is int and least <= value <= most, state, name)
    return int(state[name])


def _require(is_possible: bool, state: Mapping[str, Any], name: str) -> None:
    """Raise `LoaderStateError` if a value of a state is one that this loader cannot have."""
    if is_possible:
        return
    text = repr(state.get(name))
    if len(text) > 100:
        text = f"{text[:97]}..."
    why = f"the state has {name}={text}, which this loader cannot have"
    raise _refusal(why, f"create the loader with the options of the one that made the state; {_FIX}")


def _refusal(why: str, fix: str) -> LoaderStateError:
    return LoaderStateError("load_state_dict(state)", why, fix)


#: Indices of the shared numbers: whether workers have begun since the loader got its position, the process of
#: worker 0, the epoch after the last one that it began, and whether a warning was given.
_BEGUN, _FIRST, _UNTIL, _WARNED = range(4)


class WorkerUse:
    """Records, in memory that the processes share, whether workers have iterated over copies of a loader.

    A fork calls no method of the loader, and the positions of its copies are in the workers.
    """

    def __init__(self, hook: LoadingHook, numbers: Any = (0, 0, 0, 0)) -> None:
        self._hook = hook
        self._share(numbers)

    def _share(self, numbers: Any) -> None:
        # A spawned process gets the numbers of the process that started it.
        self._pid, self._numbers = 0, numbers
        if isinstance(numbers, tuple):
            self._pid, self._numbers = getpid(), list(numbers)
            if self._hook.has_workers:
                from multiprocessing.sharedctypes import RawArray

                # Without a writable /dev/shm, multiprocessing starts no workers that have queues.
                with suppress(OSError):
                    self._numbers = RawArray("q", numbers)

    def for_copy(self) -> Any:
        """Return the numbers for a copy of the loader; a copy in a process that starts shares them."""
        return self._numbers if is_starting_process() else (self._numbers[_BEGUN], 0, 0, 0)

    def begin(self, number: int, epoch: int) -> None:
        """Record that a worker begins an epoch; warn once if other workers have begun it before."""
        numbers = self._numbers
        numbers[_BEGUN] = 1
        if number == 0:
            first, until = numbers[_FIRST], numbers[_UNTIL]
            numbers[_FIRST], numbers[_UNTIL] = getpid(), max(until, epoch + 1)
            if first not in (0, getpid()) and epoch < until and not numbers[_WARNED]:
                numbers[_WARNED] = 1
                text = (
                    f"new worker processes begin epoch {epoch} of the loader again; {self._hook.repeat_fix}"
                )
                warn(text)

    def move(self, number: int | None) -> None:
        """Record that the loader was given a position: in worker `number`, or in a process of its own."""
        if number is None:
            if self._pid == getpid():
                self._numbers[_BEGUN] = self._numbers[_FIRST] = self._numbers[_UNTIL] = 0
            else:
                self._share((0, 0, 0, 0))  # the parent's numbers are about its own position
        elif number == 0:
            self._numbers[_FIRST] = getpid()

    def check_state(self) -> None:
        """Raise `LoaderStateError` if workers have begun at the loader's position."""
        if self._numbers[_BEGUN]:
            raise LoaderStateError(
                "loader.state_dict()",
                "worker processes iterate over copies of this loader, and only they know the position",
                self._hook.state_fix,
                code="state-in-workers",
            )


def is_starting_process() -> bool:
    """Whether a pickle is the argument of a process that multiprocessing starts."""
    from multiprocessing.context import get_spawning_popen

    return get_spawning_popen() is not None


def part_of_worker(progress: Progress, source: Dataset | Stream, worker: tuple[int, int] | None) -> Progress:
    """Return the part that a worker process delivers, or `progress` if there are no other workers."""
    number, workers = worker or (0, 1)
    if workers == 1:
        return progress
    if isinstance(source, Stream):
        raise LoaderUseError(
            "iter(loader)",
            f"each of {workers} worker processes would read all rows of {source.name}",
            "pass num_workers=0: the loader reads in a thread of its own",
            code="stream-in-workers",
        )
    part = progress.portion.worker
    if part[:2] == (number, workers):
        return progress  # a worker continues its own state
    if part[1] > 1:
        raise LoaderUseError(
            "iter(loader)",
            f"the state is of worker {part[0]} of {part[1]}, and this is worker {number} of {workers}",
            "load each worker's state in that worker",
            code="other-worker",
        )
    portion = progress.portion._replace(worker=(number, workers, progress.done))
    return Progress(portion, 0, progress.until)
