"""The time of one conversion."""

from __future__ import annotations

import gc
import time
from itertools import repeat
from statistics import median
from typing import Any

import zerocopy

_SAMPLES, _BUDGET_NS = 50, 100_000_000  # per cell, unless the caller sets the number of samples
_SAMPLE_NS = 20_000  # one sample: far above the clock's step, far below the scheduler's


def time_conversion(source: Any, target: str, samples: int | None) -> tuple[float, int]:
    """Return the median time of one call in nanoseconds, and the number of samples."""
    convert = zerocopy.convert
    start = time.perf_counter_ns()
    convert(source, target)
    once = max(time.perf_counter_ns() - start, 1)
    calls = max(1, min(1000, _SAMPLE_NS // once))
    times: list[float] = []
    collecting = gc.isenabled()
    gc.disable()  # as timeit does
    try:
        begin = time.perf_counter_ns()
        while len(times) < (samples or _SAMPLES):
            start = time.perf_counter_ns()
            for _ in repeat(None, calls):
                convert(source, target)
            now = time.perf_counter_ns()
            times.append((now - start) / calls)
            if samples is None and now - begin > _BUDGET_NS and len(times) >= 3:
                break
    finally:
        if collecting:
            gc.enable()
    return median(times), len(times)
