"""All frameworks to all others: the time of a call, and a check of whether it copies.

The frameworks are those of the registry. Plans are verified: the memory of source and result is
compared, and if the source is writable, a write to it must be visible in the result or not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest, Method
from benchmarks.conversion.subjects import SUBJECTS, Array, aligned_values
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task
from zerocopy import registry
from zerocopy.errors import ZeroCopyError
from zerocopy.pairs import arrays as matrix
from zerocopy.pairs.attempt import first_line, sharing

COUNT = 1000  # elements
#: Figures of a case: one for the goal, two for how far cells were verified.
WRONG = "cells where explain is wrong"
WRITTEN, UNPROVED = "cells verified with a write", "cells not verified"

Write = Callable[[float], None]


@dataclass(frozen=True)
class Source:
    """An array of one framework, its values, and a function that changes its first element, if any can."""

    obj: Any
    values: Array
    write: Write | None


@dataclass(frozen=True)
class Proof:
    """The result of verifying one cell: whether it aliases, and whether that was verified with a write.

    `aliases` is None if unknown: a query that has not run has no memory. `refused` is the first line of a
    refusal, and `wrong` how the plan differs from the result, or that the values are wrong.
    """

    aliases: bool | None = None
    written: bool = False
    refused: str = ""
    wrong: str = ""


@cache
def _known() -> dict[str, str]:
    """Return the kind of each installed framework, tensor frameworks first."""
    kinds = ("tensor", "both", "table")
    installed = {
        name: info.kind for name, info in zc.frameworks().items() if info.installed and info.kind in kinds
    }
    # In the order of the other sections.
    order = [*SUBJECTS, *installed]
    return dict(sorted(installed.items(), key=lambda item: (kinds.index(item[1]), order.index(item[0]))))


def names(settings: Settings) -> list[str]:
    """Return the installed and wanted frameworks."""
    return [name for name in _known() if settings.wants(name)]


@cache
def usable(name: str) -> str:
    """Return why an installed framework is not usable here, or nothing."""
    return _absent(tuple(_known())).get(name, "")


@cache
def _absent(names: tuple[str, ...]) -> dict[str, str]:
    return {name: reason.why for name, reason in matrix.measure({}, names).not_usable.items()}


def source(name: str) -> Source:
    """Create the source of a row, in 64-byte-aligned memory; ZeroCopyError if it does not support float32.

    Frameworks of :data:`SUBJECTS` create it themselves. The others alias an aligned NumPy array,
    because their own memory is not always aligned.
    """
    values = aligned_values(COUNT)
    initial = values.copy()
    obj = SUBJECTS[name].make(values) if name in SUBJECTS else zc.convert(values, name)
    framework = registry.by_name(name)

    def through_array(value: float) -> None:
        values[0] = value

    def through_object(value: float) -> None:
        obj[0] = value

    # A source that aliases our array can be written through it, even if it is immutable.
    for write in (through_array, *[through_object] * framework.mutable):
        if _seen(write, obj, initial):
            return Source(obj, initial, write)
    return Source(obj, initial, None)


def prove(origin: Source, target: str) -> Proof:
    """Convert once, and compare memory, a write and values with the plan."""
    plan = zc.explain(origin.obj, target)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings are timed, and their text is known
            result = zc.convert(origin.obj, target)
    except ZeroCopyError as error:
        wrong = "explain returns a plan for it" if plan.possible else ""
        return Proof(refused=first_line(error.why), wrong=wrong)
    values = column(result)
    if values.dtype != origin.values.dtype or not np.array_equal(values, origin.values):
        return Proof(wrong="the result has other values")
    shared = sharing(origin.obj, result)
    by_memory = None if shared is None else shared.whole
    by_write = None if origin.write is None else _seen(origin.write, result, origin.values)
    aliases = by_memory if by_write is None else by_write
    wrong = ""
    if not plan.possible:
        wrong = "explain returns that it is refused"
    elif None not in (by_memory, by_write) and by_memory != by_write:
        wrong = f"shares_memory returns {by_memory}, but a write is {'' if by_write else 'not '}visible"
    elif aliases is not None and plan.zero_copy != aliases:
        wrong = f"explain returns zero_copy={plan.zero_copy}, but it is {aliases}"
    return Proof(aliases, by_write is not None, wrong=wrong)


def _seen(write: Write, obj: Any, values: Array) -> bool:
    """Whether a write is visible in an object; the old value is restored."""
    old = values[0].item()
    try:
        write(old + 1)
        return bool(column(obj)[0] == old + 1)
    finally:
        write(old)


def column(obj: Any) -> Array:
    """Return an object's values as a NumPy array; of a table, its only column."""
    back = zc.convert(obj, to="numpy")
    (values,) = back.values() if isinstance(back, dict) else (back,)
    return np.asarray(values)


def tasks(settings: Settings) -> list[Task]:
    return [Task(f"from {name}", partial(run, name, settings)) for name in names(settings)]


def run(name: str, settings: Settings) -> list[Case]:
    """Verify and time one row of the grid, or return none if the framework is not usable."""
    if usable(name):
        return []
    origin, contest = source(name), Contest()
    case = contest.case(name, {WRONG: 0, WRITTEN: 0, UNPROVED: 0})
    for target in names(settings):
        if why := usable(target):
            case.remarks.append(f"{target} is not in the grid: {why}")
            continue
        proof = prove(origin, target)
        unproved = proof.aliases is None and not proof.refused
        case.figures[WRONG] += bool(proof.wrong)
        case.figures[WRITTEN] += proof.written
        case.figures[UNPROVED] += unproved
        if unproved:
            case.remarks.append(f"-> {target} is not verified: a query has no memory before it runs")
        if proof.wrong:
            case.remarks.append(f"-> {target}: {proof.wrong}")
        if proof.refused:
            case.entries.append(Entry(target, "ours", left_out=proof.refused))
            continue
        aliases = zc.explain(origin.obj, target).zero_copy if unproved else proof.aliases
        made = Method(f'zc.convert(x, "{target}")').statement({"x": origin.obj})
        contest.add(case, target, "ours", made, note="" if aliases else "copies")
    return contest.time(settings.pace)


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge for each row that explain is correct."""
    name = "explain is correct in every cell of the grid"
    return [Goal(name, f"from {case.name}", case.figures[WRONG], 0.0) for case in cases]


SECTION = Section(
    "grid",
    f"{COUNT:,} elements of float32 in 64-byte-aligned memory; a row for each source, "
    "a column for each target",
    tasks,
    "series",
    goals,
)
