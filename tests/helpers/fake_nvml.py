"""A stand-in for ``pynvml``: GPUs, MIG devices, missing figures, failures, old drivers and slow calls."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

GIB = 1 << 30
#: nvmlReturn_t of nvml.h that tests use by name.
CODES = {
    "Uninitialized": 1,
    "InvalidArgument": 2,
    "NotSupported": 3,
    "NoPermission": 4,
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


class NVMLError(Exception):
    """As pynvml's: `value` is the code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


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


class FakePynvml:
    """The module: `gpus` may be changed between reads.

    `failing` maps the name of a function, or "init", to a code or an exception. `missing` has the names
    that this version lacks. `calls` lists the names that were called. `advance` is called with the
    seconds that a call takes.
    """

    NVMLError = NVMLError
    nvmlMemory_v2 = 0x02000028
    NVML_FI_DEV_NVLINK_LINK_COUNT = 91

    def __init__(self, *gpus: dict[str, Any]) -> None:
        self.gpus = [copy.deepcopy(one) for one in gpus]
        self.failing: dict[str, Any] = {}
        self.missing: set[str] = set()
        self.calls: list[str] = []
        self.started = False
        self.advance: Callable[[float], None] = lambda seconds: None

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if not name.startswith("nvml") or not callable(value):
            return value
        if name in self.missing:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            self._fail(name)
            if name != "nvmlInit" and not self.started:
                raise NVMLError(CODES["Uninitialized"])
            if name not in ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByIndex"):
                self._check_lost(arguments)
            return value(*arguments)

        return call

    def _fail(self, name: str) -> None:
        failure = self.failing.get(name)
        if isinstance(failure, int):
            raise NVMLError(failure)
        if failure is not None:
            raise failure

    def _check_lost(self, arguments: tuple[Any, ...]) -> None:
        if arguments and isinstance(arguments[0], dict) and arguments[0].get("lost"):
            raise NVMLError(arguments[0]["lost"])

    @staticmethod
    def _figure(value: Any) -> Any:
        """Return a figure; None means that it is not supported."""
        if value is None:
            raise NVMLError(CODES["NotSupported"])
        return value

    # -- the library ----------------------------------------------------------------

    def nvmlInit(self) -> None:
        self.started = True

    def nvmlShutdown(self) -> None:
        self.started = False

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65.06"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if self.gpus[index].get("lost"):
            raise NVMLError(self.gpus[index]["lost"])
        return self.gpus[index]

    # -- one GPU --------------------------------------------------------------------

    def nvmlDeviceGetUUID(self, one: dict[str, Any]) -> str:
        return str(one["uuid"])

    def nvmlDeviceGetName(self, one: dict[str, Any]) -> str:
        return str(one["name"])

    def nvmlDeviceGetMigMode(self, one: dict[str, Any]) -> list[int]:
        mode = int(one["mig"] is not None)
        return [mode, mode]

    def nvmlDeviceGetMaxMigDeviceCount(self, one: dict[str, Any]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, one: dict[str, Any], index: int) -> dict[str, Any]:
        if index >= len(one["mig"]):
            raise NVMLError(6)
        part: dict[str, Any] = one["mig"][index]
        return part

    def nvmlDeviceGetMemoryInfo(self, one: dict[str, Any], version: int | None = None) -> SimpleNamespace:
        total, used, reserved = self._figure(one["total"]), one["used"], one["reserved"]
        free = total - used - reserved
        if version is None:
            return SimpleNamespace(total=total, used=used + reserved, free=free)
        self._fail("memory v2")
        return SimpleNamespace(total=total, used=used, free=free, reserved=reserved)

    def nvmlDeviceGetUtilizationRates(self, one: dict[str, Any]) -> SimpleNamespace:
        busy, memory = self._figure(one["utilization"])
        return SimpleNamespace(gpu=busy, memory=memory)

    def nvmlDeviceGetTemperature(self, one: dict[str, Any], sensor: int) -> Any:
        return self._figure(one["temperature"])

    def nvmlDeviceGetPowerUsage(self, one: dict[str, Any]) -> Any:
        return self._figure(one["power"])

    def nvmlDeviceGetPowerManagementLimit(self, one: dict[str, Any]) -> Any:
        return self._figure(one["power_limit"])

    def nvmlDeviceGetClockInfo(self, one: dict[str, Any], kind: int) -> Any:
        return self._figure(one["clocks"])[kind]

    def nvmlDeviceGetPcieThroughput(self, one: dict[str, Any], counter: int) -> Any:
        self.advance(0.02)
        return self._figure(one["pcie"])[counter]

    def nvmlDeviceGetNvLinkState(self, one: dict[str, Any], link: int) -> int:
        return int(link in one["links"])

    def nvmlDeviceGetFieldValues(self, one: dict[str, Any], fields: list[Any]) -> list[SimpleNamespace]:
        return [self._field(one, field) for field in fields]

    def _field(self, one: dict[str, Any], field: Any) -> SimpleNamespace:
        if field == 91:  # one more than are active
            return _value(len(one["links"]) + 1 if one["links"] else 0, 1)
        number, link = field
        received_and_sent = one["links"].get(link)
        if received_and_sent is None or number not in (138, 139):
            return SimpleNamespace(nvmlReturn=3, valueType=0, value=SimpleNamespace())
        return _value(received_and_sent[0 if number == 139 else 1], 3)

    def _list(self, infos: Any) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self._figure(infos)]

    def nvmlDeviceGetComputeRunningProcesses(self, one: dict[str, Any]) -> list[SimpleNamespace]:
        return self._list(one["compute"])

    def nvmlDeviceGetComputeRunningProcesses_v2(self, one: dict[str, Any]) -> list[SimpleNamespace]:
        return self._list(one["compute"])

    def nvmlDeviceGetGraphicsRunningProcesses(self, one: dict[str, Any]) -> list[SimpleNamespace]:
        return self._list(one["graphics"])

    def nvmlDeviceGetMPSComputeRunningProcesses(self, one: dict[str, Any]) -> list[SimpleNamespace]:
        return self._list(one["mps"])

    def nvmlDeviceGetVirtualizationMode(self, one: dict[str, Any]) -> int:
        return int(one.get("virtualization", 0))

    def nvmlDeviceGetComputeMode(self, one: dict[str, Any]) -> int:
        return int(one.get("compute_mode", 0))


def _value(number: int, kind: int) -> SimpleNamespace:
    member = {1: "uiVal", 3: "ullVal"}[kind]
    return SimpleNamespace(nvmlReturn=0, valueType=kind, value=SimpleNamespace(**{member: number}))
