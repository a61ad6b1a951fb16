"""What a column becomes where a tensor alone cannot say it: ``Masked`` and ``Encoded``."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

_TEXT = ("string", "large_string", "binary", "large_binary")


class Masked(NamedTuple):
    """Values, and which of them are null: ``convert(..., nulls="mask")``.

    Attributes
    ----------
    values : tensor
        What stands at a null is not defined.
    mask : tensor
        Of bool, of the rows' number, True where a value is null, as in ``numpy.ma`` and pandas.

    Notes
    -----
    Arrow's validity bitmap says the opposite, a bit each (Arrow Columnar Format, "Validity bitmaps"): the
    mask is always a copy of it. `values` are an alias where the column's memory allows it.

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
        Of text and lists: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``.
    sizes : tensor, optional
        Of list views: row ``i`` is ``values[offsets[i]:offsets[i] + sizes[i]]``.
    categories : tensor or Encoded, optional
        What the codes stand for: row ``i`` is ``categories[values[i]]``.
    run_ends : tensor, optional
        Of run-end encoding: where each run stops.
    unit : str, optional
        Of dates, times and durations: ``"D"``, ``"s"``, ``"ms"``, ``"us"``, ``"ns"``; dates and
        timestamps count it from 1970-01-01T00:00:00, in UTC where there is a time zone.
    timezone : str, optional
        Of timestamps: its name, ``"Europe/Zurich"``, or an offset, ``"+01:00"``.
    scale : int, optional
        Of decimals: the value is the integer times ``10 ** -scale``.
    ordered : bool
        Whether the categories have an order.

    Notes
    -----
    The parts are Arrow's buffers (Arrow Columnar Format, "Variable-size Binary Layout", "Variable-size
    List Layout", "ListView Layout", "Dictionary-encoded Layout", "Run-End Encoded Layout"), and are
    aliased wherever the target takes them.

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
    run_ends: Any = None
    unit: str | None = None
    timezone: str | None = None
    scale: int | None = None
    ordered: bool = False

    def to_pylist(self) -> list[Any]:
        """Return the rows of text, or of numbers, as Python objects: for looking at them.

        Returns
        -------
        list
            A copy: str, bytes, int, float, ``decimal.Decimal`` or lists of numbers.

        Raises
        ------
        TypeError
            The type is another one.
        """
        import numpy as np

        from zerocopy import convert

        if isinstance(self.values, (dict, Encoded, Masked)):
            raise TypeError(f"rows of {self.type} are not put together here; take its parts")
        values = convert(self.values, "numpy")
        if self.scale is not None:
            return [decimal.Decimal(_whole(value)).scaleb(-self.scale) for value in values.tolist()]
        if self.categories is not None:
            names = self.categories
            rows = names.to_pylist() if isinstance(names, Encoded) else convert(names, "numpy").tolist()
            # A code below nought stands for nothing: that is how nulls=-1 fills them.
            return [rows[code] if code >= 0 else None for code in values.tolist()]
        if self.offsets is None:
            found: list[Any] = values.tolist()
            return found
        ends = np.asarray(convert(self.offsets, "numpy")).tolist()
        sizes = None if self.sizes is None else convert(self.sizes, "numpy").tolist()
        rows = []
        for i, start in enumerate(ends[: len(ends) if sizes else -1]):
            row = values[start : start + sizes[i] if sizes else ends[i + 1]]
            text = row.tobytes() if self.type.startswith(_TEXT) else row.tolist()
            rows.append(text.decode() if "string" in self.type and isinstance(text, bytes) else text)
        return rows

    def __repr__(self) -> str:
        said = (
            f"{f.name}={v!r}"
            for f in fields(self)
            if (v := getattr(self, f.name)) is not None and v is not False
        )
        return f"Encoded({', '.join(said)})"


def _whole(limbs: Any) -> int:
    """Return a decimal's integer, which wide ones have in limbs of 64 bits, the lowest first."""
    if isinstance(limbs, int):
        return limbs
    whole: int = sum(limb << (64 * i) for i, limb in enumerate(limbs))
    return whole - (1 << (64 * len(limbs))) if limbs[-1] >> 63 else whole


def parts(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of a result, or of what will be one, with their paths."""
    found: list[tuple[str, Any]] = []
    rebuild(tree, lambda leaf, where: found.append((where, leaf)), path)
    return found


def rebuild(tree: Any, leaf: Callable[[Any, str], Any], path: str = "") -> Any:
    """Return the same result with ``leaf(value, path)`` in place of each of its leaves."""
    if isinstance(tree, dict):
        return {key: rebuild(value, leaf, f"{path}[{key!r}]") for key, value in tree.items()}
    if isinstance(tree, Masked):
        return Masked(rebuild(tree.values, leaf, path + ".values"), rebuild(tree.mask, leaf, path + ".mask"))
    if isinstance(tree, Encoded):
        inner = {
            name: rebuild(value, leaf, f"{path}.{name}")
            for name in ("values", "offsets", "sizes", "categories", "run_ends")
            if (value := getattr(tree, name)) is not None
        }
        return replace(tree, **inner)
    return leaf(tree, path)
