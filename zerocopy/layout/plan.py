"""A record's plan: what the kernels are told at run time, so that one serves all types."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from math import gcd
from typing import Any

import numpy as np

from zerocopy.layout.groups import GROUPS, ODD, Group
from zerocopy.layout.schema import Leaf

Numbers = np.ndarray[Any, np.dtype[np.intp]]

#: Bytes of a line of the cache: what moves between it and memory, and a full AVX-512 register.
LINE = 64

#: Bytes of records in a tile: they are read, and their columns written, before the next ones.
#: It and the tile that is fetched meanwhile are to fit the first cache (32 KiB) with room for
#: the columns. Measured with 4, 8, 16 and 48 KiB, two cores (Zen 4): a particle of 59 bytes to
#: columns 16.3, 14.8, 14.8 and 12.2 GB/s; {i8, f8, i4, u1}, packed, to rows 16.6, 14.0, 13.6 and
#: 12.5. And it is a page: these, put together across two pages, gave 14.5 GB/s and not 19.5.
TILE = 4096

# Where things stand in the table that the kernels read. Its head:
RUNS, RUN_COUNT, LEAVES, GROUPED, LEAF_COUNT, PIECES, ROWS, UNIT, PACE, SPILLS = range(10)
#: A row of the runs: group, first and last leaf, and the group's fields and width.
RUN = KIND, START, STOP, FIELDS, WIDTH = tuple(range(5))
#: A row of the leaves: see :class:`Leaf`; and the odd ones' first and last piece.
LEAF = OFFSET, LENGTH, SWAP, FIRST, LAST = tuple(range(5))


class Plan:
    """The leaves of a record, sorted by group, as one table of integers.

    Parameters
    ----------
    leaves : sequence of Leaf
        Of one record, each with bytes. Their offsets may overlap.
    itemsize : int
        Bytes of the record.
    spill : container of int
        After which bytes of a record four more may be moved.
    lines : bool
        Whether records are written: a tile of them is then to end with a line.

    Attributes
    ----------
    order : tuple of int
        Which of the leaves stands where: the order in which kernels want the columns.
    spills : bool
        Whether bytes past a field are moved with it: of three fields four, of ten bytes sixteen.
    rows, unit : int
        Records of a tile, and what it is a multiple of: each column then gets full lines.
    scratch : int
        Bytes that a kernel needs to itself.

    Examples
    --------
    >>> from zerocopy.layout.schema import leaves
    >>> dtype = np.dtype([("id", "i8"), ("x", "f4"), ("y", "f4"), ("name", "S10")])
    >>> Plan(leaves(dtype), dtype.itemsize).order
    (1, 2, 0, 3)
    """

    def __init__(
        self, leaves: Sequence[Leaf], itemsize: int, spill: Collection[int] = (), lines: bool = False
    ) -> None:
        placed = sorted(_groups(leaves, spill), key=lambda item: item[0])  # stable: then by offset
        self.order = tuple(i for _, members in placed for i in members)
        kinds = [kind for kind, members in placed for _ in members]
        sizes = {leaves[i].width for i in self.order}
        odd = any(kind == ODD for kind in kinds)
        self.unit = LINE if odd else max((LINE // size for size in sizes), default=1)
        if lines:
            self.unit = max(self.unit, LINE // gcd(LINE, itemsize))
        self.rows = max(1, TILE // max(1, itemsize) // self.unit) * self.unit
        if lines:
            # Of each column some lines at once, however wide the records: 64 columns one line
            # each are 64 places in memory, and the next ones are others.
            self.rows = max(self.rows, LINE)
        threes = any(GROUPS[kind].fields == 3 for kind in kinds if kind != ODD)
        self.spills = threes or (odd and bool(spill) and not lines)
        self.scratch = self.rows * (itemsize if lines else max(sizes, default=0)) + LINE
        moved = sum(leaf.width for leaf in leaves)
        # A line is fetched for each that is written. Where few of the fields are wanted those
        # between are not to be read: then the hardware, which knows steps, is left to it.
        pace = LINE * itemsize // moved if 2 * moved > itemsize else 0
        self._parts = (_runs(kinds), *_leaf_rows([leaves[i] for i in self.order], kinds))
        runs, rows, pieces = self._parts
        head = (
            *(runs.ctypes.data, len(runs), rows.ctypes.data, len(kinds) - kinds.count(ODD), len(rows)),
            *(pieces.ctypes.data, self.rows, self.unit, pace, self.spills),
        )
        self.table = np.array(head, np.intp)

    @property
    def address(self) -> int:
        """Where the table is, for a kernel; it lives as long as the plan."""
        return int(self.table.ctypes.data)


def _runs(kinds: list[int]) -> Numbers:
    rows = []
    for kind in dict.fromkeys(kinds):
        if kind != ODD:
            group, start = GROUPS[kind], kinds.index(kind)
            rows.append((kind, start, start + kinds.count(kind), group.fields, group.width))
    return np.array(rows, np.intp).reshape(-1, len(RUN))


def _leaf_rows(leaves: Sequence[Leaf], kinds: list[int]) -> tuple[Numbers, Numbers]:
    rows, pieces = [], [(0, 0)][:0]
    for leaf, kind in zip(leaves, kinds, strict=True):
        first = len(pieces)
        if kind == ODD:
            pieces += leaf.pieces
        rows.append((leaf.pieces[0][0], leaf.width, leaf.swap, first, len(pieces)))
    return np.array(rows, np.intp).reshape(-1, len(LEAF)), np.array(pieces, np.intp).reshape(-1, 2)


# -- groups -----------------------------------------------------------------------

_INDEX = {group: i for i, group in enumerate(GROUPS)}


def _groups(leaves: Sequence[Leaf], spill: Container[int]) -> list[tuple[int, list[int]]]:
    """Return the groups of a record: which kind, and the leaves in it."""
    return [cut for run in _neighbours(leaves) for cut in _cut(run, leaves, spill)]


def _neighbours(leaves: Sequence[Leaf]) -> list[list[int]]:
    """Return runs of leaves that lie end to end and have one width and byte order."""
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


def _cut(run: list[int], leaves: Sequence[Leaf], spill: Container[int]) -> list[tuple[int, list[int]]]:
    """Cut a run into groups, the largest first."""
    leaf = leaves[run[0]]
    if len(leaf.pieces) > 1 or leaf.swap not in (0, leaf.width):
        return [(ODD, [i]) for i in run]
    cut: list[tuple[int, list[int]]] = []
    while run:
        for fields in (4, 3, 2, 1):
            kind = _INDEX.get(Group(leaf.width, fields, leaf.swap != 0), ODD)
            fits = fields <= len(run) if fields != 3 else len(run) == 3 and _end(leaves[run[-1]]) in spill
            if kind != ODD and fits:
                break
        cut.append((kind, run[:fields]))
        run = run[fields:]
    return cut


def _end(leaf: Leaf) -> int:
    start, length = leaf.pieces[-1]
    return start + length


def spill_within(leaves: Sequence[Leaf], itemsize: int) -> frozenset[int]:
    """Return after which bytes of a record four more may be written too.

    Groups of three are written first: those in native order, then the others, each of them
    for all records of a tile, and in the order of their offsets. So what follows may be any
    field that is in no such group before it, and no padding, which is to stay zero.
    """
    owned = np.zeros(itemsize + 4, np.bool_)
    for leaf in leaves:
        for start, length in leaf.pieces:
            owned[start : start + length] = True
    threes = sorted(
        (leaves[run[0]].swap, leaves[run[-3]].pieces[0][0], _end(leaves[run[-1]]))
        for run in _neighbours(leaves)
        if len(run) % 4 == 3 and leaves[run[0]].width == 4
    )
    inside = set()
    for i, (_, _, end) in enumerate(threes):
        after = 0 if end == itemsize else end  # after the record's end comes the next record
        hurt = any(after <= start < after + 4 for _, start, _ in threes[:i])
        if after + 4 <= itemsize and owned[after : after + 4].all() and not hurt:
            inside.add(end)
    return frozenset(inside)
