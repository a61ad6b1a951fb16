"""NumPy arrays of several constructors and sizes, and which of them JAX aliases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import zerocopy as zc
from zerocopy.errors import CopyRequiredError

SIZES = {"1 KB": 1 << 10, "1 MB": 1 << 20, "64 MB": 1 << 26, "256 MB": 1 << 28}

#: Each creates an array of `n` float32 values.
MAKERS: dict[str, Callable[[int], Any]] = {
    "empty": lambda n: np.empty(n, np.float32),
    "zeros": lambda n: np.zeros(n, np.float32),
    "full": lambda n: np.full(n, 3, np.float32),
    "arange": lambda n: np.arange(n, dtype=np.float32),
    "random": lambda n: np.random.default_rng(0).random(n, np.float32),
    "astype": lambda n: np.zeros(n, np.int16).astype(np.float32),
}


def arrays() -> Iterator[tuple[str, Any]]:
    """Create the arrays, one at a time."""
    for size, nbytes in SIZES.items():
        for name, make in MAKERS.items():
            yield f"{name}, {size}", make(nbytes // 4)


def aliased_by_jax() -> dict[str, bool]:
    """Return for each array whether JAX aliases it."""
    aliased = {}
    for name, array in arrays():
        try:
            aliased[name] = zc.shares_memory(array, zc.convert(array, to="jax", copy=False))
        except CopyRequiredError:
            aliased[name] = False
    return aliased
