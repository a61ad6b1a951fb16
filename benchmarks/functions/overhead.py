"""Calls of a function that ``accepts`` decorates, and calls of ``convert`` around the same function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest
from benchmarks.suite import Case, Goal, Section, Settings, Task, median
from benchmarks.timing import Statement

#: The contenders.
BY_HAND, DECORATED = "by hand", "accepts"
#: The most nanoseconds that ``accepts`` adds, for the case that has a goal.
LIMIT = 300.0
GOAL = "numpy -> torch -> numpy, one array"


@dataclass(frozen=True)
class Question:
    """One call: the code by hand, the call of the decorated function ``f``, and their arguments."""

    by_hand: str
    decorated: str
    caller: str
    to: str
    names: dict[str, Any]


def questions(settings: Settings) -> dict[str, Question]:
    """Return each question by its name; a framework that `settings` leaves out has none."""
    x = np.zeros(1000, np.float32)
    one = "convert(g(convert(x, to={to!r})), to={caller!r})"
    made: dict[str, Question] = {}

    def add(name: str, caller: str, to: str, by_hand: str, decorated: str) -> None:
        if settings.wants(caller) and settings.wants(to):
            array = zc.convert(zc.convert(x, "numpy", copy=True), caller)
            values = {"x": array, "y": array, "d": {"a": array, "b": [array, None]}}
            by_hand = by_hand.format(caller=caller, to=to)
            made[name] = Question(by_hand, decorated, caller, to, values)

    add(GOAL, "numpy", "torch", one, "f(x)")
    add("numpy -> torch -> numpy, a keyword", "numpy", "torch", one, "f(x=x)")
    two = "convert(g(convert(x, to={to!r}), convert(y, to={to!r})), to={caller!r})"
    add("numpy -> torch -> numpy, two arrays", "numpy", "torch", two, "f(x, y)")
    tree = "convert(g(convert(d, to={to!r}, leaves='keep')), to={caller!r}, leaves='keep')"
    add("numpy -> torch -> numpy, a dict", "numpy", "torch", tree, "f(d)")
    add("torch -> numpy -> torch, one array", "torch", "numpy", one, "f(x)")
    add("torch -> jax -> torch, one array", "torch", "jax", one, "f(x)")
    add("pandas -> torch -> pandas, one series", "pandas", "torch", one, "f(x)")
    add("torch -> torch -> torch, one array", "torch", "torch", "g(x)", "f(x)")
    return made


def function(x: Any, y: Any = None) -> Any:
    """Return the first argument; the function of all questions."""
    return x


def tasks(settings: Settings) -> list[Task]:
    """Return one task: a goal is a difference, so that all its times must be of the same minutes."""
    return [Task("all calls", partial(run, settings), seconds=4.0)]


def run(settings: Settings) -> list[Case]:
    """Time each call by hand and with ``accepts``, in turns."""
    contest = Contest()
    for name, question in questions(settings).items():
        import_module(question.to)
        decorated = zc.accepts(question.to)(function)
        names = {"convert": zc.convert, "g": function, "f": decorated, **question.names}
        case = contest.case(name)
        contest.add(case, BY_HAND, "reference", Statement(question.by_hand, names))
        contest.add(case, DECORATED, "ours", Statement(question.decorated, names))
    return contest.time(settings.pace)


def judge(cases: Sequence[Case]) -> list[Goal]:
    """Judge the time that ``accepts`` adds to two calls of ``convert``."""
    goals = []
    for case in cases:
        times = {entry.label: median(entry) for entry in case.timed()}
        if case.name == GOAL and times.keys() == {BY_HAND, DECORATED}:
            added = times[DECORATED] - times[BY_HAND]
            goals.append(
                Goal(f"at most {LIMIT:.0f} ns more than two converts", case.name, added, LIMIT, "ns")
            )
    return goals


SECTIONS = (
    Section(
        "overhead",
        "a call of a function that accepts decorates, and the same conversions by hand",
        tasks,
        "series",
        judge,
    ),
)
