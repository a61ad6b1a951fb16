"""A stand-in for NVML: GPUs, MIG devices, missing figures, failures, old drivers and slow calls."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from typing import Any

GIB = 1 << 30
#: nvmlReturn_t of nvml.h that tests use by name.
CODES = {
    "Uninitialized": 1,
    "InvalidArgument": 2,
    "NotSupported": 3,
    "NoPermission": 4,
    "NotFound": 6,
    "InsufficientSize": 7,
    "DriverNotLoaded": 9,
    "LibraryNotFound": 12,
    "FunctionNotFound": 13,
    "GpuIsLost": 15,
    "ResetRequired": 16,
    "LibRmVersionMismatch": 18,
    "NotReady": 27,
    "GpuNotFound": 28,
    "Unknown": 999,
}


class _Refused(Exception):
    """A call whose result is `code`, an nvmlReturn_t."""

    def __init__(self, code: int) -> None:
        self.code = code


def gpu(index: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a GPU whose figures are all available."""
    fields: dict[str, Any] = {
        "name": "Test GPU",
        "uuid": f"GPU-{index}",
        "total": 80 * GIB,
        "reserved": GIB,
        "used": 10 * GIB,
        "utilization": (37, 12),
        "temperature": 45,
        "power": 250_500,
        "power_limit": 700_000,
        "clocks": {1: 1980, 2: 2619},
        "pcie": {1: 5000, 0: 700},  # KB/s: received, sent
        "links": {},  # number: KiB received and sent
        "compute": [(100, 6 * GIB)],
        "graphics": [],
        "mps": [],
        "mig": None,  # None without MIG mode, or the MIG devices
    }
    return fields | changes


def mig_device(index: int, **changes: Any) -> dict[str, Any]:
    """Return a MIG device."""
    part = gpu(
        name=f"Test GPU MIG 1g.10gb {index}", uuid=f"MIG-{index}", total=10 * GIB, used=GIB, reserved=0
    )
    return part | {"compute": [(200 + index, GIB)]} | changes


class FakeNvml:
    """The library as ctypes calls it: `gpus` may be changed between reads.

    `failing` maps the name of a function to the nvmlReturn_t that it returns. `missing` has the names that
    this version lacks. `calls` lists the names that were called. `advance` is called with the seconds that a
    call takes.
    """

    def __init__(self, *gpus: dict[str, Any]) -> None:
        self.gpus = [copy.deepcopy(one) for one in gpus]
        self.failing: dict[str, int] = {}
        self.missing: set[str] = set()
        self.calls: list[str] = []
        self.started = False
        self.advance: Callable[[float], None] = lambda seconds: None

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            return super().__getattribute__(name)
        if name in self.missing:
            raise AttributeError(name)
        function = super().__getattribute__(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self.failing:
                return self.failing[name]
            if name != "nvmlInit_v2" and not self.started:
                return CODES["Uninitialized"]
            if arguments and isinstance(arguments[0], ctypes.c_void_p):
                one = self._by_handle()[arguments[0].value]
                if one.get("lost"):
                    return int(one["lost"])
                arguments = (one, *arguments[1:])
            try:
                function(*arguments)
            except _Refused as refused:
                return refused.code
            return 0

        return call

    def _by_handle(self) -> dict[Any, dict[str, Any]]:
        whole = {100 + i: one for i, one in enumerate(self.gpus)}
        parts = {100 * h + i: part for h, one in whole.items() for i, part in enumerate(one["mig"] or ())}
        return whole | parts

    def _handle_of(self, one: dict[str, Any]) -> int:
        return next(handle for handle, each in self._by_handle().items() if each is one)

    # -- the library ----------------------------------------------------------------

    def nvmlInit_v2(self) -> None:
        self.started = True

    def nvmlShutdown(self) -> None:
        self.started = False

    def nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> None:
        text.value = b"580.65.06"

    def nvmlSystemGetCudaDriverVersion_v2(self, number: Any) -> None:
        _fill(number, 13000)

    def nvmlDeviceGetCount_v2(self, count: Any) -> None:
        _fill(count, len(self.gpus))

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> None:
        if self.gpus[index.value].get("lost"):
            raise _Refused(self.gpus[index.value]["lost"])
        _fill(handle, 100 + index.value)

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> None:
        same = [h for h, one in self._by_handle().items() if one["uuid"] == uuid.value.decode()]
        if not same:
            raise _Refused(CODES["NotFound"])
        _fill(handle, same[0])

    # -- one GPU --------------------------------------------------------------------

    def nvmlDeviceGetUUID(self, one: dict[str, Any], text: Any, size: Any) -> None:
        text.value = one["uuid"].encode()

    def nvmlDeviceGetName(self, one: dict[str, Any], text: Any, size: Any) -> None:
        text.value = one["name"].encode()

    def nvmlDeviceGetMigMode(self, one: dict[str, Any], mode: Any, pending: Any) -> None:
        _fill(mode, int(one["mig"] is not None))

    def nvmlDeviceGetMaxMigDeviceCount(self, one: dict[str, Any], count: Any) -> None:
        _fill(count, 7)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, one: dict[str, Any], index: Any, part: Any) -> None:
        if index.value >= len(one["mig"]):
            raise _Refused(CODES["NotFound"])
        _fill(part, 100 * self._handle_of(one) + index.value)

    def nvmlDeviceIsMigDeviceHandle(self, one: dict[str, Any], is_part: Any) -> None:
        _fill(is_part, int(self._handle_of(one) >= 10_000))

    def nvmlDeviceGetMemoryInfo(self, one: dict[str, Any], memory: Any) -> None:
        _set_memory(one, memory._obj)
        memory._obj.used += one["reserved"]

    def nvmlDeviceGetMemoryInfo_v2(self, one: dict[str, Any], memory: Any) -> None:
        _set_memory(one, memory._obj)
        memory._obj.reserved = one["reserved"]

    def nvmlDeviceGetUtilizationRates(self, one: dict[str, Any], rates: Any) -> None:
        rates._obj.gpu, rates._obj.memory = _figure(one["utilization"])

    def nvmlDeviceGetTemperature(self, one: dict[str, Any], sensor: int, value: Any) -> None:
        _fill(value, one["temperature"])

    def nvmlDeviceGetPowerUsage(self, one: dict[str, Any], value: Any) -> None:
        _fill(value, one["power"])

    def nvmlDeviceGetPowerManagementLimit(self, one: dict[str, Any], value: Any) -> None:
        _fill(value, one["power_limit"])

    def nvmlDeviceGetClockInfo(self, one: dict[str, Any], kind: int, value: Any) -> None:
        _fill(value, _figure(one["clocks"])[kind])

    def nvmlDeviceGetPcieThroughput(self, one: dict[str, Any], counter: int, value: Any) -> None:
        self.advance(0.02)
        _fill(value, _figure(one["pcie"])[counter])

    def nvmlDeviceGetNvLinkState(self, one: dict[str, Any], link: int, state: Any) -> None:
        _fill(state, int(link in one["links"]))

    def nvmlDeviceGetFieldValues(self, one: dict[str, Any], count: Any, values: Any) -> None:
        for value in values:
            links = one["links"]
            if value.field == 91:  # one more than are active
                value.kind, value.value = 1, len(links) + 1 if links else 0
            elif value.field in (138, 139) and value.scope in links:
                value.kind, value.value = 3, links[value.scope][0 if value.field == 139 else 1]
            else:
                value.code = CODES["NotSupported"]

    def nvmlDeviceGetComputeRunningProcesses_v3(self, one: dict[str, Any], count: Any, infos: Any) -> None:
        _list(one["compute"], count, infos)

    nvmlDeviceGetComputeRunningProcesses_v2 = nvmlDeviceGetComputeRunningProcesses_v3

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, one: dict[str, Any], count: Any, infos: Any) -> None:
        _list(one["graphics"], count, infos)

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, one: dict[str, Any], count: Any, infos: Any) -> None:
        _list(one["mps"], count, infos)

    def nvmlDeviceGetVirtualizationMode(self, one: dict[str, Any], mode: Any) -> None:
        _fill(mode, one.get("virtualization", 0))

    def nvmlDeviceGetComputeMode(self, one: dict[str, Any], mode: Any) -> None:
        _fill(mode, one.get("compute_mode", 0))


def _figure(value: Any) -> Any:
    """Return a figure; None means that it is not supported."""
    if value is None:
        raise _Refused(CODES["NotSupported"])
    return value


def _set_memory(one: dict[str, Any], memory: Any) -> None:
    memory.total, memory.used = _figure(one["total"]), one["used"]
    memory.free = one["total"] - one["used"] - one["reserved"]


def _fill(pointer: Any, value: Any) -> None:
    pointer._obj.value = _figure(value)


def _list(processes: Any, count: Any, infos: Any) -> None:
    room, count._obj.value = count._obj.value, len(_figure(processes))
    if room < len(processes):
        raise _Refused(CODES["InsufficientSize"])
    for info, (pid, used) in zip(infos or (), processes, strict=False):
        info.pid, info.used = pid, 2**64 - 1 if used is None else used
