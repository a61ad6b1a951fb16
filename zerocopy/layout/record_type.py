"""A record type with its leaves, and where they are in a record."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from zerocopy.layout.schema import FieldLeaf, leaves
from zerocopy.source import Array


class RecordType:
    """A structured dtype, or some of its top-level fields, with everything computed once for it."""

    def __init__(self, dtype: np.dtype[Any], fields: tuple[str, ...] | None) -> None:
        self.dtype = dtype
        self.leaves: list[FieldLeaf] = leaves(dtype, fields)
        if fields is not None:
            places = {name: place for place, name in enumerate(fields)}
            self.leaves.sort(key=lambda leaf: places[leaf.path[0]])

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The leaves by number, in the order of :attr:`pieces`.

        In the order of their offsets, so that adjacent leaves are copied together; if leaves overlap, in
        the order of their names, because the last one that is written wins.
        """
        numbers = range(len(self.leaves))
        if not self.disjoint:
            return tuple(numbers)
        return tuple(sorted(numbers, key=lambda i: self.leaves[i].pieces[:1]))

    @cached_property
    def pieces(self) -> Array:
        """The pieces of all leaves: a row of four integers each.

        The number of the leaf in :attr:`order`, the offset in the record, the length in bytes, and the size
        in bytes of the units whose byte order is reversed (0: native order).
        """
        rows = [
            (number, offset, length, self.leaves[i].swap)
            for number, i in enumerate(self.order)
            for offset, length in self.leaves[i].pieces
        ]
        return np.array(rows, np.int64).reshape(-1, 4)

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


@lru_cache(maxsize=256)
def record_type(dtype: np.dtype[Any], fields: tuple[str, ...] | None = None) -> RecordType:
    """Return a record's type: the same object for equal dtypes."""
    return RecordType(dtype, fields)


def view_of(records: Array, leaf: FieldLeaf) -> Array:
    """Return a strided view of one leaf of an array of records."""
    for name in leaf.path:
        records = records[name]
    return records
