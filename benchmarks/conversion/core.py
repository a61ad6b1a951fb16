"""The goals of the compiled core: all conversions of their table take turns in one task.

Each time is compared with code by hand, with the documented call and, for arrays, with the pure Python path
in the same process. Without the compiled core, zerocopy's call and its pure Python path are the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.conversion import goals
from benchmarks.conversion.contenders import pairs
from benchmarks.conversion.core_arrays import arrays
from benchmarks.conversion.core_tables import containers
from benchmarks.conversion.question import Method, Question
from benchmarks.suite import Case, Entry, Section, Settings, Task, median
from benchmarks.timing import Raised, measure

#: Seconds of a quick run.
_SECONDS = 5.0


def questions(settings: Settings) -> Iterator[Question]:
    """Yield all questions, in the order of the goals."""
    yield from arrays(settings.wants)
    yield from containers(settings.wants)


def tasks(settings: Settings) -> list[Task]:
    """Return one task: a goal is a ratio, so that all its times must be of the same minutes."""
    return [Task("all goals", partial(run, settings), _SECONDS)] if pairs(settings.wants) else []


def run(settings: Settings) -> list[Case]:
    """Check all methods, then time those that pass."""
    cases, timed = [], {}
    for question in questions(settings):
        case = Case(question.name)
        for method in question.methods:
            refused = check(method, question) if method.checked else ""
            case.entries.append(Entry(method.code, method.role, note=method.note, left_out=refused))
            if not refused:
                timed[f"{case.name}: {method.code}"] = method.statement
            elif method.role == "ours":
                case.failed = f"{method.code} {refused}"
        cases.append((case, question.pieces))
    timings = measure(timed, settings.pace)
    for case, pieces in cases:
        for entry in case.entries:
            entry.timing = timings.get(f"{case.name}: {entry.label}")
        ours = case.fastest("ours")
        if pieces and ours:
            case.figures = {"ns per leaf or column": median(ours) / pieces}
    return [case for case, _ in cases]


def check(method: Method, question: Question) -> str:
    """Return why the result of a method is wrong, or nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about read-only memory and legacy capsules
            return question.wrong(method.statement.value())
    except Exception as error:  # noqa: BLE001 - any error is the result of the check
        return Raised.of(error).why


def judge(cases: Sequence[Case]) -> list[goals.Goal]:
    """Judge the goals of the compiled core."""
    return goals.judge(cases)


SECTION = Section(
    "core",
    "the goals of the compiled core: the ratio to code by hand, to the documented call, and to references",
    tasks,
    "references",
    judge,
)
