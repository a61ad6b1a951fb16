"""NumPy's dates, bytes, text and objects as columns: what tensors do not have, and Arrow has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy.device import HOST
from zerocopy.dtype import DType, by_name, from_numpy
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.protocols.array_interface import address
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Column
from zerocopy.tables.object_column import ObjectColumn, RefusedColumn
from zerocopy.tables.tensor_column import TensorColumn

_BYTE, _INT32, _INT64 = by_name("uint8"), by_name("int32"), by_name("int64")
#: Units that Arrow has; all others are brought to seconds.
_UNITS = {"s": "s", "ms": "m", "us": "u", "ns": "n"}
OBJECTS = Reason(
    "is of object: Python objects, which tensors do not have",
    "make numbers of them first, if they are: x.astype('float64')",
)


def single(array: Array, name: str) -> Column:
    """Return an array of one dimension as a column that aliases it, where Arrow has its values so."""
    dtype = array.dtype
    if dtype.kind in "UOT":
        native = dtype if dtype.kind in "OT" or dtype.isnative else dtype.newbyteorder("=")
        why = OBJECTS if dtype.kind == "O" else no_text(native)
        return ObjectColumn(name, len(array), lambda: array.astype(native, copy=False), why)
    if dtype.kind in "mM":
        return times(lambda: array, lambda: array, dtype, len(array), name)
    view = StridedView(
        address(array),
        (len(array), dtype.itemsize),
        (*array.strides, 1),
        _BYTE,
        HOST,
        not array.flags.writeable,
        array,
    )
    column = TensorColumn(Source(name, view, view.numpy, "buffer", obj=array), binary_field(dtype))
    column.refusal = no_text(dtype)
    return column


class FieldColumn(TensorColumn):
    """A column of a field; who looks at its source is taken to want it."""

    def __init__(
        self,
        source: Source,
        field: Field | None,
        mask: Callable[[], Array | None] | None = None,
        want: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(source, field, mask)
        self._want = want

    @property
    def source(self) -> Source:  # type: ignore[override]
        self._want()
        return self._source

    @source.setter
    def source(self, source: Source) -> None:
        self._source = source

    def mask(self) -> Source:
        why = Reason("NumPy marks nulls among dates by NaT, and a mask is made of them", "")
        return replace(super().mask(), reasons=(why,))


def numbers_of(dtype: np.dtype[Any]) -> DType | None:
    """Return the standard type of numbers in either byte order, or None for what is none."""
    if dtype.kind in "mMSUOT" or dtype.names is not None or dtype.subdtype is not None:
        return None
    return from_numpy(dtype if dtype.isnative else dtype.newbyteorder("="))


def of_strangers(dtype: np.dtype[Any]) -> bool:
    """Whether a type is one that others have added to NumPy and that is unknown here: ``ml_dtypes.int1``.

    Its kind is V, as that of bytes is, and its values are no bytes.
    """
    return dtype.kind == "V" and not issubclass(dtype.type, np.void) and numbers_of(dtype) is None


def no_text(dtype: np.dtype[Any]) -> Reason:
    """Return why tensors have no text or bytes of NumPy's, in its own words."""
    remedy = "encode=True gives its UTF-8 bytes with their offsets"
    if dtype.kind == "U":
        remedy += "; x.view('uint32').reshape(*x.shape, -1) its code points"
    elif dtype.kind in "SV":
        remedy = "encode=True gives its bytes, (rows, width), as x.view('uint8').reshape(*x.shape, -1) does"
    return Reason(f"is of {dtype}, which tensors do not have", remedy)


def binary_field(dtype: np.dtype[Any]) -> Field:
    """Return the Arrow type of bytes of one length."""
    # Arrow has one type for both: S is text padded with zeros, to who reads it back.
    own = {b"zerocopy:numpy": dtype.str[1:].encode()} if dtype.kind == "S" else {}
    return Field(f"w:{dtype.itemsize}", metadata=own)


def times(
    load: Callable[[], Array],
    look: Callable[[], Array],
    dtype: np.dtype[Any],
    length: int,
    name: str,
    reasons: tuple[Reason, ...] = (),
    want: Callable[[], None] = lambda: None,
) -> Column:
    """Return dates or durations: as they are where Arrow has their unit, or in one that it has.

    Parameters
    ----------
    load, look : callable
        Return them: where they will be wanted, and where they lie.
    """
    unit, count = np.datetime_data(dtype)
    native, kind = dtype.newbyteorder("="), dtype.kind
    days = kind == "M" and (unit, count) == ("D", 1)
    kept = count == 1 and unit in _UNITS
    if unit == "generic" or unit in ("ps", "fs", "as") or (kind == "m" and unit in "YM"):
        remedy = f"bring it to one that Arrow has, where it fits: x.astype('{kind}8[ns]')"
        error = UnsupportedConversionError("", f"is {dtype}, which Arrow has no unit for", remedy)
        return RefusedColumn(name, length, error)
    to = unit if unit in _UNITS else "s"
    field = Field("tdD" if days else f"ts{_UNITS[to]}:" if kind == "M" else f"tD{_UNITS[to]}")
    why = list(reasons)
    if not dtype.isnative and not reasons:
        remedy = "swap once, where the data are read: x.astype(x.dtype.newbyteorder('='))"
        why.append(Reason(f"the bytes are in the other order ({dtype.str})", remedy))
    if days:
        remedy = "x.astype('M8[s]') is the same in both"
        why.append(Reason("Arrow's dates have 32 bits and NumPy's have 64", remedy))
    elif not kept:
        remedy = f"x.astype('{kind}8[{to}]'), once"
        why.append(Reason(f"Arrow has no unit of {dtype}: it becomes {to}", remedy))

    def host() -> Array:
        array = load()
        if not kept:
            array = _in_days(array) if days else _in_unit(array.astype(native), np.dtype(f"{kind}8[{to}]"))
        else:
            array = array.astype(native, copy=False)
        return array if days else array.view(np.int64)

    def mask() -> Array | None:
        found = np.isnat(look())
        return found if found.any() else None

    if why:
        standard = _INT32 if days else _INT64
        view = StridedView(0, (length,), (standard.itemsize,), standard, HOST, False, load)
    else:
        array = load()
        view = StridedView(
            address(array), array.shape, array.strides, _INT64, HOST, not array.flags.writeable, array
        )
    return FieldColumn(Source(name, view, host, "buffer", tuple(why), obj=view), field, mask, want)


def _in_days(array: Array) -> Array:
    numbers = array.astype(array.dtype.newbyteorder("="), copy=False).view(np.int64)
    hidden = np.isnat(array)
    days = np.where(hidden, 0, numbers)
    if days.size and (days.min() < -(2**31) or days.max() >= 2**31):
        raise UnsupportedConversionError(
            "", "has dates that do not fit in Arrow's 32 bits", "x.astype('M8[s]'), where it fits"
        )
    return days.astype(np.int32)


def _in_unit(array: Array, dtype: np.dtype[Any]) -> Array:
    # NumPy's cast between units wraps around silently, and raises from 2.5 on.
    try:
        found = array.astype(dtype)
        fits = bool(((found.astype(array.dtype) == array) | np.isnat(array)).all())
    except OverflowError as error:
        raise _too_far(array, dtype) from error
    if not fits:
        raise _too_far(array, dtype)
    return found


def _too_far(array: Array, dtype: np.dtype[Any]) -> UnsupportedConversionError:
    return UnsupportedConversionError(
        "", f"is {array.dtype} with values that do not fit in {dtype}", "cut them first"
    )
