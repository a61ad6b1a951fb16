"""pydlpack, in a process of its own: what a call costs, and what it leaves behind.

It gives any array a ``__dlpack__`` in pure Python. For JAX and TensorFlow, which take
the destructor off a capsule that they have consumed, it keeps that destructor, and says
so on standard output when the process ends. So it runs in a child, for so many calls,
and what stays is counted.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks.children import environment
from benchmarks.conversion.contenders import DOCUMENTED, Contender, Pair, check, essential, pairs, statement
from benchmarks.conversion.subjects import SUBJECTS, aligned_values
from benchmarks.suite import Case, Entry, Section, Settings, Task
from benchmarks.timing import Pace, Raised, Timing, measure

COUNT = 1000  # elements
#: Of each consumer one; the producer makes no difference to what stays.
PAIRS: tuple[Pair, ...] = (("numpy", "jax"), ("numpy", "torch"), ("torch", "numpy"), ("numpy", "tensorflow"))
CALLS, QUICK_CALLS = 10_000, 1_000
CALLED, KEPT, GROWN = "calls", "destructors kept", "bytes that the process grew by"


def rows(pair: Pair) -> list[Contender]:
    """Return ours, the documented call, and pydlpack's."""
    through = "dlpack.asdlpack(x)"
    code = DOCUMENTED[pair[1]].format(array=through, capsule=f"{through}.__dlpack__()")
    return [*essential(pair), Contender(code, "library", needs=("dlpack",))]


def installed() -> bool:
    """Whether pydlpack could be imported: a module of that name can be something else."""
    found = importlib.util.find_spec("dlpack")
    return found is not None and importlib.util.find_spec("dlpack.capsule") is not None


def tasks(settings: Settings) -> list[Task]:
    """One task a pair: a process that imports it all, which quick runs do without."""
    wanted = [pair for pair in PAIRS if pair in pairs(settings.wants)] if installed() else []
    return [Task(" -> ".join(pair), partial(run, pair, settings)) for pair in wanted]


def run(pair: Pair, settings: Settings) -> list[Case]:
    """Have a child check and time one pair, and count what stays."""
    asked = {"pair": pair, "pace": asdict(settings.pace), "calls": QUICK_CALLS if settings.quick else CALLS}
    command = [sys.executable, "-W", "ignore", "-m", __name__, json.dumps(asked)]
    told = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if told.returncode:
        raise RuntimeError(f"the child ended with {told.returncode}: {told.stderr.strip()[-300:]}")
    plain = json.loads(told.stdout.splitlines()[0])  # what pydlpack says at the end is on the lines below
    entries = [
        Entry(e["label"], e["role"], Timing(**e["timing"]) if e["timing"] else None, e["note"], e["left_out"])
        for e in plain["entries"]
    ]
    return [Case(" -> ".join(pair), entries, plain["figures"], told_of(plain["figures"]))]


def told_of(figures: dict[str, float]) -> list[str]:
    """Say what stays, in words."""
    if not figures:
        return []
    called, kept, grown = (figures[name] for name in (CALLED, KEPT, GROWN))
    return [
        f"after {called:,} calls pydlpack keeps {kept:,} destructors; the process grew by {grown:,} bytes"
    ]


def child(pair: Pair, pace: Pace, calls: int) -> dict[str, Any]:
    """Check the three ways, time them, and call pydlpack's so many times more."""
    expected = aligned_values(COUNT)
    x = SUBJECTS[pair[0]].make(expected)
    able, entries = {}, []
    for contender in rows(pair):
        refused = check(contender, pair, x, expected)
        entries.append(Entry(contender.code, contender.role, note=contender.note, left_out=refused))
        if not refused:
            able[contender.code] = statement(contender, pair, x)
    timings = measure(able, pace)
    figures = {}
    code = entries[-1].label
    if code in able:
        kept, grown = left_behind(able[code].loop(), calls)
        figures = {CALLED: calls, KEPT: kept, GROWN: grown}
    return {"entries": [_plain(entry, timings.get(entry.label)) for entry in entries], "figures": figures}


def left_behind(loop: Any, calls: int) -> tuple[int, int]:
    """Return how many destructors, and how many bytes, so many calls add to the process."""
    from dlpack.capsule import Capsule  # type: ignore[import-untyped, import-not-found, unused-ignore]

    from benchmarks.machine import resident

    loop(range(calls), int)  # the first ones grow the heap, whatever is called
    gc.collect()
    kept, before = len(Capsule.registered_destructors), resident()
    loop(range(calls), int)  # int: nobody asks for the time
    gc.collect()
    return len(Capsule.registered_destructors) - kept, resident() - before


def _plain(entry: Entry, timing: Timing | Raised | None) -> dict[str, Any]:
    timed = asdict(timing) if isinstance(timing, Timing) else None
    left_out = timing.why if isinstance(timing, Raised) else entry.left_out
    return {**asdict(entry), "timing": timed, "left_out": left_out}


SECTION = Section(
    "pydlpack", "in a process of its own: one call, and what stays after many", tasks, "rivals", quick=False
)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(child(tuple(asked["pair"]), Pace(**asked["pace"]), asked["calls"])))
