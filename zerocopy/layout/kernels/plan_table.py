"""Access to the plan's table from the kernels."""

from __future__ import annotations

from typing import Any

from numba import njit

from zerocopy.layout.kernels.instructions import entry
from zerocopy.layout.record_plan import LEAF, LEAVES, PIECES, RUN, RUNS

_RUN, _LEAF = len(RUN), len(LEAF)


@njit
def run_entry(plan: Any, run: Any, column: Any) -> Any:
    """Return an entry of a row of the runs, which describes fields of one group."""
    return entry(entry(plan, RUNS), run * _RUN + column)


@njit
def leaf_entry(plan: Any, leaf: Any, column: Any) -> Any:
    """Return an entry of a row of the leaves, which describes one field."""
    return entry(entry(plan, LEAVES), leaf * _LEAF + column)


@njit
def piece_entry(plan: Any, piece: Any, column: Any) -> Any:
    """Return the offset (0) or length (1) of a piece in bytes."""
    return entry(entry(plan, PIECES), 2 * piece + column)
