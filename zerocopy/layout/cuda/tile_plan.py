"""The GPU's plan of a record: a table of tasks, made on the host, so that one kernel serves all types.

A block of threads copies a *tile* of records, through its shared memory. A *task* is the part of one
leaf in the tile that one warp copies: :data:`TASK` bytes of its column. The host decides how, once per
record type, so that the threads of a warp do not diverge and need no division.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np

from zerocopy.layout.schema import FieldLeaf

Table = np.ndarray[Any, np.dtype[np.int64]]

#: Threads of a block, and of a warp.
THREADS, WARP = 256, 32

#: Smallest task in bytes, two words of 8 bytes per thread, so that each thread has two loads in flight;
#: and the largest, if that leaves at least three tasks for every two warps.
TASK, LARGEST_TASK = 512, 2048

#: Bytes of shared memory for a tile: 64 KiB per multiprocessor (compute capability 7.5) serve four
#: blocks, 100 KiB and more (8.6, 9.0) more blocks than fill it.
TILE = 16 << 10
#: Largest tile, for long records: longer runs of the columns, if possible 128 values, which is a task
#: of 4 bytes each. Half of a multiprocessor's threads are then resident, each with more loads in flight.
#: Up to this size, the 32-bit division by multiplication is exact for any length.
LARGEST_TILE = 32 << 10

#: Smallest read of global memory, and a cache line, in bytes.
SECTOR, _LINE = 32, 128

# Without shared memory: records per block, and bytes of one of their pieces, so few that the
# division is exact. A longer piece is copied one record at a time.
_DIRECT_ROWS, _DIRECT_BYTES = 512, 1 << 15
# And bytes of their records, because positions are 32-bit numbers.
_DIRECT_SPAN = 1 << 32

#: A row of the table. A task covers the bytes START to STOP of one piece of a leaf in the records of a
#: tile, record after record. In a record the piece is LENGTH bytes at OFFSET; byte // LENGTH is
#: byte * MAGIC >> SHIFT. In the column a record has WIDTH bytes, and the piece starts at INTO. The column
#: starts at COLUMN_OFFSET plus PITCHES times the pitch of the columns. SWAP is the leaf's. STEP: see `_step`.
ROW = (
    ACCESS,
    WIDE,
    START,
    STOP,
    OFFSET,
    LENGTH,
    MAGIC,
    SHIFT,
    WIDTH,
    INTO,
    COLUMN_OFFSET,
    PITCHES,
    SWAP,
    STEP,
) = (*range(14),)

#: How the records are accessed for a word of 4 bytes of the column: as one word; as two words; as two
#: halves, of two records or of one longer one; as four bytes. SINGLE: no words, bytes only. GAP: padding,
#: which has no column.
ALIGNED, SHIFTED, HALVES, OCTETS, SINGLE, GAP = range(6)

_COST = {ALIGNED: 1, SHIFTED: 2, HALVES: 2, OCTETS: 4, SINGLE: 8, GAP: 8}


@dataclass(frozen=True, eq=False)
class TilePlan:
    """The kernels' parameters for a record type.

    Attributes
    ----------
    rows : int
        Records of a tile.
    shared : int
        Bytes of shared memory that a block needs; 0: it accesses global memory directly.
    swizzle : (int, int)
        See :func:`swizzle`.
    has_padding : bool
        Whether the records have bytes that belong to no field.
    table : ndarray of int64
        The tasks, one after the other: see :data:`ROW`. COLUMN_OFFSET is 0.
    task_leaves : ndarray of int64
        The number of each task's leaf.
    """

    rows: int
    shared: int
    swizzle: tuple[int, int]
    has_padding: bool
    table: Table
    task_leaves: Table

    def table_for(self, column_offsets: Sequence[int] | None) -> Table:
        """Return the table for columns that start at these offsets, in bytes after a multiple of 8.

        None: each column follows the one before, at a distance of its width times a pitch. Computing a
        new table takes 1 us, and a new plan 30 to 200 us.

        Examples
        --------
        >>> from zerocopy.layout.schema import leaves
        >>> plan = tile_plan(tuple(leaves(np.dtype("f4,f4"))), 8, 0, (0, 0))
        >>> set(plan.table_for([0, 4096]).reshape(-1, len(ROW))[:, COLUMN_OFFSET].tolist())
        {0, 4096}
        """
        if column_offsets is None:
            return self.table
        tasks = self.table.reshape(-1, len(ROW)).copy()
        tasks[:, COLUMN_OFFSET] = np.asarray(column_offsets, np.int64)[self.task_leaves]
        return tasks.reshape(-1)


@lru_cache(maxsize=128)
def tile_plan(
    leaves: tuple[FieldLeaf, ...],
    itemsize: int,
    head: int = 0,
    alignments: tuple[int, ...] | None = None,
    to_rows: bool = False,
) -> TilePlan:
    """Return the plan of a record type.

    Parameters
    ----------
    leaves : tuple of FieldLeaf
        The leaves to copy.
    itemsize : int
        Bytes of a record.
    head : int
        Address of the first record modulo 8.
    alignments : tuple of int, optional
        Address of each column modulo 8. None: each column follows the one before, at a distance of its
        width times a pitch that is a multiple of 8. The addresses themselves are in `TilePlan.table_for`,
        so that columns at new addresses need no new plan.
    to_rows : bool
        Whether records are written.

    Examples
    --------
    >>> from zerocopy.layout.schema import leaves
    >>> dtype = np.dtype([("id", "i8"), ("x", "f4"), ("kind", "u1")])
    >>> plan = tile_plan(tuple(leaves(dtype)), dtype.itemsize)
    >>> plan.rows, plan.shared, plan.swizzle, len(plan.table) // len(ROW)
    (1152, 14976, (5, 4), 16)
    """
    owners = _owners(leaves, itemsize)
    # Bytes per record in the preceding columns.
    before = np.cumsum([0, *(leaf.width for leaf in leaves)]).tolist()
    pieces = [
        (i, offset, length, into, complete)
        for i, leaf in enumerate(leaves)
        for offset, length, into, complete in _pieces(i, leaf, owners if to_rows else None)
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
    for i, offset, length, into, complete in pieces:
        leaf, start = leaves[i], 0 if alignments is None else alignments[i]
        access, wide = _access(leaf, offset + head, length, into, itemsize, start, rows)
        if direct and access == SHIFTED:
            access = OCTETS  # the last word may reach past the records' end
        # The number of the leaf takes the place of COLUMN_OFFSET until the tasks are sorted.
        column = (leaf.width, into, i, before[i] if alignments is None else 0, leaf.swap)
        step = _step(leaf, length, itemsize) if wide and complete else 0
        cuts.append((access if complete else SINGLE, wide, length, (offset + head, *column, step)))
    cuts += [(GAP, 0, b - a, (a + head, 0, 0, 0, 0, 0, 0)) for a, b in gaps]
    shared = 0 if direct else _round_to_swizzle(head + rows * itemsize)
    has_padding = bool((owners < 0).any())
    tasks = _table(cuts, rows)
    task_leaves = tasks[:, COLUMN_OFFSET].copy()
    tasks[:, COLUMN_OFFSET] = 0
    return TilePlan(rows, shared, swizzle(leaves, itemsize), has_padding, tasks.reshape(-1), task_leaves)


def swizzle(leaves: Sequence[FieldLeaf], itemsize: int) -> tuple[int, int]:
    """Return the shift and mask that map a byte's address in a tile to where it is stored.

    Shared memory has 32 banks, which hold words of 4 bytes in turn. A warp reads a field of 32
    records, or of every other one if it has 4 bytes: words at a distance of 2**z times an odd
    number. They are in 32 / 2**z banks; words in one bank are in lines (of 32 words) whose
    numbers differ in the last z bits. So the last z bits of a word's position in its line are
    XORed with those of the line's number. Unlike padding, this needs no memory.

    Returns
    -------
    shift, mask : int
        A byte is stored at ``byte ^ (byte >> shift & mask)``.
    """
    fours = sum(leaf.width for leaf in leaves if leaf.width == 4)
    step = itemsize // 4 * (2 if 2 * fours > sum(leaf.width for leaf in leaves) else 1)
    zeros = (step & -step).bit_length() - 1 if itemsize % 4 == 0 else 0
    # At least one bit: a warp that stores 8 bytes per thread in two lines then writes the even
    # words of one and the odd words of the other.
    return max(5, zeros), ((1 << min(5, max(1, zeros))) - 1) << 2


def _tile_rows(itemsize: int) -> int:
    """Return how many records a tile has, 0 if they would be too few.

    A multiple of 8, so that all tiles, and their parts of each column, have the same alignment to
    8 bytes; a multiple of 128 if that fits, so that columns of bytes have whole cache lines too.
    """
    fit = max(TILE // itemsize, min(_LINE, LARGEST_TILE // itemsize))
    unit = min(_LINE, 1 << max(0, fit.bit_length() - 1))
    return fit // unit * unit if unit >= 8 else 0


def _round_to_swizzle(nbytes: int) -> int:
    """Round up to 32 words, which a swizzle permutes."""
    return -(-nbytes // 128) * 128


def _sparse(leaves: Sequence[FieldLeaf], itemsize: int) -> bool:
    """Whether the leaves occupy so few sectors that whole records would be at least twice as many."""
    sectors = {
        sector
        for leaf in leaves
        for offset, length in leaf.pieces
        for sector in range(offset // SECTOR, (offset + length - 1) // SECTOR + 1)
    }
    return 2 * SECTOR * len(sectors) <= itemsize


def _access(
    leaf: FieldLeaf, start: int, length: int, into: int, itemsize: int, alignment: int, rows: int
) -> tuple[int, int]:
    """Return the kind of access to a piece in the records, and whether the column takes 8-byte words."""
    # The alignment of each word in the column, and of its part of the record.
    column = gcd(alignment, rows * leaf.width, 8)
    record = gcd(start, itemsize, 8)
    fours = gcd(length, into, leaf.width, 4) == 4
    alone = length == leaf.width
    if column < 4 or not (fours or alone):
        return SINGLE, 0
    wide = int(column == 8 and (alone or gcd(length, into, leaf.width, 8) == 8))
    if fours:
        return (ALIGNED if record >= 4 else SHIFTED), wide
    return (HALVES if gcd(record, length, 2) == 2 else OCTETS), wide


def _step(leaf: FieldLeaf, length: int, itemsize: int) -> int:
    """Return the distance in the records from a thread's 8 bytes to its next ones, 8 * WARP bytes later.

    0 if it varies, or if the column's words need more than a copy: the kernels then locate each word.
    """
    if leaf.swap or length != leaf.width or length not in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        return 0
    return 8 * WARP // length * itemsize


def _table(cuts: list[tuple[int, int, int, tuple[int, ...]]], rows: int) -> Table:
    """Split each piece's bytes in a tile into tasks."""
    total = rows * sum(length for _, _, length, _ in cuts)
    size = max(TASK, min(LARGEST_TASK, 1 << (2 * total // (3 * THREADS // WARP)).bit_length() - 1))
    if total > LARGEST_TILE:  # long records without shared memory: limit the length of the table
        size = max(size, -(-total // 1024 // TASK) * TASK)
    tasks = []
    for access, wide, length, (offset, *column) in cuts:
        magic, shift = division(length, rows * length)
        for start in range(0, rows * length, size):
            stop = min(start + size, rows * length)
            tasks.append((access, wide, start, stop, offset, length, magic, shift, *column))
    # The most expensive first, so that the warps finish at about the same time.
    tasks.sort(key=lambda row: (row[START] - row[STOP]) * _COST[row[ACCESS]])
    return np.array(tasks, np.int64).reshape(-1, len(ROW))


def division(length: int, end: int) -> tuple[int, int]:
    """Return a factor and a shift that replace a division.

    ``byte * magic >> shift == byte // length`` for all bytes below `end`, in 32 bits.

    Examples
    --------
    >>> magic, shift = division(12, 15360)
    >>> all(byte * magic >> shift == byte // 12 for byte in range(15360))
    True
    """
    if length == end:
        return 0, 0  # one record
    for shift in range(31, -1, -1):
        # Rounded up, so that no quotient is too small. The error must stay below 1.
        magic = -(-(1 << shift) // length)
        if magic * end < 1 << 32 and (magic * length - (1 << shift)) * end < 1 << shift:
            return magic, shift
    raise AssertionError(f"no exact 32-bit division by {length} exists for {end} bytes")


# -- pieces -----------------------------------------------------------------------


def _owners(leaves: Sequence[FieldLeaf], itemsize: int) -> Table:
    """Return for each byte of a record the last leaf that is written there; -1 for none."""
    owners = np.full(itemsize, -1, np.int64)
    for i, leaf in enumerate(leaves):
        for offset, length in leaf.pieces:
            owners[offset : offset + length] = i
    return owners


def _pieces(index: int, leaf: FieldLeaf, owners: Table | None) -> Iterator[tuple[int, int, int, bool]]:
    """Yield a leaf's pieces: offset, length, position in the column's record, and whether complete.

    The tasks of a tile have no order. So if fields overlap, only the last one is written, as with
    NumPy: the shared bytes are removed from the others' pieces.
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
    """Return the ranges of bytes that a leaf owns."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], owners == index, [0]])))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]
