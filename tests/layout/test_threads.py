"""The kernels among threads and processes: calls at once, forks, exits; what is kept of Numba's work."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers.paths import ROOT

from zerocopy import aos_to_soa, soa_to_aos
from zerocopy.layout import threads

BIG = np.dtype([("id", "i8"), ("x", "f4"), ("y", "f4"), ("z", "f4"), ("u", "u1")])


def filled(rows: int) -> np.ndarray:
    return (np.arange(rows * BIG.itemsize) % 251).astype("u1").view(BIG)


def there_and_back(records: np.ndarray, most: int | None) -> bool:
    columns = aos_to_soa(records, threads=most)
    same = all(columns[name].tobytes() == records[name].tobytes() for name in BIG.names)
    return same and soa_to_aos(columns, threads=most).tobytes() == records.tobytes()


@pytest.mark.parametrize("most", [None, 1, 2, 4, 1000])
def test_threads(most: int | None) -> None:
    assert there_and_back(filled(400_000), most)


def test_python_threads_at_once() -> None:
    """On the same records and on others, each with parts of its own in the same pool."""
    several = [filled(300_000 + 17 * i) for i in range(3)]
    jobs = [several[0], several[0], several[1], several[2]]
    start = threading.Barrier(len(jobs))

    def work(records: np.ndarray) -> bool:
        start.wait(60)
        return all(there_and_back(records, most) for most in (None, 2, 4, 1))

    with ThreadPoolExecutor(len(jobs)) as pool:
        assert list(pool.map(work, jobs)) == [True] * len(jobs)


def test_no_task_is_left_behind() -> None:
    """One that fails waits for the others, which write to the same memory."""
    done = threading.Event()
    slow = threading.Event()

    def late() -> None:
        slow.wait(0.2)
        done.set()

    def fails() -> None:
        raise KeyError("this one")

    with pytest.raises(KeyError, match="this one"):
        threads.run([fails, late])
    assert done.is_set()
    with pytest.raises(KeyError, match="this one"):
        threads.run([lambda: None, fails])


BUSY = """
import os, sys, threading
import numpy as np
from zerocopy import aos_to_soa, soa_to_aos
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
        signal.alarm(60)  # a child that waits for ever is ended
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
assert total(numbers) == numbers.size  # the layer has been started
assert numba.threading_layer() == os.environ["NUMBA_THREADING_LAYER"]
def at_once(*works):
    workers = [threading.Thread(target=work) for work in works]
    for t in workers: t.start()
    for t in workers: t.join()
"""


def with_layer(layer: str) -> None:
    pytest.importorskip("numba")
    if layer == "omp":
        pytest.importorskip("numba.np.ufunc.omppool", exc_type=ImportError)


@pytest.mark.parametrize("layer", ["workqueue", "omp"])
def test_numbas_threading_layers_are_not_entered(run_python, layer: str) -> None:
    """While another thread is in one, before a fork and after it."""
    with_layer(layer)
    done = run_python(
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
at_once(ours, ours, ours)
stop.set()
other.join()
print(bad, forked())
""",
        NUMBA_THREADING_LAYER=layer,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[] 0"), done.stderr[-2000:]


def test_hazard_numbas_workqueue_ends_the_process(run_python) -> None:
    """Where two Python threads enter it at once, which a library cannot know of."""
    with_layer("workqueue")
    done = run_python(
        BUSY + PARALLEL + "at_once(*[lambda: [total(numbers) for _ in range(300)]] * 4)\nprint('alive')",
        NUMBA_THREADING_LAYER="workqueue",
    )
    assert done.returncode == -signal.SIGABRT
    assert "Concurrent access has been detected" in done.stderr


def test_hazard_gnu_openmp_ends_a_forked_child(run_python) -> None:
    with_layer("omp")
    done = run_python(
        BUSY + PARALLEL + "right = lambda: total(numbers) == numbers.size\nprint(forked())",
        NUMBA_THREADING_LAYER="omp",
    )
    assert done.stdout.strip() == str(-signal.SIGTERM), done.stderr
    assert "fork() called from a process already using GNU OpenMP" in done.stderr


def test_the_first_calls_at_once(run_python) -> None:
    """Each loads the kernels, and starts the threads, if no other has done so yet."""
    done = run_python(
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
    assert (done.returncode, done.stdout.strip()) == (0, str([True] * 4)), done.stderr[-2000:]


def test_a_forked_child_has_threads_of_its_own(run_python) -> None:
    done = run_python(BUSY + "print(right(), forked(), forked(), right())")
    assert (done.returncode, done.stdout.strip()) == (0, "True 0 0 True"), done.stderr[-2000:]


@pytest.mark.parametrize("delay", [0, 0.01, 0.03])
def test_a_child_that_is_forked_while_others_are_at_work(run_python, delay: float) -> None:
    """While they load the kernels too, and hold locks that the child has copies of."""
    done = run_python(
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
    assert (done.returncode, done.stdout.strip()) == (0, "[0, 0, 0, 0, 0] []"), done.stderr[-2000:]


@pytest.mark.parametrize("before", ["", "right()"], ids=["first", "again"])
def test_at_the_interpreters_exit(run_python, before: str) -> None:
    """No thread can be started there: the parts are done one after the other."""
    done = run_python(BUSY + f"{before}\nimport atexit\natexit.register(lambda: print(right()))")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")


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


@pytest.fixture
def cold(tmp_path: Path, run_python) -> Callable[..., list[str]]:
    """Run what is right in a process whose package has no machine code yet; return what it prints."""
    pytest.importorskip("numba")
    package = tmp_path / "zerocopy"
    shutil.copytree(ROOT / "zerocopy", package, ignore=shutil.ignore_patterns("__pycache__"))
    # A file where the folder would be, for permissions stop no administrator.
    (package / "layout" / "kernels" / "__pycache__").write_text("no folder")

    def run(**env: str) -> list[str]:
        code = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{RIGHT}\nprint(zc.__file__)"
        nowhere = {"NUMBA_CACHE_DIR": "/dev/null/no", "XDG_CACHE_HOME": "/dev/null/no"}
        done = run_python(code, PYTHONDONTWRITEBYTECODE="1", **(nowhere | env))
        assert done.returncode == 0, done.stderr
        *said, file = done.stdout.splitlines()
        assert file == str(package / "__init__.py")
        return said

    return run


def test_numba_is_not_imported_for_little(run_python) -> None:
    """Nor anything of it: not for views, and not for a record that is its column already."""
    done = run_python(
        """
        import sys
        import numpy as np, zerocopy as zc
        small = np.zeros(1000, [("x", "f4"), ("y", "f4")])
        zc.soa_to_aos(zc.aos_to_soa(small, threads=4))
        large = np.zeros(1_000_000, [("x", "f4"), ("y", "f4")])
        zc.soa_to_aos(zc.aos_to_soa(large, copy=False), copy=False)
        zc.aos_to_soa(np.zeros(8, "u1"), dtype=[("x", "f4")])
        print({"numba", "llvmlite"} & {name.partition(".")[0] for name in sys.modules})
        """
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_machine_code_is_kept_and_numba_not_needed_again(cold, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert cold(NUMBA_CACHE_DIR=str(kept)) == ["True True", "", "True"]
    (file,) = (kept / "zerocopy").iterdir()  # and no draft is left
    assert cold(NUMBA_CACHE_DIR=str(kept)) == ["True True", "", "False"]
    # Of a file that is not whole nothing is run: Numba is asked again.
    file.write_bytes(file.read_bytes()[:-1])
    (tmp_path / "numba.py").write_text("raise ImportError('asked')")
    said = cold(NUMBA_CACHE_DIR=str(kept))
    assert said[0] == "True True"
    assert said[1].endswith("Numba fails: asked")


def test_machine_code_that_cannot_be_kept_is_told(cold) -> None:
    said = cold()
    assert (said[0], said[-1]) == ("True True", "True")
    assert len(said) == 3  # once
    assert said[1].startswith("RuntimeWarning: the kernels of aos_to_soa are compiled in each process")
    assert "/dev/null/no/zerocopy" in said[1]
    assert "set NUMBA_CACHE_DIR to a writable folder" in said[1]


@pytest.mark.parametrize(
    "gone", ["sys.modules['numba'] = None", "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]"]
)
def test_without_numba_numpy_does_it(run_python, gone: str) -> None:
    done = run_python(f"import sys, numpy\n{gone}\n{RIGHT}")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["True True", "", "False"]), done.stderr


def test_a_numba_that_fails_is_told_once(cold, tmp_path: Path) -> None:
    """As one does that is older than NumPy."""
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 1.9 or less')")
    said = cold()
    assert said == [
        "True True",
        "RuntimeWarning: zerocopy converts records with NumPy, because Numba fails: "
        "Numba needs NumPy 1.9 or less",
        "False",
    ]


def test_numba_that_is_switched_off_is_told(cold) -> None:
    said = cold(NUMBA_DISABLE_JIT="1")
    assert said[0] == "True True"
    assert "NUMBA_DISABLE_JIT" in said[1]


# -- what is not left behind ---------------------------------------------------------------


def test_an_interrupt_waits_for_what_was_begun() -> None:
    """The tasks write to memory that the caller drops: none may be at work after the call."""
    release, begun, ended = threading.Event(), threading.Event(), []

    def slow() -> None:
        begun.set()
        release.wait(10)
        ended.append("slow")

    def first() -> None:
        assert begun.wait(10)
        threading.Timer(0.1, release.set).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        threads.run([first, slow])
    assert ended == ["slow"]


def test_a_part_runs_once_and_its_error_is_raised() -> None:
    ran = []

    def fails() -> None:
        raise ValueError("first")

    parts = [threads._Part(lambda: ran.append(1)) for _ in range(2)]
    parts[0].cancel()
    parts[0]()
    parts[1]()
    parts[1]()
    assert ran == [1]
    with pytest.raises(ValueError, match="first"):
        threads.run([fails, lambda: None])


def test_no_thread_can_be_started(run_python) -> None:
    """The executor queues a task before it fails to start its thread: it must not run twice."""
    done = run_python(
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
    assert done.returncode == 0, done.stderr
