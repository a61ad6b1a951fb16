"""The words of every suite: suite, section, task, case, entry, goal.

A suite is made of sections, a section of tasks. A task is the smallest thing that
is run or interrupted as a whole, and gives cases. A case is one row of a table:
one question, with an entry for each contender that answers it. Goals are judged
from the cases of one section.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from benchmarks.timing import FULL, Pace, Raised, Timing

#: Each suite by its name, and the module that has it as ``SUITE``. Modules are
#: imported when they are asked for: a suite may need what others do not.
SUITES = {
    "conversion": "benchmarks.conversion",
    "tables": "benchmarks.tables",
    "layout": "benchmarks.layout",
    "pool": "benchmarks.pool",
    "pipeline": "benchmarks.pipeline",
}

#: What comes first in a quick run: the sections that pictures are drawn of, ours beside what
#: people write, and one of each suite.
FIRST = (
    *("conversion/grid", "conversion/sizes", "conversion/pairs"),
    "tables/columns",
    *("layout/to-columns", "layout/to-rows"),
    *("pool/recycle", "pool/aligned"),
    "pipeline/stages",
)

#: What an entry is to the case.
ROLES = {
    "ours": "zerocopy",
    "documented": "the call that the target documents",
    "idiom": "a public way to write it by hand, right for arrays in general",
    "narrow": "a way by hand that is right for this array only: timed, and no goal",
    "library": "another library that does the same work",
    "reference": "something else, to compare with",
}


@dataclass(frozen=True)
class Settings:
    """What the command line asked for; each suite uses what concerns it."""

    frameworks: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    quick: bool = False
    pace: Pace = FULL

    def wants(self, framework: str) -> bool:
        """Whether a framework is to be measured; no names mean all of them."""
        return not self.frameworks or framework in self.frameworks


@dataclass
class Entry:
    """One contender of a case, timed or left out.

    Of one that raised while it was timed, results make one that was left out.
    """

    label: str
    role: str = "ours"
    timing: Timing | Raised | None = None
    note: str = ""
    left_out: str = ""


@dataclass
class Case:
    """One question and its answers.

    Attributes
    ----------
    name : str
        The row: ``"numpy -> torch"``.
    entries : list of Entry
        The contenders.
    figures : dict of str to float
        What is no time of a contender: bytes, counts.
    remarks : list of str
        What a reader must know about the row.
    failed : str
        The error that ended its task, and then there is nothing else; or of ours, that it raised
        while it was timed.
    """

    name: str
    entries: list[Entry] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    failed: str = ""

    def timed(self, *roles: str) -> list[Entry]:
        """Return the entries with a time, of those roles (of all of them if none is named)."""
        return [e for e in self.entries if isinstance(e.timing, Timing) and (not roles or e.role in roles)]

    def fastest(self, *roles: str) -> Entry | None:
        """Return the entry with the least median among those roles."""
        return min(self.timed(*roles), key=lambda e: median(e), default=None)


def median(entry: Entry) -> float:
    """Return a timed entry's median, in nanoseconds."""
    assert isinstance(entry.timing, Timing)
    return entry.timing.median


@dataclass
class Goal:
    """One promise about cost, judged.

    Attributes
    ----------
    name : str
        The promise in words; goals of one name are one promise.
    case : str
        What it was judged on.
    value, limit : float
        Met if ``value <= limit``.
    unit : str
        ``"x"``, ``"ns"``, ``"bytes"``, ``"ms"``, or nothing for a plain number.
    section : str
        Whose cases it was judged from, as ``"conversion/pairs"``: results fill it in.
    """

    name: str
    case: str
    value: float
    limit: float
    unit: str = ""
    section: str = ""

    @property
    def met(self) -> bool:
        """Whether the value keeps within the limit."""
        return self.value <= self.limit


@dataclass(frozen=True)
class Task:
    """A named piece of work that gives cases.

    Attributes
    ----------
    name : str
    run : callable
    seconds : float
        About how long it takes in a quick run, where that is more than a second or two: one that
        does not fit in what is left of the minute is not begun.
    """

    name: str
    run: Callable[[], Iterable[Case]]
    seconds: float = 0.0


@dataclass(frozen=True)
class Section:
    """One table of a suite.

    Attributes
    ----------
    name, about : str
        In a word and in a sentence.
    tasks : callable
        ``tasks(settings) -> list of Task``; cheap, for it is called to count them.
    look : str
        How it is shown: ``"contest"`` (ours against others), ``"rivals"`` (a row a
        contender), ``"series"`` (one column a label) or ``"figures"``.
    goals : callable
        ``goals(cases) -> list of Goal``.
    quick : bool
        Whether it is a part of quick runs.
    """

    name: str
    about: str
    tasks: Callable[[Settings], list[Task]]
    look: str = "contest"
    goals: Callable[[Sequence[Case]], list[Goal]] = lambda cases: []
    quick: bool = True


@dataclass(frozen=True)
class Suite:
    """A named set of sections, and what it has to know about.

    Attributes
    ----------
    frameworks : tuple of str
        What ``--frameworks`` may name.
    distributions : tuple of str
        Those whose versions are written beside the figures.
    """

    name: str
    about: str
    sections: tuple[Section, ...]
    frameworks: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()


def load(name: str) -> Suite:
    """Import one suite.

    Raises
    ------
    KeyError
        No suite of that name.
    """
    suite: Suite = import_module(SUITES[name]).SUITE
    return suite
