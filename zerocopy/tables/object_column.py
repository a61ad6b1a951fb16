"""Columns that Arrow alone can type: Python objects, text of NumPy's; and columns that nobody can have."""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from zerocopy.dtype import DType
from zerocopy.errors import Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import Field, read_schema
from zerocopy.source import Array, Source
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import Column

#: Kinds of objects that are of one type to Arrow; the first that fits counts.
_FAMILIES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("bool", (bool, np.bool_)),
    ("text", (str,)),
    ("bytes", (bytes, bytearray)),
    ("timestamps", (datetime.datetime, np.datetime64)),
    ("dates", (datetime.date,)),
    ("times", (datetime.time,)),
    ("durations", (datetime.timedelta, np.timedelta64)),
    ("decimals", (decimal.Decimal,)),
    ("numbers", (numbers.Number, np.number)),
    ("dicts", (dict,)),
    ("lists", (list, tuple, np.ndarray)),
)
_MISSING = ("NoneType", "NAType", "NaTType")
_REMEDY = "make one type of it first, x.astype('float64') or x.astype(str), or choose with columns=[...]"


class ObjectColumn(ArrowColumn):
    """A column whose type is found out by making an Arrow array of it, which copies.

    That is done once, and only when it is needed: tensors refuse it without.

    Parameters
    ----------
    name : str
        See :class:`Column`.
    length : int
    load : callable
        ``load() -> ndarray`` of objects, or of NumPy's text.
    refusal : Reason
        Why tensors cannot have it.
    """

    def __init__(self, name: str, length: int, load: Callable[[], Array], refusal: Reason) -> None:
        self.name, self.length, self.refusal = name, length, refusal
        self.reasons = (Reason("Arrow writes each of its values anew", ""),)
        self._objects = load
        self._load = self._memory

    @cached_property
    def _typed(self) -> Any:
        from zerocopy import registry

        return typed(registry.by_name("pyarrow").module(), self._objects())

    @cached_property
    def field(self) -> Field | None:  # type: ignore[override]
        try:
            return read_schema(self._typed.type.__arrow_c_schema__())
        except ZeroCopyError:
            return None  # `values` and `arrow` say why; who takes the objects themselves asks neither

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        _ = self._typed
        return super().values(dtype, shape)

    @property
    def nbytes(self) -> int:
        return int((self._objects() if self.field is None else self._typed).nbytes)

    def arrow(self) -> Any:
        return self._typed

    def arrow_reasons(self) -> list[Reason]:
        _ = self._typed  # what Arrow cannot type is refused here
        return list(self.reasons)

    def _memory(self) -> list[arrow_c.Memory]:
        chunks = getattr(self._typed, "chunks", [self._typed])
        return [arrow_c.read_array(chunk) for chunk in chunks]


class RefusedColumn(Column):
    """A column that no other framework can have: it stands in no one's way if it is left out."""

    def __init__(self, name: str, length: int, error: ZeroCopyError, nbytes: int = 0) -> None:
        self.name, self.field, self.length = name, None, length
        self._error, self._nbytes = error, nbytes
        self.refusal = Reason(error.why, error.remedy)

    def _refuse(self) -> ZeroCopyError:
        # A fresh one each time: who raises it further adds to its words.
        return type(self._error)("", self._error.why, self._error.remedy)

    @property
    def null_count(self) -> int:
        return 0

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        raise self._refuse() from self._error.__cause__

    def arrow(self) -> Any:
        raise self._refuse() from self._error.__cause__

    def arrow_reasons(self) -> list[Reason]:
        raise self._refuse() from self._error.__cause__


def typed(pa: Any, values: Array) -> Any:
    """Return objects as an Arrow array of the one type that they have, missing ones as nulls.

    Raises
    ------
    UnsupportedConversionError
        They have no one type, or one that Arrow lacks or would cut.
    """
    # pyarrow cuts NumPy's text at its first NUL; Python's strings it takes whole.
    cut = values.dtype.kind == "U" and _has_nul(values)
    objects = values.astype(object) if values.dtype.kind == "T" or cut else values
    if objects.dtype.kind == "O":
        objects = _of_one_type(objects)
    try:
        # from_pandas=False: NaN stays NaN. What else is missing is None by now.
        made = pa.array(objects, from_pandas=False)
        # Of plain values it is known what pyarrow changes, of what is inside of others not.
        nested = objects.dtype.kind == "O" and (pa.types.is_nested(made.type) or pa.types.is_time(made.type))
        back = made.to_pylist() if nested else []
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise UnsupportedConversionError(
            "", f"holds objects that Arrow has no type for: {error}", _REMEDY
        ) from error
    if nested:
        _check_inside(objects, back)
    return made


def _has_nul(values: Array) -> bool:
    """Whether a text has a NUL before its end, where NumPy fills it up with them."""
    points = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), -1)
    return bool(((points[:, :-1] == 0) & (points[:, 1:] != 0)).any())


def _check_inside(values: Array, made: list[Any]) -> None:
    """Refuse what pyarrow changes inside lists and dicts, where it drops times, zones and masks."""
    for value, back in zip(values, made, strict=True):
        if not _alike(value, back):
            raise UnsupportedConversionError(
                "", f"holds {value!r}, of which Arrow would make {back!r}", _REMEDY
            )


def _alike(value: Any, back: Any) -> bool:
    if back is None or value is None:
        return back is None and (value is None or type(value).__name__ in _MISSING)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):  # type: ignore[no-untyped-call]
        return False
    if isinstance(back, dict) and isinstance(value, dict):
        return all(_alike(value.get(key), inner) for key, inner in back.items())
    if isinstance(back, list):
        items = list(value.items() if isinstance(value, dict) else value)
        return len(items) == len(back) and all(map(_alike, items, back))
    if isinstance(back, tuple):
        return len(back) == len(value) and all(map(_alike, value, back))
    plain = value.item() if isinstance(value, np.generic) and not isinstance(value, np.datetime64) else value
    if isinstance(back, float) and back != back:
        return bool(plain != plain)
    same_zone = getattr(plain, "tzinfo", None) is None or getattr(back, "tzinfo", None) is not None
    whole = not (isinstance(plain, datetime.datetime) and not isinstance(back, datetime.datetime))
    return bool(plain == back) and same_zone and whole and isinstance(plain, str) == isinstance(back, str)


def _of_one_type(values: Array) -> Array:
    """Return objects with None for each missing one; refuse what pyarrow would change silently."""
    kinds = set(map(type, values))
    missing = tuple(kind for kind in kinds if kind.__name__ in _MISSING)
    families = {kind: _family(kind) for kind in kinds if kind not in missing}
    found = set(families.values())
    floats = tuple(kind for kind in families if issubclass(kind, (float, np.floating)))
    if floats and len(found) > 1 and all(value != value for value in values if type(value) in floats):
        # NaN among text or dates: that is how pandas 2 marked what is missing.
        missing += floats
        found = {family for kind, family in families.items() if kind not in floats}
    if len(found) > 1 and found != {"decimals", "numbers"}:
        # pyarrow refuses most mixtures; of dates with timestamps it drops the times, and
        # of text with bytes it makes bytes.
        raise UnsupportedConversionError(
            "", f"holds {' and '.join(sorted(found))}, and a column of Arrow has one type", _REMEDY
        )
    gone = [type(None)] if set(missing) <= {type(None)} else list(missing)
    if found & {"timestamps", "durations"}:
        _check_times(value for value in values if type(value) not in missing)
    if gone != [type(None)]:
        kept = np.empty(len(values), object)
        kept[:] = [None if type(value) in gone else value for value in values]
        return kept
    return values


def _family(kind: type) -> str:
    return next((name for name, classes in _FAMILIES if issubclass(kind, classes)), kind.__name__)


def _check_times(values: Any) -> None:
    """Refuse nanoseconds, which pyarrow drops from objects, and zones that differ, of which it keeps one."""
    zones = set()
    for value in values:
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
            raise UnsupportedConversionError(
                "",
                "holds times with nanoseconds as objects, which pyarrow cuts to microseconds",
                "x.astype('datetime64[ns]') or 'timedelta64[ns]' keeps them",
            )
        zones.add(str(getattr(value, "tzinfo", None)))
    if len(zones) > 1:
        raise UnsupportedConversionError(
            "",
            f"holds times of several time zones ({', '.join(sorted(zones))}), and a column has one",
            "bring them to one: pandas.to_datetime(x, utc=True)",
        )
