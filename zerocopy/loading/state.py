"""The position of a loader as plain data, and the positions of worker processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from os import getpid
from typing import Any, NamedTuple

from zerocopy.errors.warning import warn
from zerocopy.loading.dataset import Dataset, Stream
from zerocopy.loading.errors import LoaderIterationError, LoaderStateError
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.order import Layout, Portion, Run

VERSION = 1
_LARGEST = 2**53  # JSON parsers with float64 numbers keep integers up to this
_MOST_SHARDS = 1 << 20
_FIX_SHARDS = (
    "pass the states of all shards, saved after the same number of epochs: "
    "loader.load_state_dict([state of rank 0, state of rank 1, ...])"
)


class Progress(NamedTuple):
    """How far an iteration is.

    Attributes
    ----------
    portion : Portion
        The batches of the current epoch.
    done : int
        How many of them have been delivered.
    until : int
        The epoch before which the iteration ends.
    """

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
        "shard": list(portion.shard),
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
        raise _refusal(f"it must be a dict or a list of dicts, not {type(given).__name__}", _fix_state())
    saved = [_parse(state, identity, fresh, epochs) for state in states]
    first = saved[0]
    rank, world = fresh.shard
    if len(saved) == 1:
        if first.portion.shard == (rank, world):
            return first
        saved = list(_lockstep(first))
    saved.sort(key=lambda progress: progress.portion.shard)
    if [progress.portion.shard for progress in saved] != [(k, len(saved)) for k in range(len(saved))]:
        shards = ", ".join(str(progress.portion.shard) for progress in saved)
        raise _refusal(f"the states are of the shards {shards}", _FIX_SHARDS)
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


def _lockstep(progress: Progress) -> Iterator[Progress]:
    """Return the progress of all shards, of which each has delivered as many batches as this one."""
    world = progress.portion.shard[1]
    for rank in range(world):
        portion = progress.portion.of_shard(rank, world)
        yield Progress(portion, min(progress.done, portion.batches()), progress.until)


def _parse(state: Any, identity: Mapping[str, Any], fresh: Portion, epochs: int) -> Progress:
    """Return the progress of one state, which must fit the loader and be possible."""
    if not isinstance(state, Mapping):
        raise _refusal(f"it must be a dict, not {type(state).__name__}", _fix_state())
    for name, value in identity.items():
        saved = state.get(name)
        if type(saved) is not type(value) or saved != value:
            why = f"the state has {name}={saved!r}, and this loader has {name}={value!r}"
            fix = "create the loader with the source and the options of the one that made the state"
            raise _refusal(why, fix)
    layout = fresh.layout
    epoch = _integer(state, "epoch", 0, _LARGEST)
    until = _integer(state, "until", epoch + 1, epoch + epochs)
    shard = state.get("shard")
    if not (
        isinstance(shard, (list, tuple)) and len(shard) == 2 and all(type(part) is int for part in shard)
    ):
        raise _damaged("shard", shard)
    if not 0 <= shard[0] < shard[1] <= _MOST_SHARDS or (layout.rows < 0 and shard[1] != 1):
        raise _damaged("shard", shard)
    dealt, worker = _dealt(state, layout), _worker(state, layout)
    portion = Portion(layout, epoch, _window(state, fresh), (shard[0], shard[1]), dealt, worker)
    batches = portion.batches()
    done = _integer(state, "done", 0, _LARGEST // layout.batch if batches < 0 else batches)
    return Progress(portion, done, until)


def _worker(state: Mapping[str, Any], layout: Layout) -> tuple[int, int, int]:
    """Return the worker process to whose batches a state belongs."""
    worker: Any = state.get("worker")
    known = isinstance(worker, (list, tuple)) and len(worker) == 3
    if not known or not all(type(part) is int and part >= 0 for part in worker):
        raise _damaged("worker", worker)
    number, workers, skipped = worker
    if not number < workers <= _MOST_SHARDS or skipped > _LARGEST or (layout.rows < 0 and workers > 1):
        raise _damaged("worker", worker)
    return number, workers, skipped


def _window(state: Mapping[str, Any], fresh: Portion) -> int:
    """Return the rows of a window, which may be those of other shards."""
    batch, rows = fresh.layout.batch, fresh.layout.rows
    if fresh.window == 0 or rows < 0:
        return _integer(state, "window", fresh.window, fresh.window)
    window = _integer(state, "window", batch, max(fresh.window, -(-rows // batch) * batch))
    if window % batch:
        raise _damaged("window", window)
    return window


def _dealt(state: Mapping[str, Any], layout: Layout) -> tuple[Run, ...] | None:
    """Return the rows that are dealt to all shards; they must be in order, and cut between batches."""
    dealt = state.get("dealt")
    if dealt is None and "dealt" in state:
        return None
    if not isinstance(dealt, (list, tuple)) or layout.rows < 0:
        raise _damaged("dealt", dealt)
    for run in dealt:
        if not (isinstance(run, (list, tuple)) and len(run) == 4 and all(type(part) is int for part in run)):
            raise _damaged("dealt", dealt)
    runs = tuple(Run(*run) for run in dealt)
    for run in runs:
        if not (0 <= run.start < run.stop <= layout.rows and run.last >= -1):
            raise _damaged("dealt", dealt)
        if not 0 <= run.first < run.end <= run.stop - run.start or run.first % layout.batch:
            raise _damaged("dealt", dealt)
        if run.end % layout.batch and run.end != run.stop - run.start:
            raise _damaged("dealt", dealt)
    for run, later in pairwise(runs):
        is_same = (run.start, run.stop) == (later.start, later.stop) and run.end <= later.first
        if not is_same and run.stop > later.start:
            raise _damaged("dealt", dealt)
    return runs


def _integer(state: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = state.get(name)
    if type(value) is not int or not least <= value <= most:
        raise _damaged(name, value)
    return value


def _damaged(name: str, value: Any) -> LoaderStateError:
    text = repr(value)
    if len(text) > 100:
        text = f"{text[:97]}..."
    return _refusal(
        f"the state has {name}={text}, which this loader cannot have",
        "create the loader with the options of the one that made the state; " + _fix_state(),
    )


def _fix_state() -> str:
    return "pass the unchanged result of loader.state_dict()"


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
        raise LoaderIterationError(
            "iter(loader)",
            f"each of {workers} worker processes would read all rows of {source.name}",
            "pass num_workers=0: the loader reads in a thread of its own",
            code="stream-in-workers",
        )
    part = progress.portion.worker
    if part[:2] == (number, workers):
        return progress  # a worker continues its own state
    if part[1] > 1:
        raise LoaderIterationError(
            "iter(loader)",
            f"the state is of worker {part[0]} of {part[1]}, and this is worker {number} of {workers}",
            "load each worker's state in that worker",
            code="other-worker",
        )
    portion = progress.portion.of_worker(number, workers, progress.done)
    return Progress(portion, 0, progress.until)
