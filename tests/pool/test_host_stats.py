"""Figures of host memory: ``pool.host_stats()``, and ``pool.stats()`` without a GPU."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from helpers.pool_stand_ins import LibcMemory

import zerocopy as zc
from zerocopy.pool.host import HostStats, PinnedPool, c_library
from zerocopy.pool.stats import host_sum

needs_glibc = pytest.mark.skipif(c_library.refusal() is not None, reason=str(c_library.refusal()))
MIB = 1 << 20

PROGRAM = """
import numpy as np
import zerocopy as zc
M = 1 << 20
pool = zc.install_pool(host={host!r}, frameworks=())
def figures(mode={mode!r}):
    return pool.host_stats()[mode]
"""


@needs_glibc
@pytest.mark.parametrize("mode", ["recycle", "aligned"])
def test_heap_is_counted_in_use_and_kept(run_python, mode: str) -> None:
    completed = run_python(
        PROGRAM.format(host=mode, mode=mode)
        + """
before = figures()
x = np.empty(64 * M, np.uint8)
during = figures()
del x
after = figures()
again = np.empty(60 * M, np.uint8)  # fits into the kept block, also with an aligned start
reused = figures()
print(during.in_use - before.in_use >= 64 * M, after.kept - during.kept >= 63 * M)  # or a small block is kept
print(abs(after.in_use - before.in_use) < M, after.peak >= after.in_use + after.kept >= 64 * M)
print(reused.peak == after.peak, after.kept - reused.kept >= 60 * M)
"""
    )
    assert completed.stdout == "True True\n" * 3, completed.stderr


@needs_glibc
def test_trim_lowers_kept_memory(run_python) -> None:
    completed = run_python(
        PROGRAM.format(host="recycle", mode="recycle")
        + """
x = np.ones(64 * M, np.uint8)
del x
kept, peak = figures().kept, figures().peak
print(pool.trim() > 60 * M, kept - figures().kept > 60 * M, figures().peak == peak)
"""
    )
    assert completed.stdout == "True True True\n", completed.stderr


@needs_glibc
def test_sum_counts_the_heap_once(run_python) -> None:
    completed = run_python(
        PROGRAM.format(host="aligned+recycle", mode="aligned")
        + """
from zerocopy.pool.host import HostStats
stats = pool.host_stats()
print(list(stats), stats["recycle"] == HostStats(), stats["aligned"].in_use > 0)
x = np.empty(64 * M, np.uint8)
one, total = figures(), pool.stats("host")
print(abs(total.current_bytes - one.in_use) < M, abs(total.reserved_bytes - one.in_use - one.kept) < M)
print(total.current_bytes <= total.reserved_bytes <= total.peak_bytes)
if not pool.devices: assert abs(pool.stats().current_bytes - total.current_bytes) < M
pool.close()
print(set(pool.host_stats().values()) == {HostStats()}, pool.stats("host").reserved_bytes)
"""
    )
    expected = "['aligned', 'recycle'] True True\nTrue True\nTrue\nTrue None\n"
    assert completed.stdout == expected, completed.stderr


@needs_glibc
def test_figures_are_right_while_threads_allocate(run_python) -> None:
    completed = run_python(
        PROGRAM.format(host="recycle", mode="recycle")
        + """
import threading
done = threading.Event()
def work():
    while not done.is_set():
        for size in (100, 5000, 3 * M):
            np.empty(size, np.uint8)[:1] = 1
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
good = all(s.peak >= s.in_use + s.kept and s.in_use > 0 for s in (figures() for _ in range(300)))
done.set()
for thread in threads: thread.join()
print(good)
"""
    )
    assert completed.stdout == "True\n", completed.stderr


def test_without_modes_the_process_is_reported() -> None:
    pool = zc.install_pool(host="off")
    try:
        assert pool.host_stats() == {}
        stats = pool.stats("host")
        assert stats.reserved_bytes is None
        assert 0 < stats.current_bytes <= stats.peak_bytes
    finally:
        pool.close()


def test_sum_ignores_modes_that_do_not_count() -> None:
    assert host_sum({}) is None
    assert host_sum({"a": HostStats()}) is None
    total = host_sum({"a": HostStats(1, 2, 4), "b": HostStats(), "c": HostStats(10, 0, 10)})
    assert total is not None
    assert (total.current_bytes, total.reserved_bytes, total.peak_bytes) == (11, 13, 14)


def test_pinned_pool_counts_exactly() -> None:
    pool = PinnedPool(LibcMemory())
    assert pool.figures() == (0, 0, 0)
    x, y = pool.empty(MIB, "u1"), pool.empty(2 * MIB, "u1")
    assert pool.figures() == (3 * MIB, 0, 3 * MIB)
    del x
    gc.collect()
    assert pool.figures() == (2 * MIB, MIB, 3 * MIB)
    x = pool.empty(MIB, "u1")  # reuses the kept block
    assert pool.figures() == (3 * MIB, 0, 3 * MIB)
    del x, y
    gc.collect()
    assert pool.trim() == 3 * MIB
    assert pool.figures() == (0, 0, 3 * MIB)


def test_pinned_pool_counts_in_threads() -> None:
    pool = PinnedPool(LibcMemory())

    def work() -> None:
        for size in range(1, 200):
            pool.empty(size * 1000, "u1")
            np.asarray(pool.empty(size * 1000, "u1"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    in_use, kept, peak = pool.figures()
    assert in_use == 0
    assert kept == pool.trim()
    assert 0 < kept <= peak
    assert pool.figures() == (0, 0, peak)
