"""What a record is made of: its leaf fields, each a column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from zerocopy.errors import UnsupportedConversionError

#: What messages say was asked.
ASKED = "aos_to_soa(records)"


@dataclass(frozen=True)
class Leaf:
    """A field that is no record itself.

    Attributes
    ----------
    path : tuple of str
        Its name, after those of the records around it.
    dtype : numpy.dtype
        A value's type, in native byte order.
    shape : tuple of int
        Values a record: those of sub-arrays, the outermost first.
    swap : int
        Bytes of the units whose order is the other one; 0 if it is the machine's. A complex
        number is two units, a character of text one.
    pieces : tuple of (int, int)
        Where its bytes are: offset and length of each piece, in the column's order. One piece,
        unless a sub-array of records is around it.
    width : int
        Bytes a record in its column.
    """

    path: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    swap: int
    pieces: tuple[tuple[int, int], ...]
    width: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Here and not when it is asked for, which each call does of each leaf.
        object.__setattr__(self, "width", self.dtype.itemsize * prod(self.shape))

    @property
    def name(self) -> str:
        """The path in a word, for messages."""
        return ".".join(self.path)


def leaves(dtype: np.dtype[Any], fields: tuple[str, ...] | None = None) -> list[Leaf]:
    """Return the leaf fields of a record, in the order of their names.

    Parameters
    ----------
    dtype : numpy.dtype
        With fields: nested, sub-arrays, padding, overlapping, titles.
    fields : tuple of str, optional
        The top-level fields that are wanted; None: all.

    Raises
    ------
    UnsupportedConversionError
        A field holds Python objects.

    Examples
    --------
    >>> point = np.dtype([("x", "f4"), ("y", ">f4")])
    >>> for leaf in leaves(np.dtype([("id", "i8"), ("at", point, (2,))])):
    ...     print(leaf.name, leaf.dtype, leaf.shape, leaf.swap, leaf.pieces)
    id int64 () 0 ((0, 8),)
    at.x float32 (2,) 0 ((8, 4), (16, 4))
    at.y float32 (2,) 4 ((12, 4), (20, 4))
    """
    return list(_walk(dtype, (), (), (0,), fields))


def refuse_objects(name: str, dtype: np.dtype[Any]) -> None:
    """Raise for a field of Python objects, by its name."""
    if dtype.hasobject:
        raise UnsupportedConversionError(
            ASKED,
            f"field {name!r} holds Python objects, whose addresses alone are in the records",
            "leave it out: fields=[...] picks some",
        )


def parts(dtype: np.dtype[Any]) -> Iterator[tuple[str, np.dtype[Any], int]]:
    """Yield the fields of a record: name, type (sub-arrays included) and offset in bytes."""
    known: Any = dtype.fields  # by name and by title, with the title as a third item
    for name in dtype.names or ():
        yield name, known[name][0], known[name][1]


def _walk(
    dtype: np.dtype[Any],
    path: tuple[str, ...],
    shape: tuple[int, ...],
    offsets: tuple[int, ...],
    fields: tuple[str, ...] | None = None,
) -> Iterator[Leaf]:
    """Yield what is in a record that begins at each of some offsets."""
    for name, part, offset in parts(dtype):
        if fields is not None and name not in fields:
            continue
        base, inner = part.subdtype or (part, ())
        here = tuple(start + offset for start in offsets)
        if base.names is not None:
            # A row-major sub-array: records side by side.
            steps = range(0, base.itemsize * prod(inner), base.itemsize or 1) if base.itemsize else ()
            every = tuple(start + step for start in here for step in steps)
            yield from _walk(base, (*path, name), shape + inner, every)
        else:
            refuse_objects(".".join((*path, name)), base)
            length = base.itemsize * prod(inner)
            pieces = _joined([(start, length) for start in here]) if length else ()
            yield Leaf((*path, name), base.newbyteorder("="), shape + inner, _unit(base), pieces)


def _joined(pieces: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Make one piece of those that lie end to end."""
    joined: list[tuple[int, int]] = []
    for start, length in pieces:
        if joined and sum(joined[-1]) == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + length)
        else:
            joined.append((start, length))
    return tuple(joined)


def _unit(dtype: np.dtype[Any]) -> int:
    """Return the bytes that are turned round together, 0 if none are."""
    if dtype.isnative:
        return 0
    return {"c": dtype.itemsize // 2, "U": 4}.get(dtype.kind, dtype.itemsize)
