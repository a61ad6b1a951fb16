"""All frameworks to all others: what a call costs, and the proof of whether it copies.

Which frameworks there are, the registry says: one that is new there is in the grid.
No plan is believed. What is proved is looked up in the memory of both sides, and
where something can be written, by a write that is or is not seen on the other side.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.conversion.subjects import SUBJECTS, Array, aligned_values
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task
from benchmarks.timing import Statement, measure
from zerocopy import registry
from zerocopy.cli.matrix import arrays as matrix
from zerocopy.cli.matrix.checks import first_line, sharing
from zerocopy.errors import ZeroCopyError

COUNT = 1000  # elements
#: The figures of a case: what a goal is judged on, and how far the proof goes.
WRONG = "cells where explain and the proof differ"
WRITTEN, UNPROVED = "cells with a write seen or not", "cells without a proof"

Write = Callable[[float], None]


@dataclass(frozen=True)
class Source:
    """An array of one framework, and how to write to its memory.

    Attributes
    ----------
    obj
        What is converted.
    values : numpy.ndarray
        What it holds.
    write : callable or None
        ``write(value)`` changes its first element, by whoever may; None where
        nobody may.
    """

    obj: Any
    values: Array
    write: Write | None


@dataclass(frozen=True)
class Proof:
    """What became of one cell.

    Attributes
    ----------
    aliases : bool or None
        None where nothing shows it: a query that has not run, which nobody can
        write to either.
    written : bool
        Whether a write was part of the proof.
    refused : str
        The first line of the refusal.
    wrong : str
        In what the plan and the proof differ, in words; or the values.
    """

    aliases: bool | None = None
    written: bool = False
    refused: str = ""
    wrong: str = ""


@cache
def _known() -> dict[str, str]:
    """Return the kind of each framework that is installed, those of tensors first."""
    kinds = ("tensor", "both", "table")
    found = {name: info.kind for name, info in zc.frameworks().items() if info.installed}
    # Those that the other sections measure come in the order that they have there.
    order = [*SUBJECTS, *found]
    return dict(sorted(found.items(), key=lambda item: (kinds.index(item[1]), order.index(item[0]))))


def names(settings: Settings) -> list[str]:
    """Return the frameworks that are installed and wanted."""
    return [name for name in _known() if settings.wants(name)]


@cache
def usable(name: str) -> str:
    """Return why an installed framework can hold nothing here; nothing if it can."""
    return _absent(tuple(_known())).get(name, "")


@cache
def _absent(names: tuple[str, ...]) -> dict[str, str]:
    return {name: reason.why for name, reason in matrix.measure({}, names).not_usable.items()}


def source(name: str) -> Source:
    """Make the source of a row, in memory at a multiple of 64 bytes.

    The frameworks of :data:`SUBJECTS` make their own; the others look at memory of
    NumPy's, which is aligned as theirs is not always.

    Raises
    ------
    ZeroCopyError
        It cannot hold float32.
    """
    values = aligned_values(COUNT)
    kept = values.copy()
    obj = SUBJECTS[name].make(values) if name in SUBJECTS else zc.convert(values, name)
    framework = registry.by_name(name)

    def through_array(value: float) -> None:
        values[0] = value

    def through_object(value: float) -> None:
        obj[0] = value

    # A source that lies in our array can be written there, immutable or not.
    for write in (through_array, *[through_object] * framework.mutable):
        if _seen(write, obj, kept):
            return Source(obj, kept, write)
    return Source(obj, kept, None)


def prove(given: Source, target: str) -> Proof:
    """Convert once and look: at the memory of both, at a write, and at what the plan said."""
    plan = zc.explain(given.obj, target)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the cost of a warning is timed, its text is no news here
            result = zc.convert(given.obj, target)
    except ZeroCopyError as error:
        wrong = "explain says that it works" if plan.possible else ""
        return Proof(refused=first_line(error.why), wrong=wrong)
    values = column(result)
    if values.dtype != given.values.dtype or not np.array_equal(values, given.values):
        return Proof(wrong="the result has other values")
    shared = sharing(given.obj, result)
    looked = None if shared is None else shared.whole
    seen = None if given.write is None else _seen(given.write, result, given.values)
    aliases = looked if seen is None else seen
    wrong = ""
    if not plan.possible:
        wrong = "explain says that it is refused"
    elif None not in (looked, seen) and looked != seen:
        wrong = f"shares_memory says {looked}, and a write is {'' if seen else 'not '}seen"
    elif aliases is not None and plan.zero_copy != aliases:
        wrong = f"explain says zero_copy={plan.zero_copy}, and it is {aliases}"
    return Proof(aliases, seen is not None, wrong=wrong)


def _seen(write: Write, obj: Any, values: Array) -> bool:
    """Whether a write is read from an object; what stood there is put back."""
    old = values[0].item()
    try:
        write(old + 1)
        return bool(column(obj)[0] == old + 1)
    finally:
        write(old)


def column(obj: Any) -> Array:
    """Return an object's values as NumPy has them; of a table, its one column."""
    back = zc.convert(obj, to="numpy")
    (values,) = back.values() if isinstance(back, dict) else (back,)
    return np.asarray(values)


def tasks(settings: Settings) -> list[Task]:
    """One task a source; nothing is imported to count them."""
    return [Task(f"from {name}", partial(run, name, settings)) for name in names(settings)]


def run(name: str, settings: Settings) -> list[Case]:
    """Prove and time one row of the grid; no row of a framework that can hold nothing here."""
    if usable(name):
        return []
    given = source(name)
    case = Case(name)
    proofs: dict[str, Proof] = {}
    for target in names(settings):
        if why := usable(target):
            case.remarks.append(f"{target} is not in the grid: {why}")
            continue
        proof = proofs[target] = prove(given, target)
        plan_only = proof.aliases is None and not proof.refused
        aliases = zc.explain(given.obj, target).zero_copy if plan_only else bool(proof.aliases)
        note = "" if aliases or proof.refused else "copies"
        case.entries.append(Entry(target, "ours", note=note, left_out=proof.refused))
        if plan_only:
            case.remarks.append(f"-> {target} has no proof: a query has no memory before it has run")
        if proof.wrong:
            case.remarks.append(f"-> {target}: {proof.wrong}")
    calls = {
        target: Statement(f'zc.convert(x, "{target}")', {"zc": zc, "x": given.obj})
        for target, proof in proofs.items()
        if not proof.refused
    }
    timings = measure(calls, settings.pace)
    for entry in case.entries:
        entry.timing = timings.get(entry.label)
    case.figures = {
        WRONG: sum(bool(proof.wrong) for proof in proofs.values()),
        WRITTEN: sum(proof.written for proof in proofs.values()),
        UNPROVED: sum(proof.aliases is None and not proof.refused for proof in proofs.values()),
    }
    return [case]


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge the promise that explain tells the truth, a row at a time."""
    name = "explain agrees with the proof in every cell of the grid"
    return [Goal(name, f"from {case.name}", case.figures[WRONG], 0.0) for case in cases]


SECTION = Section(
    "grid",
    f"{COUNT:,} elements of float32 at a multiple of 64 bytes, so that what can alias does; "
    "a row a source, a column a target",
    tasks,
    "series",
    goals,
)
