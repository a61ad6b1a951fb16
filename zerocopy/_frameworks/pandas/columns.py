"""Series, indexes and frames of pandas as columns over NumPy's or Arrow's memory.

This module does not import pandas: callers pass the module as `pd`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from numbers import Number
from typing import Any

import numpy as np

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks._private import Private
from zerocopy._frameworks.pandas import metadata as meta
from zerocopy.device import HOST
from zerocopy.dtype import DType, by_name, from_numpy, native_numbers
from zerocopy.errors import Fix, FrameworkNotInstalledError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols.array_interface import address
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Column, RefusedColumn
from zerocopy.tables.hub import hub
from zerocopy.tables.matrix import MOST_GAP
from zerocopy.tables.object_column import ObjectColumn
from zerocopy.tables.tensor_column import Marks, PaddedColumn, TensorColumn, field_of

_BYTE = by_name("uint8")
_NUMBERS_OF_NUMPY = native_numbers()
NAT = np.iinfo(np.int64).min
_NAME = "pandas.Series"
_PARTS = ("_ndarray", "_data", "_mask")
_ARRAYS = Private("pandas", "3", ", ".join(_PARTS), "no public name for the writable memory")
#: Also the layout: a column is a row of its block.
BLOCKS = Private("pandas", "3", "_mgr", "series: 1.4 / 3.0 us, matrix of ten columns: 14 / 620 us")
_CODES = {"int8": "c", "int16": "s", "int32": "i", "int64": "l"}
_UNITS = {"s": "s", "ms": "m", "us": "u", "ns": "n"}
RANGE = Reason(
    "a RangeIndex has no memory: pandas computes its values",
    code="computed-index",
    fixes=[Fix(options={"index": False}, effect="leaves it out")],
)
LEVEL = Reason(
    "a MultiIndex stores codes: pandas computes a level's values",
    code="computed-index",
    fixes=[Fix(options={"index": False}, effect="leaves it out")],
)
LEVELS = replace(LEVEL, fixes=[Fix("{x}.to_frame(index=False)", "stores the values")])
_EXPORT = Reason(
    "pandas copies these values for Arrow",
    code="exporter-copies",
    fixes=[Fix("{x}.copy()", "makes them contiguous")],
)
_ENCODED = Fix(options={"encode": True}, effect="gives their values as codes or integers")
_OBJECTS = Reason(
    "it holds Python objects, which tensors do not have",
    code="python-objects",
    fixes=[_ENCODED],
)
_NUMBERS = replace(_OBJECTS, fixes=[Fix(action="cast:float64", effect="gives floats"), _ENCODED])
_TEXT = Reason(
    "it is text, which tensors do not have",
    code="no-tensor-type",
    fixes=[
        Fix(options={"encode": True}, effect="gives codes of its words"),
        Fix(action="objects", alone=True, effect="gives Python objects"),
    ],
)


def plain(series: Any) -> Array:
    """Return a series of plain numbers as an ndarray; raise for any other."""
    array: Array | None = one_block(series)  # to_numpy() gives the same, and takes a microsecond more
    if array is not None and array.dtype.num in _NUMBERS_OF_NUMPY and array.dtype.isnative:
        array = array.view()
        array.flags.writeable = False  # guards copy-on-write, as below
        return array
    dtype = series.dtype
    if type(dtype).__module__ != "numpy.dtypes":
        values = series.array
        if type(values).__name__ not in MASKED:
            return in_arrow(values)
        if values.isna().any():
            raise TypeError("it has nulls: use the slow path")
        series, dtype = values, dtype.numpy_dtype
    if dtype.num not in _NUMBERS_OF_NUMPY or not dtype.isnative:  # longdouble has the kind f too
        raise TypeError("not plain numbers: use the slow path")
    # Only the read-only flag protects pandas' copy-on-write from writes to an alias
    # (pandas-dev/pandas, "Copy-on-Write (CoW)", section "Read-only NumPy arrays").
    array = series.to_numpy(dtype, copy=False)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def one_block(frame: Any) -> Array | None:
    """Return the one block of a frame or series, or None if it has others or not NumPy's memory.

    The block of a frame has a column in each row. No public attribute tells; to_numpy() copies several
    blocks, and makes the nulls of other memory NaN.
    """
    blocks: Any = getattr(getattr(frame, "_mgr", None), "blocks", ()) if BLOCKS() else ()
    values = blocks[0].values if len(blocks) == 1 else None
    return values if type(values) is np.ndarray else None


def is_read_only(series: Any) -> bool:
    """Whether writes to a series fail because an array of NumPy that it holds is read-only, or may fail."""
    if not (BLOCKS() and _ARRAYS()):
        return True  # public arrays are read-only views: copy what may be read-only
    block = one_block(series)
    parts = [block] if block is not None else [vars(series.array).get(name) for name in _PARTS]
    return any(type(part) is np.ndarray and not part.flags.writeable for part in parts)


def matrix(frame: Any) -> Array:
    """Return the one block of a frame of plain numbers as a read-only matrix; raise for any other frame."""
    block = one_block(frame)
    if block is None:
        raise ValueError("not one block: use the slow path")
    array, dtype = block.T, block.dtype  # to_numpy() gives the same, and takes a microsecond more
    if dtype.num not in _NUMBERS_OF_NUMPY or not dtype.isnative:
        raise ValueError("not plain numbers: use the slow path")
    if not array.flags.forc:
        (length, step), (_, distance) = sorted(
            zip(array.shape, array.strides, strict=True), key=lambda x: x[1]
        )
        if step < array.itemsize or distance < step * (length - 1) + array.itemsize:
            raise ValueError("reversed, or elements that share memory: use the slow path")
        if step == array.strides[0] and not (step == array.itemsize and distance - step * length < MOST_GAP):
            raise ValueError("some rows of a larger frame: the plan copies them")
    array.flags.writeable = False  # a view of pandas' memory: see `plain`
    return array


def in_arrow(values: Any) -> Array:
    """Return an array in Arrow's memory, of numbers in one chunk without nulls; raise for any other."""
    chunked = values.__arrow_array__()
    if values.dtype.kind not in "iuf" or chunked.num_chunks != 1 or chunked.null_count:
        raise TypeError("not plain numbers in one chunk: use the slow path")
    return np.from_dlpack(chunked.chunk(0))


# -- pandas' objects as columns -------------------------------------------------


def levels_of(index: Any) -> list[Any]:
    if index.nlevels == 1:
        return [index]
    # get_level_values(1) means the level whose name is 1, if there is one: integer names hide positions.
    unnamed = index.set_names([None] * index.nlevels)
    return [unnamed.get_level_values(i).rename(name) for i, name in enumerate(index.names)]


def index_column(pd: Any, level: Any, reasons: tuple[Reason, ...] = ()) -> Column:
    if type(level) is pd.RangeIndex:
        reasons = (*reasons, RANGE)
    values = level.to_numpy(copy=False) if isinstance(level.dtype, np.dtype) else level.array
    return column_of(pd, values, lambda: pd.Series(level, copy=False), reasons)


def column_of(pd: Any, values: Any, as_series: Callable[[], Any], reasons: tuple[Reason, ...] = ()) -> Column:
    """Describe an array of pandas; a type that no other framework has becomes a `RefusedColumn`.

    `as_series` returns it as a series, which pandas as a target uses without a loss.
    """
    column: Any
    if type(values) is pd.arrays.NumpyExtensionArray:  # text is a subclass
        values = values.to_numpy(copy=False)  # NumPy's memory, with a dtype of pandas
    try:
        column = _of_numpy(pd, values) if isinstance(values.dtype, np.dtype) else _of_extension(pd, values)
    except FrameworkNotInstalledError:
        raise  # pyarrow reads the nulls of pandas' own arrays
    except ZeroCopyError as error:
        column = RefusedColumn(_NAME, len(values), error, int(values.nbytes))
        column.held = values if isinstance(values, np.ndarray) else None
    column.reasons = (*reasons, *column.reasons)
    column.of_pandas = as_series

    column.of_rows = partial(_set_rows, pd, as_series)
    # to_numpy() returns a read-only array, but pandas itself writes to the memory in place.
    column.changes = isinstance(column, TensorColumn)
    return column  # type: ignore[no-any-return]


def _set_rows(pd: Any, as_series: Callable[[], Any], part: Any, rows: Array) -> None:
    def of_pandas() -> Any:
        series = as_series()
        # Not series[...]: it also takes the rows of the index, which doubles the time of each column.
        return pd.Series(series.array.take(rows), dtype=series.dtype, name=series.name, copy=False)

    part.of_pandas, part.index_of_rows = of_pandas, lambda: as_series().index.take(rows)


def _of_numpy(pd: Any, values: Any) -> Column:
    array: Array = values if isinstance(values, np.ndarray) else values.to_numpy(copy=False)
    dtype = array.dtype
    if dtype.kind in "mM":
        unit = _UNITS[np.datetime_data(dtype)[0]]
        field = Field(f"ts{unit}:" if dtype.kind == "M" else f"tD{unit}")
        return _times(array, field)
    if dtype.kind == "O":
        return _of_objects(pd, array)
    # By type, because the types of ml_dtypes have the kind V too.
    if dtype.names is None and issubclass(dtype.type, (np.bytes_, np.void)):
        raw = np.ascontiguousarray(array).view("u1").reshape(len(array), dtype.itemsize)
        return (PaddedColumn if dtype.kind == "S" else TensorColumn)(_source(raw), field_of(dtype))
    native = dtype.newbyteorder("=")
    standard = from_numpy(native)
    if standard is None:
        why = f"it is {dtype}, which no other framework has"
        raise UnsupportedConversionError("", why, code="missing-dtype", fixes=[Fix("{x}.astype('float64')")])
    if dtype.isnative:
        return _numbers(array, _source(array, standard))
    swapped = obstacles.byte_order(dtype)
    view = StridedView(address(array), array.shape, array.strides, standard, HOST, True, array)
    return _numbers(array, Source(_NAME, view, lambda: array.astype(native), "buffer", [swapped]))


def _numbers(array: Array, source: Source) -> Column:
    """Describe numbers; NaN is a number, and missing for ``nulls=`` as for pandas' ``isna()``."""
    column, name = TensorColumn(source), source.view.dtype.name
    if "float" in name or "complex" in name:
        column.missing = lambda: TensorColumn(source, mask=Marks(lambda: array, np.isnan, _MARKED))
    return column


def _of_objects(pd: Any, array: Array) -> Column:
    def without_nan() -> Array:
        kept = array.copy()
        kept[pd.isna(array)] = None
        return kept

    refusal = _NUMBERS if len(array) and isinstance(array[0], (Decimal, Number)) else _OBJECTS
    column = ObjectColumn(_NAME, len(array), lambda: array, refusal)
    column.missing = lambda: ObjectColumn(_NAME, len(array), without_nan, refusal)
    column.held = array
    return column


def _source(array: Array, dtype: DType | None = None) -> Source:
    array = array.view()
    array.flags.writeable = False  # also if pandas returns it writable: see `plain`
    dtype = dtype or from_numpy(array.dtype)
    assert dtype is not None
    view = StridedView(address(array), array.shape, array.strides, dtype, HOST, True, array)
    stored = array if dtype.in_numpy else array.view(dtype.storage)
    return Source(_NAME, view, lambda: stored, "buffer", obj=array)


_MARKED = Reason(
    "pandas marks nulls among the values, and a mask is computed from them", code="computed-mask"
)


class _Booleans(TensorColumn):
    """A nullable boolean column: bytes, which Arrow packs into bits."""

    def __init__(self, pd: Any, array: Any) -> None:
        hidden = array.isna()
        if hidden.any():
            no_view = Reason(
                "pandas has no view of booleans with nulls",
                code="nulls",
                fixes=[Fix("{x}.astype('Int8')", "has one")],
            )
            source = replace(_source(array.to_numpy(bool, na_value=False)), reasons=[no_view])
            super().__init__(source, Field("b"), lambda: hidden)
        else:
            super().__init__(_source(array.to_numpy(bool, copy=False)), Field("b"))
        self._arrow, self._array, self._hidden = _of_arrow(pd, array), array, hidden

    def extents(self) -> Iterator[tuple[int, int]]:
        # pandas has a view of a part without nulls: the rows around it have the same distance.
        rows = np.flatnonzero(~self._hidden)
        if len(rows):
            low, high = int(rows[0]), int(rows[-1])
            first, last = (address(self._array[i : i + 1].to_numpy(bool, copy=False)) for i in (low, high))
            step = (last - first) // (high - low) if high > low else 0
            ends = (first - low * step, last + (len(self._hidden) - 1 - high) * step)
            yield min(ends), max(ends) + 1

    def mask(self) -> Source:
        return replace(super().mask(), reasons=(_MARKED,))

    def arrow(self) -> Any:
        return self._arrow.arrow()

    def arrow_reasons(self) -> list[Reason]:
        fixes = [] if self.source.reasons else [obstacles.BOOL8]
        why = "pandas stores booleans in bytes and Arrow in bits"
        return [*self.reasons, Reason(why, code="packed-bits", fixes=fixes)]


def _times(array: Array, field: Field) -> Column:
    if array.ndim > 1:  # the blocks of a frame, which DatetimeArray.ravel() copies
        why = f"it has {array.ndim} dimensions, and a column has one"
        fixes = [Fix("{x}.ravel()", "has one")]
        raise UnsupportedConversionError("", why, code="too-many-dimensions", fixes=fixes)
    return TensorColumn(_source(array.view("i8")), field, Marks(lambda: array, np.isnat, _MARKED))


def _is_minus_one(codes: Array) -> Array:
    marked: Array = codes == -1
    return marked


def _of_extension(pd: Any, array: Any) -> Column:
    dtype = array.dtype
    if isinstance(dtype, pd.ArrowDtype):
        return _of_arrow(pd, array)
    if isinstance(dtype, pd.SparseDtype):
        why = f"it is {dtype}, and no other framework has sparse columns"
        fixes = [Fix("{x}.sparse.to_dense()"), Fix("numpy.asarray({x})", "gives dense values")]
        raise UnsupportedConversionError("", why, code="sparse", fixes=fixes)
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
        return TensorColumn(_source(codes), field, Marks(lambda: codes, _is_minus_one, _MARKED), names)
    if isinstance(array, pd.arrays.BooleanArray):
        return _Booleans(pd, array)
    if isinstance(array, (pd.arrays.IntegerArray, pd.arrays.FloatingArray)) and not array.isna().any():
        return TensorColumn(_source(array.to_numpy(dtype.numpy_dtype, copy=False)))
    if isinstance(dtype, pd.StringDtype) and dtype.storage == "python":
        column = ObjectColumn(_NAME, len(array), lambda: array.to_numpy(object, na_value=None), _TEXT)
        column.held = np.asarray(array)  # the array's own objects
        return column
    return _of_arrow(pd, array)


def _of_arrow(pd: Any, array: Any) -> Column:
    """Describe an array that pandas exports to Arrow without a copy: Arrow's, and nullable numbers."""
    try:
        exported = _export(pd, array)
        copied = type(array).__name__ not in ARROW and _copies(exported, _export(pd, array[:2]))
    except (TypeError, ValueError, NotImplementedError) as error:  # pyarrow's errors derive from these
        why = f"it is {array.dtype}, which Arrow has no type for: {error}"
        remedy = "cast it to a type that Arrow has: x.astype(...)"
        raise UnsupportedConversionError("", why, remedy, code="missing-dtype") from error
    column: Column = hub().table(exported).columns[0]
    column.name = _NAME
    column.reasons = (*column.reasons, _EXPORT) if copied else column.reasons
    return column


#: Names of pandas' array classes: those in Arrow's memory, and those of numbers with a mask.
ARROW = ("ArrowExtensionArray", "ArrowStringArray")
MASKED = ("IntegerArray", "FloatingArray")


def _export(pd: Any, array: Any) -> Any:
    export = getattr(array, "__arrow_array__", None)
    arrow = hub().module()  # not pandas' import, whose error lacks the command
    return arrow.array(pd.Series(array, copy=False)) if export is None else export()


def _copies(exported: Any, head: Any) -> bool:
    """Whether pandas copied the values, as it does with strides: their head then has other memory."""
    if not len(exported) or hasattr(exported, "chunks"):
        return False
    ours, theirs = ({b.address for b in x.buffers() if b is not None and b.size} for x in (exported, head))
    return not ours & theirs


# -- columns of other frameworks --------------------------------------------------


def masked_type(dtype: str) -> str | None:
    """Return the class of pandas' arrays of numbers with a mask, if the type has one."""
    kinds = {"int": "IntegerArray", "uint": "IntegerArray", "bool": "BooleanArray", "float": "FloatingArray"}
    return kinds.get(dtype.rstrip("0123456789")) if dtype != "float16" else None


def nat_reasons(column: Column) -> list[Reason]:
    """Return why dates with nulls are copied: pandas marks nulls with NaT only."""
    nulls: Array | None = getattr(column, "nulls", None)
    source = column.source
    if column.field is None or nulls is None or source is None:
        return []
    if source.view.device.is_host and (source.host()[nulls] == NAT).all():
        return []
    return [Reason("pandas marks nulls among dates with NaT, and these have a mask", code="nulls")]
