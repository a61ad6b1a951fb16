"""The peak memory of a run: each contender has a fresh process."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from functools import partial

from benchmarks.children import environment
from benchmarks.formats import format_quantity
from benchmarks.pipeline.contenders import METHODS
from benchmarks.pipeline.contenders.method import Method
from benchmarks.pipeline.contest import left_out, rows, wanted
from benchmarks.pipeline.data import Files, files
from benchmarks.pipeline.stages import cpu
from benchmarks.suite import Case, Entry, Section, Settings, Task

PEAK = "bytes at the peak, "

#: Flights in the run before the one that is measured.
WARM_UP = 2_000

#: Processes for each contender, in sequence: the peak varies with the timing of threads.
RUNS = 5


def tasks(settings: Settings) -> list[Task]:
    """Return one task, on systems that report the peak of a process."""
    if not sys.platform.startswith("linux") or not wanted(settings, cpu()):
        return []
    # Three processes that import all frameworks, side by side.
    return [Task("peak", partial(measure, settings), seconds=12.0)]


def measure(settings: Settings) -> list[Case]:
    """Run each contender in separate processes.

    Contenders take turns. With ``--quick`` there is one turn, and they run side by side: most of their
    time is imports, and time is not measured here.
    """
    case = Case("one run")
    refused = left_out(settings, cpu())
    case.entries = [Entry(w.label, w.role, left_out=refused[w.label]) for w in METHODS if w.label in refused]
    able = [method for method in METHODS if method.label not in refused]
    if not able:
        return [case]
    peaks: dict[str, list[int]] = {method.label: [] for method in able}
    turns = [able] if settings.quick else [[method] for _ in range(RUNS) for method in able]
    with files(rows(settings)) as inputs, files(WARM_UP) as warm_up:
        for turn in turns:
            started = [(method, start(method, inputs, warm_up)) for method in turn]
            for method, process in started:
                peaks[method.label].append(answer(method, process))
    case.figures = {f"{PEAK}{label}": statistics.median(values) for label, values in peaks.items()}
    case.remarks.append(
        f"peak resident memory of a run in a fresh process, minus the resident memory after imports "
        f"and a run of {WARM_UP:,} flights; all named values of the pipeline stay alive until its end"
    )
    if not settings.quick:
        spans = (
            f"{format_quantity(min(values), 'bytes')} to {format_quantity(max(values), 'bytes')} {label}"
            for label, values in peaks.items()
        )
        case.remarks.append(f"the median of {RUNS} processes each, which took {', '.join(spans)}")
    return [case]


def start(method: Method, inputs: Files, warm_up: Files) -> subprocess.Popen[str]:
    """Start a process for one run."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "benchmarks.pipeline.child",
            method.label,
            str(inputs.folder),
            str(warm_up.folder),
        ],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(method: Method, process: subprocess.Popen[str]) -> int:
    """Return the result of a process.

    Raises
    ------
    RuntimeError
        It failed.
    """
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the process of {method.label!r} ended ({process.returncode})")
    return int(json.loads(output))


SECTIONS = (Section("memory", "peak resident memory of a run", tasks, "figures"),)
