"""The cards of this machine, asked of NVML: it initialises no CUDA driver.

A process that has called ``cuInit`` cannot use CUDA in children that it forks (CUDA C++
Programming Guide, "Initialization"); NVML is apart from that (NVML API reference).
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
from zerocopy.protocols import cuda_driver

# nvmlReturn_t, nvml.h.
_INSUFFICIENT_SIZE = 7
_MIG_ENABLED = 1


@dataclass(frozen=True, slots=True)
class Card:
    """One device as CUDA numbers them here.

    Attributes
    ----------
    index : int
    name : str
    total : int
        Bytes; of a MIG slice, the slice's own.
    mig : bool
        Whether it is a slice of a card.
    others : int
        Bytes that other processes have on it, as far as NVML tells.
    """

    index: int
    name: str
    total: int
    mig: bool = False
    others: int = 0


class _Memory(ctypes.Structure):
    """``nvmlMemory_v2_t``, which tells what is used from what the driver keeps for itself."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


@functools.cache
def _nvml() -> Any:
    """Return NVML, initialised, or None where it is not installed or does not answer."""
    try:
        library = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def cards(environ: Mapping[str, str] = os.environ) -> tuple[list[Card], Reason | None]:
    """Return the devices that CUDA shows here, and why there are none if there are none."""
    library = _nvml()
    if library is None:
        # No NVML: Tegra, WSL without it, or no driver at all. CUDA's own library tells.
        return _by_driver()
    handles = _visible(library, environ.get("CUDA_VISIBLE_DEVICES"))
    if not handles:
        return [], Reason(
            "the NVIDIA driver shows no device",
            "check nvidia-smi, and that CUDA_VISIBLE_DEVICES names a device",
        )
    return [_card(library, index, handle) for index, handle in enumerate(handles)], None


def driver_versions() -> tuple[str | None, str | None]:
    """Return the versions of the NVIDIA driver and of the CUDA that it speaks, or None: NVML tells them."""
    library = _nvml()
    if library is None:
        return None, None
    text, number = ctypes.create_string_buffer(96), ctypes.c_int()
    told = library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text))) == 0
    spoken = library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)) == 0
    return (
        text.value.decode("utf-8", "replace") if told else None,
        # 1000 * major + 10 * minor (nvmlSystemGetCudaDriverVersion_v2).
        f"{number.value // 1000}.{number.value % 1000 // 10}" if spoken else None,
    )


def _by_driver() -> tuple[list[Card], Reason | None]:
    reason = cuda_driver.missing()
    if reason is not None:
        return [], reason
    return [Card(index, *cuda_driver.name_and_memory(index)) for index in range(cuda_driver.count())], None


def _visible(library: Any, text: str | None) -> list[ctypes.c_void_p]:
    """Return NVML's handles of what ``CUDA_VISIBLE_DEVICES`` lets through, in its order.

    Numbers are taken in NVML's order, that of the bus; CUDA's default puts the fastest card
    first, which differs in machines of unlike cards alone (``CUDA_DEVICE_ORDER``).
    """
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    by_index = [_handle(library.nvmlDeviceGetHandleByIndex_v2, ctypes.c_uint(i)) for i in range(count.value)]
    if text is None:
        # Of cards in MIG mode CUDA shows one slice, the first of the first.
        slices = [_first_slice(library, handle) for handle in by_index if handle is not None]
        shown = [s or h for s, h in zip(slices, by_index, strict=True) if h is not None]
        return shown[:1] if any(slices) else shown
    found = []
    for part in (piece.strip() for piece in text.split(",")):
        if re.fullmatch(r"\d+", part):
            handle = by_index[int(part)] if int(part) < len(by_index) else None
            handle = handle and (_first_slice(library, handle) or handle)
        else:
            handle = _handle(library.nvmlDeviceGetHandleByUUID, ctypes.c_char_p(part.encode()))
        if handle is None:
            break  # what stands behind an invalid entry is not visible (CUDA's manual)
        found.append(handle)
    return found


def _handle(function: Any, key: Any) -> ctypes.c_void_p | None:
    handle = ctypes.c_void_p()
    return handle if function(key, ctypes.byref(handle)) == 0 else None


def _first_slice(library: Any, card: ctypes.c_void_p) -> ctypes.c_void_p | None:
    mode, pending = ctypes.c_uint(), ctypes.c_uint()
    if library.nvmlDeviceGetMigMode(card, ctypes.byref(mode), ctypes.byref(pending)):
        return None  # a card that has no MIG
    if mode.value != _MIG_ENABLED:
        return None
    part = ctypes.c_void_p()
    code = library.nvmlDeviceGetMigDeviceHandleByIndex(card, ctypes.c_uint(0), ctypes.byref(part))
    return part if code == 0 else None


def _card(library: Any, index: int, handle: ctypes.c_void_p) -> Card:
    name = ctypes.create_string_buffer(96)
    library.nvmlDeviceGetName(handle, name, ctypes.c_uint(len(name)))
    memory = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24)
    library.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(memory))
    part = ctypes.c_uint()
    library.nvmlDeviceIsMigDeviceHandle(handle, ctypes.byref(part))
    text = name.value.decode("utf-8", "replace")
    # As CUDA has it (cuDeviceTotalMem): without what the driver keeps for itself.
    total = memory.total - memory.reserved
    return Card(index, text, total, bool(part.value), _others(library, handle, memory.used))


def _others(library: Any, handle: ctypes.c_void_p, used: int) -> int:
    """Return what others use: all that is used, if a process is seen or it is more than a trifle.

    In containers NVML shows no processes of others; the memory that they use it does show.
    """
    count = ctypes.c_uint(0)
    code = library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None)
    return used if code == _INSUFFICIENT_SIZE or used > 64 * 2**20 else 0
