"""``nulls=``: the policy for nulls in tensors, which have none."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zerocopy.dtype import DType
from zerocopy.errors import Fix, LossyConversionError, Reason
from zerocopy.errors.invalid_option import invalid_value
from zerocopy.source import Array, Source
from zerocopy.strided_view import contiguous_strides
from zerocopy.tables import placement
from zerocopy.tables.column import Column

DROPPED = Reason("rows with nulls are left out", code="dropped-rows")
#: The policies that have a name.
NAMES = ("mask", "nan", "drop")
_NAT = np.iinfo(np.int64).min
_MASK = Fix(options={"nulls": "mask"}, effect="gives a mask with the values")
_NAN = Fix(options={"nulls": "nan"}, effect="fills them with NaN")
_ZERO = Fix(options={"nulls": 0}, effect="fills them with 0")
_DROP = Fix(options={"nulls": "drop"}, effect="leaves their rows out")
#: For codes of categories, of which 0 is the first one's.
_NO_CODE = Fix(options={"nulls": -1}, effect="gives them the code -1")
#: For frameworks that have no tensors, and so no option for nulls.
_FILLED = Fix(action="fill-nulls:0", effect="fills them with 0")
_FILLED_FALSE = Fix(action="fill-nulls:False", effect="fills them with False")
#: For results without masks: matrices and records.
NO_MASK = (_ZERO, _NAN, Fix(options={"layout": "columns"}, effect="gives masks"))
_FLOATS: tuple[Fix, ...] = (_MASK, _NAN)
_OTHERS: tuple[Fix, ...] = (_MASK, _ZERO)
_CODES: tuple[Fix, ...] = (_MASK, _NO_CODE)
#: NaN in place of nulls needs floats; for integers and booleans.
_AS_FLOATS = Fix(options={"nulls": "nan", "dtype": "float32"}, effect="fills them with NaN, in floats")


@dataclass(frozen=True, slots=True)
class Nulls:
    """One column's policy: refuse nulls, give a mask, fill them, or leave their rows out.

    Attributes
    ----------
    mode : str
        ``"refuse"``, ``"mask"``, ``"nan"``, ``"fill"`` or ``"drop"``.
    value : object
        The value that fills them.
    """

    mode: str = "refuse"
    value: object = None

    @property
    def drops(self) -> bool:
        """Whether rows with nulls are left out of the table, before columns are decoded."""
        return self.mode == "drop"

    @property
    def is_negative(self) -> bool:
        """Whether nulls become a negative integer."""
        return self.mode == "fill" and type(self.value) is int and self.value < 0

    def apply(self, column: Column, values: Source, datetimes: bool = False) -> Source:
        """Return a column's values without nulls: filled ones, unless the policy refuses them.

        With `datetimes` the target reads the integers as dates or durations: the smallest one is NaT.
        """
        count = column.null_count
        if not count:
            return values
        if self.mode == "refuse":
            floats = values.view.dtype.storage.kind in "fc" or datetimes
            is_codes = column.field is not None and column.field.kind == "dictionary"
            fixes = _FLOATS if floats else _CODES if is_codes else _OTHERS
            if column.field is None or (column.field.kind == "number" and not column.field.extension):
                one = values.view.ndim == 1  # fillna() sets one value, not a row
                zero = _FILLED_FALSE if column.of_booleans else _FILLED
                fixes = (*fixes, *(() if floats else (_AS_FLOATS,)), *((zero,) if one else ()), _DROP)
            raise LossyConversionError("", _count(column), code="nulls", fixes=fixes)
        fill = self._fill(values, datetimes)
        why = Reason(
            f"its {count:,} null{'s are' if count > 1 else ' is'} filled with {self.value!r}",
            code="nulls",
            fixes=[_MASK],
        )

        def host() -> Array:
            # Values that are cast are in a new array already.
            array = values.host() if values.writer is not None else values.host().copy()
            array[column.mask().host()] = fill
            return array

        def writer() -> Callable[[int, Array], None]:
            assert values.writer is not None
            plain, mask = values.writer(), column.mask().host()

            def write(start: int, out: Array) -> None:
                plain(start, out)
                out[mask[start : start + len(out)]] = fill

            return write

        strides = contiguous_strides(values.view.shape, values.view.dtype.itemsize)
        view = replace(values.view, ptr=0, strides=strides)
        filled = replace(values, view=view, host=host, reasons=(*values.reasons, why))
        filled.writer = None if values.writer is None else writer
        # Device memory holds undefined values at nulls, so it must not be exported.
        return filled if view.device.is_host else placement.via_host(filled, column.filled(fill))

    def refuse(self, column: Column) -> None:
        """Refuse nulls in text, lists and structs, which have no one value per row to fill."""
        if self.mode == "mask" or not column.null_count:
            return
        why = _count(column)
        if self.mode != "refuse":
            why += f" and is {column.field}, whose nulls cannot be filled"
        raise LossyConversionError("", why, code="nulls", fixes=[_MASK])

    def _fill(self, values: Source, datetimes: bool) -> Any:
        storage = values.view.dtype.storage
        if self.mode == "nan" and datetimes:
            return _NAT
        if self.mode == "nan" and storage.kind not in "fc":
            why = f"it has nulls and is {values.view.dtype}, which has no NaN"
            fixes = (replace(_AS_FLOATS, options={"nulls": "nan", "dtype": "float64"}), *_OTHERS)
            raise LossyConversionError("", why, code="nulls", fixes=fixes)
        value = math.nan if self.mode == "nan" else self.value
        if not fits(value, storage):
            why = f"it has nulls and is {values.view.dtype}, which cannot hold {value!r}"
            raise LossyConversionError("", why, code="nulls", fixes=_OTHERS)
        return storage.type(value)


def fixes_for(dtype: DType) -> tuple[Fix, ...]:
    """Return the fixes for nulls among numbers of a type."""
    return _FLOATS if dtype.storage.kind in "fc" else _OTHERS


def fits(value: Any, storage: np.dtype[Any]) -> bool:
    """Whether a type holds a value; a float may be rounded, nothing else may change."""
    kind = storage.kind
    if kind == "b" or isinstance(value, bool):
        return kind == "b" and value in (0, 1)
    if kind == "c":
        return True
    if isinstance(value, complex):
        return False
    if isinstance(value, int) and kind != "f":
        return int(np.iinfo(storage).min) <= value <= int(np.iinfo(storage).max)
    if kind == "f":
        if isinstance(value, int) and abs(value) > 2**1024:
            return False  # it exceeds Python's float too
        return not math.isfinite(value) or abs(value) <= float(np.finfo(storage).max)
    limits = np.iinfo(storage)
    return math.isfinite(value) and int(value) == value and limits.min <= value <= limits.max


def _count(column: Column) -> str:
    count = column.null_count
    return f"it has {count:,} null{'s' * (count != 1)} in {column.length:,} row{'s' * (column.length != 1)}"


def parse(nulls: object, label: Hashable) -> Nulls:
    """Return the policy of ``nulls=`` for one column.

    Raises
    ------
    OptionError
        It is neither ``"mask"``, ``"nan"``, ``"drop"`` nor a value.
    """
    if isinstance(nulls, dict):
        nulls = nulls.get(label)
    if nulls is None:
        return Nulls()
    if isinstance(nulls, str) and nulls in NAMES:
        return Nulls(nulls, math.nan if nulls == "nan" else None)
    if isinstance(nulls, (int, float, complex, np.generic)) and not isinstance(nulls, str):
        return Nulls("fill", nulls.item() if isinstance(nulls, np.generic) else nulls)
    names = ", ".join(f'"{name}"' for name in NAMES)
    why = f"nulls must be {names}, a value, or a dict of these by column"
    raise invalid_value("nulls", nulls, why, 'pass nulls="mask"', NAMES)
