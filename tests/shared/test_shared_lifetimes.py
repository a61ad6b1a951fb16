"""Shared memory in threads, garbage collection, forks, daemons, and at interpreter exit."""

from __future__ import annotations

import gc
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers.shared_memory import in_child, open_memfds, run_reader
from helpers.tiers import sample_size

import zerocopy as zc

COUNT = 100_000


def test_threads_share_and_open_at_once() -> None:
    """8 threads with checksums: recycled blocks never mix."""
    everyone: list[tuple[bytes, int]] = []

    def work(seed: int) -> int:
        rng, wrong, kept = np.random.default_rng(seed), 0, []
        for i in range(150):
            array = rng.integers(0, 256, int(rng.choice([100, 5000, 70_000, 200_000])), np.uint8)
            shared = zc.share(array)
            kept.append(shared)
            everyone.append((bytes(shared), zlib.crc32(array)))
            data, checksum = everyone[int(rng.integers(len(everyone)))]
            try:
                result = zc.convert(zc.Shared.from_bytes(data), "numpy")
                wrong += zlib.crc32(result) != checksum
            except zc.errors.StaleHandleError:
                pass
            if i % 4 == 3:
                kept = kept[-3:]
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [0] * 8


def test_one_handle_opened_by_many_threads_has_one_mapping() -> None:
    shared = zc.share(np.arange(COUNT))
    data, start = bytes(shared), threading.Barrier(8)

    def work(_: int) -> np.ndarray:
        start.wait(60)
        return zc.convert(zc.Shared.from_bytes(data), "numpy")

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    assert len({result.ctypes.data for result in results}) == 1


def test_dropped_in_another_thread_and_in_a_cycle() -> None:
    gc.collect()
    before = open_memfds()

    class Cycle:
        def __init__(self) -> None:
            self.me, self.shared = self, zc.share(np.arange(COUNT * 7))
            self.result = zc.convert(self.shared, "numpy")

    def work() -> None:
        for _ in range(5):
            Cycle()
            gc.collect()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    from zerocopy.shared.blocks import large_blocks

    large_blocks.trim()
    gc.collect()
    assert open_memfds() <= before


@pytest.mark.hazard("robustness#finalizers-that-share")
def test_a_finalizer_can_share() -> None:
    """It runs within any call, also within one of `share`."""
    outcomes = []

    class Sharing:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            shared = zc.share(np.arange(COUNT))
            outcomes.append(int(zc.convert(shared, "numpy")[-1]))

    old = gc.get_threshold()
    gc.set_threshold(5)
    try:
        for _ in range(200):
            Sharing()
            zc.convert(zc.share(np.zeros(COUNT)), "numpy")
            zc.share(np.zeros(10))
    finally:
        gc.set_threshold(*old)
    gc.collect()
    assert set(outcomes) == {COUNT - 1}


@pytest.mark.parametrize(
    "code",
    [
        "kept = zc.share(x); held = zc.convert(kept, 'numpy')",
        "a = zc.shared_empty(100_000); s = zc.share(a); cycle = [s, a]; cycle.append(cycle)",
        "import zerocopy.shared; zerocopy.shared.start_broker(); s = zc.share(x)",
        "import threading, time\ndef work():\n    while True: zc.share(x)\n"
        "threading.Thread(target=work, daemon=True).start(); time.sleep(0.2)",
        "import sys; sys.kept = [zc.share(x), zc.share(x[:5]), zc.convert(zc.share(x), 'numpy')]",
    ],
)
def test_nothing_is_printed_at_interpreter_exit(run_python, code: str) -> None:
    completed = run_python(f"import numpy as np, zerocopy as zc\nx = np.arange(100_000)\n{code}")
    assert (completed.returncode, completed.stderr) == (0, "")


# -- forks ---------------------------------------------------------------------------------------------

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    # JAX warns at each fork if another test has imported it.
    pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning"),
]


@pytest.mark.hazard("robustness#views-in-a-child")
def test_a_child_sees_the_parents_blocks_after_they_are_dropped(run_python) -> None:
    """The parent uses the memory of dropped blocks again, but not that of which a child has views."""
    completed = run_python("""
        import os, numpy as np, zerocopy as zc
        view = zc.shared_empty(100_000, "i8"); view[:] = 7
        shared, small = zc.share(view), zc.share(np.arange(10))
        result = zc.convert(zc.share(np.full(100_000, 3)), "numpy")
        down, up = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            os.read(down[0], 1)
            assert (view == 7).all() and (result == 3).all()
            handed = zc.share(view)  # by this process, which keeps it
            assert handed.copied_bytes == 0
            os.write(up[1], bytes(handed)); os.read(down[0], 1)
            os._exit(0)
        del view, shared, result
        for i in range(50):
            zc.share(np.full(100_000, i)); zc.share(np.full(10, i))
        os.write(down[1], b"x")
        handed = zc.Shared.from_bytes(os.read(up[0], 1000))
        assert (zc.convert(handed, "numpy") == 7).all()
        os.write(down[1], b"x")
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert (completed.returncode, completed.stdout.strip()) == (0, "0"), completed.stderr


def test_a_child_drops_nothing_of_its_parent() -> None:
    shared, small = zc.share(np.arange(COUNT)), zc.share(np.arange(10))

    def child() -> None:
        nonlocal shared, small
        datas = [bytes(shared), bytes(small)]
        shared.close()
        del shared, small
        gc.collect()
        assert [int(zc.convert(zc.Shared.from_bytes(each), "numpy")[-1]) for each in datas] == [COUNT - 1, 9]
        own = zc.share(np.arange(COUNT))
        assert int(zc.convert(own, "numpy").sum()) == sum(range(COUNT))

    assert in_child(child) == 0
    assert int(run_reader(shared).stdout) == sum(range(COUNT))
    assert int(zc.convert(small, "numpy").sum()) == 45


def test_forks_while_threads_recycle() -> None:
    stop, wrong = threading.Event(), []

    def work(seed: int) -> None:
        while not stop.is_set():
            array = np.full(COUNT, seed)
            if not (zc.convert(zc.share(array), "numpy") == seed).all():
                wrong.append(seed)
            zc.share(np.full(10, seed))

    def child() -> None:
        for value in range(5):
            assert (zc.convert(zc.share(np.full(COUNT, value)), "numpy") == value).all()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    try:
        count = sample_size(15, 5)
        assert [in_child(child) for _ in range(count)] == [0] * count
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods(run_python, tmp_path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"""
import multiprocessing, sys, numpy as np, zerocopy as zc
def child(shared, small, queue):
    queue.put((int(zc.convert(shared, "numpy").sum()), int(zc.convert(small, "numpy").sum())))
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    queue = context.SimpleQueue()
    shared, small = zc.share(np.ones(100_000)), zc.share(np.ones(5))
    process = context.Process(target=child, args=(shared, small, queue))
    process.start()
    print(queue.get())
    process.join()
""")
    completed = run_python(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert completed.stdout.strip() == "(100000, 5)", completed.stderr


@pytest.mark.hazard("robustness#descriptors-that-are-reused")
def test_a_daemon_that_closes_all_descriptors(run_python) -> None:
    """No descriptor of another file is closed or locked afterwards."""
    completed = run_python("""
        import fcntl, gc, os, tempfile, numpy as np, zerocopy as zc
        view = zc.shared_empty(100_000); view[:] = 1
        shared, small = zc.share(view), zc.share(np.arange(10))
        held = zc.convert(zc.share(np.arange(100_000)), "numpy")
        idle = zc.share(np.zeros(300_000)); del idle
        child = os.fork()
        if not child:
            import signal
            signal.alarm(60)
            os.closerange(3, 200)
            files = [tempfile.TemporaryFile() for _ in range(60)]
            for file in files:
                fcntl.flock(file, fcntl.LOCK_SH)
            numbers = [(file.fileno(), os.fstat(file.fileno()).st_ino) for file in files]
            handed = zc.share(view)
            assert handed.copied_bytes == 800_000
            assert (zc.convert(handed, "numpy") == 1).all()
            del view, shared, small, held, handed
            gc.collect()
            for _ in range(5):
                assert (zc.convert(zc.share(np.arange(100_000)), "numpy") == np.arange(100_000)).all()
                assert (zc.convert(zc.share(np.arange(10)), "numpy") == np.arange(10)).all()
            for number, inode in numbers:
                assert os.fstat(number).st_ino == inode
                other = os.open(f"/proc/self/fd/{number}", os.O_RDWR)
                fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os.close(other)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os.closerange(3, 200)  # also without a fork
        files = [tempfile.TemporaryFile() for _ in range(60)]
        del view, shared, small, held
        gc.collect()
        zc.share(np.zeros(300_000))
        for file in files:
            os.fstat(file.fileno())
    """)
    assert (completed.returncode, completed.stdout.strip(), completed.stderr) == (0, "0", "")


def test_the_owner_drops_while_a_reader_holds(run_python) -> None:
    """A lease of another process keeps the bytes; the kernel drops it when that process dies."""
    completed = run_python("""
        import os, signal, sys, subprocess, numpy as np, zerocopy as zc
        from zerocopy.shared.blocks import large_blocks
        shared = zc.share(np.full(100_000, 5))
        code = ("import sys, zerocopy as zc; s = zc.Shared.from_bytes(bytes.fromhex(sys.argv[1]));"
                "x = zc.convert(s, 'numpy'); print('open', flush=True); sys.stdin.readline();"
                "print((x == 5).all(), flush=True); sys.stdin.read()")
        words = [sys.executable, "-c", code, bytes(shared).hex()]
        reader = subprocess.Popen(words, stdin=-1, stdout=-1, text=True)
        assert reader.stdout.readline() == "open\\n"
        shared.close()
        kept = [zc.share(np.full(100_000, i)) for i in range(30)]
        assert large_blocks.recycled == 0
        reader.stdin.write("x\\n"); reader.stdin.flush()
        print(reader.stdout.readline().strip())
        reader.kill(); reader.wait()
        kept.append(zc.share(np.full(100_000, 1)))
        print(large_blocks.recycled)
    """)
    assert completed.stdout.split() == ["True", "1"], completed.stderr


def test_a_reader_keeps_memory_after_the_owners_death(run_python) -> None:
    completed = run_python("""
        import sys, subprocess, numpy as np, zerocopy as zc
        code = ("import sys, numpy as np, zerocopy as zc; s = zc.share(np.full(100_000, 5));"
                "print(bytes(s).hex(), flush=True); sys.stdin.read()")
        owner = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True)
        data = bytes.fromhex(owner.stdout.readline())
        x = zc.convert(zc.Shared.from_bytes(data), "numpy")
        owner.kill(); owner.wait()
        assert (x == 5).all()
        again = zc.convert(zc.Shared.from_bytes(data), "numpy")  # one mapping
        handed = zc.share(x)
        assert handed.copied_bytes == 0
        code = ("import sys, zerocopy as zc; h = zc.Shared.from_bytes(bytes.fromhex(sys.argv[1]));"
                "print(int(zc.convert(h, 'numpy').sum()))")
        subprocess.run([sys.executable, "-c", code, bytes(handed).hex()])
        del x, again, handed
        try:
            zc.convert(zc.Shared.from_bytes(data), "numpy")
        except zc.errors.StaleHandleError as error:
            print("ended" in str(error))
    """)
    assert completed.stdout.split() == ["500000", "True"], completed.stderr


def test_switch_interval_races() -> None:
    """Threads that are interrupted often open and drop one small and one large handle."""
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        shared, small = zc.share(np.arange(COUNT)), zc.share(np.arange(10))

        def work(_: int) -> bool:
            return all(
                zc.convert(shared, "numpy")[-1] == COUNT - 1 and zc.convert(small, "numpy")[-1] == 9
                for _ in range(100)
            )

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(8)))
    finally:
        sys.setswitchinterval(old)
