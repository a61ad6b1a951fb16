"""The first call in a process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks.children import evaluate
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median
from benchmarks.timing import Pace, Timing, take_turns

#: In addition to the modules that `convert` imports too.
LIMIT = 5.0  # ms

# A fresh interpreter runs this and prints the times of two pieces of code. NumPy is imported, and the memory
# of the records has been written to.
_PROBE = """
import json, sys, time
import numpy as np
import zerocopy as zc
r = np.ones(100_000, [("id", "i8"), ("x", "f4"), ("flag", "u1")])
c = {{name: r[name].copy() for name in r.dtype.names}}
def spent(code, clock=time.perf_counter_ns):
    start = clock()
    exec(code, globals())
    return clock() - start
times = [spent({before!r}), spent({code!r})]
print(json.dumps([*times, "numba" in sys.modules]))
"""

_CONVERT = 'zc.convert(r["x"], "numpy")'
_CALLS = ("zc.aos_to_soa(r)", "zc.soa_to_aos(c, r.dtype)")

#: The timed code, the code that runs before it, and the label of the entry.
_ROWS = (
    *((code, "pass", code) for code in _CALLS),
    *((code, _CONVERT, f"{code}, after {_CONVERT}") for code in _CALLS),
)


def tasks(settings: Settings) -> list[Task]:
    """Return one task: fresh interpreters, which take turns."""
    return [Task("fresh interpreters", partial(_start, settings))]


def _start(settings: Settings) -> list[Case]:
    """Take turns: each sample has the times of both pieces of code, and whether Numba was imported."""

    def probe(row: tuple[str, str, str], calls: int, before: list[Any]) -> Any:
        return evaluate(_PROBE.format(before=row[1], code=row[0]))

    def begin(row: tuple[str, str, str]) -> tuple[int, int]:
        probe(row, 1, [])  # compiles the modules of zerocopy
        return 1, 0

    rounds = 1 if settings.quick else 15
    samples, _, raised = take_turns({row[2]: row for row in _ROWS}, Pace(rounds, 0, 1), begin, probe)
    case = Case("first call in a process")
    converts = [float(sample[0]) for _, _, label in _ROWS[len(_CALLS) :] for sample in samples[label]]
    case.entries = [Entry(_CONVERT, "reference", Timing.of(converts) if converts else None)]
    for _, _, label in _ROWS:
        timing = raised.get(label) or Timing.of([float(sample[1]) for sample in samples[label]])
        case.entries.append(Entry(label, "ours", timing))
    alone = [sample for _, _, label in _ROWS[: len(_CALLS)] for sample in samples[label]]
    case.figures = {"of these calls import Numba": sum(sample[2] for sample in alone)}
    return [case]


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge the time of the first call."""
    name = f"first call: {LIMIT:.0f} ms at most in addition to the modules that convert imports too"
    return [
        Goal(name, entry.label, median(entry) / 1e6, LIMIT, "ms")
        for case in cases
        for entry in case.timed("ours")
        if entry.label.endswith(f"after {_CONVERT}")
    ]


SECTIONS = (Section("start", "the first call in a process", tasks, "figures", goals),)
