"""The goals of the compiled core, as data, for the section ``core`` and for the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.suite import Case, Entry, Goal, median

#: What a time is compared with. The last four are references: entries with this note.
BY_HAND, DOCUMENTED = "the fastest by hand", "the documented call"
PURE, PLAIN, FLOAT32 = "pure Python", "the plain call", "writable float32"

_ROLES = {BY_HAND: ("documented", "idiom"), DOCUMENTED: ("documented",)}

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "pyarrow")
PAIRS = tuple(f"{a} -> {b}" for a in FRAMEWORKS for b in FRAMEWORKS if a != b)


@dataclass(frozen=True)
class Bound:
    """One row of the table of goals.

    Attributes
    ----------
    row : str
        The conversions in words.
    limit : float
        A ratio to `against`, or nanoseconds.
    against : str
        What it is compared with; empty for a limit in nanoseconds.
    cases : tuple of str
        The names of the cases, or of the part after the comma that several pairs have.
    mean : bool
        Whether the geometric mean of all cases is judged, instead of each case.
    """

    row: str
    limit: float
    against: str = ""
    cases: tuple[str, ...] = ()
    mean: bool = False

    @property
    def name(self) -> str:
        """The row with its limit, in terminals and on pages.

        Examples
        --------
        >>> Bound("numpy -> torch", 0.7, BY_HAND).name
        'numpy -> torch: 0.70x of the fastest by hand'
        >>> Bound("explain", 15_000.0).name
        'explain: 15 us'
        """
        if not self.against:
            return f"{self.row}: {self.limit / 1000:g} us"
        return f"{self.row}: {self.limit:.2f}x of {self.against}"

    def covers(self, case: str) -> bool:
        """Whether it is judged on a case."""
        return case in self.cases or case.partition(", ")[2] in self.cases


def _pairs(sources: str, targets: str) -> tuple[str, ...]:
    """Return the names of pairs; an asterisk stands for all other frameworks."""
    return tuple(
        f"{a} -> {b}"
        for b in targets.split()
        for a in (FRAMEWORKS if sources == "*" else sources.split())
        if a != b
    )


FRESH, READ_ONLY, DICT, TABLE = "fresh tensors", "read-only", "dict of 100", "table of 100 columns"
EXPLAIN = "explain"
DTYPES = ("bfloat16", "float8_e4m3fn")
SAME = tuple(f"{name} -> {name}" for name in FRAMEWORKS)
OPTIONS = ("copy=False", "writable=True", "writable=False", 'dtype="float32"', 'device="cpu"')
TABLE_OPTIONS = ("copy=False", "columns=names", "columns=some")
BATCH = "batch of 30"
LAYOUTS = ("matrix", "matrix:C", "matrix:F")
MATRIX = '8192 x 28, layout="{}"'

GOALS = (
    Bound("same type", 0.25, PURE, SAME),
    Bound("torch -> numpy, storage seen before", 0.30, BY_HAND, ("torch -> numpy",)),
    Bound("torch -> numpy, fresh tensors", 1.15, BY_HAND, (FRESH,)),
    Bound("numpy -> torch", 0.70, BY_HAND, ("numpy -> torch",)),
    Bound("tensorflow -> numpy", 0.50, BY_HAND, ("tensorflow -> numpy",)),
    Bound("jax -> numpy", 0.65, BY_HAND, ("jax -> numpy",)),
    Bound("pyarrow -> numpy", 1.0, BY_HAND, ("pyarrow -> numpy",)),
    Bound("numpy, torch -> tensorflow", 0.85, BY_HAND, _pairs("numpy torch", "tensorflow")),
    Bound("jax, pyarrow -> tensorflow", 0.45, BY_HAND, _pairs("jax pyarrow", "tensorflow")),
    Bound("tensorflow, jax, pyarrow -> torch", 0.85, BY_HAND, _pairs("tensorflow jax pyarrow", "torch")),
    Bound("anything -> pyarrow", 1.0, BY_HAND, _pairs("*", "pyarrow")),
    Bound("anything -> jax", 0.30, BY_HAND, _pairs("*", "jax")),
    Bound("all pairs, geometric mean", 0.50, BY_HAND, PAIRS, mean=True),
    Bound("all pairs, geometric mean", 0.30, DOCUMENTED, PAIRS, mean=True),
    Bound("each pair", 1.0, BY_HAND, PAIRS),
    Bound("bfloat16, float8, read-only", 1.1, FLOAT32, (*DTYPES, READ_ONLY)),
    Bound("dict of 100, torch -> numpy", 0.35, BY_HAND, (f"torch -> numpy, {DICT}",)),
    Bound("dict of 100, numpy -> torch", 0.80, BY_HAND, (f"numpy -> torch, {DICT}",)),
    Bound("dict of 100, jax -> numpy", 0.75, BY_HAND, (f"jax -> numpy, {DICT}",)),
    Bound("Arrow table of 100 columns -> numpy", 0.40, BY_HAND, (f"pyarrow -> numpy, {TABLE}",)),
    Bound("Arrow table of 100 columns -> torch", 0.50, BY_HAND, (f"pyarrow -> torch, {TABLE}",)),
    Bound(
        "an option on a type seen before", 1.5, PLAIN, (*OPTIONS, *(f"{BATCH}, {o}" for o in TABLE_OPTIONS))
    ),
    Bound('layout="matrix", 8192 x 28', 1.0, BY_HAND, tuple(MATRIX.format(name) for name in LAYOUTS)),
    Bound("explain", 15_000.0, cases=(EXPLAIN,)),
)


def rival(case: Case, against: str) -> Entry | None:
    """Return the entry that a case is compared with."""
    if against in _ROLES:
        return case.fastest(*_ROLES[against])
    return next((entry for entry in case.timed("reference") if entry.note == against), None)


def ratio(case: Case, against: str) -> float | None:
    """Return zerocopy's time over that of the rival; None if one of them has no time."""
    ours, other = case.fastest("ours"), rival(case, against)
    return None if ours is None or other is None else median(ours) / median(other)


def _time(case: Case) -> float | None:
    ours = case.fastest("ours")
    return None if ours is None else median(ours)


def judge(cases: Sequence[Case]) -> list[Goal]:
    """Judge all goals that have cases."""
    return [goal for bound in GOALS for goal in _judge(bound, cases)]


def _judge(bound: Bound, cases: Sequence[Case]) -> Iterator[Goal]:
    values: list[float] = []
    for case in cases:
        if not bound.covers(case.name):
            continue
        value = ratio(case, bound.against) if bound.against else _time(case)
        if value is None:
            continue
        values.append(value)
        if not bound.mean:
            yield Goal(bound.name, case.name, value, bound.limit, "x" if bound.against else "ns")
    if bound.mean and values:
        mean = math.exp(math.fsum(map(math.log, values)) / len(values))
        yield Goal(bound.name, f"{len(values)} pairs", mean, bound.limit, "x")
