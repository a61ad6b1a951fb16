"""Host memory as NumPy knows it: the buffer protocol and ``__array_interface__``."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ALIGNMENT = 64  # bytes: what JAX, Arrow and TensorFlow want of host memory


class _Writable:
    """Holds an array and describes its memory as writable."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, array: Array) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        # Without the descr NumPy goes by the typestr, which is all that is needed
        # here; ml_dtypes have a descr that it cannot read back.
        interface.pop("descr", None)
        self.__array_interface__ = interface
        self.array = array


def writable_by_interface(array: Array) -> Array:
    """Return a writable alias, the documented way (some 1,800 ns)."""
    return np.asarray(_Writable(array)) if array.size else np.empty(array.shape, array.dtype)


def address_by_interface(array: Array) -> int:
    """Return the address of an array's first element, the documented way (some 700 ns)."""
    address: int = array.__array_interface__["data"][0]
    return address


# PyArrayObject is the object's header, then `char *data; int nd; npy_intp *dimensions,
# *strides; PyObject *base; PyArray_Descr *descr; int flags`. Every compiled extension
# reads it there through the inline PyArray_DATA and PyArray_FLAGS, so it is part of
# NumPy's ABI (numpy/ndarraytypes.h). To read it costs 60 ns where the interface costs
# 700, on conversions whose whole budget is 150.
_DATA_OFFSET = object.__basicsize__
_FLAGS_OFFSET = _DATA_OFFSET + 6 * ctypes.sizeof(ctypes.c_void_p)
_WRITEABLE = 0x0400
_int_at = ctypes.c_int.from_address
# The address space as an array of words: an index into it takes 40 ns less than a
# c_void_p made for each read.
_WORD = ctypes.sizeof(ctypes.c_void_p)
_MEMORY = (ctypes.c_size_t * (sys.maxsize // _WORD)).from_address(0)


def address_by_layout(array: Array) -> int:
    """Return the address of an array's first element, read where the ABI keeps it."""
    return _MEMORY[(id(array) + _DATA_OFFSET) // _WORD]


def misalignment_by_layout(array: Array) -> int:
    """Return how many bytes past a multiple of 64 an array starts."""
    return _MEMORY[(id(array) + _DATA_OFFSET) // _WORD] & (ALIGNMENT - 1)


def writable_by_layout(array: Array) -> Array:
    """Return a writable alias: a fresh view with its own flag set where the ABI keeps it."""
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

#: The fast way where the layout is as expected (CPython), the documented one elsewhere.
address: Callable[[Array], int] = address_by_layout if _HOLDS else address_by_interface
misalignment: Callable[[Array], int] = (
    misalignment_by_layout if _HOLDS else lambda array: address_by_interface(array) % ALIGNMENT
)
_writable: Callable[[Array], Array] = writable_by_layout if _HOLDS else writable_by_interface


def writable_alias(array: Array) -> Array:
    """Return the same memory as a writable ndarray, for consumers that never write.

    NumPy exports no read-only memory in a legacy DLPack capsule, which cannot say
    "read-only", and JAX and TensorFlow take no other capsule. Their arrays are
    immutable, so nothing writes through them.

    Parameters
    ----------
    array : numpy.ndarray
        Any; a writable one comes back as it is.

    Returns
    -------
    numpy.ndarray
        Aliases `array` and keeps it alive.
    """
    return array if array.flags.writeable else _writable(array)


def tidy_strides(array: Array) -> Array:
    """Return the same memory with ordinary strides on dimensions that are never walked.

    A dimension of size 1 may have any stride (``x[:1][::-1]`` has a negative one);
    some importers check it all the same.
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


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return uninitialised memory at a multiple of 64 bytes, row-major.

    NumPy's own allocations are aligned to 16 bytes, which makes every consumer
    that wants 64 copy once more.
    """
    count = dtype.itemsize
    for extent in shape:
        count *= extent
    raw = np.empty(count + ALIGNMENT, np.uint8)
    start = -address(raw) % ALIGNMENT
    return raw[start : start + count].view(dtype).reshape(shape)


def aligned_copy(array: Array) -> Array:
    """Return a row-major copy at a multiple of 64 bytes."""
    fresh = aligned_empty(array.shape, array.dtype)
    np.copyto(fresh, array)
    return fresh
