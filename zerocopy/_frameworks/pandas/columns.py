"""Objects of pandas as columns: over the memory of NumPy or of Arrow in which they lie.

pandas is not imported here: whoever has such an object has it, and passes the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.device import HOST
from zerocopy.dtype import FLOAT, by_name, from_numpy
from zerocopy.errors import Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols.array_interface import address
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView
from zerocopy.tables import pandas_metadata as meta
from zerocopy.tables.column import Column, Table
from zerocopy.tables.object_column import ObjectColumn, RefusedColumn
from zerocopy.tables.tensor_column import TensorColumn

_BYTE = by_name("uint8")
NAT = np.iinfo(np.int64).min
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
    if type(dtype).__module__ != "numpy.dtypes":
        return np.from_dlpack(_in_arrow(series))
    if dtype.kind not in "iufcb" or not dtype.isnative:
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
    if type(series.dtype).__module__ != "numpy.dtypes":
        return _in_arrow(series).__dlpack__(max_version=(1, 0))
    array: Any = plain(series)
    if array.strides[0] < 0:
        raise ValueError("reversed: for the careful way")
    return array.__dlpack__(max_version=(1, 0))


def _in_arrow(series: Any) -> Any:
    """Return the one chunk of a series in Arrow's memory; its exporter refuses nulls and all but numbers."""
    chunked = series.array.__arrow_array__()
    if series.array.dtype.kind not in "iuf" or chunked.num_chunks != 1:
        raise TypeError("no plain numbers in one chunk: for the careful way")
    return chunked.chunk(0)


def is_default(index: Any, default: Any) -> bool:
    """Whether an index is the one that pandas makes by itself; `default` is ``RangeIndex``."""
    return type(index) is default and index.name is None and index.start == 0 and index.step == 1


# -- pandas' objects as columns -------------------------------------------------


#: Said of every frame with floats: to look for NaN would read all of them.
NAN = "NaN in a column of NumPy's floats is a number and no null: x.convert_dtypes() makes nulls of it"


def frame_table(pd: Any, frame: Any, index: bool | None, name: str) -> Table:
    """Describe a data frame: its columns, and its index behind them where that travels."""
    labels = frame.columns.tolist()
    types = [meta.typed(pd, values.dtype) for values in column_arrays(pd, frame)]
    mixed = _is_objects(frame.columns.dtype)
    entries = [meta.entry(label, str(label), t, mixed) for label, t in zip(labels, types, strict=True)]
    columns = [
        column_of(pd, values, partial(_nth, frame, i)) for i, values in enumerate(column_arrays(pd, frame))
    ]
    described: list[Any] = []
    travels = index or (index is None and not is_default(frame.index, pd.RangeIndex))
    if travels:
        taken = set(map(str, labels))
        reasons = (LEVEL,) if frame.index.nlevels > 1 else ()
        for place, level in enumerate(levels(frame.index)):
            made_up = level.name is None or str(level.name) in taken
            label = meta.level(place) if made_up else level.name
            labels.append(label)
            taken.add(str(label))
            columns.append(index_column(pd, level, reasons))
            entries.append(meta.entry(level.name, str(label), meta.typed(pd, level.dtype)))
            described.append(str(label))
    elif index is None:
        described.append(meta.span(0, len(frame), 1))
    of_labels = [meta.label_level(pd, one) for one in levels(frame.columns)]
    metadata = meta.written(entries, described, of_labels, frame.attrs, pd.__version__)
    count = len(described) if travels else 0
    floats = [c for c in columns if isinstance(c, TensorColumn) and c.source.view.dtype.code == FLOAT]
    beware = (NAN,) if any(column.nulls is None for column in floats) else ()
    return Table(
        name, labels, columns, len(frame), index=count, metadata=metadata, warnings=beware, obj=frame
    )


def _nth(frame: Any, place: int) -> Any:
    return frame.iloc[:, place]


def column_arrays(pd: Any, frame: Any) -> Iterator[Any]:
    """Yield each column's ndarray or extension array."""
    # Ten columns take 6 us this way, and 85 through a series each, of the 200 there are.
    if pd.__version__.startswith("3.") and hasattr(frame, "_iter_column_arrays"):
        return iter(frame._iter_column_arrays())
    return column_arrays_by_series(frame)


def column_arrays_by_series(frame: Any) -> Iterator[Any]:
    """Yield each column's array, the documented way."""
    return (series.array for _, series in frame.items())


def levels(index: Any) -> list[Any]:
    """Return each level of an index as an index."""
    return [index.get_level_values(i) for i in range(index.nlevels)] if index.nlevels > 1 else [index]


def index_column(pd: Any, level: Any, reasons: tuple[Reason, ...] = ()) -> Column:
    """Describe an index of one level."""
    if type(level) is pd.RangeIndex:
        reasons = (*reasons, RANGE)
    values = level.to_numpy(copy=False) if isinstance(level.dtype, np.dtype) else level.array
    return column_of(pd, values, lambda: pd.Series(level, copy=False), reasons)


def column_of(pd: Any, values: Any, own: Callable[[], Any], reasons: tuple[Reason, ...] = ()) -> Column:
    """Describe an array of pandas; what nobody can have is refused where it is looked at.

    `own` returns it as a series: what pandas itself takes, with all that Arrow has no word for.
    """
    column: Any
    if type(values) is pd.arrays.NumpyExtensionArray:  # text is a subclass
        values = values.to_numpy(copy=False)  # NumPy's memory, with a type that says so and is not NumPy's
    try:
        column = _of_numpy(values) if isinstance(values.dtype, np.dtype) else _of_extension(pd, values)
    except ZeroCopyError as error:
        column = RefusedColumn(_NAME, len(values), error, int(values.nbytes))
    column.reasons = (*reasons, *column.reasons)
    column.of_pandas = own
    # to_numpy() gives it as read-only, and pandas writes to it in place all the same.
    column.changes = isinstance(column, TensorColumn)
    return column  # type: ignore[no-any-return]


def _is_objects(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind == "O"


def _of_numpy(values: Any) -> Column:
    array: Array = values if isinstance(values, np.ndarray) else values.to_numpy(copy=False)
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

    def __init__(self, pd: Any, array: Any) -> None:
        hidden = array.isna()
        if hidden.any():
            lent = Reason("pandas lends no view of booleans with nulls", "x.astype('int8') has one")
            source = replace(_source(array.to_numpy(bool, na_value=False)), reasons=[lent])
            super().__init__(source, Field("b"), lambda: hidden)
        else:
            super().__init__(_source(array.to_numpy(bool, copy=False)), Field("b"))
        self._arrow = _of_arrow(pd, array)

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


def _of_extension(pd: Any, array: Any) -> Column:
    dtype = array.dtype
    if isinstance(dtype, pd.ArrowDtype):
        return _of_arrow(pd, array)
    if isinstance(dtype, pd.SparseDtype):
        raise UnsupportedConversionError(
            "", f"is {dtype}, and no other framework has sparse columns", "x.sparse.to_dense() fills it"
        )
    if isinstance(dtype, pd.DatetimeTZDtype):
        zone = meta.zone(dtype.tz)
        if zone:
            utc = array.to_numpy(dtype=f"M8[{dtype.unit}]", copy=False)
            return _times(utc, Field(f"ts{_UNITS[dtype.unit]}:{zone}"))
    if isinstance(dtype, pd.CategoricalDtype):
        codes = array.codes
        names = index_column(pd, dtype.categories)
        field = Field(
            _CODES[codes.dtype.name],
            ordered=bool(dtype.ordered),
            dictionary=names.field or Field.of(names.values(_BYTE).view.dtype.name),
        )
        return _marked(_source(codes), field, lambda: codes == -1, names)
    if isinstance(array, pd.arrays.BooleanArray):
        return _Booleans(pd, array)
    if isinstance(array, (pd.arrays.IntegerArray, pd.arrays.FloatingArray)) and not array.isna().any():
        return TensorColumn(_source(array.to_numpy(dtype.numpy_dtype, copy=False)))
    if isinstance(dtype, pd.StringDtype) and dtype.storage == "python":
        return ObjectColumn(_NAME, len(array), lambda: array.to_numpy(object), _TEXT)
    return _of_arrow(pd, array)


def _of_arrow(pd: Any, array: Any) -> Column:
    """Describe what pandas gives Arrow without copying: Arrow's own, and nullable numbers."""
    hub: Any = registry.by_name("pyarrow")
    try:
        if hasattr(array, "__arrow_array__"):
            made = array.__arrow_array__()
        else:
            made = hub.module().array(pd.Series(array, copy=False))
    except (TypeError, ValueError, NotImplementedError) as error:  # pyarrow's are these, too
        raise UnsupportedConversionError(
            "", f"is {array.dtype}, which Arrow has no type for: {error}", "x.astype(...) to one that it has"
        ) from error
    column: Column = hub.table(made).columns[0]
    column.name = _NAME
    return column


# -- what pandas has for columns of others --------------------------------------


def masked_type(dtype: str) -> str | None:
    """Return the class of pandas' arrays of numbers with a mask, if the type has one."""
    kinds = {"int": "IntegerArray", "uint": "IntegerArray", "bool": "BooleanArray", "float": "FloatingArray"}
    return kinds.get(dtype.rstrip("0123456789")) if dtype != "float16" else None


def nat_reasons(column: Column) -> list[Reason]:
    """Return why dates with nulls are copied: pandas marks nulls by NaT alone."""
    nulls: Array | None = getattr(column, "nulls", None)
    if column.field is None or nulls is None:
        return []
    source: Source = getattr(column, "source")  # noqa: B009
    if source.view.device.is_host and (source.host()[nulls] == NAT).all():
        return []
    return [Reason("pandas marks nulls among dates by NaT, and these are under a mask", "")]
