"""`PinnedPool` over ordinary memory: lifetimes, threads, forks, interpreter exit."""

import gc
import threading

import numpy as np
import pytest
from helpers.pool_stand_ins import LibcMemory
from hypothesis import given, settings, strategies as st

from zerocopy.errors import OptionError, PoolClosedError, PoolLimitError
from zerocopy.pool.host import PinnedPool
from zerocopy.pool.host.page_locked import size_class

MIB = 1 << 20


class Counted(LibcMemory):
    """Ordinary memory that is counted and limited."""

    def __init__(self, most: int = 1 << 40) -> None:
        super().__init__()
        self.most = most
        self.out: dict[int, int] = {}
        self.taken = 0

    def allocate(self, nbytes: int) -> int:
        if sum(self.out.values()) + nbytes > self.most:
            raise MemoryError(f"{nbytes} bytes")
        ptr = super().allocate(nbytes)
        self.out[ptr] = nbytes
        self.taken += 1
        return ptr

    def free(self, ptr: int, nbytes: int) -> None:
        assert self.out.pop(ptr) == nbytes
        super().free(ptr, nbytes)


@pytest.fixture
def source():
    return Counted()


@pytest.fixture
def pool(source):
    return PinnedPool(source)


@settings(deadline=None)
@given(st.integers(0, 1 << 45))
def test_size_classes_are_tight(nbytes):
    size = size_class(nbytes)
    assert size >= nbytes
    assert size % 4096 == 0
    assert size <= max(4096, nbytes + max(4096, nbytes // 4))
    assert size_class(size) == size


def test_freed_block_is_reused(pool, source):
    first = pool.empty(10 * MIB, "u1")
    address = first.ctypes.data
    assert address % 64 == 0
    assert (pool.in_use, pool.kept) == (10 * MIB, 0)
    del first
    assert (pool.in_use, pool.kept) == (0, 10 * MIB)
    again, other = pool.empty(10 * MIB - 5, "u1"), pool.empty(10 * MIB, "u1")
    assert (again.ctypes.data == address, other.ctypes.data == address) == (True, False)
    assert source.taken == 2


def test_trim_frees_kept_blocks_only(pool, source):
    held = pool.empty(MIB, "u1")
    held.fill(3)
    for n in (100, 5000, MIB, 3 * MIB):
        pool.empty(n, "u1")
    kept = pool.kept
    assert pool.trim() == kept == size_class(100) + size_class(5000) + MIB + 3 * MIB
    assert list(source.out.values()) == [MIB]
    assert pool.trim() == 0
    assert (held == 3).all()


@pytest.mark.parametrize("dtype", ["f4", "u1", "c16", "M8[ns]", "S3", [("a", "i1"), ("b", "f8")]])
@pytest.mark.parametrize("shape", [10, (3, 5), (2, 3, 4), (), (0, 3)])
def test_array_has_the_requested_shape_dtype_and_flags(pool, shape, dtype):
    x = pool.empty(shape, dtype)
    like = np.empty(shape, dtype)
    assert (x.shape, x.dtype, x.strides) == (like.shape, like.dtype, like.strides)
    assert x.flags.writeable
    assert x.flags.c_contiguous
    assert x.ctypes.data % 64 == 0 or not x.size
    x[...] = np.zeros(shape, dtype)
    assert (x == np.zeros(shape, dtype)).all()
    assert bool(pool.in_use) == bool(x.size)
    del x
    assert pool.in_use == 0


def test_views_keep_memory_alive(pool):
    x = pool.empty((4, MIB), "u1")
    x[:] = np.arange(4, dtype="u1")[:, None]
    views = [x[1], x.T[5:], x.view("u2"), memoryview(x), np.asarray(x[2]).reshape(2, -1)]
    del x
    while views:
        assert pool.in_use == 4 * MIB
        gc.collect()
        other = pool.empty(4 * MIB, "u1")
        assert not any(np.shares_memory(other, np.asarray(view)) for view in views)
        del other
        views.pop(0)
    assert pool.in_use == 0


def test_other_frameworks_keep_memory_alive(pool):
    torch = pytest.importorskip("torch")
    import zerocopy as zc

    t = zc.convert(pool.empty(MIB, "f4"), to="torch", copy=False)
    gc.collect()
    assert pool.in_use == 4 * MIB
    t += 1
    assert torch.is_tensor(t)
    del t
    gc.collect()
    assert pool.in_use == 0


def test_array_in_cycle_is_returned(pool):
    class Node:
        pass

    node = Node()
    node.self, node.array = node, pool.empty(MIB, "u1")
    del node
    gc.collect()
    assert (pool.in_use, pool.kept) == (0, MIB)


def test_garbage_collection_inside_pool_does_not_deadlock(pool):
    """A garbage collection may run inside any call, with the lock held, and free arrays of the pool."""

    class Collecting(LibcMemory):
        def allocate(self, nbytes):
            gc.collect()
            return super().allocate(nbytes)

    pool = PinnedPool(Collecting())
    cycle = [pool.empty(MIB, "u1")]
    cycle.append(cycle)
    del cycle
    completed, held = threading.Event(), []
    thread = threading.Thread(
        target=lambda: (held.append(pool.empty(3 * MIB, "u1")), completed.set()), daemon=True
    )
    thread.start()
    assert completed.wait(30)
    assert (pool.in_use, pool.kept) == (3 * MIB, MIB)


def test_two_threads_share_the_pool(pool):
    failed = []

    def work(seed):
        r = np.random.default_rng(seed)
        held = []
        try:
            for _ in range(1500):
                n = int(r.integers(1, 1 << 16))
                x = pool.empty(n, "u1")
                x.fill(seed)
                held.append(x)
                if len(held) > 20:
                    old = held.pop(int(r.integers(20)))
                    assert (old == seed).all()
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        pool.trim()
    for thread in threads:
        thread.join()
    assert failed == []
    assert pool.in_use == 0
    assert pool.trim() >= 0
    assert pool.kept == 0


def test_kept_blocks_are_freed_when_memory_is_short():
    source = Counted(most=10 * MIB)
    pool = PinnedPool(source)
    pool.empty(6 * MIB, "u1")
    held = pool.empty(8 * MIB, "u1")
    with pytest.raises(PoolLimitError) as refused:
        pool.empty(4 * MIB, "u1")
    assert (refused.value.requested, refused.value.in_use) == (4 * MIB, 8 * MIB)
    assert refused.value.remedy
    del held
    assert pool.empty(4 * MIB, "u1").size == 4 * MIB


@pytest.mark.parametrize(
    ("shape", "like"),
    [
        (np.int64(5), (5,)),
        ((np.int32(3), np.uint8(4)), (3, 4)),
        ([3, 4], (3, 4)),
        (np.array([3, 4]), (3, 4)),
        ([], ()),
    ],
)
def test_numpys_forms_of_shapes_are_accepted(pool, shape, like):
    x = pool.empty(shape, "f4")
    assert x.shape == like == np.empty(shape, "f4").shape
    assert pool.in_use == size_class(x.nbytes)


def test_numpy_extents_do_not_overflow(pool):
    x = pool.empty((np.int32(65536), np.int32(65537)), "u1")
    assert x.size == 65536 * 65537
    assert pool.in_use >= x.size


def test_subarray_dtype_appends_axes(pool):
    dtype = np.dtype(("f4", (3, 2)))
    x = pool.empty((2, 5), dtype)
    assert (x.shape, x.dtype) == ((2, 5, 3, 2), np.dtype("f4"))
    x.fill(1)
    assert x.sum() == 60
    nested = pool.empty(4, [("a", "i4", (2,)), ("b", "f8")])
    assert nested["a"].shape == (4, 2)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ("3", "f4"),
        (b"3", "f4"),
        (2.5, "f4"),
        ((2, 2.5), "f4"),
        (None, "f4"),
        (5, "nope"),
        (5, object),
        (5, [("a", object)]),
        (5, np.dtype((object, (2,)))),
        ((-1, 0), "f4"),
        ((0, 1 << 70), "f4"),
        ((1,) * 100, "f4"),
        (1 << 62, "f8"),
        ((1 << 61) + 512, "f8"),
        ((1 << 64) + 4096, "u1"),
        pytest.param(10**5000, "u1", id="huge"),
    ],
)
def test_invalid_shape_or_dtype_is_refused(pool, source, shape, dtype):
    with pytest.raises(OptionError) as refused:
        pool.empty(shape, dtype)
    assert refused.value.remedy
    assert (pool.in_use, source.taken) == (0, 0)


def test_closed_pool_frees_returned_blocks(pool, source):
    x, y = pool.empty(MIB, "u1"), pool.empty(MIB, "u1")
    pool.empty(MIB, "u1")
    pool.close()
    with pytest.raises(PoolClosedError):
        pool.empty(1)
    x.fill(1)
    assert len(source.out) == 2
    del x, y
    assert source.out == {}


ENDS = {
    "cycle": "a = [pool.empty(MIB)]; a.append(a); del a",
    "global": "kept = pool.empty(MIB)",
    "thread": """
def work():
    x = pool.empty(MIB)
    time.sleep(0.2)
    x = pool.empty(MIB)
threading.Thread(target=work).start()
""",
    "atexit": "import atexit; atexit.register(lambda: globals().update(late=pool.empty(MIB)))",
    "daemon": """
def work():
    while True:
        x = pool.empty(MIB)
        go.set()
go = threading.Event()
threading.Thread(target=work, daemon=True).start()
go.wait()
""",
    "closed": "sys.kept = pool.empty(MIB); pool.close()",
}


@pytest.mark.parametrize("end", ENDS)
def test_interpreter_exits_with_live_arrays(run_python, end):
    completed = run_python(
        "import sys, threading, time\n"
        "import sys\nsys.path.insert(0, 'tests')\nfrom helpers.pool_stand_ins import LibcMemory\n"
        "from zerocopy.pool.host import PinnedPool\n"
        "MIB = 1 << 20\npool = PinnedPool(LibcMemory())\n" + ENDS[end]
    )
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


def test_fork_while_thread_is_in_pool(run_python):
    completed = run_python("""
        import os, threading
        import sys
        sys.path.insert(0, "tests")
        from helpers.pool_stand_ins import LibcMemory
        from zerocopy.pool.host import PinnedPool
        inside, go = threading.Event(), threading.Event()
        class Slow(LibcMemory):
            def allocate(self, nbytes):
                inside.set()
                go.wait(60)
                return super().allocate(nbytes)
        pool = PinnedPool(Slow())
        thread = threading.Thread(target=pool.empty, args=(100,))
        thread.start()
        inside.wait()
        child = os.fork()
        go.set()
        pool.empty(10)
        if not child:
            os._exit(0)
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert completed.stdout == "0\n", completed.stderr


def test_trim_while_the_largest_size_is_in_use(pool):
    large, small = pool.empty(1 << 20, "u1"), pool.empty(1 << 12, "u1")
    del large, small
    kept = pool.kept
    again = pool.empty(1 << 20, "u1")  # leaves no block of the largest size
    assert 0 < pool.trim() < kept
    assert pool.kept == 0
    again.fill(1)
    del again
    assert pool.trim() > 0
