"""The records that are measured: arrays of them, in memory that was touched."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.record_types import LAYOUTS as LAYOUTS, PARTICLE as PARTICLE, Layout as Layout
from benchmarks.suite import Settings

Array = np.ndarray[Any, Any]

#: Bytes of records. They are eight times the last cache of what is common, at least.
FULL = 256 << 20
#: With less than 32 MiB, without the padding, fresh memory would be what was freed the moment
#: before: glibc keeps that, and gives more than that back to the system.
QUICK = 40 << 20

LINE = 64

# Rows after which the values repeat: no power of two, so that no cut of the work falls on it.
_PERIOD = 100_003


def size(settings: Settings) -> int:
    """Return how many bytes of records are wanted."""
    return settings.sizes[0] if settings.sizes else QUICK if settings.quick else FULL


def memory(nbytes: int) -> Array:
    """Return bytes at a multiple of 64, each of them touched: untouched pages are no memory yet."""
    whole = np.ones(nbytes + LINE, np.uint8)
    start = -whole.ctypes.data % LINE
    return whole[start : start + nbytes]


def records(dtype: np.dtype[Any], rows: int) -> Array:
    """Return records of random values."""
    rng = np.random.default_rng(0)
    some = np.zeros(min(rows, _PERIOD), dtype)
    for name in dtype.names or ():
        some[name] = _values(rng, dtype[name], len(some))
    made = memory(rows * dtype.itemsize)
    period = some.view(np.uint8)
    for start in range(0, made.size, period.size):
        made[start : start + period.size] = period[: made.size - start]
    return made.view(dtype)


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
