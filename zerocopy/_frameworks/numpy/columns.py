"""NumPy's dates, bytes, text, objects and records as columns: types that Arrow has and tensors lack.

A field of a record becomes a contiguous column when its values are first read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import HOST
from zerocopy.dtype import DType, by_name, from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.layout.aos_to_soa import aos_to_soa
from zerocopy.layout.record_source import record_source
from zerocopy.layout.schema import parts
from zerocopy.protocols.array_interface import address, masked_elements
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables.column import Column, RefusedColumn, Table
from zerocopy.tables.hub import hub
from zerocopy.tables.object_column import ObjectColumn
from zerocopy.tables.tensor_column import Marks, PaddedColumn, TensorColumn, field_of

_BYTE, _INT32, _INT64 = by_name("uint8"), by_name("int32"), by_name("int64")
#: NaT as an integer.
_NULL = np.iinfo(np.int64).min
_DAYS = np.dtype("M8[D]")
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
        fixes.append(Fix(view, "gives its code points", action="code-points"))
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
        fixes = [Fix("{x}.astype('M8[ms]')", "has the same layout in both")]
        text = "Arrow's date32 has 32 bits and NumPy's datetime64 has 64"
        why.append(Reason(text, code="other-type", fixes=fixes))
    elif not kept:
        fixes = [Fix(f"{{x}}.astype('{kind}8[{to}]')", "converts it once")]
        why.append(Reason(f"Arrow lacks the unit of {dtype}: it becomes {to}", code="time-unit", fixes=fixes))

    times = _Times(load, peek, native, None if kept else np.dtype(f"{kind}8[{'D' if days else to}]"))

    def use() -> None:
        on_use()
        times.check()  # explain too refuses values that do not fit

    if why:
        standard = _INT32 if days else _INT64
        view = StridedView(0, (length,), (standard.itemsize,), standard, HOST, False, load)
    else:
        array = load()
        view = StridedView(
            address(array), array.shape, array.strides, _INT64, HOST, not array.flags.writeable, array
        )
    marks = Marks(peek, np.isnat, _NAT)
    return FieldColumn(Source(name, view, times.host, "buffer", tuple(why), obj=view), field, marks, use)


class _Times:
    """Dates or durations as integers of Arrow's unit `to` (None: their own), checked and converted once."""

    def __init__(
        self,
        load: Callable[[], Array],
        peek: Callable[[], Array],
        native: np.dtype[Any],
        to: np.dtype[Any] | None,
    ) -> None:
        self._load, self._peek, self._native, self._to = load, peek, native, to
        self._is_checked = to is None
        self._converted: Array | None = None

    def check(self) -> None:
        """Refuse values that do not fit in the unit, or in 32 bits of days; the bounds suffice."""
        if self._is_checked:
            return
        values = self._peek().astype(self._native, copy=False)
        if len(values):
            assert self._to is not None
            (_check_days if self._to == _DAYS else _check_unit)(_bounds(values), self._to)
        self._is_checked = True

    def host(self) -> Array:
        """Return the integers. A conversion is kept, because some targets read them twice."""
        if self._converted is None:
            self.check()
            values = self._load().astype(self._native, copy=False)
            if self._to is None:
                return values.view(np.int64)
            if self._to == _DAYS:  # the lower 32 bits of NaT are 0
                self._converted = values.view(np.int64).astype(np.int32)
            else:
                self._converted = values.astype(self._to).view(np.int64)
        return self._converted


def _bounds(array: Array) -> Array:
    """Return the least and the greatest value; NaT, which is the least integer, does not count."""
    numbers = array.view(np.int64)
    low = numbers.min()
    if low == _NULL:
        numbers = numbers[numbers != _NULL]
        low = numbers.min() if len(numbers) else _NULL
    return np.array([low, numbers.max(initial=low)]).view(array.dtype)


def _check_days(bounds: Array, dtype: np.dtype[Any]) -> None:
    low, high = bounds.view(np.int64)
    if low != _NULL and (low < -(2**31) or high >= 2**31):
        why = "it has dates that do not fit in Arrow's 32 bits"
        raise UnsupportedConversionError("", why, code="out-of-range", fixes=[Fix("{x}.astype('M8[s]')")])


def _check_unit(bounds: Array, dtype: np.dtype[Any]) -> None:
    # NumPy's cast between units wraps around silently, and raises from 2.5 on.
    try:
        if ((bounds.astype(dtype).astype(bounds.dtype) == bounds) | np.isnat(bounds)).all():
            return
    except OverflowError as error:
        raise _out_of_range(bounds, dtype) from error
    raise _out_of_range(bounds, dtype)


def _out_of_range(array: Array, dtype: np.dtype[Any]) -> UnsupportedConversionError:
    why = f"it is {array.dtype} with values that do not fit in {dtype}"
    fixes = [Fix("{x}.view('int64')", "gives integers without their unit")]
    return UnsupportedConversionError("", why, code="out-of-range", fixes=fixes)


INTERLEAVED = Reason(
    "the fields are interleaved in rows, and columns are copied out of them",
    "zc.aos_to_soa(x) makes all columns in one pass",
    code="interleaved",
)


def records_table(array: Array, name: str) -> Table | None:
    """Return a structured array as a table; dates, bytes, text and objects as a series; None for a tensor."""
    dtype = array.dtype
    if array.ndim != 1 or (dtype.names is None and dtype.kind not in "mMSVUOT"):
        return None
    if number_dtype(dtype) is not None or is_foreign_type(dtype):
        return None  # the types of ml_dtypes have kind V
    if masked_elements(array):
        return None  # refused as a tensor, with a remedy
    if dtype.names is None:
        column = array_column(array.view(np.ndarray), name)
        return Table(name, [""], [column], len(array), single=True, obj=array)
    rows = _Rows(array.data if isinstance(array, np.ma.MaskedArray) else array)
    columns = [rows.top(field, name) for field in dtype.names]
    return Table(name, list(dtype.names), columns, len(array), obj=array)


class _Rows:
    """Records, and the contiguous columns that were copied from them so far.

    All fields that were requested before the first column is read are copied out together:
    each record passes through the cache once, not once per field.
    """

    def __init__(self, records: Array) -> None:
        self.records = records
        # Some columns, such as the scaled ones of FITS files, differ from the stored values.
        source = record_source(records)
        self.views = {name: source.array[name] for name, _, _ in parts(records.dtype)} | source.converted
        self.types = {name: dtype for name, dtype, _ in parts(records.dtype)}
        for name, values in source.converted.items():
            self.types[name] = np.dtype((values.dtype, values.shape[1:]))
        self.requested: dict[str, None] = {}
        self.columns: dict[str, Any] = {}

    def column(self, name: str) -> Any:
        """Return a field's column, or its columns if it is a record."""
        if name not in self.columns:
            self.requested[name] = None
            # Another thread may copy the same fields at the same time, which is harmless.
            fields = [n for n in self.requested if n not in self.columns]
            self.columns.update(aos_to_soa(self.records, fields=fields, copy=True))
        return self.columns[name]

    def top(self, field: str, name: str) -> Column:
        view, length = self.views[field], len(self.records)
        dtype = self.types[field]
        if dtype.hasobject and (dtype.base.names is not None or dtype.subdtype is not None):
            why = "it holds Python objects inside a record or a sub-array"
            error = UnsupportedConversionError(
                "", why, "pick other fields with columns=[...]", code="python-objects"
            )
            return RefusedColumn(name, length, error)
        if dtype.hasobject:
            return ObjectColumn(name, length, lambda: view, OBJECTS)
        load, on_use = partial(self.column, field), lambda: self.requested.setdefault(field)
        return _column(load, on_use, view, dtype, length, name)


def _column(
    load: Callable[[], Any],
    on_use: Callable[[], None],
    view: Array,
    dtype: np.dtype[Any],
    length: int,
    name: str,
) -> Column:
    """Return a field as a column.

    `load` returns the contiguous column, or a record's dict of columns; `on_use` registers the field
    for the next copy; `view` is the field in the records. `length` counts the elements of outer sub-arrays.
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        numbers = number_dtype(base)
        if numbers is not None and _plain(numbers.name).kind == "unknown":
            # Such as complex numbers, which Arrow lacks and some tensor frameworks have.
            return _leaf(load, on_use, view, base, (length, *shape), name)
        column = _column(load, on_use, view, base, length * prod(shape), name)
        for i in reversed(range(len(shape))):
            column = ListColumn(column, shape[i], length * prod(shape[:i]))
        return column
    if dtype.names is None:
        return _leaf(load, on_use, view, dtype, (length,), name)
    columns = [
        _column(partial(_part, load, part), on_use, view[part], inner, length, name)
        for part, inner, _ in parts(dtype)
    ]
    return StructColumn(columns, dtype.names, length, name)


def _part(load: Callable[[], dict[str, Any]], name: str) -> Any:
    return load()[name]


def _leaf(
    load: Callable[[], Array],
    on_use: Callable[[], None],
    view: Array,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    name: str,
) -> Column:
    standard = number_dtype(dtype)
    if standard is not None:

        def host() -> Array:
            values = load().reshape(shape)
            return values if standard.in_numpy else values.view(standard.storage)

        column = _copied(host, shape, standard, None, name, on_use)
        if dtype.isnative and view.shape == shape:
            column.in_place = _strided(view, standard, name)
        return column
    native = dtype.newbyteorder("=")
    if native.kind == "U":
        # Arrow copies text in any case, so it is read from the records without a column.
        text = ObjectColumn(name, shape[0], lambda: view.reshape(shape).astype(native), text_refusal(native))
        text.field = Field("u")
        return text
    if native.kind in "mM":
        return time_column(
            lambda: load().reshape(shape),
            lambda: view.reshape(shape),
            native,
            shape[0],
            name,
            (INTERLEAVED,),
            on_use,
        )
    if native.kind in "SV" and native.itemsize and not is_foreign_type(native):
        wide = (*shape, native.itemsize)
        raw = _copied(lambda: _bytes(load().reshape(shape)), wide, _BYTE, field_of(native), name, on_use)
        raw.refusal = text_refusal(native)
        return raw
    error = UnsupportedConversionError(
        "",
        f"it is {dtype}, which no other framework has",
        code="missing-dtype",
        fixes=[Fix(action="cast:float64", effect="rounds to floats")],
    )
    return RefusedColumn(name, shape[0], error)


def _strided(view: Array, dtype: DType, name: str) -> TensorColumn:
    """Return a field as a strided view of the records."""
    readonly = not view.flags.writeable
    strided = StridedView(address(view), view.shape, view.strides, dtype, HOST, readonly, view)
    return TensorColumn(Source(name, strided, strided.numpy, "buffer", obj=view))


def _bytes(array: Array) -> Array:
    return array.view(np.uint8).reshape(*array.shape, array.dtype.itemsize)


def _copied(
    host: Callable[[], Array],
    shape: tuple[int, ...],
    dtype: DType,
    field: Field | None,
    name: str,
    on_use: Any,
) -> FieldColumn:
    view = StridedView(0, shape, contiguous_strides(shape, dtype.itemsize), dtype, HOST, False, host)
    # Metadata marks bytes that are padded: those of dtype S, but not V.
    kind = PaddedFieldColumn if field is not None and field.metadata else FieldColumn
    return kind(Source(name, view, host, "buffer", (INTERLEAVED,), obj=view), field, on_use=on_use)


class _NestedColumn(Column):
    """A column of a nested type, without nulls."""

    field: Field
    null_count = 0

    def __init__(self, name: str, parts: list[Column], field: Field, length: int) -> None:
        self.name, self.field, self.length, self._parts = name, field, length, parts
        self.reasons = (INTERLEAVED,)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)

    def child(self, index: int = 0) -> Column:
        return self._parts[index]

    def arrow(self) -> Any:
        return hub().nested(self.field, [part.arrow() for part in self._parts], self.length)

    def extents(self) -> Iterator[tuple[int, int]]:
        return iter(())


class StructColumn(_NestedColumn):
    """A record in a record."""

    def __init__(self, parts: list[Column], names: tuple[str, ...], length: int, name: str) -> None:
        children = [replace(_field_of(part), name=label) for part, label in zip(parts, names, strict=True)]
        super().__init__(name, parts, Field("+s", children=tuple(children)), length)

    def arrow_reasons(self) -> list[Reason]:
        reasons = dict.fromkeys(self.reasons)
        for part, field in zip(self._parts, self.field.children, strict=True):
            try:
                reasons |= dict.fromkeys(part.arrow_reasons())
            except UnsupportedConversionError as error:
                # A fix of the field does not apply to the record.
                objects = Fix(action="objects", effect="gives Python objects", alone=True)
                why = f"field {field.name!r}: {error.why}"
                raise UnsupportedConversionError("", why, code=error.code, fixes=[objects]) from error
        return list(reasons)


class ListColumn(_NestedColumn):
    """A sub-array in each record: lists of one length."""

    def __init__(self, values: Column, size: int, length: int) -> None:
        inner = replace(_field_of(values), name="item")
        if values.field is None:
            values.field = inner  # elements of lists need a type; a column of numbers has none
        super().__init__(values.name, [values], Field(f"+w:{size}", children=(inner,)), length)

    def arrow_reasons(self) -> list[Reason]:
        return list(dict.fromkeys([*self.reasons, *self._parts[0].arrow_reasons()]))


def _field_of(column: Column) -> Field:
    if column.field is not None:
        return column.field
    source: Source | None = getattr(column, "_source", None)
    return Field("unknown") if source is None else _plain(source.view.dtype.name)


def _plain(dtype: str) -> Field:
    try:
        return Field.of(dtype)
    except KeyError:
        return Field(dtype)  # Arrow has no format for it, as for complex numbers
