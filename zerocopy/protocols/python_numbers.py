"""Lists and tuples of Python numbers, and of such lists, as one array.

A Python number has no dtype, so a list of them is read as `numpy.array` reads it. Anything with a dtype,
such as an array or a NumPy scalar, is a leaf of a container instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from zerocopy._native import core
from zerocopy.device import HOST
from zerocopy.dtype import by_name
from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView

#: Exact types: NumPy's float64 and enumerations derive from these.
NUMBERS = frozenset((bool, int, float, complex))
_LISTS = frozenset((list, tuple))
_BOTH = NUMBERS | _LISTS
#: NumPy 1 has at most 32 dimensions.
_DEEPEST = 32
#: From here on, floats do not hold every integer.
_EXACT = 2**53
#: From this number of elements on, NumPy fills a row in three quarters of the time of `numpy.array`.
_LONG = 64

_OBJECTS = Reason("Python numbers are objects, and an array stores their values", code="python-objects")
#: Options of columns of lists, which single arrays refuse.
_OF_LISTS = {"lists": None, "pad_value": None, "max_length": None}
_ROWS = Fix("[numpy.asarray(row) for row in {x}]", "gives one array for each item", _OF_LISTS)
_LISTS_OF_ARROW = Fix("pyarrow.array({x})", "gives a column of lists")
_KEEP = Fix(options={"leaves": "keep"}, effect="keeps it unchanged")


def item_types(items: Sequence[Any]) -> set[type]:
    """Return the types of the items of a list or tuple; the core takes a fifth of the time."""
    types: set[type] = set(map(type, items)) if core is None else core.item_types(items)
    return types


def is_array(obj: Any) -> bool:
    """Whether an object is a list or tuple whose leaves are all Python numbers, and has at least one.

    Examples
    --------
    >>> is_array([[1, 2], (3.5, 4)]), is_array([1, "a"]), is_array([])
    (True, False, False)
    """
    return type(obj) in _LISTS and _has_numbers(obj, ()) is True


def is_text(obj: Any) -> bool:
    """Whether an object is a list or tuple of text, and of None: a column of text for table frameworks.

    Examples
    --------
    >>> is_text(["a", None]), is_text([None]), is_text([["a"]])
    (True, False, False)
    """
    return type(obj) in _LISTS and str in (types := item_types(obj)) and types <= {str, type(None)}


def check_empty(options: Mapping[str, Any]) -> None:
    """Refuse an empty list, unless ``dtype=`` makes it an array."""
    if "dtype" not in options:
        why = "it is empty: it has no numbers, and so no dtype"
        array = Fix(options={"dtype": "float32"}, effect="gives an array of shape (0,)")
        raise UnsupportedConversionError("", why, code="not-an-array", fixes=[array, _KEEP])


def _has_numbers(items: Sequence[Any], parents: tuple[int, ...]) -> bool | None:
    """Return True for numbers only, False if there is anything else, None if there is nothing."""
    types = item_types(items)
    if types <= NUMBERS:
        return True if types else None
    if not types <= _BOTH or len(parents) == _DEEPEST or id(items) in parents:
        return False
    parents, answer = (*parents, id(items)), None
    for item in items:
        if type(item) in _LISTS:
            inner = _has_numbers(item, parents)
            if inner is False:
                return False
            answer = answer or inner
        else:
            answer = True
    return answer


def _types_and_shape(obj: Sequence[Any]) -> tuple[set[type], tuple[int, ...]] | None:
    """Return the types and the shape of nested numbers; None for other objects. Refuse uneven lists."""
    if _is_too_deep(obj):
        return None
    level, shape = obj, [len(obj)]
    while not (types := item_types(level)) <= NUMBERS:
        sizes = set(map(len, level)) if types <= _LISTS else set()
        if len(sizes) != 1:
            if not is_array(obj):
                return None
            raise _uneven(level, shape) if sizes else _of_several_depths(level, shape)
        shape.append(sizes.pop())
        level = list(chain.from_iterable(level))
    return (types, tuple(shape)) if types else None


def _is_too_deep(obj: Any) -> bool:
    """Whether the first items are nested too deep for an array, as in a list that contains itself."""
    for _ in range(_DEEPEST + 1):
        if type(obj) not in _LISTS or not obj:
            return False
        obj = obj[0]
    return type(obj) in _LISTS


def describe(obj: Sequence[Any], name: str = "") -> Source:
    """Describe a list for which `is_array` is true; its values are copied here.

    Raises
    ------
    UnsupportedConversionError
        Its lists differ in length or depth, or it has booleans among numbers.
    LossyConversionError
        An integer exceeds int64, or is not exact as a float among floats.
    """
    array = as_array(obj)
    assert array is not None
    view = StridedView(0, array.shape, array.strides, by_name(array.dtype.name), HOST, False, array)
    return Source(name or type(obj).__name__, view, lambda: array, "", [_OBJECTS], obj=view)


def describe_column(obj: Sequence[Any]) -> Source:
    """Describe a column of a dict of columns; a fix keeps lists that differ in length as lists."""
    try:
        return describe(obj)
    except ZeroCopyError as error:
        error.fixes = tuple(fix for fix in error.fixes if fix is not _ROWS and fix is not _KEEP)
        raise error.with_context(remedy="; or ".join(map(str, error.fixes))) from error.__cause__


def as_array(obj: Sequence[Any]) -> Array | None:
    """Return numbers as an array of bool, int64, float64 or complex128; None if `is_array` is false.

    It raises the errors of `describe`.
    """
    import numpy as np

    if not obj:
        return np.empty(0)
    scanned = _types_and_shape(obj)
    if scanned is None:
        return None
    types, shape = scanned
    if bool in types and len(types) > 1:
        why = "it has booleans among numbers, and an array has one type"
        fixes = [Fix("numpy.array({x})", "makes numbers of them"), _KEEP]
        raise UnsupportedConversionError("", why, code="mixed-types", fixes=fixes)
    dtype = next(dtype for cls, dtype in _DTYPES if cls in types)
    try:
        if math.prod(shape[1:]) < _LONG:
            array = np.array(obj, dtype)
        else:
            array = np.empty(shape, dtype)
            for row, numbers in zip(array, obj, strict=True):
                row[...] = numbers
    except OverflowError as error:
        raise _too_large(obj, types) from error
    if int in types and len(types) > 1 and not _is_exact(array, obj):
        raise _inexact(dtype)
    return array


_DTYPES = ((complex, "complex128"), (float, "float64"), (int, "int64"), (bool, "bool"))


def _uneven(level: Sequence[Any], shape: Sequence[int]) -> UnsupportedConversionError:
    first = len(level[0])
    place = next(i for i, items in enumerate(level) if len(items) != first)
    why = (
        f"its lists differ in length, and an array has one: {_place(0, shape)} has {first:,}, "
        f"and {_place(place, shape)} has {len(level[place]):,}"
    )
    is_flat = item_types(list(chain.from_iterable(level))) <= NUMBERS
    fixes = [_ROWS, _LISTS_OF_ARROW, _KEEP] if len(shape) == 1 and is_flat else [_KEEP]
    return UnsupportedConversionError("", why, code="list-lengths", fixes=fixes)


def _of_several_depths(items: Sequence[Any], shape: Sequence[int]) -> UnsupportedConversionError:
    number = next(i for i, item in enumerate(items) if type(item) in NUMBERS)
    nested = next(i for i, item in enumerate(items) if type(item) in _LISTS)
    why = (
        f"it has numbers among lists, and an array has one depth: {_place(number, shape)} is a number, "
        f"and {_place(nested, shape)} a {type(items[nested]).__name__}"
    )
    return UnsupportedConversionError("", why, code="list-lengths", fixes=[_KEEP])


def _place(index: int, shape: Sequence[int]) -> str:
    """Return the position of an item of a level, of which the levels above have `shape`."""
    keys: list[int] = []
    for size in reversed(shape):
        index, key = divmod(index, size)
        keys.append(key)
    return "".join(f"[{key}]" for key in reversed(keys))


def _leaves(obj: Any) -> Iterable[Any]:
    return chain.from_iterable(map(_leaves, obj)) if type(obj) in _LISTS else (obj,)


def _too_large(obj: Sequence[Any], types: set[type]) -> LossyConversionError:
    """Return the error for an integer that the type cannot hold."""
    integers = [value for value in _leaves(obj) if type(value) is int]
    largest = max(integers, key=abs)
    shown = str(largest) if abs(largest) < 10**30 else f"an integer of {largest.bit_length()} bits"
    fixes = []
    if types == {int} and min(integers) >= 0 and max(integers) < 2**64:
        fixes.append(Fix("numpy.array({x}, 'uint64')", "holds it"))
    elif abs(largest) < 2**1023:
        fixes.append(Fix("numpy.array({x}, 'float64')", "rounds it"))
    holder = "int64" if types == {int} else "a float"
    return LossyConversionError(
        "", f"it has {shown}, which {holder} cannot hold", code="out-of-range", fixes=[*fixes, _KEEP]
    )


def _is_exact(array: Array, obj: Sequence[Any]) -> bool:
    """Whether floats hold the integers among them."""
    import numpy as np

    finite = array[np.isfinite(array)]
    if not finite.size or np.abs(finite).max() < _EXACT:
        return True
    return all(int(float(value)) == value for value in _leaves(obj) if type(value) is int)


def _inexact(dtype: str) -> LossyConversionError:
    why = f"it has integers among floats that {dtype} would round"
    fixes = [Fix(f"numpy.array({{x}}, '{dtype}')", "rounds them"), _KEEP]
    return LossyConversionError("", why, code="out-of-range", fixes=fixes)
