"""The hub: the framework whose Arrow arrays, over any memory, table frameworks exchange."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from zerocopy import registry
from zerocopy.forks import is_imported
from zerocopy.protocols.array_interface import aligned_empty

if TYPE_CHECKING:
    import numpy as np

    from zerocopy.source import Array

NAME = "pyarrow"
#: From this size on, in bytes, NumPy's allocator gets fresh pages from the kernel.
_LARGE = 1 << 22


def hub() -> Any:
    """Return the hub's framework, with its module imported."""
    framework = registry.find(NAME) or registry.by_name(NAME)
    framework.module()
    return framework


def new_memory(shape: Sequence[int], storage: np.dtype[np.generic]) -> Array:
    """Return an uninitialised array for a result from the allocator that is faster.

    The kernel clears the pages of NumPy's large allocations; the hub's pool, if the hub is imported already,
    reuses freed ones. 80 MB column by column: 6.4 ms instead of 11.4; row by row: 14.3 instead of 19.8.
    """
    nbytes = prod(shape) * storage.itemsize
    if nbytes < _LARGE or not is_imported(NAME):
        return aligned_empty(tuple(shape), storage)
    memory: Array = hub().memory(nbytes).view(storage).reshape(shape)
    return memory
