"""The pool on a GPU: every kind with every framework, sharing, and the order of imports.

    python -m pytest tests/gpu/test_pool.py tests/gpu/test_pool_*.py

Each test is a program that uses the names of `gpu_pool_programs`. ``-rP`` shows the figures that
they print and do not check.
"""

from __future__ import annotations

import pytest
from helpers.gpu_pool_processes import MARKS, Run, programs

pytestmark = MARKS


@pytest.fixture
def run(run_python: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    return programs(run_python, monkeypatch)


KINDS = ("driver", "rmm", "rmm:arena", "rmm:binning", "rmm:async", "managed", "custom")


@pytest.mark.parametrize("kind", KINDS)
def test_every_framework_allocates_from_the_pool(run, kind: str) -> None:
    run(
        """
        pool = begin(kind, strict=kind == "driver")  # the kind that all can use
        for each in sides():
            each.values(each.allocate(1))  # JAX and TensorFlow read their variables here
            row = pool.report()[each.name]
            if each.name in ("jax", "tensorflow") and kind != "driver":
                assert row.status == "unsupported" and "no external allocator" in row.detail, row
                continue
            assert row.status == "installed", row
            moves(each, pool)
        print(pool.report())
        """,
        kind=kind,
    )


def test_freed_memory_is_shared_between_frameworks(run) -> None:
    """The same address, or at least no more memory from the device."""
    run(
        """
        pool = begin("driver")
        takers = [each for each in sides() if each.name != "tensorflow"]
        if len(takers) < 2: skip("sharing needs two frameworks")
        for each in takers: moves(each, pool)
        size, same = 64 * MIB, 0
        for first in takers:
            for then in takers:
                x = first.allocate(size)
                at = first.pointer(x)
                before = used()
                del x
                assert until(lambda: used() <= before - size), first.name
                held = reserved()
                y = then.allocate(size, 3)
                settle()
                same += then.pointer(y) == at
                assert then.pointer(y) == at or reserved() <= held, (first.name, then.name)
                assert (then.values(y) == 3).all(), (first.name, then.name)
                del y
                settle()
        print(f"{same} of {len(takers) ** 2} at the same address, {reserved() / MIB:.0f} MiB in all")
        assert pool.stats().reserved_bytes == reserved()
        """
    )


def test_release_threshold_survives_all_frameworks(run) -> None:
    """torch, XLA and CuPy each write it; freed memory must stay in the pool."""
    run(
        """
        pool = begin("driver")
        pool.deallocate(pool.allocate(1), 1)
        assert threshold() == KEEP_ALL
        for each in sides():
            each.values(each.allocate(MIB))
            print(f"after {each.name}: {threshold()}" + (" (all)" if threshold() == KEEP_ALL else ""))
        pool.refresh()
        assert threshold() == KEEP_ALL
        before = used()
        for each in sides():
            x = each.allocate(256 * MIB)
            del x
            assert until(lambda: used() < before + MIB), each.name
            assert reserved() >= 256 * MIB, f"{each.name}: what it freed went back to the device"
        """
    )


def test_custom_release_threshold_is_kept(run) -> None:
    """It is in place after all are used, or after refresh(); it does not limit any framework.

    CuPy's MemoryAsyncPool writes its own into the pool when it is made, and takes what it finds
    there for its limit (cupy/cuda/memory.pyx).
    """
    run(
        """
        pool = begin("driver", release_threshold="128MiB")
        takers = list(sides())
        for each in takers: each.values(each.allocate(MIB))
        print(f"after all: {threshold()}")
        pool.refresh()
        assert threshold() == 128 * MIB
        before = used()
        for each in takers:
            x = each.allocate(384 * MIB, 5)  # more than the threshold
            assert each.values(x)[-1] == 5
            del x
            assert until(lambda: used() < before + MIB), each.name
            assert until(lambda: reserved() < 384 * MIB), f"{each.name}: {reserved()} bytes are kept"
        """
    )


def test_unused_memory_is_kept(run) -> None:
    """Without frameworks: kept by default, returned with a threshold of 0."""
    run(
        """
        keep_context()
        for asked, kept in ((None, True), (0, False)):
            pool = zc.install_pool("driver", frameworks=(), release_threshold=asked)
            ptr = pool.allocate(256 * MIB)
            before = free()
            pool.deallocate(ptr, 256 * MIB)
            settle()
            assert (reserved() >= 256 * MIB) == kept, (asked, reserved())
            assert (free() < before + 200 * MIB) == kept, asked
            pool.close()
        """
    )


def test_driver_is_not_called_before_allocation(run) -> None:
    run(
        """
        pool = begin("driver")
        print(pool.report()); pool.trim(); pool.refresh(); pool.check_leaks()
        with pool: pass
        context = ctypes.c_void_p()
        code = ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
        assert code == 3, f"CUDA_ERROR_NOT_INITIALIZED is 3, it is {code}"
        name, total = cuda_driver.name_and_memory(0) if cuda_driver.missing() is None else (None, 0)
        assert pool._memory.gpus[0].name.startswith(name) or name.startswith(pool._memory.gpus[0].name)
        print(f"NVML: {pool._memory.gpus[0].total} bytes, CUDA: {total}")
        assert abs(pool._memory.gpus[0].total - total) <= total * 0.02
        """
    )


@pytest.mark.parametrize("kind", ["driver", "rmm"])
def test_frameworks_imported_before_installation_are_attached(run, kind: str) -> None:
    """Imported and not used: all but torch's backend can still be attached."""
    run(
        """
        takers = list(sides("cupy", "numba", "rmm", "torch"))
        if present("jax"): import jax
        pool = begin(kind)
        report = pool.report()
        print(report)
        for each in takers:
            if each.name == "torch" and kind == "driver":
                assert report["torch"].status == "too_late"
                assert "before import torch" in report["torch"].remedy
            else:
                assert report[each.name].status == "installed", report[each.name]
                moves(each, pool)
        if present("jax") and kind == "driver" and side("jax"):
            side("jax").values(side("jax").allocate(1))
            assert pool.report()["jax"].status == "installed"
            moves(side("jax"), pool)
        """,
        kind=kind,
    )


@pytest.mark.parametrize("name", ["torch", "numba", "jax", "tensorflow"])
def test_late_installation_is_reported(run, name: str) -> None:
    """After a first allocation: the report has the remedy; strict changes nothing."""
    run(
        """
        each = side(name)
        x = each.allocate(MIB, 3)
        others = [other for other in present("cupy", "rmm")]
        for other in others: importlib.import_module(other if other != "rmm" else "rmm.mr")
        def state():
            cupy, rmm, numba = (sys.modules.get(n) for n in ("cupy", "rmm", "numba.cuda.cudadrv.driver"))
            return [
                dict(os.environ),
                cupy and cupy.cuda.get_allocator(),
                rmm and type(rmm.mr.get_per_device_resource(0)),
                numba and numba._memory_manager,
                [name in sys.modules for name in (*ALL, "cudf", "numba.cuda")],
                install.installed_pool(),
                sys.meta_path[:],
            ]
        before = state()
        error = refused(
            zc.errors.PoolTooLateError,
            lambda: zc.install_pool("driver", frameworks=[*others, name], strict=True),
        )
        print(error)
        assert name in str(error) and "before" in str(error)
        assert state() == before
        pool = zc.install_pool("driver", frameworks=[*others, name])
        row = pool.report()[name]
        assert row.status == "too_late" and "before" in row.remedy, row
        assert (each.values(x) == 3).all() and (each.values(each.allocate(MIB, 4)) == 4).all()
        for other in others: moves(side(other), pool)
        """,
        name=name,
    )


def test_torch_on_rmm_attaches_until_first_tensor(run) -> None:
    run(
        """
        need("rmm")
        torch = side("torch").module  # only queried for a GPU
        if torch.cuda.is_initialized(): skip("is_available() has initialised torch")
        pool = begin("rmm", strict=True, frameworks=("torch", "rmm"))
        assert pool.report()["torch"].status == "installed"
        assert "record_stream() does nothing" in pool.report()["torch"].detail
        moves(side("torch"), pool)
        """
    )
    run(
        """
        need("rmm")
        x = side("torch").allocate(MIB, 3)
        pool = begin("rmm")
        row = pool.report()["torch"]
        assert row.status == "too_late" and "before the first tensor is on a GPU" in row.remedy
        before = in_use(pool)
        y = side("torch").allocate(8 * MIB, 4)
        assert in_use(pool) == before  # it keeps its own allocator
        assert (side("torch").values(x) == 3).all()
        """
    )


def test_cupy_arrays_outlive_allocator_change(run) -> None:
    """CuPy is never too late: existing arrays keep their memory."""
    run(
        """
        cupy = side("cupy")
        before = cupy.allocate(8 * MIB, 3)
        own = cupy.module.cuda.get_allocator()
        pool = begin("driver", strict=True, frameworks="cupy")
        moves(cupy, pool)
        assert (cupy.values(before) == 3).all()
        del before
        settle()
        pool.close()
        assert cupy.module.cuda.get_allocator() == own
        """
    )


@pytest.mark.parametrize("kind", ["driver", "rmm"])
@pytest.mark.parametrize("first", ["pool", "cudf"])
def test_import_order_of_cudf(run, kind: str, first: str) -> None:
    """Its import sets RMM's plain allocators in CuPy and Numba, which are attached again."""
    run(
        """
        need("cudf")
        if first == "cudf": import cudf
        pool = begin(kind, frameworks=[*present(), "cudf"])
        import cudf
        print(pool.report())
        for name in ("cudf", "cupy", "numba", "rmm"):
            assert pool.report()[name].status == "installed", pool.report()
        before = in_use(pool)
        column = cudf.Series(np.arange(MIB))
        assert in_use(pool) >= before + 8 * MIB
        assert column.sum() == MIB * (MIB - 1) // 2
        for each in sides("cupy", "numba", "rmm"): moves(each, pool)
        """,
        kind=kind,
        first=first,
    )


def test_variable_installs_pool(run) -> None:
    pytest.importorskip("rmm")
    run(
        """
        pool = install.installed_pool()
        assert pool is zc.install_pool() and pool.kind == "rmm" and pool.limits[0].nbytes == 256 * MIB
        for each in sides("cupy", "numba", "rmm"): moves(each, pool)
        """,
        ZEROCOPY_POOL="rmm,limit=256MiB",
    )


def test_pool_serves_a_second_device(run) -> None:
    run(
        """
        if cuda_driver.count() < 2: skip("there is one device")
        cupy = side("cupy").module
        pool = begin("driver", frameworks="cupy")
        for device in (0, 1):
            with cupy.cuda.Device(device):
                before = [pool.stats(d).current_bytes for d in (0, 1)]
                x = cupy.zeros(8 * MIB, np.uint8)
                more = [pool.stats(d).current_bytes - b for d, b in zip((0, 1), before)]
                assert more[device] >= 8 * MIB and more[1 - device] == 0
        """
    )
