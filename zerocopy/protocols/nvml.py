"""NVML, the NVIDIA Management Library, through ctypes; a figure that is not available is None.

It needs no package and does not initialise CUDA. A process that has called ``cuInit`` cannot use CUDA in
forked children (CUDA C++ Programming Guide, "Initialization"); NVML has no such restriction (NVML API
reference). Names, structures and constants are those of nvml.h.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from typing import Any

# nvmlReturn_t.
_UNINITIALIZED, _NO_PERMISSION, _INSUFFICIENT_SIZE = 1, 4, 7
_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _VERSION_MISMATCH = 9, 12, 18
_LOST, _RESET_REQUIRED, _NOT_FOUND = 15, 16, 28
#: "Not available" as unsigned int and as unsigned long long (NVML_VALUE_NOT_AVAILABLE).
_NOT_AVAILABLE = frozenset({(1 << 32) - 1, (1 << 64) - 1})
_MIG_ENABLED = 1

_WHY_NOT = {
    _DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: check nvidia-smi, and load the driver",
    _NO_PERMISSION: "this user may not open /dev/nvidiactl: check its permissions",
    _LIBRARY_NOT_FOUND: (
        "the library of the NVIDIA driver, libnvidia-ml.so.1, is not installed: install the driver, or run "
        "the container with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    ),
    _VERSION_MISMATCH: (
        "the library and the kernel module of the NVIDIA driver have different versions, as after an update: "
        "restart the machine, or reload the module"
    ),
}
_WHY_LOST = {
    _LOST: "the GPU fell off the bus: look for Xid in dmesg, and restart the machine",
    _RESET_REQUIRED: "the GPU needs a reset: nvidia-smi --gpu-reset, or restart the machine",
    _NOT_FOUND: "the GPU is no longer attached: look for Xid in dmesg",
    _NO_PERMISSION: "this user may not open the GPU: check the permissions of /dev/nvidia*",
}


class NvmlUnavailableError(Exception):
    """NVML cannot be used; the message has the reason and the fix."""


class DriverRestartedError(Exception):
    """The driver no longer knows this client, as after a reload of its module."""


class CardLostError(Exception):
    """A GPU stopped answering; the message has the reason."""


class Memory(ctypes.Structure):
    """``nvmlMemory_v2_t``, which separates used memory from the driver's own."""

    _fields_ = (
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    )


class _OldMemory(ctypes.Structure):
    """``nvmlMemory_t``."""

    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class Utilization(ctypes.Structure):
    """``nvmlUtilization_t``, in percent."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Process(ctypes.Structure):
    """``nvmlProcessInfo_t`` of versions 2 and 3 of the calls."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


#: The type of nvmlValue_t for each nvmlValueType_t.
_TYPES = (
    *(ctypes.c_double, ctypes.c_uint, ctypes.c_ulong, ctypes.c_ulonglong, ctypes.c_longlong),
    *(ctypes.c_int, ctypes.c_ushort),
)


class FieldValue(ctypes.Structure):
    """``nvmlFieldValue_t``."""

    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_uint),
        ("code", ctypes.c_uint),
        ("value", ctypes.c_ulonglong),
    )


@functools.cache
def started() -> Nvml | None:
    """Return NVML, started once and tolerant; None if it is not installed or does not respond."""
    try:
        return Nvml(tolerant=True)
    except NvmlUnavailableError:
        return None


class Nvml:
    """Initialised NVML. A call returns None where NVML, the GPU or the driver does not support it.

    Unless `tolerant`, it raises `CardLostError` or `DriverRestartedError` if the driver reports that.
    """

    def __init__(self, library: Any = None, *, tolerant: bool = False) -> None:
        if library is None:
            try:
                library = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
            except OSError as error:
                raise NvmlUnavailableError(_WHY_NOT[_LIBRARY_NOT_FOUND]) from error
        self._library, self._tolerant = library, tolerant
        code = self._call("nvmlInit_v2")
        if code != 0:
            raise NvmlUnavailableError(_WHY_NOT.get(code or 0, f"NVML does not start: NVML error {code}"))

    def stop(self) -> None:
        """Release NVML."""
        self._call("nvmlShutdown")

    def _call(self, name: str, *arguments: Any) -> int | None:
        """Call a function and return its nvmlReturn_t; None if the driver is too old to have it."""
        function = getattr(self._library, name, None)
        return None if function is None else int(function(*arguments))

    def _code(self, name: str, *arguments: Any) -> int | None:
        code = self._call(name, *arguments)
        if self._tolerant:
            return code
        if code in (_LOST, _RESET_REQUIRED, _NOT_FOUND):
            raise CardLostError(_WHY_LOST[code or 0])
        if code in (_UNINITIALIZED, _DRIVER_NOT_LOADED):
            raise DriverRestartedError
        return code

    # -- one value -------------------------------------------------------------------

    def read(self, result: Any, name: str, *arguments: Any) -> Any:
        """Call a function that fills the structure `result`, and return it or None."""
        return result if self._code(name, *arguments, ctypes.byref(result)) == 0 else None

    def number(self, name: str, *arguments: Any) -> int | None:
        """Return the unsigned int that a function fills."""
        result = self.read(ctypes.c_uint(), name, *arguments)
        return None if result is None else known(result.value)

    def text(self, name: str, *arguments: Any) -> str:
        """Return the text that a function fills; "" if it does not."""
        text = ctypes.create_string_buffer(96)
        code = self._code(name, *arguments, text, ctypes.c_uint(len(text)))
        return text.value.decode("utf-8", "replace") if code == 0 else ""

    # -- GPUs ------------------------------------------------------------------------

    def count(self) -> int:
        """Return the number of GPUs that the driver lists."""
        count = self.number("nvmlDeviceGetCount_v2")
        if count is None:
            raise DriverRestartedError
        return count

    def handle(self, index: int) -> ctypes.c_void_p | None:
        """Return the handle of a GPU; for any failure raise `CardLostError`, or return None if tolerant."""
        handle = ctypes.c_void_p()
        code = self._code("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        if code == 0:
            return handle
        if not self._tolerant:
            raise CardLostError(_WHY_LOST.get(code or 0, f"NVML cannot open the GPU: NVML error {code}"))
        return None

    def handle_of(self, uuid: str) -> ctypes.c_void_p | None:
        """Return the handle of a GPU or MIG device by its UUID; None if there is none."""
        handle = ctypes.c_void_p()
        code = self._call("nvmlDeviceGetHandleByUUID", ctypes.c_char_p(uuid.encode()), ctypes.byref(handle))
        return handle if code == 0 else None

    def parts(self, handle: Any) -> tuple[bool | None, list[Any]]:
        """Return whether the GPU is in MIG mode, None without such a mode, and its MIG devices."""
        mode, pending = ctypes.c_uint(), ctypes.c_uint()
        if self._code("nvmlDeviceGetMigMode", handle, ctypes.byref(mode), ctypes.byref(pending)) != 0:
            return None, []
        if mode.value != _MIG_ENABLED:
            return False, []
        name = "nvmlDeviceGetMigDeviceHandleByIndex"
        most = self.number("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
        parts = [self.read(ctypes.c_void_p(), name, handle, ctypes.c_uint(index)) for index in range(most)]
        return True, [part for part in parts if part is not None]

    def memory(self, handle: Any) -> Memory | None:
        """Return the memory in bytes; drivers before 510 count their own memory as used.

        A GPU that shares the memory of the host, such as GB10, reports none.
        """
        memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
        if self.read(memory, "nvmlDeviceGetMemoryInfo_v2", handle) is not None:
            return memory
        old = self.read(_OldMemory(), "nvmlDeviceGetMemoryInfo", handle)
        return None if old is None else Memory(total=old.total, free=old.free, used=old.used)

    def processes(self, handle: Any, kind: str) -> list[tuple[int, int | None]] | None:
        """Return the PIDs and bytes of processes of a kind: "Compute", "Graphics" or "MPSCompute"."""
        for version in ("_v3", "_v2"):  # drivers before 510 lack version 3
            count, name = ctypes.c_uint(0), f"nvmlDeviceGet{kind}RunningProcesses{version}"
            code = self._code(name, handle, ctypes.byref(count), None)
            if code == 0:
                return []
            if code != _INSUFFICIENT_SIZE:
                continue
            count = ctypes.c_uint(count.value + 8)  # some may have started since
            infos = (_Process * count.value)()
            if self._code(name, handle, ctypes.byref(count), infos) == 0:
                return [(info.pid, known(info.used)) for info in infos[: count.value]]
        return None

    def fields(self, handle: Any, fields: Sequence[tuple[int, int]]) -> list[int | None]:
        """Return the value of each field and scope, in one call."""
        values = (FieldValue * len(fields))(*(FieldValue(*each) for each in fields))
        code = self._code("nvmlDeviceGetFieldValues", handle, ctypes.c_int(len(fields)), values)
        return [_integer(value) if code == 0 else None for value in values]


def _integer(value: FieldValue) -> int | None:
    if value.code != 0 or not 0 < value.kind < len(_TYPES):
        return None
    # A union: its members begin at its address.
    address = ctypes.addressof(value) + FieldValue.value.offset
    return known(int(_TYPES[value.kind].from_address(address).value))


def known(value: int) -> int | None:
    """Return an integer of NVML, or None for "not available"."""
    return None if value < 0 or value in _NOT_AVAILABLE else value
