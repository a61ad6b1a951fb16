"""Calls of a function that ``accepts`` decorates, and calls of ``convert`` around the same function."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest
from benchmarks.goals import Promise, added, judge, labelled
from benchmarks.suite import Case, Section, Settings, Suite, Task
from benchmarks.timing import Statement

#: The contenders.
BY_HAND, DECORATED = "by hand", "accepts"
#: The most nanoseconds that ``accepts`` adds, for the case that has a goal.
LIMIT = 300.0
GOAL = "numpy -> torch -> numpy, one array"


def questions(settings: Settings) -> dict[str, tuple[str, str, str, Any]]:
    """Return the target, the code by hand, that with the decorated function ``f``, and the array."""
    x = np.zeros(1000, np.float32)
    one, made = "convert(g(convert(x, to={to!r})), to={caller!r})", {}

    def add(name: str, caller: str, to: str, by_hand: str, decorated: str) -> None:
        if settings.wants(caller) and settings.wants(to):
            array = zc.convert(zc.convert(x, "numpy", copy=True), caller)
            made[name] = to, by_hand.format(caller=caller, to=to), decorated, array

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
    for name, (to, by_hand, decorated, x) in questions(settings).items():
        import_module(to)
        names = {"convert": zc.convert, "g": function, "f": zc.accepts(to)(function)}
        names |= {"x": x, "y": x, "d": {"a": x, "b": [x, None]}}
        case = contest.case(name)
        contest.add(case, BY_HAND, "reference", Statement(by_hand, names))
        contest.add(case, DECORATED, "ours", Statement(decorated, names))
    return contest.time(settings.pace)


PROMISES = (
    Promise(
        f"at most {LIMIT:.0f} ns more than two converts",
        added(labelled(BY_HAND), labelled(DECORATED)),
        LIMIT,
        "ns",
        (GOAL,),
    ),
)

SUITE = Suite(
    "functions",
    "what accepts adds to the conversions of a call",
    (
        Section(
            "overhead",
            "a call of a function that accepts decorates, and the same conversions by hand",
            tasks,
            "series",
            partial(judge, PROMISES),
        ),
    ),
    frameworks=("numpy", "torch", "jax", "pandas"),
    distributions=("numpy", "torch", "jax", "jaxlib", "pandas"),
)
