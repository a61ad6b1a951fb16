"""Calls of ``convert`` without a recorder, counted, and counted by line of code, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest
from benchmarks.suite import Case, Goal, Section, Settings, Task, median
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


def sources(settings: Settings) -> dict[str, tuple[Any, str, str]]:
    """Return the object, the code and the target of each conversion, by name."""
    made: dict[str, tuple[Any, str, str]] = {}
    array = np.zeros(1000, np.float32)
    every: list[tuple[str, Callable[[], Any], str]] = [
        ("numpy", lambda: array, "torch"),
        ("torch", lambda: import_module("torch").zeros(1000), "numpy"),
        ("numpy", lambda: zc.convert(array, "numpy", copy=True), "jax"),
        ("jax", lambda: import_module("jax.numpy").zeros(1000), "torch"),
        ("pyarrow", lambda: _table(10), "numpy"),
        ("pyarrow", lambda: _table(10), "pandas"),
    ]
    for source, make, target in every:
        if settings.wants(source) and settings.wants(target):
            what = "table of 10 columns" if source == "pyarrow" else "array"
            made[f"{source} -> {target}, {what}"] = make(), f'convert(x, to="{target}")', target
    if settings.wants("numpy") and settings.wants("torch"):
        leaves = {str(number): np.zeros(1000, np.float32) for number in range(10)}
        made["numpy -> torch, dict of 10 arrays"] = leaves, 'convert(x, to="torch")', "torch"
        gaps = np.zeros((1000, 2), np.float32)[::-1]
        made["numpy -> torch, a copy of 8 kB"] = gaps, 'convert(x, to="torch")', "torch"
    return made


def tasks(settings: Settings) -> list[Task]:
    """Return one task: a goal is a ratio, so that all its times must be of the same minutes."""
    return [Task("all conversions", partial(run, settings), seconds=4.0)]


def run(settings: Settings) -> list[Case]:
    """Time each conversion in each mode."""
    contest = Contest()
    for name, (x, code, _) in sources(settings).items():
        case = contest.case(name)
        for mode in (OFF, STOPPED, COUNTED, BY_LINE):
            role = "reference" if mode in (OFF, STOPPED) else "ours"
            contest.add(case, mode, role, Recorded(code, {"convert": zc.convert, "x": x}, mode))
    return contest.time(settings.pace)


def judge(cases: Sequence[Case]) -> list[Goal]:
    """Judge the ratio of a call after a recording to one that was not recorded."""
    name = f"{STOPPED}: at most {LIMIT:.2f}x of a call that is not recorded"
    goals = []
    for case in cases:
        times = {entry.label: median(entry) for entry in case.timed()}
        if OFF in times and STOPPED in times:
            goals.append(Goal(name, case.name, times[STOPPED] / times[OFF], LIMIT, "x"))
    return goals


def _table(width: int) -> Any:
    pa = import_module("pyarrow")
    return pa.table({f"c{k}": np.zeros(1000) for k in range(width)})


SECTIONS = (
    Section(
        "overhead",
        "a call of convert that is not recorded, recorded before, counted, and counted by line of code",
        tasks,
        "series",
        judge,
    ),
)
