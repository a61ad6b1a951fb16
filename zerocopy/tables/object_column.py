"""Columns of Python objects, or of NumPy's text: their Arrow type, or one tensor of their cells.

Finding either copies the objects. NumPy stacks cells that are arrays, or lists of numbers, of one shape in
one call: (rows, *shape). Arrow's lists of such cells take their values from one array too.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from zerocopy import registry
from zerocopy.device import HOST
from zerocopy.dtype import DType, by_name, from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols import arrow_c, python_numbers
from zerocopy.protocols.array_interface import host_view, masked_elements
from zerocopy.protocols.arrow_schema import Field, read_schema
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import ArrowArray, Column, RefusedColumn
from zerocopy.tables.hub import hub, new_memory
from zerocopy.tables.lists import LISTS
from zerocopy.tables.tensor_column import Marks, TensorColumn

if TYPE_CHECKING:
    from zerocopy.framework import Framework

#: Types of missing values, by name: pandas need not be imported.
MISSING = ("NoneType", "NAType", "NaTType")
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
#: pyarrow overflows the stack at some thousands.
_DEEPEST = 500
_OTHER_FORM = Reason("Arrow stores each of its values in another form", code="python-objects")
_PLAIN = frozenset((str, int, bool, decimal.Decimal, datetime.datetime, datetime.date))
_AS_TEXT = Fix("{x}.astype(str)", "makes all of them text")
_SEQUENCES = frozenset((list, tuple))
_AS_LISTS = Fix(action="objects", alone=True, effect="gives Python objects")
_AS_OBJECTS = Fix(action="objects", alone=True, effect="gives one array for each row")
_COMPUTED = Reason("missing cells are objects, and a mask of them is computed", code="computed-mask")
_ON_DEVICE = Reason("one is in the memory of a device", code="other-device")
_LENGTHS = [
    Fix(options={"lists": "pad"}, effect="pads them to one length"),
    Fix(options={"lists": "ragged"}, effect="gives their values with their offsets"),
]


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
    def _array(self) -> ArrowArray:
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
            return _without_rows(self.name)
        if objects.dtype.kind != "O" or type(objects[0]) in _PLAIN:
            return self
        reasons = tuple(reason for reason in self.reasons if reason is not _OTHER_FORM)
        return _tensor_of(self.name, objects, reasons) or self

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

    def arrow(self) -> ArrowArray:
        return self._array

    def arrow_reasons(self) -> list[Reason]:
        _ = self._array
        return list(self.reasons)

    def _load(self) -> list[arrow_c.Memory]:  # a method: an attribute would be a reference cycle
        chunks = getattr(self._array, "chunks", [self._array])
        return [arrow_c.read_array(chunk) for chunk in chunks]


# -- as one tensor ------------------------------------------------------------------------


def _tensor_of(name: str, objects: Array, reasons: tuple[Reason, ...]) -> Column | None:
    """Return cells of one dtype and shape as one tensor; None if they are not arrays or lists of numbers.

    Cells that differ give a column that is refused, with the first row that differs. Missing cells are nulls.
    """
    cells = objects.tolist()
    types = set(map(type, cells))
    hidden = _missing(types)
    present = types - set(hidden)
    if present == {np.ndarray}:
        build: Callable[[str, list[Any], int], Source | None] = _of_arrays
    elif present and present <= _SEQUENCES:
        build = _of_lists
    elif len(present) == 1 and (framework := _tensors(next(iter(present)))) is not None:
        build = partial(_of_tensors, framework)
    else:
        return None
    mask = None
    first = 0
    if hidden:
        mask = np.fromiter((type(cell) in hidden for cell in cells), np.bool_, len(cells))
        if not all(_is_missing(cell) for cell in objects[mask]):
            return None  # a number among arrays
        first = int(np.argmin(mask))
        # The values of null rows are undefined, so they can be those of another row.
        cells = [cells[first] if type(cell) in hidden else cell for cell in cells]
    try:
        source = build(name, cells, first)
    except ZeroCopyError as error:
        return RefusedColumn(name, len(cells), error, int(objects.nbytes))
    if source is None:
        return None
    marks = None if mask is None else Marks(lambda: mask, lambda rows: rows, _COMPUTED)
    return TensorColumn(source, mask=marks, reasons=reasons)


def _without_rows(name: str) -> Column:
    """Return a column without rows as float64: any type is right, and most targets have this one."""
    array = np.empty(0)
    return TensorColumn(Source(name, host_view(array, by_name("float64")), lambda: array))


def _missing(types: set[type]) -> tuple[type, ...]:
    return tuple(cls for cls in types if cls.__name__ in MISSING or issubclass(cls, (float, np.floating)))


def _is_missing(cell: object) -> bool:
    return type(cell).__name__ in MISSING or bool(cell != cell)


def _source(name: str, shape: tuple[int, ...], dtype: DType, host: Callable[[], Array]) -> Source:
    view = StridedView(0, shape, contiguous_strides(shape, dtype.itemsize), dtype, HOST, False, host)
    inner = shape[1:]
    why = (
        f"its cells are separate objects of one shape, {inner}: they become dimensions of one tensor, {shape}"
    )
    return Source(name, view, host, "", (Reason(why, code="python-objects"),), obj=view)


def _of_arrays(name: str, cells: list[Array], first: int) -> Source | None:
    """Describe arrays of one dtype and shape; refuse those that differ."""
    dtypes = set(map(attrgetter("dtype"), cells))
    dtype = from_numpy(cells[first].dtype)
    if dtype is None or not cells[first].ndim or not all(map(_is_number, dtypes)):
        return None
    if len(dtypes) > 1:
        raise _differs("dtype", cells, first, "mixed-types", [_stack(np.result_type(*dtypes))])
    if len(set(map(attrgetter("shape"), cells))) > 1:
        flat = set(map(attrgetter("ndim"), cells)) == {1}
        raise _differs("shape", cells, first, "list-lengths", _LENGTHS if flat else [])
    rows, inner, own = len(cells), cells[first].shape, cells[first].dtype

    def host() -> Array:
        out = new_memory((rows, *inner), dtype.storage)
        np.concatenate(cells, out=out.view(own).reshape(rows * inner[0], *inner[1:]))
        return out

    return _source(name, (rows, *inner), dtype, host)


def _tensors(cls: type) -> Framework | None:
    framework = None if issubclass(cls, np.generic) else registry.by_type(cls)
    return framework if framework is not None and framework.kind in ("tensor", "both") else None


def _of_tensors(framework: Framework, name: str, cells: list[Any], first: int) -> Source | None:
    """Describe tensors of another framework as `_of_arrays` does."""
    try:
        sources = [framework.source(cell) for cell in cells]
        refusal = next((each.refusal for each in sources if each.refusal is not None), None)
        refusal = refusal or next((_ON_DEVICE for each in sources if not each.view.device.is_host), None)
        if refusal is not None:
            raise UnsupportedConversionError("", refusal.why, code=refusal.code)
        dtypes = {source.view.dtype for source in sources}
        if len(dtypes) > 1:
            why = f"they have several dtypes: {', '.join(sorted(dtype.name for dtype in dtypes))}"
            raise UnsupportedConversionError("", why, code="mixed-types")
        source = _of_arrays(name, [each.host() for each in sources], first)
    except ZeroCopyError as error:  # its fixes are for NumPy's arrays, or for one tensor
        error.fixes = (_AS_OBJECTS,)
        raise error.with_context(
            why=f"its cells are {framework.name}'s: {error.why}", remedy=""
        ) from error.__cause__
    # NumPy's arrays have the stored bytes: those of bfloat16 are uint16.
    return None if source is None else replace(source, view=replace(source.view, dtype=dtypes.pop()))


def _is_number(dtype: np.dtype[np.generic]) -> bool:
    return dtype.isnative and dtype.kind not in "mMSUOT" and from_numpy(dtype) is not None


def _of_lists(name: str, cells: list[Any], first: int) -> Source | None:
    """Describe lists of numbers of one length; refuse those that differ."""
    try:
        array = python_numbers.as_array(cells)
    except ZeroCopyError as error:
        sizes = list(map(len, cells))
        place = next((i for i, size in enumerate(sizes) if size != sizes[first]), None)
        if place is not None:
            why = _rows_differ("length", place, sizes[place], first, sizes[first])
            fixes = [*_LENGTHS, _AS_LISTS]
            raise UnsupportedConversionError("", why, code="list-lengths", fixes=fixes) from None
        error.fixes = (_AS_LISTS,)
        raise error.with_context(why=f"its cells are not one array: {error.why}", remedy="") from None
    return None if array is None else _source(name, array.shape, by_name(array.dtype.name), lambda: array)


def _differs(attribute: str, cells: list[Array], first: int, code: str, fixes: list[Fix]) -> ZeroCopyError:
    values = [getattr(cell, attribute) for cell in cells]
    place = next(i for i, value in enumerate(values) if value != values[first])
    why = _rows_differ(attribute, place, values[place], first, values[first])
    return UnsupportedConversionError("", why, code=code, fixes=[*fixes, _AS_OBJECTS])


def _rows_differ(attribute: str, place: int, value: object, first: int, expected: object) -> str:
    return f"its cells differ in {attribute}: row {place:,} has {value}, and row {first:,} has {expected}"


def _stack(common: np.dtype[np.generic]) -> Fix:
    return Fix("numpy.stack({x})", f"makes all of them {common}", action="stack-cells")


# -- as an Arrow array --------------------------------------------------------------------


def _refused(why: str, remedy: str = "") -> UnsupportedConversionError:
    fixes = [] if remedy else [_AS_TEXT]
    return UnsupportedConversionError("", why, remedy, code="python-objects", fixes=fixes)


def arrow_of_objects(pa: ModuleType, values: Array) -> ArrowArray:
    """Return objects as an Arrow array of their one type, missing ones as nulls."""
    # pyarrow truncates NumPy's text at its first NUL, but not Python's strings.
    cut = values.dtype.kind == "U" and _has_nul(values)
    objects = values.astype(object) if values.dtype.kind == "T" or cut else values
    exact = False
    if objects.dtype.kind == "O":
        if (text := only_text(pa, objects)) is not None:
            return text
        lists = _arrow_lists(pa, objects)
        if lists is not None:
            return lists
        objects, families = _of_one_type(objects)
        exact = "lists" in families and _are_exact(objects)
        if not exact and families & {"lists", "dicts"}:
            _check_depth(objects)
    try:
        # from_pandas=False: NaN stays NaN. Other missing values are None already.
        array = pa.array(objects, from_pandas=False)
        # `_of_one_type` refuses plain values that pyarrow changes; nested ones are compared here.
        may_differ = pa.types.is_nested(array.type) or pa.types.is_time(array.type)
        compared = objects.dtype.kind == "O" and may_differ and not exact
        back = array.to_pylist() if compared else []
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise _refused(f"it holds objects that Arrow has no type for: {error}") from error
    if compared:
        # pyarrow drops times, zones and masks inside lists and dicts.
        for value, copy in zip(objects, back, strict=True):
            if not _alike(value, copy):
                raise _refused(f"it holds {value!r}, which Arrow would change to {copy!r}")
    return array


def only_text(pa: ModuleType, objects: Array) -> ArrowArray | None:
    """Return objects that are all text or None as an Arrow array; None for other objects."""
    if type(next((value for value in objects if value is not None), None)) is not str:
        return None
    try:
        array = pa.array(objects, from_pandas=False)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    return array if array.type == pa.string() else None


def _check_depth(values: Array) -> None:
    """Refuse lists and dicts that contain themselves or are very deep: pyarrow would overflow the stack."""
    level: Iterable[Any] = values
    for _ in range(_DEEPEST):
        nested = {id(value): value for value in level if _is_nested(value)}
        if not nested:
            return
        parts = nested.values()
        level = chain.from_iterable(part.values() if isinstance(part, dict) else part for part in parts)
    raise _refused(f"its lists contain themselves, or lists are nested more than {_DEEPEST} deep")


def _is_nested(value: object) -> bool:
    return isinstance(value, (dict, list, tuple)) or (isinstance(value, np.ndarray) and value.dtype.hasobject)


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


def _of_one_type(values: Array) -> tuple[Array, set[str]]:
    """Return objects with None for each missing one, and their families.

    Objects that pyarrow would change silently are refused.
    """
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
        return values, present
    kept = np.empty(len(values), object)
    kept[:] = [None if type(value) in missing else value for value in values]
    return kept, present


def _family(cls: type) -> str:
    return next((name for name, classes in _FAMILIES if issubclass(cls, classes)), cls.__name__)


def _check_times(values: Iterable[object]) -> None:
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


def _arrow_lists(pa: ModuleType, objects: Array) -> ArrowArray | None:
    """Return vectors of one dtype as the lists that ``pyarrow.array`` makes of them; None for others."""
    cells = objects.tolist()
    types = set(map(type, cells))
    hidden = _missing(types)
    if types - set(hidden) != {np.ndarray}:
        return None
    arrays = [cell for cell in cells if type(cell) is np.ndarray]
    if not all(_is_missing(cell) for cell in cells if type(cell) in hidden):
        return None
    dtype = arrays[0].dtype
    if dtype.kind not in "biuf" or dtype.num not in _NUMBERS or {a.dtype for a in arrays} != {dtype}:
        return None
    if not dtype.isnative or set(map(attrgetter("ndim"), arrays)) != {1}:
        return None
    offsets = np.zeros(len(cells) + 1, np.int64)
    np.cumsum([0 if type(cell) in hidden else len(cell) for cell in cells], out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        return None
    values = pa.array(np.concatenate(arrays), from_pandas=False)
    mask = pa.array([type(cell) in hidden for cell in cells], pa.bool_()) if hidden else None
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, mask=mask)


#: Numbers of types that NumPy and Arrow both have: longdouble has the kind f too.
_NUMBERS = frozenset(np.dtype(code).num for code in "?bBhHiIlLqQefd")


def _are_exact(objects: Array) -> bool:
    """Whether all cells are vectors of Python numbers of one type, which Arrow holds unchanged."""
    cells: Sequence[Any] = [cell for cell in objects.tolist() if cell is not None]
    if not set(map(type, cells)) <= _SEQUENCES:
        return False
    types = python_numbers.item_types(list(chain.from_iterable(cells)))
    return len(types) == 1 and types <= {bool, int, float}
