"""The goals of the suite: each with its question, its figure and its limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.processes.objects import ARRAYS
from benchmarks.suite import Case, Goal, median

Measure = Callable[[Case], float | None]


@dataclass(frozen=True)
class Promise:
    """One promise about cost: a figure and its limit. A `Goal` is its result for one case.

    Attributes
    ----------
    name : str
        The promise in words.
    question : str
        The start of the names of the cases that it is judged on.
    measure : callable
        ``measure(case)`` is the figure, or None if the case lacks it.
    limit : float
    unit : str
    without : callable
        The figure without zerocopy, or None.
    frameworks : tuple of str
        The frameworks that it is judged on; empty for all.
    """

    name: str
    question: str
    measure: Measure
    limit: float
    unit: str
    without: Measure = lambda case: None
    frameworks: tuple[str, ...] = ()

    def concerns(self, case: Case) -> bool:
        """Whether a case answers the question."""
        question, _, framework = case.name.rpartition(", ")
        return question == self.question and (not self.frameworks or framework in self.frameworks)


def time(role: str = "ours") -> Measure:
    """Return the time in nanoseconds."""

    def measure(case: Case) -> float | None:
        entry = case.fastest(role)
        return None if entry is None else median(entry)

    return measure


def times(role: str = "ours", over: str = "reference", less: float = 0.0) -> Measure:
    """Return the time as a multiple of that of the reference; `less` nanoseconds are not counted."""

    def measure(case: Case) -> float | None:
        entry, other = case.fastest(role), case.fastest(over)
        return None if entry is None or other is None else (median(entry) - less) / median(other)

    return measure


def figure(name: str) -> Measure:
    """Return a figure other than a time."""
    return lambda case: case.figures.get(name)


_IN_PLACE = ("numpy", "torch")
_RAY = ("torch", "jax", "tensorflow")
NOISE = 1.1


def _memcpy(name: str, question: str, limit: float, frameworks: tuple[str, ...] = ()) -> Promise:
    return Promise(name, question, times(), limit, "x", times("idiom"), frameworks)


PROMISES = (
    Promise(
        "pickle 5: bytes in-band",
        "pickle 5",
        figure("bytes in-band"),
        2000,
        "bytes",
        figure("bytes in-band without zerocopy"),
    ),
    _memcpy("pickle 5: dumps and loads", "pickle 5", 0.1),
    _memcpy("share: recycled", "share, recycled", 1.6),
    _memcpy("share: fresh", "share, fresh", 9),
    Promise("share: already shared", "share, already shared", time(), 5_000, "ns"),
    Promise("open: new, arrays", "open, new", time(), 60_000, "ns", time("idiom"), ARRAYS),
    Promise(
        "open: already mapped, arrays", "open, already mapped", time(), 6_000, "ns", frameworks=_IN_PLACE
    ),
    Promise("open: new, tables", "open, new", time(), 100_000, "ns", frameworks=("pyarrow",)),
    Promise(
        "open: bytes of the pickled handle", "open, new", figure("bytes of the pickled handle"), 256, "bytes"
    ),
    _memcpy("Pipe", "Pipe", 3),
    _memcpy("Queue", "Queue", 3),
    _memcpy("DataLoader: batch of 32 MiB, 1 worker", "DataLoader, 1 worker", 2),
    _memcpy("DataLoader: batch of 32 MiB, 2 workers", "DataLoader, 2 workers", 4),
    _memcpy("Ray: put", "Ray put", 3, _RAY),
    _memcpy("Ray: put of polars", "Ray put", 5, ("polars",)),
    _memcpy("Ray: get", "Ray get", 0.4, (*_RAY, "polars")),
    Promise(
        "Ray: bytes private to the reader",
        "Ray get",
        figure("bytes private to the reader"),
        0,
        "bytes",
        figure("bytes private to the reader without zerocopy"),
        (*_RAY, "polars"),
    ),
    Promise("Dask, same host: over an empty task", "Dask, same host", times(), 4, "x", times("idiom")),
    Promise(
        f"Dask, tcp: over Dask alone, at most {NOISE}x for noise",
        "Dask, tcp",
        times(over="idiom"),
        NOISE,
        "x",
    ),
    Promise(
        "Flight, same host, without 100 us",
        "Flight",
        times(less=100_000),
        1.6,
        "x",
        times("idiom"),
    ),
)


def goals(cases: Sequence[Case], promises: Sequence[Promise] = PROMISES) -> list[Goal]:
    """Judge each case by the promises that concern it."""
    judged = []
    for promise in promises:
        for case in cases:
            value = promise.measure(case) if promise.concerns(case) else None
            if value is not None:
                judged.append(Goal(promise.name, case.name, value, promise.limit, promise.unit))
    return judged
