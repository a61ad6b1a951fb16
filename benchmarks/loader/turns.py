"""Alternating epochs: each epoch of a contender is timed next to an epoch in which pyarrow only reads.

The bound of a file is the time in which pyarrow reads it row group by row group, one thread ahead. A
turn of a contender is an epoch of the bound and an epoch of the contender; which comes first changes
from turn to turn. The figure of a contender is the median of the ratios of its turns. All contenders of
a case read the same file.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import Any

from benchmarks import interrupt
from benchmarks.suite import Case, Entry, Settings
from benchmarks.timing import Raised, Timing, undisturbed

#: The label of the bound.
BOUND = "pyarrow reads, and does nothing"
#: Start of the names of figures: the ratio to the bound.
TIMES = "times the bound, "

_TURNS, _QUICK_TURNS = 15, 3
#: Nanoseconds of all turns of one contender; it has at least three turns, or one in a quick run.
_PATIENCE, _QUICK_PATIENCE = 4_000_000_000, 250_000_000

Batches = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Contender:
    """One way to get the batches of an epoch.

    Attributes
    ----------
    label : str
        Unique in its case.
    role : str
        A key of `benchmarks.suite.ROLES`.
    batches : callable
        ``batches()`` returns the batches of an epoch.
    bound : callable
        ``bound()`` returns the tables that pyarrow reads from the same rows.
    rows : int
        Number of rows of an epoch.
    check : callable
        ``check(batches)`` raises ValueError if an epoch lacks rows or has other values.
    note : str
    """

    label: str
    role: str
    batches: Batches
    bound: Batches
    rows: int
    check: Callable[[Iterable[Any]], None]
    note: str = ""


def contest(name: str, contenders: Sequence[Contender], settings: Settings, bound: str = BOUND) -> Case:
    """Time contenders in turns with the bound and return the case."""
    (rows,) = {one.rows for one in contenders}
    case = Case(name, figures={"rows": float(rows)})
    samples = take_turns(contenders, settings)
    bounds = [each for pairs, _ in samples.values() for each, _ in pairs]
    if bounds:
        case.entries.append(Entry(bound, "reference", Timing.of(bounds)))
    for one in contenders:
        turns, raised = samples[one.label]
        timing = raised or Timing.of([own for _, own in turns])
        case.entries.append(Entry(one.label, one.role, timing, one.note))
        if raised is None:
            case.figures[TIMES + one.label] = median(own / each for each, own in turns)
    return case


def take_turns(
    contenders: Sequence[Contender], settings: Settings
) -> dict[str, tuple[list[tuple[int, int]], Raised | None]]:
    """Return pairs of nanoseconds of each contender, of the bound and its own, or what it raised."""
    turns, patience = (_QUICK_TURNS, _QUICK_PATIENCE) if settings.quick else (_TURNS, _PATIENCE)
    least = 1 if settings.quick else 3
    samples: dict[str, list[tuple[int, int]]] = {one.label: [] for one in contenders}
    raised: dict[str, Raised] = {}
    order = list(contenders)
    shuffle = random.Random(0).shuffle
    with undisturbed():
        for one in contenders:
            try:
                one.check(one.batches())  # the warm-up too
            except Exception as error:  # noqa: BLE001 - any error is its result
                interrupt.check()
                raised[one.label] = Raised.of(error)
        for number in range(turns):
            shuffle(order)
            for one in order:
                pairs = samples[one.label]
                spent = sum(map(sum, pairs))
                if one.label in raised or (len(pairs) >= least and spent > patience):
                    continue
                gc.collect()
                try:
                    pairs.append(_turn(one, bound_first=number % 2 == 0))
                except Exception as error:  # noqa: BLE001 - as above
                    interrupt.check()
                    raised[one.label] = Raised.of(error)
    return {label: (pairs, raised.get(label)) for label, pairs in samples.items()}


def _turn(one: Contender, bound_first: bool) -> tuple[int, int]:
    """Return the nanoseconds of an epoch of the bound, and of the contender."""
    if bound_first:
        bound = elapsed(one.bound)
        return bound, elapsed(one.batches)
    own = elapsed(one.batches)
    return elapsed(one.bound), own


def elapsed(batches: Batches) -> int:
    """Return the nanoseconds of an epoch whose batches are dropped."""
    start = perf_counter_ns()
    for _ in batches():
        pass
    return perf_counter_ns() - start
