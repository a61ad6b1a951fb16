"""The allocation that holds a column: columns are one array only if one allocation holds all of it.

Equal distances prove nothing: malloc puts separate blocks at equal distances, with its own headers between.
"""

from __future__ import annotations

import numpy as np

from zerocopy import registry
from zerocopy.protocols.array_interface import allocation_of
from zerocopy.strided_view import StridedView


def in_one_allocation(whole: StridedView, column: StridedView) -> bool:
    """Whether the allocation of a column is known, and holds all bytes that `whole` spans."""
    if not whole.size:
        return True
    bounds = _allocation(column)
    if bounds is None:
        return False
    low, high = whole.bounds
    return bounds[0] <= low and high <= bounds[1]


def _allocation(view: StridedView) -> tuple[int, int] | None:
    """Return the bounds of the allocation that holds a view, if they are known."""
    owner = view.owner
    if isinstance(owner, StridedView):  # the array that this is a column of
        return _allocation(owner) or owner.bounds
    if isinstance(owner, np.ndarray):
        return allocation_of(owner)
    framework = registry.by_type(type(owner))
    return None if framework is None else framework.allocation(owner, view.ptr)
