"""Calls of ``convert`` without a recorder, counted, and counted by line of code, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest
from benchmarks.goals import Promise, judge, labelled, ratio
from benchmarks.suite import Case, Section, Settings, Suite, Task
from benchmarks.timing import Loop, Statement
from zerocopy.monitor.recorder import Recorder

#: The contenders: how conversions are recorded while their block runs.
OFF, COUNTED, BY_LINE, STOPPED = "not recorded", "counted", "by line of code", "recorded before"
#: The largest ratio of a call after a recording to one before it: the routes are used again.
LIMIT = 1.15

# Reasons are sampled at the copies 1, 2, 4 and so on: the next sample after these is rare.
_WARM_UP = 64


@dataclass(frozen=True)
class Recorded(Statement):
    """A line of code that runs while a recorder is started, or after one was stopped."""

    mode: str = OFF

    def loop(self) -> Loop:
        """Return a loop that starts and stops the recorder while the clock does not run."""
        inner = super().loop()

        def loop(calls: Any, clock: Callable[[], int]) -> int:
            with recorded(self.mode):
                inner(range(_WARM_UP), clock)
                return inner(calls, clock)

        return loop


@contextmanager
def recorded(mode: str) -> Iterator[None]:
    """Record the conversions of the block, or those of a block before it, or none."""
    if mode == OFF:
        yield
        return
    recorder = Recorder(sites=mode != COUNTED)
    recorder.start()
    try:
        if mode == STOPPED:
            recorder.stop()
        yield
    finally:
        if mode != STOPPED:
            recorder.stop()


def sources(settings: Settings) -> dict[str, tuple[Any, str]]:
    """Return the object and the target of each conversion, by name."""
    array = np.zeros(1000, np.float32)
    leaves = {str(number): np.zeros(1000, np.float32) for number in range(10)}
    every: list[tuple[str, str, str, Callable[[], Any]]] = [
        ("numpy", "torch", "array", lambda: array),
        ("torch", "numpy", "array", lambda: import_module("torch").zeros(1000)),
        ("numpy", "jax", "array", lambda: zc.convert(array, "numpy", copy=True)),
        ("jax", "torch", "array", lambda: import_module("jax.numpy").zeros(1000)),
        ("pyarrow", "numpy", "table of 10 columns", lambda: _table(10)),
        ("pyarrow", "pandas", "table of 10 columns", lambda: _table(10)),
        ("numpy", "torch", "dict of 10 arrays", lambda: leaves),
        ("numpy", "torch", "a copy of 8 kB", lambda: np.zeros((1000, 2), np.float32)[::-1]),
    ]
    return {
        f"{source} -> {target}, {what}": (make(), target)
        for source, target, what, make in every
        if settings.wants(source) and settings.wants(target)
    }


def tasks(settings: Settings) -> list[Task]:
    """Return one task: a goal is a ratio, so that all its times must be of the same minutes."""
    return [Task("all conversions", partial(run, settings), seconds=4.0)]


def run(settings: Settings) -> list[Case]:
    """Time each conversion in each mode."""
    contest = Contest()
    for name, (x, target) in sources(settings).items():
        case, code = contest.case(name), f'convert(x, to="{target}")'
        for mode in (OFF, STOPPED, COUNTED, BY_LINE):
            role = "reference" if mode in (OFF, STOPPED) else "ours"
            contest.add(case, mode, role, Recorded(code, {"convert": zc.convert, "x": x}, mode))
    return contest.time(settings.pace)


PROMISES = (
    Promise(
        f"{STOPPED}: at most {LIMIT:.2f}x of a call that is not recorded",
        ratio(labelled(OFF), labelled(STOPPED)),
        LIMIT,
    ),
)


def _table(width: int) -> Any:
    pa = import_module("pyarrow")
    return pa.table({f"c{k}": np.zeros(1000) for k in range(width)})


SUITE = Suite(
    "monitor",
    "what recording adds to a call of convert",
    (
        Section(
            "overhead",
            "a call of convert that is not recorded, recorded before, counted, and counted by line of code",
            tasks,
            "series",
            partial(judge, PROMISES),
        ),
    ),
    frameworks=("numpy", "torch", "jax", "pyarrow", "pandas"),
    distributions=("numpy", "torch", "jax", "jaxlib", "pyarrow", "pandas"),
)
