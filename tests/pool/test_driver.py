"""The kind ``"driver"`` over a stand-in for CUDA's memory pools: which driver calls happen, and when."""

from __future__ import annotations

import pytest
from helpers.pool_stand_ins import FakeDriver

import zerocopy as zc
from zerocopy.cli import doctor
from zerocopy.pool import install
from zerocopy.pool.driver_pool import KEEP_ALL, DriverPool
from zerocopy.pool.gpus import GPU
from zerocopy.pool.settings import Settings
from zerocopy.protocols import cuda_driver

MIB = 1 << 20


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(cuda_driver, "driver", lambda: fake)
    monkeypatch.setattr(cuda_driver, "hold", lambda device: fake.held.append(device))
    monkeypatch.setattr(install, "visible_gpus", lambda: ([GPU(0, "stand-in", 1 << 30)], None))
    return fake


@pytest.fixture
def pool(driver):
    new_pool = zc.install_pool("driver", frameworks=())
    yield new_pool
    new_pool.close()


def test_driver_is_not_called_before_allocation(driver) -> None:
    new_pool = zc.install_pool("driver", frameworks=())
    assert new_pool.report().kind == "driver"
    assert new_pool.stats().current_bytes == 0
    assert new_pool.trim() == 0
    assert new_pool.refresh() == []
    with new_pool:
        pass
    assert driver.calls == []  # a forked child could still use CUDA
    new_pool.close()


def test_allocate_and_free(driver, pool) -> None:
    ptr = pool.allocate(1000, stream=77)
    assert ("allocate", 1000, 77) in driver.calls
    assert driver.held == [0]  # otherwise the context, and the memory, would end with its last user
    assert pool.stats().current_bytes == driver.used == 1000
    pool.deallocate(ptr, 1000, stream=78)
    assert ("free", 78) in driver.calls
    assert (pool.stats().current_bytes, pool.stats().peak_bytes) == (0, 1000)


def test_threshold_is_restored_by_refresh(driver, pool) -> None:
    pool.deallocate(pool.allocate(8), 8)
    assert driver.threshold == KEEP_ALL
    driver.threshold = 1 << 30  # as XLA writes its own
    assert "is now 1 GiB (written by torch or XLA)" in str(pool.report())
    pool.refresh()
    assert driver.threshold == KEEP_ALL
    assert "torch, XLA" not in str(pool.report())
    pool.close()
    assert driver.threshold == 0  # the initial value


def test_threshold_and_initial_size_are_set(driver) -> None:
    new_pool = DriverPool(0, Settings.read("driver", release_threshold="2MiB", initial="1MiB"))
    new_pool.deallocate(new_pool.allocate(8, 1), 8, 1)
    assert driver.threshold == 2 * MIB
    assert driver.reserved == MIB
    assert driver.used == 0


def test_stats_include_frameworks_once_a_context_exists(driver) -> None:
    """torch and JAX allocate from the driver's pool without calling the pool."""
    new_pool = zc.install_pool("driver", frameworks=())
    driver.used, driver.high, driver.reserved, driver.threshold = 300, 400, 900, 1 << 30
    assert new_pool.stats().current_bytes == 0  # no context exists, and none is created
    assert "cuInit" not in driver.calls
    driver.awake = True
    assert (new_pool.stats().current_bytes, new_pool.stats().peak_bytes) == (300, 400)
    assert driver.threshold == KEEP_ALL
    driver.threshold = 1 << 30
    assert "is now 1 GiB" in str(new_pool.report())
    new_pool.refresh()
    assert driver.threshold == KEEP_ALL
    assert new_pool.trim() == 600
    driver.used = 0
    new_pool.close()


def test_initial_size_is_reserved_at_install(driver) -> None:
    new_pool = zc.install_pool("driver", frameworks=(), initial=MIB)
    assert (driver.reserved, driver.used) == (MIB, 0)
    new_pool.close()
    driver.capacity, driver.threshold = 10, 7
    with pytest.raises(zc.errors.PoolUnavailableError, match="initial=1048576"):
        zc.install_pool("driver", frameworks=(), initial=MIB)
    assert driver.threshold == 7
    assert install.installed_pool() is None


def test_peak_survives_reads(driver, pool) -> None:
    pool.deallocate(pool.allocate(MIB), MIB)
    with pool:
        pool.deallocate(pool.allocate(100), 100)
        with pool:
            pass
    assert pool.scopes[0].stats.peak_bytes == 100
    assert pool.stats().peak_bytes == MIB


def test_device_out_of_memory_raises_memory_error(driver, pool) -> None:
    driver.capacity = MIB
    with pytest.raises(MemoryError, match="the device is out of memory") as caught:
        pool.allocate(2 * MIB)
    assert not isinstance(caught.value, zc.errors.PoolLimitError)
    pool.deallocate(pool.allocate(MIB), MIB)


def test_trim_returns_unused_memory(driver, pool) -> None:
    ptr, rest = pool.allocate(MIB), pool.allocate(100)
    pool.deallocate(ptr, MIB)
    assert pool.trim() == MIB
    pool.deallocate(rest, 100)


def test_scope_has_its_own_peak(driver, pool) -> None:
    pool.deallocate(pool.allocate(MIB), MIB)
    outstanding = pool.allocate(10)
    with pool:
        pool.deallocate(pool.allocate(100), 100)
    scope = pool.scopes[0]
    assert (scope.stats.peak_bytes, scope.leaks) == (110, [])
    pool.deallocate(outstanding, 10)


def test_leaks_name_their_requester(driver) -> None:
    with zc.install_pool("driver", frameworks=(), track=True) as new_pool:
        ptr = new_pool.allocate(100)
        (leak,) = new_pool.check_leaks()
        assert "ptr = new_pool.allocate(100)" in leak.stack
        new_pool.deallocate(ptr, 100)
        assert new_pool.check_leaks() == []
    new_pool.close()


def test_limit_is_refused() -> None:
    with pytest.raises(zc.errors.OptionError, match="CUDA's default memory pool has no limit"):
        zc.install_pool("driver", limit="1GiB")


def test_block_frees_its_memory(driver, pool) -> None:
    from zerocopy.pool.hook import Block

    block = Block(pool._memory, 100, 5, 0, "framework")
    assert driver.used == 100
    del block
    assert driver.used == 0
    assert ("free", 5) in driver.calls
    assert Block(pool._memory, 0, 5, 0, "framework").ptr == 0


def test_memory_info_returns_free_and_total_bytes(driver, pool) -> None:
    assert pool._memory.memory_info(0) == (1 << 30, 1 << 30)


def test_failed_block_frees_nothing(driver, pool) -> None:
    from zerocopy.pool.hook import Block

    driver.capacity = 10
    with pytest.raises(MemoryError):
        Block(pool._memory, 100, 5, 0, "framework")
    assert not [call for call in driver.calls if call[0] == "free"]


def test_doctor_lists_devices(driver) -> None:
    device = {"memory_bytes": 1 << 30, "compute_capability": "1.1"}
    assert doctor.nvidia() == {
        "driver": True,
        "cuda": "12.9",
        "devices": [{"index": index, "name": f"stand-in {index}", **device} for index in (0, 1)],
    }
    driver.cuDeviceGetName = lambda *arguments: 999
    report = doctor.nvidia()
    assert (report["driver"], report["devices"]) == (False, [])
    assert "CUDA_ERROR" in report["why"]


def test_report_names_untracked_frameworks(driver) -> None:
    new_pool = zc.install_pool("driver", frameworks=(), track=True)
    (note,) = (note for note in new_pool.report().notes if note.startswith("only CuPy"))
    assert note == (
        "only CuPy, Numba and allocate() are tracked; "
        "RMM, torch, cuDF, JAX and TensorFlow do not call the pool"
    )
    new_pool.close()
