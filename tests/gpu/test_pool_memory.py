"""Memory of a pool on a GPU: limits, leaks, scopes, trimming, managed and page-locked memory."""

from __future__ import annotations

import pytest
from helpers.gpu_pool_processes import MARKS, Run, programs

pytestmark = MARKS


@pytest.fixture
def run(run_python: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    return programs(run_python, monkeypatch)


# -- limits -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["allocate()", "cupy", "numba", "rmm"])
def test_allocation_past_the_limit_is_refused(run, name: str) -> None:
    """The error has the figures, and the pool stays usable."""
    run(
        """
        need("rmm")
        pool = begin("rmm", limit="64MiB")
        allocate = pool.allocate if name == "allocate()" else side(name).allocate
        if name != "allocate()": side(name).values(allocate(MIB))
        settle()
        held = pool.allocate(16 * MIB)
        kind = MemoryError if name == "rmm" else zc.errors.PoolLimitError  # users of RMM get RMM's error
        error = refused(kind, lambda: allocate(128 * MIB))
        print(error)
        if kind is zc.errors.PoolLimitError:
            figures = (error.requested, error.in_use, error.limit, error.source)
            assert figures == (128 * MIB, 16 * MIB, 64 * MIB, "limit="), figures
        x = allocate(16 * MIB)
        assert in_use(pool) >= 32 * MIB
        if name == "allocate()": pool.deallocate(x, 16 * MIB)
        else: assert (side(name).values(x) == 1).all()
        del x
        pool.deallocate(held, 16 * MIB)
        assert until(lambda: in_use(pool) == 0)
        """,
        name=name,
    )


def test_torch_past_the_limit_is_refused(run) -> None:
    run(
        """
        need("rmm", "torch")
        pool = begin("rmm", limit="64MiB", frameworks=("torch", "rmm"))
        torch = side("torch")
        torch.values(torch.allocate(MIB))
        error = refused((RuntimeError, MemoryError), lambda: torch.allocate(128 * MIB))
        print(type(error), error)
        assert (torch.values(torch.allocate(16 * MIB, 9)) == 9).all()
        """
    )


def test_limit_is_the_smallest_of_all_sources(run) -> None:
    run(
        """
        need("rmm")
        total = zc.install_pool("driver", frameworks=()).gpus[0].total
        install.installed_pool().close()
        part = 96 * MIB / total
        asked = [
            (dict(limit="96MiB"), "limit="),
            (dict(fraction=part), f"fraction={part}"),
            (dict(reserve=total - 96 * MIB), "reserve="),
            (dict(limit="2GiB", fraction=part), f"fraction={part}"),
        ]
        for options, source in asked:
            pool = zc.install_pool("rmm", frameworks=(), **options)
            cap = pool.limits[0]
            assert cap.source.startswith(source) and abs(cap.nbytes - 96 * MIB) <= 1, cap
            assert source in str(pool.report())
            ptr = pool.allocate(64 * MIB)
            error = refused(zc.errors.PoolLimitError, lambda: pool.allocate(64 * MIB))
            assert (error.in_use, error.limit) == (64 * MIB, cap.nbytes)
            pool.deallocate(ptr, 64 * MIB)
            pool.close()
        refused(zc.errors.OptionError, lambda: zc.install_pool("rmm", limit=2 * total))
        """
    )
    run(
        """
        need("rmm")
        pool = zc.install_pool("rmm", frameworks=(), limit="1GiB")
        assert pool.limits[0].nbytes == 64 * MIB
        assert pool.limits[0].source == "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
        assert refused(zc.errors.PoolLimitError, lambda: pool.allocate(65 * MIB)).limit == 64 * MIB
        """,
        CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=64M",
    )


def test_numba_reports_the_limit(run) -> None:
    run(
        """
        need("rmm")
        pool = begin("rmm", limit="64MiB")
        numba = side("numba")
        x = numba.allocate(16 * MIB)
        info = numba.module.current_context().get_memory_info()
        assert (info.free, info.total) == (48 * MIB, 64 * MIB), info
        """
    )


@pytest.mark.parametrize("kind", ["driver", "rmm", "rmm:async"])
def test_initial_size_is_reserved_at_install(run, kind: str) -> None:
    run(
        """
        if kind != "driver": need("rmm")
        keep_context()  # a context takes memory too
        before = free()
        pool = zc.install_pool(kind, frameworks=(), initial="512MiB")
        ptr = pool.allocate(MIB)
        assert before - free() >= 512 * MIB
        taken = free()
        rest = pool.allocate(400 * MIB)
        assert taken - free() < 64 * MIB
        pool.deallocate(rest, 400 * MIB); pool.deallocate(ptr, MIB)
        """,
        kind=kind,
    )


# -- leaks, scopes, the interface ---------------------------------------------------------


@pytest.mark.parametrize("kind", ["driver", "rmm"])
def test_leaks_name_their_requester(run, kind: str) -> None:
    run(
        """
        pool = begin(kind, track=True)
        for each in sides("cupy", "numba", "rmm"): each.values(each.allocate(MIB))
        settle()
        assert pool.check_leaks() == []
        def a_leak_of_cupy(): return side("cupy").allocate(3 * MIB)
        def a_leak_of_numba(): return side("numba").allocate(4 * MIB)
        def a_leak_of_rmm(): return side("rmm").allocate(5 * MIB)
        def a_leak_of_allocate(): return pool.allocate(6 * MIB)
        held = {}
        for name in present("cupy", "numba"): held[name] = globals()[f"a_leak_of_{name}"]()
        if kind == "rmm": held["rmm"] = a_leak_of_rmm()
        held["allocate"] = a_leak_of_allocate()
        leaks = pool.check_leaks()
        for leak in leaks: print(leak)
        assert len(leaks) == len(held)
        sizes = {"cupy": 3 * MIB, "numba": 4 * MIB, "rmm": 5 * MIB, "allocate": 6 * MIB}
        for name, what in held.items():
            (leak,) = [leak for leak in leaks if leak.nbytes == sizes[name]]
            assert leak.device == 0
            assert leak.ptr == (what if name == "allocate" else side(name).pointer(what))
            if name == "rmm": assert leak.stack  # RMM's own stack
            else: assert f"a_leak_of_{name}" in leak.stack and leak.requester.startswith(name), leak
        pool.deallocate(held.pop("allocate"), 6 * MIB)
        held.clear(); what = None
        assert until(lambda: pool.check_leaks() == [])
        """,
        kind=kind,
    )


@pytest.mark.parametrize("kind", ["driver", "rmm"])
def test_scope_has_its_own_peak_and_leaks(run, kind: str) -> None:
    run(
        """
        import warnings
        pool = begin(kind)
        each = side("cupy")
        each.values(each.allocate(256 * MIB))  # a peak before the block
        kept = each.allocate(8 * MIB)
        settle()
        base = in_use(pool)
        with pool:
            x = each.allocate(64 * MIB)
            del x
            settle()
        scope = pool.scopes[0]
        print(scope)
        own = scope.stats.peak_bytes - base
        assert 64 * MIB <= own < 72 * MIB and scope.leaks == []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pool: left = each.allocate(5 * MIB)
        assert [w.category for w in caught] == [ResourceWarning], caught
        (leak,) = pool.scopes[0].leaks
        assert leak.nbytes >= 5 * MIB
        """,
        kind=kind,
    )


@pytest.mark.parametrize("kind", ["driver", "rmm", "rmm:async"])
def test_trim_returns_memory(run, kind: str) -> None:
    """By the device's own figure, with frameworks on the pool, which stays usable."""
    run(
        """
        pool = begin(kind, frameworks=present("cupy", "numba", "rmm"))
        takers = list(sides("cupy", "numba", "rmm"))
        for each in takers:
            x = each.allocate(256 * MIB)
            del x
            settle()
        assert until(lambda: in_use(pool) == 0)
        before = free()
        given = pool.trim()
        settle()
        print(f"trim() says {given}, the device has {free() - before} more")
        assert given >= 200 * MIB
        assert free() - before >= 200 * MIB
        for each in takers: moves(each, pool)
        """,
        kind=kind,
    )


@pytest.mark.parametrize("kind", ["driver", "rmm"])
def test_pool_works_without_frameworks(run, kind: str) -> None:
    """Without a context of a framework, memory stays valid from call to call."""
    run(
        """
        if kind != "driver": need("rmm")
        pool = zc.install_pool(kind, frameworks=())
        held = [pool.allocate(MIB) for _ in range(4)]
        assert len(set(held)) == 4 and pool.stats().current_bytes >= 4 * MIB
        for number, ptr in enumerate(held):
            with cuda_driver.on_device(0) as library:
                cuda_driver.call(library.cuMemsetD8_v2, ctypes.c_uint64(ptr), ctypes.c_ubyte(number), MIB)
        for number, ptr in enumerate(held):
            back = np.empty(MIB, np.uint8)
            cuda_driver.fetch(back.ctypes.data, ptr, MIB, 0, 1)
            assert (back == number).all()
            pool.deallocate(ptr, MIB)
        settle()
        assert pool.stats().current_bytes == 0
        if kind == "driver": assert threshold() == KEEP_ALL and reserved() >= 4 * MIB
        """,
        kind=kind,
    )


@pytest.mark.parametrize("kind", ["driver", "rmm", "custom"])
def test_any_code_can_allocate_from_the_pool(run, kind: str) -> None:
    """Any code can allocate, on any stream, and create an array over the memory."""
    run(
        """
        pool = begin(kind)
        cupy = side("cupy").module
        stream = cupy.cuda.Stream(non_blocking=True)
        for on in (None, 1, 2, stream.ptr, stream):
            ptr = pool.allocate(MIB, on)
            memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(ptr, MIB, pool), 0)
            with stream:
                x = cupy.ndarray(MIB, np.uint8, memory)
                x.fill(6)
                stream.synchronize()
                assert int(x.min()) == int(x.max()) == 6
            del x
            settle()
            pool.deallocate(ptr, MIB, on)
        settle()
        assert pool.stats().current_bytes < MIB
        if kind == "custom":
            pool.close()
            assert not [n for n in pool.settings.allocator.out.values() if n >= MIB]
        """,
        kind=kind,
    )


# -- managed and page-locked memory -------------------------------------------------------


def test_managed_memory_exceeds_free_memory(run) -> None:
    """A plain allocation fills the GPU; managed memory can still be allocated."""
    run(
        """
        pool = begin("managed", frameworks=("cupy", "rmm"))
        cupy = side("cupy")
        assert int(cupy.allocate(MIB, 5).sum(dtype=np.uint64)) == 5 * MIB
        settle()
        plain = DriverAllocator()
        size = free() - 512 * MIB
        ballast = plain.allocate(size, 0)
        try:
            refused(MemoryError, lambda: plain.allocate(1024 * MIB, 0))
            x = cupy.allocate(1024 * MIB, 5)
            assert pointer_attribute(cupy.pointer(x), 8) == 1  # CU_POINTER_ATTRIBUTE_IS_MANAGED
            assert int(x.sum(dtype=np.uint64)) == 5 * 1024 * MIB
        finally:
            plain.deallocate(ballast, size, 0)
        assert (cupy.values(x[-MIB:]) == 5).all()
        """
    )


def test_managed_memory_unsupported_is_an_error(run) -> None:
    run(
        """
        if pages_managed_memory(): skip("it has concurrent managed access")
        need("rmm")
        error = refused(zc.errors.PoolUnavailableError, lambda: zc.install_pool("managed"))
        assert "concurrent managed access" in str(error)
        """
    )


def test_managed_memory_is_prefetched(run) -> None:
    run(
        """
        pool = begin("managed", frameworks=("cupy", "rmm"))
        x = side("cupy").module.empty(64 * MIB, np.uint8)  # untouched memory
        settle()
        where = ctypes.c_int(-9)
        with cuda_driver.on_device(0) as library:
            at, size = ctypes.c_uint64(x.data.ptr), ctypes.c_size_t(64 * MIB)
            # 4 is CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, of as many bytes.
            code = library.cuMemRangeGetAttribute(ctypes.byref(where), ctypes.c_size_t(4), 4, at, size)
        assert (code, where.value) == (0, 0)
        """
    )


def test_pinned_memory_is_not_reused_while_a_copy_reads_it(run) -> None:
    """A copy on a non-blocking stream starts late; its source is dropped, and the next array is written.

    The same with an array that stays at its address, and is written, shows that the test detects the race.
    """
    run(
        """
        torch = side("torch").module
        if not hasattr(torch.cuda, "_sleep"): skip("this torch has no torch.cuda._sleep")
        pool = zc.install_pool("driver", host="pinned")
        other = torch.cuda.Stream()
        def late_copy(x):
            torch.cuda.synchronize()
            with torch.cuda.stream(other):
                torch.cuda._sleep(200_000_000)
                return torch.from_numpy(x).to("cuda", non_blocking=True)
        def filled(value):
            x = pool.pinned((4, MIB), "u1")
            x[...] = value
            return x
        x = filled(1)
        d, at = late_copy(x), x.ctypes.data
        del x
        gc.collect()
        y = filled(2)
        assert not other.query(), "the host waited for the copy"
        assert y.ctypes.data != at
        torch.cuda.synchronize()
        assert bool((d == 1).all())
        d = late_copy(y)
        y[...] = 3  # at once, which is an error of the program
        torch.cuda.synchronize()
        assert bool((d == 3).all()), "the copy was not late: the test shows nothing on this device"
        """
    )


def test_pinned_memory_is_page_locked_and_reused(run) -> None:
    """The driver reports it as page-locked, transfers are right, and memory is reused."""
    run(
        """
        pool = zc.install_pool("driver", host="pinned")
        x = pool.pinned((1024, 1024), "f4")
        flags = ctypes.c_uint()
        with cuda_driver.on_device(0) as library:
            locked = lambda a: library.cuMemHostGetFlags(ctypes.byref(flags), ctypes.c_void_p(a.ctypes.data))
            assert locked(x) == 0
            assert locked(np.empty((1024, 1024), "f4")) != 0
        assert pointer_attribute(x.ctypes.data, 2) == 1  # CU_MEMORYTYPE_HOST
        x[...] = np.arange(1024 * 1024).reshape(1024, 1024)
        back = pool.pinned((1024, 1024), "f4")
        for each in sides("torch", "cupy", "numba"):
            back[...] = 0
            if each.name == "torch":
                each.module.cuda.init()  # before, no memory is pinned (torch 2.11)
                assert each.module.from_numpy(x).is_pinned()
                d = each.module.from_numpy(x).to("cuda", non_blocking=True)
                each.module.from_numpy(back).copy_(d, non_blocking=True)
                each.module.cuda.synchronize()
            elif each.name == "cupy":
                d = each.module.empty((1024, 1024), "f4")
                d.set(x)
                d.get(out=back)
            else:
                d = each.module.to_device(x)
                d.copy_to_host(back)
            settle()
            assert (back == x).all(), each.name
        at = x.ctypes.data
        del x
        gc.collect()
        pool.report()  # takes the memory back, and marks the work that may still use it
        settle()
        again = pool.pinned((1024, 1024), "f4")
        assert again.ctypes.data == at
        print([line for line in pool.report().host])
        del again, back
        gc.collect()
        assert pool.trim() >= 8 * MIB
        """
    )
