"""Host memory: ``"aligned"``, which JAX can alias, and ``"recycle"``, which keeps freed blocks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks.children import Side
from benchmarks.contest import installed
from benchmarks.goals import Promise, fastest, judge, labelled, ratio
from benchmarks.pool.sides import WITHOUT, Samples, contest, label, sides, turns
from benchmarks.pool.workloads import GROUPS, Workload
from benchmarks.suite import Case, Goal, Section, Settings, Task
from benchmarks.timing import Pace

#: Goal: speed-up of a large array to JAX.
GAIN = 500

_LARGE = 64 << 20
_MODE = "aligned"


def aligned_tasks(settings: Settings) -> list[Task]:
    """Return two tasks if JAX is installed."""
    if not installed("jax") or not settings.wants("jax"):
        return []
    return [Task("arrays", _arrays, seconds=5), Task("64 MB to JAX", partial(_large, settings), seconds=5)]


def _arrays() -> list[Case]:
    case = Case("NumPy arrays of 1 KB to 256 MB that JAX aliases")
    with sides(WITHOUT, _MODE) as contenders:
        for side in contenders:
            aliased = side.ask("reach_jax")
            case.figures["arrays"] = len(aliased)
            case.figures[side.label] = sum(aliased.values())
            if side.label != label(WITHOUT):
                case.remarks += [f"{name} is copied" for name, alias in aliased.items() if not alias]
                case.remarks += side.ask("describe")
    return [case]


def _large(settings: Settings) -> list[Case]:
    with sides(WITHOUT, _MODE) as contenders:
        for side in contenders:
            side.ask("open_jax", _LARGE)
        # Waits, because otherwise the copy would continue in the turn of the other contender.
        code = 'zc.convert(x, to="jax").block_until_ready()'
        return [contest("64 MB of NumPy to JAX", [turns(code, contenders, settings.pace)])]


def _copied(case: Case) -> float | None:
    return case.figures["arrays"] - case.figures[label(_MODE)] if case.figures else None


PROMISES = (
    Promise("aligned: arrays that JAX copies", _copied, 0, ""),
    Promise(
        f"aligned: 64 MB to JAX at least {GAIN}x as fast (limit: ratio of times)",
        ratio(fastest("idiom")),
        1 / GAIN,
    ),
)


MODES = (WITHOUT, "recycle", "aligned")

_WORKLOADS = {workload.name: workload for workloads in GROUPS.values() for workload in workloads}
_PATIENCE, _QUICK_PATIENCE = 3_000_000_000, 100_000_000


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each group, on systems whose C library supports it."""
    if not sys.platform.startswith("linux"):
        return []
    return [Task(group, partial(_run, group, settings), seconds=5) for group in GROUPS]


def _pace(group: str, settings: Settings) -> Pace:
    """Return the duration of the measurement in one set of processes."""
    most = _QUICK_PATIENCE if settings.quick else _PATIENCE
    sets = _sets(group, settings)
    patience = min(settings.pace.patience, most) // sets
    return replace(settings.pace, rounds=max(1, settings.pace.rounds // sets), patience=patience)


def _sets(group: str, settings: Settings) -> int:
    """Return how many sets of processes run in sequence.

    Addresses and huge pages of a process change some workloads by up to a factor of two for its
    lifetime, and workloads of 100 ns by more.
    """
    if settings.quick:
        return 1
    return 15 if group == "small blocks" else 5


def _run(group: str, settings: Settings) -> list[Case]:
    workloads = [workload for workload in GROUPS[group] if workload.wanted(settings)]
    samples: dict[str, list[Samples]] = {workload.name: [] for workload in workloads}
    for _ in range(_sets(group, settings)):
        with sides(*MODES) as contenders:
            for side in contenders:
                side.ask("open", group, sorted({workload.needs for workload in workloads}))
            before = {side.label: side.ask("resident") for side in contenders}
            for workload in workloads:
                samples[workload.name].append(turns(workload.code, contenders, _pace(group, settings)))
            memory = _memory(group, contenders, before)
    return [*(contest(name, several) for name, several in samples.items()), memory]


def _memory(group: str, contenders: Sequence[Side], before: dict[str, int]) -> Case:
    """Return the resident memory after the workloads, minus that before them."""
    case = Case(f"{MEMORY}{group}")
    for side in contenders:
        case.figures[f"bytes {side.label}"] = max(0, side.ask("resident") - before[side.label])
        if side.label != label(WITHOUT):
            side.ask("trim")
            case.figures[f"bytes {side.label}, trimmed"] = max(0, side.ask("resident") - before[side.label])
    return case


#: Prefix of cases about memory.
MEMORY = "kept after "


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge each workload: time with the mode over time without."""
    return judge(
        [
            Promise(
                promise(workload),
                ratio(labelled(label(WITHOUT)), labelled(label("recycle"))),
                1 / workload.gain,
                cases=(name,),
            )
            for name, workload in _WORKLOADS.items()
        ],
        cases,
    )


def promise(workload: Workload) -> str:
    """Return the goal of a workload."""
    if workload.gain > 1:
        return f"recycle: {workload.name}, at least {workload.gain:g}x as fast (limit: ratio of times)"
    return f"recycle: each workload at least {workload.gain:.2f}x as fast (limit: ratio of times)"


SECTIONS = (
    Section(
        "aligned",
        "NumPy arrays to JAX, with and without the pool",
        aligned_tasks,
        "figures",
        partial(judge, PROMISES),
    ),
    Section("recycle", "workloads with and without the pool, and kept memory", tasks, "series", goals),
)
