"""CUDA's asynchronous pools in other processes, through the driver API (CUDA 11.2 and later).

A pool that was created with the handle type of POSIX files is exported once as a file descriptor, and each
allocation by 64 bytes of data. Names and numbers are those of cuda.h.
"""

from __future__ import annotations

import ctypes

from zerocopy.protocols.cuda_driver import call, on_device

DATA_BYTES = 64
# CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
_POSIX_FILE = 1


class _Data(ctypes.Structure):
    """``CUmemPoolPtrExportData``."""

    _fields_ = (("reserved", ctypes.c_ubyte * DATA_BYTES),)


def export_pool(device: int, pool: int) -> int:
    """Return a new file descriptor of a pool; the caller closes it."""
    fd = ctypes.c_int(-1)
    with on_device(device) as library:
        call(
            library.cuMemPoolExportToShareableHandle,
            ctypes.byref(fd),
            ctypes.c_void_p(pool),
            ctypes.c_int(_POSIX_FILE),
            ctypes.c_ulonglong(0),
        )
    return fd.value


def export_pointer(device: int, base: int) -> bytes:
    """Return the data by which other processes import an allocation, by its first address."""
    data = _Data()
    with on_device(device) as library:
        call(library.cuMemPoolExportPointer, ctypes.byref(data), ctypes.c_uint64(base))
    return ctypes.string_at(ctypes.addressof(data), DATA_BYTES)


def import_pool(device: int, fd: int) -> int:
    """Return another process's pool, a ``CUmemoryPool``; the caller keeps the file descriptor.

    Its memory is accessible from its own device (CUDA C++ Programming Guide, "IPC Memory Pools").
    """
    pool = ctypes.c_void_p()
    with on_device(device) as library:
        call(
            library.cuMemPoolImportFromShareableHandle,
            ctypes.byref(pool),
            ctypes.c_void_p(fd),  # the number itself, not its address
            ctypes.c_int(_POSIX_FILE),
            ctypes.c_ulonglong(0),
        )
    return pool.value or 0


def import_pointer(device: int, pool: int, data: bytes) -> int:
    """Return the first address of an allocation in an imported pool; `free` undoes it."""
    base = ctypes.c_uint64()
    with on_device(device) as library:
        value = _Data.from_buffer_copy(data)
        call(library.cuMemPoolImportPointer, ctypes.byref(base), ctypes.c_void_p(pool), ctypes.byref(value))
    return base.value


def free(device: int, base: int) -> None:
    """Free an imported allocation in this process; afterwards its owner may free it."""
    with on_device(device) as library:
        call(library.cuMemFree_v2, ctypes.c_uint64(base))


def destroy(device: int, pool: int) -> None:
    """Drop an imported pool."""
    with on_device(device) as library:
        call(library.cuMemPoolDestroy, ctypes.c_void_p(pool))
