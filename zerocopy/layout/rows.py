"""Records as both directions see them: rows in host memory, and their leaves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from zerocopy.layout.plan import Plan, spill_within
from zerocopy.layout.schema import Leaf, leaves

Array = np.ndarray[Any, Any]

#: Bytes of a value, and of a record on the way back, that the kernels move: they take 64 at once
#: into memory of their own. Wider ones are memory copies, which NumPy makes as well.
WIDE = 16 << 10


class RecordType:
    """A record's type with what is worked out once for it.

    Parameters
    ----------
    dtype : numpy.dtype
        With fields.
    fields : tuple of str, optional
        Those of the top level that are wanted; None: all.
    """

    def __init__(self, dtype: np.dtype[Any], fields: tuple[str, ...] | None) -> None:
        self.dtype = dtype
        self.leaves = leaves(dtype, fields)
        if fields is not None:
            self.leaves.sort(key=lambda leaf: fields.index(leaf.path[0]))

    @cached_property
    def movable(self) -> tuple[int, ...]:
        """Which leaves the kernels can move: the rest is NumPy's."""
        return tuple(
            i for i, leaf in enumerate(self.leaves) if 0 < leaf.width <= WIDE and leaf.swap in (0, 2, 4, 8)
        )

    @cached_property
    def every(self) -> tuple[int, ...]:
        """All leaves, by number."""
        return tuple(range(len(self.leaves)))

    @cached_property
    def apart(self) -> bool:
        """Whether no byte belongs to two leaves: then it does not matter which is written last."""
        owned = np.zeros(self.dtype.itemsize, np.uint8)
        for leaf in self.leaves:
            for start, length in leaf.pieces:
                owned[start : start + length] += 1
        return bool((owned <= 1).all())

    @cached_property
    def padded(self) -> bool:
        """Whether a record has bytes that belong to no leaf."""
        return sum(leaf.width for leaf in self.leaves) < self.dtype.itemsize or not self.apart

    @lru_cache(maxsize=8)  # noqa: B019 - the types are kept anyway, and few
    def plan(self, chosen: tuple[int, ...], *, to_rows: bool, spill: bool = True) -> Plan:
        """Return the plan for some of the leaves."""
        some: Sequence[Leaf] = [self.leaves[i] for i in chosen]
        size = self.dtype.itemsize
        if to_rows:
            return Plan(some, size, spill_within(some, size), lines=True)
        return Plan(some, size, range(size + 1) if spill else ())


@lru_cache(maxsize=256)
def record_type(dtype: np.dtype[Any], fields: tuple[str, ...] | None = None) -> RecordType:
    """Return a record's type; the same one for the same dtype.

    Raises
    ------
    UnsupportedConversionError
        A field holds Python objects.
    """
    return RecordType(dtype, fields)


def view_of(records: Array, leaf: Leaf) -> Array:
    """Return one leaf of an array of records, where it lies."""
    for name in leaf.path:
        records = records[name]
    return records
