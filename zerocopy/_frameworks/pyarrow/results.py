"""`Masked` and `Encoded` as one pyarrow array: rebuilds a column from its tensors.

Each part is aliased as a buffer; booleans are packed, and null bitmaps are new. Dtypes and shapes are
compared with the column's type, and the array is validated in full, because a program may have changed them.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from zerocopy.errors import CopyRequiredError, Reason, UnsupportedConversionError
from zerocopy.source import Array
from zerocopy.tables.result import Encoded, Masked, host_array

_NAME = re.compile(r"\w+")
_INTEGERS = re.compile(r"-?\d+")
#: Dtypes of the values of types of one length.
_STORED = {
    "date32": "i4",
    "date64": "i8",
    "time32": "i4",
    "time64": "i8",
    "timestamp": "i8",
    "duration": "i8",
}
_DECIMALS = {
    "decimal32": ("i4", ()),
    "decimal64": ("i8", ()),
    "decimal128": ("u8", (2,)),
    "decimal256": ("u8", (4,)),
}
_PACKED = Reason("Arrow packs booleans into bits", code="packed-bits")
_GAPS = Reason("a part has gaps between its elements, and Arrow has none", code="not-contiguous")


class ResultReader:
    """Builds the arrays of one `Masked` or `Encoded`.

    Attributes
    ----------
    reasons : list of Reason
        Why parts, apart from masks, are copied.
    """

    def __init__(self, pa: Any) -> None:
        self._pa = pa
        self.reasons: list[Reason] = []

    def read(self, result: Any) -> Any:
        """Return the rows as one array.

        Raises
        ------
        CopyRequiredError
            A part is on a device, or requires a copy for another reason that NumPy's arrays have.
        UnsupportedConversionError
            The parts are not those of a column, or a column of this type cannot be rebuilt.
        """
        try:
            array = self._array(result, None)
            array.validate(full=True)
        except (CopyRequiredError, UnsupportedConversionError):
            raise
        except (self._pa.ArrowException, ValueError) as error:
            raise _refused(getattr(result, "type", "numbers"), str(error)) from error
        return array

    def _array(self, part: Any, nulls: Array | None) -> Any:
        """Return a part as an array; `nulls` is the mask of the `Masked` around it."""
        if isinstance(part, Masked):
            return self._array(part.values, host_array(part.mask, "bool"))
        if not isinstance(part, Encoded):
            return self._numbers(self._host(part), nulls)
        if nulls is None and part.mask is not None:
            nulls = host_array(part.mask, "bool")
        if isinstance(part.values, dict):
            children = [self._array(child, None) for child in part.values.values()]
            mask = None if nulls is None else self._pa.array(nulls)
            return self._pa.StructArray.from_arrays(children, [*part.values], mask=mask)
        if part.categories is not None:
            return self._dictionary(part, nulls)
        if part.offsets is not None:
            return self._slices(part, nulls)
        return self._flat(part, nulls)

    def _host(self, part: Any) -> Array:
        """Return a part without gaps; a copy is noted."""
        array = host_array(part)
        if not array.flags.c_contiguous:
            self.reasons.append(_GAPS)
            array = np.ascontiguousarray(array)
        return array

    def _numbers(self, values: Array, nulls: Array | None) -> Any:
        """Return numbers as an array; those of several dimensions as lists of fixed sizes."""
        pa = self._pa
        if values.dtype == bool:
            self.reasons.append(_PACKED)
        mask = None if nulls is None else nulls.reshape(-1) if nulls.shape == values.shape else None
        array = pa.array(values.reshape(-1), mask=mask, from_pandas=False)
        for size in reversed(values.shape[1:]):
            array = pa.FixedSizeListArray.from_arrays(array, size)
        if nulls is None or mask is not None:
            return array
        if values.ndim == 1 or nulls.shape != values.shape[:1]:
            raise _wrong_mask(nulls, values.shape)
        return pa.Array.from_buffers(array.type, len(array), [self._bitmap(nulls)], children=[array.values])

    def _bitmap(self, nulls: Array | None) -> Any:
        """Return Arrow's bitmap of a mask, whose bits are 1 where a row is not null; None without a mask."""
        return None if nulls is None else self._pa.array(~nulls).buffers()[1]

    def _over_buffers(
        self, kind: Any, length: int, nulls: Array | None, *parts: Array, child: Any = None
    ) -> Any:
        """Return an array of a type over the memory of its parts."""
        if nulls is not None and nulls.shape != (length,):
            raise _wrong_mask(nulls, (length,))
        buffers = [self._bitmap(nulls), *map(self._pa.py_buffer, parts)]
        children = None if child is None else [child]
        return self._pa.Array.from_buffers(kind, length, buffers, children=children)

    def _dictionary(self, part: Encoded, nulls: Array | None) -> Any:
        codes = self._host(part.values)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise _refused(part.type, f"its codes are {codes.dtype} of shape {codes.shape}")
        if nulls is not None and nulls.shape != codes.shape:
            raise _wrong_mask(nulls, codes.shape)
        if codes.dtype.kind == "i":  # nulls=-1 fills nulls with the code -1
            negative = codes < 0
            nulls = negative if nulls is None else nulls | negative
        indices = self._numbers(codes, None if nulls is None or not nulls.any() else nulls)
        categories = self._array(part.categories, None)
        return self._pa.DictionaryArray.from_arrays(indices, categories, ordered=part.ordered)

    def _slices(self, part: Encoded, nulls: Array | None) -> Any:
        """Return text, bytes, lists, list views or maps: each row is a slice of the values."""
        pa, name = self._pa, _name(part.type)
        offsets = self._host(part.offsets)
        sizes = None if part.sizes is None else self._host(part.sizes)
        if offsets.ndim != 1 or offsets.dtype not in (np.int32, np.int64):
            raise _refused(part.type, f"its offsets are {offsets.dtype} of shape {offsets.shape}")
        is_large = offsets.dtype == np.int64
        length = max(len(offsets) - 1, 0)
        if name in ("string", "large_string", "string_view", "binary", "large_binary", "binary_view"):
            values = self._host(part.values)
            if values.ndim != 1 or values.dtype != np.uint8:
                raise _refused(part.type, f"its values are {values.dtype} of shape {values.shape}")
            kinds = (pa.string(), pa.large_string()) if "string" in name else (pa.binary(), pa.large_binary())
            return self._over_buffers(kinds[is_large], length, nulls, offsets, values)
        if name not in ("list", "large_list", "list_view", "large_list_view", "map"):
            raise _not_rebuilt(part.type)
        child = self._array(part.values, None)
        if sizes is not None:
            if sizes.dtype != offsets.dtype or sizes.shape != offsets.shape:
                raise _refused(part.type, f"its sizes are {sizes.dtype} of shape {sizes.shape}")
            kind = (pa.large_list_view if is_large else pa.list_view)(child.type)
            return self._over_buffers(kind, len(offsets), nulls, offsets, sizes, child=child)
        if name == "map":
            kind = pa.map_(child.type.field(0).type, child.type.field(1).type)
        else:
            kind = (pa.large_list if is_large else pa.list_)(child.type)
        return self._over_buffers(kind, length, nulls, offsets, child=child)

    def _flat(self, part: Encoded, nulls: Array | None) -> Any:
        """Return a column without offsets: dates, times, decimals, bytes of one length."""
        kind, dtype, shape = _stored(self._pa, part)
        values = self._host(part.values)
        if values.dtype != dtype or values.ndim != 1 + len(shape) or values.shape[1:] != shape:
            stored = f"{np.dtype(dtype)} of shape {('rows', *shape)}"
            raise _refused(part.type, f"its values are {values.dtype} of shape {values.shape}, not {stored}")
        return self._over_buffers(kind, len(values), nulls, values)


def _name(type_name: str) -> str:
    match = _NAME.match(type_name)
    return match[0] if match else ""


def _stored(pa: Any, part: Encoded) -> tuple[Any, str, tuple[int, ...]]:
    """Return the type of a column without offsets, the dtype of its values, and the shape of a row's."""
    name, numbers = _name(part.type), [int(text) for text in _INTEGERS.findall(part.type)]
    if name == "timestamp":
        return pa.timestamp(part.unit, part.timezone), _STORED[name], ()
    if name in ("date32", "date64"):
        return getattr(pa, name)(), _STORED[name], ()
    if name in _STORED:
        return getattr(pa, name)(part.unit), _STORED[name], ()
    if name in _DECIMALS and len(numbers) > 2:
        dtype, shape = _DECIMALS[name]
        return getattr(pa, name)(*numbers[1:3]), dtype, shape
    if name == "fixed_size_binary" and numbers:
        return pa.binary(numbers[0]), "u1", (numbers[0],)
    raise _not_rebuilt(part.type)


def _refused(type_name: str, problem: str) -> UnsupportedConversionError:
    why = f"its parts are not those of a column of {type_name}: {problem}"
    remedy = "do not change the offsets or the dtypes, and keep the codes below the number of categories"
    return UnsupportedConversionError("", why, remedy, code="invalid-content")


def _not_rebuilt(type_name: str) -> UnsupportedConversionError:
    why = f"a column of {type_name} cannot be rebuilt from its numbers"
    return UnsupportedConversionError("", why, "pass the original column", code="not-a-column")


def _wrong_mask(nulls: Array, shape: tuple[int, ...]) -> UnsupportedConversionError:
    why = f"the mask has shape {nulls.shape}; expected {shape}"
    return UnsupportedConversionError("", why, "pass one bool per row", code="invalid-mask")
