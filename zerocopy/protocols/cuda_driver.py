"""The CUDA driver, asked through ctypes: is there one, whose is a pointer, what is in its memory.

Nothing here allocates on a device: a machine without a driver, a pointer that is not
CUDA's, are answers and not errors. Streams are numbered as DLPack does, which is how the
driver's own handles for the default ones are: 1 is the legacy one, 2 the per-thread one.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zerocopy.errors import DeviceError, Reason

# CUpointer_attribute, cuda.h.
_DEVICE_ORDINAL = 9
# CUdevice_attribute, cuda.h: of the compute capability.
_MAJOR, _MINOR = 75, 76
# CUevent_flags, cuda.h.
_NO_TIMING = 2


@functools.cache
def driver() -> Any:
    """Return the driver's library, or None where it is not installed."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _error_name(library: Any, code: int) -> str:
    name = ctypes.c_char_p()
    known = library.cuGetErrorName(code, ctypes.byref(name)) == 0 and name.value
    return name.value.decode() if known and name.value else f"CUDA error {code}"


def missing() -> Reason | None:
    """Return why no CUDA device can be used on this machine; None if one can.

    Returns
    -------
    Reason or None
        No driver, a driver that does not answer, or no device that it shows.
    """
    library = driver()
    if library is None:
        return Reason(
            "no NVIDIA driver is installed (libcuda is not found)",
            "install the driver, or run where nvidia-smi lists a GPU",
        )
    code = library.cuInit(0)
    if code:
        return Reason(
            f"the NVIDIA driver does not answer ({_error_name(library, code)})",
            "check nvidia-smi, and that CUDA_VISIBLE_DEVICES names a device",
        )
    if count() == 0:
        return Reason(
            "the NVIDIA driver shows no device",
            "check nvidia-smi, and that CUDA_VISIBLE_DEVICES names a device",
        )
    return None


def count() -> int:
    """Return how many devices the driver shows; 0 without a driver."""
    library = driver()
    number = ctypes.c_int(0)
    if library is None or library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(number)):
        return 0
    return number.value


def _library(index: int) -> Any:
    """Return the library, for a device; whoever asks first initialises the driver."""
    reason = missing()
    if reason is not None:
        raise DeviceError(f"device='cuda:{index}'", reason.why, reason.remedy)
    return driver()


def _handle(library: Any, index: int) -> ctypes.c_int:
    device = ctypes.c_int()
    call(library.cuDeviceGet, ctypes.byref(device), ctypes.c_int(index))
    return device


def name_and_memory(index: int) -> tuple[str, int]:
    """Return a device's name, and its total memory in bytes."""
    name, size = ctypes.create_string_buffer(256), ctypes.c_size_t()
    library = _library(index)
    device = _handle(library, index)
    call(library.cuDeviceGetName, name, ctypes.c_int(len(name)), device)
    call(library.cuDeviceTotalMem_v2, ctypes.byref(size), device)
    return name.value.decode("utf-8", "replace"), size.value


def version() -> tuple[int, int]:
    """Return the version of CUDA that the driver speaks, its major and minor number."""
    number = ctypes.c_int()
    call(driver().cuDriverGetVersion, ctypes.byref(number))
    # 1000 * major + 10 * minor (CUDA Driver API, cuDriverGetVersion).
    return number.value // 1000, number.value % 1000 // 10


def compute_capability(index: int) -> tuple[int, int]:
    """Return a device's compute capability, its major and minor number."""
    return attribute(index, _MAJOR), attribute(index, _MINOR)


def memory_info(device: int) -> tuple[int, int]:
    """Return the free and the total bytes of a device."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with on_device(device) as library:
        call(library.cuMemGetInfo_v2, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def attribute(index: int, number: int) -> int:
    """Return an attribute of a device: a ``CUdevice_attribute`` of cuda.h."""
    value = ctypes.c_int()
    library = _library(index)
    device = _handle(library, index)
    call(library.cuDeviceGetAttribute, ctypes.byref(value), ctypes.c_int(number), device)
    return value.value


def ordinal(ptr: int) -> int | None:
    """Return the index of the device whose memory an address is in; None if the driver cannot tell.

    The CUDA Array Interface names no device; its specification leaves what else there
    is to know of a pointer to ``cuPointerGetAttribute``.

    Parameters
    ----------
    ptr : int
        Never read; 0, which zero-size arrays have, is on no device.
    """
    library = driver()
    number = ctypes.c_int(0)
    if library is None or ptr == 0 or library.cuInit(0):
        return None
    code = library.cuPointerGetAttribute(ctypes.byref(number), _DEVICE_ORDINAL, ctypes.c_uint64(ptr))
    return number.value if code == 0 else None


def fetch(to: int, ptr: int, nbytes: int, device: int, stream: int) -> None:
    """Copy device memory to host memory, after what a stream has been given; done when it returns.

    Raises
    ------
    DeviceError
        There is no driver, or it refuses.
    """
    with on_device(device) as library:
        call(
            library.cuMemcpyDtoHAsync_v2,
            ctypes.c_void_p(to),
            ctypes.c_uint64(ptr),
            ctypes.c_size_t(nbytes),
            ctypes.c_void_p(stream),
        )
        call(library.cuStreamSynchronize, ctypes.c_void_p(stream))


def wait(stream: int, event: int, device: int) -> None:
    """Have a stream wait for an event; the host does not."""
    with on_device(device) as library:
        call(library.cuStreamWaitEvent, ctypes.c_void_p(stream), ctypes.c_void_p(event), ctypes.c_uint(0))


def finish(event: int, device: int) -> None:
    """Have the host wait for an event: for memory that it reads itself."""
    with on_device(device) as library:
        call(library.cuEventSynchronize, ctypes.c_void_p(event))


def order(first: int, then: int, device: int) -> None:
    """Have a stream wait for what another has been given so far; the host waits for neither."""
    event = ctypes.c_void_p()
    with on_device(device) as library:
        call(library.cuEventCreate, ctypes.byref(event), ctypes.c_uint(_NO_TIMING))
        try:
            call(library.cuEventRecord, event, ctypes.c_void_p(first))
            call(library.cuStreamWaitEvent, ctypes.c_void_p(then), event, ctypes.c_uint(0))
        finally:
            # Of an event that is waited for, the driver keeps what it needs (cuEventDestroy).
            call(library.cuEventDestroy_v2, event)


@functools.cache
def hold(device: int) -> None:
    """Keep a device's primary context for as long as the process lives.

    It goes with its last user, and all memory of it too: so whoever allocates in it, and is no
    framework that keeps it, must.
    """
    library, context = _library(device), ctypes.c_void_p()
    handle = _handle(library, device)
    call(library.cuDevicePrimaryCtxRetain, ctypes.byref(context), handle)


@contextmanager
def on_device(device: int) -> Iterator[Any]:
    """Make a context of a device current, and yield the library.

    The thread's own, where it is that device's; otherwise the primary one, which the CUDA
    runtime and with it every framework uses.
    """
    library = _library(device)
    current = ctypes.c_int(-1)
    if library.cuCtxGetDevice(ctypes.byref(current)) == 0 and current.value == device:
        yield library
        return
    handle, context = _handle(library, device), ctypes.c_void_p()
    call(library.cuDevicePrimaryCtxRetain, ctypes.byref(context), handle)
    try:
        call(library.cuCtxPushCurrent_v2, context)
        try:
            yield library
        finally:
            call(library.cuCtxPopCurrent_v2, ctypes.byref(ctypes.c_void_p()))
    finally:
        call(library.cuDevicePrimaryCtxRelease_v2, handle)


def call(function: Any, *arguments: Any) -> None:
    """Call a function of the driver.

    Raises
    ------
    DeviceError
        It answers with an error.
    """
    check(getattr(function, "__name__", "a call of the CUDA driver"), function(*arguments))


def check(name: str, code: int) -> None:
    """Check a code that the driver answered with."""
    if code:
        raise DeviceError(
            f"{name}()",
            f"the NVIDIA driver refused ({_error_name(driver(), code)})",
            "see whether the GPU still works: nvidia-smi, and a fresh process",
        )
