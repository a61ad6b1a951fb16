"""CUDA's stream-ordered memory pools, through the driver API (CUDA 11.2 and later).

Each device has a default pool, ``cuDeviceGetDefaultMemPool``, which all frameworks of a process
can share. Names and numbers are those of cuda.h; streams are driver handles, as in DLPack.
"""

from __future__ import annotations

import ctypes

from zerocopy.protocols import cuda_driver
from zerocopy.protocols.cuda_driver import call, on_device

# CUdevice_attribute.
_POOLS_SUPPORTED = 115
_CONCURRENT_MANAGED_ACCESS = 89
# CUmemPool_attribute.
RELEASE_THRESHOLD = 4
RESERVED_CURRENT = 5
USED_CURRENT = 7
USED_HIGH = 8
# CUresult.
_OUT_OF_MEMORY = 2


def supported(device: int) -> bool:
    """Whether a device has memory pools."""
    return bool(cuda_driver.attribute(device, _POOLS_SUPPORTED))


def has_context(device: int) -> bool:
    """Whether the process has a primary context of a device; the driver is not initialised.

    Before ``cuInit`` the calls return CUDA_ERROR_NOT_INITIALIZED, without effect (CUDA Driver API,
    "Initialization").
    """
    library = cuda_driver.driver()
    number, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if library is None or library.cuDeviceGet(ctypes.byref(number), ctypes.c_int(device)):
        return False
    code = library.cuDevicePrimaryCtxGetState(number, ctypes.byref(flags), ctypes.byref(active))
    return code == 0 and bool(active.value)


def pages_managed_memory(device: int) -> bool:
    """Whether host and device may access managed memory at once, so that it can exceed the GPU."""
    return bool(cuda_driver.attribute(device, _CONCURRENT_MANAGED_ACCESS))


def default_pool(device: int) -> int:
    """Return the handle of a device's default pool, a ``CUmemoryPool``."""
    number, handle = ctypes.c_int(), ctypes.c_void_p()
    with on_device(device) as library:
        call(library.cuDeviceGet, ctypes.byref(number), ctypes.c_int(device))
        call(library.cuDeviceGetDefaultMemPool, ctypes.byref(handle), number)
    return handle.value or 0


def get_attribute(device: int, pool: int, attribute: int) -> int:
    """Return an attribute of a pool, such as `USED_CURRENT`, in bytes."""
    value = ctypes.c_uint64()
    with on_device(device) as library:
        call(
            library.cuMemPoolGetAttribute,
            ctypes.c_void_p(pool),
            ctypes.c_int(attribute),
            ctypes.byref(value),
        )
    return value.value


def set_attribute(device: int, pool: int, attribute: int, value: int) -> None:
    """Set an attribute: the release threshold, or a high-water mark to 0."""
    with on_device(device) as library:
        call(
            library.cuMemPoolSetAttribute,
            ctypes.c_void_p(pool),
            ctypes.c_int(attribute),
            ctypes.byref(ctypes.c_uint64(value)),
        )


def allocate(device: int, pool: int, nbytes: int, stream: int) -> int:
    """Allocate from a pool, for later work on the stream.

    Raises
    ------
    MemoryError
        The device is out of memory.
    DeviceError
        The driver returned another error.
    """
    ptr = ctypes.c_uint64()
    with on_device(device) as library:
        code = library.cuMemAllocFromPoolAsync(
            ctypes.byref(ptr), ctypes.c_size_t(nbytes), ctypes.c_void_p(pool), ctypes.c_void_p(stream)
        )
        if code == _OUT_OF_MEMORY:
            raise MemoryError(f"cuMemAllocFromPoolAsync() of {nbytes} bytes: the device is out of memory")
        cuda_driver.check("cuMemAllocFromPoolAsync", code)
    return ptr.value


def free(device: int, ptr: int, stream: int) -> None:
    """Free memory of a pool, ordered after the work submitted to the stream so far."""
    with on_device(device) as library:
        call(library.cuMemFreeAsync, ctypes.c_uint64(ptr), ctypes.c_void_p(stream))


def trim(device: int, pool: int, keep: int) -> None:
    """Return unused memory to the device, down to `keep` bytes."""
    with on_device(device) as library:
        call(library.cuMemPoolTrimTo, ctypes.c_void_p(pool), ctypes.c_size_t(keep))
