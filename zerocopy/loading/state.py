"""The state of a loader as plain data: what is left of an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zerocopy.errors import ZeroCopyError
from zerocopy.loading.order import Run

VERSION = 1


class LoaderStateError(ZeroCopyError, ValueError):
    """A state does not belong to this loader: it has another source, seed or batch size."""

    code = "loader-state"


def rest_of(runs: Sequence[Run], number: int, done: int) -> list[Run]:
    """Return the runs without the rows that were delivered: those before row `done` of run `number`."""
    if number >= len(runs):
        return []
    current = runs[number]._replace(first=done)
    rest = [current, *runs[number + 1 :]]
    return [run for run in rest if run.stop < 0 or run.rows > 0]


def split(runs: Sequence[Run], rank: int, world: int) -> list[Run]:
    """Return one of `world` equal parts of the rows of some runs, in their order.

    Examples
    --------
    >>> split([Run(0, 10, 4), Run(10, 20, 6)], 0, 2)
    [Run(start=0, stop=10, first=4, last=9)]
    """
    total = sum(run.rows for run in runs)
    low, high = total * rank // world, total * (rank + 1) // world
    parts, begin = [], 0
    for run in runs:
        first, last = max(low - begin, 0), min(high - begin, run.rows)
        if first < last:
            parts.append(run._replace(first=run.first + first, last=run.first + last))
        begin += run.rows
    return parts


def part_of_worker(runs: Sequence[Run], number: int, workers: int, batch: int) -> list[Run]:
    """Return the whole batches of some runs that one of `workers` processes delivers, in their order.

    The parts of all workers are the batches of one process, so that their number is the same.

    Examples
    --------
    >>> part_of_worker([Run(0, 10)], 0, 2, 4)
    [Run(start=0, stop=10, first=0, last=4)]
    >>> part_of_worker([Run(0, 10)], 1, 2, 4)
    [Run(start=0, stop=10, first=4, last=10)]
    """
    total = sum(-(-run.rows // batch) for run in runs)
    low, high = total * number // workers, total * (number + 1) // workers
    parts, begin = [], 0
    for run in runs:
        batches = -(-run.rows // batch)
        first, last = max(low - begin, 0) * batch, min(min(high - begin, batches) * batch, run.rows)
        if first < last:
            parts.append(run._replace(first=run.first + first, last=run.first + last))
        begin += batches
    return parts


def check(state: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise `LoaderStateError` if a state has another version, source, seed, batch size or window."""
    for name, value in expected.items():
        if state.get(name) != value:
            raise LoaderStateError(
                "load_state_dict(state)",
                f"the state has {name}={state.get(name)!r}, and this loader has {value!r}",
                "create the loader with the source and the options of the one that made the state",
            )
