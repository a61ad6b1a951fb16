"""The goals of the compiled core: all conversions of their table take turns in one task.

Each time is compared with code by hand, with the documented call and, for arrays, with the pure Python path
in the same process. Without the compiled core, zerocopy's call and its pure Python path are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.contest import Contest, refusal
from benchmarks.conversion import goals
from benchmarks.conversion.contenders import pairs
from benchmarks.conversion.core_arrays import arrays
from benchmarks.conversion.core_tables import containers
from benchmarks.conversion.question import Method, Question
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
        case = contest.case(question.name)
        pieces[question.name] = question.pieces
        for method in question.methods:
            refused = check(method, question) if method.checked else ""
            contest.add(case, method.code, method.role, method.statement, refused, method.note)
    for case in contest.time(settings.pace):
        ours = case.fastest("ours")
        if pieces[case.name] and ours:
            case.figures = {"ns per leaf or column": median(ours) / pieces[case.name]}
    return contest.cases


def check(method: Method, question: Question) -> str:
    """Return why the result of a method is wrong, or nothing."""
    return refusal(lambda: question.wrong(method.statement.value()))


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
