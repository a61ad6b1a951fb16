"""The measured arrays of records, in memory that has been written to."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.record_types import LAYOUTS as LAYOUTS, PARTICLE as PARTICLE, Layout as Layout
from benchmarks.suite import Settings

Array = np.ndarray[Any, Any]

#: Bytes of records: four times a last-level cache of 32 MiB.
FULL = 128 << 20
#: glibc keeps freed blocks of up to 32 MiB: with less than that, memory would not be fresh.
QUICK = 40 << 20

LINE = 64

# Rows after which values repeat: not a power of two, so that parts of the work do not start there.
_PERIOD = 100_003


def size(settings: Settings) -> int:
    """Return the bytes of records to measure."""
    return settings.sizes[0] if settings.sizes else QUICK if settings.quick else FULL


def memory(nbytes: int) -> Array:
    """Return 64-byte-aligned bytes that have been written to: pages are allocated at the first write."""
    whole = np.ones(nbytes + LINE, np.uint8)
    start = -whole.ctypes.data % LINE
    return whole[start : start + nbytes]


def records(dtype: np.dtype[Any], rows: int) -> Array:
    """Return records of random values."""
    rng = np.random.default_rng(0)
    some = np.zeros(min(rows, _PERIOD), dtype)
    for name in dtype.names or ():
        some[name] = _values(rng, dtype[name], len(some))
    repeated = memory(rows * dtype.itemsize)
    period = some.view(np.uint8)
    for start in range(0, repeated.size, period.size):
        repeated[start : start + period.size] = period[: repeated.size - start]
    return repeated.view(dtype)


def _values(rng: np.random.Generator, dtype: np.dtype[Any], rows: int) -> Array:
    if dtype.kind == "f":
        return rng.standard_normal(rows)
    if dtype.kind == "S":
        return rng.integers(97, 123, (rows, dtype.itemsize), np.uint8).view(dtype)[:, 0]
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, rows, dtype.newbyteorder("="))


def native(dtype: np.dtype[Any]) -> dict[str, np.dtype[Any]]:
    """Return the types of a record's columns."""
    return {name: dtype[name].newbyteorder("=") for name in dtype.names or ()}
