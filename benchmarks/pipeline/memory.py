"""The memory at the peak of a run: each contender in a fresh process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from functools import partial

from benchmarks.children import environment
from benchmarks.pipeline.contenders import METHODS
from benchmarks.pipeline.contenders.method import Method
from benchmarks.pipeline.contest import left_out, rows, wanted
from benchmarks.pipeline.data import Files, files
from benchmarks.pipeline.stages import cpu
from benchmarks.report import format_quantity
from benchmarks.suite import Case, Entry, Section, Settings, Task

PEAK = "bytes at the peak, "

#: Flights in the run before the one that is measured.
WARM_UP = 2_000

#: Processes a contender, one after the other: when threads take and drop their memory moves the peak.
RUNS = 5


def tasks(settings: Settings) -> list[Task]:
    """One task, on systems that tell the peak of a process."""
    if not sys.platform.startswith("linux") or not wanted(settings, cpu()):
        return []
    # Three processes that import all there is, on as many cores as there are.
    return [Task("peak", partial(measure, settings), seconds=12.0)]


def measure(settings: Settings) -> list[Case]:
    """Run each contender in processes of its own.

    Contenders take turns. With ``--quick`` there is one turn, and they run side by side: most of
    their time is that of imports, and it is no time that is measured.
    """
    case = Case("one run")
    refused = left_out(settings, cpu())
    case.entries = [Entry(w.label, w.role, left_out=refused[w.label]) for w in METHODS if w.label in refused]
    able = [method for method in METHODS if method.label not in refused]
    if not able:
        return [case]
    found: dict[str, list[int]] = {method.label: [] for method in able}
    turns = [able] if settings.quick else [[method] for _ in range(RUNS) for method in able]
    with files(rows(settings)) as given, files(WARM_UP) as few:
        for turn in turns:
            started = [(method, start(method, given, few)) for method in turn]
            for method, process in started:
                found[method.label].append(answer(method, process))
    case.figures = {f"{PEAK}{label}": statistics.median(values) for label, values in found.items()}
    case.remarks.append(
        f"resident memory at the peak of a run in a fresh process, beyond what was resident after imports "
        f"and a run of {WARM_UP:,} flights; all that has a name in the pipeline lives to its end"
    )
    if not settings.quick:
        spans = (
            f"{format_quantity(min(values), 'bytes')} to {format_quantity(max(values), 'bytes')} {label}"
            for label, values in found.items()
        )
        case.remarks.append(f"the median of {RUNS} processes each, which took {', '.join(spans)}")
    return [case]


def start(method: Method, given: Files, few: Files) -> subprocess.Popen[str]:
    """Start a process for one run."""
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.pipeline.child", method.label, str(given.folder), str(few.folder)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(method: Method, process: subprocess.Popen[str]) -> int:
    """Return what a process says.

    Raises
    ------
    RuntimeError
        It has ended without a word.
    """
    said, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the process of {method.label!r} ended ({process.returncode})")
    return int(json.loads(said))


SECTIONS = (Section("memory", "resident memory that a run takes at its peak", tasks, "figures"),)
