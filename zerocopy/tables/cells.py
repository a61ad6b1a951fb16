"""Columns of Python objects whose cells are arrays, or lists of numbers, of one length: (rows, *shape).

NumPy stacks the cells in one call. Arrow's lists of the same cells take their values from one array too,
instead of element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from zerocopy import registry
from zerocopy.device import HOST
from zerocopy.dtype import DType, by_name, from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols import python_numbers
from zerocopy.protocols.array_interface import host_view
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables.column import Column, RefusedColumn, Table
from zerocopy.tables.hub import new_memory
from zerocopy.tables.tensor_column import Marks, TensorColumn

if TYPE_CHECKING:
    from zerocopy.framework import Framework
    from zerocopy.request import Request

#: Types of missing values, by name: pandas need not be imported.
MISSING = ("NoneType", "NAType", "NaTType")
_LISTS = frozenset((list, tuple))
_AS_LISTS = Fix(action="objects", alone=True, effect="gives Python objects")
_AS_OBJECTS = Fix(action="objects", alone=True, effect="gives one array for each row")
_COMPUTED = Reason("missing cells are objects, and a mask of them is computed", code="computed-mask")
_ON_DEVICE = Reason("one is in the memory of a device", code="other-device")
_LENGTHS = [
    Fix(options={"lists": "pad"}, effect="pads them to one length"),
    Fix(options={"lists": "ragged"}, effect="gives their values with their offsets"),
]


def dense(table: Table, request: Request | None = None) -> Table:
    """Return the table with tensors in place of the columns whose cells are arrays or lists of numbers."""
    if request is not None and _is_unchanged(table, request):
        return table
    keeps_lists = request is not None and request.lists in ("pad", "ragged")
    columns = [column.as_lists() if keeps_lists else column.dense() for column in table.columns]
    if all(new is old for new, old in zip(columns, table.columns, strict=True)):
        return table
    return replace(table, columns=columns, obj=None)


def _is_unchanged(table: Table, request: Request) -> bool:
    """Whether `convert` returns an array of objects itself."""
    target = request.target
    is_own = target.has_records and target.owns(type(table.obj)) and target.is_native(table.obj)
    return is_own and request.cast is None and not request.of_tables


def tensor_of(name: str, objects: Array, reasons: tuple[Reason, ...]) -> Column | None:
    """Return cells of one dtype and shape as one tensor; None if they are not arrays or lists of numbers.

    Cells that differ give a column that is refused, with the first row that differs. Missing cells are nulls.
    """
    cells = objects.tolist()
    types = set(map(type, cells))
    hidden = _missing(types)
    present = types - set(hidden)
    if present == {np.ndarray}:
        build: Callable[[str, list[Any], int], Source | None] = _of_arrays
    elif present and present <= _LISTS:
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


def without_rows(name: str) -> Column:
    """Return a column without rows as float64: any type is right, and most targets have this one."""
    array = np.empty(0)
    return TensorColumn(Source(name, host_view(array, by_name("float64")), lambda: array))


def _missing(types: set[type]) -> tuple[type, ...]:
    return tuple(cls for cls in types if cls.__name__ in MISSING or issubclass(cls, (float, np.floating)))


def _is_missing(cell: Any) -> bool:
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
    """Return the framework of a type of tensors."""
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


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.isnative and dtype.kind not in "mMSUOT" and from_numpy(dtype) is not None


def _of_lists(name: str, cells: list[Any], first: int) -> Source | None:
    """Describe lists of numbers of one length; refuse those that differ."""
    scanned = python_numbers.scan(cells)
    if scanned is None and not python_numbers.is_array(cells):
        return None
    sizes = list(map(len, cells))
    if len(set(sizes)) > 1:
        place = next(i for i, size in enumerate(sizes) if size != sizes[first])
        why = _rows_differ("length", place, sizes[place], first, sizes[first])
        raise UnsupportedConversionError("", why, code="list-lengths", fixes=[*_LENGTHS, _AS_LISTS])
    try:
        array = python_numbers.as_array(cells, scanned)
    except ZeroCopyError as error:
        error.fixes = (_AS_LISTS,)
        raise error.with_context(why=f"its cells are not one array: {error.why}", remedy="") from None
    return _source(name, array.shape, by_name(array.dtype.name), lambda: array)


def _differs(what: str, cells: list[Array], first: int, code: str, fixes: list[Fix]) -> ZeroCopyError:
    values = [getattr(cell, what) for cell in cells]
    place = next(i for i, value in enumerate(values) if value != values[first])
    why = _rows_differ(what, place, values[place], first, values[first])
    return UnsupportedConversionError("", why, code=code, fixes=[*fixes, _AS_OBJECTS])


def _rows_differ(what: str, place: int, value: Any, first: int, expected: Any) -> str:
    return f"its cells differ in {what}: row {place:,} has {value}, and row {first:,} has {expected}"


def _stack(common: np.dtype[Any]) -> Fix:
    return Fix("numpy.stack({x})", f"makes all of them {common}", action="stack-cells")


# -- Arrow's lists ------------------------------------------------------------------------


def arrow_lists(pa: Any, objects: Array) -> Any:
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


def are_exact(objects: Array) -> bool:
    """Whether all cells are vectors of Python numbers of one type, which Arrow holds unchanged."""
    cells: Sequence[Any] = [cell for cell in objects.tolist() if cell is not None]
    if not set(map(type, cells)) <= _LISTS:
        return False
    types = set(chain.from_iterable(map(python_numbers.item_types, cells)))
    return len(types) == 1 and types <= {bool, int, float}
