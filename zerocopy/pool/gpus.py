"""The GPUs of this machine, read through NVML, which does not initialise CUDA.

A process that has called ``cuInit`` cannot use CUDA in forked children (CUDA C++ Programming
Guide, "Initialization"); NVML has no such restriction (NVML API reference).
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zerocopy.errors import Reason
from zerocopy.protocols import cuda_driver, cuda_pool

# nvmlReturn_t, nvml.h.
_INSUFFICIENT_SIZE = 7
_MIG_ENABLED = 1
_UNKNOWN = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE, in usedGpuMemory
#: The PID namespace of the machine itself (PROC_PID_INIT_INO, linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"


@dataclass(frozen=True, slots=True)
class GPU:
    """One device as CUDA numbers them in this process."""

    index: int
    name: str
    total: int | None  # bytes; of the slice if it is a MIG slice; None if NVML does not report them
    mig: bool = False  # whether it is a MIG slice
    others: int = 0  # bytes that other processes use, as far as NVML reports them
    includes_own: bool = False  # whether `others` may include memory of this process


class _Memory(ctypes.Structure):
    """``nvmlMemory_v2_t``, which separates used memory from the driver's own."""

    _fields_ = (
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    )


class _OldMemory(ctypes.Structure):
    """``nvmlMemory_t``."""

    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class _Process(ctypes.Structure):
    """``nvmlProcessInfo_t`` of ``nvmlDeviceGetComputeRunningProcesses_v3``."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@functools.cache
def nvml() -> Any:
    """Return NVML, initialised; None if it is not installed or does not respond."""
    try:
        library = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def visible_gpus(environ: Mapping[str, str] = os.environ) -> tuple[list[GPU], Reason | None]:
    """Return the devices that are visible to CUDA, and the reason if there are none."""
    library = nvml()
    if library is None:
        # Tegra, WSL without NVML, or a machine without a driver: use the CUDA library.
        reason = cuda_driver.missing()
        devices = range(cuda_driver.count()) if reason is None else ()
        return [GPU(index, *cuda_driver.name_and_memory(index)) for index in devices], reason
    handles = _visible(library, environ.get("CUDA_VISIBLE_DEVICES"))
    if not handles:
        return [], Reason(
            "the NVIDIA driver shows no device",
            "check nvidia-smi, and that CUDA_VISIBLE_DEVICES names a device",
            code="no-device",
        )
    return [_gpu(library, index, handle) for index, handle in enumerate(handles)], None


def count() -> int | None:
    """Return the number of devices that are visible to CUDA, without starting it; None without NVML."""
    library = nvml()
    return None if library is None else len(_visible(library, os.environ.get("CUDA_VISIBLE_DEVICES")))


def _visible(library: Any, text: str | None) -> list[ctypes.c_void_p]:
    """Return NVML's handles of the devices in ``CUDA_VISIBLE_DEVICES``, in its order.

    Numbers follow NVML's order, that of the bus. CUDA's default order puts the fastest GPU first,
    which differs only in machines with different GPUs (``CUDA_DEVICE_ORDER``).
    """
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    by_index = [_handle(library.nvmlDeviceGetHandleByIndex_v2, ctypes.c_uint(i)) for i in range(count.value)]
    if text is None:
        # In MIG mode CUDA shows one slice: the first slice of the first GPU.
        slices = [_first_slice(library, handle) for handle in by_index if handle is not None]
        shown = [s or h for s, h in zip(slices, by_index, strict=True) if h is not None]
        return shown[:1] if any(slices) else shown
    handles = []
    for part in (piece.strip() for piece in text.split(",")):
        if re.fullmatch(r"\d+", part):
            handle = by_index[int(part)] if int(part) < len(by_index) else None
            handle = handle and (_first_slice(library, handle) or handle)
        else:
            handle = _by_uuid(library, part, by_index)
        if handle is None:
            break  # entries after an invalid one are not visible (CUDA C++ Programming Guide)
        handles.append(handle)
    return handles


def _handle(function: Any, key: Any) -> ctypes.c_void_p | None:
    handle = ctypes.c_void_p()
    return handle if function(key, ctypes.byref(handle)) == 0 else None


def _by_uuid(library: Any, part: str, by_index: list[ctypes.c_void_p | None]) -> ctypes.c_void_p | None:
    """Return the device of a UUID, or of its first characters if no other has them."""
    whole = _handle(library.nvmlDeviceGetHandleByUUID, ctypes.c_char_p(part.encode()))
    if whole is not None or not part.startswith("GPU-"):
        return whole
    text = ctypes.create_string_buffer(96)
    matches = [
        handle
        for handle in by_index
        if handle is not None
        and library.nvmlDeviceGetUUID(handle, text, ctypes.c_uint(len(text))) == 0
        and text.value.decode("ascii", "replace").startswith(part)
    ]
    return matches[0] if len(matches) == 1 else None


def _first_slice(library: Any, gpu: ctypes.c_void_p) -> ctypes.c_void_p | None:
    mode, pending = ctypes.c_uint(), ctypes.c_uint()
    if library.nvmlDeviceGetMigMode(gpu, ctypes.byref(mode), ctypes.byref(pending)):
        return None  # no MIG support
    if mode.value != _MIG_ENABLED:
        return None
    part = ctypes.c_void_p()
    code = library.nvmlDeviceGetMigDeviceHandleByIndex(gpu, ctypes.c_uint(0), ctypes.byref(part))
    return part if code == 0 else None


def _gpu(library: Any, index: int, handle: ctypes.c_void_p) -> GPU:
    name = ctypes.create_string_buffer(96)
    named = library.nvmlDeviceGetName(handle, name, ctypes.c_uint(len(name))) == 0
    part = ctypes.c_uint()
    is_slice = library.nvmlDeviceIsMigDeviceHandle(handle, ctypes.byref(part)) == 0 and bool(part.value)
    text = name.value.decode("utf-8", "replace") if named else "GPU"
    total, used = _memory(library, handle)
    return GPU(index, text, total, is_slice, *_others(library, handle, index, used))


def _memory(library: Any, handle: ctypes.c_void_p) -> tuple[int | None, int]:
    """Return the total and the used bytes.

    A GPU that shares the memory of the host, such as GB10, reports neither (NVML_ERROR_NOT_SUPPORTED).
    """
    memory, old = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24), _OldMemory()
    read = getattr(library, "nvmlDeviceGetMemoryInfo_v2", None)  # drivers before 510 lack it
    if read is not None and read(handle, ctypes.byref(memory)) == 0:
        # As cuDeviceTotalMem: without the driver's own memory.
        return memory.total - memory.reserved, memory.used
    if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(old)) == 0:
        return old.total, old.used
    return None, 0


def _others(library: Any, handle: ctypes.c_void_p, index: int, used: int) -> tuple[int, bool]:
    """Return the bytes of other processes, and whether they may include this process's own.

    In containers NVML hides other containers' processes, but not the memory that they use: without a
    process, only bytes beyond 64 MiB are others'. In a PID namespace NVML's PIDs are not those of this
    process, whose memory is then among the used bytes.
    """
    processes = _processes(library, handle)
    own = [process for process in processes if process.pid == os.getpid()]
    foreign = len(processes) > len(own)
    others = max(0, used - sum(process.used for process in own if process.used != _UNKNOWN))
    if not (foreign or others > 64 * 2**20):
        return 0, False
    return others, not own and _in_namespace() and cuda_pool.has_context(index)


def _processes(library: Any, handle: ctypes.c_void_p) -> list[_Process]:
    # Drivers before 510 lack it; older versions of the function have other structures.
    count, read = ctypes.c_uint(0), getattr(library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
    if read is None or read(handle, ctypes.byref(count), None) != _INSUFFICIENT_SIZE:
        return []
    count = ctypes.c_uint(count.value + 8)  # some may have started since
    infos = (_Process * count.value)()
    return list(infos[: count.value]) if read(handle, ctypes.byref(count), infos) == 0 else []


def _in_namespace() -> bool:
    try:
        return os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE
    except OSError:
        return False  # not Linux
