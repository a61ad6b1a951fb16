"""The driver's kind over a stand-in for CUDA's memory pools: what is asked of the driver, and when."""

from __future__ import annotations

import pytest
from helpers.pool_stand_ins import FakeDriver

import zerocopy as zc
from zerocopy.cli import doctor
from zerocopy.pool import install
from zerocopy.pool.cards import Card
from zerocopy.pool.driver_pool import KEEP_ALL, DriverPool
from zerocopy.pool.settings import Settings
from zerocopy.protocols import cuda_driver

MIB = 1 << 20


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(cuda_driver, "driver", lambda: fake)
    monkeypatch.setattr(cuda_driver, "hold", lambda device: fake.held.append(device))
    monkeypatch.setattr(install, "cards", lambda: ([Card(0, "stand-in", 1 << 30)], None))
    return fake


@pytest.fixture
def pool(driver):
    made = zc.install_pool("driver", frameworks=())
    yield made
    made.close()


def test_nothing_is_asked_of_the_driver_before_memory_is(driver) -> None:
    made = zc.install_pool("driver", frameworks=())
    assert made.report().kind == "driver"
    assert made.stats().current_bytes == 0
    assert made.trim() == 0
    assert made.refresh() == []
    with made:
        pass
    assert driver.calls == []  # a child that is forked here has CUDA
    made.close()


def test_allocate_and_free(driver, pool) -> None:
    ptr = pool.allocate(1000, stream=77)
    assert ("allocate", 1000, 77) in driver.calls
    assert driver.held == [0]  # otherwise the context, and the memory, would go with its last user
    assert pool.stats().current_bytes == driver.used == 1000
    pool.deallocate(ptr, 1000, stream=78)
    assert ("free", 78) in driver.calls
    assert (pool.stats().current_bytes, pool.stats().peak_bytes) == (0, 1000)


def test_the_threshold_is_kept_and_put_right(driver, pool) -> None:
    pool.deallocate(pool.allocate(8), 8)
    assert driver.threshold == KEEP_ALL
    driver.threshold = 1 << 30  # as XLA writes its own
    assert "somebody (torch, XLA) has set 1 GiB since" in str(pool.report())
    pool.refresh()
    assert driver.threshold == KEEP_ALL
    assert "torch, XLA" not in str(pool.report())
    pool.close()
    assert driver.threshold == 0  # as it was


def test_threshold_and_initial(driver) -> None:
    made = DriverPool(0, Settings.read("driver", release_threshold="2MiB", initial="1MiB"))
    made.deallocate(made.allocate(8, 1), 8, 1)
    assert driver.threshold == 2 * MIB
    assert driver.reserved == MIB
    assert driver.used == 0


def test_what_frameworks_do_is_seen_when_there_is_a_context(driver) -> None:
    """torch and JAX take from the driver's pool without asking us."""
    made = zc.install_pool("driver", frameworks=())
    driver.used, driver.high, driver.reserved, driver.threshold = 300, 400, 900, 1 << 30
    assert made.stats().current_bytes == 0  # nobody has a context, and nobody is given one
    assert "cuInit" not in driver.calls
    driver.awake = True
    assert (made.stats().current_bytes, made.stats().peak_bytes) == (300, 400)
    assert driver.threshold == KEEP_ALL
    driver.threshold = 1 << 30
    assert "has set 1 GiB since" in str(made.report())
    made.refresh()
    assert driver.threshold == KEEP_ALL
    assert made.trim() == 600
    driver.used = 0
    made.close()


def test_what_is_guaranteed_is_taken_at_once(driver) -> None:
    made = zc.install_pool("driver", frameworks=(), initial=MIB)
    assert (driver.reserved, driver.used) == (MIB, 0)
    made.close()
    driver.capacity, driver.threshold = 10, 7
    with pytest.raises(zc.PoolUnavailableError, match="initial=1048576"):
        zc.install_pool("driver", frameworks=(), initial=MIB)
    assert driver.threshold == 7
    assert install.installed_pool() is None


def test_the_peak_of_before_is_not_forgotten(driver, pool) -> None:
    pool.deallocate(pool.allocate(MIB), MIB)
    with pool:
        pool.deallocate(pool.allocate(100), 100)
        with pool:
            pass
    assert pool.scopes[0].stats.peak_bytes == 100
    assert pool.stats().peak_bytes == MIB


def test_the_device_has_no_more(driver, pool) -> None:
    driver.capacity = MIB
    with pytest.raises(MemoryError, match="the device has no more") as caught:
        pool.allocate(2 * MIB)
    assert not isinstance(caught.value, zc.PoolLimitError)
    pool.deallocate(pool.allocate(MIB), MIB)


def test_trim(driver, pool) -> None:
    ptr, rest = pool.allocate(MIB), pool.allocate(100)
    pool.deallocate(ptr, MIB)
    assert pool.trim() == MIB
    pool.deallocate(rest, 100)


def test_a_scope_has_a_peak_of_its_own(driver, pool) -> None:
    pool.deallocate(pool.allocate(MIB), MIB)
    kept = pool.allocate(10)
    with pool:
        pool.deallocate(pool.allocate(100), 100)
    scope = pool.scopes[0]
    assert (scope.stats.peak_bytes, scope.leaks) == (110, [])
    pool.deallocate(kept, 10)


def test_leaks_are_named(driver) -> None:
    with zc.install_pool("driver", frameworks=(), track=True) as made:
        ptr = made.allocate(100)
        (leak,) = made.check_leaks()
        assert "ptr = made.allocate(100)" in leak.stack
        made.deallocate(ptr, 100)
        assert made.check_leaks() == []
    made.close()


def test_no_hard_cap() -> None:
    with pytest.raises(zc.PoolOptionError, match="CUDA's default memory pool has no cap"):
        zc.install_pool("driver", limit="1GiB")


def test_a_block_frees_what_it_took(driver, pool) -> None:
    from zerocopy.pool.block import Block

    block = Block(pool, 100, 5, 0, "somebody")
    assert driver.used == 100
    del block
    assert driver.used == 0
    assert ("free", 5) in driver.calls
    assert Block(pool, 0, 5, 0, "somebody").ptr == 0


def test_memory_info(driver, pool) -> None:
    assert pool.memory_info(0) == (1 << 30, 1 << 30)


def test_a_failed_allocation_leaves_nothing_to_free(driver, pool) -> None:
    from zerocopy.pool.block import Block

    driver.capacity = 10
    with pytest.raises(MemoryError):
        Block(pool, 100, 5, 0, "somebody")
    assert not [call for call in driver.calls if call[0] == "free"]


def test_what_the_doctor_says_of_devices(driver) -> None:
    device = {"memory_bytes": 1 << 30, "compute_capability": "1.1"}
    assert doctor.by_driver() == {
        "driver": True,
        "cuda": "12.9",
        "devices": [{"index": index, "name": f"stand-in {index}", **device} for index in (0, 1)],
    }
    driver.cuDeviceGetName = lambda *arguments: 999
    found = doctor.by_driver()
    assert (found["driver"], found["devices"]) == (False, [])
    assert "CUDA_ERROR" in found["why"]


def test_what_is_not_tracked_is_said(driver) -> None:
    made = zc.install_pool("driver", frameworks=(), track=True)
    (note,) = (note for note in made.report().notes if note.startswith("tracked are"))
    assert note == (
        "tracked are CuPy, Numba and allocate(); RMM, torch, cuDF, JAX and TensorFlow do not ask us"
    )
    made.close()
