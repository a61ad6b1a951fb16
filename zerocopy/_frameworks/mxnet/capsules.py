"""DLPack capsules for MXNet: their strides, and a deleter that it can call without the GIL."""

from __future__ import annotations

import atexit
import ctypes
import functools
import sys
from typing import Any

from zerocopy.protocols import dlpack
from zerocopy.strided_view import contiguous_strides


def canonical(capsule: Any) -> Any:
    """Write the strides of a row-major capsule in the form that MXNet accepts.

    MXNet requires the row-major stride in every dimension (mxnet/tensor_blob.h, TBlob), even of
    size 1, where it is arbitrary in other frameworks; and it ignores the byte offset.
    """
    tensor = dlpack.tensor_of(capsule)
    if tensor.byte_offset:
        tensor.data, tensor.byte_offset = tensor.data + tensor.byte_offset, 0
    if tensor.strides:
        shape = tuple(tensor.shape[: tensor.ndim])
        for i, stride in enumerate(contiguous_strides(shape, 1)):
            tensor.strides[i] = stride
    return capsule


# MXNet drops arrays on its own threads without the GIL. NumPy's deleter takes the GIL since 1.24
# only (numpy/numpy#22507), which MXNet cannot import. This is therefore the only place where a
# capsule's deleter is Python code; ctypes takes the GIL for it. Law 7 is kept by removing all
# pending deleters before the interpreter exits, and by waiting for the threads that already run
# one; the operating system then frees the memory.

_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # called with the GIL held
_pending: dict[int, int] = {}  # NumPy's deleter by the address of its DLManagedTensor
_closed = False


def _release(address: int) -> None:
    deleter = _pending.pop(address, None)
    if deleter is not None:
        _Deleter(deleter)(address)


_release_with_gil = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_release)


def with_gil(capsule: Any) -> Any:
    """Replace the deleter of NumPy's legacy capsule by one that can be called without the GIL."""
    _at_exit()
    managed = _managed(ctypes.addressof(dlpack.tensor_of(capsule)))
    if _closed:
        managed.deleter = None
    else:
        _pending[ctypes.addressof(managed)] = managed.deleter
        managed.deleter = ctypes.cast(_release_with_gil, ctypes.c_void_p).value
    return capsule


def _managed(address: int) -> dlpack.DLManagedTensor:
    return dlpack.DLManagedTensor.from_address(address)  # its first member is the tensor


@functools.cache
def _at_exit() -> None:
    atexit.register(_close)


def _close() -> None:
    global _closed
    _closed = True
    while _pending:
        # Remove it from the table first, so that a deleter that already runs does not free the
        # struct to which the next line writes.
        address, _ = _pending.popitem()
        _managed(address).deleter = None
    # A thread of MXNet that has already read a deleter may still wait for the GIL. After this
    # function, CPython would end that thread, and its C++ frames would end the process
    # (python/cpython#87135). The deleter is part of an operation of MXNet's engine, for which
    # this waits without the GIL. The return value is the error of an operation of the caller.
    sys.modules["mxnet"].base._LIB.MXNDArrayWaitAll()
