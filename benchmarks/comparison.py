"""Comparison of two runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.results import Results
from benchmarks.suite import Entry, median


@dataclass(frozen=True)
class Change:
    """One contender of zerocopy, compared with an earlier run.

    Attributes
    ----------
    where : str
        Section, case and contender.
    before, after : float
        Medians, in nanoseconds.
    drift : float
        How much slower the other contenders got: the effect of the machine.
    """

    where: str
    before: float
    after: float
    drift: float

    @property
    def ratio(self) -> float:
        """New time over old time."""
        return self.after / self.before

    def slower(self, threshold: float) -> bool:
        """Whether it got slower by more than `threshold`, also relative to the machine."""
        return self.ratio > threshold and self.ratio / self.drift > threshold


def compare(old: Results, new: Results) -> list[Change]:
    """Return the changes of zerocopy's contenders between two runs, the worst first.

    The drift of a case is the median of its other contenders, or of all others in the run if it has
    none: a slower machine does not mean a slower program.
    """
    before = {where: entry for where, _, entry in _timed(old)}
    drifts: dict[str, list[float]] = {}
    ours: list[tuple[str, str, float, float]] = []
    for where, case, entry in _timed(new):
        was = before.get(where)
        if was is None:
            continue
        if entry.role == "ours":
            ours.append((where, case, median(was), median(entry)))
        else:
            drifts.setdefault(case, []).append(median(entry) / median(was))
    overall = statistics.median([d for several in drifts.values() for d in several] or [1.0])
    changes = [
        Change(where, was, now, statistics.median(drifts.get(case) or [overall]))
        for where, case, was, now in ours
    ]
    return sorted(changes, key=lambda change: -change.ratio / change.drift)


def _timed(results: Results) -> Iterator[tuple[str, str, Entry]]:
    for section, cases in results.cases.items():
        for case in cases:
            for entry in case.timed():
                yield f"{section}: {case.name}: {entry.label}", f"{section}: {case.name}", entry
