"""The kernels' plan of a record: a table read at run time, so that one kernel serves all types."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from math import gcd
from typing import Any

import numpy as np

from zerocopy.layout.groups import GENERIC, GROUPS, Group
from zerocopy.layout.schema import FieldLeaf

Integers = np.ndarray[Any, np.dtype[np.intp]]

#: Bytes of a cache line, which is also a full AVX-512 register.
LINE = 64

#: Bytes of records in a tile: the kernel reads a tile and writes its columns before the next one.
#: The tile, the one being prefetched and the columns must fit the first-level cache (32 KiB).
#: Measured with 4, 8, 16 and 48 KiB, two cores (Zen 4): a particle of 59 bytes to columns 16.3, 14.8,
#: 14.8 and 12.2 GB/s; {i8, f8, i4, u1}, packed, to rows 16.6, 14.0, 13.6 and 12.5. It is also a page:
#: the latter, built across two pages, reached 14.5 instead of 19.5 GB/s.
TILE = 4096

# Positions in the head of the table that the kernels read:
RUNS, RUN_COUNT, LEAVES, GROUPED, LEAF_COUNT, PIECES, ROWS, UNIT, PREFETCH_STEP, OVERRUNS = range(10)
#: A row of the runs: group, first and last leaf, and the group's fields and width.
RUN = GROUP, START, STOP, FIELDS, WIDTH = tuple(range(5))
#: A row of the leaves: see :class:`FieldLeaf`; FIRST and LAST are the pieces of a generic one.
LEAF = OFFSET, LENGTH, SWAP, FIRST, LAST = tuple(range(5))


class RecordPlan:
    """The leaves of a record, sorted by group, as one table of integers.

    Parameters
    ----------
    leaves : sequence of FieldLeaf
        Of one record, each with at least one byte. Their offsets may overlap.
    itemsize : int
        Bytes of the record.
    overrun : collection of int
        Ends of fields after which the kernel may copy four more bytes.
    lines : bool
        Whether records are written: a tile of them must then end with a line.

    Attributes
    ----------
    order : tuple of int
        The leaves by number, in the order in which the kernels expect the columns.
    overruns : bool
        Whether the kernel copies bytes past a field: four fields for three, sixteen bytes for ten.
    rows, unit : int
        Records in a tile, and a divisor of it: that many rows fill whole lines of each column.
    scratch : int
        Bytes of working memory that a kernel needs.

    Examples
    --------
    >>> from zerocopy.layout.schema import leaves
    >>> dtype = np.dtype([("id", "i8"), ("x", "f4"), ("y", "f4"), ("name", "S10")])
    >>> RecordPlan(leaves(dtype), dtype.itemsize).order
    (1, 2, 0, 3)
    """

    def __init__(
        self, leaves: Sequence[FieldLeaf], itemsize: int, overrun: Collection[int] = (), lines: bool = False
    ) -> None:
        placed = sorted(_groups(leaves, overrun), key=lambda item: item[0])  # stable: then by offset
        self.order = tuple(i for _, members in placed for i in members)
        groups = [group for group, members in placed for _ in members]
        sizes = {leaves[i].width for i in self.order}
        generic = any(group == GENERIC for group in groups)
        self.unit = LINE if generic else max((LINE // size for size in sizes), default=1)
        if lines:
            self.unit = max(self.unit, LINE // gcd(LINE, itemsize))
        self.rows = max(1, TILE // max(1, itemsize) // self.unit) * self.unit
        if lines:
            # Read several lines of each column at a time, however wide the records are: with
            # 64 columns, one line of each would be 64 scattered reads per tile.
            self.rows = max(self.rows, LINE)
        threes = any(GROUPS[group].fields == 3 for group in groups if group != GENERIC)
        self.overruns = threes or (generic and bool(overrun) and not lines)
        self.scratch = self.rows * (itemsize if lines else max(sizes, default=0)) + LINE
        copied = sum(leaf.width for leaf in leaves)
        # One line is prefetched per line written. If few fields are wanted, the lines between them
        # are not needed, and the hardware prefetcher, which detects strides, is enough.
        step = LINE * itemsize // copied if 2 * copied > itemsize else 0
        self._tables = (_runs(groups), *_leaf_rows([leaves[i] for i in self.order], groups))
        runs, rows, pieces = self._tables
        head = (
            *(runs.ctypes.data, len(runs), rows.ctypes.data, len(groups) - groups.count(GENERIC), len(rows)),
            *(pieces.ctypes.data, self.rows, self.unit, step, self.overruns),
        )
        self.table = np.array(head, np.intp)

    @property
    def address(self) -> int:
        """Address of the table, for a kernel; valid for the lifetime of the plan."""
        return int(self.table.ctypes.data)


def _runs(groups: list[int]) -> Integers:
    rows = []
    for number in dict.fromkeys(groups):
        if number != GENERIC:
            group, start = GROUPS[number], groups.index(number)
            rows.append((number, start, start + groups.count(number), group.fields, group.width))
    return np.array(rows, np.intp).reshape(-1, len(RUN))


def _leaf_rows(leaves: Sequence[FieldLeaf], groups: list[int]) -> tuple[Integers, Integers]:
    rows, pieces = [], [(0, 0)][:0]
    for leaf, group in zip(leaves, groups, strict=True):
        first = len(pieces)
        if group == GENERIC:
            pieces += leaf.pieces
        rows.append((leaf.pieces[0][0], leaf.width, leaf.swap, first, len(pieces)))
    return np.array(rows, np.intp).reshape(-1, len(LEAF)), np.array(pieces, np.intp).reshape(-1, 2)


# -- groups -----------------------------------------------------------------------

_INDEX = {group: i for i, group in enumerate(GROUPS)}


def _groups(leaves: Sequence[FieldLeaf], overrun: Container[int]) -> list[tuple[int, list[int]]]:
    """Return the groups of a record: the group's number, and the leaves in it."""
    return [group for run in _adjacent(leaves) for group in _split_run(run, leaves, overrun)]


def _adjacent(leaves: Sequence[FieldLeaf]) -> list[list[int]]:
    """Return runs of leaves that are adjacent and have the same width and byte order."""
    runs: list[list[int]] = []
    for i in sorted(range(len(leaves)), key=lambda i: leaves[i].pieces[0]):
        last = leaves[runs[-1][-1]] if runs else None
        if (
            last is not None
            and len(last.pieces) == len(leaves[i].pieces) == 1
            and (last.width, last.swap, _end(last))
            == (leaves[i].width, leaves[i].swap, leaves[i].pieces[0][0])
        ):
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _split_run(
    run: list[int], leaves: Sequence[FieldLeaf], overrun: Container[int]
) -> list[tuple[int, list[int]]]:
    """Split a run into groups, the largest first."""
    leaf = leaves[run[0]]
    if len(leaf.pieces) > 1 or leaf.swap not in (0, leaf.width):
        return [(GENERIC, [i]) for i in run]
    groups: list[tuple[int, list[int]]] = []
    start = 0
    while start < len(run):
        rest = len(run) - start
        for fields in (4, 3, 2, 1):
            group = _INDEX.get(Group(leaf.width, fields, leaf.swap != 0), GENERIC)
            fits = fields <= rest if fields != 3 else rest == 3 and _end(leaves[run[-1]]) in overrun
            if group != GENERIC and fits:
                break
        groups.append((group, run[start : start + fields]))
        start += fields
    return groups


def _end(leaf: FieldLeaf) -> int:
    start, length = leaf.pieces[-1]
    return start + length


def overrun_ends(leaves: Sequence[FieldLeaf], itemsize: int) -> frozenset[int]:
    """Return the ends of fields in a record after which four more bytes may be overwritten.

    Groups of three are written first: native ones, then swapped ones, each for all records of a
    tile and in the order of their offsets. So any field may follow that is not in an earlier
    group of three; padding may not, because it must stay zero.
    """
    owned = np.zeros(itemsize + 4, np.bool_)
    for leaf in leaves:
        for start, length in leaf.pieces:
            owned[start : start + length] = True
    threes = sorted(
        (leaves[run[0]].swap, leaves[run[-3]].pieces[0][0], _end(leaves[run[-1]]))
        for run in _adjacent(leaves)
        if len(run) % 4 == 3 and leaves[run[0]].width == 4
    )
    ends = set()
    for i, (_, _, end) in enumerate(threes):
        after = 0 if end == itemsize else end  # the next record follows the record's end
        overwritten = any(after <= start < after + 4 for _, start, _ in threes[:i])
        if after + 4 <= itemsize and owned[after : after + 4].all() and not overwritten:
            ends.add(end)
    return frozenset(ends)
