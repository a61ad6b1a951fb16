"""A record type, its fields and their positions in a record: each leaf field becomes one column.

Also the checks of options that ``aos_to_soa`` and ``soa_to_aos`` share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from zerocopy.errors import CopyRequiredError, OptionError, UnsupportedConversionError
from zerocopy.source import Array

#: Bytes of a cache line.
LINE = 64


@dataclass(frozen=True)
class FieldLeaf:
    """A field that is not itself a record.

    Attributes
    ----------
    path : tuple of str
        Its name, after the names of the records that contain it.
    dtype : numpy.dtype
        Type of a value, in native byte order.
    shape : tuple of int
        Shape of the field in one record: that of its sub-arrays, outermost first.
    swap : int
        Size in bytes of the units whose byte order is reversed; 0 for native order. A complex
        number has two units, a character of text one.
    pieces : tuple of (int, int)
        Offset and length of each piece of a record that belongs to the leaf, in the column's
        order. More than one piece if a sub-array of records contains the leaf.
    width : int
        Bytes per record in the column.
    """

    path: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    swap: int
    pieces: tuple[tuple[int, int], ...]
    width: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once, because each call reads it for each leaf.
        object.__setattr__(self, "width", self.dtype.itemsize * prod(self.shape))

    @property
    def name(self) -> str:
        """The path, joined by dots, for messages."""
        return ".".join(self.path)


def leaves(dtype: np.dtype[Any], fields: tuple[str, ...] | None = None) -> list[FieldLeaf]:
    """Return the leaf fields of a structured type, in the order of their names.

    `fields` selects top-level fields. Fields of Python objects are refused.

    Examples
    --------
    >>> point = np.dtype([("x", "f4"), ("y", ">f4")])
    >>> for leaf in leaves(np.dtype([("id", "i8"), ("at", point, (2,))])):
    ...     print(leaf.name, leaf.dtype, leaf.shape, leaf.swap, leaf.pieces)
    id int64 () 0 ((0, 8),)
    at.x float32 (2,) 0 ((8, 4), (16, 4))
    at.y float32 (2,) 4 ((12, 4), (20, 4))
    """
    return list(_walk(dtype, (), (), (0,), None if fields is None else frozenset(fields)))


def refuse_objects(name: str, dtype: np.dtype[Any]) -> None:
    """Raise if a field holds Python objects."""
    if dtype.hasobject:
        why = f"field {name!r} holds Python objects: the records hold only their addresses"
        remedy = "select other fields with fields=[...]"
        raise UnsupportedConversionError(AOS_TO_SOA, why, remedy, code="python-objects")


def count_records(nbytes: int, itemsize: int) -> int:
    """Return how many records a buffer holds; raise unless it is a whole number."""
    if itemsize <= 0 or nbytes % itemsize:
        why = f"{nbytes} bytes are not a whole number of records of {itemsize} bytes"
        remedy = "remove the remaining bytes, or check the dtype: align=True adds padding"
        raise UnsupportedConversionError(AOS_TO_SOA, why, remedy, code="partial-record")
    return nbytes // itemsize


def parts(dtype: np.dtype[Any]) -> Iterator[tuple[str, np.dtype[Any], int]]:
    """Yield the fields of a record: name, type (sub-arrays included) and offset in bytes."""
    known: Any = dtype.fields  # by name and by title, with the title as a third item
    for name in dtype.names or ():
        yield name, known[name][0], known[name][1]


def dtype_of(columns: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the type of records that hold columns: the columns' types, without padding."""
    if not all(isinstance(name, str) for name in columns):
        why = f"the names of the columns are {[*columns][:5]}, and names of fields must be strings"
        raise UnsupportedConversionError(SOA_TO_AOS, why, "rename the columns", code="unknown-name")
    formats: list[Any] = []
    for name, column in columns.items():
        if isinstance(column, Mapping):
            formats.append(dtype_of(column))
            continue
        dtype = getattr(column, "dtype", None)
        if not isinstance(dtype, np.dtype):  # torch's, of a tensor on a CUDA device
            dtype = np.dtype(column.__cuda_array_interface__["typestr"])
        formats.append(_sub_array(name, dtype, tuple(column.shape[1:])) if len(column.shape) > 1 else dtype)
    return np.dtype({"names": list(columns), "formats": formats}) if columns else np.dtype([])


def _sub_array(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.dtype[Any]:
    try:
        return np.dtype((dtype, shape))
    except ValueError as error:
        # Items without bytes (S0), or rows of more than 2 GiB.
        why = f"NumPy has no such field as a row of column {name!r}, {dtype.str} of shape {shape}: {error}"
        remedy = f"columns[{name!r}] = columns[{name!r}].astype('{dtype.kind}1') gives its items a size"
        if dtype.itemsize:
            remedy = "leave the column out, or split it into several columns"
        raise UnsupportedConversionError(SOA_TO_AOS, why, remedy, code="missing-dtype") from error


def _walk(
    dtype: np.dtype[Any],
    path: tuple[str, ...],
    shape: tuple[int, ...],
    offsets: tuple[int, ...],
    fields: frozenset[str] | None = None,
) -> Iterator[FieldLeaf]:
    for name, part, offset in parts(dtype):
        if fields is not None and name not in fields:
            continue
        base, inner = part.subdtype or (part, ())
        starts = tuple(start + offset for start in offsets)
        if base.names is not None:
            # A row-major sub-array stores its records contiguously.
            steps = range(0, base.itemsize * prod(inner), base.itemsize or 1) if base.itemsize else ()
            every = tuple(start + step for start in starts for step in steps)
            yield from _walk(base, (*path, name), shape + inner, every)
        else:
            refuse_objects(".".join((*path, name)), base)
            length = base.itemsize * prod(inner)
            pieces = _joined([(start, length) for start in starts]) if length else ()
            yield FieldLeaf((*path, name), base.newbyteorder("="), shape + inner, _unit(base), pieces)


def _joined(pieces: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for start, length in pieces:
        if joined and sum(joined[-1]) == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + length)
        else:
            joined.append((start, length))
    return tuple(joined)


def _unit(dtype: np.dtype[Any]) -> int:
    """Return the size of the units whose byte order is reversed; 0 for native order."""
    if dtype.isnative:
        return 0
    return {"c": dtype.itemsize // 2, "U": 4}.get(dtype.kind, dtype.itemsize)


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

    @cached_property
    def prepared(self) -> tuple[Any, ...] | None:
        """The description for the core's ``split_records`` and ``join_columns``; None if they refuse it."""
        leaves = [(leaf.path[0], leaf.dtype, leaf.shape, leaf.width) for leaf in self.leaves]
        is_flat = all(len(leaf.path) == 1 and leaf.width and len(leaf.shape) <= 8 for leaf in self.leaves)
        return (tuple(leaves), self.order, self.pieces) if is_flat and 2 <= len(leaves) <= 64 else None


@lru_cache(maxsize=256)
def record_type(dtype: np.dtype[Any], fields: tuple[str, ...] | None = None) -> RecordType:
    """Return a record's type: the same object for equal dtypes."""
    return RecordType(dtype, fields)


#: Read by the core: the `RecordType.prepared` of a dtype, and the dtype for names and dtypes of columns.
LAYOUTS: dict[Any, Any] = {}
_MOST_LAYOUTS = 256


def keep_layout(key: Any, value: Any) -> None:
    if key not in LAYOUTS:
        if len(LAYOUTS) >= _MOST_LAYOUTS:
            LAYOUTS.clear()
        LAYOUTS[key] = value


def view_of(records: Array, leaf: FieldLeaf) -> Array:
    """Return a strided view of one leaf of an array of records."""
    for name in leaf.path:
        records = records[name]
    return records


AOS_TO_SOA = "aos_to_soa(records)"
SOA_TO_AOS = "soa_to_aos(columns)"


def check_options(asked: str, threads: object, copy: object) -> None:
    """Raise OptionError unless `threads` is a positive integer or None, and `copy` a bool or None."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        why = f"threads must be an integer of at least 1, or None; got {threads!r}"
        raise OptionError(asked, why, "leave threads= out")
    if not (copy is None or copy is True or copy is False):  # `in` would accept 0 and 1
        why = f"copy must be True, False or None; got {copy!r}"
        raise OptionError(asked, why, "pass copy=True, or leave it out")


def refuse_stream(asked: str, stream: Any) -> None:
    """Raise if there is a stream for memory of the host."""
    if stream is not None:
        why = "the data is in host memory, which has no streams"
        raise UnsupportedConversionError(asked, why, "leave stream= out", code="option-value")


def copy_required(asked: str, why: str, *, code: str) -> CopyRequiredError:
    """Return the error for ``copy=False`` where a copy is needed."""
    return CopyRequiredError(f"{asked[:-1]}, copy=False)", why, "leave copy=False out", code=code)
