"""``nulls=``: what becomes of nulls on the way to tensors, which have none."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zerocopy.errors import LossyConversionError, Reason
from zerocopy.source import Array, Source
from zerocopy.tables import on_device
from zerocopy.tables.column import Column
from zerocopy.tables.result import Masked

_NAT = np.iinfo(np.int64).min
_MASK = 'nulls="mask" gives a mask beside the values'
_FLOATS = f'{_MASK}, nulls="nan" or a value such as nulls=0 fills them'
_OTHERS = f"{_MASK}, a value such as nulls=0 fills them; for NaN, cast them to floats in the source"


@dataclass(frozen=True, slots=True)
class Nulls:
    """One column's policy: refuse them, give a mask, or fill them.

    Attributes
    ----------
    how : str
        ``"refuse"``, ``"mask"``, ``"nan"`` or ``"fill"``.
    value : object
        What to fill them with.
    """

    how: str = "refuse"
    value: Any = None

    def apply(self, column: Column, values: Source, temporal: bool = False) -> Any:
        """Return a column's values with its nulls as asked.

        Parameters
        ----------
        column : Column
            Whose nulls they are.
        values : Source
            ``(length, ...)``, with garbage where they are null.
        temporal : bool
            Whether the target takes the integers for dates or durations: then the
            least of them is NaT.

        Raises
        ------
        LossyConversionError
            There are nulls and they are refused, or the type does not hold what is to
            fill them.
        """
        if self.how == "mask":
            return Masked(values, column.mask())
        count = column.null_count
        if not count:
            return values
        if self.how == "refuse":
            floats = values.view.dtype.storage.kind in "fc" or temporal
            raise LossyConversionError("", _has(column), _FLOATS if floats else _OTHERS)
        fill = self._fill(values, temporal)
        why = Reason(
            f"its {count:,} null{'s are' if count > 1 else ' is'} filled with {self.value!r}",
            'nulls="mask" leaves them alone',
        )

        def host() -> Array:
            array = values.host().copy()
            array[column.mask().host()] = fill
            return array

        view = replace(values.view, ptr=0, strides=_dense(values))
        filled = replace(values, view=view, host=host, reasons=(*values.reasons, why))
        # The memory on a device is that with the garbage in it: it must not be lent for this.
        return filled if view.device.is_host else on_device.made(filled, column.filled(fill))

    def refuse(self, column: Column) -> None:
        """Refuse the nulls of what has no one place a row to fill: text, lists, structs."""
        if self.how != "mask" and column.null_count:
            remedy = 'nulls="mask" gives a mask beside the values'
            if self.how == "refuse":
                raise LossyConversionError("", _has(column), remedy)
            raise LossyConversionError(
                "", f"{_has(column)} and is {column.field}, which nothing fills in place", remedy
            )

    def _fill(self, values: Source, temporal: bool) -> Any:
        storage = values.view.dtype.storage
        if self.how == "nan" and temporal:
            return _NAT
        if self.how == "nan" and storage.kind not in "fc":
            raise LossyConversionError(
                "",
                f"has nulls and is {values.view.dtype}, which has no NaN",
                'nulls="mask" gives a mask beside the values, an integer such as nulls=-1 fills them',
            )
        value = math.nan if self.how == "nan" else self.value
        if not _fits(value, storage):
            raise self._unfit(values)
        return storage.type(value)

    def _unfit(self, values: Source) -> LossyConversionError:
        return LossyConversionError(
            "",
            f"has nulls and is {values.view.dtype}, which does not hold {self.value!r}",
            "name a value of that type, or one a column: nulls={'a': 0, 'b': -1}",
        )


def _fits(value: Any, storage: np.dtype[Any]) -> bool:
    """Whether a type holds a value; a float may be rounded, and nothing else may happen to it."""
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
            return False  # no float of Python's either
        return not math.isfinite(value) or abs(value) <= float(np.finfo(storage).max)
    limits = np.iinfo(storage)
    return math.isfinite(value) and int(value) == value and limits.min <= value <= limits.max


def _has(column: Column) -> str:
    count = column.null_count
    return f"has {count:,} null{'s' if count != 1 else ''} in {column.length:,} rows"


def _dense(values: Source) -> tuple[int, ...]:
    from zerocopy.strided_view import contiguous_strides

    return contiguous_strides(values.view.shape, values.view.dtype.itemsize)


def parse(nulls: Any, label: Hashable) -> Nulls:
    """Return the policy of ``nulls=`` for one column.

    Raises
    ------
    ValueError
        It is neither a word that is known nor a value.
    """
    if isinstance(nulls, dict):
        nulls = nulls.get(label)
    if nulls is None:
        return Nulls()
    if isinstance(nulls, str):
        if nulls not in ("mask", "nan"):
            raise ValueError(f'nulls is "mask", "nan", a value or a dict of them by column, not {nulls!r}')
        return Nulls(nulls, math.nan if nulls == "nan" else None)
    if isinstance(nulls, (int, float, complex, np.generic)):
        return Nulls("fill", nulls.item() if isinstance(nulls, np.generic) else nulls)
    raise ValueError(f'nulls is "mask", "nan", a value or a dict of them by column, not {nulls!r}')
