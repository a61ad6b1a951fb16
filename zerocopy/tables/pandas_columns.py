"""Objects of pandas as columns: over the memory of NumPy or of Arrow in which they lie.

pandas is not imported here: whoever has such an object has it, and passes the module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.device import HOST
from zerocopy.dtype import by_name, from_numpy
from zerocopy.errors import Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Array, Source
from zerocopy.protocols.array_interface import address
from zerocopy.protocols.arrow_schema import Field
from zerocopy.strided import StridedView
from zerocopy.tables import pandas_metadata as meta
from zerocopy.tables.column import Column, Table
from zerocopy.tables.object_column import ObjectColumn, RefusedColumn
from zerocopy.tables.tensor_column import TensorColumn

_BYTE = by_name("uint8")
_NAME = "pandas.Series"
_CODES = {"int8": "c", "int16": "s", "int32": "i", "int64": "l"}
_UNITS = {"s": "s", "ms": "m", "us": "u", "ns": "n"}
RANGE = Reason("a RangeIndex has no memory: its values are made", "index=False leaves it out")
LEVEL = Reason("a MultiIndex keeps codes: a level's values are made of them", "index=False leaves it out")
_OBJECTS = Reason(
    "holds Python objects, which tensors do not have",
    "make numbers of them, x.astype('float64'), leave it out with columns=[...], or encode=True",
)
_TEXT = Reason("is text, which tensors do not have", "encode=True gives its bytes with their offsets")


def plain(series: Any) -> Array:
    """Return a series of plain numbers as an ndarray; raise for any other."""
    dtype = series.dtype
    if type(dtype).__module__ != "numpy.dtypes" or dtype.kind not in "iufcb" or not dtype.isnative:
        raise TypeError("no plain numbers: for the careful way")
    # pandas marks it read-only, which is all that guards its copy-on-write: an alias
    # escapes it (pandas-dev/pandas, "Copy-on-Write (CoW)", section "Read-only NumPy arrays").
    array: Array = series.to_numpy(copy=False)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def versioned(series: Any) -> Any:
    """Return a series of plain numbers as a DLPack 1.x capsule, which says that it is read-only."""
    array: Any = plain(series)
    if array.strides[0] < 0:
        raise ValueError("reversed: for the careful way")
    return array.__dlpack__(max_version=(1, 0))


def is_default(index: Any, default: Any) -> bool:
    """Whether an index is the one that pandas makes by itself; `default` is ``RangeIndex``."""
    return type(index) is default and index.name is None and index.start == 0 and index.step == 1


# -- pandas' objects as columns -------------------------------------------------


def frame_table(pd: Any, frame: Any, index: bool | None, name: str) -> Table:
    labels, columns, entries = [], [], []
    mixed = frame.columns.dtype == object
    for label, series in frame.items():
        labels.append(label)
        columns.append(column_of(pd, series))
        entries.append(meta.entry(label, str(label), meta.typed(pd, series.dtype), mixed))
    described: list[Any] = []
    travels = index or (index is None and not is_default(frame.index, pd.RangeIndex))
    if travels:
        taken = set(map(str, labels))
        for place, series in enumerate(_levels(pd, frame.index)):
            made_up = series.name is None or str(series.name) in taken
            label = meta.level(place) if made_up else series.name
            reasons = (RANGE,) if type(frame.index) is pd.RangeIndex else ()
            labels.append(label)
            taken.add(str(label))
            columns.append(column_of(pd, series, (LEVEL,) if frame.index.nlevels > 1 else reasons))
            entries.append(meta.entry(series.name, str(label), meta.typed(pd, series.dtype)))
            described.append(str(label))
    elif index is None:
        described.append(meta.span(0, len(frame), 1))
    of_labels = [meta.label_level(pd, one) for one in _levels(pd, frame.columns)]
    metadata = meta.written(entries, described, of_labels, frame.attrs, pd.__version__)
    count = len(described) if travels else 0
    return Table(name, labels, columns, len(frame), index=count, metadata=metadata, obj=frame)


def _levels(pd: Any, index: Any) -> list[Any]:
    """Return an index's levels as series."""
    levels = [index.get_level_values(i) for i in range(index.nlevels)] if index.nlevels > 1 else [index]
    return [pd.Series(one, name=one.name, index=range(len(one)), copy=False) for one in levels]


def column_of(pd: Any, series: Any, reasons: tuple[Reason, ...] = ()) -> Column:
    """Describe a series; what nobody can have is refused where it is looked at."""
    column: Any
    try:
        column = _of_numpy(series) if isinstance(series.dtype, np.dtype) else _of_extension(pd, series)
    except ZeroCopyError as error:
        column = RefusedColumn(_NAME, len(series), error, series.memory_usage(index=False))
    column.reasons = (*reasons, *column.reasons)
    column.of_pandas = series  # what pandas itself takes, with all that Arrow has no word for
    return column  # type: ignore[no-any-return]


def _of_numpy(series: Any) -> Column:
    array: Array = series.to_numpy(copy=False)
    dtype = array.dtype
    if dtype.kind in "mM":
        unit = _UNITS[np.datetime_data(dtype)[0]]
        field = Field(f"ts{unit}:" if dtype.kind == "M" else f"tD{unit}")
        return _times(array, field)
    if dtype.kind == "O":
        return ObjectColumn(_NAME, len(array), lambda: array, _OBJECTS)
    if dtype.kind == "S" or (dtype.kind == "V" and dtype.names is None):
        raw = np.ascontiguousarray(array).view("u1").reshape(len(array), dtype.itemsize)
        return TensorColumn(_source(raw), Field(f"w:{dtype.itemsize}"))
    native = dtype.newbyteorder("=")
    standard = from_numpy(native)
    if standard is None:
        raise UnsupportedConversionError(
            "", f"is {dtype}, which no other framework has", "cast it: x.astype('float64')"
        )
    if dtype.isnative:
        return TensorColumn(_source(array))
    why = Reason(f"the bytes are in the other order ({dtype.str})", "x.astype(x.dtype.newbyteorder('='))")
    view = StridedView(address(array), array.shape, array.strides, standard, HOST, True, array)
    return TensorColumn(Source(_NAME, view, lambda: array.astype(native), "buffer", [why]))


def _source(array: Array) -> Source:
    array = array.view()
    array.flags.writeable = False  # also where pandas lends it writable: see `plain`
    dtype = from_numpy(array.dtype)
    assert dtype is not None
    view = StridedView(address(array), array.shape, array.strides, dtype, HOST, True, array)
    return Source(_NAME, view, lambda: array, "buffer", obj=array)


class _Marked(TensorColumn):
    """A column whose mask is made by looking at its values."""

    def mask(self) -> Source:
        why = Reason("pandas marks nulls among the values, and a mask is made of them", "")
        return replace(super().mask(), reasons=(why,))


class _Booleans(_Marked):
    """A nullable boolean column: bytes, which Arrow packs into bits."""

    def __init__(self, series: Any) -> None:
        if series.hasnans:
            lent = Reason("pandas lends no view of booleans with nulls", "x.astype('int8') has one")
            source = replace(_source(series.to_numpy(bool, na_value=False)), reasons=[lent])
        else:
            source = _source(series.to_numpy(bool, copy=False))
        hidden = (lambda: series.isna().to_numpy()) if series.hasnans else None
        super().__init__(source, Field("b"), hidden)
        self._arrow = _of_arrow(series)

    def arrow(self) -> Any:
        return self._arrow.arrow()

    def arrow_reasons(self) -> list[Reason]:
        return [*self.reasons, Reason("pandas keeps booleans in bytes and Arrow in bits", "")]


def _marked(
    source: Source, field: Field | None, hidden: Callable[[], Array], of: Column | None = None
) -> Column:
    def mask() -> Array | None:
        found = hidden()
        return found if found.any() else None

    return _Marked(source, field, mask, of)


def _times(array: Array, field: Field) -> Column:
    return _marked(_source(array.view("i8")), field, lambda: np.isnat(array))


def _of_extension(pd: Any, series: Any) -> Column:
    dtype, array = series.dtype, series.array
    if isinstance(dtype, pd.SparseDtype):
        raise UnsupportedConversionError(
            "", f"is {dtype}, and no other framework has sparse columns", "x.sparse.to_dense() fills it"
        )
    if isinstance(dtype, pd.DatetimeTZDtype):
        zone = meta.zone(dtype.tz)
        if zone:
            utc = series.to_numpy(dtype=f"M8[{dtype.unit}]", copy=False)
            return _times(utc, Field(f"ts{_UNITS[dtype.unit]}:{zone}"))
    if isinstance(dtype, pd.CategoricalDtype):
        codes = array.codes
        names = column_of(pd, pd.Series(dtype.categories, copy=False))
        field = Field(
            _CODES[codes.dtype.name],
            ordered=bool(dtype.ordered),
            dictionary=names.field or Field.of(names.values(_BYTE).view.dtype.name),
        )
        return _marked(_source(codes), field, lambda: codes == -1, names)
    if isinstance(array, (pd.arrays.IntegerArray, pd.arrays.FloatingArray, pd.arrays.BooleanArray)):
        if isinstance(array, pd.arrays.BooleanArray):
            return _Booleans(series)
        if not series.hasnans:
            return TensorColumn(_source(series.to_numpy(dtype.numpy_dtype, copy=False)))
    if isinstance(dtype, pd.StringDtype) and dtype.storage == "python":
        return ObjectColumn(_NAME, len(series), lambda: series.to_numpy(object, copy=False), _TEXT)
    return _of_arrow(series)


def _of_arrow(series: Any) -> Column:
    """Describe what pandas gives Arrow without copying: Arrow's own, and nullable numbers."""
    hub: Any = registry.by_name("pyarrow")
    pa = hub.module()
    try:
        made = series.array.__arrow_array__() if hasattr(series.array, "__arrow_array__") else series
        chunked = made if isinstance(made, pa.ChunkedArray) else pa.chunked_array(series)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        raise UnsupportedConversionError(
            "", f"is {series.dtype}, which Arrow has no type for: {error}", "x.astype(...) to one that it has"
        ) from error
    column: Column = hub.table(chunked).columns[0]
    column.name = _NAME
    return column
