"""The time of one conversion."""

from __future__ import annotations

import time
from statistics import median
from timeit import Timer
from typing import Any

import zerocopy

_SAMPLES, _BUDGET_NS = 50, 100_000_000  # per cell, unless the caller sets the number of samples
_SAMPLE_NS = 20_000  # one sample: far above the clock's step, far below the scheduler's


def time_conversion(source: Any, target: str, samples: int | None) -> tuple[float, int]:
    """Return the median time of one call in nanoseconds, and the number of samples."""
    names = {"convert": zerocopy.convert, "source": source, "target": target}
    timer = Timer("convert(source, target)", timer=time.perf_counter_ns, globals=names)
    calls = int(max(1, min(1000, _SAMPLE_NS // max(timer.timeit(1), 1))))
    times: list[float] = []
    begin = time.perf_counter_ns()
    while len(times) < (samples or _SAMPLES):
        times.append(timer.timeit(calls) / calls)
        if samples is None and time.perf_counter_ns() - begin > _BUDGET_NS and len(times) >= 3:
            break
    return median(times), len(times)
