"""The same on a CUDA device, against its own copy. Where there is none the section is empty."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.layout.contest import differs_from_columns, differs_from_records, share, timed
from benchmarks.layout.data import LAYOUTS, Layout, records
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median
from benchmarks.timing import Timing

#: Of the speed of a copy on the device: aligned fields of 4 and 8 bytes, and others.
ALIGNED, OTHERS = 0.8, 0.6

# Several times the second cache of the largest devices, which has 50 to 130 MB.
_FULL, _QUICK = 512 << 20, 256 << 20

_CODES = ("zc.aos_to_soa(d, dtype=dtype, out=o)", "zc.soa_to_aos(o, dtype, out=back)")
_COPY = "w.copy_to_device(d)"


def tasks(settings: Settings) -> list[Task]:
    """One task a type of records, where there is a device: the simulator is none."""
    if importlib.util.find_spec("numba") is None or not settings.wants("numba"):
        return []
    from numba import config, cuda

    if getattr(config, "ENABLE_CUDASIM", False) or not cuda.is_available():
        return []
    return [Task(layout.case, partial(_run, layout, settings)) for layout in LAYOUTS]


def _run(layout: Layout, settings: Settings) -> list[Case]:
    given = settings.sizes[0] if settings.sizes else _QUICK if settings.quick else _FULL
    return [run(layout, given // layout.dtype.itemsize, settings.pace.rounds)]


def run(layout: Layout, rows: int, rounds: int) -> Case:
    """Check both directions on the device, and time them with its own clock.

    Raises
    ------
    AssertionError
        Ours does not do the work.
    """
    from numba import cuda

    dtype, r = layout.dtype, records(layout.dtype, rows)
    d = cuda.to_device(r.view(np.uint8))
    o = zc.aos_to_soa(d, dtype=dtype)
    back = zc.soa_to_aos(o, dtype)
    told = differs_from_columns(r)({name: column.copy_to_host() for name, column in o.items()})
    told = told or differs_from_records(r)(back.copy_to_host().reshape(-1).view(np.uint8).view(dtype))
    assert not told, f"{layout.case} {told}"
    names = {"zc": zc, "d": d, "o": o, "dtype": dtype, "back": back, "w": cuda.device_array_like(d)}
    codes = (*_CODES, _COPY)
    samples: dict[str, list[float]] = {code: [] for code in codes}
    calls: dict[str, Callable[[], Any]] = {code: eval(f"lambda: {code}", dict(names)) for code in codes}
    order = list(codes)
    shuffle = random.Random(0).shuffle
    for call in calls.values():
        call()  # compiles, and wakes the device
    for _ in range(rounds):
        shuffle(order)
        for code in order:
            samples[code].append(_elapsed(calls[code]))
    entries = [
        Entry(code, "reference" if code == _COPY else "ours", Timing.of(samples[code])) for code in codes
    ]
    case = Case(layout.case, entries)
    case.figures = {"bytes a record": dtype.itemsize, "records": rows}
    case.figures |= {f"GB/s {e.label}": round(r.nbytes / median(e), 1) for e in entries}
    return case


def _elapsed(call: Callable[[], Any]) -> float:
    """Return nanoseconds on the device between two events around a call."""
    from numba import cuda

    start, stop = cuda.event(), cuda.event()
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1e6


def aligned(dtype: np.dtype[Any]) -> bool:
    """Whether all fields have 4 or 8 bytes and lie at multiples of them."""
    fields = (dtype.fields or {}).values()
    widths = [part.itemsize for part, *_ in fields]
    return all(width in (4, 8) for width in widths) and all(
        not offset % part.itemsize and not dtype.itemsize % part.itemsize for part, offset, *_ in fields
    )


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge both directions against the copy on the device."""
    found = []
    types = {layout.case: layout.dtype for layout in LAYOUTS}
    for case in cases:
        copied = timed(case, _COPY)
        times, which = (ALIGNED, "4 and 8 bytes") if aligned(types[case.name]) else (OTHERS, "others")
        for ours in case.timed("ours"):
            if copied is not None:
                name = f"on the device, {which}: {times} of the speed of its copy"
                found.append(Goal(name, f"{case.name} {ours.label}", share(ours, copied), 1 / times, "x"))
    return found


SECTIONS = (Section("gpu", "on a CUDA device, by its own clock", tasks, "rivals", goals),)
