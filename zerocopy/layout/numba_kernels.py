"""Rows copied to columns and back with Numba, for installations without the compiled core.

For each record type there is one loop over the rows, as one would write it by hand::

    for row in range(len(records)):
        c0[row].u0 = records[row].p0
        c1[row].u0 = records[row].p1

Numba compiles it in each process when it is first called, which takes a second or more. Values are copied as
unsigned integers of 8, 4, 2 and 1 bytes, so that the bits of each type stay as they are.

The loops release the GIL and run on the threads of :mod:`zerocopy.layout.threads`. Numba's own threads are
not safe in a library: its ``workqueue`` layer ends the process if two Python threads enter it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit, uint64

from zerocopy.layout.schema import RecordType
from zerocopy.source import Array

#: Most integers of a record: with more, Numba would compile for a minute.
MAX_UNITS = 128
#: Units of a column: offset in a record, offset in an item, bytes, and whether the bytes are reversed.
Unit = tuple[int, int, int, bool]

# Every other byte, and every other pair of bytes.
_BYTES, _SHORTS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)


def suits(records: Array, kind: RecordType, columns: Sequence[Array]) -> bool:
    """Whether the loops can copy some records: contiguous arrays, fields that do not overlap."""
    return (
        kind.disjoint
        and not kind.dtype.hasobject
        and all(array.flags.c_contiguous for array in [records, *columns])
        and all(leaf.swap in (0, 2, 4, 8) for leaf in kind.leaves)
        and sum([len(_units(0, 0, leaf.width, leaf.swap)) for leaf in kind.leaves]) <= MAX_UNITS
    )


def read_rows(records: Array, columns: Sequence[Array], pieces: Array, streams: bool) -> None:
    """Fill columns from records, as the function of the core does."""
    _call("{column} = {record}", records, columns, pieces)


def write_rows(records: Array, columns: Sequence[Array], pieces: Array, streams: bool) -> None:
    """Write columns to records, as the function of the core does, but not the padding."""
    _call("{record} = {column}", records, columns, pieces)


def _call(statement: str, records: Array, columns: Sequence[Array], pieces: Array) -> None:
    widths = tuple([column.nbytes // max(1, len(column)) for column in columns])
    if not len(records) or not any(widths):
        return
    loop, record, items = _loop(statement, records.itemsize, widths, tuple(map(tuple, pieces.tolist())))
    arrays = [column.reshape(-1).view(item) for column, item in zip(columns, items, strict=True) if item]
    loop(records.view(record), *arrays)


@lru_cache(maxsize=64)
def _loop(
    statement: str, itemsize: int, widths: tuple[int, ...], pieces: tuple[tuple[int, int, int, int], ...]
) -> tuple[Callable[..., None], np.dtype[Any], list[np.dtype[Any] | None]]:
    """Return the loop of a record type, and the types as which it takes records and columns."""
    units = [list[Unit]() for _ in widths]
    for number, offset, length, swap in pieces:
        units[number] += _units(offset, sum([size for _, _, size, _ in units[number]]), length, swap)
    lines, places = [], list[tuple[int, int]]()
    for number, of_column in enumerate(units):
        for k, (offset, _, size, reverses) in enumerate(of_column):
            names = {"column": f"c{number}[row].u{k}", "record": f"records[row].p{len(places)}"}
            target, _, source = statement.format(**names).partition(" = ")
            lines.append(f"{target} = {f'in_order({source}, {8 * size})' if reverses else source}")
            places.append((offset, size))
    items = [
        _integers("u", [unit[1:3] for unit in of_column], width) if of_column else None
        for of_column, width in zip(units, widths, strict=True)
    ]
    columns = [f"c{number}" for number, item in enumerate(items) if item is not None]
    return _compiled(columns, lines), _integers("p", places, itemsize), items


def _units(offset: int, start: int, length: int, swap: int) -> list[Unit]:
    units, end = [], start + length
    while start < end:
        size = swap or next(size for size in (8, 4, 2, 1) if size <= end - start)
        units.append((offset, start, size, swap > 0))
        start, offset = start + size, offset + size
    return units


def _integers(prefix: str, places: Sequence[tuple[int, int]], itemsize: int) -> np.dtype[Any]:
    """Return the type of records of unsigned integers at some places: offset and bytes."""
    names = [f"{prefix}{k}" for k in range(len(places))]
    formats = [f"u{size}" for _, size in places]
    offsets = [offset for offset, _ in places]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize})


def _compiled(columns: list[str], lines: list[str]) -> Callable[..., None]:
    """Return a loop over the rows that runs some statements."""
    text = [f"def loop(records, {', '.join(columns)}):", "    for row in range(len(records)):"]
    text += [f"        {line}" for line in lines]
    names: dict[str, Any] = {"in_order": _in_order}
    exec("\n".join(text), names)
    loop: Callable[..., None] = njit(nogil=True, cache=False, error_model="numpy")(names["loop"])
    return loop


@njit(nogil=True, cache=False)
def _in_order(value: Any, bits: Any) -> Any:
    """Return an integer of some bits with its bytes reversed; LLVM makes one instruction of it."""
    value = uint64(value)
    value = (value >> uint64(8)) & _BYTES | (value & _BYTES) << uint64(8)
    value = (value >> uint64(16)) & _SHORTS | (value & _SHORTS) << uint64(16)
    return (value >> uint64(32) | value << uint64(32)) >> uint64(64 - bits)
