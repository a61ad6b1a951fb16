"""CUDA memory between frameworks, and across the bus; no tasks without a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import repeat
from time import perf_counter_ns
from typing import Any

from benchmarks import gpu_timing
from benchmarks.contest import Contest
from benchmarks.conversion.contenders import Pair
from benchmarks.conversion.gpu_contenders import across, contenders, differs, on_device, side, statement
from benchmarks.conversion.question import Question, Timed
from benchmarks.conversion.subjects import aligned_values
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.timing import LazyLoop, Pace, Raised, Statement, Timing, loops, timed
from zerocopy.formatting import format_bytes
from zerocopy.protocols import cuda_driver

COUNT = 1000  # elements
BUS, QUICK_BUS = 2**28, 2**24  # bytes
# One transfer takes tens of milliseconds: with this limit, a contender takes 3 s at most.
_PATIENCE = 3_000_000_000
#: Figures of a case on the device.
DEVICE = "device ns, {}"
_NAMES = {"ours": "zerocopy", "documented": "documented"}


def _pairs(candidates: Callable[[], list[Pair]], settings: Settings) -> list[Pair]:
    if cuda_driver.missing() is not None:
        return []
    # Set before JAX is initialised, which would otherwise allocate three quarters of the memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return [pair for pair in candidates() if all(map(settings.wants, pair))]


def device_tasks(settings: Settings) -> list[Task]:
    """Return a task for each pair of frameworks with a device, and for each pair with NumPy."""
    pairs = _pairs(lambda: [*on_device(), *across()], settings)
    return [Task(" -> ".join(pair), partial(run, pair, settings)) for pair in pairs]


def bus_tasks(settings: Settings) -> list[Task]:
    return [
        Task(" -> ".join(pair), partial(across_the_bus, pair, settings)) for pair in _pairs(across, settings)
    ]


def _contest(pair: Pair, count: int, name: str) -> tuple[Contest, dict[str, Statement]]:
    """Check the contenders of a pair; return their contest, and the statements of all."""
    expected = aligned_values(count)
    x = side(pair[0]).make(expected)
    contest = Contest()
    methods = [Timed(c.code, c.role, statement(c, x), c.note) for c in contenders(pair)]
    Question(name, methods, partial(differs, pair, x, expected)).add_to(contest)
    return contest, {each.code: each.statement for each in methods}


def run(pair: Pair, settings: Settings) -> list[Case]:
    """Time each contender on the host, without waiting for the device; then the device."""
    contest, statements = _contest(pair, COUNT, " -> ".join(pair))
    (case,) = contest.time(settings.pace)
    # JAX uses private streams, on which no events can be recorded.
    both = {entry.role: entry.label for entry in case.timed(*_NAMES)} if "jax" not in pair else {}
    if not both:
        return [case]
    # Separate from the host's times: here the stream is kept busy, so that waiting for it takes longer.
    clocked = gpu_timing.measure({label: statements[label] for label in both.values()}, settings.pace)
    for role, label in both.items():
        if isinstance(timing := clocked[label], gpu_timing.GpuTiming):
            case.figures[DEVICE.format(_NAMES[role])] = timing.device.median
    return [case]


def across_the_bus(pair: Pair, settings: Settings) -> list[Case]:
    """Time transfers until the data have arrived."""
    size = QUICK_BUS if settings.quick else BUS
    contest, _ = _contest(pair, size // 4, f"{' -> '.join(pair)}, {format_bytes(size)}")
    pace = replace(settings.pace, patience=min(settings.pace.patience, _PATIENCE))
    (case,) = contest.time(pace, until_done)
    for entry in case.timed():
        if entry.role in _NAMES and isinstance(entry.timing, Timing):
            case.figures[f"GB/s {_NAMES[entry.role]}"] = round(size / entry.timing.median, 1)
    return [case]


def until_done(statements: Mapping[str, Statement], pace: Pace) -> dict[str, Timing | Raised]:
    """Time one call at a time, from an idle device to an idle device; the contenders take turns."""
    finished_calls = {
        label: Statement(f"wait({each.code})", {**each.names, "wait": wait})
        for label, each in statements.items()
    }

    def sample(loop: LazyLoop, calls: int, before: list[Any]) -> float:
        wait(None)
        return float(loop()(repeat(None, calls), perf_counter_ns))

    def begin(loop: LazyLoop) -> tuple[int, int]:
        sample(loop, 1, [])  # first-time costs
        return 1, int(sample(loop, 1, []))

    return timed(loops(finished_calls), pace, begin, sample)


def wait(result: Any) -> None:
    """Wait for a result with JAX, which may not have started the work, and for the whole device."""
    if hasattr(result, "block_until_ready"):
        result.block_until_ready()
    with cuda_driver.on_device(0) as library:
        cuda_driver.call(library.cuCtxSynchronize)


SECTIONS = (
    Section(
        "gpu",
        f"{COUNT:,} elements of float32 in CUDA memory, and to and from NumPy: time of a call on the host, "
        "without waiting for the device",
        device_tasks,
    ),
    Section("gpu-bus", "to and from NumPy across the bus, until the data have arrived", bus_tasks),
)
