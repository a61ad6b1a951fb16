"""``host="recycle"``: loads that gain by it, loads that could lose, and the memory that it keeps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks.pool.loads import GROUPS, Load
from benchmarks.pool.sides import WITHOUT, Samples, Side, contest, label, sides, turns
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median
from benchmarks.timing import Pace

MODES = (WITHOUT, "recycle", "aligned")

_LOADS = {load.name: load for loads in GROUPS.values() for load in loads}
_PATIENCE, _QUICK_PATIENCE = 3_000_000_000, 100_000_000


def tasks(settings: Settings) -> list[Task]:
    """One task a group, where the C library is one that can."""
    if not sys.platform.startswith("linux"):
        return []
    return [Task(group, partial(_run, group, settings), seconds=5) for group in GROUPS]


def _pace(group: str, settings: Settings) -> Pace:
    """Return how long to measure in one set of processes."""
    most = _QUICK_PATIENCE if settings.quick else _PATIENCE
    sets = _sets(group, settings)
    patience = min(settings.pace.patience, most) // sets
    return replace(settings.pace, rounds=max(1, settings.pace.rounds // sets), patience=patience)


def _sets(group: str, settings: Settings) -> int:
    """Return how many sets of processes run one after the other.

    Where a process happens to get its memory, as huge pages or at the same lines of a cache, makes
    up to a factor of two in some loads, for as long as it lives; and more in those that take 100 ns.
    """
    if settings.quick:
        return 1
    return 15 if group == "small blocks" else 5


def _run(group: str, settings: Settings) -> list[Case]:
    loads = [load for load in GROUPS[group] if load.wanted(settings)]
    samples: dict[str, list[Samples]] = {load.name: [] for load in loads}
    for _ in range(_sets(group, settings)):
        with sides(*MODES) as contenders:
            for side in contenders:
                side.ask("open", group, sorted({load.needs for load in loads}))
            before = {side.mode: side.ask("resident") for side in contenders}
            for load in loads:
                samples[load.name].append(turns(load.code, contenders, _pace(group, settings)))
            memory = _memory(group, contenders, before)
    return [*(contest(name, several) for name, several in samples.items()), memory]


def _memory(group: str, contenders: Sequence[Side], before: dict[str, int]) -> Case:
    """Return what is resident after the loads, beyond what was before them."""
    case = Case(f"{MEMORY}{group}")
    for side in contenders:
        case.figures[f"bytes {side.label}"] = max(0, side.ask("resident") - before[side.mode])
        if side.mode != WITHOUT:
            side.ask("trim")
            case.figures[f"bytes {side.label}, trimmed"] = max(0, side.ask("resident") - before[side.mode])
    return case


#: How the cases begin that are about memory.
MEMORY = "kept after "


def entry(case: Case, mode: str) -> Entry | None:
    """Return the entry of a mode."""
    return next((e for e in case.timed() if e.label == label(mode)), None)


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge each load: time with the mode over time without."""
    found = []
    for case in cases:
        load, ours, plain = _LOADS.get(case.name), entry(case, "recycle"), entry(case, WITHOUT)
        if load and ours and plain:
            found.append(Goal(promise(load), load.name, median(ours) / median(plain), 1 / load.gain, "x"))
    return found


def promise(load: Load) -> str:
    """Return the goal that a load is judged by."""
    if load.gain > 1:
        return f"recycle: {load.name}, at least {load.gain:g}x as fast: time with it over time without"
    return f"recycle: nothing below {load.gain:.2f} times the speed: time with it over time without"


SECTIONS = (
    Section("recycle", "loads with and without it, and the memory that it keeps", tasks, "series", goals),
)
