"""Order of tasks, and their selection with ``--quick``.

A full run takes its tasks in order. A quick run has a budget, so that it ends within a minute on any
machine: each suite gets a share of the remaining time, sections in :data:`benchmarks.suite.FIRST` run
first, and tasks that no longer fit are left out and reported.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.suite import FIRST, Section, Settings, Suite, Task

#: Seconds for the tasks of a quick run. A task that has started is not cut off; up to 10 s are left
#: for that, for imports of suites and for printing.
BUDGET = 49.0
#: Seconds that drawing pictures takes from the budget.
PICTURES = 8.0

# Relative time of suites: conversion runs first and imports all frameworks.
_SHARES = {"conversion": 13, "pool": 5, "layout": 3, "pipeline": 3}
_SHARE = 2

# Estimated seconds of an unknown task.
_GUESS = 1.5

# A task that imports more modules than this has imported a framework.
_FRAMEWORK = 100

Chosen = Sequence[tuple[Suite, Sequence[Section]]]


@dataclass(frozen=True)
class Piece:
    """A task with its suite and section."""

    suite: Suite
    section: Section
    task: Task

    @property
    def key(self) -> str:
        return f"{self.suite.name}/{self.section.name}"

    @property
    def first(self) -> bool:
        """Whether its section runs first."""
        return self.key in FIRST


def pieces(chosen: Chosen, settings: Settings) -> list[Piece]:
    """Return all tasks of the chosen sections, in order; a quick run leaves out sections without `quick`."""
    return [
        Piece(suite, section, task)
        for suite, sections in chosen
        for section in sections
        if section.quick or not settings.quick
        for task in section.tasks(settings)
    ]


class Schedule:
    """The tasks of a run, in order; within a budget of `seconds`, if it is given.

    `left_out` has the tasks that did not fit, complete when the iteration has ended.
    """

    def __init__(
        self, work: Sequence[Piece], seconds: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.work = work
        self.left_out: list[Piece] = []
        self._seconds, self._clock = seconds, clock
        # Seconds of the last task of each section: tasks of a section take similar times.
        self._took: dict[str, float] = {}
        self._started = clock()

    def sections(self) -> list[tuple[str, Section]]:
        """Return the sections that have tasks, in order, each with the name of its suite."""
        return list({piece.key: (piece.suite.name, piece.section) for piece in self.work}.values())

    def __iter__(self) -> Iterator[Piece]:
        if self._seconds is None:
            yield from self.work
            return
        end = self._started + self._seconds
        waiting: list[Piece] = []
        for several in ([p for p in self.work if p.first], [p for p in self.work if not p.first]):
            by_suite = _by_suite(several)
            while by_suite:
                now, weights = self._clock(), [_share(name) for name in by_suite]
                until = now + max(0.0, end - now) * weights[0] / sum(weights)
                for piece in by_suite.pop(next(iter(by_suite))):
                    if self._fits(piece, until, end):
                        yield from self._timed(piece)
                    else:
                        waiting.append(piece)
        # In the time that is left.
        for piece in waiting:
            if self._fits(piece, end, end):
                yield from self._timed(piece)
            else:
                self.left_out.append(piece)

    def _fits(self, piece: Piece, until: float, end: float) -> bool:
        now = self._clock()
        if piece.key in self._took:
            return now + self._took[piece.key] <= until
        # Each picture needs data: the first task of its section must only fit in the budget.
        seconds = piece.task.seconds
        return now + seconds < end if piece.first else now + (seconds or _GUESS) <= until

    def _timed(self, piece: Piece) -> Iterator[Piece]:
        started, modules = self._clock(), len(sys.modules)
        yield piece
        spent = self._clock() - started
        # A task that imported frameworks took longer than those after it will.
        imported = len(sys.modules) - modules > _FRAMEWORK
        self._took[piece.key] = min(spent, _GUESS) if imported else spent


def _share(name: str) -> int:
    return _SHARES.get(name, _SHARE)


def _by_suite(several: Sequence[Piece]) -> dict[str, list[Piece]]:
    """Return tasks by suite, with the sections of a suite in turns.

    If time runs out, two sections have half of their tasks, instead of one section all of them.
    """
    positions: dict[str, int] = {}
    ranked: dict[str, list[tuple[int, Piece]]] = {}
    for piece in several:
        positions[piece.key] = positions.get(piece.key, -1) + 1
        ranked.setdefault(piece.suite.name, []).append((positions[piece.key], piece))
    return {
        name: [piece for _, piece in sorted(pairs, key=lambda pair: pair[0])]
        for name, pairs in ranked.items()
    }


def summary(left_out: Sequence[Piece], of: Sequence[Piece]) -> str:
    """Return one line with the tasks that were left out and the command that runs them, or nothing."""
    if not left_out:
        return ""
    suites = list(dict.fromkeys(piece.suite.name for piece in left_out))
    alone = len({piece.suite.name for piece in of}) == 1
    every, without = _count(of, alone), _count(left_out, alone)
    counts = ", ".join(f"{count} of {every[name]} tasks of {name}" for name, count in without.items())
    # A suite that ran alone had the whole budget: only a full run runs more.
    command = f"python -m benchmarks {suites[0]}" if alone else "python -m benchmarks SUITE --quick"
    each = "" if alone else ", one suite at a time"
    return f"left out, to end within a minute: {counts}; to run them{each}: {command}"


def _count(several: Sequence[Piece], by_section: bool) -> dict[str, int]:
    counts: dict[str, int] = {}
    for piece in several:
        name = piece.key if by_section else piece.suite.name
        counts[name] = counts.get(name, 0) + 1
    return counts
