"""The plan's table as the kernels read it."""

from __future__ import annotations

from typing import Any

from numba import njit

from zerocopy.layout.kernels.instructions import entry
from zerocopy.layout.plan import LEAF, LEAVES, PIECES, RUN, RUNS

_RUN, _LEAF = len(RUN), len(LEAF)


@njit
def run_entry(plan: Any, run: Any, what: Any) -> Any:
    """Return what a row of the runs says: fields of one kind of group."""
    return entry(entry(plan, RUNS), run * _RUN + what)


@njit
def leaf_entry(plan: Any, leaf: Any, what: Any) -> Any:
    """Return what a row of the leaves says: one column."""
    return entry(entry(plan, LEAVES), leaf * _LEAF + what)


@njit
def piece_entry(plan: Any, piece: Any, what: Any) -> Any:
    """Return a piece's offset (0) or length (1) in bytes."""
    return entry(entry(plan, PIECES), 2 * piece + what)
