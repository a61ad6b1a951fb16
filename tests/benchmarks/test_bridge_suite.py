"""The suite ``bridge``: the wrappers by hand compute the same gradients, and each case has a goal."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bridge import steps
from benchmarks.suite import Case, Entry, Settings, load
from benchmarks.timing import Pace, Timing

for name in ("torch", "jax"):
    pytest.importorskip(name)


def test_suite_has_the_section() -> None:
    assert [section.name for section in load("bridge").sections] == ["steps"]


def test_contenders_compute_the_same_gradients() -> None:
    for step, wrappers in steps.contenders().values():
        one, other = (step(call, 8, 4)() for call in wrappers.values())
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-5)


def test_each_direction_has_a_time_for_each_contender() -> None:
    cases = steps.run(Settings(pace=Pace(rounds=2, block=20_000, patience=50_000_000)), 8, 4)
    assert [len(case.timed()) for case in cases] == [2, 2, 2]
    assert len(steps.judge(cases)) == 3


def test_goals_are_ratios_to_the_wrapper_by_hand() -> None:
    def entry(label: str, time: float) -> Entry:
        return Entry(label, timing=Timing.of([time]))

    (goal,) = steps.judge([Case("x", [entry(steps.OURS, 3.0), entry(steps.BY_HAND, 2.0)])])
    assert (goal.value, goal.limit) == (1.5, 1.2)
