"""NVML through nvidia-ml-py: its start, and calls that return None for a figure that is not available."""

from __future__ import annotations

from typing import Any

from zerocopy.monitor.errors import MonitorPackageError, require

# nvmlReturn_t, nvml.h.
_UNINITIALIZED, _NOT_SUPPORTED, _NO_PERMISSION = 1, 3, 4
_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _VERSION_MISMATCH = 9, 12, 18
_LOST, _RESET_REQUIRED, _NOT_FOUND = 15, 16, 28

#: "Not available" as unsigned int and as unsigned long long (NVML_VALUE_NOT_AVAILABLE, nvml.h).
NOT_AVAILABLE = frozenset({(1 << 32) - 1, (1 << 64) - 1})

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
    _NOT_FOUND: "the GPU is not attached any more: look for Xid in dmesg",
    _NO_PERMISSION: "this user may not open the GPU: check the permissions of /dev/nvidia*",
}


class NvmlUnavailableError(Exception):
    """NVML cannot be used; the message has the reason and the fix."""


class DriverRestartedError(Exception):
    """The driver no longer knows this client, as after a reload of its module."""


class CardLostError(Exception):
    """A GPU stopped answering; the message has the reason."""


class Nvml:
    """Initialised NVML. Each call returns a figure or None, or raises an error of this module."""

    def __init__(self, library: Any = None) -> None:
        if library is None:
            try:
                library = require("pynvml", "reading the GPUs")
            except MonitorPackageError as error:
                raise NvmlUnavailableError(f"nvidia-ml-py is not installed: {error.remedy}") from error
        self.library = library
        try:
            library.nvmlInit()
        except Exception as error:  # the library's errors, and those of loading it
            raise NvmlUnavailableError(_why_not(error)) from error

    def stop(self) -> None:
        """Release NVML."""
        self.read("nvmlShutdown", tolerant=True)

    def read(self, name: str, *arguments: Any, tolerant: bool = False) -> Any:
        """Return the result of a call, or None if NVML, the GPU or the driver does not support it.

        Unless `tolerant`, raise `CardLostError` or `DriverRestartedError` if the error means that.
        """
        function = getattr(self.library, name, None)
        if function is None:  # an older nvidia-ml-py
            return None
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001 - an old driver's errors are of several types
            code = getattr(error, "value", None)
            if not tolerant:
                _raise_lost(error, code)
            return None

    def number(self, name: str, *arguments: Any) -> int | None:
        """Return the integer that a call returns, or None."""
        return known(self.read(name, *arguments))

    def text(self, name: str, *arguments: Any) -> str:
        """Return the text that a call returns, or an empty one."""
        value = self.read(name, *arguments)
        if isinstance(value, bytes):  # an older nvidia-ml-py
            return value.decode("utf-8", "replace")
        return value if isinstance(value, str) else ""

    def count(self) -> int:
        """Return the number of GPUs that the driver lists."""
        count = self.number("nvmlDeviceGetCount")
        if count is None:
            raise DriverRestartedError
        return count

    def handle(self, index: int) -> Any:
        """Return the handle of a GPU; raise `CardLostError` for any failure."""
        try:
            return self.library.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:
            code = getattr(error, "value", None)
            _raise_lost(error, code)
            reason = _WHY_LOST.get(code) if isinstance(code, int) else None
            raise CardLostError(reason or f"NVML cannot open the GPU: {error}") from error

    def parts(self, handle: Any) -> tuple[bool, list[Any]]:
        """Return whether the GPU is in MIG mode, and the handles of its MIG devices."""
        mode = self.read("nvmlDeviceGetMigMode", handle)
        if not mode or mode[0] != 1:  # NVML_DEVICE_MIG_ENABLE
            return False, []
        most = self.number("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
        parts = [self.read("nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(most)]
        return True, [part for part in parts if part is not None]


def known(value: Any) -> int | None:
    """Return an integer of NVML, or None for "not available"."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0 or value in NOT_AVAILABLE:
        return None
    return value


def _raise_lost(error: Exception, code: Any) -> None:
    if code in (_LOST, _RESET_REQUIRED, _NOT_FOUND):
        raise CardLostError(_WHY_LOST[code]) from error
    if code in (_UNINITIALIZED, _DRIVER_NOT_LOADED):
        raise DriverRestartedError from error


def _why_not(error: Exception) -> str:
    code = getattr(error, "value", None)
    why = _WHY_NOT.get(code) if isinstance(code, int) else None
    return why or f"NVML does not start: {error}"
