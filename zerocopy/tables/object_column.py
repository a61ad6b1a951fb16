"""Columns of Python objects, or of NumPy's text: finding their Arrow type copies them."""

from __future__ import annotations

import copy
import datetime
import decimal
import numbers
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from zerocopy.dtype import DType
from zerocopy.errors import Fix, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols import arrow_c
from zerocopy.protocols.array_interface import masked_elements
from zerocopy.protocols.arrow_schema import Field, read_schema
from zerocopy.source import Array, Source
from zerocopy.tables import cells
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.cells import MISSING
from zerocopy.tables.column import Column
from zerocopy.tables.hub import hub
from zerocopy.tables.lists import LISTS

#: Python types that have one Arrow type in common; the first entry that fits counts.
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
_OTHER_FORM = Reason("Arrow stores each of its values in another form", code="python-objects")
_PLAIN = frozenset((str, int, bool, decimal.Decimal, datetime.datetime, datetime.date))
_AS_TEXT = Fix("{x}.astype(str)", "makes all of them text")


class ObjectColumn(ArrowColumn):
    """A column whose type is found by making an Arrow array of it, once and only if needed.

    Parameters
    ----------
    name : str
        See :class:`Column`.
    length : int
        Rows.
    load : callable
        ``load() -> ndarray`` of objects, or of NumPy's text.
    refusal : Reason
        Why tensors cannot hold it.
    """

    def __init__(self, name: str, length: int, load: Callable[[], Array], refusal: Reason) -> None:
        self.name = name
        self.length = length
        self.refusal: Reason | None = refusal
        self.reasons: tuple[Reason, ...] = (_OTHER_FORM,)
        self.objects: Callable[[], Array] = load

    @cached_property
    def _array(self) -> Any:
        return arrow_of_objects(hub().module(), self.objects())

    @cached_property
    def field(self) -> Field | None:  # type: ignore[override]
        try:
            return read_schema(self._array.type.__arrow_c_schema__())
        except ZeroCopyError:
            return (
                None  # `values` and `arrow` raise the error; a target that holds Python objects calls neither
            )

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        _ = self._array  # refuses objects that Arrow has no type for
        return super().values(dtype, shape)

    @property
    def shown(self) -> Field | None:
        # Reading lists takes a second for a million elements.
        objects = self.objects()
        return None if len(objects) and isinstance(objects[0], (np.ndarray, list, tuple)) else self.field

    def dense(self) -> Column:
        objects = self.objects()
        if objects.dtype.kind == "O" and not len(objects):
            return cells.without_rows(self.name)
        if objects.dtype.kind != "O" or type(objects[0]) in _PLAIN:
            return self
        reasons = tuple(reason for reason in self.reasons if reason is not _OTHER_FORM)
        return cells.tensor_of(self.name, objects, reasons) or self

    def as_lists(self) -> Column:
        objects = self.objects()
        if objects.dtype.kind != "O" or not set(map(type, objects)) & {np.ndarray, list, tuple}:
            return self
        if self.field is None or self.field.kind not in LISTS:
            return self.dense()
        column = copy.copy(self)
        column.refusal = None
        return column

    @property
    def nbytes(self) -> int:
        return int((self.objects() if self.field is None else self._array).nbytes)

    def arrow(self) -> Any:
        return self._array

    def arrow_reasons(self) -> list[Reason]:
        _ = self._array
        return list(self.reasons)

    def _load(self) -> list[arrow_c.Memory]:  # a method: an attribute would be a reference cycle
        chunks = getattr(self._array, "chunks", [self._array])
        return [arrow_c.read_array(chunk) for chunk in chunks]


def _refused(why: str, remedy: str = "") -> UnsupportedConversionError:
    fixes = [] if remedy else [_AS_TEXT]
    return UnsupportedConversionError("", why, remedy, code="python-objects", fixes=fixes)


def arrow_of_objects(pa: Any, values: Array) -> Any:
    """Return objects as an Arrow array of their one type, missing ones as nulls.

    Raises
    ------
    UnsupportedConversionError
        They have several types, or one that Arrow lacks or would truncate.
    """
    # pyarrow truncates NumPy's text at its first NUL, but not Python's strings.
    cut = values.dtype.kind == "U" and _has_nul(values)
    objects = values.astype(object) if values.dtype.kind == "T" or cut else values
    if objects.dtype.kind == "O":
        lists = cells.arrow_lists(pa, objects)
        if lists is not None:
            return lists
        objects = _of_one_type(objects)
    try:
        # from_pandas=False: NaN stays NaN. Other missing values are None already.
        array = pa.array(objects, from_pandas=False)
        # `_of_one_type` refuses plain values that pyarrow changes; nested ones are compared here.
        nested = objects.dtype.kind == "O" and (
            pa.types.is_nested(array.type) or pa.types.is_time(array.type)
        )
        nested = nested and not (pa.types.is_list(array.type) and cells.are_exact(objects))
        back = array.to_pylist() if nested else []
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise _refused(f"it holds objects that Arrow has no type for: {error}") from error
    if nested:
        # pyarrow drops times, zones and masks inside lists and dicts.
        for value, copy in zip(objects, back, strict=True):
            if not _alike(value, copy):
                raise _refused(f"it holds {value!r}, which Arrow would change to {copy!r}")
    return array


def _has_nul(values: Array) -> bool:
    """Whether a text has a NUL before its end, which NumPy pads with NULs."""
    width = values.dtype.itemsize // 4  # not -1, which NumPy cannot infer for no rows
    points = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), width)
    return bool(((points[:, :-1] == 0) & (points[:, 1:] != 0)).any())


def _alike(value: Any, back: Any) -> bool:
    if back is None or value is None:
        return back is None and (value is None or type(value).__name__ in MISSING)
    if masked_elements(value):
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
    """Return objects with None for each missing one; refuse objects that pyarrow would change silently."""
    types = set(map(type, values))
    missing = tuple(cls for cls in types if cls.__name__ in MISSING)
    families = {cls: _family(cls) for cls in types if cls not in missing}
    present = set(families.values())
    floats = tuple(cls for cls in families if issubclass(cls, (float, np.floating)))
    if floats and len(present) > 1 and all(value != value for value in values if type(value) in floats):
        # NaN among text or dates marks a missing value, as in older data frames.
        missing += floats
        present = {family for cls, family in families.items() if cls not in floats}
    if len(present) > 1 and present != {"decimals", "numbers"}:
        # pyarrow refuses most mixtures, but drops the times of dates with timestamps, and
        # turns text with bytes into bytes.
        raise _refused(f"it holds {' and '.join(sorted(present))}, and a column of Arrow has one type")
    if present & {"timestamps", "durations"}:
        _check_times(value for value in values if type(value) not in missing)
    if set(missing) <= {type(None)}:
        return values
    kept = np.empty(len(values), object)
    kept[:] = [None if type(value) in missing else value for value in values]
    return kept


def _family(cls: type) -> str:
    return next((name for name, classes in _FAMILIES if issubclass(cls, classes)), cls.__name__)


def _check_times(values: Any) -> None:
    """Refuse nanoseconds, which pyarrow drops from objects, and several zones, of which it keeps one."""
    zones = set()
    for value in values:
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
            raise _refused(
                "it holds times with nanoseconds as objects, which pyarrow truncates to microseconds",
                "x.astype('datetime64[ns]') or 'timedelta64[ns]' keeps them",
            )
        zones.add(str(getattr(value, "tzinfo", None)))
    if len(zones) > 1:
        raise _refused(
            f"it holds times of several time zones ({', '.join(sorted(zones))}), and a column has one",
            "convert them to one: [t.astimezone(datetime.timezone.utc) for t in x]",
        )
