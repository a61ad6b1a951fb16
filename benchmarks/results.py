"""Results of a run: collected, written as JSON and read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import core, load, machine, slug, versions
from benchmarks.measured_code import code
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Suite
from benchmarks.timing import Raised, Timing

SCHEMA = 1

#: Texts of kept results that have changed since, old to new: the measurements stay as they are.
RENAMED = {
    "as people write it": "documented calls",
    "cells where explain and the proof differ": "cells where explain is wrong",
    "cells with a write seen or not": "cells verified with a write",
    "cells without a proof": "cells not verified",
    "has no proof: a query has no memory before it has run": (
        "is not verified: a query has no memory before it runs"
    ),
    "explain agrees with the proof in every cell of the grid": "explain is correct in every cell of the grid",
    "where it is the fastest way by hand": "where it is the fastest by hand",
    "imports the standard library alone": "imports only the standard library",
    "modules of others that it imports": "third-party modules that it imports",
    "dtypes that zerocopy carries and the documented call does not": "dtypes that only zerocopy supports",
    "ahead of every other way": "ahead of every other method",
    "to rows, wide ones": "to rows, wider records",
    "few records or many: never slower": "any number of records: not slower",
    "some fields: never slower": "some fields: not slower",
    "some fields, fresh memory: never slower": "some fields, fresh memory: not slower",
    "the same bytes and no records": "the same bytes, not as records",
    "first call, cache warm: 50 ms at most beyond": "first call, warm cache: 50 ms at most in addition to",
    "no bytes copied at a border that can alias: no more than by hand": (
        "bytes copied at a border: at most those of aliases by hand"
    ),
    "no slower than by hand: time over that of the fastest by hand": "time relative to the fastest by hand",
    "torch has one thread, pyarrow, polars and JAX as many as they take: for all contenders alike": (
        "for all contenders, torch has one thread; pyarrow, polars and JAX have their default threads"
    ),
    "resident memory at the peak of a run in a fresh process, beyond what was resident after imports": (
        "peak resident memory of a run in a fresh process, minus the resident memory after imports"
    ),
    "all that has a name in the pipeline lives to its end": (
        "all named values of the pipeline stay alive until its end"
    ),
    "that JAX takes without a copy": "that JAX aliases",
    "aligned: 64 MB reach JAX": "aligned: 64 MB to JAX",
    "recycle: nothing below 0.91 times the speed": "recycle: each workload at least 0.91x as fast",
    "recycle: nothing below 0.95 times the speed": "recycle: each workload at least 0.95x as fast",
    ": time with it over time without": " (limit: ratio of times)",
    "aligned: NumPy's arrays lie at multiples of 64 bytes": "aligned: NumPy arrays are 64-byte-aligned",
    "called zero-copy by its plan": "plan is zero-copy",
    "fills nulls without saying so": "fills nulls silently",
    "NumPy-backed: NaN already": "NumPy-backed, has NaN already",
    "time stamp": "timestamp",
}

#: Distributions whose versions matter on a GPU, in addition to those of a suite.
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
    """The results of a run, complete or not.

    `cases` are by section, as ``"conversion/pairs"``. `facts` are what the figures depend on: machine,
    compiled core, code, versions, settings, load, date. `complete` is False while it runs, or if a task
    failed.
    """

    cases: dict[str, list[Case]] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    complete: bool = False

    @property
    def failures(self) -> list[Case]:
        """The cases that failed."""
        return [case for cases in self.cases.values() for case in cases if case.failed]

    @property
    def quick(self) -> bool:
        """Whether it was a quick run, whose figures are rough."""
        return bool(self.facts["settings"]["quick"])

    @property
    def compiled(self) -> bool:
        """Whether zerocopy's compiled core was loaded; older results are of pure Python."""
        return bool(self.facts.get("core", {}).get("loaded"))

    @property
    def isa(self) -> str:
        """The instruction set of the core, or an empty string in older results."""
        return str(self.facts.get("core", {}).get("isa", ""))

    @property
    def isa_narrowed(self) -> bool:
        """Whether ``ZEROCOPY_CORE_ISA`` selected fewer instructions than the processor has."""
        return bool(self.facts.get("core", {}).get("isa_narrowed"))

    @property
    def build(self) -> str:
        """The build of zerocopy that was measured and the date of its code, in words."""
        day = self.facts.get("code", {}).get("date")
        first = self.isa if self.compiled else self.facts.get("core", {}).get("why_not")
        known = [text for text in (first, f"code of {day}" if day else "") if text]
        if self.compiled and not known:
            known = ["instruction set and date of the code not recorded"]
        core = f"{'with' if self.compiled else 'without'} zerocopy's compiled core"
        return core + (f" ({'; '.join(known)})" if known else "")

    @classmethod
    def begin(cls, suites: Iterable[Suite], settings: Settings, names: Sequence[str] = ()) -> Results:
        """Start the results of a run on this machine; `names` are the suites and sections of the command
        line.
        """
        suites = list(suites)
        computer = machine()
        distributions = dict.fromkeys(name for suite in suites for name in suite.distributions)
        if computer.get("gpus"):
            distributions |= dict.fromkeys(_ON_GPU)
        return cls(
            facts={
                "suites": [suite.name for suite in suites],
                "asked": list(names) or [suite.name for suite in suites],
                "started": _now(),
                "machine": computer,
                "core": core(),
                "code": code(),
                "load_before": load(),
                "versions": versions(distributions),
                "settings": asdict(settings),
            }
        )

    def add(self, suite: str, section: Section, cases: Iterable[Case]) -> None:
        """Add the cases of one task; a contender that raised becomes one that was left out."""
        cases = list(cases)
        for case in cases:
            for entry in case.entries:
                if isinstance(entry.timing, Raised):
                    entry.left_out, entry.timing = entry.timing.why, None
                elif isinstance(entry.timing, Timing) and (wrong := _invalid(entry.timing)):
                    entry.left_out, entry.timing = wrong, None
                else:
                    continue
                if entry.role == "ours":
                    case.failed = case.failed or f"{entry.label} {entry.left_out}"
        self.cases.setdefault(f"{suite}/{section.name}", []).extend(cases)

    def finish(self, sections: Iterable[tuple[str, Section]], complete: bool) -> None:
        """Judge the goals, and record the end of the run."""
        for suite, section in sections:
            key = f"{suite}/{section.name}"
            every = self.cases.get(key, [])
            cases = [case for case in every if not case.failed]
            try:
                for goal in section.goals(cases) if cases else []:
                    if _finite(goal.value) and _finite(goal.limit):
                        self.goals.append(replace(goal, section=key))
                        continue
                    failure = f"{goal.name}: {goal.value} against {goal.limit} cannot be judged"
                    every.append(Case(goal.case, failed=failure))
            except Exception as error:  # noqa: BLE001 - the figures are kept
                every.append(Case("goals", failed=f"{type(error).__name__}: {error}"))
        self.complete = complete and not self.failures
        self.facts["load_after"] = load()
        self.facts["finished"] = _now()

    def save(self, path: Path) -> None:
        """Write as JSON, atomically."""
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
        """Return a file name with the suites, the CPU and the date.

        A part of a suite is named by its sections, so that it does not replace a file of the whole
        suite. If a section needs a GPU, the name has the GPU instead of the CPU. An instruction set that
        ``ZEROCOPY_CORE_ISA`` selected follows.
        """
        parts: dict[str, list[str]] = {}
        for name in self.facts["asked"]:
            suite, _, section = name.partition("/")
            parts.setdefault(suite, []).append(section)
        names = (suite if "" in several else "-".join([suite, *several]) for suite, several in parts.items())
        computer = self.facts["machine"]
        on_gpu = computer.get("gpus") and any(map(needs_gpu, self.facts["asked"]))
        device = computer["gpus"][0]["name"] if on_gpu else computer["cpu"]
        isa = f"-{self.isa}" if self.isa_narrowed else ""
        return f"{'-'.join(names)}-{slug(device)}{isa}-{self.facts['started'][:10]}.json"


def read(path: Path) -> Results:
    """Read a file that :meth:`Results.save` wrote.

    Raises ValueError if it is not such a file, has another schema or is inconsistent; OSError if it cannot
    be read.
    """
    plain = read_plain(path)
    try:
        cases = {name: [read_case(case) for case in section] for name, section in plain["sections"].items()}
        goals = [Goal(**{k: v for k, v in goal.items() if k != "met"}) for goal in plain["goals"]]
        facts = {k: v for k, v in plain.items() if k not in ("schema", "complete", "goals", "sections")}
        unlisted = sorted({name.partition("/")[0] for name in cases} - set(facts["suites"]))
        # Required facts.
        _ = facts["machine"]["cpu"], facts["versions"], facts["started"], facts["settings"]["quick"]
        results = Results(cases, goals, facts, plain["complete"])
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path} does not contain benchmark results: {error!r}") from error
    if unlisted:
        raise ValueError(
            f"{path} is inconsistent: it has sections of {', '.join(unlisted)}, "
            f"but lists only {', '.join(facts['suites'])}"
        )
    return results


def read_plain(path: Path) -> dict[str, Any]:
    """Return the JSON of a file of results, with current texts in sections and goals; raises as `read`."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} does not contain benchmark results: it is not JSON ({error})") from error
    if not isinstance(plain, dict) or "schema" not in plain or "sections" not in plain:
        raise ValueError(
            f"{path} does not contain benchmark results: `python -m benchmarks --json` writes them"
        )
    if plain["schema"] != SCHEMA:
        raise ValueError(
            f"{path} has schema {plain['schema']}, but this program reads {SCHEMA}. "
            "To fix: measure again, or use the program that wrote it"
        )
    return plain | {key: _renamed(plain[key]) for key in ("sections", "goals") if key in plain}


def _renamed(plain: Any) -> Any:
    """Replace the texts of `RENAMED` in all strings."""
    if isinstance(plain, dict):
        return {_renamed(key): _renamed(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_renamed(value) for value in plain]
    if isinstance(plain, str):
        for old, new in RENAMED.items():
            plain = plain.replace(old, new)
    return plain


def _finite(value: Any) -> bool:
    """Whether JSON can represent a value: not infinity or NaN."""
    return not isinstance(value, float) or math.isfinite(value)


def _invalid(timing: Timing) -> str:
    """Return why a timing is invalid: rounded and read again, it must be a positive time."""
    wrong = {k: v for k, v in asdict(timing).items() if not _finite(v) or round(v, 1) <= 0}
    return f"has no valid time: its {next(iter(wrong))} is {next(iter(wrong.values()))} ns" if wrong else ""


def _in_json(plain: Any) -> Any:
    """Return a value with null for infinity and NaN, which Python would write as invalid JSON."""
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
        # A tenth of a nanosecond is below the resolution of the clock.
        plain["ns"] = {k: round(v, 1) for k, v in asdict(entry.timing).items()}
    plain |= {k: getattr(entry, k) for k in ("note", "left_out") if getattr(entry, k)}
    return plain


def _read_timing(plain: dict[str, Any]) -> Timing:
    timing = Timing(**plain)
    for name, value in asdict(timing).items():
        if not 0 < float(value) < math.inf:  # ratios divide by them
            raise TypeError(f"{name} is {value!r}, which is not a time")
    return timing


def read_case(plain: dict[str, Any]) -> Case:
    """Return a case from its JSON."""
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
