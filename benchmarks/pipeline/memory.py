"""The peak memory of a run: each contender has a fresh process."""

from __future__ import annotations

import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks.children import call
from benchmarks.formats import format_quantity
from benchmarks.machine import peak_of
from benchmarks.pipeline.contenders import METHODS
from benchmarks.pipeline.contest import left_out, rows, wanted
from benchmarks.pipeline.data import Files, files
from benchmarks.pipeline.run import Runner, quiet
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
    # Three processes that import all frameworks, side by side with --quick.
    turns = [able] if settings.quick else [[method] for _ in range(RUNS) for method in able]
    with files(rows(settings)) as inputs, files(WARM_UP) as warm_up, ThreadPoolExecutor() as threads:
        for turn in turns:
            labels = [method.label for method in turn]
            for label, peak in zip(
                labels, threads.map(partial(_grown, inputs, warm_up), labels), strict=True
            ):
                peaks[label].append(peak)
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


def _grown(inputs: Files, warm_up: Files, label: str) -> int:
    return call(grown, label, inputs, warm_up)


def grown(label: str, inputs: Files, warm_up: Files) -> int:
    """Return the peak of resident bytes of one run minus those before it; runs in a child.

    An earlier run with a few flights imports, compiles and starts everything; with so few flights,
    allocators keep almost no memory of it.
    """
    (method,) = (method for method in METHODS if method.label == label)
    runner = Runner(method, cpu())
    with quiet():
        runner.run(warm_up)
        return peak_of(partial(runner.run, inputs))


SECTIONS = (Section("memory", "peak resident memory of a run", tasks, "figures"),)
