"""The structure of every suite: suite, section, task, case, entry, goal.

A suite has sections, a section has tasks. A task is the smallest unit that is run or
interrupted, and returns cases. A case is one row of a table: one question, with an entry
for each contender that answers it. Goals are judged on the cases of one section.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from benchmarks.timing import FULL, Pace, Raised, Timing

#: The module of each suite, which has it as ``SUITE``. A module is imported when its suite is
#: used: suites need different packages.
SUITES = {
    "conversion": "benchmarks.conversion",
    "tables": "benchmarks.tables",
    "layout": "benchmarks.layout",
    "pool": "benchmarks.pool",
    "pipeline": "benchmarks.pipeline",
    "processes": "benchmarks.processes",
    "channels": "benchmarks.processes.channels",
    "loader": "benchmarks.loader",
    "monitor": "benchmarks.monitor",
    "bridge": "benchmarks.bridge",
    "functions": "benchmarks.functions",
    "sparse": "benchmarks.sparse",
    "weights": "benchmarks.weights",
    "grid": "benchmarks.grid.cells",
    "vectors": "benchmarks.vectors",
    "rows": "benchmarks.rows",
    "hosts": "benchmarks.hosts.engines",
}

#: Sections that a quick run starts with: those of pictures, and one of each suite. conversion/core is one
#: long task, which would leave no time for the others.
FIRST = (
    *("conversion/grid", "conversion/sizes", "conversion/pairs"),
    "tables/columns",
    *("layout/to-columns", "layout/to-rows"),
    *("pool/recycle", "pool/aligned"),
    "pipeline/stages",
    "loader/order",
)

#: The role of an entry in its case.
ROLES = {
    "ours": "zerocopy",
    "documented": "the call that the target documents",
    "idiom": "public code by hand that is correct for arrays in general",
    "narrow": "code by hand that is correct for this array only: timed, without a goal",
    "library": "another library that does the same work",
    "reference": "other work, for comparison",
}


@dataclass(frozen=True)
class Settings:
    """The options of the command line; each suite uses those that concern it."""

    frameworks: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    quick: bool = False
    pace: Pace = FULL

    def wants(self, framework: str) -> bool:
        """Whether to measure a framework; without names, all of them."""
        return not self.frameworks or framework in self.frameworks


@dataclass
class Entry:
    """One contender of a case, timed or left out.

    Results turn a contender that raised while it was timed into one that was left out.
    """

    label: str
    role: str = "ours"
    timing: Timing | Raised | None = None
    note: str = ""
    left_out: str = ""


@dataclass
class Case:
    """One question and its answers: a row of a table, as ``"numpy -> torch"``.

    `figures` are not times: bytes, counts. `remarks` are facts that a reader needs to interpret the row.
    `failed` is the error that ended its task, or that zerocopy raised while it was timed.
    """

    name: str
    entries: list[Entry] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    failed: str = ""

    def timed(self, *roles: str) -> list[Entry]:
        """Return the entries with a time that have one of `roles`, or any role if none is given."""
        return [e for e in self.entries if isinstance(e.timing, Timing) and (not roles or e.role in roles)]

    def fastest(self, *roles: str) -> Entry | None:
        """Return the entry with the least median among those with one of `roles`."""
        return min(self.timed(*roles), key=lambda e: median(e), default=None)


def median(entry: Entry) -> float:
    """Return a timed entry's median, in nanoseconds."""
    assert isinstance(entry.timing, Timing)
    return entry.timing.median


@dataclass
class Goal:
    """One judged promise about cost, met if ``value <= limit``.

    Goals with the same name are one promise. The unit is ``"x"``, ``"ns"``, ``"bytes"``, ``"ms"``, or empty
    for a plain number. Results fill in the section.
    """

    name: str
    case: str
    value: float
    limit: float
    unit: str = ""
    section: str = ""

    @property
    def met(self) -> bool:
        """Whether the value is within the limit."""
        return self.value <= self.limit


@dataclass(frozen=True)
class Task:
    """A named piece of work that returns cases.

    `seconds` is the duration in a quick run, if more than two: a task that does not fit is not started.
    """

    name: str
    run: Callable[[], Iterable[Case]]
    seconds: float = 0.0


@dataclass(frozen=True)
class Section:
    """One table of a suite.

    ``tasks(settings)`` is cheap, because it is called to count them. `look` is how it is printed:
    ``"contest"`` (zerocopy against others) and ``"references"`` (the ratio to others and to each reference)
    have a row for each case; others a row for each contender. Quick runs leave it out if `quick` is False.
    """

    name: str
    about: str
    tasks: Callable[[Settings], list[Task]]
    look: str = "contest"
    goals: Callable[[Sequence[Case]], list[Goal]] = lambda cases: []
    quick: bool = True


@dataclass(frozen=True)
class Suite:
    """A named set of sections.

    `frameworks` are names that ``--frameworks`` accepts; the versions of `distributions` are recorded.
    """

    name: str
    about: str
    sections: tuple[Section, ...]
    frameworks: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()


def load(name: str) -> Suite:
    """Import one suite; KeyError if there is none of that name."""
    suite: Suite = import_module(SUITES[name]).SUITE
    return suite
