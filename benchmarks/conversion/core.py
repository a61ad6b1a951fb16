"""The goals of the compiled core: all conversions of their table take turns in one task.

Each time is compared with code by hand, with the documented call and, for arrays, with the pure Python path
in the same process. Without the compiled core, zerocopy's call and its pure Python path are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.contest import Contest
from benchmarks.conversion import goals
from benchmarks.conversion.contenders import pairs
from benchmarks.conversion.core_arrays import arrays
from benchmarks.conversion.core_tables import containers
from benchmarks.conversion.question import Question
from benchmarks.goals import judge
from benchmarks.suite import Case, Section, Settings, Task, median

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
    contest, pieces = Contest(), {}
    for question in questions(settings):
        question.add_to(contest)
        pieces[question.name] = question.pieces
    for case in contest.time(settings.pace):
        ours = case.fastest("ours")
        if pieces[case.name] and ours:
            case.figures = {"ns per leaf or column": median(ours) / pieces[case.name]}
    return contest.cases


SECTION = Section(
    "core",
    "the goals of the compiled core: the ratio to code by hand, to the documented call, and to references",
    tasks,
    "references",
    partial(judge, goals.GOALS),
)
