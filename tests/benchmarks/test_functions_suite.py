"""The suite ``functions``: both contenders of a call give the same, and one call has a goal."""

from __future__ import annotations

import pytest

from benchmarks.functions import overhead
from benchmarks.functions.overhead import BY_HAND, DECORATED, GOAL, LIMIT
from benchmarks.pages import functions as page
from benchmarks.suite import Case, Entry, Settings, load
from benchmarks.timing import Pace, Timing

for name in ("torch", "jax", "pandas"):
    pytest.importorskip(name)

PACE = Pace(rounds=2, block=20_000, patience=50_000_000)


def test_suite_has_the_section() -> None:
    assert [section.name for section in load("functions").sections] == ["overhead"]


def test_each_call_is_timed_both_ways() -> None:
    cases = overhead.run(Settings(pace=PACE))
    assert len(cases) == 8
    for case in cases:
        assert [entry.label for entry in case.timed()] == [BY_HAND, DECORATED], case
    assert [goal.case for goal in overhead.judge(cases)] == [GOAL]
    assert len(overhead.questions(Settings(frameworks=("numpy", "torch")))) == 6


def test_the_goal_is_a_difference() -> None:
    def entry(label: str, time: float) -> Entry:
        return Entry(label, timing=Timing.of([time]))

    (goal,) = overhead.judge([Case(GOAL, [entry(BY_HAND, 600.0), entry(DECORATED, 850.0)])])
    assert (goal.value, goal.limit, goal.met) == (250.0, LIMIT, True)


def test_the_row_of_the_page() -> None:
    entries = [Entry(BY_HAND, timing=Timing.of([600.0])), Entry(DECORATED, timing=Timing.of([850.0]))]
    assert page._row(Case(GOAL, entries)) == [GOAL, "600 ns", "850 ns", "250 ns"]
