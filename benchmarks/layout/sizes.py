"""Time by the number of records, compared with NumPy per field."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

import zerocopy as zc
from benchmarks.goals import NOISE, labelled, ratio
from benchmarks.layout.contest import Method, Transposition, differs_from
from benchmarks.layout.data import PARTICLE, records
from benchmarks.suite import Case, Goal, Section, Settings, Task

_ROWS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000, 10_000_000)

#: zerocopy and the same work with NumPy.
PAIRS = (
    (
        Method("zc.aos_to_soa(r, out=o)", "ours", gives="o"),
        Method("for f in o: np.copyto(o[f], r[f])", name="np.copyto per field", gives="o"),
    ),
    (
        Method("zc.aos_to_soa(r)", "ours"),
        Method(
            "{f: np.ascontiguousarray(r[f]) for f in r.dtype.names}", name="np.ascontiguousarray per field"
        ),
    ),
    (
        Method("zc.soa_to_aos(o, dtype, out=r)", "ours", gives="r"),
        Method("for f in o: r[f] = o[f]", name="assignment per field", gives="r"),
    ),
)


def contest(rows: int) -> Transposition:
    """Return the contest for `rows` records; the input of one direction is the output of the other."""
    r = records(PARTICLE.dtype, rows)
    expected = r.copy()
    names = {"np": np, "zc": zc, "r": r, "o": zc.aos_to_soa(r, copy=True), "dtype": r.dtype}
    return Transposition(f"{rows:,} records", names, [], differs_from(expected))


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each number of records."""
    largest = 100_000 if settings.quick else max(_ROWS)
    return [Task(f"{rows:,} records", partial(_run, rows, settings)) for rows in _ROWS if rows <= largest]


def _run(rows: int, settings: Settings) -> list[Case]:
    # By name, because columns are too narrow for code.
    methods = {method.name or method.code: method for pair in PAIRS for method in pair}
    case = contest(rows).run(methods, settings)
    case.figures = {"bytes of records": PARTICLE.dtype.itemsize * rows}
    return [case]


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Compare zerocopy with NumPy for each number of records."""
    name = f"any number of records: not slower than NumPy per field, within noise ({NOISE}x)"
    return [
        Goal(name, f"{case.name}, {ours.code}", value, NOISE, "x")
        for case in cases
        for ours, theirs in PAIRS
        if (value := ratio(labelled(theirs.name), labelled(ours.code))(case)) is not None
    ]


SECTIONS = (
    Section(
        "sizes",
        f"time by the number of records: {PARTICLE.case}",
        tasks,
        "series",
        goals,
    ),
)
