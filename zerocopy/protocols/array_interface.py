"""Host memory as NumPy arrays: addresses, writable aliases, strides and aligned allocation."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from zerocopy.device import HOST
from zerocopy.dtype import DType
from zerocopy.errors import OptionError
from zerocopy.source import Array
from zerocopy.strided_view import StridedView

ALIGNMENT = 64  # bytes: required by JAX and TensorFlow, recommended by Arrow
_HUGE_PAGE = 1 << 30  # of x86-64

_base = np.ndarray.base.__get__  # type: ignore[attr-defined]  # a subclass may override the attribute


class WritableInterface:
    """An array whose interface describes its memory as writable."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, array: Array) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        # Without the descr NumPy reads the typestr; it cannot parse the descr of ml_dtypes.
        interface.pop("descr", None)
        self.__array_interface__ = interface
        self.array = array


def writable_by_interface(array: Array) -> Array:
    """Return a writable alias through the documented interface (about 1,800 ns)."""
    return np.asarray(WritableInterface(array)) if array.size else np.empty(array.shape, array.dtype)


def address_by_interface(array: Array) -> int:
    """Return an array's address through the documented interface (about 700 ns)."""
    address: int = array.__array_interface__["data"][0]
    return address


# PyArrayObject is the object's header, then `char *data; int nd; npy_intp *dimensions, *strides;
# PyObject *base; PyArray_Descr *descr; int flags`. Compiled extensions read it through the inline
# PyArray_DATA and PyArray_FLAGS, so it is part of NumPy's ABI (numpy/ndarraytypes.h). Reading it
# takes 60 ns, the interface 700; a whole conversion has a budget of 150.
_DATA_OFFSET = object.__basicsize__
_FLAGS_OFFSET = _DATA_OFFSET + 6 * ctypes.sizeof(ctypes.c_void_p)
_WRITEABLE = 0x0400
_int_at = ctypes.c_int.from_address
# The address space as an array of words: indexing it takes 40 ns less than creating a c_void_p for
# each read.
_WORD = ctypes.sizeof(ctypes.c_void_p)
_MEMORY = (ctypes.c_size_t * (sys.maxsize // _WORD)).from_address(0)


def address_by_layout(array: Array) -> int:
    """Return an array's address, read from its ABI offset."""
    return _MEMORY[(id(array) + _DATA_OFFSET) // _WORD]


def misalignment_by_layout(array: Array) -> int:
    """Return an array's address modulo 64."""
    return _MEMORY[(id(array) + _DATA_OFFSET) // _WORD] & (ALIGNMENT - 1)


def writable_by_layout(array: Array) -> Array:
    """Return a writable alias: a new view whose flag is set at its ABI offset."""
    view = array.view()
    _int_at(id(view) + _FLAGS_OFFSET).value |= _WRITEABLE
    return view


def _layout_holds() -> bool:
    samples: list[Array] = [np.empty(1), np.empty((3, 4), np.int8)[1:, ::-1], np.empty((), np.complex128)]
    if any(address_by_layout(a) != address_by_interface(a) for a in samples):
        return False
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    if _int_at(id(frozen) + _FLAGS_OFFSET).value != frozen.flags.num:
        return False
    return writable_by_layout(frozen).flags.num == frozen.view().flags.num | _WRITEABLE


_HOLDS = _layout_holds()

#: The ABI is used if it is as expected (CPython), the documented interface otherwise.
address: Callable[[Array], int] = address_by_layout if _HOLDS else address_by_interface
misalignment: Callable[[Array], int] = (
    misalignment_by_layout if _HOLDS else lambda array: address_by_interface(array) % ALIGNMENT
)
_writable: Callable[[Array], Array] = writable_by_layout if _HOLDS else writable_by_interface


def writable_alias(array: Array) -> Array:
    """Return the same memory as a writable ndarray, for consumers that never write.

    Legacy DLPack capsules cannot mark memory as read-only, so NumPy refuses to export read-only
    memory in them; JAX and TensorFlow take no other capsules. Their arrays are immutable, so
    nothing writes to it. The alias keeps `array` alive; a writable `array` is returned unchanged.
    """
    return array if array.flags.writeable else _writable(array)


def span(array: Array) -> tuple[int, int]:
    """Return the addresses of the first byte of an array and of the one after the last byte."""
    low = high = address(array)
    if array.flags.c_contiguous:
        return low, low + array.nbytes
    for extent, stride in zip(array.shape, array.strides, strict=True):
        step = (extent - 1) * stride
        low, high = (low + step, high) if step < 0 else (low, high + step)
    return low, high + array.itemsize


def allocation_of(array: Array) -> tuple[int, int]:
    """Return the span of the array that owns an array's memory, or that imported it from another owner."""
    while isinstance(base := _base(array), np.ndarray):
        array = base
    return span(np.ndarray.view(array, np.ndarray))


def masked_elements(array: Any) -> int:
    """Return how many elements of an ndarray are hidden by a mask outside its data; 0 for other objects.

    Every protocol exports the data without the mask (numpy/numpy#26669). The attribute decides, because other
    classes than ``numpy.ma``'s have one too.
    """
    if type(array) is np.ndarray or not isinstance(array, np.ndarray):
        return 0
    mask = getattr(array, "mask", None)
    if not isinstance(mask, (np.ndarray, np.bool_, np.void)):  # np.void is that of one record
        return 0
    plain = np.asarray(mask)
    if plain.dtype.names is None or not plain.size:
        return int(np.count_nonzero(plain)) if plain.dtype.kind == "b" else 0
    rows = np.ascontiguousarray(plain).view(np.bool_).reshape(plain.size, -1)  # one byte for each field
    return int(np.count_nonzero(rows.any(axis=1)))


def lost_unit(obj: Any, target: str) -> tuple[str, ...]:
    """Return a warning about the unit of an object's values, which `target` does not keep."""
    for name in ("unit", "units"):
        if hasattr(type(obj), name) and (unit := getattr(obj, name, None)) is not None:
            text = str(unit)
            return (f"{target} has no units: {text!r} of {type(obj).__name__} is lost",) if text else ()
    return ()


def has_other_booleans(array: Array) -> bool:
    """Whether an array has booleans with bytes other than 0 and 1, such as Pillow's 255."""
    return bool(array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1)


def plain_booleans(array: Array) -> Array:
    """Return an array with the bytes 0 and 1 for booleans of any bytes; also without dimensions."""
    out = np.empty(array.shape, np.bool_)
    return np.not_equal(array.view(np.uint8), 0, out=out)


def tidy_strides(array: Array) -> Array:
    """Return the same memory with row-major strides in dimensions of size 1.

    Such a dimension may have any stride (``x[:1][::-1]`` has a negative one), and some importers
    check it nevertheless.
    """
    if array.size == 0:
        return np.empty(array.shape, array.dtype)
    if 1 not in array.shape:
        return array
    strides, step = list(array.strides), array.itemsize
    for i in reversed(range(array.ndim)):
        if array.shape[i] == 1:
            strides[i] = step
        step = max(step, abs(strides[i]) * array.shape[i])
    return np.lib.stride_tricks.as_strided(array, strides=strides, writeable=array.flags.writeable)


def checked_align(asked: str, align: Any, least: int = 1, most: int = _HUGE_PAGE) -> int:
    """Return an option `align=`: a power of 2 from `least` to `most`, in bytes."""
    if type(align) is not int or not least <= align <= most or align & (align - 1):
        why = f"align={align!r} is not a power of 2 from {least} to {most}"
        raise OptionError(asked, why, "pass a number of bytes: align=64")
    return align


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any], align: int = ALIGNMENT) -> Array:
    """Return a row-major array of uninitialised memory, aligned to `align` bytes (NumPy's own to 16)."""
    count = dtype.itemsize
    for extent in shape:
        count *= extent
    raw = np.empty(count + align, np.uint8)
    return np.ndarray(shape, dtype, raw, -address(raw) % align)


def aligned_copy(array: Array, align: int = ALIGNMENT) -> Array:
    """Return a row-major copy, aligned to `align` bytes."""
    fresh = aligned_empty(array.shape, array.dtype, align)
    np.copyto(fresh, array)
    return fresh


def host_view(array: Array, dtype: DType) -> StridedView:
    """Describe an ndarray's memory; `dtype` is the type of its values, which NumPy may not have."""
    return StridedView(
        address(array), array.shape, array.strides, dtype, HOST, not array.flags.writeable, array
    )
