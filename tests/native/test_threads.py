"""16 threads convert at once, on free-threaded builds of Python too; no reference is lost.

The programs run in subprocesses, because an error of the core could end the process.
"""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Callable

import pytest
from helpers.tiers import sample_size

from zerocopy._native import core

RunPython = Callable[..., subprocess.CompletedProcess[str]]

START = """
import collections, gc, sys, threading
sys.path.insert(0, "tests")
import numpy as np
import zerocopy as zc
from helpers.frameworks import HOST
from zerocopy import registry

THREADS = 16
sys.setswitchinterval(1e-5)
expected = np.arange(24.0, dtype="float32")
sources = [zc.convert(expected, to=name, copy=True) for name in HOST]
pairs = [(source, to) for source in sources for to in HOST]
done = threading.Event()

def in_threads(work, meanwhile):
    # Calls work() in 16 threads, and meanwhile() in one more until they end.
    errors, start = [], threading.Barrier(THREADS + 1)
    def run(function):
        start.wait()
        try:
            function()
        except BaseException as error:
            errors.append(error)
            raise
    def repeat():
        while not done.wait(0.001):
            meanwhile()
    threads = [threading.Thread(target=run, args=(work,)) for _ in range(THREADS)]
    other = threading.Thread(target=run, args=(repeat,))
    for thread in [*threads, other]:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    other.join()
    assert not errors, errors

def references():
    gc.collect()
    return list(map(sys.getrefcount, sources))

def same(result):
    return np.array_equal(zc.convert(result, to="numpy"), expected)

# Another thread frees these results.
freed_elsewhere = collections.deque(maxlen=50)
"""

CONVERT = """
def work():
    for _ in range(ROUNDS):
        for source, to in pairs:
            result = zc.convert(source, to=to)
            assert same(result)
            freed_elsewhere.append(result)
        tree = zc.convert({"a": sources, "b": (expected,)}, to="numpy")
        assert all(map(same, tree["a"])) and same(tree["b"][0])

def forget_routes():
    for clear in registry._listeners:
        clear()

def convert_all():
    for source, to in pairs:
        zc.convert(source, to=to)

convert_all()
before = references()
in_threads(work, forget_routes)
freed_elsewhere.clear()
convert_all()
assert references() == before
print("passed")
"""

KEPT = """
def convert_all(times):
    for _ in range(times):
        for source, to in pairs:
            zc.convert(source, to=to)
        zc.convert({"a": sources}, to="numpy")

convert_all(20)
before, kept = references(), []
for _ in range(8):
    blocks = sys.getallocatedblocks()
    convert_all(ROUNDS)
    assert references() == before
    kept.append(sys.getallocatedblocks() - blocks)
print(min(kept))
"""


def test_16_threads_convert_while_the_routes_are_forgotten(run_warm: RunPython) -> None:
    completed = run_warm(f"ROUNDS = {sample_size(10, 1)}" + START + CONVERT)
    assert (completed.returncode, completed.stdout) == (0, "passed\n"), completed.stderr


def test_conversions_keep_no_memory(run_warm: RunPython) -> None:
    """In debug builds of Python, sys.gettotalrefcount() misses what release builds of NumPy count."""
    rounds = sample_size(500, 100)
    completed = run_warm(f"ROUNDS = {rounds}" + START + KEPT)
    assert completed.returncode == 0, completed.stderr
    # One object kept by each conversion would be a block for each round. The caches of frameworks fill over
    # the first hundreds of rounds, so the smallest of eight counts is used.
    assert int(completed.stdout) < 0.4 * rounds


@pytest.mark.full
def test_every_part_works_in_eight_threads(run_python: RunPython) -> None:
    completed = run_python(
        """
        import sys
        from tests.native import stress
        sys.argv[1:] = ["--seconds", "10"]
        sys.exit(stress.main())
        """,
        PYTHONWARNINGS="ignore",
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.skipif(
    core is None or not sysconfig.get_config_var("Py_GIL_DISABLED"),
    reason="needs the compiled core and a free-threaded Python",
)
def test_the_core_does_not_enable_the_gil(run_python: RunPython) -> None:
    completed = run_python("import sys, zerocopy._native; print(sys._is_gil_enabled())", ZEROCOPY_NATIVE="1")
    assert completed.stdout == "False\n", completed.stderr


@pytest.mark.skipif(
    core is None or not sysconfig.get_config_var("Py_GIL_DISABLED"),
    reason="needs the compiled core and a free-threaded Python",
)
def test_threads_do_not_count_references_to_convert_and_its_routes(run_python: RunPython) -> None:
    # Threads that change one reference count wait for each other: two converted as much as one.
    completed = run_python(
        """
        import sys
        import numpy as np
        import zerocopy as zc
        from zerocopy._native import core
        for source in (np.arange(3.0), [np.arange(3.0)]):
            zc.convert(source, "numpy", copy=True)
        routes = core.Routes("numpy", copy=True)
        for counted in (zc.convert, routes[np.ndarray], routes[list], core.CallRoute(None)):
            before = sys.getrefcount(counted)
            kept = [counted] * 10
            print(sys.getrefcount(counted) - before)
        """,
        ZEROCOPY_NATIVE="1",
    )
    assert completed.stdout == "0\n" * 4, completed.stderr
