"""The CUDA driver through ctypes: its presence, its devices, pointers, streams and events.

Nothing here allocates device memory. Streams have DLPack's numbers, which are also the driver's
handles of its default streams: 1 is the legacy default stream, 2 the per-thread one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zerocopy.errors import DeviceError, Reason

_DEVICE_ORDINAL = 9  # CUpointer_attribute, cuda.h
_MAJOR, _MINOR = 75, 76  # CUdevice_attribute, cuda.h: the compute capability
_NO_TIMING = 2  # CUevent_flags, cuda.h


_CHECK = "check nvidia-smi, and that CUDA_VISIBLE_DEVICES names a device"


#: The process and the library for which `require` succeeded.
_usable: tuple[int, Any] | None = None


@functools.cache
def driver() -> Any:
    """Return the driver's library; None if it is not installed."""
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
    """Return why no CUDA device can be used on this machine; None if one can."""
    library = driver()
    if library is None:
        return Reason(
            "no NVIDIA driver is installed (libcuda is not found)",
            "install the driver, or run on a machine where nvidia-smi lists a GPU",
            code="no-driver",
        )
    code = library.cuInit(0)
    if code:
        return Reason(
            f"the NVIDIA driver does not answer ({_error_name(library, code)})", _CHECK, code="driver-error"
        )
    if count() == 0:
        return Reason("the NVIDIA driver shows no device", _CHECK, code="no-device")
    return None


def is_started() -> bool:
    """Whether this process has initialised the driver (``cuInit``); the call does not initialise it."""
    library, context = driver(), ctypes.c_void_p()
    return library is not None and library.cuCtxGetCurrent(ctypes.byref(context)) == 0


def require(asked: str) -> None:
    """Raise a DeviceError if no CUDA device can be used; `asked` is the call for its message.

    A success is kept for the process: a forked child asks again, since CUDA does not work there if its
    parent has used it.
    """
    global _usable
    now = os.getpid(), driver()
    if _usable == now:
        return
    reason = missing()
    if reason is not None:
        raise DeviceError(asked, reason.why, reason.remedy, code=reason.code)
    if now[1] is not None:
        _usable = now


def count() -> int:
    """Return the number of devices; 0 without a driver."""
    library = driver()
    number = ctypes.c_int(0)
    if library is None or library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(number)):
        return 0
    return number.value


def _library(index: int) -> Any:
    """Return the library, with the driver initialised."""
    require(f"device='cuda:{index}'")
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
    """Return the version of CUDA that the driver supports: major, minor."""
    number = ctypes.c_int()
    call(driver().cuDriverGetVersion, ctypes.byref(number))
    # 1000 * major + 10 * minor (CUDA Driver API, cuDriverGetVersion).
    return number.value // 1000, number.value % 1000 // 10


def compute_capability(index: int) -> tuple[int, int]:
    """Return a device's compute capability: major, minor."""
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
    """Return the index of the device that owns an address; None for 0 or other memory.

    The CUDA Array Interface does not name the device; its specification refers to
    ``cuPointerGetAttribute``.
    """
    library = driver()
    number = ctypes.c_int(0)
    if library is None or ptr == 0 or library.cuInit(0):
        return None
    code = library.cuPointerGetAttribute(ctypes.byref(number), _DEVICE_ORDINAL, ctypes.c_uint64(ptr))
    return number.value if code == 0 else None


def fetch(to: int, ptr: int, nbytes: int, device: int, stream: int) -> None:
    """Copy device memory to host memory on a stream, and wait until the copy is done."""
    with on_device(device) as library:
        call(
            library.cuMemcpyDtoHAsync_v2,
            ctypes.c_void_p(to),
            ctypes.c_uint64(ptr),
            ctypes.c_size_t(nbytes),
            ctypes.c_void_p(stream),
        )
        call(library.cuStreamSynchronize, ctypes.c_void_p(stream))


def finish_stream(stream: int, device: int) -> None:
    """Make the host wait for the work on a stream."""
    with on_device(device) as library:
        call(library.cuStreamSynchronize, ctypes.c_void_p(stream))


def wait(stream: int, event: int, device: int) -> None:
    """Make a stream wait for an event; the host does not wait."""
    with on_device(device) as library:
        call(library.cuStreamWaitEvent, ctypes.c_void_p(stream), ctypes.c_void_p(event), ctypes.c_uint(0))


def finish(event: int, device: int) -> None:
    """Make the host wait for an event."""
    with on_device(device) as library:
        call(library.cuEventSynchronize, ctypes.c_void_p(event))


def order(first: int, then: int, device: int) -> None:
    """Make the stream `then` wait for the work on `first`; the host does not wait."""
    event = ctypes.c_void_p()
    with on_device(device) as library:
        call(library.cuEventCreate, ctypes.byref(event), ctypes.c_uint(_NO_TIMING))
        try:
            call(library.cuEventRecord, event, ctypes.c_void_p(first))
            call(library.cuStreamWaitEvent, ctypes.c_void_p(then), event, ctypes.c_uint(0))
        finally:
            # The driver keeps a destroyed event until all waits for it are done (cuEventDestroy).
            call(library.cuEventDestroy_v2, event)


@functools.cache
def hold(device: int) -> None:
    """Retain a device's primary context until the process ends.

    When its last user releases it, the driver frees all memory of the context, including zerocopy's.
    """
    library, context = _library(device), ctypes.c_void_p()
    handle = _handle(library, device)
    call(library.cuDevicePrimaryCtxRetain, ctypes.byref(context), handle)


@contextmanager
def on_device(device: int) -> Iterator[Any]:
    """Make a context of a device current, and yield the library.

    It is the thread's current context if that belongs to the device, otherwise the primary one,
    which the CUDA runtime and all frameworks use.
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
    """Call a function of the driver; raise a DeviceError if it returns an error."""
    check(getattr(function, "__name__", "CUDA driver call"), function(*arguments))


def check(name: str, code: int) -> None:
    """Raise a DeviceError if the driver returned an error code."""
    if code:
        raise DeviceError(
            f"{name}()",
            f"the NVIDIA driver returned an error ({_error_name(driver(), code)})",
            "check with nvidia-smi that the GPU works, and retry in a new process",
            code="driver-error",
        )
