"""Host memory as NumPy knows it: the buffer protocol and ``__array_interface__``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

ALIGNMENT = 64  # bytes: what JAX, Arrow and TensorFlow want of host memory


class _Writable:
    """Holds an array and describes its memory as writable."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        # Without the descr NumPy goes by the typestr, which is all that is needed
        # here; ml_dtypes have a descr that it cannot read back.
        interface.pop("descr", None)
        self.__array_interface__ = interface
        self.array = array


def writable_alias(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the same memory as a writable ndarray, for consumers that never write.

    NumPy refuses to export read-only memory in a legacy DLPack capsule, which
    cannot say "read-only" (numpy/numpy#20742), and JAX and TensorFlow take no
    other capsule. Their arrays are immutable, so nothing writes through them.

    Parameters
    ----------
    array : numpy.ndarray
        Any; a writable one comes back as it is.

    Returns
    -------
    numpy.ndarray
        Aliases `array` and keeps it alive.
    """
    if array.flags.writeable or array.size == 0:
        return array if array.flags.writeable else np.empty(array.shape, array.dtype)
    return np.asarray(_Writable(array))


def tidy_strides(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
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


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return uninitialised memory at a multiple of 64 bytes, row-major.

    NumPy's own allocations are aligned to 16 bytes, which makes every consumer
    that wants 64 copy once more.
    """
    count = dtype.itemsize
    for extent in shape:
        count *= extent
    raw = np.empty(count + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + count].view(dtype).reshape(shape)


def aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a row-major copy at a multiple of 64 bytes."""
    fresh = aligned_empty(array.shape, array.dtype)
    np.copyto(fresh, array)
    return fresh


def address_by_interface(array: np.ndarray[Any, Any]) -> int:
    """Return the address of an array's first element, the documented way (some 700 ns)."""
    address: int = array.__array_interface__["data"][0]
    return address


# PyArrayObject starts with the object's header, then `char *data`. Every compiled
# extension reads it there through the inline PyArray_DATA, so it is part of NumPy's
# ABI (numpy/ndarraytypes.h). Reading it costs 90 ns where the interface costs 700,
# on conversions whose whole budget is 150.
_DATA_OFFSET = object.__basicsize__
_pointer_at = ctypes.c_void_p.from_address


def address_by_layout(array: np.ndarray[Any, Any]) -> int:
    """Return the address of an array's first element, read where the ABI keeps it."""
    return _pointer_at(id(array) + _DATA_OFFSET).value or 0


def _layout_holds() -> bool:
    samples: list[np.ndarray[Any, Any]] = [
        np.empty(1),
        np.empty((3, 4), np.int8)[1:, ::-1],
        np.empty((), np.complex128),
    ]
    return all(address_by_layout(a) == address_by_interface(a) for a in samples)


#: The fast way where the layout is as expected (CPython), the documented one elsewhere.
address: Callable[[np.ndarray[Any, Any]], int] = (
    address_by_layout if _layout_holds() else address_by_interface
)
