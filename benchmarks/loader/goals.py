"""The goals of the suite: each with its case, its figure and its limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.loader.turns import TIMES
from benchmarks.suite import Case, Goal

OURS = "zc.loader"
#: Start of the names of figures of memory: the most bytes at once, by the rows of the file.
PEAK = "peak, "
ELSEWHERE = "bytes outside of the decoded columns and the buffers"
PER_VALUE = "writes of a byte after decoding, at most"


@dataclass(frozen=True)
class Promise:
    """One promise about cost.

    Attributes
    ----------
    name : str
        The promise in words.
    cases : tuple of str
        The names of the cases that it is judged on.
    measure : callable
        ``measure(case)`` is the figure, or None if the case lacks it.
    limit : float
    unit : str
        ``"x"``, ``"bytes"``, or ``"speedup"``: the figure is our ratio over that of another.
    others : str
        The start of the labels whose ratios are shown for comparison; empty for all.
    """

    name: str
    cases: tuple[str, ...]
    measure: Callable[[Case], float | None]
    limit: float
    unit: str = "x"
    others: str = ""


def times(label: str = OURS) -> Callable[[Case], float | None]:
    """Return the ratio of a contender to the bound."""
    return lambda case: case.figures.get(TIMES + label)


def over(label: str) -> Callable[[Case], float | None]:
    """Return the loader's ratio to the bound, divided by that of another contender."""

    def measure(case: Case) -> float | None:
        own, other = times()(case), times(label)(case)
        return own / other if own is not None and other else None

    return measure


def figure(name: str) -> Callable[[Case], float | None]:
    """Return a figure other than a ratio."""
    return lambda case: case.figures.get(name)


def growth(case: Case) -> float | None:
    """Return the peak of the longer file over that of the shorter one."""
    peaks = [case.figures[name] for name in case.figures if name.startswith(PEAK)]
    return peaks[-1] / peaks[0] if len(peaks) > 1 and peaks[0] else None


#: End of the names of cases with slow contenders, and with files of fewer rows for all contenders.
FEWER = ", fewer rows"
HF_TORCH = 'datasets, with_format("torch")'
IN_MEMORY = "DataLoader of a TensorDataset in memory"
MODES = ("columns, in order", "matrix, in order", "matrix, shuffled", "columns, shuffled")

PROMISES = (
    Promise("columns, in order", ("columns, in order",), times(), 1.1),
    Promise("matrix, in order", ("matrix, in order",), times(), 1.1),
    Promise("matrix, shuffled", ("matrix, shuffled",), times(), 1.6),
    Promise(
        "columns, in order: against Hugging Face's torch format",
        (f"columns, in order{FEWER}",), over(HF_TORCH), 1 / 10, "speedup", HF_TORCH,
    ),
    Promise(
        "matrix, shuffled: against DataLoader and TensorDataset in memory",
        (f"matrix, shuffled{FEWER}",), over(IN_MEMORY), 1 / 20, "speedup", IN_MEMORY,
    ),
    Promise("bytes copied, in order, columns", MODES[:1], figure(PER_VALUE), 0, "writes"),
    Promise("bytes copied, matrix", MODES[1:3], figure(PER_VALUE), 1, "writes"),
    Promise("bytes copied by other code", MODES, figure(ELSEWHERE), 0, "bytes"),
    Promise("memory: file of 8 windows over file of 4", MODES, growth, 1.1),
)  # fmt: skip


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge each case by the promises that name it and have a figure in it."""
    judged = []
    for promise in PROMISES:
        for case in cases:
            value = promise.measure(case) if case.name in promise.cases else None
            if value is not None:
                unit = {"speedup": "x", "writes": ""}.get(promise.unit, promise.unit)
                judged.append(Goal(promise.name, case.name, value, promise.limit, unit))
    return judged
