"""RMM's kinds make their device current: with several GPUs, RMM allocates on the current one."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.pool_stand_ins import HostAllocator

from zerocopy.pool import rmm_pool
from zerocopy.pool.rmm_pool import Chain, RMMPool
from zerocopy.pool.settings import Settings
from zerocopy.protocols import cuda_driver

COUNTS = ("current_bytes", "current_count", "peak_bytes", "total_bytes", "total_count")


class Devices:
    """Two devices, of which 0 is current; the calls of RMM with the device on which they run."""

    def __init__(self) -> None:
        self.current, self.calls = 0, []

    @contextmanager
    def on(self, index: int) -> Any:
        before, self.current = self.current, index
        try:
            yield
        finally:
            self.current = before

    def log(self, name: str) -> None:
        self.calls.append((name, self.current))


class Resource:
    """A resource of RMM; the devices log when it is destroyed."""

    def __init__(self, devices: Devices) -> None:
        self.devices, self.pool_size = devices, lambda: 0
        self.allocation_counts = SimpleNamespace(**dict.fromkeys(COUNTS, 0))

    def allocate(self, nbytes: int, stream: int) -> int:
        self.devices.log("allocate")
        return 4096

    def deallocate(self, ptr: int, nbytes: int, stream: int) -> None:
        self.devices.log("deallocate")

    def push_counters(self) -> None:
        """Start to count."""

    def pop_counters(self) -> Any:
        """Return the counts."""
        return self.allocation_counts

    def __del__(self) -> None:
        self.devices.log("destroy")


@pytest.fixture
def devices(monkeypatch) -> Devices:
    devices = Devices()

    def build(*arguments: Any) -> Chain:
        devices.log("build")
        one = Resource(devices)
        return Chain(one, None, one, one, None, one)

    monkeypatch.setattr(rmm_pool, "load", lambda asked: None)
    monkeypatch.setattr(rmm_pool, "build", build)
    monkeypatch.setattr(rmm_pool, "_stream", lambda handle: handle)
    monkeypatch.setattr(cuda_driver, "on_device", devices.on)
    monkeypatch.setattr(cuda_driver, "hold", lambda device: None)
    return devices


@pytest.mark.hazard("robustness#current-device")
@pytest.mark.parametrize("kind", ["rmm", "rmm:async", "rmm:binning", "managed"])
def test_each_call_runs_on_the_pools_device(devices: Devices, kind: str) -> None:
    pool = RMMPool(1, Settings.read(kind), None)
    pool.deallocate(pool.allocate(100, 1), 100, 1)
    pool.release(False)
    assert devices.calls == [("build", 1), ("allocate", 1), ("deallocate", 1), ("destroy", 1)]
    assert devices.current == 0


def test_the_current_device_is_restored_after_an_error(devices: Devices, monkeypatch) -> None:
    pool = RMMPool(1, Settings.read("rmm"), None)

    def full(self: Resource, nbytes: int, stream: int) -> int:
        raise MemoryError("out of memory")

    monkeypatch.setattr(Resource, "allocate", full)
    with pytest.raises(MemoryError):
        pool.allocate(100, 1)
    assert devices.current == 0


def test_a_custom_allocator_is_called_without_the_driver(devices: Devices, monkeypatch) -> None:
    """It manages its devices itself, and may work without a driver."""

    def never(index: int) -> Any:
        raise AssertionError("a call of the driver")

    monkeypatch.setattr(cuda_driver, "on_device", never)
    pool = RMMPool(1, Settings.read("custom", allocator=HostAllocator()), None)
    assert pool.allocate(100, 1) == 4096
    pool.release(False)
    assert ("destroy", 0) in devices.calls
