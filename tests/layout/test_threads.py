"""Copies of records with threads and processes: concurrent calls, forks, exit, a Numba that fails."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from helpers.paths import ROOT

from zerocopy import aos_to_soa, soa_to_aos
from zerocopy._native import core
from zerocopy.layout import threads

BIG = np.dtype([("id", "i8"), ("x", "f4"), ("y", "f4"), ("z", "f4"), ("u", "u1")])


def filled(rows: int) -> np.ndarray:
    return (np.arange(rows * BIG.itemsize) % 251).astype("u1").view(BIG)


def round_trip(records: np.ndarray, threads: int | None) -> bool:
    columns = aos_to_soa(records, threads=threads)
    same = all(columns[name].tobytes() == records[name].tobytes() for name in BIG.names)
    return same and soa_to_aos(columns, threads=threads).tobytes() == records.tobytes()


@pytest.mark.parametrize(("count", "cores"), [(3, 3), (None, 1)])
def test_a_system_without_affinity_has_the_cores_that_python_counts(
    count: int | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: count)
    assert threads.cores() == cores


@pytest.mark.parametrize("count", [None, 1, 2, 4, 1000])
def test_any_number_of_threads_keeps_the_records(count: int | None) -> None:
    assert round_trip(filled(400_000), count)


def test_concurrent_calls_from_python_threads() -> None:
    """On the same records and on different ones; all calls use the same thread pool."""
    several = [filled(300_000 + 17 * i) for i in range(3)]
    jobs = [several[0], several[0], several[1], several[2]]
    start = threading.Barrier(len(jobs))

    def work(records: np.ndarray) -> bool:
        start.wait(60)
        return all(round_trip(records, count) for count in (None, 2, 4, 1))

    with ThreadPoolExecutor(len(jobs)) as pool:
        assert list(pool.map(work, jobs)) == [True] * len(jobs)


def test_run_waits_for_all_tasks_if_one_fails() -> None:
    """The other tasks write to the same memory."""
    late_finished = threading.Event()
    slow = threading.Event()

    def late() -> None:
        slow.wait(0.2)
        late_finished.set()

    def fails() -> None:
        raise KeyError("this one")

    with pytest.raises(KeyError, match="this one"):
        threads.run([fails, late])
    assert late_finished.is_set()
    with pytest.raises(KeyError, match="this one"):
        threads.run([lambda: None, fails])


BUSY = """
import os, sys, threading
import numpy as np
from zerocopy import aos_to_soa, soa_to_aos
from zerocopy._native import core
records = np.zeros(400_000, [("id", "i8"), ("x", "f4"), ("y", "f4"), ("z", "f4"), ("u", "u1")])
records.view("u1")[...] = np.arange(records.nbytes) % 251
def right(most=4):
    columns = aos_to_soa(records, threads=most)
    same = all(columns[n].tobytes() == records[n].tobytes() for n in records.dtype.names)
    return same and soa_to_aos(columns, threads=most).tobytes() == records.tobytes()
def forked():
    child = os.fork()
    if not child:
        import signal
        signal.alarm(60)  # ends a child that deadlocks
        os._exit(0 if right() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


PARALLEL = """
import numba
@numba.njit(parallel=True)
def total(x):
    s = 0.0
    for i in numba.prange(x.size): s += x[i]
    return s
numbers = np.ones(1_000_000)
assert total(numbers) == numbers.size  # starts the layer
assert numba.threading_layer() == os.environ["NUMBA_THREADING_LAYER"]
def run_concurrently(*works):
    workers = [threading.Thread(target=work) for work in works]
    for t in workers: t.start()
    for t in workers: t.join()
"""


def with_layer(layer: str) -> None:
    pytest.importorskip("numba")
    if layer == "omp":
        pytest.importorskip("numba.np.ufunc.omppool", exc_type=ImportError)


@pytest.mark.parametrize("layer", ["workqueue", pytest.param("omp", marks=pytest.mark.full)])
def test_numbas_threading_layers_are_not_entered(run_python, layer: str) -> None:
    """While another thread is in such a layer, before a fork and after it."""
    with_layer(layer)
    completed = run_python(
        BUSY
        + PARALLEL
        + """
bad, stop = [], threading.Event()
def ours():
    for _ in range(10):
        if not right(): bad.append(1)
def theirs():
    while not stop.is_set():
        if total(numbers) != numbers.size: bad.append(2)
other = threading.Thread(target=theirs)
other.start()
run_concurrently(ours, ours, ours)
stop.set()
other.join()
print(bad, forked())
""",
        NUMBA_THREADING_LAYER=layer,
    )
    assert (completed.returncode, completed.stdout.strip()) == (0, "[] 0"), completed.stderr[-2000:]


def test_hazard_numbas_workqueue_ends_the_process(run_python) -> None:
    """If two Python threads enter it at the same time, which a library cannot prevent."""
    with_layer("workqueue")
    completed = run_python(
        BUSY
        + PARALLEL
        + "run_concurrently(*[lambda: [total(numbers) for _ in range(300)]] * 4)\nprint('alive')",
        NUMBA_THREADING_LAYER="workqueue",
    )
    assert completed.returncode == -signal.SIGABRT
    assert "Concurrent access has been detected" in completed.stderr


@pytest.mark.full
def test_hazard_gnu_openmp_ends_a_forked_child(run_python) -> None:
    with_layer("omp")
    completed = run_python(
        BUSY + PARALLEL + "right = lambda: total(numbers) == numbers.size\nprint(forked())",
        NUMBA_THREADING_LAYER="omp",
    )
    assert completed.stdout.strip() == str(-signal.SIGTERM), completed.stderr
    assert "fork() called from a process already using GNU OpenMP" in completed.stderr


def test_concurrent_first_calls(run_python) -> None:
    """Each call may be the one that starts the thread pool."""
    completed = run_python(
        BUSY
        + """
start, answers = threading.Barrier(4), []
def first():
    start.wait(60)
    answers.append(right())
workers = [threading.Thread(target=first) for _ in range(4)]
for t in workers: t.start()
for t in workers: t.join()
print(answers)
"""
    )
    assert (completed.returncode, completed.stdout.strip()) == (0, str([True] * 4)), completed.stderr[-2000:]


def test_forked_child_starts_its_own_threads(run_python) -> None:
    completed = run_python(BUSY + "print(right(), forked(), forked(), right())")
    assert (completed.returncode, completed.stdout.strip()) == (0, "True 0 0 True"), completed.stderr[-2000:]


@pytest.mark.parametrize("delay", [0.01, *(pytest.param(n, marks=pytest.mark.full) for n in (0, 0.03))])
def test_fork_while_other_threads_convert(run_python, delay: float) -> None:
    """Also while they hold locks, of which the child inherits copies."""
    completed = run_python(
        BUSY
        + f"""
import time
stop, bad = threading.Event(), []
def work():
    while not stop.is_set():
        if not right(): bad.append(1)
workers = [threading.Thread(target=work) for _ in range(2)]
for t in workers: t.start()
time.sleep({delay})
children = [forked() for _ in range(5)]
stop.set()
for t in workers: t.join()
print(children, bad)
"""
    )
    assert (completed.returncode, completed.stdout.strip()) == (0, "[0, 0, 0, 0, 0] []"), completed.stderr[
        -2000:
    ]


@pytest.mark.parametrize("before", ["", "right()"], ids=["first", "again"])
def test_conversion_at_interpreter_exit(run_python, before: str) -> None:
    """Threads can no longer be started, so one thread runs all parts."""
    completed = run_python(BUSY + f"{before}\nimport atexit\natexit.register(lambda: print(right()))")
    assert (completed.returncode, completed.stdout.strip(), completed.stderr) == (0, "True", "")


# -- Numba ------------------------------------------------------------------------------

RIGHT = """
import sys, warnings
import numpy as np, zerocopy as zc
part = [("x", "f4"), ("s", "S3")]
dtype = np.dtype([("i", ">i8"), ("p", part, (2,)), ("u", ">U2"), ("f", "f4", (3,))], align=True)
records = np.zeros(50_000, dtype)
records["i"], records["f"][:, 1] = np.arange(50_000), np.arange(50_000)
records["u"], records["p"]["x"] = "äb", 1.5
def right():
    columns = zc.aos_to_soa(records)
    return columns["i"].dtype == "=i8" and all(
        np.array_equal(a, b) for a, b in (
            (columns["i"], records["i"]), (columns["u"], records["u"]), (columns["f"], records["f"]),
            (columns["p"]["x"], records["p"]["x"]), (columns["p"]["s"], records["p"]["s"]),
        )
    )
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(right(), right())
print(*(f"{w.category.__name__}: {w.message}" for w in caught), sep="\\n")
print("numba" in sys.modules and sys.modules["numba"] is not None)
"""


def without_core(run_python: Callable[..., Any], code: str = "", **env: str) -> list[str]:
    """Run RIGHT after some code, without the compiled core, and return the printed lines."""
    completed = run_python(f"{code}\n{RIGHT}", **({"ZEROCOPY_NATIVE": "0"} | env))
    assert completed.returncode == 0, completed.stderr
    lines: list[str] = completed.stdout.splitlines()
    return lines


def test_numba_is_imported_only_without_the_core(run_python) -> None:
    """And not for small records and views."""
    pytest.importorskip("numba")
    if core is not None:
        assert without_core(run_python, ZEROCOPY_NATIVE="1") == ["True True", "", "False"]
    assert without_core(run_python) == ["True True", "", "True"]
    completed = run_python(
        """
        import sys
        import numpy as np, zerocopy as zc
        small = np.zeros(1000, [("x", "f4"), ("y", "f4")])
        zc.soa_to_aos(zc.aos_to_soa(small, threads=4))
        large = np.zeros(1_000_000, [("x", "f4"), ("y", "f4")])
        zc.soa_to_aos(zc.aos_to_soa(large, copy=False), copy=False)
        zc.aos_to_soa(np.zeros(8, "u1"), dtype=[("x", "f4")])
        print({"numba", "llvmlite"} & {name.partition(".")[0] for name in sys.modules})
        """,
        ZEROCOPY_NATIVE="0",
    )
    assert completed.stdout.strip() == "set()", completed.stderr


@pytest.mark.parametrize(
    "gone", ["sys.modules['numba'] = None", "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]"]
)
def test_numpy_converts_without_numba(run_python, gone: str) -> None:
    assert without_core(run_python, f"import sys, numpy\n{gone}") == ["True True", "", "False"]


@pytest.mark.parametrize("error", ["ImportError", "AttributeError"])
def test_failing_import_of_numba_warns_once(run_python, tmp_path: Path, error: str) -> None:
    """As if Numba were older than NumPy, or a package shadowed one that Numba imports."""
    (tmp_path / "numba.py").write_text(f"raise {error}('Numba needs NumPy 1.9 or less')")
    assert without_core(run_python, f"import sys\nsys.path.insert(0, {str(tmp_path)!r})") == [
        "True True",
        "RuntimeWarning: zerocopy converts records with NumPy, because Numba fails: "
        "Numba needs NumPy 1.9 or less",
        "False",
    ]


def test_first_call_imports_the_package_alone(run_python) -> None:
    """The first call takes milliseconds, because it imports neither Numba nor another framework."""
    if core is None:
        pytest.skip("needs the compiled core")
    code = """
        import sys
        import numpy as np
        import zerocopy as zc
        records = np.ones(1000, [("id", ">i8"), ("x", "f4"), ("flag", "u1")])
        zc.convert(np.ones(3), "numpy")
        before = set(sys.modules)
        zc.aos_to_soa(records)
        print(sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
        """
    assert run_python(code).stdout.strip() == "['zerocopy']"


# -- interrupts and failures ---------------------------------------------------------------


def test_interrupt_waits_for_started_tasks() -> None:
    """The tasks write to memory that the caller may free after the call."""
    release, started, ended = threading.Event(), threading.Event(), []

    def slow() -> None:
        started.set()
        release.wait(60)
        ended.append("slow")

    def first() -> None:
        assert started.wait(60)
        threading.Timer(0.1, release.set).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        threads.run([first, slow])
    assert ended == ["slow"]


def test_a_signal_at_any_place_neither_hangs_nor_leaves_a_task_running() -> None:
    """Before, a part whose thread was interrupted after its claim never ended."""
    folder = str(ROOT / "zerocopy" / "layout" / "threads.py")

    class Stop(Exception):
        pass

    def call(at: int) -> tuple[bool, int]:
        running, places = [], 0

        def task() -> None:
            running.append(1)
            time.sleep(0.001)
            running.pop()

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal places
            if frame.f_code.co_filename != folder:
                return None
            places += 1
            if places == at:
                raise Stop
            return trace

        sys.settrace(trace)
        try:
            threads.run([task] * 3)
        except Stop:
            assert not running
            return True, places
        finally:
            sys.settrace(None)
        return False, places

    _, places = call(0)
    assert places > 30
    for at in range(1, places):
        call(at)


def test_part_runs_once_and_its_error_is_raised() -> None:
    ran = []

    def fails() -> None:
        raise ValueError("first")

    parts = [threads._Part(lambda: ran.append(1)) for _ in range(2)]
    parts[0].wait()  # no thread has started it, so it is cancelled
    thread = threading.Thread(target=parts[0])
    thread.start()
    thread.join()
    parts[1]()
    parts[1]()
    assert ran == [1]
    with pytest.raises(ValueError, match="first"):
        threads.run([fails, lambda: None])


def test_conversion_if_threads_cannot_be_started(run_python) -> None:
    """The executor queues a task before it fails to start a thread; the task must not run twice."""
    completed = run_python(
        """
        import threading
        import numpy as np, zerocopy as zc
        kind = [("a", "f8"), ("b", "f4"), ("c", "S5")]
        records = np.ones(400_000, kind)
        zc.aos_to_soa(records, threads=1)
        threading.stack_size(1 << 46)
        assert zc.aos_to_soa(records, threads=2)["a"].sum() == 400_000
        threading.stack_size(0)
        del records
        for _ in range(3):
            assert zc.aos_to_soa(np.ones(300_000, kind), threads=2)["b"].sum() == 300_000
        """
    )
    assert completed.returncode == 0, completed.stderr
