"""The objects that processes exchange: an array and a table of each framework."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.contest import installed
from benchmarks.suite import Settings

ARRAYS = ("numpy", "torch", "jax", "tensorflow")
TABLES = ("pyarrow", "pandas", "polars")
#: Columns of float64 in a table.
COLUMNS = 10
#: Rows of the table with 80 MB, and in a quick run.
ROWS, QUICK_ROWS = 1_000_000, 200_000


def available(settings: Settings) -> tuple[str, ...]:
    """Return the frameworks that are wanted and installed, without importing them."""
    return tuple(name for name in (*ARRAYS, *TABLES) if settings.wants(name) and installed(name))


def make(framework: str, nbytes: int) -> Any:
    """Return an array of float32 values, or a table of float64 columns, with `nbytes` bytes."""
    values = np.random.default_rng(0)
    if framework in ARRAYS:
        return _MAKERS[framework](values.random(nbytes // 4, dtype="f4"))
    rows = nbytes // (8 * COLUMNS)
    return _MAKERS[framework]({f"c{i}": values.random(rows) for i in range(COLUMNS)})


def nbytes_of(framework: str, settings: Settings, array_bytes: int) -> int:
    """Return the bytes of the object of a framework in a run."""
    if framework in ARRAYS:
        return array_bytes
    rows = QUICK_ROWS if settings.quick else ROWS
    return settings.sizes[-1] if settings.sizes else rows * 8 * COLUMNS


def _calls(module: str, function: str) -> Callable[[Any], Any]:
    """Return a call of a function, which imports its module."""
    return lambda values: getattr(import_module(module), function)(values)


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "numpy": partial(np.array, dtype="f4"),
    "torch": _calls("torch", "tensor"),
    "jax": lambda array: import_module("jax.numpy").array(array).block_until_ready(),
    "tensorflow": _calls("tensorflow", "constant"),
    "pyarrow": _calls("pyarrow", "table"),
    "pandas": _calls("pandas", "DataFrame"),
    "polars": _calls("polars", "DataFrame"),
}
