"""``pool.set_limit()`` and the monitor's figures of a pool on a GPU."""

from __future__ import annotations

import pytest
from helpers.gpu_pool_processes import MARKS, Run, programs

pytestmark = MARKS


@pytest.fixture
def run(run_python: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    return programs(run_python, monkeypatch)


@pytest.mark.parametrize("name", ["allocate()", "cupy", "numba", "rmm"])
def test_limit_of_a_custom_allocator_changes_while_arrays_are_alive(run, name: str) -> None:
    run(
        """
        need("rmm")
        pool = begin("custom", limit="32MiB")
        allocate = pool.allocate if name == "allocate()" else side(name).allocate
        x = allocate(24 * MIB)
        kind = MemoryError if name == "rmm" else zc.errors.PoolLimitError  # users of RMM get RMM's error
        refused(kind, lambda: allocate(24 * MIB))
        pool.set_limit("64MiB")
        y = allocate(24 * MIB)
        pool.set_limit("16MiB")  # less than the memory in use
        assert in_use(pool) >= 48 * MIB
        refused(kind, lambda: allocate(MIB))
        if name == "allocate()": pool.deallocate(x, 24 * MIB), pool.deallocate(y, 24 * MIB)
        del x, y
        assert until(lambda: in_use(pool) <= MIB)
        z = allocate(8 * MIB)
        if name == "allocate()": pool.deallocate(z, 8 * MIB)
        """,
        name=name,
    )


@pytest.mark.parametrize("kind", ["rmm", "rmm:async"])
def test_idle_pool_is_replaced(run, kind: str) -> None:
    """The frameworks allocate from the new pool, and the device has the memory of the old one again."""
    run(
        """
        pool = begin(kind, limit="512MiB")
        for each in sides("cupy", "numba", "rmm"):
            x = each.allocate(256 * MIB)
            error = refused(RuntimeError, lambda: pool.set_limit("64MiB"))
            assert error.code == "pool-in-use", error
            del x
            assert until(lambda: in_use(pool) == 0)
            before = free()
            pool.set_limit("64MiB")
            print(each.name, free() - before)
            kind_of_error = MemoryError if each.name == "rmm" else zc.errors.PoolLimitError
            refused(kind_of_error, lambda: each.allocate(128 * MIB))
            x = each.allocate(32 * MIB, 7)
            assert in_use(pool) >= 32 * MIB
            assert (each.values(x) == 7).all()
            del x
            assert until(lambda: in_use(pool) == 0)
            pool.set_limit("512MiB")
        """,
        kind=kind,
    )


def test_percent_is_of_the_whole_gpu(run) -> None:
    run(
        """
        pool = begin("rmm")
        pool.set_limit("25%")
        total = cuda_driver.memory_info(0)[1]
        assert abs(pool.limits[0].nbytes - total / 4) < total / 50, (pool.limits, total)
        """
    )


def test_limit_of_page_locked_memory(run) -> None:
    run(
        """
        pool = zc.install_pool("driver", host="pinned")
        x, y = pool.pinned(8 * MIB, "u1"), pool.pinned(8 * MIB, "u1")
        stats = pool.host_stats()["pinned"]
        assert (stats.in_use, stats.kept, stats.peak) == (16 * MIB, 0, 16 * MIB), stats
        pool.set_limit(8 * MIB, device="host")
        del x, y
        gc.collect()
        assert pool.host_stats()["pinned"].kept == 8 * MIB
        pool.set_limit(0, device="host")
        assert pool.host_stats()["pinned"].kept == 0
        """
    )


def test_monitor_reads_the_pool_without_a_context(run) -> None:
    run(
        """
        from zerocopy.monitor.process_record import read_pool
        pool = begin("driver", track=True)
        assert read_pool()["devices"]["0"]["in_use"] == 0
        assert not cuda_pool.has_context(0)
        for each in sides("cupy", "numba"):
            before = read_pool()["frameworks"][each.name]["in_use"]
            x = each.allocate(16 * MIB)
            record = read_pool()
            assert record["frameworks"][each.name]["in_use"] - before >= 16 * MIB, record
            assert record["devices"]["0"]["in_use"] >= 16 * MIB, record
            del x
            assert until(lambda: read_pool()["frameworks"][each.name]["in_use"] == before)
        """
    )
