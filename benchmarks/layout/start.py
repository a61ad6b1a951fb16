"""The first call in a process."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.children import environment
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median
from benchmarks.timing import Timing

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
    samples: dict[str, list[float]] = {label: [] for label in (_CONVERT, *(row[2] for row in _ROWS))}
    for code in _CALLS:
        _probe("pass", code)  # compiles the modules of zerocopy
    imports = 0
    order = list(_ROWS)
    shuffle = random.Random(0).shuffle
    for _ in range(1 if settings.quick else 15):
        shuffle(order)
        for code, before, label in order:
            imported, called, has_numba = _probe(before, code)
            samples[label].append(called)
            if before == _CONVERT:
                samples[_CONVERT].append(imported)
            else:
                imports += has_numba
    entries = [
        Entry(label, "reference" if label == _CONVERT else "ours", Timing.of(times))
        for label, times in samples.items()
    ]
    return [Case("first call in a process", entries, {"of these calls import Numba": imports})]


def _probe(before: str, code: str) -> tuple[float, float, bool]:
    variables = environment()
    # Otherwise each interpreter would compile the modules of zerocopy again.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    completed = subprocess.run(
        [sys.executable, "-c", _PROBE.format(before=before, code=code)],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    imported, called, has_numba = json.loads(completed.stdout)
    return float(imported), float(called), bool(has_numba)


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
