"""The goals of a suite, as data: each has a name, a figure of a case, and a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from benchmarks.suite import Case, Entry, Goal, median

#: Tolerance for noise of medians on a shared machine.
NOISE = 1.1

#: The figure of a case, or None if the case lacks it.
Measure = Callable[[Case], float | None]
#: Returns the entry that a goal is about, or None.
Choose = Callable[[Case], Entry | None]


@dataclass(frozen=True)
class Promise:
    """One promise about cost: a figure and its limit. A `Goal` is its result for one case.

    Attributes
    ----------
    name : str
        The promise in words.
    measure, without : callable
        The figure of a case, or None if the case lacks it; the figure without zerocopy.
    limit, unit : float, str
        As of a `Goal`.
    cases : tuple of str
        The names of its cases, or of the part after their first comma; empty for all.
    question, frameworks : str, tuple of str
        In place of `cases`: their names before the framework; and the frameworks, empty for all.
    mean : str
        If the geometric mean of all cases is judged, and not each case: the name of the cases, ``"pairs"``.
    """

    name: str
    measure: Measure
    limit: float
    unit: str = "x"
    cases: tuple[str, ...] = ()
    question: str = ""
    frameworks: tuple[str, ...] = ()
    without: Measure = lambda case: None
    mean: str = ""

    def concerns(self, case: str) -> bool:
        """Whether it is judged on the case of that name."""
        if self.question:
            question, _, framework = case.rpartition(", ")
            return question == self.question and (not self.frameworks or framework in self.frameworks)
        return not self.cases or case in self.cases or case.partition(", ")[2] in self.cases

    def values(self, cases: Iterable[Case]) -> list[tuple[Case, float]]:
        """Return the cases that it is judged on, with the figure of each."""
        concerned = ((case, self.measure(case)) for case in cases if self.concerns(case.name))
        return [(case, value) for case, value in concerned if value is not None]


def judge(promises: Iterable[Promise], cases: Sequence[Case]) -> list[Goal]:
    """Judge each case by the promises that concern it and have a figure in it."""
    judged = []
    for promise in promises:
        values = [(case.name, value) for case, value in promise.values(cases)]
        if promise.mean and values:
            mean = geometric_mean(value for _, value in values)
            values = [(f"{len(values)} {promise.mean}", mean)]
        judged += [Goal(promise.name, name, value, promise.limit, promise.unit) for name, value in values]
    return judged


def fastest(*roles: str) -> Choose:
    """Choose the fastest entry with one of the roles."""
    return lambda case: case.fastest(*roles)


OURS = fastest("ours")
BY_HAND = fastest("documented", "idiom")


def labelled(start: str, *roles: str) -> Choose:
    """Choose the first timed entry whose label begins with `start`."""
    return lambda case: next((e for e in case.timed(*roles) if e.label.startswith(start)), None)


def time(of: Choose = OURS) -> Measure:
    """Return the nanoseconds of an entry."""

    def measure(case: Case) -> float | None:
        entry = of(case)
        return None if entry is None else median(entry)

    return measure


def ratio(over: Choose, of: Choose = OURS, less: float = 0.0) -> Measure:
    """Return the time of an entry as a multiple of that of another; `less` nanoseconds are not counted."""

    def measure(case: Case) -> float | None:
        own, other = time(of)(case), time(over)(case)
        return None if own is None or other is None else (own - less) / other

    return measure


def added(over: Choose, of: Choose = OURS) -> Measure:
    """Return the nanoseconds that an entry takes more than another."""

    def measure(case: Case) -> float | None:
        own, other = time(of)(case), time(over)(case)
        return None if own is None or other is None else own - other

    return measure


def figure(name: str) -> Measure:
    """Return a figure other than a time."""
    return lambda case: case.figures.get(name)


def largest_figure(case: Case) -> float | None:
    """Return the largest figure."""
    return max(case.figures.values(), default=None)
