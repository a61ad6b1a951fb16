"""Page-locked memory whose array was dropped while a copy reads it, over a driver that runs copies late."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import queue_driver

import zerocopy as zc
from zerocopy.pool.host import CudaHostMemory, PinnedPool
from zerocopy.protocols import cuda_copies, cuda_pool

SIZE = 1 << 16
STREAM = 77  # the consumer's own, for which the legacy default stream does not wait


@pytest.fixture
def driver(monkeypatch):
    driver = queue_driver.install(monkeypatch)
    monkeypatch.setattr(cuda_pool, "has_context", lambda device: device == 0)
    return driver


@pytest.fixture
def pool(driver):
    return PinnedPool(CudaHostMemory())


def copy(x: np.ndarray) -> np.ndarray:
    """Start a copy of an array to "device" memory, and return that."""
    there = np.zeros_like(x)
    cuda_copies.copy_to_device(there.ctypes.data, x.ctypes.data, x.nbytes, 0, STREAM)
    return there


@pytest.mark.hazard("robustness#page-locked-memory-in-use")
def test_dropped_memory_is_not_written_while_a_copy_reads_it(pool, driver) -> None:
    x = pool.empty(SIZE, "u1")
    x.fill(1)
    address, there = x.ctypes.data, copy(x)
    del x
    y = pool.empty(SIZE, "u1")
    y.fill(2)
    assert y.ctypes.data != address
    assert pool.kept == SIZE
    driver.synchronize(STREAM)
    assert (there == 1).all()
    assert pool.empty(SIZE, "u1").ctypes.data == address, "the copy is done"


@pytest.mark.hazard("robustness#page-locked-memory-in-use")
def test_trimming_leaves_memory_that_is_read(pool, driver) -> None:
    x = pool.empty(SIZE, "u1")
    x.fill(1)
    there = copy(x)
    del x
    assert pool.trim() == 0
    assert len(driver.locked) == 1
    driver.synchronize(STREAM)
    assert (there == 1).all()
    assert pool.trim() == SIZE
    assert not driver.locked


def test_closing_waits_for_copies(pool, driver) -> None:
    x, y = pool.empty(SIZE, "u1"), pool.empty(SIZE, "u1")
    x.fill(1)
    y.fill(3)
    first, second = copy(x), copy(y)
    del x
    pool.close()
    assert (first == 1).all()
    del y  # after the pool was closed
    assert (second == 3).all()
    assert not driver.locked


def test_the_pool_waits_for_copies_before_an_allocation_fails(pool, driver) -> None:
    x = pool.empty(SIZE, "u1")
    x.fill(1)
    there = copy(x)
    del x
    driver.refuses_to_lock = True
    with pytest.raises(zc.errors.PoolLimitError):
        pool.empty(SIZE * 2, "u1")
    assert (there == 1).all()
    assert not driver.locked


def test_without_a_context_memory_is_reused_at_once(pool, monkeypatch) -> None:
    monkeypatch.setattr(cuda_pool, "has_context", lambda device: False)
    first = pool.empty(SIZE, "u1").ctypes.data
    assert pool.empty(SIZE, "u1").ctypes.data == first


@pytest.mark.hazard("robustness#driver-that-refuses-events")
def test_memory_waits_if_its_copies_are_not_known(pool, driver, monkeypatch) -> None:
    """While a stream is captured, the driver refuses to record an event."""
    x = pool.empty(SIZE, "u1")
    address = x.ctypes.data
    monkeypatch.setattr(driver, "cuCtxRecordEvent", lambda context, event: 900, raising=False)
    del x
    assert pool.empty(SIZE, "u1").ctypes.data != address


@pytest.mark.hazard("robustness#driver-that-refuses-events")
def test_memory_is_not_lost_if_the_driver_fails(pool, driver, monkeypatch) -> None:
    """The event of the copies cannot be read, then not waited for; both work again later."""
    x = pool.empty(SIZE, "u1")
    x.fill(1)
    address, there = x.ctypes.data, copy(x)
    del x
    assert pool.kept == SIZE
    with monkeypatch.context() as broken:
        broken.setattr(driver, "cuEventQuery", lambda event: 700, raising=False)
        broken.setattr(driver, "cuEventSynchronize", lambda event: 700, raising=False)
        assert (pool.kept, pool.in_use, pool.trim()) == (SIZE, 0, 0)
        other = pool.empty(SIZE, "u1")
        assert other.ctypes.data != address
        del other
        with pytest.raises(zc.DeviceError):
            pool.close()
    pool.close()
    assert (there == 1).all()
    assert pool.kept == 0
    assert not driver.locked


@pytest.mark.hazard("robustness#figures-in-a-child")
def test_figures_can_be_read_in_a_forked_child(pool, driver, monkeypatch) -> None:
    x = pool.empty(SIZE, "u1")
    there = copy(x)
    del x
    assert pool.kept == SIZE

    def refuse(self: cuda_copies.CopyEvent) -> bool:
        raise zc.DeviceError("device='cuda:0'", "the NVIDIA driver does not answer", "use spawn")

    monkeypatch.setattr(cuda_copies.CopyEvent, "is_done", refuse)
    assert pool.figures() == (0, SIZE, SIZE)
    assert not there.any()


def test_an_older_driver_orders_on_the_legacy_default_stream(pool, driver, monkeypatch) -> None:
    monkeypatch.delattr(type(driver), "cuCtxRecordEvent")
    x = pool.empty(SIZE, "u1")
    x.fill(1)
    address, there = x.ctypes.data, np.zeros(SIZE, "u1")
    cuda_copies.copy_to_device(there.ctypes.data, address, SIZE, 0, 1)
    del x
    assert pool.empty(SIZE, "u1").ctypes.data != address
    driver.synchronize(1)
    assert (there == 1).all()
