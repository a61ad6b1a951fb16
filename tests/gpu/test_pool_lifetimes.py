"""Lifetimes of a pool's memory on a GPU: close, streams, threads, forks, interpreter exit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.gpu_pool_processes import MARKS, Run, programs
from helpers.pool_stand_ins import ENDING, ENDS

pytestmark = MARKS


@pytest.fixture
def run(run_python: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    return programs(run_python, monkeypatch)


# -- close() ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["driver", "rmm"])
def test_close_keeps_live_arrays_valid(run, kind: str) -> None:
    """Values stay, arrays are freed without an error, and allocators are restored as reported."""
    run(
        """
        names = [n for n in present("cupy", "numba", "rmm", "torch") if kind == "driver" or n != "torch"]
        before = {}
        if "cupy" in names: before["cupy"] = side("cupy").module.cuda.get_allocator()
        if "rmm" in names:
            import rmm.mr
            before["rmm"] = type(rmm.mr.get_per_device_resource(0))
        pool = begin(kind, frameworks=names)
        held = [(each, each.allocate(8 * MIB, 3 + i)) for i, each in enumerate(sides(*names))]
        pool.close()
        pool.close()
        report = pool.report()
        print(report)
        for i, (each, x) in enumerate(held): assert (each.values(x) == 3 + i).all(), each.name
        if "cupy" in names:
            assert report["cupy"].status == "restored"
            assert side("cupy").module.cuda.get_allocator() == before["cupy"]
            taken = in_use(pool)
            y = side("cupy").allocate(8 * MIB, 9)
            assert in_use(pool) == taken  # no longer from the pool
        if "rmm" in names:
            assert report["rmm"].status == "restored"
            assert type(rmm.mr.get_per_device_resource(0)) is before["rmm"]
            assert (side("rmm").values(side("rmm").allocate(MIB, 8)) == 8).all()
        if "numba" in names:
            assert report["numba"].status == "restored"
            taken = in_use(pool)
            z = side("numba").allocate(8 * MIB, 6)
            assert (side("numba").values(z) == 6).all() and in_use(pool) == taken  # from Numba's own manager
        if "torch" in names:
            assert report["torch"].status == "installed"
            assert "keeps its first allocator" in report["torch"].detail
            assert (side("torch").values(side("torch").allocate(MIB, 7)) == 7).all()
        refused(zc.errors.PoolClosedError, lambda: pool.allocate(1))
        for i, (each, x) in enumerate(held): assert (each.values(x) == 3 + i).all(), each.name
        held.clear(); each = x = None
        assert until(lambda: in_use(pool) < MIB), in_use(pool)
        """,
        kind=kind,
    )


def test_close_keeps_live_torch_tensors_on_rmm_valid(run) -> None:
    """torch frees into the resource of the device, which therefore stays."""
    run(
        """
        need("rmm")
        torch = side("torch")
        pool = begin("rmm", frameworks=("torch", "rmm"))
        x = torch.allocate(8 * MIB, 3)
        pool.close()
        row = pool.report()["rmm"]
        assert row.status == "installed" and "torch frees into" in row.detail
        assert (torch.values(x) == 3).all()
        y = torch.allocate(8 * MIB, 4)
        assert (torch.values(x) == 3).all() and (torch.values(y) == 4).all()
        del x, y
        assert until(lambda: in_use(pool) == 0)
        """
    )


def test_close_returns_memory(run) -> None:
    run(
        """
        pool = begin("rmm", frameworks=present("cupy", "rmm"), initial="512MiB")
        cupy = side("cupy")
        cupy.values(cupy.allocate(MIB))
        settle()
        before = free()
        pool.close()
        settle()
        assert free() - before >= 500 * MIB
        """
    )


def test_second_pool_can_be_installed_after_close(run) -> None:
    """Frameworks that cannot be attached again report it, and do not use the closed pool."""
    run(
        """
        need("rmm")
        first = begin("driver", frameworks=present("cupy", "numba", "rmm"))
        held = [(each, each.allocate(8 * MIB, 3)) for each in sides("cupy", "numba", "rmm")]
        first.close()
        second = begin("rmm", frameworks=present("cupy", "numba", "rmm"))
        report = second.report()
        print(report)
        for each, x in held:
            row = report[each.name]
            if row.status == "installed": moves(each, second)
            else: assert row.status == "too_late" and row.remedy, row
            assert (each.values(x) == 3).all()
        for name in ("cupy", "rmm"):
            if present(name): assert report[name].status == "installed"
        """
    )


# -- streams ------------------------------------------------------------------------------

#: A tensor is used on another stream, recorded there and dropped; then its memory is requested again.
RACE = """
torch = side("torch").module
if not hasattr(torch.cuda, "_sleep"): skip("this torch has no torch.cuda._sleep")
def hunt(record, cycles=100_000_000):
    "Return how often, of ten times, the other stream read values that were written later."
    count, raced = 4 * MIB, 0
    other = torch.cuda.Stream()
    for _ in range(10):
        x, seen = torch.ones(count, device="cuda"), torch.zeros(count, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(other):
            torch.cuda._sleep(cycles)  # about 50 ms
            seen.copy_(x)
        if record: x.record_stream(other)
        del x
        y = torch.full((count,), 2.0, device="cuda")
        torch.cuda.synchronize()
        raced += not bool((seen == 1).all())
        del y, seen
    return raced
"""


def test_driver_kind_has_no_stream_race(run) -> None:
    """With record_stream there is none; without it there is one, which shows that the test detects it."""
    run(
        "pool = begin('driver', frameworks=('torch',))\n"
        + RACE
        + """
moves(side("torch"), pool)
recorded = hunt(True)
# The hunt is evidence only if it detects the race that record_stream prevents.
without = hunt(False) or hunt(False, 400_000_000) or hunt(False, 1_600_000_000)
print(f"races of 10: {without} without record_stream, {recorded} with it")
assert recorded == 0
assert without, "no race without record_stream either: the hunt shows nothing on this device"
"""
    )


def test_torch_on_rmm_has_a_stream_race(run) -> None:
    """record_stream has no effect there, which is why it needs opt-in."""
    run(
        "pool = begin('rmm', frameworks=('torch', 'rmm'))\n"
        + RACE
        + """
moves(side("torch"), pool)
raced = hunt(True)
print(f"races of 10: {raced}, with record_stream")
assert "record_stream() does nothing" in pool.report()["torch"].detail
if not raced: skip("the race did not show: RMM's allocator may have learned record_stream, or was lucky")
"""
    )


@pytest.mark.parametrize(("kind", "track"), [("driver", False), ("driver", True), ("rmm", True)])
def test_array_outlives_its_stream(run, kind: str, track: bool) -> None:
    """Memory is freed on the stream of its allocation, which the user may have dropped."""
    run(
        """
        pool = begin(kind, track=track)
        cupy = side("cupy").module
        side("cupy").values(side("cupy").allocate(MIB))
        settle()
        before = in_use(pool)
        held = []
        for number in range(20):
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                held.append(side("cupy").allocate(MIB, number))
            stream.synchronize()
            del stream
        gc.collect()
        for number, x in enumerate(held): assert (side("cupy").values(x) == number).all()
        held.clear()
        x = None
        assert until(lambda: in_use(pool) <= before)
        assert (side("cupy").values(side("cupy").allocate(MIB, 3)) == 3).all()
        """,
        kind=kind,
        track=track,
    )


@pytest.mark.parametrize(("kind", "track"), [("driver", False), ("driver", True), ("rmm", True)])
def test_threads_allocate_and_free_at_once(run, kind: str, track: bool) -> None:
    """Frameworks and the interface in parallel threads: right values, and all memory freed."""
    run(
        """
        import random
        pool = begin(kind, track=track)
        takers = [each for each in sides("cupy", "numba", "rmm", "torch", "jax")
                  if pool.report()[each.name].served]
        for each in takers: each.values(each.allocate(MIB))
        settle()
        before = in_use(pool)
        wrong = []
        def use(each, seed):
            chance, held = random.Random(seed), {}
            try:
                for step in range(60):
                    value = (step + seed) % 251
                    held[step % 5] = value, each.allocate(chance.randint(1, MIB), value)
                    value, x = chance.choice(list(held.values()))
                    if not (each.values(x) == value).all(): wrong.append((each.name, step))
            except BaseException as error:
                wrong.append((each.name, error))
        def take(seed):
            chance = random.Random(seed)
            try:
                for _ in range(200):
                    size = chance.randint(1, MIB)
                    pool.deallocate(pool.allocate(size), size)
                    pool.stats()
            except BaseException as error:
                wrong.append(("allocate()", error))
        threads = [threading.Thread(target=use, args=(each, seed)) for each in takers for seed in (1, 2)]
        threads += [threading.Thread(target=take, args=(seed,)) for seed in (3, 4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        assert wrong == []
        assert until(lambda: in_use(pool) < before + MIB), in_use(pool) - before
        if track: assert until(lambda: pool.check_leaks() == []), pool.check_leaks()
        """,
        kind=kind,
        track=track,
    )


# -- forks, and interpreter exit -------------------------------------------------------------------


@pytest.mark.parametrize("imported", [False, True])
def test_forked_child_can_use_cuda(run, imported: bool) -> None:
    """Installing the kind "driver" does not call the driver in the parent."""
    run(
        """
        import traceback
        pool = begin("driver")
        if imported:
            # Without RMM, whose resource needs the pool's handle from the driver.
            for name in present("cupy", "torch"): importlib.import_module(name)
            print(pool.report())
        def use():
            for each in sides("cupy", "numba", "rmm", "torch"): moves(each, pool)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                use()
                code = 0
            except SystemExit as end: code = end.code
            except BaseException: traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        use()
        """,
        imported=imported,
    )


@pytest.mark.parametrize("kind", ["driver", "rmm"])
def test_interpreter_exits_with_live_arrays(run, kind: str) -> None:
    """Five programs in parallel, because each needs seconds for its imports."""
    with ThreadPoolExecutor() as pool:
        for completed in pool.map(lambda end: run(TAKING + ENDING, kind=kind, end=end), ENDS):
            for word in ("Traceback", "Exception ignored", "terminate called", "CUDA error"):
                assert word not in completed.stderr, completed.stderr


TAKING = """
from zerocopy.pool.hook import Block
pool = begin(kind, track=end in ("global", "thread"))
# With a daemon thread torch aborts the process at exit, on the host too ("terminate called without an
# active exception", Python 3.11): a C++ destructor requests the GIL.
with_torch = kind == "driver" and end != "daemon"
takers = list(sides("cupy", "numba", "rmm", *["torch"] * with_torch))
def take():
    return [Block(pool._memory, MIB, 1, 0, "x"), *(each.allocate(MIB) for each in takers)]
take()
"""
