"""A record's tasks on a GPU: a table, made on the host, so that one kernel serves all types.

A block of threads moves a *tile*, some records, by way of its shared memory. A *task* is what
one warp then moves of one leaf: :data:`TASK` bytes of its column. How, is decided here, once a
layout, so that the threads of a warp never part ways, and divide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np

from zerocopy.layout.schema import Leaf

Table = np.ndarray[Any, np.dtype[np.int64]]

#: Threads of a block, and of a warp.
THREADS, WARP = 256, 32

#: Bytes of a task at least, two words of 8 bytes a thread, so that it has two loads under way;
#: and at most, if that leaves tasks for all warps, three for two.
TASK, LARGEST_TASK = 512, 2048

#: Bytes of shared memory for a tile: of 64 KiB (compute capability 7.5) four blocks get theirs,
#: of 100 and more (8.6, 9.0) more blocks than fill a multiprocessor.
TILE = 16 << 10
#: For long records up to this, to make the stretches of the columns longer: 128 values if it goes,
#: which is a task of 4 bytes each. Half of the threads that a multiprocessor can hold then find
#: room there, each with more loads under way. Up to here the division by a multiplication is exact
#: in 32 bits, whatever the length.
LARGEST_TILE = 32 << 10

#: Bytes that a GPU reads at least, and those of a line of its caches.
SECTOR, _LINE = 32, 128

# Without shared memory: records of a block, and bytes of one of their pieces, so few that the
# division stays exact. A piece that is longer is moved a record at a time.
_DIRECT_ROWS, _DIRECT_BYTES = 512, 1 << 15
# And of its records: where a byte of them lies is counted in 32 bits.
_DIRECT_SPAN = 1 << 32

#: A row of the table. The task's bytes are those from START to STOP of what a piece of a leaf has
#: in a tile, record after record. In the record they are LENGTH bytes at OFFSET; byte // LENGTH is
#: byte * MAGIC >> SHIFT. In the column a record has WIDTH bytes, of which these begin at INTO. The
#: column begins at PLACE, and at BEFORE times the pitch of the columns. SWAP is the leaf's.
ROW = KIND, WIDE, START, STOP, OFFSET, LENGTH, MAGIC, SHIFT, WIDTH, INTO, PLACE, BEFORE, SWAP = tuple(
    range(13)
)

#: How the four bytes of a word of the column lie in the records: in a word; in two; in halves of
#: two records (of one, if it is longer); a byte each. Last: that whole words of it are not to be
#: moved at all, but bytes, and that there is no column, but padding.
ALIGNED, SHIFTED, HALVES, OCTETS, SINGLE, GAP = range(6)

_COST = {ALIGNED: 1, SHIFTED: 2, HALVES: 2, OCTETS: 4, SINGLE: 8, GAP: 8}


@dataclass(frozen=True, eq=False)
class Plan:
    """What the kernels are told of a layout.

    Attributes
    ----------
    rows : int
        Records of a tile.
    shared : int
        Bytes of shared memory that a block needs; 0: it goes straight to global memory.
    swizzle : (int, int)
        See :func:`swizzle`.
    padded : bool
        Whether the records have bytes that are no field's.
    table : ndarray of int64
        The tasks, one after the other: see :data:`ROW`.
    copies : dict
        The table in the memory of devices, kept by who puts it there.
    """

    rows: int
    shared: int
    swizzle: tuple[int, int]
    padded: bool
    table: Table
    copies: dict[Any, Any] = field(default_factory=dict)


@lru_cache(maxsize=128)
def plan(
    leaves: tuple[Leaf, ...],
    itemsize: int,
    head: int = 0,
    places: tuple[int, ...] | None = None,
    to_rows: bool = False,
) -> Plan:
    """Return the plan of a layout.

    Parameters
    ----------
    leaves : tuple of Leaf
        What is moved.
    itemsize : int
        Bytes of a record.
    head : int
        Bytes by which the first record is past a multiple of 8.
    places : tuple of int, optional
        Where each column begins, in bytes after a multiple of 8. None: one after the other, as
        many bytes apart as their widths before say, times a pitch that is a multiple of 8.
    to_rows : bool
        Whether records are written.

    Examples
    --------
    >>> from zerocopy.layout.schema import leaves
    >>> dtype = np.dtype([("id", "i8"), ("x", "f4"), ("kind", "u1")])
    >>> made = plan(tuple(leaves(dtype)), dtype.itemsize)
    >>> made.rows, made.shared, made.swizzle, len(made.table) // len(ROW)
    (1152, 14976, (5, 4), 16)
    """
    owners = _owners(leaves, itemsize)
    # The columns side by side, as bytes a record.
    before = np.cumsum([0, *(leaf.width for leaf in leaves)]).tolist()
    pieces = [
        (i, offset, length, into, whole)
        for i, leaf in enumerate(leaves)
        for offset, length, into, whole in _pieces(i, leaf, owners if to_rows else None)
    ]
    direct = not to_rows and _sparse(leaves, itemsize)
    rows = 0 if direct else _tile_rows(itemsize)
    direct = rows == 0
    gaps = _runs(owners, -1) if direct and to_rows else []
    longest = max([length for _, _, length, _, _ in pieces] + [b - a for a, b in gaps], default=1)
    if direct:
        fit = min(_DIRECT_BYTES // longest, _DIRECT_SPAN // (itemsize + 8))
        rows = min(_DIRECT_ROWS, fit // 8 * 8) or 1
    cuts: list[tuple[int, int, int, tuple[int, ...]]] = []
    for i, offset, length, into, whole in pieces:
        leaf, place = leaves[i], 0 if places is None else places[i]
        kind, wide = _kind(leaf, offset + head, length, into, itemsize, place, rows)
        if direct and kind == SHIFTED:
            kind = OCTETS  # the last word of all may reach past the records' end
        column = (leaf.width, into, place, before[i] if places is None else 0, leaf.swap)
        cuts.append((kind if whole else SINGLE, wide, length, (offset + head, *column)))
    cuts += [(GAP, 0, b - a, (a + head, 0, 0, 0, 0, 0)) for a, b in gaps]
    shared = 0 if direct else _groups(head + rows * itemsize)
    padded = bool((owners < 0).any())
    return Plan(rows, shared, swizzle(leaves, itemsize), padded, _table(cuts, rows))


def swizzle(leaves: Sequence[Leaf], itemsize: int) -> tuple[int, int]:
    """Return by which bits of its address a byte of a tile is put elsewhere.

    Shared memory has 32 banks, words of 4 bytes in turn. A warp reads a field of 32 records, or
    of every other one if it is of 4 bytes, in words that are as far apart: 2**z times something
    odd. They lie in 32 / 2**z banks, and those of one bank in lines (of 32 words) of which the
    numbers differ in the last z bits. So the last z bits of a word's place in its line are turned
    round by those of the line's number. That costs no memory, as padding would.

    Returns
    -------
    shift, mask : int
        A byte lies at ``byte ^ (byte >> shift & mask)``.
    """
    fours = sum(leaf.width for leaf in leaves if leaf.width == 4)
    step = itemsize // 4 * (2 if 2 * fours > sum(leaf.width for leaf in leaves) else 1)
    zeros = (step & -step).bit_length() - 1 if itemsize % 4 == 0 else 0
    # One bit at least: a warp that puts 8 bytes a thread into two lines then writes the even
    # words of one and the odd ones of the other.
    return max(5, zeros), ((1 << min(5, max(1, zeros))) - 1) << 2


def _tile_rows(itemsize: int) -> int:
    """Return how many records a tile has, 0 if it would be too few.

    A multiple of 8: each tile then begins as many bytes after a multiple of 8 as the first one,
    and so does its part of each column. Of 128 where that fits: whole lines, for bytes too.
    """
    fit = max(TILE // itemsize, min(_LINE, LARGEST_TILE // itemsize))
    unit = min(_LINE, 1 << max(0, fit.bit_length() - 1))
    return fit // unit * unit if unit >= 8 else 0


def _groups(nbytes: int) -> int:
    """Round up to 32 words: those that a swizzle sorts anew."""
    return -(-nbytes // 128) * 128


def _sparse(leaves: Sequence[Leaf], itemsize: int) -> bool:
    """Whether so little is wanted that reading whole records would be more than twice as much."""
    sectors = {
        sector
        for leaf in leaves
        for offset, length in leaf.pieces
        for sector in range(offset // SECTOR, (offset + length - 1) // SECTOR + 1)
    }
    return 2 * SECTOR * len(sectors) <= itemsize


def _kind(
    leaf: Leaf, start: int, length: int, into: int, itemsize: int, place: int, rows: int
) -> tuple[int, int]:
    """Return how a piece is moved, and whether in the column by 8 bytes or by 4."""
    # What divides the address of each word: of its column, and of its part of the record.
    column = gcd(place, rows * leaf.width, 8)
    record = gcd(start, itemsize, 8)
    fours = gcd(length, into, leaf.width, 4) == 4
    alone = length == leaf.width
    if column < 4 or not (fours or alone):
        return SINGLE, 0
    wide = int(column == 8 and (alone or gcd(length, into, leaf.width, 8) == 8))
    if fours:
        return (ALIGNED if record >= 4 else SHIFTED), wide
    return (HALVES if gcd(record, length, 2) == 2 else OCTETS), wide


def _table(cuts: list[tuple[int, int, int, tuple[int, ...]]], rows: int) -> Table:
    """Cut what each piece has in a tile into tasks."""
    total = rows * sum(length for _, _, length, _ in cuts)
    most = max(TASK, min(LARGEST_TASK, 1 << (2 * total // (3 * THREADS // WARP)).bit_length() - 1))
    if total > LARGEST_TILE:  # long records, straight from global memory: not to have endless tables
        most = max(most, -(-total // 1024 // TASK) * TASK)
    tasks = []
    for kind, wide, length, (offset, *column) in cuts:
        magic, shift = division(length, rows * length)
        for start in range(0, rows * length, most):
            stop = min(start + most, rows * length)
            tasks.append((kind, wide, start, stop, offset, length, magic, shift, *column))
    # The dearest first: what is left for the last round is then small.
    tasks.sort(key=lambda row: (row[START] - row[STOP]) * _COST[row[KIND]])
    return np.array(tasks, np.int64).reshape(-1)


def division(length: int, end: int) -> tuple[int, int]:
    """Return with what to multiply, and how far to shift, to divide without a division.

    ``byte * magic >> shift == byte // length`` for all bytes below `end`, in 32 bits.

    Examples
    --------
    >>> magic, shift = division(12, 15360)
    >>> all(byte * magic >> shift == byte // 12 for byte in range(15360))
    True
    """
    if length == end:
        return 0, 0  # one record, however long
    for shift in range(31, -1, -1):
        # Rounded up: then no multiple of the length is taken for less. What that adds must
        # not add up to 1.
        magic = -(-(1 << shift) // length)
        if magic * end < 1 << 32 and (magic * length - (1 << shift)) * end < 1 << shift:
            return magic, shift
    raise AssertionError(f"{end} bytes are too many to be divided by {length}")


# -- pieces -----------------------------------------------------------------------


def _owners(leaves: Sequence[Leaf], itemsize: int) -> Table:
    """Return of each byte of a record which leaf is written there last; -1 for none."""
    owners = np.full(itemsize, -1, np.int64)
    for i, leaf in enumerate(leaves):
        for offset, length in leaf.pieces:
            owners[offset : offset + length] = i
    return owners


def _pieces(index: int, leaf: Leaf, owners: Table | None) -> Iterator[tuple[int, int, int, bool]]:
    """Yield a leaf's pieces: offset, length, where in its column's bytes of a record, and if whole.

    Of fields that overlap, the one that comes last in the records is written, as by NumPy; the
    tasks of a tile have no order, so that what others would write there is cut off.
    """
    into = 0
    for offset, length in leaf.pieces:
        own = None if owners is None else owners[offset : offset + length]
        if own is None or (own == index).all():
            yield offset, length, into, True
        else:
            for start, stop in _runs(own, index):
                yield offset + start, stop - start, into + start, False
        into += length


def _runs(owners: Table, index: int) -> list[tuple[int, int]]:
    """Return from where to where a leaf owns bytes."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], owners == index, [0]])))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]
