"""``pool.set_limit()``: on allocators in Python, RMM's resources over host memory, and host memory."""

from __future__ import annotations

import gc
import threading

import pytest
from helpers.pool_stand_ins import FakeDriver, HostAllocator, LibcMemory

import zerocopy as zc
from zerocopy.errors import PoolUnavailableError
from zerocopy.pool import install as installing
from zerocopy.pool.gpus import GPU
from zerocopy.pool.host import PinnedPool, c_library
from zerocopy.pool.limits import Limit
from zerocopy.pool.rmm_pool import RMMPool
from zerocopy.protocols import cuda_driver

MIB = 1 << 20


@pytest.fixture
def host():
    return HostAllocator()


@pytest.fixture
def install(host):
    pytest.importorskip("rmm")
    pools = []

    def put(**options):
        pools.append(zc.install_pool(allocator=host, frameworks=(), **options))
        return pools[-1]

    yield put
    for pool in pools:
        pool.close()
    gc.collect()
    assert host.out == {}


def test_limit_changes_while_memory_is_in_use(install) -> None:
    pool = install(limit="1MiB")
    ptr = pool.allocate(MIB)
    with pytest.raises(zc.errors.PoolLimitError, match="limit="):
        pool.allocate(1)
    pool.set_limit("2 MiB")
    assert pool.limits == {0: Limit(2 * MIB, "set_limit()")}
    other = pool.allocate(MIB)
    with pytest.raises(zc.errors.PoolLimitError, match=r"2 MiB \(from set_limit\(\)\)") as caught:
        pool.allocate(1)
    assert (caught.value.limit, caught.value.source) == (2 * MIB, "set_limit()")
    assert pool.stats().current_bytes == 2 * MIB
    pool.deallocate(other, MIB)
    pool.deallocate(ptr, MIB)


def test_limit_below_the_memory_in_use(install) -> None:
    """Nothing is freed; further allocations are refused until they fit."""
    pool = install()
    blocks = [pool.allocate(MIB) for _ in range(4)]
    pool.set_limit(2 * MIB)
    assert pool.stats().current_bytes == 4 * MIB
    for _ in range(3):
        with pytest.raises(zc.errors.PoolLimitError):
            pool.allocate(256)
        pool.deallocate(blocks.pop(), MIB)
    blocks.append(pool.allocate(MIB))  # 2 MiB with it
    with pytest.raises(zc.errors.PoolLimitError):
        pool.allocate(1)
    for block in blocks:
        pool.deallocate(block, MIB)


def test_limit_is_removed_and_set_again(install) -> None:
    pool = install(limit=1000)
    pool.set_limit(None)
    assert pool.limits == {}
    pool.deallocate(pool.allocate(MIB), MIB)
    pool.set_limit(512)
    with pytest.raises(zc.errors.PoolLimitError):
        pool.allocate(MIB)
    pool.set_limit(None, device=0)
    pool.deallocate(pool.allocate(MIB), MIB)
    assert pool.settings.limit == 1000  # the options of the installation


def test_limit_applies_to_users_of_rmm(install) -> None:
    rmm = pytest.importorskip("rmm")
    pool = install()
    resource = pool._memory.pools[0].resource(rmm.mr)
    buffer = rmm.DeviceBuffer(size=1000, mr=resource)
    pool.set_limit(1024)
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=1000, mr=resource)
    pool.set_limit(2048)
    other = rmm.DeviceBuffer(size=1000, mr=resource)
    del buffer, other


def test_refused_request_leaves_no_stale_error(install, host, monkeypatch) -> None:
    pool = install(limit=1024)
    with pytest.raises(zc.errors.PoolLimitError):
        pool.allocate(4096)
    pool.set_limit(None)

    def refuse(nbytes, stream):
        raise MemoryError("the device has no more")

    monkeypatch.setattr(host, "allocate", refuse)
    with pytest.raises(MemoryError, match="the device has no more"):
        pool.allocate(8)


def test_allocations_in_threads_obey_each_limit(install) -> None:
    pool, done, errors = install(limit=64 << 10), threading.Event(), []
    highest = [0]

    def work() -> None:
        try:
            while not done.is_set():
                try:
                    ptr = pool.allocate(8 << 10)
                except zc.errors.PoolLimitError:
                    continue
                except MemoryError:  # the limit was raised after the refusal
                    continue
                pool.deallocate(ptr, 8 << 10)
        except BaseException as error:  # noqa: BLE001 - the test reports it
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(200):
        pool.set_limit((8 << 10) * (1 + number % 8))
        highest[0] = max(highest[0], pool.stats().current_bytes)
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert highest[0] <= 64 << 10
    assert pool.stats().current_bytes == 0


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("8G", "ambiguous"),
        (-1, "negative"),
        (0, "no allocation"),
        ("0", "no allocation"),
        (1.5, "not a size"),
        (True, "not a size"),
        ("0%", "between 0 and 100"),
        ("101 %", "between 0 and 100"),
        ("50%", "no GPU"),
        (1 << 70, "address space"),
    ],
)
def test_invalid_limits_change_nothing(install, limit, why: str) -> None:
    pool = install(limit=1 << 20)
    with pytest.raises(zc.errors.OptionError, match=why):
        pool.set_limit(limit)
    assert pool.limits == {0: Limit(1 << 20, "limit=")}


def test_devices_and_closed_pools(install) -> None:
    pool = install()
    with pytest.raises(zc.DeviceError):
        pool.set_limit("1MiB", device=3)
    with pytest.raises(zc.errors.OptionError, match="no host memory"):
        pool.set_limit("1MiB", device="host")
    pool.close()
    with pytest.raises(zc.errors.PoolClosedError):
        pool.set_limit("1MiB")


def test_pool_without_device_and_modes() -> None:
    with zc.install_pool(host="off") as pool:
        if pool.kind == "none":
            with pytest.raises(zc.DeviceError):
                pool.set_limit("1MiB")
    pool.close()


# -- the driver's pool ---------------------------------------------------------------------


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(cuda_driver, "driver", lambda: fake)
    monkeypatch.setattr(cuda_driver, "hold", lambda device: fake.held.append(device))
    monkeypatch.setattr(installing, "visible_gpus", lambda: ([GPU(0, "stand-in", 1 << 30)], None))
    return fake


def test_driver_pool_has_no_limit(driver) -> None:
    pool = zc.install_pool("driver", frameworks=())
    try:
        with pytest.raises(zc.errors.OptionError, match="has no limit") as caught:
            pool.set_limit("1GiB")
        assert caught.value.code == "no-limit"
        assert "set_per_process_memory_fraction" in caught.value.remedy
        assert driver.calls == []
    finally:
        pool.close()


# -- RMM's own resources -------------------------------------------------------------------


@pytest.fixture
def rmm_pool(host, driver, monkeypatch):
    """Install RMM's kinds over host memory, on a GPU of 1 GiB that does not exist."""
    mr = pytest.importorskip("rmm.mr")

    def make(device, settings, limit):
        upstream = mr.CallbackMemoryResource(
            lambda n, stream: host.allocate(n, 1), lambda p, n, stream: host.deallocate(p, n, 1)
        )
        return RMMPool(device, settings, limit, upstream)

    monkeypatch.setattr(installing, "RMMPool", make)
    pools = []

    def put(kind="rmm", **options):
        pools.append(zc.install_pool(kind, frameworks=(), **options))
        return pools[-1]

    yield put
    for pool in pools:
        pool.close()
    gc.collect()
    assert host.out == {}


@pytest.mark.parametrize("before", [None, "80MiB"])
def test_idle_rmm_pool_is_replaced(rmm_pool, host, before: str | None) -> None:
    pool = rmm_pool(limit=before)
    pool.deallocate(pool.allocate(MIB), MIB)
    pool.set_limit("48MiB")
    assert pool.limits == {0: Limit(48 * MIB, "set_limit()")}
    ptr = pool.allocate(8 * MIB)
    assert sum(host.out.values()) <= 48 * MIB
    with pytest.raises(zc.errors.PoolLimitError):
        pool.allocate(48 * MIB)
    pool.deallocate(ptr, 8 * MIB)
    pool.set_limit(None)
    pool.deallocate(pool.allocate(64 * MIB), 64 * MIB)
    assert pool.stats().peak_bytes == 64 * MIB
    assert pool.stats().total_count == 3  # of all three pools


def test_rmm_pool_in_use_keeps_its_limit(rmm_pool) -> None:
    pool = rmm_pool(limit="2MiB")
    ptr = pool.allocate(MIB)
    for limit in ("1MiB", "4MiB", None):
        with pytest.raises(PoolUnavailableError, match="1 MiB of the pool are in use") as caught:
            pool.set_limit(limit)
        assert caught.value.code == "pool-in-use"
    assert pool.limits == {0: Limit(2 * MIB, "limit=")}
    other = pool.allocate(MIB)
    pool.deallocate(ptr, MIB)
    pool.deallocate(other, MIB)
    pool.set_limit("1MiB")
    with pytest.raises(zc.errors.PoolLimitError):
        pool.allocate(2 * MIB)


def test_pool_that_serves_torch_is_not_replaced(rmm_pool, monkeypatch) -> None:
    pool = rmm_pool(limit="2MiB")
    monkeypatch.setattr(pool._memory, "frameworks_freeing_via", lambda name: ["torch"])
    with pytest.raises(zc.errors.OptionError, match="torch must free") as caught:
        pool.set_limit("1MiB")
    assert caught.value.code == "pool-fixed"
    assert pool.limits == {0: Limit(2 * MIB, "limit=")}


def test_percent_is_of_the_gpu(rmm_pool) -> None:
    pool = rmm_pool()
    pool.set_limit("50 %")
    assert pool.limits == {0: Limit(1 << 29, "set_limit()")}
    pool.set_limit("12.5%", device=0)
    assert pool.limits[0].nbytes == 1 << 27


def test_limit_of_mps_stays(rmm_pool, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=256M")
    pool = rmm_pool(limit="1MiB")
    for limit in ("512MiB", None):
        pool.set_limit(limit)
        assert pool.limits == {0: Limit(256 << 20, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")}


def test_limit_beyond_the_gpu_or_below_the_initial_size(rmm_pool) -> None:
    pool = rmm_pool(initial="1MiB")
    with pytest.raises(zc.errors.OptionError, match="has 1 GiB"):
        pool.set_limit("2GiB")
    with pytest.raises(zc.errors.OptionError, match="exceeds the limit"):
        pool.set_limit("512KiB")
    assert pool.limits == {}


def test_no_memory_for_a_second_pool(rmm_pool, host, monkeypatch) -> None:
    pool = rmm_pool(initial="1MiB", limit="4MiB")

    def refuse(nbytes, stream):
        raise MemoryError

    monkeypatch.setattr(host, "allocate", refuse)
    with pytest.raises(zc.errors.PoolUnavailableError, match="set_limit"):
        pool.set_limit("2MiB")
    monkeypatch.undo()
    assert pool.limits == {0: Limit(4 * MIB, "limit=")}
    pool.deallocate(pool.allocate(MIB), MIB)


# -- host memory ---------------------------------------------------------------------------


@pytest.mark.skipif(c_library.refusal() is not None, reason=str(c_library.refusal()))
@pytest.mark.parametrize("mode", ["recycle", "aligned"])
def test_limit_of_the_heap(run_python, mode: str) -> None:
    """The limit is that of the end of the heap, where a freed block need not lie.

    glibc can keep the bytes that `posix_memalign` cuts off behind it, and a block that was allocated later.
    """
    completed = run_python(
        f"""
        import ctypes
        import numpy as np
        import zerocopy as zc
        M = 1 << 20
        pool = zc.install_pool(host={mode!r}, frameworks=())
        def kept():
            return pool.host_stats()[{mode!r}].kept
        mallinfo = ctypes.CDLL(None).mallinfo
        class Info(ctypes.Structure):
            _fields_ = [("counts", ctypes.c_int * 9), ("keepcost", ctypes.c_int)]
        mallinfo.restype = Info
        def end():
            return mallinfo().keepcost  # bytes free at the end of the heap (mallinfo(3))
        def use():
            np.empty(256 * M, np.uint8)  # and drop it
        use()
        print(kept() > 240 * M)
        pool.set_limit("16MiB", device="host")
        print(end() < 17 * M, "up to 16 MiB" in str(pool.report()))
        use()
        print(end() < 17 * M)  # also later
        pool.set_limit(None, device="host")
        use()
        print(kept() > 240 * M, "until trim()" in str(pool.report()))
        for limit in ("50%", "4GiB"):
            try: pool.set_limit(limit, device="host")
            except zc.errors.OptionError as error: print(error.code)
        if not pool.devices: pool.set_limit("1MiB")
        pool.close()
        zc.install_pool(host={mode!r}, frameworks=())
        use()
        print(zc.installed_pool().host_stats()[{mode!r}].kept > 240 * M)  # a new pool has no limit
        """
    )
    expected = "True\nTrue True\nTrue\nTrue True\noption-value\nlimit-range\nTrue\n"
    assert completed.stdout == expected, completed.stderr


def test_limit_of_page_locked_memory() -> None:
    pool = PinnedPool(LibcMemory())
    arrays = [pool.empty(MIB, "u1") for _ in range(4)]
    del arrays
    assert pool.kept == 4 * MIB
    pool.keep_at_most(2 * MIB)
    assert pool.kept == 2 * MIB
    arrays = [pool.empty(MIB, "u1") for _ in range(4)]
    assert pool.figures()[:2] == (4 * MIB, 0)
    del arrays  # by finalizers
    gc.collect()
    assert pool.figures()[:2] == (0, 2 * MIB)
    pool.keep_at_most(0)
    assert pool.kept == 0
    pool.keep_at_most(None)
    pool.empty(MIB, "u1")
    assert pool.kept == MIB
    pool.close()
