"""CUDA's handles of memory and events for other processes, through the driver API.

Names and numbers are those of cuda.h (CUDA 12 and 13). A memory handle is that of a whole allocation of
``cuMemAlloc``; memory of asynchronous pools and of virtual memory management has none:
a pool has a handle, and its allocations have data relative to it.
"""

from __future__ import annotations

import ctypes

from zerocopy.protocols.cuda_driver import call, on_device

HANDLE_BYTES = 64
UUID_BYTES = 16
# CUpointer_attribute.
_IS_LEGACY_IPC_CAPABLE, _POOL = 10, 17
# CUevent_flags.
_NO_TIMING, _INTERPROCESS = 2, 4
# CUipcMem_flags: also for a device without peer access yet.
_LAZY_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    """``CUipcMemHandle`` and ``CUipcEventHandle``, which the driver takes by value."""

    _fields_ = (("reserved", ctypes.c_ubyte * HANDLE_BYTES),)

    def __bytes__(self) -> bytes:
        return ctypes.string_at(ctypes.addressof(self), HANDLE_BYTES)


def device_uuid(device: int) -> bytes:
    """Return the 16 bytes that identify a device in every process, whatever devices it sees."""
    number, uuid = ctypes.c_int(), (ctypes.c_char * UUID_BYTES)()
    with on_device(device) as library:
        call(library.cuDeviceGet, ctypes.byref(number), ctypes.c_int(device))
        call(library.cuDeviceGetUuid_v2, ctypes.byref(uuid), number)
    return ctypes.string_at(ctypes.addressof(uuid), UUID_BYTES)


def allocation(device: int, ptr: int) -> tuple[int, int]:
    """Return the first address and the size of the allocation that has an address."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    with on_device(device) as library:
        call(library.cuMemGetAddressRange_v2, ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(ptr))
    return base.value, size.value


def has_handle(device: int, ptr: int) -> bool:
    """Whether the allocation that has an address has a memory handle."""
    value = ctypes.c_int()
    with on_device(device) as library:
        call(
            library.cuPointerGetAttribute,
            ctypes.byref(value),
            ctypes.c_int(_IS_LEGACY_IPC_CAPABLE),
            ctypes.c_uint64(ptr),
        )
    return bool(value.value)


def pool_of(device: int, ptr: int) -> int:
    """Return the asynchronous pool that has an address, a ``CUmemoryPool``; 0 if none has."""
    pool = ctypes.c_void_p()
    with on_device(device) as library:
        code = library.cuPointerGetAttribute(ctypes.byref(pool), ctypes.c_int(_POOL), ctypes.c_uint64(ptr))
    return 0 if code else pool.value or 0


def memory_handle(device: int, base: int) -> bytes:
    """Return the handle of an allocation, by its first address."""
    handle = _Handle()
    with on_device(device) as library:
        call(library.cuIpcGetMemHandle, ctypes.byref(handle), ctypes.c_uint64(base))
    return bytes(handle)


def open_memory(device: int, handle: bytes) -> int:
    """Map another process's allocation, and return its first address here.

    Opening it again returns the same address. Each opening needs a `close_memory`.
    """
    base = ctypes.c_uint64()
    with on_device(device) as library:
        value = _Handle.from_buffer_copy(handle)
        call(library.cuIpcOpenMemHandle_v2, ctypes.byref(base), value, ctypes.c_uint(_LAZY_PEER_ACCESS))
    return base.value


def close_memory(device: int, base: int) -> None:
    """Undo one `open_memory`; the last one unmaps the memory."""
    with on_device(device) as library:
        call(library.cuIpcCloseMemHandle, ctypes.c_uint64(base))


def record_event(device: int, stream: int) -> tuple[int, bytes]:
    """Record a new event on a stream, and return it and its handle for other processes."""
    event, handle = ctypes.c_void_p(), _Handle()
    with on_device(device) as library:
        call(library.cuEventCreate, ctypes.byref(event), ctypes.c_uint(_NO_TIMING | _INTERPROCESS))
        try:
            call(library.cuEventRecord, event, ctypes.c_void_p(stream))
            call(library.cuIpcGetEventHandle, ctypes.byref(handle), event)
        except BaseException:
            library.cuEventDestroy_v2(event)
            raise
    return event.value or 0, bytes(handle)


def wait_for(device: int, stream: int, handle: bytes) -> None:
    """Make a stream wait for another process's event; the host does not wait."""
    event = ctypes.c_void_p()
    with on_device(device) as library:
        call(library.cuIpcOpenEventHandle, ctypes.byref(event), _Handle.from_buffer_copy(handle))
        try:
            call(library.cuStreamWaitEvent, ctypes.c_void_p(stream), event, ctypes.c_uint(0))
        finally:
            call(library.cuEventDestroy_v2, event)


def destroy_event(device: int, event: int) -> None:
    """Destroy an event of `record_event`."""
    with on_device(device) as library:
        call(library.cuEventDestroy_v2, ctypes.c_void_p(event))


def synchronize(device: int) -> None:
    """Wait on the host for all work of a device's context."""
    with on_device(device) as library:
        call(library.cuCtxSynchronize)


# A pool that was created with the handle type of POSIX files is exported once as a file descriptor, and each
# allocation by 64 bytes of data (CUDA 11.2 and later).

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
