"""``read_pool``: the figures of the installed pool, by framework, without imports and without CUDA."""

from __future__ import annotations

import gc
import json
import threading

import pytest
from helpers.pool_stand_ins import FakeDriver, HostAllocator

import zerocopy as zc
from zerocopy.monitor import sample
from zerocopy.monitor.process_record import read_pool
from zerocopy.pool import install
from zerocopy.pool.gpus import GPU
from zerocopy.pool.hook import Block
from zerocopy.pool.host import c_library
from zerocopy.pool.stats import AllocationTracker
from zerocopy.protocols import cuda_driver

MIB = 1 << 20


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(cuda_driver, "driver", lambda: fake)
    monkeypatch.setattr(cuda_driver, "hold", lambda device: fake.held.append(device))
    monkeypatch.setattr(install, "visible_gpus", lambda: ([GPU(0, "stand-in", 1 << 30)], None))
    return fake


def checked():
    """Return a record that has the fields of its types, and is JSON."""
    record = read_pool()
    assert record.keys() == sample.PoolRecord.__annotations__.keys()
    for rows, kind in (
        (record["devices"], sample.PoolDevice),
        (record["host"], sample.HostMode),
        (record["frameworks"], sample.PoolFramework),
    ):
        assert all(row.keys() == kind.__annotations__.keys() for row in rows.values())
    assert json.loads(json.dumps(record)) == record
    return record


def test_without_a_pool_nothing_is_imported(run_python) -> None:
    completed = run_python(
        """
        import sys
        from zerocopy.monitor.process_record import read_pool
        record = read_pool()
        print(repr(record["kind"]), "no pool is installed" in record["why_not"], record["devices"])
        print([name for name in sys.modules if name.startswith("zerocopy.pool")])
        """
    )
    assert completed.stdout == "'' True {}\n[]\n", completed.stderr


def test_closed_pool_is_no_pool() -> None:
    zc.install_pool(host="off").close()
    assert checked()["kind"] == ""


def test_pool_without_a_gpu_gives_the_reason() -> None:
    with zc.install_pool(host="off") as pool:
        record = checked()
        assert record["kind"] == pool.kind
        assert bool(record["why_not"]) == (pool.kind == "none")
        assert set(record["frameworks"]) == {row.framework for row in pool.report()}
    pool.close()


@pytest.mark.skipif(c_library.refusal() is not None, reason=str(c_library.refusal()))
def test_host_modes(run_python) -> None:
    completed = run_python(
        """
        import numpy as np
        import zerocopy as zc
        from zerocopy.monitor.process_record import read_pool
        pool = zc.install_pool(host="recycle", frameworks=())
        before = read_pool()["host"]["recycle"]
        x = np.empty(64 << 20, np.uint8)
        after = read_pool()["host"]["recycle"]
        # Python may free other memory of the heap meanwhile.
        print(after["in_use"] - before["in_use"] >= 60 << 20, after["peak"] >= after["in_use"])
        """
    )
    assert completed.stdout == "True True\n", completed.stderr


def test_device_figures_of_a_custom_allocator() -> None:
    pytest.importorskip("rmm")
    host = HostAllocator()
    pool = zc.install_pool(allocator=host, frameworks=(), limit="8MiB", track=True)
    try:
        ptr = pool.allocate(MIB)
        other = pool.allocate(2 * MIB)
        pool.deallocate(other, 2 * MIB)
        with pool:
            record = checked()
        device = record["devices"]["0"]
        assert (device["in_use"], device["peak"], device["limit"]) == (MIB, 3 * MIB, 8 * MIB)
        assert device["fragmentation"] is None
        assert record["frameworks"]["allocate()"]["in_use"] == MIB
        assert record["frameworks"]["cupy"]["in_use"] is None  # RMM does not name its callers
        pool.set_limit("4MiB")
        assert checked()["devices"]["0"]["limit"] == 4 * MIB
        pool.deallocate(ptr, MIB)
        assert checked()["frameworks"]["allocate()"]["in_use"] == 0
    finally:
        pool.close()
        gc.collect()
    assert host.out == {}


def test_use_by_framework(driver) -> None:
    pool = zc.install_pool("driver", frameworks=(), track=True)
    try:
        assert driver.calls == []
        assert checked()["devices"]["0"]["in_use"] == 0
        assert driver.calls == []  # no context was created
        base = pool._memory
        blocks = {name: [Block(base, MIB, 1, 0, name) for _ in range(3)] for name in ("cupy", "numba")}
        ptr = pool.allocate(100)
        frameworks = checked()["frameworks"]
        assert {name: frameworks[name]["in_use"] for name in ("cupy", "numba", "allocate()", "torch")} == {
            "cupy": 3 * MIB,
            "numba": 3 * MIB,
            "allocate()": 100,
            "torch": None,
        }
        blocks["cupy"].pop()
        pool.deallocate(ptr, 100)
        frameworks = checked()["frameworks"]
        assert [frameworks[name]["in_use"] for name in ("cupy", "numba", "allocate()")] == [
            2 * MIB,
            3 * MIB,
            0,
        ]
        blocks.clear()
    finally:
        pool.close()


def test_frameworks_of_an_untracked_pool_are_unknown(driver) -> None:
    pool = zc.install_pool("driver", frameworks=())
    try:
        frameworks = checked()["frameworks"]
        assert frameworks
        assert all(row["in_use"] is None for row in frameworks.values())
    finally:
        pool.close()


def test_tracker_sums_in_threads_and_finalizers() -> None:
    tracker = AllocationTracker()

    class Held:
        def __init__(self, ptr: int) -> None:
            self.cycle, self.ptr = self, ptr
            tracker.record(0, ptr, 10, "a")

        def __del__(self) -> None:
            tracker.remove(0, self.ptr)

    def work(first: int) -> None:
        for ptr in range(first, first + 500):
            Held(ptr)  # freed by the garbage collector, at any point
            tracker.record(0, -ptr, 1, "b")
            if ptr % 2:
                tracker.remove(0, -ptr)

    threads = [threading.Thread(target=work, args=(1 + 1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert all(total >= 0 for total in tracker.totals().values())
    for thread in threads:
        thread.join()
    gc.collect()
    assert tracker.totals() == {"b": 4 * 250}
    assert sum(leak.nbytes for leak in tracker.outstanding(0)) == 4 * 250


def test_address_that_is_used_again_counts_once() -> None:
    """A free that the pool did not see: its address comes back with another size."""
    tracker = AllocationTracker()
    tracker.record(0, 1, 100, "a")
    tracker.record(0, 1, 7, "b")
    assert tracker.totals() == {"b": 7}
    tracker.prune(0, set(), tracker.number)
    assert tracker.totals() == {}
