"""Costs of a process: import, explain, memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

import zerocopy as zc
from benchmarks.children import environment
from benchmarks.conversion.contenders import statement
from benchmarks.conversion.inputs import LARGE, ours, size_name, sources, targets, within_memory
from benchmarks.conversion.subjects import Subject, aligned_values
from benchmarks.machine import peak, reset_peak, resident
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median
from benchmarks.timing import Statement, Timing, measure

IMPORT_LIMIT = 30.0  # ms
GROWTH_LIMIT = float(2**20)  # bytes

# A fresh interpreter runs this, and prints the time of the code and the modules that it imported.
# `time` is built in, so that importing it is not measured.
_PROBE = """
import sys, time
before = set(sys.modules)
start = time.perf_counter_ns()
{code}
spent = time.perf_counter_ns() - start
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
import json
print(json.dumps([spent, sorted(new - set(sys.stdlib_module_names) - {{"zerocopy"}})]))
"""


def import_tasks(settings: Settings) -> list[Task]:
    """Return one task: imports in fresh interpreters, which take turns."""
    return [Task("fresh interpreters", partial(_imports, settings))]


def _imports(settings: Settings) -> list[Case]:
    rows = [
        ("import zerocopy", "ours"),
        ("import zerocopy; zerocopy.convert", "reference"),
        ("import numpy", "reference"),
    ]
    rounds = 3 if settings.quick else 20
    samples: dict[str, list[float]] = {code: [] for code, _ in rows}
    foreign: set[str] = set()
    order = [code for code, _ in rows]
    shuffle = random.Random(0).shuffle
    for code in order:
        _probe(code)  # warms the caches of bytecode and files
    for _ in range(rounds):
        shuffle(order)
        for code in order:
            spent, modules = _probe(code)
            samples[code].append(spent)
            if code == rows[0][0]:
                foreign.update(modules)
    case = Case("import", [Entry(code, role, Timing.of(samples[code])) for code, role in rows])
    case.figures = {"third-party modules that it imports": len(foreign)}
    if foreign:
        case.remarks.append(f"import zerocopy imports {', '.join(sorted(foreign))}")
    return [case]


def _probe(code: str) -> tuple[float, list[str]]:
    completed = subprocess.run(
        [sys.executable, "-c", _PROBE.format(code=code)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    spent, modules = json.loads(completed.stdout)
    return float(spent), modules


def _import_goals(cases: Sequence[Case]) -> list[Goal]:
    judged = []
    for case in cases:
        for entry in case.timed("ours"):
            name = f"import zerocopy: {IMPORT_LIMIT:.0f} ms at most"
            judged.append(Goal(name, case.name, median(entry) / 1e6, IMPORT_LIMIT, "ms"))
        count = case.figures["third-party modules that it imports"]
        judged.append(Goal("import zerocopy: imports only the standard library", case.name, count, 0.0))
    return judged


def explain_tasks(settings: Settings) -> list[Task]:
    """Return a task for each source."""
    return [Task(f"from {source.name}", partial(_explain, source, settings)) for source in sources(settings)]


def _explain(source: Subject, settings: Settings) -> list[Case]:
    x = source.make(aligned_values(1000))
    codes = {f"-> {target}": f'zc.explain(x, "{target}")' for target in targets(source, settings)}
    timings = measure(
        {label: Statement(code, {"zc": zc, "x": x}) for label, code in codes.items()}, settings.pace
    )
    return [Case(source.name, [Entry(label, "ours", timings[label]) for label in codes])]


def memory_tasks(settings: Settings) -> list[Task]:
    """Return a task for each source, whose large array serves all targets."""
    return [Task(f"from {source.name}", partial(_memory, source, settings)) for source in sources(settings)]


def _memory(source: Subject, settings: Settings) -> list[Case]:
    largest = 2**26 if settings.quick else LARGE
    size = max(within_memory(sorted(settings.sizes or (2**26, largest))))
    x = source.make(aligned_values(size // 4))
    small = source.make(aligned_values(1000))
    cases = []
    for target in targets(source, settings):
        pair = (source.name, target)
        one = ours(pair)
        statement(one, pair, small).value()  # excludes one-time costs
        convert = statement(one, pair, x)
        has_peak = reset_peak()
        before = resident()
        result = convert.value()
        case = Case(f"{source.name} -> {target}, {size_name(size)}")
        case.figures["bytes while the result lives"] = resident() - before
        if has_peak:
            # Only the peak shows a temporary copy.
            case.figures["bytes at the peak"] = peak() - before
        del result
        cases.append(case)
    return cases


def _memory_goals(cases: Sequence[Case]) -> list[Goal]:
    name = "resident set: less than 1 MiB more"
    return [Goal(name, case.name, max(case.figures.values()), GROWTH_LIMIT, "bytes") for case in cases]


SECTIONS = (
    Section("import", "in fresh interpreters", import_tasks, "figures", _import_goals),
    Section("explain", "1,000 elements of float32", explain_tasks, "series"),
    Section("memory", "growth of the resident set in one conversion", memory_tasks, "figures", _memory_goals),
)
