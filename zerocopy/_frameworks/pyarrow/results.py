"""`Masked` and `Encoded` as one pyarrow array: the way back from the tensors of a column.

Each part becomes a buffer of the array, which aliases it; null bitmaps are new. The array is validated in
full, because a program may have changed the offsets and the codes.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from zerocopy.errors import UnsupportedConversionError
from zerocopy.source import Array
from zerocopy.tables.result import Encoded, Masked, host_array

_NAME = re.compile(r"\w+")
_INTEGERS = re.compile(r"\d+")


def array_of(pa: Any, result: Any) -> Any:
    """Return the rows of a `Masked`, an `Encoded` or an array as one pyarrow array.

    Raises
    ------
    DeviceError
        A part is on a device, or requires a copy for another reason.
    UnsupportedConversionError
        The parts are not those of a column, or the column is of a type that is only exported.
    """
    try:
        array = _array(pa, result, None)
        array.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        why = f"its parts are not those of a column of {getattr(result, 'type', 'numbers')}: {error}"
        remedy = "do not change the offsets, and keep the codes below the number of categories"
        raise UnsupportedConversionError("", why, remedy, code="invalid-content") from error
    return array


def _array(pa: Any, part: Any, nulls: Array | None) -> Any:
    """Return a part as an array; `nulls` is the mask of the `Masked` around it."""
    if isinstance(part, Masked):
        return _array(pa, part.values, host_array(part.mask, "bool"))
    if not isinstance(part, Encoded):
        return _numbers(pa, host_array(part), nulls)
    if nulls is None and part.mask is not None:
        nulls = host_array(part.mask, "bool")
    if isinstance(part.values, dict):
        children = [_array(pa, child, None) for child in part.values.values()]
        return pa.StructArray.from_arrays(
            children, [*part.values], mask=None if nulls is None else pa.array(nulls)
        )
    if part.categories is not None:
        return _dictionary(pa, part, nulls)
    if part.offsets is not None:
        return _slices(pa, part, nulls)
    values = host_array(part.values)
    return _filled(pa, _flat_type(pa, part), len(values), nulls, values)


def _numbers(pa: Any, values: Array, nulls: Array | None) -> Any:
    """Return numbers as an array; those of several dimensions as lists of fixed sizes."""
    mask = None if nulls is None else nulls.reshape(-1) if nulls.shape == values.shape else None
    array = pa.array(values.reshape(-1), mask=mask, from_pandas=False)
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    if nulls is None or mask is not None:
        return array
    if values.ndim == 1 or nulls.shape != values.shape[:1]:
        why = f"the mask has shape {nulls.shape}; expected {values.shape}"
        raise UnsupportedConversionError("", why, "pass one bool per row", code="invalid-mask")
    return pa.Array.from_buffers(array.type, len(array), [_bitmap(pa, nulls)], children=[array.values])


def _bitmap(pa: Any, nulls: Array | None) -> Any:
    """Return Arrow's bitmap of a mask, whose bits are 1 where a row is not null; None without a mask."""
    return None if nulls is None else pa.array(~nulls).buffers()[1]


def _filled(pa: Any, kind: Any, length: int, nulls: Array | None, *parts: Array, child: Any = None) -> Any:
    """Return an array of a type over the memory of its parts."""
    if nulls is not None and nulls.shape != (length,):
        why = f"the mask has shape {nulls.shape}; expected {(length,)}"
        raise UnsupportedConversionError("", why, "pass one bool per row", code="invalid-mask")
    buffers = [_bitmap(pa, nulls), *map(pa.py_buffer, parts)]
    return pa.Array.from_buffers(kind, length, buffers, children=None if child is None else [child])


def _dictionary(pa: Any, part: Encoded, nulls: Array | None) -> Any:
    codes = host_array(part.values)
    if codes.dtype.kind == "i" and codes.ndim == 1:  # nulls=-1 fills nulls with the code -1
        negative = codes < 0
        nulls = negative if nulls is None else nulls | negative
    indices = _numbers(pa, codes, None if nulls is None or not nulls.any() else nulls)
    if codes.ndim > 1:
        why = "its codes have several dimensions, and a column of Arrow has one"
        raise UnsupportedConversionError("", why, "convert one row at a time", code="too-many-dimensions")
    return pa.DictionaryArray.from_arrays(indices, _array(pa, part.categories, None), ordered=part.ordered)


def _slices(pa: Any, part: Encoded, nulls: Array | None) -> Any:
    """Return text, bytes, lists, list views or maps: each row is a slice of the values."""
    offsets = host_array(part.offsets)
    name, is_large = _name(part.type), offsets.dtype == np.int64
    length = len(offsets) if part.sizes is not None else max(len(offsets) - 1, 0)
    if "string" in name or "binary" in name:
        kinds = (pa.string(), pa.large_string()) if "string" in name else (pa.binary(), pa.large_binary())
        return _filled(pa, kinds[is_large], length, nulls, offsets, host_array(part.values))
    child = _array(pa, part.values, None)
    if name == "map":
        kind = pa.map_(child.type.field(0).type, child.type.field(1).type)
    elif part.sizes is not None:
        kind = (pa.large_list_view if is_large else pa.list_view)(child.type)
        return _filled(pa, kind, length, nulls, offsets, host_array(part.sizes), child=child)
    else:
        kind = (pa.large_list if is_large else pa.list_)(child.type)
    return _filled(pa, kind, length, nulls, offsets, child=child)


def _name(type_name: str) -> str:
    match = _NAME.match(type_name)
    return match[0] if match else ""


def _flat_type(pa: Any, part: Encoded) -> Any:
    """Return the type of a column without offsets: dates, times, decimals, bytes of one length."""
    name, numbers = _name(part.type), [int(text) for text in _INTEGERS.findall(part.type)]
    if name == "timestamp":
        return pa.timestamp(part.unit, part.timezone)
    if name in ("date32", "date64"):
        return getattr(pa, name)()
    if name in ("time32", "time64", "duration"):
        return getattr(pa, name)(part.unit)
    if name.startswith("decimal") and len(numbers) > 2:
        return getattr(pa, name)(*numbers[1:3])
    if name == "fixed_size_binary" and numbers:
        return pa.binary(numbers[0])
    why = f"a column of {part.type} is not rebuilt from its numbers"
    raise UnsupportedConversionError("", why, "pass the original column", code="not-a-column")
