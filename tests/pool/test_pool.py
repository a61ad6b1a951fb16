"""A pool over a custom allocator: all of its methods, without a GPU."""

from __future__ import annotations

import gc
import pickle
import threading

import pytest
from helpers.pool_stand_ins import HostAllocator, LibcMemory

import zerocopy as zc
from zerocopy.interpreter import imports
from zerocopy.pool.install import installed_pool

rmm = pytest.importorskip("rmm")
MIB = 1 << 20


@pytest.fixture
def host():
    return HostAllocator()


@pytest.fixture
def install(host):
    """Install a pool over host memory; afterwards close it and check that all memory is freed."""
    pools = []

    def put(**options):
        pools.append(zc.install_pool(allocator=host, **options))
        return pools[-1]

    yield put
    for pool in pools:
        pool.close()
    gc.collect()
    assert host.out == {}
    assert installed_pool() is None
    assert imports._FINDER not in __import__("sys").meta_path


def test_any_code_can_allocate_from_the_pool(install, host) -> None:
    pool = install()
    ptr = pool.allocate(1000)
    other = pool.allocate(24, stream=77)
    assert host.out == {ptr: 1000, other: 24}
    # Default: the legacy default stream, which is 1.
    assert host.streams == [1, 77]
    assert pool.stats().current_bytes == 1024
    pool.deallocate(ptr, 1000)
    pool.deallocate(other, 24, stream=77)
    assert pool.stats().current_bytes == 0
    assert pool.stats().peak_bytes == 1024


def test_stream_objects_are_accepted(install, host) -> None:
    class Stream:
        def __cuda_stream__(self):
            return (0, 4711)

    pool = install()
    for stream in (Stream(), 0, 1, 2):
        pool.deallocate(pool.allocate(8, stream), 8, stream)
    assert host.streams == [4711, 1, 1, 2]


@pytest.mark.parametrize("nbytes", [-1, 1.5, "8", None, True])
def test_invalid_number_of_bytes_is_refused(install, nbytes) -> None:
    with pytest.raises(zc.errors.OptionError):
        install().allocate(nbytes)


def test_another_device_is_refused(install) -> None:
    with pytest.raises(zc.DeviceError, match="the pool is on devices 0"):
        install().allocate(8, device=3)


def test_allocation_past_the_limit_is_refused(install) -> None:
    pool = install(limit="1MiB")
    ptr = pool.allocate(MIB // 2)
    with pytest.raises(zc.errors.PoolLimitError, match=r"on top of the 512 KiB in use.*limit=") as caught:
        pool.allocate(MIB)
    error = caught.value
    assert isinstance(error, MemoryError)
    assert (error.requested, error.in_use, error.limit, error.source) == (MIB, MIB // 2, MIB, "limit=")
    again = pickle.loads(pickle.dumps(error))
    assert (again.requested, again.limit, again.source, str(again)) == (MIB, MIB, "limit=", str(error))
    # The pool stays usable up to the limit.
    rest = pool.allocate(MIB // 2)
    with pytest.raises(zc.errors.PoolLimitError):
        pool.allocate(1)
    pool.deallocate(rest, MIB // 2)
    pool.deallocate(ptr, MIB // 2)
    assert pool.stats().current_bytes == 0


def test_allocator_memory_error_propagates(host) -> None:
    class Empty(HostAllocator):
        def allocate(self, nbytes, stream):
            raise MemoryError("nothing left")

    with zc.install_pool(allocator=Empty(), limit=MIB) as pool, pytest.raises(MemoryError):
        pool.allocate(8)
    pool.close()


def test_leaks_have_address_requester_and_stack(install) -> None:
    pool = install(track=True)
    assert pool.check_leaks() == []
    ptr = pool.allocate(1234)
    buffer = rmm.DeviceBuffer(size=4321, mr=rmm.mr.get_per_device_resource(0))
    mine, its = sorted(pool.check_leaks(), key=lambda leak: leak.nbytes)
    assert (mine.ptr, mine.nbytes, mine.device, mine.requester) == (ptr, 1234, 0, "allocate()")
    assert "ptr = pool.allocate(1234)" in mine.stack
    assert "zerocopy/pool" not in mine.stack
    assert (its.ptr, its.nbytes) == (buffer.ptr, 4321)
    assert "device_buffer" in its.stack  # RMM's own stack, because the call did not go through the pool
    pool.deallocate(ptr, 1234)
    del buffer
    assert pool.check_leaks() == []


def test_reused_address_is_not_reported_as_recorded(install, host) -> None:
    """RMM may reuse the address of a recorded allocation."""
    pool = install(track=True)
    ptr = pool.allocate(512)
    pool.deallocate(ptr, 512)
    buffers = [rmm.DeviceBuffer(size=500, mr=rmm.mr.get_per_device_resource(0)) for _ in range(8)]
    assert {leak.requester for leak in pool.check_leaks()} == {""}
    del buffers


def test_leaks_without_tracking_are_a_sum(install) -> None:
    pool = install()
    ptr, other = pool.allocate(10), pool.allocate(20)
    (leak,) = pool.check_leaks()
    assert (leak.nbytes, leak.ptr, leak.stack) == (30, None, "")
    assert str(leak) == "30 B on device 0"
    pool.deallocate(ptr, 10)
    pool.deallocate(other, 20)


@pytest.mark.parametrize("track", [False, True])
def test_scope_has_its_own_stats(install, track: bool) -> None:
    pool = install(track=track)
    before = pool.allocate(1 << 16)
    with pool as same:
        assert same is pool
        assert pool.stats().current_bytes == 1 << 16
        inner = pool.allocate(4096)
        with pool:
            pool.deallocate(pool.allocate(100), 100)
        scope = pool.scopes[0]
        assert scope.stats.peak_bytes == (1 << 16) + 4096 + 100
        assert (scope.stats.total_bytes, scope.stats.total_count) == (100, 1)
        pool.deallocate(inner, 4096)
        big = pool.allocate(1 << 17)
        pool.deallocate(before, 1 << 16)  # from before the block: no figure becomes negative
        assert pool.stats().current_bytes == 1 << 17
        pool.deallocate(big, 1 << 17)
    scope = pool.scopes[0]
    assert scope.stats.peak_bytes == (1 << 16) + (1 << 17)
    assert scope.stats.total_bytes == 4096 + 100 + (1 << 17)
    assert scope.leaks == []
    assert pool.stats().current_bytes == 0
    assert pool.stats().peak_bytes == (1 << 16) + (1 << 17)
    assert pool.stats().total_count == 4


def test_scopes_in_threads_may_overlap(install) -> None:
    pool = install(track=True)
    first, second = threading.Event(), threading.Event()
    leaks = []

    def work() -> None:
        pool.__enter__()
        leaks.append(pool.allocate(1000))
        first.set()
        second.wait()
        with pytest.warns(ResourceWarning):
            pool.__exit__(None, None, None)

    thread = threading.Thread(target=work)
    thread.start()
    first.wait()
    pool.__enter__()
    pool.deallocate(pool.allocate(1 << 20), 1 << 20)
    second.set()
    thread.join()
    pool.deallocate(leaks[0], 1000)
    pool.__exit__(None, None, None)
    assert pool.scopes[0].leaks == []
    assert pool.stats().peak_bytes == (1 << 20) + 1000


def test_reused_address_is_a_new_leak(install) -> None:
    pool = install(track=True)
    for _ in range(50):
        old = pool.allocate(4096)
        pool.__enter__()
        pool.deallocate(old, 4096)
        new = pool.allocate(4096)
        with pytest.warns(ResourceWarning):
            pool.__exit__(None, None, None)
        assert [leak.ptr for leak in pool.scopes[0].leaks] == [new]
        pool.deallocate(new, 4096)


def test_exit_without_enter_is_refused(install) -> None:
    with pytest.raises(zc.errors.OptionError, match="with pool"):
        install().__exit__(None, None, None)


def test_pool_can_be_closed_inside_its_with_block(install, host) -> None:
    pool = install()
    ptr = pool.allocate(100)
    with pool:
        pool.close()
    pool.deallocate(ptr, 100)
    assert host.out == {}


def test_naming_torch_attaches_rmm(install, host) -> None:
    """CuPy and torch allocate via RMM's resource, which is attached if one of them is named."""
    pool = install(frameworks=["torch"])
    assert pool.report()["rmm"].status == "installed"
    assert rmm.mr.get_per_device_resource(0) is pool._memory.pools[0].resource(rmm.mr)


@pytest.mark.parametrize("nbytes", [2**63, 2**64 - 1, 2**64 + 5])
def test_size_above_any_memory_is_refused(install, nbytes: int) -> None:
    with pytest.raises(zc.errors.OptionError, match="exceeds the address space"):
        install(limit="1MiB").allocate(nbytes)


def test_zero_bytes_have_address_zero(install, host) -> None:
    pool = install()
    assert pool.allocate(0) == 0
    pool.deallocate(0, 0)
    assert host.out == {}


def test_limit_that_is_not_a_multiple_of_the_alignment(install) -> None:
    with pytest.raises(
        zc.errors.PoolLimitError, match="1000 B on top of the 0 B in use would exceed the limit of 1000 B"
    ):
        install(limit=1000).allocate(1000)


def test_pool_cannot_be_copied_or_pickled(install) -> None:
    import copy

    pool = install()
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="neither copied nor pickled"):
            attempt(pool)


class Misbehaving(HostAllocator):
    """A Python allocator with configurable errors."""

    def __init__(self, allocate=None, deallocate=None):
        super().__init__()
        self.first, self.last = allocate, deallocate

    def allocate(self, nbytes, stream):
        return super().allocate(nbytes, stream) if self.first is None else self.first()

    def deallocate(self, ptr, nbytes, stream):
        super().deallocate(ptr, nbytes, stream)
        if self.last is not None:
            self.last()


def _raise(error: BaseException):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), ValueError("mine"), MemoryError("mine")], ids=repr
)
def test_allocator_error_propagates(error: BaseException) -> None:
    allocator = Misbehaving(_raise(error))
    pool = zc.install_pool(allocator=allocator, limit="1MiB")
    with pytest.raises(type(error)) as caught:
        pool.allocate(100)
    assert caught.value is error
    allocator.first = None
    pool.deallocate(pool.allocate(100), 100)
    pool.close()


@pytest.mark.parametrize(
    ("returned", "error"), [(None, TypeError), (1.5, TypeError), (0, MemoryError), (-8, MemoryError)]
)
def test_allocator_result_is_checked(returned, error) -> None:
    pool = zc.install_pool(allocator=Misbehaving(lambda: returned))
    with pytest.raises(error, match=r"Misbehaving.allocate\(\) returned"):
        pool.allocate(100)
    pool.close()


def test_deallocate_error_is_printed(capsys) -> None:
    pool = zc.install_pool(allocator=Misbehaving(None, _raise(ValueError("mine"))))
    pool.deallocate(pool.allocate(100), 100)
    output = capsys.readouterr().err
    assert "Misbehaving.deallocate() raised" in output
    assert "ValueError: mine" in output
    assert pool.stats().current_bytes == 0
    pool.close()


@pytest.mark.parametrize("track", [False, True])
def test_leak_in_scope_warns(install, track: bool) -> None:
    pool = install(track=track)
    before = pool.allocate(1 << 16)
    with (
        pytest.warns(ResourceWarning, match=r"outstanding at the end of the block:\n.*100 B") as caught,
        pool,
    ):
        ptr = pool.allocate(100)
    assert caught[0].filename == __file__
    assert [leak.nbytes for leak in pool.scopes[0].leaks] == [100]
    pool.deallocate(ptr, 100)
    pool.deallocate(before, 1 << 16)


def test_failed_scope_does_not_warn(install) -> None:
    pool = install()
    pool.__enter__()
    ptr = pool.allocate(100)
    pool.__exit__(KeyError, KeyError(), None)
    assert pool.scopes[0].leaks[0].nbytes == 100
    pool.deallocate(ptr, 100)


def test_second_install_returns_the_pool_or_raises(install, host) -> None:
    pool = install(limit=MIB)
    assert zc.install_pool(allocator=host, limit="1MiB") is pool
    with pytest.raises(zc.errors.PoolInstalledError, match="limit=1048576"):
        zc.install_pool(allocator=host, limit="2MiB")
    assert zc.install_pool() is zc.installed_pool() is pool


def test_close_restores_and_refuses(install, host) -> None:
    before = rmm.mr.get_per_device_resource(0)
    pool = install()
    assert rmm.mr.get_per_device_resource(0) is not before
    kept = rmm.DeviceBuffer(size=100, mr=rmm.mr.get_per_device_resource(0))
    ptr = pool.allocate(100)
    pool.close()
    pool.close()
    assert rmm.mr.get_per_device_resource(0) is before
    for call in (lambda: pool.allocate(8), pool.refresh, pool.__enter__):
        with pytest.raises(zc.errors.PoolClosedError, match=r"zc.install_pool\(\)"):
            call()
    # Outstanding memory stays valid, and is freed to its allocator.
    assert set(host.out) == {kept.ptr, ptr}
    del kept
    pool.deallocate(ptr, 100)
    assert "the pool was closed" in str(pool.report())
    assert pool.report()["rmm"].status == "restored"
    assert "closed" in repr(pool)


def test_install_after_close(install, host) -> None:
    install(limit=MIB).close()
    pool = install(limit=2 * MIB)
    pool.deallocate(pool.allocate(MIB + 1), MIB + 1)


def test_close_keeps_resource_of_another_package(install, host) -> None:
    pool = install()
    theirs = rmm.mr.CudaMemoryResource()
    rmm.mr.set_per_device_resource(0, theirs)
    assert pool.report()["rmm"].status == "replaced"
    assert "pool.refresh()" in pool.report()["rmm"].remedy
    pool.close()
    assert rmm.mr.get_per_device_resource(0) is theirs


def test_refresh_attaches_again(install) -> None:
    pool = install()
    assert pool.refresh() == []
    rmm.mr.set_per_device_resource(0, rmm.mr.CudaMemoryResource())
    assert pool.refresh() == ["rmm"]
    assert pool.report()["rmm"].status == "installed"


def test_rmm_resource_can_be_the_allocator(host) -> None:
    base = rmm.mr.CallbackMemoryResource(
        lambda n, stream: host.allocate(n, 1), lambda p, n, stream: host.deallocate(p, n, 1)
    )
    pool = zc.install_pool(allocator=base, limit=MIB)
    pool.deallocate(pool.allocate(100), 100)
    assert host.streams == [1]
    pool.close()


def test_many_threads_allocate_and_free(install, host) -> None:
    pool = install(limit=64 * MIB, track=True)
    failed = []

    def work(seed: int) -> None:
        try:
            held = []
            for step in range(300):
                size = (seed * 7919 + step * 104729) % 65536 + 1
                held.append((pool.allocate(size, stream=seed + 3), size))
                if step % 3 == 2:
                    ptr, size = held.pop(step % len(held))
                    pool.deallocate(ptr, size, stream=seed + 3)
                if step % 50 == 0:
                    pool.report(), pool.check_leaks(), pool.trim()
            for ptr, size in held:
                pool.deallocate(ptr, size, stream=seed + 3)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert pool.check_leaks() == []
    assert pool.stats().current_bytes == 0


def test_install_in_threads_gives_one_pool(host) -> None:
    gate, pools = threading.Barrier(8), []

    def work() -> None:
        gate.wait()
        pools.append(zc.install_pool(allocator=host))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(pool) for pool in pools}) == 1
    pools[0].close()


def test_default_pool_without_gpu() -> None:
    if zc.install_pool().kind != "none":
        zc.install_pool().close()
        pytest.skip("there is a GPU")
    pool = zc.install_pool()
    report = pool.report()
    assert report.kind == "none"
    assert report.devices[0].startswith("none: ")
    assert {o.status for o in report.frameworks} <= {"absent", "unsupported"}
    assert 'install_pool(host="aligned") works without a GPU' in str(report)
    with pytest.raises(zc.DeviceError):
        pool.allocate(8)
    assert 0 < pool.stats().current_bytes <= pool.stats().peak_bytes
    with pytest.raises(zc.DeviceError):
        pool.stats(0)
    with pytest.raises(zc.errors.OptionError, match="pinned"):
        pool.pinned(3)
    assert (pool.check_leaks(), pool.trim(), pool.refresh()) == ([], 0, [])
    with pool:
        pass
    assert pool.scopes == {}
    pool.close()


@pytest.mark.parametrize("kind", ["driver", "rmm", "rmm:binning", "rmm:async", "managed"])
def test_named_kind_without_gpu_is_refused(kind: str) -> None:
    from zerocopy.pool.gpus import visible_gpus

    if visible_gpus()[0]:
        pytest.skip("there is a GPU")
    with pytest.raises(zc.errors.PoolUnavailableError, match=r'host="aligned" works without'):
        zc.install_pool(kind)
    with pytest.raises(zc.errors.PoolUnavailableError):
        zc.install_pool(strict=True)
    assert installed_pool() is None


def test_missing_rmm_is_an_error(run_python) -> None:
    completed = run_python(
        """
        import sys
        sys.modules["rmm"] = None
        import zerocopy as zc
        from tests.helpers.pool_stand_ins import HostAllocator
        try:
            zc.install_pool(allocator=HostAllocator())
        except zc.errors.PoolUnavailableError as error:
            print(error)
        """
    )
    assert "RMM is not installed" in completed.stdout, completed.stderr
    assert "pip install rmm-cu13 for CUDA 13" in completed.stdout


def resource_over(host):
    return rmm.mr.CallbackMemoryResource(
        lambda n, stream: host.allocate(n, 1), lambda p, n, stream: host.deallocate(p, n, 1)
    )


@pytest.mark.parametrize("form", ["object", "function"])
def test_resource_of_rmm(host, form: str) -> None:
    """A function is called once for each device, also if the limit changes."""
    made = []

    def make(device):
        made.append(device)
        return resource_over(host)

    pool = zc.install_pool(resource=make if form == "function" else make(0), limit=1000, track=True)
    try:
        assert (pool.kind, str(pool.settings)) == ("custom", "resource=...,limit=1000,track=True")
        ptr = pool.allocate(100)
        assert [leak.nbytes for leak in pool.check_leaks()] == [100]
        buffer = rmm.DeviceBuffer(size=200, mr=rmm.mr.get_per_device_resource(0))
        assert pool.stats().current_bytes == 300
        with pytest.raises(zc.errors.PoolLimitError):
            pool.allocate(1000)
        del buffer
        pool.deallocate(ptr, 100)
        pool.set_limit(2000)
        pool.deallocate(pool.allocate(1500), 1500)
    finally:
        pool.close()
    assert (host.out, made) == ({}, [0])


def test_resource_that_is_not_of_rmm_is_refused(host) -> None:
    for resource in (host, lambda device: host, lambda device: None):
        with pytest.raises(zc.errors.OptionError, match="not a memory resource of RMM"):
            zc.install_pool(resource=resource)
    assert installed_pool() is None


def test_resource_of_one_device_is_refused_for_two(host, monkeypatch) -> None:
    from zerocopy.pool import install
    from zerocopy.pool.gpus import GPU

    monkeypatch.setattr(install, "visible_gpus", lambda: ([GPU(n, "stand-in", MIB) for n in range(2)], None))
    with pytest.raises(zc.errors.OptionError, match="a function that returns the resource of a device"):
        zc.install_pool(resource=resource_over(host))


def test_pinned_arrays_come_from_the_pool(host, monkeypatch) -> None:
    """Over ordinary memory; tests/gpu checks that it is page-locked."""
    import numpy as np

    from zerocopy.pool.host import modes

    monkeypatch.setattr(modes, "CudaHostMemory", LibcMemory)
    monkeypatch.setattr(modes, "visible_gpus", lambda: ([], None))
    pool = zc.install_pool(allocator=host, host="pinned")
    array = pool.pinned((3, 4), "float32")
    array[:] = 7
    assert (array.shape, array.dtype, array.ctypes.data % 64) == ((3, 4), np.float32, 0)
    assert "in use" in pool.report().host[0]
    address = array.ctypes.data
    del array
    again = pool.pinned(12, "float32")
    assert again.ctypes.data == address
    pool.close()
    again[:] = 1  # existing arrays stay valid
    with pytest.raises(zc.errors.PoolClosedError):
        pool.pinned(3)


@pytest.mark.parametrize("error", [zc.errors.PoolUnavailableError("host", "no"), KeyboardInterrupt()])
def test_failed_install_is_undone(host, monkeypatch, error) -> None:
    """A failure undoes the previous steps."""
    import os

    from zerocopy.pool.attachments import Attachments
    from zerocopy.pool.host import MODES

    def fail(self) -> None:
        raise error

    before, resource = dict(os.environ), rmm.mr.get_per_device_resource(0)
    monkeypatch.setattr(Attachments, "attach", fail)
    with pytest.raises(type(error)):
        zc.install_pool(allocator=host, host="recycle")
    assert installed_pool() is None
    assert not MODES["recycle"].installed
    assert dict(os.environ) == before
    assert rmm.mr.get_per_device_resource(0) is resource
    monkeypatch.undo()
    zc.install_pool(allocator=host).close()


def test_failing_detach_does_not_stop_close(host, monkeypatch) -> None:
    """Another pool can be installed afterwards, and host modes are off."""
    from zerocopy.pool.attachments import RMMHook
    from zerocopy.pool.host import MODES

    def fail(self, pool):
        raise RuntimeError("the driver has gone")

    pool = zc.install_pool(allocator=host, host="recycle")
    resource = rmm.mr.get_per_device_resource(0)
    monkeypatch.setattr(RMMHook, "detach", fail)
    pool.close()
    assert pool.report()["rmm"].detail == "RuntimeError: the driver has gone"
    assert installed_pool() is None
    assert not MODES["recycle"].installed
    monkeypatch.undo()
    assert resource is rmm.mr.get_per_device_resource(0)
    again = zc.install_pool(allocator=host)
    again.close()
    rmm.mr.set_per_device_resource(0, rmm.mr.CudaMemoryResource())


def test_broken_framework_is_a_row(install, monkeypatch) -> None:
    from zerocopy.pool.attachments import RMMHook

    def fail(self, pool):
        raise AttributeError("no such thing")

    pool = install()
    monkeypatch.setattr(RMMHook, "is_attached", fail)
    assert pool.report()["rmm"].detail == "AttributeError: no such thing"
    monkeypatch.undo()


def test_interrupted_attach_is_undone(host, monkeypatch) -> None:
    before = rmm.mr.get_per_device_resource(0)
    real, calls = rmm.mr.set_per_device_resource, []

    def interrupted(device, resource):
        real(device, resource)
        calls.append(device)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(rmm.mr, "set_per_device_resource", interrupted)
    with pytest.raises(KeyboardInterrupt):
        zc.install_pool(allocator=host)
    assert rmm.mr.get_per_device_resource(0) is before
    assert installed_pool() is None


def test_strict_raises_if_attach_fails(host, monkeypatch) -> None:
    from zerocopy.pool.attachments import RMMHook

    def fail(self, pool):
        raise RuntimeError("it will not")

    monkeypatch.setattr(RMMHook, "attach", fail)
    with (
        pytest.warns(RuntimeWarning, match="it will not") as caught,
        pytest.raises(zc.errors.PoolUnavailableError, match="it will not"),
    ):
        zc.install_pool(allocator=host, frameworks="rmm", strict=True)
    assert {warning.filename for warning in caught} == {__file__}
    assert installed_pool() is None


def test_allocate_during_close(host) -> None:
    failed = []

    def work() -> None:
        try:
            for _ in range(2000):
                pool.deallocate(pool.allocate(64), 64)
        except zc.errors.PoolClosedError:
            pass
        except Exception as error:
            failed.append(error)
            raise

    for _ in range(10):
        pool = zc.install_pool(allocator=host)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        pool.close()
        for thread in threads:
            thread.join()
    assert failed == []


def test_deallocate_is_checked_when_tracked(install) -> None:
    pool = install(track=True)
    ptr = pool.allocate(7000)
    with pytest.raises(zc.errors.OptionError, match="it has 7000 bytes"):
        pool.deallocate(ptr, 70)
    pool.deallocate(ptr, 7000)
    with pytest.raises(zc.errors.OptionError, match="no allocation at that address is outstanding"):
        pool.deallocate(ptr, 7000)


def test_report_repr_and_lookup(install) -> None:
    report = install().report()
    assert repr(report) == str(report)
    assert next(iter(report)).framework == "rmm"
    with pytest.raises(KeyError, match="there are rmm, torch"):
        report["JAX"]


def test_pool_without_a_device_has_statistics_and_a_description() -> None:
    pool = zc.install_pool(host="off")
    if pool.kind != "none":
        pool.close()
        pytest.skip("there is a GPU")
    assert pool.stats().current_bytes > 1 << 20
    assert repr(pool).startswith("<zerocopy.Pool: off, ")
    pool.close()
    assert repr(pool).startswith("<closed zerocopy.Pool: off, ")
