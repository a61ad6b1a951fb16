"""Worker processes of a framework, such as those of torch's ``DataLoader``: each iterates over a copy."""

from __future__ import annotations

from os import getpid
from typing import Any

from zerocopy.errors.warning import warn
from zerocopy.loading.dataset import Dataset, Stream
from zerocopy.loading.errors import LoaderIterationError
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.state import LoaderStateError, Progress

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
