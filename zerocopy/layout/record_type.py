"""A record type with its leaves and its plans."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from zerocopy.layout.record_plan import RecordPlan, overrun_ends
from zerocopy.layout.schema import FieldLeaf, leaves
from zerocopy.source import Array

#: Largest value, and largest record to write, in bytes that the kernels copy: they need 64 of them in
#: working memory. NumPy copies wider ones just as fast.
MAX_COPY_BYTES = 16 << 10


class RecordType:
    """A structured dtype, or some of its top-level fields, with everything computed once for it."""

    def __init__(self, dtype: np.dtype[Any], fields: tuple[str, ...] | None) -> None:
        self.dtype = dtype
        self.leaves = leaves(dtype, fields)
        if fields is not None:
            places = {name: place for place, name in enumerate(fields)}
            self.leaves.sort(key=lambda leaf: places[leaf.path[0]])

    @cached_property
    def kernel_leaves(self) -> tuple[int, ...]:
        """Numbers of the leaves that the kernels can copy; NumPy copies the others."""
        return tuple(
            i
            for i, leaf in enumerate(self.leaves)
            if 0 < leaf.width <= MAX_COPY_BYTES and leaf.swap in (0, 2, 4, 8)
        )

    @cached_property
    def disjoint(self) -> bool:
        """Whether no byte belongs to two leaves, so that the order of writes does not matter."""
        owners = np.zeros(self.dtype.itemsize, np.uint8)
        for leaf in self.leaves:
            for start, length in leaf.pieces:
                owners[start : start + length] += 1
        return bool((owners <= 1).all())

    @cached_property
    def has_padding(self) -> bool:
        """Whether a record may have bytes that belong to no leaf."""
        return sum(leaf.width for leaf in self.leaves) < self.dtype.itemsize or not self.disjoint

    @lru_cache(maxsize=8)  # noqa: B019 - record_type keeps the instances alive anyway
    def plan(self, chosen: tuple[int, ...], *, to_rows: bool, overrun: bool = True) -> RecordPlan:
        """Return the plan for some of the leaves."""
        some: Sequence[FieldLeaf] = [self.leaves[i] for i in chosen]
        size = self.dtype.itemsize
        if to_rows:
            return RecordPlan(some, size, overrun_ends(some, size), lines=True)
        return RecordPlan(some, size, range(size + 1) if overrun else ())


@lru_cache(maxsize=256)
def record_type(dtype: np.dtype[Any], fields: tuple[str, ...] | None = None) -> RecordType:
    """Return a record's type: the same object for equal dtypes."""
    return RecordType(dtype, fields)


def view_of(records: Array, leaf: FieldLeaf) -> Array:
    """Return a strided view of one leaf of an array of records."""
    for name in leaf.path:
        records = records[name]
    return records
