"""pydlpack in a separate process: the cost of a call, and the memory that it keeps.

pydlpack adds a ``__dlpack__`` to any array, in pure Python. JAX and TensorFlow remove the destructor
of a capsule that they have consumed; then pydlpack keeps that destructor, and reports it on standard
output at exit. Therefore it runs in a child, which counts kept destructors after many calls.
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
#: One pair for each consumer; the producer does not matter.
PAIRS: tuple[Pair, ...] = (("numpy", "jax"), ("numpy", "torch"), ("torch", "numpy"), ("numpy", "tensorflow"))
CALLS, QUICK_CALLS = 10_000, 1_000
CALLED, KEPT, GROWN = "calls", "destructors kept", "bytes that the process grew by"


def rows(pair: Pair) -> list[Contender]:
    """Return zerocopy, the documented call, and pydlpack."""
    through = "dlpack.asdlpack(x)"
    code = DOCUMENTED[pair[1]].format(array=through, capsule=f"{through}.__dlpack__()")
    return [*essential(pair), Contender(code, "library", needs=("dlpack",))]


def installed() -> bool:
    """Whether pydlpack is installed, and not another module with that name."""
    if importlib.util.find_spec("dlpack") is None:
        return False
    return importlib.util.find_spec("dlpack.capsule") is not None


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each pair, each a process that imports the frameworks."""
    wanted = [pair for pair in PAIRS if pair in pairs(settings.wants)] if installed() else []
    return [Task(" -> ".join(pair), partial(run, pair, settings)) for pair in wanted]


def run(pair: Pair, settings: Settings) -> list[Case]:
    """Check and time one pair in a child, which counts kept destructors."""
    request = {"pair": pair, "pace": asdict(settings.pace), "calls": QUICK_CALLS if settings.quick else CALLS}
    command = [sys.executable, "-W", "ignore", "-m", __name__, json.dumps(request)]
    completed = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if completed.returncode:
        raise RuntimeError(f"the child ended with {completed.returncode}: {completed.stderr.strip()[-300:]}")
    plain = json.loads(completed.stdout.splitlines()[0])  # pydlpack prints further lines at exit
    entries = [
        Entry(e["label"], e["role"], Timing(**e["timing"]) if e["timing"] else None, e["note"], e["left_out"])
        for e in plain["entries"]
    ]
    return [Case(" -> ".join(pair), entries, plain["figures"], remarks(plain["figures"]))]


def remarks(figures: dict[str, float]) -> list[str]:
    """Return a remark on kept destructors."""
    if not figures:
        return []
    called, destructors, grown = (figures[name] for name in (CALLED, KEPT, GROWN))
    return [
        f"after {called:,} calls pydlpack keeps {destructors:,} destructors; "
        f"the process grew by {grown:,} bytes"
    ]


def child(pair: Pair, pace: Pace, calls: int) -> dict[str, Any]:
    """Check and time the contenders, then call pydlpack `calls` times."""
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
        destructors, grown = kept_after(able[code].loop(), calls)
        figures = {CALLED: calls, KEPT: destructors, GROWN: grown}
    return {"entries": [_plain(entry, timings.get(entry.label)) for entry in entries], "figures": figures}


def kept_after(loop: Any, calls: int) -> tuple[int, int]:
    """Return the destructors and the bytes that `calls` calls add to the process."""
    from dlpack.capsule import Capsule  # type: ignore[import-untyped, import-not-found, unused-ignore]

    from benchmarks.machine import resident

    loop(range(calls), int)  # the first calls grow the heap in any case
    gc.collect()
    earlier, before = len(Capsule.registered_destructors), resident()
    loop(range(calls), int)  # int replaces the clock
    gc.collect()
    return len(Capsule.registered_destructors) - earlier, resident() - before


def _plain(entry: Entry, timing: Timing | Raised | None) -> dict[str, Any]:
    timed = asdict(timing) if isinstance(timing, Timing) else None
    left_out = timing.why if isinstance(timing, Raised) else entry.left_out
    return {**asdict(entry), "timing": timed, "left_out": left_out}


SECTION = Section(
    "pydlpack", "in a separate process: one call, and kept memory after many", tasks, "rivals", quick=False
)


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    print(json.dumps(child(tuple(request["pair"]), Pace(**request["pace"]), request["calls"])))
