"""Device memory with and without a pool; the section is empty without a device.

Each contender is a process (:mod:`benchmarks.pool.device_child`), because a pool applies to a whole
process; those of a case take turns, block by block.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from benchmarks.children import Side, started
from benchmarks.contest import installed
from benchmarks.goals import Promise, judge, labelled, ratio
from benchmarks.pool.sides import contest, turns
from benchmarks.suite import Case, Section, Settings, Task, median
from benchmarks.timing import Pace
from zerocopy.formatting import format_bytes
from zerocopy.pool.attachments import all_hooks
from zerocopy.pool.gpus import visible_gpus

#: Goal: speed of allocating and freeing large blocks, relative to the plain calls of the driver.
GAIN = 1000

SIZES = (4 << 10, 1 << 20, 256 << 20)
# Without JAX, which has no call that only allocates.
_ALLOCATING = ("cupy", "torch", "numba", "rmm")
_PIPELINE = ("cupy", "torch", "jax")
_LARGE, _QUICK = 256 << 20, 64 << 20

#: Code by workload and framework, with `n` bytes and the names of the process.
LINES = {
    "allocate": {
        "cupy": "cupy.empty(n, 'u1')",
        "torch": "torch.empty(n, dtype=torch.uint8, device='cuda')",
        "numba": "cuda.device_array(n, 'u1')",
        "rmm": "rmm.DeviceBuffer(size=n)",
        "cuda": "cuMemFree(cuMemAlloc(n))",
    },
    "streams": {"torch": "cross(n)"},
    "to device": {"cupy": "d.set(x)", "torch": "d.copy_(x)"},
    "to host": {"cupy": "d.get(out=x)", "torch": "x.copy_(d)"},
    "pipeline": {"all": "pipeline(n)"},
}

_PLAIN = "cuMemAlloc and cuMemFree"
_ALLOCATE, _STREAMS = "allocate and free ", "use on another stream, "
_RUN = "CuPy, torch, JAX in turn, "
_ONE, _OWN = "bytes, one pool", "bytes, separate pools"


class Contender(Side):
    """A process in which a framework allocates device memory."""

    program = "benchmarks.pool.device_child"

    def __init__(self, label: str, role: str, framework: str, kind: str = "", host: str = "off") -> None:
        super().__init__(label, json.dumps({"framework": framework, "kind": kind, "host": host}))
        self.role = role


def contenders(*options: tuple[str, ...]) -> AbstractContextManager[list[Contender]]:
    """Start a process for each; they end at the end of the block."""
    return started(Contender(*arguments) for arguments in options)


def here(name: str, settings: Settings) -> bool:
    """Whether a framework is wanted and installed for GPUs, without importing it."""
    if not settings.wants(name) or not installed(name):
        return False
    return next(each for each in all_hooks() if each.name == name).lacks_gpu() is None


def tasks(settings: Settings) -> list[Task]:
    """Return tasks for allocation, streams, transfers and a pipeline if there is a device."""
    if not visible_gpus()[0]:
        return []
    several = [
        Task(f"{_ALLOCATE}{name}", partial(_allocate, name, settings))
        for name in _ALLOCATING
        if here(name, settings)
    ]
    if here("torch", settings):
        several.append(Task("streams", partial(_streams, settings)))
    several += [
        Task(f"transfers, {name}", partial(_transfers, name, settings))
        for name in ("cupy", "torch")
        if here(name, settings)
    ]
    if all(here(name, settings) for name in _PIPELINE):
        several.append(Task("pipeline", partial(_pipeline, settings)))
    return several


def race(name: str, workload: str, nbytes: int, processes: Sequence[Contender], pace: Pace) -> Case:
    """Time a workload in each process, in turns."""
    for one in processes:
        one.ask("open", workload, nbytes)
    samples = turns("work()", processes, pace)
    return contest(name, [samples], {one.label: one.role for one in processes})


def _allocate(name: str, settings: Settings) -> list[Case]:
    code = LINES["allocate"][name]
    options: list[tuple[str, ...]] = [
        (f"{code}, default", "idiom", name),
        (f"{code}, kind='driver'", "ours", name, "driver"),
        (_PLAIN, "reference", "cuda"),
    ]
    if installed("rmm"):
        options.insert(2, (f"{code}, kind='rmm'", "ours", name, "rmm"))
    with contenders(*options) as processes:
        cases = [
            race(f"{_ALLOCATE}{format_bytes(size)}, {name}", "allocate", size, processes, settings.pace)
            for size in settings.sizes or SIZES
        ]
        cases[0].remarks += [row for one in processes for row in one.ask("describe") if row.startswith(name)]
        return cases


def _streams(settings: Settings) -> list[Case]:
    options = (
        ("record_stream, default", "idiom", "torch"),
        ("record_stream, kind='driver'", "ours", "torch", "driver"),
    )
    with contenders(*options) as processes:
        return [
            race(f"{_STREAMS}{format_bytes(size)}, torch", "streams", size, processes, settings.pace)
            for size in settings.sizes or SIZES
        ]


def _transfers(name: str, settings: Settings) -> list[Case]:
    size = _size(settings)
    options = (("np.empty(n)", "idiom", name), ("pool.pinned(n)", "ours", name, "driver", "pinned"))
    with contenders(*options) as processes:
        cases = []
        for workload in ("to device", "to host"):
            label = f"{format_bytes(size)} {workload}, {LINES[workload][name]}"
            case = race(label, workload, size, processes, settings.pace)
            case.figures = {f"GB/s {e.label}": round(size / median(e), 1) for e in case.timed()}
            cases.append(case)
        return cases


def _pipeline(settings: Settings) -> list[Case]:
    size = _size(settings)
    options = (("separate pools", "idiom", "all"), ("one pool, kind='driver'", "ours", "all", "driver"))
    taken: dict[str, Any] = {}
    # In sequence, because the memory of the whole device is measured.
    for arguments, figure in zip(options, (_OWN, _ONE), strict=True):
        with contenders(arguments) as (alone,):
            alone.ask("open", "pipeline", size)
            taken[figure] = alone.ask("peak", size)
    with contenders(*options) as processes:
        case = race(f"{_RUN}{format_bytes(size)}", "pipeline", size, processes, settings.pace)
    case.figures = taken
    separate, shared = format_bytes(taken[_OWN]), format_bytes(taken[_ONE])
    case.remarks.append(
        f"{case.name}: at most {shared} of device memory with one pool, {separate} with separate pools "
        "(JAX without its preallocation)"
    )
    return [case]


def _size(settings: Settings) -> int:
    if settings.sizes:
        return settings.sizes[-1]
    return _QUICK if settings.quick else _LARGE


def _allocating(case: Case) -> float | None:
    start = f"{_ALLOCATE}{format_bytes(max(SIZES))}"
    return ratio(labelled(_PLAIN, "reference"))(case) if case.name.startswith(start) else None


def _memory(case: Case) -> float | None:
    return case.figures[_ONE] / case.figures[_OWN] if case.figures.get(_OWN) else None


PROMISES = (
    Promise(
        f"device: {format_bytes(max(SIZES))} at least {GAIN}x as fast as {_PLAIN} (ratio of times)",
        _allocating,
        1 / GAIN,
    ),
    Promise(
        "device: a pipeline needs at most the memory of separate pools (limit: ratio of bytes)", _memory, 1
    ),
)

SECTIONS = (
    Section(
        "device",
        "memory of a CUDA device, with and without a pool",
        tasks,
        "rivals",
        partial(judge, PROMISES),
    ),
)
