"""The first call in a process, with compiled kernels in the disk cache."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.children import environment
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median
from benchmarks.timing import Timing

#: In addition to the import of Numba.
LIMIT = 50.0  # ms

# A fresh interpreter runs this and prints the times of two pieces of code. There are enough records
# that zerocopy uses its kernels, and their memory has been written to.
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

_IMPORT = "import numba"
_CALLS = ("zc.aos_to_soa(r)", "zc.soa_to_aos(c, r.dtype)")

#: The timed code, the code that runs before it, and the label of the entry.
_ROWS = (
    *((code, "pass", code) for code in _CALLS),
    *((code, _IMPORT, f"{code}, after {_IMPORT}") for code in _CALLS),
)


def tasks(settings: Settings) -> list[Task]:
    """Return one task: fresh interpreters, which take turns."""
    if importlib.util.find_spec("numba") is None or not settings.wants("numba"):
        return []
    return [Task("fresh interpreters", partial(_start, settings))]


def _start(settings: Settings) -> list[Case]:
    samples: dict[str, list[float]] = {label: [] for label in (_IMPORT, *(row[2] for row in _ROWS))}
    for code in _CALLS:
        _probe("pass", code)  # warms the cache
    imports = 0
    order = list(_ROWS)
    shuffle = random.Random(0).shuffle
    for _ in range(1 if settings.quick else 15):
        shuffle(order)
        for code, before, label in order:
            imported, called, has_numba = _probe(before, code)
            samples[label].append(called)
            if before == _IMPORT:
                samples[_IMPORT].append(imported)
            else:
                imports += has_numba
    entries = [
        Entry(label, "reference" if label == _IMPORT else "ours", Timing.of(times))
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
    """Judge the time that the first call adds to the import."""
    name = f"first call, warm cache: {LIMIT:.0f} ms at most in addition to import numba"
    return [
        Goal(name, entry.label, median(entry) / 1e6, LIMIT, "ms")
        for case in cases
        for entry in case.timed("ours")
        if entry.label.endswith(f"after {_IMPORT}")
    ]


SECTIONS = (
    Section("start", "the first call in a process, with kernels in the cache", tasks, "figures", goals),
)
