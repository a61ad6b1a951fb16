"""A stand-in for the driver's calls between processes: device memory is memfds, which processes map.

It behaves as the CUDA Driver API documents; tests/gpu checks the real one. A program for readers is at the
end: ``python -m helpers.cuda_ipc_driver`` runs lines of Python from its standard input, with CuPy's stub.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from typing import Any

import numpy as np

from helpers import cuda_stubs
from zerocopy.protocols import cuda_driver

_PLACE = struct.Struct("<IIQ")
PAGE = mmap.PAGESIZE


class Driver:
    """The driver's functions, over the allocations of a machine; a log of those that tests check."""

    def __init__(self, machine: SharedMachine) -> None:
        self.machine, self.log, self.events = machine, [], 100
        self.has_handles, self.pool, self.visible = True, 0, {0: 0, 1: 1}
        #: Whether the pool was created for other processes; imported pools, by the processes they are of.
        self.exportable, self.pools = False, {}
        #: Imported allocations: their data, and their pools.
        self.imports: dict[int, tuple[bytes, int]] = {}

    def cuInit(self, flags):
        return 0

    #: How many users retain the primary context. Without one the driver destroys it, with all mappings.
    retained = 0

    cuCtxPushCurrent_v2 = cuCtxPopCurrent_v2 = lambda self, *a: 0

    def cuDevicePrimaryCtxRetain(self, context, device):
        self.retained += 1
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, device):
        self.retained -= 1
        return 0

    def cuGetErrorName(self, code, name):
        name._obj.value = b"CUDA_ERROR_INVALID_VALUE"
        return 0

    def cuDeviceGetCount(self, count):
        count._obj.value = len(self.visible)
        return 0

    def cuCtxGetDevice(self, device):
        device._obj.value = 0
        return 0

    def cuDeviceGet(self, device, index):
        device._obj.value = index.value
        return 0

    def cuDeviceGetUuid_v2(self, uuid, device):
        uuid._obj.raw = bytes([self.visible[device.value] + 1]) * 16
        return 0

    def cuMemGetAddressRange_v2(self, base, size, ptr):
        base._obj.value, size._obj.value, _ = self.machine.allocation(ptr.value)
        return 0

    def cuPointerGetAttribute(self, out, attribute, ptr):
        out._obj.value = {9: 0, 10: int(self.has_handles), 17: self.pool}[attribute.value]
        return 0

    def cuIpcGetMemHandle(self, handle, base):
        start, size, fd = self.machine.allocation(base.value)
        assert start == base.value, "the driver has handles of whole allocations"
        _fill(handle, _PLACE.pack(os.getpid(), fd, size))
        return 0

    def cuIpcOpenMemHandle_v2(self, base, handle, flags):
        pid, fd, size = _PLACE.unpack_from(bytes(handle))
        self.log.append("open")
        if pid == os.getpid():
            return 1
        base._obj.value = self.machine.map(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR), size)
        return 0

    def cuIpcCloseMemHandle(self, base):
        self.log.append("close")
        self.machine.unmap(base.value)
        return 0

    def cuMemPoolExportToShareableHandle(self, fd, pool, kind, flags):
        assert (pool.value, kind.value, flags.value) == (self.pool, 1, 0)
        if not self.exportable:
            return 1
        self.log.append("export-pool")
        # An eventfd cannot be opened again by its path in /proc, as the driver's files.
        fd._obj.value = os.eventfd(os.getpid())
        return 0

    def cuMemPoolExportPointer(self, data, base):
        start, size, fd = self.machine.allocation(base.value)
        assert start == base.value
        _fill(data, _PLACE.pack(os.getpid(), fd, size))
        return 0

    def cuMemPoolImportFromShareableHandle(self, pool, fd, kind, flags):
        assert (kind.value, flags.value) == (1, 0)
        with open(f"/proc/self/fdinfo/{fd.value}") as file:
            count = next(line for line in file if line.startswith("eventfd-count"))
        pool._obj.value = 7000 + len(self.log)
        self.pools[pool._obj.value] = int(count.split()[1], 16)
        self.log.append("import-pool")
        return 0

    def cuMemPoolImportPointer(self, base, pool, data):
        place = bytes(data._obj.reserved)
        pid, fd, size = _PLACE.unpack_from(place)
        assert self.pools[pool.value] == pid != os.getpid()
        assert place not in [each for each, _ in self.imports.values()], "imported twice"
        base._obj.value = self.machine.map(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR), size)
        self.imports[base._obj.value] = place, pool.value
        self.log.append("import")
        return 0

    def cuMemFree_v2(self, base):
        del self.imports[base.value]
        self.machine.unmap(base.value)
        self.log.append("free")
        return 0

    def cuMemPoolDestroy(self, pool):
        assert pool.value not in [of for _, of in self.imports.values()]
        del self.pools[pool.value]
        self.log.append("destroy-pool")
        return 0

    def cuCtxSynchronize(self):
        self.log.append("synchronize")
        return 0

    def cuEventCreate(self, event, flags):
        assert flags.value == 6  # without timing, for other processes
        self.events += 1
        event._obj.value = self.events
        return 0

    def cuEventRecord(self, event, stream):
        self.log.append(("record", stream.value))
        return 0

    def cuIpcGetEventHandle(self, handle, event):
        _fill(handle, b"event%d" % event.value)
        return 0

    def cuIpcOpenEventHandle(self, event, handle):
        event._obj.value = int(bytes(handle).rstrip(b"\0")[5:])
        return 0

    def cuStreamWaitEvent(self, stream, event, flags):
        self.log.append(("wait", stream.value, event.value))
        return 0

    def cuEventDestroy_v2(self, event):
        self.log.append(("destroy", event.value))
        return 0


def _fill(handle: Any, data: bytes) -> None:
    """Write a handle, as the driver does."""
    ctypes.memmove(ctypes.addressof(handle._obj), data, len(data))


class SharedMachine(cuda_stubs.Machine):
    """Devices whose allocations are memfds."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: dict[int, tuple[mmap.mmap, int, int]] = {}

    def map(self, fd: int, size: int) -> int:
        mapped = mmap.mmap(fd, size)
        base = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        self.maps[base] = mapped, size, fd
        return base

    def unmap(self, base: int) -> None:
        _, _, fd = self.maps.pop(base)
        os.close(fd)

    def allocate(self, nbytes: int, device: int | None = None) -> np.ndarray:
        size = -(-max(nbytes, 1) // PAGE) * PAGE + PAGE
        fd = os.memfd_create("device")
        os.ftruncate(fd, size)
        base = self.map(fd, size)
        # Frameworks place arrays within larger allocations.
        return np.frombuffer(self.maps[base][0], np.uint8)[256 : 256 + nbytes]

    def allocation(self, ptr: int) -> tuple[int, int, int]:
        return next(
            (base, size, fd) for base, (_, size, fd) in self.maps.items() if base <= ptr < base + size
        )

    def ordinal(self, ptr: int) -> int | None:
        return 0 if any(base <= ptr < base + size for base, (_, size, _) in self.maps.items()) else None


def install(patch: Any) -> Driver:
    """Replace CuPy, Numba and the driver."""
    from helpers import cuda_stubs

    simulated: Any = SharedMachine()
    patch.setattr(cuda_stubs, "Machine", lambda: simulated)
    cuda_stubs.install(patch)
    driver = Driver(simulated)
    patch.setattr(cuda_driver, "driver", lambda: driver)
    patch.setattr(cuda_driver, "count", lambda: len(driver.visible))
    return driver


def _main() -> None:
    import pytest

    import zerocopy as zc
    from zerocopy.shared.cuda.releases import releases

    names: dict[str, Any] = {"driver": install(pytest.MonkeyPatch()), "zc": zc, "releases": releases}
    exec("import cupy, gc, time", names)
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            try:
                print(eval(line, names), flush=True)
            except SyntaxError:
                exec(line, names)
                print("done", flush=True)
        except Exception as error:  # noqa: BLE001 - the test reads it
            print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    _main()
