"""A run's results: gathered, written as JSON, read back, compared."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import load, machine, slug, versions
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Suite
from benchmarks.timing import Timing

SCHEMA = 1


@dataclass
class Results:
    """What a run has found so far; complete or not.

    Attributes
    ----------
    cases : dict of str to list of Case
        By section, as ``"conversion/pairs"``.
    goals : list of Goal
        Judged so far.
    facts : dict
        Machine, versions, settings, load, times: what the figures depend on.
    complete : bool
        False while it runs, and for ever if it was interrupted or a task failed.
    """

    cases: dict[str, list[Case]] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    complete: bool = False

    @property
    def failures(self) -> list[Case]:
        """The cases that an error ended."""
        return [case for cases in self.cases.values() for case in cases if case.failed]

    @classmethod
    def begin(cls, suites: Iterable[Suite], settings: Settings) -> Results:
        """Start the results of a run, here and now."""
        suites = list(suites)
        distributions = dict.fromkeys(name for suite in suites for name in suite.distributions)
        return cls(
            facts={
                "suites": [suite.name for suite in suites],
                "started": _now(),
                "machine": machine(),
                "load_before": load(),
                "versions": versions(distributions),
                "settings": asdict(settings),
            }
        )

    def add(self, suite: str, section: Section, cases: Iterable[Case]) -> None:
        """Keep the cases of one task."""
        self.cases.setdefault(f"{suite}/{section.name}", []).extend(cases)

    def finish(self, sections: Iterable[tuple[str, Section]], complete: bool) -> None:
        """Judge the goals of what was run and note the end."""
        for suite, section in sections:
            cases = [case for case in self.cases.get(f"{suite}/{section.name}", []) if not case.failed]
            if cases:
                self.goals += section.goals(cases)
        self.complete = complete and not self.failures
        self.facts["load_after"] = load()
        self.facts["finished"] = _now()

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.part")
        draft.write_text(json.dumps(self._plain(), indent=1) + "\n")
        os.replace(draft, path)

    def _plain(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "complete": self.complete,
            **self.facts,
            "goals": [asdict(goal) | {"met": goal.met} for goal in self.goals],
            "sections": {name: [_plain_case(case) for case in cases] for name, cases in self.cases.items()},
        }

    def file_name(self) -> str:
        """Return a name that says what was measured, on what, and when."""
        suites = "-".join(self.facts["suites"])
        return f"{suites}-{slug(self.facts['machine']['cpu'])}-{self.facts['started'][:10]}.json"


def read(path: Path) -> Results:
    """Read what :meth:`Results.save` wrote.

    Raises
    ------
    ValueError
        It is no such file, or one of a later schema.
    """
    try:
        told = json.loads(path.read_text())
        if told["schema"] != SCHEMA:
            raise ValueError(f"{path} has schema {told['schema']}, and this program reads {SCHEMA}")
        cases = {name: [_read_case(case) for case in plain] for name, plain in told["sections"].items()}
        goals = [Goal(**{k: v for k, v in goal.items() if k != "met"}) for goal in told["goals"]]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} holds no results of benchmarks: {error!r}") from error
    facts = {k: v for k, v in told.items() if k not in ("schema", "complete", "goals", "sections")}
    return Results(cases, goals, facts, told["complete"])


@dataclass(frozen=True)
class Change:
    """How one contender of ours did against an earlier run.

    Attributes
    ----------
    where : str
        Section, case and contender.
    before, after : float
        Medians, in nanoseconds.
    drift : float
        How much slower everything else got meanwhile: the machine, not us.
    """

    where: str
    before: float
    after: float
    drift: float

    @property
    def ratio(self) -> float:
        """Time now over time then."""
        return self.after / self.before

    def slower(self, threshold: float) -> bool:
        """Whether it got slower, and more so than the machine did."""
        return self.ratio > threshold and self.ratio / self.drift > threshold


def compare(old: Results, new: Results) -> list[Change]:
    """Return what can be compared between two runs, the worst first.

    The drift of a case is that of its other contenders (median); where it has
    none, that of all others in the run: a slower machine is no slower program.
    """
    before = {where: entry for where, _, entry in _timed(old)}
    drifts: dict[str, list[float]] = {}
    ours: list[tuple[str, str, float, float]] = []
    for where, case, entry in _timed(new):
        was = before.get(where)
        if was is None:
            continue
        assert was.timing is not None
        assert entry.timing is not None
        if entry.role == "ours":
            ours.append((where, case, was.timing.median, entry.timing.median))
        else:
            drifts.setdefault(case, []).append(entry.timing.median / was.timing.median)
    overall = statistics.median([d for several in drifts.values() for d in several] or [1.0])
    changes = [
        Change(where, was, now, statistics.median(drifts.get(case) or [overall]))
        for where, case, was, now in ours
    ]
    return sorted(changes, key=lambda change: -change.ratio / change.drift)


def _timed(results: Results) -> Iterator[tuple[str, str, Entry]]:
    for section, cases in results.cases.items():
        for case in cases:
            for entry in case.timed():
                yield f"{section}: {case.name}: {entry.label}", f"{section}: {case.name}", entry


def _plain_case(case: Case) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": case.name, "entries": [_plain_entry(entry) for entry in case.entries]}
    if case.figures:
        plain["figures"] = case.figures
    plain |= {k: getattr(case, k) for k in ("remarks", "failed") if getattr(case, k)}
    return plain


def _plain_entry(entry: Entry) -> dict[str, Any]:
    plain: dict[str, Any] = {"label": entry.label, "role": entry.role}
    if entry.timing is not None:
        # A tenth of a nanosecond is less than the clock can tell.
        plain["ns"] = {k: round(v, 1) for k, v in asdict(entry.timing).items()}
    plain |= {k: getattr(entry, k) for k in ("note", "left_out") if getattr(entry, k)}
    return plain


def _read_case(plain: dict[str, Any]) -> Case:
    entries = [
        Entry(
            e["label"],
            e["role"],
            Timing(**e["ns"]) if "ns" in e else None,
            e.get("note", ""),
            e.get("left_out", ""),
        )
        for e in plain["entries"]
    ]
    return Case(
        plain["name"], entries, plain.get("figures", {}), plain.get("remarks", []), plain.get("failed", "")
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
