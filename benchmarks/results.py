"""A run's results: gathered, written as JSON, read back, compared."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import load, machine, slug, versions
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Suite, median
from benchmarks.timing import Raised, Timing

SCHEMA = 1

#: Beside a suite's own distributions where there is a GPU: they bring drivers' calls, allocators, kernels.
_ON_GPU = (
    *("cupy-cuda12x", "cupy-cuda13x", "numba-cuda", "jax-cuda12-plugin", "jax-cuda13-plugin"),
    *("rmm-cu12", "rmm-cu13", "cudf-cu12", "cudf-cu13", "cuda-bindings", "cuda-core"),
)


def needs_gpu(section: str) -> bool:
    """Whether a section is measured on a GPU, by its name.

    Examples
    --------
    >>> [needs_gpu(name) for name in ("layout/gpu", "conversion/gpu-bus", "pool/device", "pool/recycle")]
    [True, True, True, False]
    """
    name = section.partition("/")[2]
    return name == "device" or name.partition("-")[0] == "gpu"


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

    @property
    def quick(self) -> bool:
        """Whether it was a quick run: its figures are for looking, and no more."""
        return bool(self.facts["settings"]["quick"])

    @classmethod
    def begin(cls, suites: Iterable[Suite], settings: Settings, asked: Sequence[str] = ()) -> Results:
        """Start the results of a run, here and now.

        Parameters
        ----------
        suites : iterable of Suite
        settings : Settings
        asked : sequence of str
            Suites and sections as the command line named them; all suites whole if it is empty.
        """
        suites = list(suites)
        computer = machine()
        distributions = dict.fromkeys(name for suite in suites for name in suite.distributions)
        if computer.get("gpus"):
            distributions |= dict.fromkeys(_ON_GPU)
        return cls(
            facts={
                "suites": [suite.name for suite in suites],
                "asked": list(asked) or [suite.name for suite in suites],
                "started": _now(),
                "machine": computer,
                "load_before": load(),
                "versions": versions(distributions),
                "settings": asdict(settings),
            }
        )

    def add(self, suite: str, section: Section, cases: Iterable[Case]) -> None:
        """Keep the cases of one task; a contender that raised is left out with what it raised."""
        cases = list(cases)
        for case in cases:
            for entry in case.entries:
                if isinstance(entry.timing, Raised):
                    entry.left_out, entry.timing = entry.timing.why, None
                elif isinstance(entry.timing, Timing) and (wrong := _no_time(entry.timing)):
                    entry.left_out, entry.timing = wrong, None
                else:
                    continue
                if entry.role == "ours":
                    case.failed = case.failed or f"{entry.label} {entry.left_out}"
        self.cases.setdefault(f"{suite}/{section.name}", []).extend(cases)

    def finish(self, sections: Iterable[tuple[str, Section]], complete: bool) -> None:
        """Judge the goals of what was run and note the end."""
        for suite, section in sections:
            key = f"{suite}/{section.name}"
            every = self.cases.get(key, [])
            cases = [case for case in every if not case.failed]
            try:
                for goal in section.goals(cases) if cases else []:
                    if _finite(goal.value) and _finite(goal.limit):
                        self.goals.append(replace(goal, section=key))
                        continue
                    told = f"{goal.name}: {goal.value} against {goal.limit} cannot be judged"
                    every.append(Case(goal.case, failed=told))
            except Exception as error:  # noqa: BLE001 - the figures are not lost for it
                every.append(Case("goals", failed=f"{type(error).__name__}: {error}"))
        self.complete = complete and not self.failures
        self.facts["load_after"] = load()
        self.facts["finished"] = _now()

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.part")
        draft.write_text(json.dumps(_in_json(self._plain()), indent=1, allow_nan=False) + "\n")
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
        """Return a name that says what was measured, on what, and when.

        Of a part of a suite it names the sections, so that it replaces no file of the whole suite;
        where that is a section that needs a GPU, the card.
        """
        parts: dict[str, list[str]] = {}
        for name in self.facts["asked"]:
            suite, _, section = name.partition("/")
            parts.setdefault(suite, []).append(section)
        what = (suite if "" in several else "-".join([suite, *several]) for suite, several in parts.items())
        computer = self.facts["machine"]
        on_gpu = computer.get("gpus") and any(map(needs_gpu, self.facts["asked"]))
        where = computer["gpus"][0]["name"] if on_gpu else computer["cpu"]
        return f"{'-'.join(what)}-{slug(where)}-{self.facts['started'][:10]}.json"


def read(path: Path) -> Results:
    """Read what :meth:`Results.save` wrote.

    Raises
    ------
    ValueError
        It is no such file, or one of another schema, or its parts do not fit together.
    OSError
        It cannot be read.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no results of benchmarks: it is not JSON ({error})") from error
    if not isinstance(told, dict) or "schema" not in told or "sections" not in told:
        raise ValueError(f"{path} holds no results of benchmarks: `python -m benchmarks --json` writes them")
    if told["schema"] != SCHEMA:
        raise ValueError(
            f"{path} has schema {told['schema']}, and this program reads {SCHEMA}: "
            "measure again, or read it with the program that wrote it"
        )
    try:
        cases = {name: [_read_case(case) for case in plain] for name, plain in told["sections"].items()}
        goals = [Goal(**{k: v for k, v in goal.items() if k != "met"}) for goal in told["goals"]]
        facts = {k: v for k, v in told.items() if k not in ("schema", "complete", "goals", "sections")}
        strangers = sorted({name.partition("/")[0] for name in cases} - set(facts["suites"]))
        # What everybody reads of it.
        _ = facts["machine"]["cpu"], facts["versions"], facts["started"], facts["settings"]["quick"]
        found = Results(cases, goals, facts, told["complete"])
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path} holds no results of benchmarks: {error!r}") from error
    if strangers:
        raise ValueError(
            f"{path} does not fit together: it has sections of {', '.join(strangers)}, "
            f"and says that it is of {', '.join(facts['suites'])}"
        )
    return found


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
        if entry.role == "ours":
            ours.append((where, case, median(was), median(entry)))
        else:
            drifts.setdefault(case, []).append(median(entry) / median(was))
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


def _finite(value: Any) -> bool:
    """Whether JSON has it: of numbers it has no infinite ones, and no NaN."""
    return not isinstance(value, float) or math.isfinite(value)


def _no_time(timing: Timing) -> str:
    """Return why a timing cannot be kept: what is written rounded must be read as a time again."""
    wrong = {k: v for k, v in asdict(timing).items() if not _finite(v) or round(v, 1) <= 0}
    return f"has no time: its {next(iter(wrong))} is {next(iter(wrong.values()))} ns" if wrong else ""


def _in_json(plain: Any) -> Any:
    """Return the same with null for what JSON has no number for; Python would write NaN, which is no JSON."""
    if isinstance(plain, dict):
        return {key: _in_json(value) for key, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [_in_json(value) for value in plain]
    return plain if _finite(plain) else None


def _plain_case(case: Case) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": case.name, "entries": [_plain_entry(entry) for entry in case.entries]}
    figures = {name: value for name, value in case.figures.items() if _finite(value)}
    if figures:
        plain["figures"] = figures
    plain |= {k: getattr(case, k) for k in ("remarks", "failed") if getattr(case, k)}
    return plain


def _plain_entry(entry: Entry) -> dict[str, Any]:
    plain: dict[str, Any] = {"label": entry.label, "role": entry.role}
    if isinstance(entry.timing, Timing):
        # A tenth of a nanosecond is less than the clock can tell.
        plain["ns"] = {k: round(v, 1) for k, v in asdict(entry.timing).items()}
    plain |= {k: getattr(entry, k) for k in ("note", "left_out") if getattr(entry, k)}
    return plain


def _read_timing(plain: dict[str, Any]) -> Timing:
    timing = Timing(**plain)
    for name, value in asdict(timing).items():
        if not 0 < float(value) < math.inf:  # ratios are made of them
            raise TypeError(f"{name} is {value!r}, which no time is")
    return timing


def _read_case(plain: dict[str, Any]) -> Case:
    entries = [
        Entry(
            e["label"],
            e["role"],
            _read_timing(e["ns"]) if "ns" in e else None,
            e.get("note", ""),
            e.get("left_out", ""),
        )
        for e in plain["entries"]
    ]
    figures = {k: v for k, v in plain.get("figures", {}).items() if v is not None and _finite(v)}
    return Case(plain["name"], entries, figures, plain.get("remarks", []), plain.get("failed", ""))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
