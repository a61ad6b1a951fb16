"""RMM's kinds over host memory: chains, limits, statistics, trimming, and interpreter exit."""

from __future__ import annotations

import gc

import pytest
from helpers.pool_stand_ins import HostAllocator

import zerocopy as zc
from zerocopy.pool import rmm_pool
from zerocopy.pool.limits import Limit
from zerocopy.pool.rmm_pool import RMMPool
from zerocopy.pool.settings import Settings

mr = pytest.importorskip("rmm.mr")
MIB = 1 << 20
#: Kinds with an upstream resource; arenas call the driver for the size of the GPU.
KINDS = ("rmm", "rmm:binning", "managed")


@pytest.fixture
def host():
    return HostAllocator()


@pytest.fixture
def make(host):
    pools = []

    def build(kind="rmm", cap=None, **options):
        upstream = mr.CallbackMemoryResource(
            lambda n, stream: host.allocate(n, 1), lambda p, n, stream: host.deallocate(p, n, 1)
        )
        limit = None if cap is None else Limit(cap, "limit=")
        pools.append(RMMPool(0, Settings.read(kind, **options), limit, upstream))
        return pools[-1]

    yield build
    while pools:
        pools.pop().release(False)
    gc.collect()
    assert host.out == {}


def test_pool_calls_its_upstream_rarely(make, host) -> None:
    pool = make(initial=MIB)
    assert list(host.out.values()) == [MIB]
    for _ in range(100):
        pool.deallocate(pool.allocate(4096, 1), 4096, 1)
    assert list(host.out.values()) == [MIB]
    assert pool.stats().reserved_bytes == MIB


def test_initial_size_is_rounded_to_alignment(make, host) -> None:
    make(initial=1000)
    assert list(host.out.values()) == [1024]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("track", [False, True])
def test_allocate_and_free(make, kind: str, track: bool) -> None:
    if kind == "managed":
        pytest.skip("prefetching calls the driver")
    pool = make(kind, track=track)
    sizes = [1, 255, 256, 257, 4096, MIB, 5 * MIB]
    blocks = [(pool.allocate(size, 1), size) for size in sizes]
    assert pool.stats().current_bytes == sum(sizes)
    assert pool.stats().current_count == len(sizes)
    assert all(ptr % 256 == 0 for ptr, _ in blocks)
    if track:
        assert sorted(leak.nbytes for leak in pool.outstanding()) == sizes
        assert {leak.ptr for leak in pool.outstanding()} == {ptr for ptr, _ in blocks}
        assert all("rmm" in leak.stack for leak in pool.outstanding())
    for ptr, size in blocks:
        pool.deallocate(ptr, size, 1)
    assert pool.stats().current_bytes == 0
    assert pool.outstanding() == []


@pytest.mark.parametrize("cap", [MIB, MIB + 1, MIB + 255])
def test_limit_bounds_reserved_memory(make, host, cap: int) -> None:
    pool = make(cap=cap)
    blocks = [pool.allocate(64 << 10, 1) for _ in range(16)]
    with pytest.raises(MemoryError):
        pool.allocate(64 << 10, 1)
    assert sum(host.out.values()) <= cap
    assert pool.in_use() == MIB
    pool.deallocate(blocks.pop(), 64 << 10, 1)
    blocks.append(pool.allocate(64 << 10, 1))
    for ptr in blocks:
        pool.deallocate(ptr, 64 << 10, 1)


def test_trim_frees_unused_pool(make, host) -> None:
    pool = make()
    ptr = pool.allocate(MIB, 1)
    taken = sum(host.out.values())
    assert pool.trim() == 0  # some of it is in use
    assert sum(host.out.values()) == taken
    pool.deallocate(ptr, MIB, 1)
    assert pool.trim() == taken
    assert host.out == {}
    pool.deallocate(pool.allocate(8, 1), 8, 1)


def test_buffer_outlives_pool(make, host) -> None:
    import rmm

    pool = make()
    buffer = rmm.DeviceBuffer(size=100, mr=pool.resource(mr))
    taken = dict(host.out)
    pool.release(False)
    gc.collect()
    assert taken == host.out
    assert pool.stats().current_bytes == 100
    del buffer
    assert pool.stats().current_bytes == 0
    pool.release(False)


@pytest.mark.hazard("robustness#bins-of-rmm")
@pytest.mark.parametrize("cap", [None, MIB, 8 * MIB, 100 * MIB, 4096 * MIB])
def test_bins_take_a_part_of_the_limit(make, cap) -> None:
    """RMM's own bins take 992 MiB when they are created, more than a small limit has."""
    taken = sum(size * blocks for size, blocks in rmm_pool.bins(cap))
    assert taken <= min(128 * MIB, (cap or 4096 * MIB) // 8)
    assert (taken > 0) == (cap != MIB)
    pool = make("rmm:binning", cap=cap)
    large = (cap or 64 * MIB) // 2 if cap != 4096 * MIB else 64 * MIB
    blocks = [(pool.allocate(size, 1), size) for size in (1000, 200_000, 400_000)]
    for ptr, size in blocks:
        pool.deallocate(ptr, size, 1)
    if cap != MIB:
        pool.deallocate(pool.allocate(large, 1), large, 1)
    assert pool.stats().current_bytes == 0


def test_unavailable_without_driver() -> None:
    from zerocopy.pool.gpus import visible_gpus

    if visible_gpus()[0]:
        pytest.skip("there is a GPU")
    for kind in ("rmm", "rmm:async", "managed"):
        # on_device() raises first; RMM itself raises MemoryError (rmm, prototypes).
        with pytest.raises((zc.errors.PoolUnavailableError, zc.DeviceError), match="NVIDIA driver"):
            RMMPool(0, Settings.read(kind), None)


def test_stats_survive_trim_in_block(make, host) -> None:
    from zerocopy.pool.stats import StatsRecorder

    pool = make(cap=8 * MIB)
    line = StatsRecorder(pool)
    ptr = pool.allocate(6 * MIB, 1)
    span = line.begin()
    assert pool.trim() == 0
    with pytest.raises(MemoryError):
        pool.allocate(6 * MIB, 1)
    pool.deallocate(ptr, 6 * MIB, 1)
    assert line.end(span).current_bytes == 0
    assert pool.trim() > 0
    assert line.stats().peak_bytes == 6 * MIB  # since the beginning, in spite of trim()


def test_trim_without_memory_for_second_pool(host, make, monkeypatch) -> None:
    pool = make(initial=MIB)
    ptr = pool.allocate(2 * MIB, 1)
    pool.deallocate(ptr, 2 * MIB, 1)

    def refuse(nbytes, stream):
        raise MemoryError

    monkeypatch.setattr(host, "allocate", refuse)
    assert pool.trim() == 0
    monkeypatch.undo()
    pool.deallocate(pool.allocate(2 * MIB, 1), 2 * MIB, 1)
    assert pool.trim() > 0


def test_full_device_is_not_a_limit_error(host) -> None:
    class Full(HostAllocator):
        def allocate(self, nbytes, stream):
            if nbytes > MIB:
                raise MemoryError("the device has no more")
            return super().allocate(nbytes, stream)

    pool = zc.install_pool(allocator=Full(), limit="64MiB")
    with pytest.raises(MemoryError, match="the device has no more") as caught:
        pool.allocate(2 * MIB)
    assert not isinstance(caught.value, zc.errors.PoolLimitError)
    pool.close()
