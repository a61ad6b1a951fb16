"""In which order tasks run, and with ``--quick`` which of them: those that fit in a minute.

A full run takes its tasks in order. A quick one has a budget, for it is to end within a minute
on any machine: each suite has a share of what is left of it, what a first look needs comes first, and a task
that no longer fits is left out, and said.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.suite import FIRST, Section, Settings, Suite, Task

#: Seconds for the tasks of a quick run. One that has begun goes on: up to 10 s are for that,
#: for imports of suites and for what is printed.
BUDGET = 49.0
#: Seconds less where pictures are drawn.
PICTURES = 8.0

# What a suite takes beside another: in conversion, which is first, all frameworks are imported.
_SHARES = {"conversion": 13, "pool": 5, "layout": 3, "pipeline": 3}
_SHARE = 2

# Seconds that a task is taken for of which nothing is known.
_GUESS = 1.5

# Modules that a framework has at the least.
_FRAMEWORK = 100

Chosen = Sequence[tuple[Suite, Sequence[Section]]]


@dataclass(frozen=True)
class Piece:
    """A task, and whose it is."""

    suite: Suite
    section: Section
    task: Task

    @property
    def key(self) -> str:
        """The section as results call it: ``"conversion/pairs"``."""
        return f"{self.suite.name}/{self.section.name}"

    @property
    def first(self) -> bool:
        """Whether it is of a section that comes first."""
        return self.key in FIRST


def pieces(chosen: Chosen, settings: Settings) -> list[Piece]:
    """Return all tasks of what was chosen, in order; in a quick run without sections that are not for it."""
    return [
        Piece(suite, section, task)
        for suite, sections in chosen
        for section in sections
        if section.quick or not settings.quick
        for task in section.tasks(settings)
    ]


class Schedule:
    """The tasks of a run, one after the other.

    Parameters
    ----------
    work : sequence of Piece
    seconds : float, optional
        The budget; without one all of them are run, in order.
    clock : callable
        Gives seconds.

    Attributes
    ----------
    left_out : list of Piece
        What did not fit, once all others have run.
    """

    def __init__(
        self,
        work: Sequence[Piece],
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.work = work
        self.left_out: list[Piece] = []
        self._seconds, self._clock = seconds, clock
        # By section, how long its last task took: they are alike.
        self._took: dict[str, float] = {}
        self._begun = clock()

    def sections(self) -> list[tuple[str, Section]]:
        """Return the sections that have tasks, in order, each after the name of its suite."""
        return list({piece.key: (piece.suite.name, piece.section) for piece in self.work}.values())

    def __iter__(self) -> Iterator[Piece]:
        if self._seconds is None:
            yield from self.work
            return
        end = self._begun + self._seconds
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
        # In what others have left over.
        for piece in waiting:
            if self._fits(piece, end, end):
                yield from self._timed(piece)
            else:
                self.left_out.append(piece)

    def _fits(self, piece: Piece, until: float, end: float) -> bool:
        now = self._clock()
        if piece.key in self._took:
            return now + self._took[piece.key] <= until
        # Each picture is to have something to show: so the first task of its section has to
        # fit in the budget, and no more.
        seconds = piece.task.seconds
        return now + seconds < end if piece.first else now + (seconds or _GUESS) <= until

    def _timed(self, piece: Piece) -> Iterator[Piece]:
        begun, modules = self._clock(), len(sys.modules)
        yield piece
        spent = self._clock() - begun
        # One that has imported frameworks says nothing of those after it.
        imported = len(sys.modules) - modules > _FRAMEWORK
        self._took[piece.key] = min(spent, _GUESS) if imported else spent


def _share(name: str) -> int:
    return _SHARES.get(name, _SHARE)


def _by_suite(several: Sequence[Piece]) -> dict[str, list[Piece]]:
    """Return tasks by suite, and in each the sections in turns.

    Half of two sections is a better picture than one of them whole.
    """
    places: dict[str, int] = {}
    ranked: dict[str, list[tuple[int, Piece]]] = {}
    for piece in several:
        places[piece.key] = places.get(piece.key, -1) + 1
        ranked.setdefault(piece.suite.name, []).append((places[piece.key], piece))
    return {
        name: [piece for _, piece in sorted(pairs, key=lambda pair: pair[0])]
        for name, pairs in ranked.items()
    }


def told(left_out: Sequence[Piece], of: Sequence[Piece]) -> str:
    """Say in a line what was left out, and how it is run; nothing if nothing was."""
    if not left_out:
        return ""
    suites = list(dict.fromkeys(piece.suite.name for piece in left_out))
    alone = len({piece.suite.name for piece in of}) == 1
    every, without = _count(of, alone), _count(left_out, alone)
    counts = ", ".join(f"{count} of {every[name]} tasks of {name}" for name, count in without.items())
    # A suite that was alone already needs a full run.
    command = f"python -m benchmarks {suites[0]}" if alone else "python -m benchmarks SUITE --quick"
    each = "" if alone else ", one suite at a time"
    return f"left out, to end within a minute: {counts}; to run them{each}: {command}"


def _count(several: Sequence[Piece], by_section: bool) -> dict[str, int]:
    found: dict[str, int] = {}
    for piece in several:
        name = piece.key if by_section else piece.suite.name
        found[name] = found.get(name, 0) + 1
    return found
