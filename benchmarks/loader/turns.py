"""Alternating epochs: each epoch of a contender is timed next to an epoch in which pyarrow only reads.

The bound of a file is the time in which pyarrow reads it row group by row group, one thread ahead. A
turn of a contender is an epoch of the bound and an epoch of the contender; which comes first changes
from turn to turn. The figure of a contender is the median of the ratios of its turns. All contenders of
a case read the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from time import perf_counter_ns
from typing import Any, NamedTuple

from benchmarks.suite import Case, Entry, Settings
from benchmarks.timing import Pace, Timing, take_turns

#: The label of the bound.
BOUND = "pyarrow reads, and does nothing"
#: Start of the names of figures: the ratio to the bound.
TIMES = "times the bound, "

# The patience is that of all turns of a contender, which has at least three turns, or one in a quick run.
_PACE = Pace(rounds=15, block=0, patience=4_000_000_000)
_QUICK = Pace(rounds=3, block=0, patience=250_000_000, least=1)

#: Returns the batches of an epoch.
Batches = Callable[[], Iterable[Any]]


class Way(NamedTuple):
    """One way to get the batches of an epoch; `role` is one of `benchmarks.suite.ROLES`."""

    label: str
    role: str
    batches: Batches


def contest(
    name: str,
    ways: Sequence[Way],
    rows: int,
    bound: Batches,
    check: Callable[[Iterable[Any]], None],
    settings: Settings,
    alone: str = BOUND,
) -> Case:
    """Time contenders in turns with the bound and return the case.

    `check` raises ValueError if an epoch lacks rows or has other values; `alone` is the label of the bound.
    """

    def begin(way: Way) -> tuple[int, int]:
        check(way.batches())  # the warm-up too
        return 1, sum(sample(way, 1, []))

    def sample(way: Way, calls: int, before: list[Any]) -> tuple[int, int]:
        if len(before) % 2:
            own = elapsed(way.batches)
            return elapsed(bound), own
        return elapsed(bound), elapsed(way.batches)

    pace = _QUICK if settings.quick else _PACE
    samples, _, raised = take_turns({way.label: way for way in ways}, pace, begin, sample)
    case = Case(name, figures={"rows": float(rows)})
    if bounds := [each for pairs in samples.values() for each, _ in pairs]:
        case.entries.append(Entry(alone, "reference", Timing.of(bounds)))
    for label, role, _ in ways:
        timing = raised.get(label) or Timing.of([own for _, own in samples[label]])
        case.entries.append(Entry(label, role, timing))
        if label not in raised:
            case.figures[TIMES + label] = median(own / each for each, own in samples[label])
    return case


def elapsed(batches: Batches) -> int:
    """Return the nanoseconds of an epoch whose batches are dropped."""
    start = perf_counter_ns()
    for _ in batches():
        pass
    return perf_counter_ns() - start
