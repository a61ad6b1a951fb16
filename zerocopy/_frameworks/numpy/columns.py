"""NumPy's dates, bytes, text and objects as columns: types that Arrow has and tensors lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import HOST
from zerocopy.dtype import DType, by_name, from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.protocols.array_interface import address
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Column, RefusedColumn
from zerocopy.tables.object_column import ObjectColumn
from zerocopy.tables.padded_text import PaddedColumn, field_of
from zerocopy.tables.tensor_column import Marks, TensorColumn

_BYTE, _INT32, _INT64 = by_name("uint8"), by_name("int32"), by_name("int64")
#: Arrow's time units, as its format strings write them; NumPy's other units become seconds.
_UNITS = {"s": "s", "ms": "m", "us": "u", "ns": "n"}
_NAT = Reason(
    "NumPy marks nulls among dates with NaT, and a mask is computed from them", code="computed-mask"
)
OBJECTS = Reason(
    "it holds Python objects, which tensors do not have",
    code="python-objects",
    fixes=[Fix(options={"encode": True}, effect="gives their values as codes or integers")],
)


def array_column(array: Array, name: str) -> Column:
    """Return an array of one dimension as a column that aliases it if Arrow has the same layout."""
    dtype = array.dtype
    if dtype.kind in "UOT":
        native = dtype if dtype.kind in "OT" or dtype.isnative else dtype.newbyteorder("=")
        why = OBJECTS if dtype.kind == "O" else text_refusal(native)
        return ObjectColumn(name, len(array), lambda: array.astype(native, copy=False), why)
    if dtype.kind in "mM":
        return time_column(lambda: array, lambda: array, dtype, len(array), name)
    shape, strides = (len(array), dtype.itemsize), (*array.strides, 1)
    view = StridedView(address(array), shape, strides, _BYTE, HOST, not array.flags.writeable, array)
    kind = PaddedColumn if dtype.kind == "S" else TensorColumn
    column = kind(Source(name, view, view.numpy, "buffer", obj=array), field_of(dtype))
    column.refusal = text_refusal(dtype)
    return column


class FieldColumn(TensorColumn):
    """A column of a record field; reading its source calls `on_use`."""

    def __init__(
        self,
        source: Source,
        field: Field | None,
        mask: Marks | None = None,
        on_use: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(source, field, mask)
        self._on_use = on_use

    @property
    def source(self) -> Source:  # type: ignore[override]
        self._on_use()
        return self._source

    @source.setter
    def source(self, source: Source) -> None:
        self._source = source

    @property
    def nbytes(self) -> int:
        return self._source.view.nbytes


class PaddedFieldColumn(FieldColumn, PaddedColumn):
    """A column of a record field of NumPy's ``S`` bytes."""


def number_dtype(dtype: np.dtype[Any]) -> DType | None:
    """Return the standard type of numbers in either byte order; None for other types."""
    if dtype.kind in "mMSUOT" or dtype.names is not None or dtype.subdtype is not None:
        return None
    return from_numpy(dtype if dtype.isnative else dtype.newbyteorder("="))


def is_foreign_type(dtype: np.dtype[Any]) -> bool:
    """Whether another package added the type to NumPy and zerocopy does not know it: ``ml_dtypes.int1``.

    Its kind is V, as for bytes, but its values are not bytes.
    """
    return dtype.kind == "V" and not issubclass(dtype.type, np.void) and number_dtype(dtype) is None


def text_refusal(dtype: np.dtype[Any]) -> Reason:
    """Return why tensors cannot hold NumPy's text or bytes, with NumPy's calls as remedy."""
    bytes_ = dtype.kind in "SV"
    effect = "gives its bytes, (rows, width)" if bytes_ else "gives codes of its words"
    fixes = [Fix(options={"encode": True}, effect=effect)]
    if dtype.kind == "U":
        view = "numpy.ascontiguousarray({x}).view('uint32').reshape(*{x}.shape, -1)"
        fixes.append(Fix(view, "gives its code points"))
    return Reason(f"it is {dtype}, which tensors do not have", code="no-tensor-type", fixes=fixes)


def time_column(
    load: Callable[[], Array],
    peek: Callable[[], Array],
    dtype: np.dtype[Any],
    length: int,
    name: str,
    reasons: tuple[Reason, ...] = (),
    on_use: Callable[[], None] = lambda: None,
) -> Column:
    """Return dates or durations as a column: unchanged if Arrow has their unit, else in a unit that it has.

    `load` returns the values for use; `peek` returns them without a copy, to look for NaT.
    """
    unit, count = np.datetime_data(dtype)
    native, kind = dtype.newbyteorder("="), dtype.kind
    days = kind == "M" and (unit, count) == ("D", 1)
    kept = count == 1 and unit in _UNITS
    if unit == "generic" or unit in ("ps", "fs", "as") or (kind == "m" and unit in "YM"):
        fixes = [Fix(f"{{x}}.astype('{kind}8[ns]')", "if the values fit")]
        text = f"it is {dtype}, and Arrow lacks that unit"
        return RefusedColumn(
            name, length, UnsupportedConversionError("", text, code="time-unit", fixes=fixes)
        )
    to = unit if unit in _UNITS else "s"
    field = Field("tdD" if days else f"ts{_UNITS[to]}:" if kind == "M" else f"tD{_UNITS[to]}")
    why = list(reasons)
    if not dtype.isnative and not reasons:
        why.append(obstacles.byte_order(dtype))
    if days:
        fixes = [Fix("{x}.astype('M8[s]')", "has the same layout in both")]
        text = "Arrow's date32 has 32 bits and NumPy's datetime64 has 64"
        why.append(Reason(text, code="other-type", fixes=fixes))
    elif not kept:
        fixes = [Fix(f"{{x}}.astype('{kind}8[{to}]')", "converts it once")]
        why.append(Reason(f"Arrow lacks the unit of {dtype}: it becomes {to}", code="time-unit", fixes=fixes))

    def host() -> Array:
        array = load()
        array = array.astype(native, copy=False) if kept else fitting(array)
        return array if days else array.view(np.int64)

    def fitting(array: Array) -> Array:
        return _in_days(array) if days else _in_unit(array.astype(native), np.dtype(f"{kind}8[{to}]"))

    def use() -> None:
        on_use()
        if not kept and length:  # explain too refuses values that do not fit
            values = peek()
            fitting(np.array([np.fmin.reduce(values), np.fmax.reduce(values)]))

    if why:
        standard = _INT32 if days else _INT64
        view = StridedView(0, (length,), (standard.itemsize,), standard, HOST, False, load)
    else:
        array = load()
        view = StridedView(
            address(array), array.shape, array.strides, _INT64, HOST, not array.flags.writeable, array
        )
    marks = Marks(peek, np.isnat, _NAT)
    return FieldColumn(Source(name, view, host, "buffer", tuple(why), obj=view), field, marks, use)


def _in_days(array: Array) -> Array:
    numbers = array.astype(array.dtype.newbyteorder("="), copy=False).view(np.int64)
    days = np.where(np.isnat(array), 0, numbers)
    if days.size and (days.min() < -(2**31) or days.max() >= 2**31):
        why = "it has dates that do not fit in Arrow's 32 bits"
        raise UnsupportedConversionError("", why, code="out-of-range", fixes=[Fix("{x}.astype('M8[s]')")])
    return days.astype(np.int32)


def _in_unit(array: Array, dtype: np.dtype[Any]) -> Array:
    # NumPy's cast between units wraps around silently, and raises from 2.5 on.
    try:
        cast = array.astype(dtype)
        if ((cast.astype(array.dtype) == array) | np.isnat(array)).all():
            return cast
    except OverflowError as error:
        raise _out_of_range(array, dtype) from error
    raise _out_of_range(array, dtype)


def _out_of_range(array: Array, dtype: np.dtype[Any]) -> UnsupportedConversionError:
    why = f"it is {array.dtype} with values that do not fit in {dtype}"
    fixes = [Fix("{x}.view('int64')", "gives integers without their unit")]
    return UnsupportedConversionError("", why, code="out-of-range", fixes=fixes)
