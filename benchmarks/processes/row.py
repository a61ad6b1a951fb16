"""A row of the suite: contenders that exchange the same bytes, and a memcpy of them, in turns.

An engine has a module here with ``rows(settings)``, which yields cases. A case is named by its question,
then the framework: ``"Pipe, torch"``. It has the roles ``"ours"`` (zerocopy), ``"idiom"`` (common code
without zerocopy) and ``"reference"`` (`memcpy`, or an empty task).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any

import numpy as np

from benchmarks.suite import Case, Entry, Settings
from benchmarks.timing import Loop, Pace, Statement, measure

#: The label of the reference to which all times are compared.
MEMCPY = "memcpy"
#: The object that engines exchange.
NBYTES, QUICK_NBYTES = 64 << 20, 16 << 20

_ROUNDS, _QUICK_ROUNDS = 15, 5
_PATIENCE, _QUICK_PATIENCE = 1_500_000_000, 50_000_000


@dataclass(frozen=True)
class Contender:
    """One way to exchange an object; its label is unique in its row.

    ``call()`` exchanges the object once. It returns the nanoseconds, or None if all of the call counts.
    """

    label: str
    role: str
    call: Callable[[], float | None]


@dataclass(frozen=True)
class Timed(Statement):
    """A contender as the clock takes it."""

    call: Callable[[], float | None] = lambda: None

    def loop(self) -> Loop:
        """Return a loop that adds up the nanoseconds of the calls."""
        call = self.call

        def loop(calls: Iterable[None], clock: Callable[[], int]) -> int:
            spent = 0.0
            for _ in calls:
                start = clock()
                own = call()
                spent += clock() - start if own is None else own
            return max(1, round(spent))

        return loop


def row(
    name: str,
    contenders: Sequence[Contender],
    settings: Settings,
    figures: dict[str, float] | None = None,
    remarks: Sequence[str] = (),
    rounds: int = _ROUNDS,
    patience: int = _PATIENCE,
) -> Case:
    """Time contenders in turns, in at most `rounds` rounds and about `patience` ns each; return the case."""
    statements = {one.label: Timed("", {}, one.call) for one in contenders}
    own = pace(settings, patience)
    timings = measure(statements, replace(own, rounds=min(own.rounds, rounds)))
    entries = [Entry(one.label, one.role, timings[one.label]) for one in contenders]
    return Case(name, entries, figures or {}, list(remarks))


def pace(settings: Settings, patience: int = _PATIENCE) -> Pace:
    """Return the duration of a row: at most 1.5 s per contender, so that the suite takes 8 minutes."""
    rounds, patience = (_QUICK_ROUNDS, _QUICK_PATIENCE) if settings.quick else (_ROUNDS, patience)
    own = settings.pace
    return replace(own, rounds=min(own.rounds, rounds), patience=min(own.patience, patience))


def memcpy(nbytes: int) -> Contender:
    """Return the reference: a copy of the same bytes onto memory that was written to before."""
    source, target = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    return Contender(MEMCPY, "reference", lambda: np.copyto(target, source))


def size(settings: Settings) -> int:
    """Return the bytes of the object that engines exchange."""
    if settings.sizes:
        return settings.sizes[-1]
    return QUICK_NBYTES if settings.quick else NBYTES


def elapsed(call: Callable[[], Any]) -> int:
    """Return the nanoseconds of one call, for a contender that prepares its object outside of the clock."""
    start = perf_counter_ns()
    call()
    return perf_counter_ns() - start
