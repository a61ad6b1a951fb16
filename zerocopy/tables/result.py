"""Results for columns that one tensor cannot represent: ``Masked`` and ``Encoded``."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple

_TEXT = ("string", "large_string", "binary", "large_binary")


class Masked(NamedTuple):
    """Values, and which of them are null: ``convert(..., nulls="mask")``.

    Attributes
    ----------
    values : tensor
        Undefined where a value is null.
    mask : tensor
        One bool per row, True where a value is null, as in ``numpy.ma`` and pandas.

    Notes
    -----
    The mask is always a copy: Arrow's validity bitmap is the opposite, with one bit per row (Arrow Columnar
    Format, "Validity bitmaps"). `values` are an alias if the column's memory allows it.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> values, mask = zc.convert(pa.array([1, None, 3]), to="numpy", nulls="mask")
    >>> mask
    array([False,  True, False])
    """

    values: Any
    mask: Any


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A column that tensors have no type for, as numbers: ``convert(..., encode=True)``.

    Attributes
    ----------
    type : str
        Its Arrow type: ``"timestamp[us, tz=UTC]"``.
    values : tensor, Encoded or dict
        Integers, codes, the bytes of text, the elements of lists, a struct's fields.
    offsets : tensor, optional
        For text and lists: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``.
    sizes : tensor, optional
        For list views: row ``i`` is ``values[offsets[i]:offsets[i] + sizes[i]]``.
    categories : tensor or Encoded, optional
        For codes: row ``i`` is ``categories[values[i]]``.
    unit : str, optional
        For dates, times and durations: ``"D"``, ``"s"``, ``"ms"``, ``"us"``, ``"ns"``; dates and
        timestamps count from 1970-01-01T00:00:00, in UTC if there is a time zone.
    timezone : str, optional
        For timestamps: its name, ``"Europe/Zurich"``, or an offset, ``"+01:00"``.
    scale : int, optional
        For decimals: the value is the integer times ``10 ** -scale``.
    ordered : bool
        Whether the categories have an order.

    Notes
    -----
    The parts are Arrow's buffers (Arrow Columnar Format, "Variable-size Binary Layout", "Variable-size
    List Layout", "ListView Layout", "Dictionary-encoded Layout"), and are aliased if the target takes them.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> city = zc.convert(pa.array(["Bern", "Oslo", "Bern"]).dictionary_encode(), to="numpy", encode=True)
    >>> city.values, city.categories.to_pylist()
    (array([0, 1, 0], dtype=int32), ['Bern', 'Oslo'])
    """

    type: str
    values: Any
    offsets: Any = None
    sizes: Any = None
    categories: Any = None
    unit: str | None = None
    timezone: str | None = None
    scale: int | None = None
    ordered: bool = False

    def to_pylist(self) -> list[Any]:
        """Return the rows of text, or of numbers, as Python objects.

        Returns
        -------
        list
            A copy: str, bytes, int, float, ``decimal.Decimal`` or lists of numbers.

        Raises
        ------
        TypeError
            The rows are of another type.
        """
        from zerocopy import convert

        if isinstance(self.values, (dict, Encoded, Masked)):
            raise TypeError(f"to_pylist() does not assemble rows of {self.type}; read the parts instead")
        values = convert(self.values, "numpy")
        if self.scale is not None:
            return [decimal.Decimal(integer_of(value)).scaleb(-self.scale) for value in values.tolist()]
        if self.categories is not None:
            names = self.categories
            rows = names.to_pylist() if isinstance(names, Encoded) else convert(names, "numpy").tolist()
            # nulls=-1 fills codes of null rows with -1.
            return [rows[code] if code >= 0 else None for code in values.tolist()]
        if self.offsets is None:
            return list(values.tolist())
        sizes = None if self.sizes is None else convert(self.sizes, "numpy").tolist()
        rows = split_rows(values, convert(self.offsets, "numpy").tolist(), sizes)
        if not self.type.startswith(_TEXT):
            return [row.tolist() for row in rows]
        texts = [row.tobytes() for row in rows]
        return [text.decode() for text in texts] if "string" in self.type else texts

    def __repr__(self) -> str:
        parts = (
            f"{f.name}={v!r}"
            for f in fields(self)
            if (v := getattr(self, f.name)) is not None and v is not False
        )
        return f"Encoded({', '.join(parts)})"


def split_rows(values: Any, offsets: Sequence[int], sizes: Sequence[int] | None = None) -> list[Any]:
    """Return each row's slice of the values of lists, or of list views, which have sizes."""
    if sizes is None:
        return [values[start:stop] for start, stop in pairwise(offsets)]
    return [values[start : start + size] for start, size in zip(offsets, sizes, strict=True)]


def integer_of(limbs: Any) -> int:
    """Return a decimal's integer from its limbs of 64 bits, the lowest first, in two's complement."""
    if isinstance(limbs, int):
        return limbs
    whole: int = sum(limb << (64 * i) for i, limb in enumerate(limbs))
    return whole - (1 << (64 * len(limbs))) if limbs[-1] >> 63 else whole


def parts(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of a result, or of a plan's tree, with their paths."""
    leaves: list[tuple[str, Any]] = []
    rebuild(tree, lambda leaf, place: leaves.append((place, leaf)), path)
    return leaves


def rebuild(tree: Any, leaf: Callable[[Any, str], Any], path: str = "") -> Any:
    """Return the same result with ``leaf(value, path)`` in place of each of its leaves."""
    if isinstance(tree, dict):
        return {key: rebuild(value, leaf, f"{path}[{key!r}]") for key, value in tree.items()}
    if isinstance(tree, Masked):
        return Masked(rebuild(tree.values, leaf, path + ".values"), rebuild(tree.mask, leaf, path + ".mask"))
    if isinstance(tree, Encoded):
        inner = {
            name: rebuild(value, leaf, f"{path}.{name}")
            for name in ("values", "offsets", "sizes", "categories")
            if (value := getattr(tree, name)) is not None
        }
        return replace(tree, **inner)
    return leaf(tree, path)
