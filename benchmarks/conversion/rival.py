"""pydlpack in a separate process: the cost of a call, and the memory that it keeps.

pydlpack adds a ``__dlpack__`` to any array, in pure Python. JAX and TensorFlow remove the destructor
of a capsule that they have consumed; then pydlpack keeps that destructor, and reports it on standard
output at exit. Therefore it runs in a child, which counts kept destructors after many calls.
"""

from __future__ import annotations

import gc
import importlib.util
from functools import partial
from typing import Any

from benchmarks.children import call
from benchmarks.contest import Contest, Method, installed
from benchmarks.conversion.contenders import DOCUMENTED, Pair, aliases, contender, essential, pairs
from benchmarks.conversion.question import Question, methods
from benchmarks.conversion.subjects import SUBJECTS, aligned_values
from benchmarks.machine import resident
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.timing import Pace

COUNT = 1000  # elements
#: One pair for each consumer; the producer does not matter.
PAIRS: tuple[Pair, ...] = (("numpy", "jax"), ("numpy", "torch"), ("torch", "numpy"), ("numpy", "tensorflow"))
CALLS, QUICK_CALLS = 10_000, 1_000
CALLED, KEPT, GROWN = "calls", "destructors kept", "bytes that the process grew by"


def rows(pair: Pair) -> list[Method]:
    """Return zerocopy, the documented call, and pydlpack."""
    through = "dlpack.asdlpack(x)"
    code = DOCUMENTED[pair[1]].format(array=through, capsule=f"{through}.__dlpack__()")
    return [*essential(pair), contender(code, "library")]


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each pair, each a process that imports the frameworks."""
    # pydlpack, and not another module with that name.
    if not installed("dlpack") or importlib.util.find_spec("dlpack.capsule") is None:
        return []
    wanted = [pair for pair in PAIRS if pair in pairs(settings.wants)]
    calls = QUICK_CALLS if settings.quick else CALLS
    return [Task(" -> ".join(pair), partial(call, run, pair, settings.pace, calls)) for pair in wanted]


def run(pair: Pair, pace: Pace, calls: int) -> list[Case]:
    """Check and time the contenders, then call pydlpack `calls` times; runs in a child."""
    expected = aligned_values(COUNT)
    x = SUBJECTS[pair[0]].make(expected)
    contest = Contest()
    timed = methods(rows(pair), {"x": x})
    Question(" -> ".join(pair), timed, partial(aliases, pair, x, expected)).add_to(contest)
    (case,) = contest.time(pace)
    if not case.entries[-1].left_out:
        destructors, grown = kept_after(timed[-1].statement.loop(), calls)
        case.figures = {CALLED: calls, KEPT: destructors, GROWN: grown}
        case.remarks = [
            f"after {calls:,} calls pydlpack keeps {destructors:,} destructors; "
            f"the process grew by {grown:,} bytes"
        ]
    return [case]


def kept_after(loop: Any, calls: int) -> tuple[int, int]:
    """Return the destructors and the bytes that `calls` calls add to the process."""
    from dlpack.capsule import Capsule  # type: ignore[import-untyped, import-not-found, unused-ignore]

    loop(range(calls), int)  # the first calls grow the heap in any case
    gc.collect()
    earlier, before = len(Capsule.registered_destructors), resident()
    loop(range(calls), int)  # int replaces the clock
    gc.collect()
    return len(Capsule.registered_destructors) - earlier, resident() - before


SECTION = Section(
    "pydlpack", "in a separate process: one call, and kept memory after many", tasks, "rivals", quick=False
)
