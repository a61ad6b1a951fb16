"""The real CuPy, RMM and numba-cuda on a pool, without a GPU.

All three can be imported without a driver. Functions that query a device are replaced, and all memory
is host memory. The tests need a separate environment: see requirements.txt and ``.ci/run``.
"""

from __future__ import annotations

import gc
import sys
import warnings
from types import SimpleNamespace

import pytest

pytest.importorskip("cupy")
pytest.importorskip("rmm")

from helpers.pool_stand_ins import FakeDriver, HostAllocator

import zerocopy as zc
from zerocopy.pool import install
from zerocopy.pool.driver_pool import DriverPool
from zerocopy.pool.gpus import GPU
from zerocopy.protocols import cuda_driver

cupy = pytest.importorskip("cupy")
if cupy.cuda.is_available():
    pytest.skip("there is a GPU: see tests/gpu", allow_module_level=True)


@pytest.fixture
def device_queries(monkeypatch):
    """Replace CuPy's queries of the current device and stream."""
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: SimpleNamespace(ptr=0))


@pytest.fixture
def driver(monkeypatch, device_queries):
    fake = FakeDriver()
    monkeypatch.setattr(cuda_driver, "driver", lambda: fake)
    monkeypatch.setattr(install, "visible_gpus", lambda: ([GPU(0, "stand-in", 1 << 30)], None))
    return fake


@pytest.fixture
def restored():
    before = cupy.cuda.get_allocator()
    yield
    pool = install.installed_pool()
    if pool is not None:  # left by a failed test
        pool.close()
    assert cupy.cuda.get_allocator() == before
    assert pool is None


def test_cupy_allocations_are_recorded(driver, restored) -> None:
    pool = zc.install_pool("driver", frameworks=["cupy"], track=True)
    assert pool.report()["cupy"].status == "installed"
    memory = cupy.cuda.alloc(1000)
    assert ("allocate", 1000, 1) in driver.calls  # 1: the legacy default stream
    assert memory.mem.size == 1000
    (leak,) = pool.check_leaks()
    assert (leak.ptr, leak.nbytes, leak.requester) == (memory.ptr, 1000, "cupy")
    assert "cupy.cuda.alloc(1000)" in leak.stack
    nothing = cupy.cuda.alloc(0)
    assert nothing.ptr == 0
    part = memory + 100  # a view keeps the whole block
    del memory
    gc.collect()
    assert driver.used == 1000
    del part, leak
    assert driver.used == 0
    pool.close()


def test_memory_outlives_pool(driver, restored) -> None:
    pool = zc.install_pool("driver", frameworks=["cupy"], track=True)
    memory = cupy.cuda.alloc(1000)
    pool.close()
    assert pool.report()["cupy"].status == "restored"
    assert driver.used == 1000
    del memory
    assert driver.used == 0


def test_driver_pool_is_opened_at_first_allocation(driver, restored, monkeypatch) -> None:
    """By cudaMallocAsync: CuPy's own pool treats the release threshold as a limit."""
    runtime, chosen = cupy.cuda.runtime, []
    monkeypatch.setattr(runtime, "deviceSetMemPool", lambda device, handle: chosen.append((device, handle)))
    monkeypatch.setattr(cupy.cuda, "malloc_async", lambda nbytes: ("memory", nbytes))
    pool = zc.install_pool("driver", frameworks=["cupy"])
    assert driver.calls == []
    allocate = cupy.cuda.get_allocator()
    assert [allocate(10), allocate(20)] == [("memory", 10), ("memory", 20)]
    assert chosen == [(0, 4242)]
    assert driver.threshold == 2**64 - 1
    assert pool.report()["cupy"].status == "installed"
    pool.close()
    assert driver.threshold == 0


@pytest.mark.parametrize("times", [1, 2])
def test_out_of_memory_is_retried_after_synchronisation(driver, restored, monkeypatch, times) -> None:
    runtime, waited = cupy.cuda.runtime, []

    class Refusal(runtime.CUDARuntimeError):
        def __init__(self):
            self.status = 2

    left = [Refusal() for _ in range(times)]

    def malloc_async(nbytes):
        if left:
            raise left.pop()
        return ("memory", nbytes)

    monkeypatch.setattr(runtime, "deviceSetMemPool", lambda device, handle: None)
    monkeypatch.setattr(cupy.cuda, "malloc_async", malloc_async)
    stream = SimpleNamespace(ptr=0, synchronize=lambda: waited.append(1))
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: stream)
    pool = zc.install_pool("driver", frameworks=["cupy"])
    allocate = cupy.cuda.get_allocator()
    if times == 1:
        assert allocate(10) == ("memory", 10)
    else:
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
            allocate(10)
    assert waited == [1]
    pool.close()


def test_limit_applies_to_cupy(device_queries, restored, monkeypatch) -> None:
    """RMM's allocator for CuPy needs a device; a stand-in raises its error."""
    import rmm.allocators.cupy as theirs

    def refuse(nbytes):
        raise MemoryError("Exceeded memory limit")

    monkeypatch.setattr(theirs, "rmm_cupy_allocator", refuse)
    pool = zc.install_pool(allocator=HostAllocator(), limit="1MiB")
    with pytest.raises(zc.errors.PoolLimitError, match="would exceed the limit") as caught:
        cupy.cuda.get_allocator()(2 << 20)
    assert (caught.value.requested, caught.value.limit) == (2 << 20, 1 << 20)
    assert str(caught.value.__cause__) == "Exceeded memory limit"
    pool.close()


def test_replaced_allocator_is_noticed_and_attached_again(driver, restored) -> None:
    pool = zc.install_pool("driver", frameworks=["cupy"], track=True)
    ours = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(None)
    assert pool.report()["cupy"].status == "replaced"
    assert pool.refresh() == ["cupy"]
    assert cupy.cuda.get_allocator().__qualname__ == ours.__qualname__
    pool.close()


def test_import_cudf_attaches_again(driver, restored, tmp_path, monkeypatch) -> None:
    """``import cudf`` sets RMM's plain allocators for CuPy and Numba (cudf/__init__.py)."""
    (tmp_path / "cudf.py").write_text(
        "import cupy\nfrom numba import cuda\n"
        "from rmm.allocators.cupy import rmm_cupy_allocator\n"
        "from rmm.allocators.numba import RMMNumbaManager\n"
        "cupy.cuda.set_allocator(rmm_cupy_allocator)\ncuda.set_memory_manager(RMMNumbaManager)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    # cuDF allocates via RMM's resource, which needs a driver for the kind "driver".
    monkeypatch.setattr(DriverPool, "resource", lambda self, mr: mr.CudaMemoryResource())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import numba.cuda
        from numba.cuda.cudadrv import driver as numba_driver
    assert numba.cuda
    pool = zc.install_pool("driver", frameworks=["cupy", "numba", "cudf"], track=True)
    manager = numba_driver._memory_manager
    assert pool.report()["cudf"].status == "pending_import"
    import cudf

    assert cudf
    row = pool.report()["cudf"]
    assert row.status == "installed"
    assert "attached again after its import: cupy, numba" in row.detail
    assert pool.report()["cupy"].status == pool.report()["numba"].status == "installed"
    assert numba_driver._memory_manager.__qualname__ == manager.__qualname__
    assert cupy.cuda.get_allocator().__qualname__.startswith("_tracking_allocator")
    pool.close()
    sys.modules.pop("cudf")


def test_numba_cuda_allocates_from_the_pool(driver, restored) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from numba.cuda.cudadrv import driver as numba_driver
    pool = zc.install_pool("driver", frameworks=["numba"], track=True)
    context = SimpleNamespace(device=SimpleNamespace(id=0))
    manager = numba_driver._memory_manager(context=context)
    memory = manager.memalloc(1000)
    assert driver.used == 1000
    (leak,) = pool.check_leaks()
    assert (leak.requester, int(memory.handle)) == ("numba", leak.ptr)
    memory.free()
    assert driver.used == 0
    pool.close()


def test_rmm_resource_is_the_pools(restored) -> None:
    import rmm

    before = rmm.mr.get_per_device_resource(0)
    pool = zc.install_pool(allocator=HostAllocator())
    assert rmm.mr.get_per_device_resource(0) is not before
    pool.close()
    assert rmm.mr.get_per_device_resource(0) is before
