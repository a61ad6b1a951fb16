"""Costs of a process: import, explain, memory."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.children import evaluate
from benchmarks.conversion.contenders import essential, sources, targets
from benchmarks.conversion.inputs import LARGE, calls, size_name
from benchmarks.conversion.subjects import Subject, aligned_values
from benchmarks.goals import Promise, figure, judge, largest_figure, time
from benchmarks.machine import growth, within_memory
from benchmarks.suite import Case, Entry, Section, Settings, Task
from benchmarks.timing import Pace, Timing, take_turns

FOREIGN = "third-party modules that it imports"
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
    rows = {
        "import zerocopy": "ours",
        "import zerocopy; zerocopy.convert": "reference",
        "import numpy": "reference",
    }

    def probe(code: str, calls: int, before: list[Any]) -> Any:
        return evaluate(_PROBE.format(code=code))

    def begin(code: str) -> tuple[int, int]:
        probe(code, 1, [])  # warms the caches of bytecode and files
        return 1, 0

    pace = Pace(3 if settings.quick else 20, 0, 1)
    samples, _, raised = take_turns({code: code for code in rows}, pace, begin, probe)
    case = Case("import")
    for code, role in rows.items():
        timing = raised.get(code) or Timing.of([float(spent) for spent, _ in samples[code]])
        case.entries.append(Entry(code, role, timing))
    foreign = sorted({name for _, modules in samples["import zerocopy"] for name in modules})
    case.figures = {FOREIGN: len(foreign)}
    if foreign:
        case.remarks.append(f"import zerocopy imports {', '.join(foreign)}")
    return [case]


def _milliseconds(case: Case) -> float | None:
    spent = time()(case)
    return None if spent is None else spent / 1e6


IMPORTS = (
    Promise(f"import zerocopy: {IMPORT_LIMIT:.0f} ms at most", _milliseconds, IMPORT_LIMIT, "ms"),
    Promise("import zerocopy: imports only the standard library", figure(FOREIGN), 0.0, ""),
)


def explain_tasks(settings: Settings) -> list[Task]:
    return [Task(f"from {source.name}", partial(_explain, source, settings)) for source in sources(settings)]


def _explain(source: Subject, settings: Settings) -> list[Case]:
    codes = {f"-> {target}": f'zc.explain(x, "{target}")' for target in targets(source, settings)}
    return calls(source.name, codes, {"x": source.make(aligned_values(1000))}, settings.pace)


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
        ours, _ = essential((source.name, target))
        ours.statement({"x": small}).value()  # excludes one-time costs
        figures = growth(ours.statement({"x": x}).value)
        cases.append(Case(f"{source.name} -> {target}, {size_name(size)}", figures=figures))
    return cases


MEMORY = (Promise("resident set: less than 1 MiB more", largest_figure, GROWTH_LIMIT, "bytes"),)

SECTIONS = (
    Section("import", "in fresh interpreters", import_tasks, "figures", partial(judge, IMPORTS)),
    Section("explain", "1,000 elements of float32", explain_tasks, "series"),
    Section(
        "memory",
        "growth of the resident set in one conversion",
        memory_tasks,
        "figures",
        partial(judge, MEMORY),
    ),
)
