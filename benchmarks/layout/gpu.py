"""Records to columns and back on a CUDA device, compared with a copy on it; empty without a device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import installed
from benchmarks.goals import labelled
from benchmarks.gpu_timing import GpuTiming, measure
from benchmarks.layout.contest import at_least, columns_differ, rows_differ, share
from benchmarks.layout.data import LAYOUTS, Layout, records
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task
from benchmarks.timing import Pace, Statement
from zerocopy.layout.schema import leaves

#: Goals relative to the speed of a copy on the device: aligned fields of 4 and 8 bytes, and others.
ALIGNED, OTHERS = 0.8, 0.6

# Several times the L2 cache of the largest devices, 50 to 130 MB.
_FULL, _QUICK = 512 << 20, 256 << 20

_CODES = ("zc.aos_to_soa(d, dtype=dtype, out=o)", "zc.soa_to_aos(o, dtype, out=back)")
_COPY = "w.copy_to_device(d)"


def tasks(settings: Settings) -> list[Task]:
    if not installed("numba") or not settings.wants("numba"):
        return []
    from numba import config, cuda

    if getattr(config, "ENABLE_CUDASIM", False) or not cuda.is_available():
        return []
    at_least(settings, max(layout.dtype.itemsize for layout in LAYOUTS))
    return [Task(layout.case, partial(_run, layout, settings)) for layout in LAYOUTS]


def _run(layout: Layout, settings: Settings) -> list[Case]:
    nbytes = settings.sizes[0] if settings.sizes else _QUICK if settings.quick else _FULL
    return [run(layout, nbytes // layout.dtype.itemsize, settings.pace)]


def run(layout: Layout, rows: int, pace: Pace) -> Case:
    """Check both directions on the device, and time them with its events."""
    from numba import cuda

    dtype, r = layout.dtype, records(layout.dtype, rows)
    d = cuda.to_device(r.view(np.uint8))
    o = zc.aos_to_soa(d, dtype=dtype)
    back = zc.soa_to_aos(o, dtype)
    wrong = columns_differ(r, {name: column.copy_to_host() for name, column in o.items()})
    wrong = wrong or rows_differ(r, back.copy_to_host().reshape(-1).view(np.uint8).view(dtype))
    assert not wrong, f"{layout.case} {wrong}"
    names = {"zc": zc, "d": d, "o": o, "dtype": dtype, "back": back, "w": cuda.device_array_like(d)}
    # zerocopy works on Numba's default stream, as Numba's copy does. A call takes about as long on the
    # host as on the device: without the filler of the clock, the events would measure the host.
    with cuda.defer_cleanup():
        clocked = measure({code: Statement(code, names) for code in (*_CODES, _COPY)}, pace)
    case = Case(layout.case)
    case.figures = {"bytes a record": dtype.itemsize, "records": rows}
    for code, timing in clocked.items():
        entry = Entry(code, "reference" if code == _COPY else "ours")
        entry.timing = timing.device if isinstance(timing, GpuTiming) else timing
        case.entries.append(entry)
        if isinstance(timing, GpuTiming):
            case.figures[f"GB/s {code}"] = round(r.nbytes / timing.device.median, 1)
            case.figures[f"GB/s read and written {code}"] = round(
                moved(dtype, rows, code) / timing.device.median, 1
            )
            case.figures[f"host, ns {code}"] = round(timing.host.median)
    return case


def moved(dtype: np.dtype[Any], rows: int, code: str) -> int:
    """Return the bytes read plus the bytes written; only records have padding."""
    fields = sum(leaf.width for leaf in leaves(dtype))
    return rows * (dtype.itemsize + (dtype.itemsize if code == _COPY else fields))


def aligned(dtype: np.dtype[Any]) -> bool:
    """Whether all fields have 4 or 8 bytes and are aligned."""
    fields = (dtype.fields or {}).values()
    widths = [part.itemsize for part, *_ in fields]
    return all(width in (4, 8) for width in widths) and all(
        not offset % part.itemsize and not dtype.itemsize % part.itemsize for part, offset, *_ in fields
    )


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Compare both directions with the copy on the device."""
    judged = []
    types = {layout.case: layout.dtype for layout in LAYOUTS}
    for case in cases:
        copied = labelled(_COPY)(case)
        times, which = (ALIGNED, "4 and 8 bytes") if aligned(types[case.name]) else (OTHERS, "others")
        for ours in case.timed("ours"):
            if copied is not None:
                name = f"on the device, {which}: {times} times the speed of its copy"
                judged.append(Goal(name, f"{case.name} {ours.label}", share(ours, copied), 1 / times, "x"))
    return judged


SECTIONS = (Section("gpu", "on a CUDA device, timed by its events", tasks, "rivals", goals),)
