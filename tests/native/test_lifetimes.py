"""Results keep their sources' memory alive: in any order of release, on any thread, at exit, after a fork."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from helpers.native_core import consume, core, delete, exported, keep_capsule, memory_route, require_core

require_core()


class Memory(np.ndarray):
    """An ndarray that weak references can watch and that holds its own memory."""


def watched():
    array = np.arange(64.0).view(Memory).copy()
    return array, weakref.ref(array)


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("target", ["ndarray", "capsule", "consumed capsule"])
def test_a_deleter_runs_once_after_the_result_is_dropped(version, target):
    source, got = exported(np.arange(8.0), version=version), []
    importer = core.NDArrayImporter() if target == "ndarray" else keep_capsule(got)
    result = memory_route(core.CapsuleExporter(lambda x: x), importer)(source.capsule())
    got.clear()
    gc.collect()
    assert source.deleted == 0
    if target == "consumed capsule":
        managed = consume(result)
        del result
        assert source.deleted == 0
        delete(managed)
    else:
        result = None
    assert source.deleted == 1
    source.drop()
    assert source.deleted == 1


def test_views_of_a_result_keep_the_memory():
    source = exported(np.arange(8.0))
    result = memory_route(core.CapsuleExporter(lambda x: x), core.NDArrayImporter())(source.capsule())
    view = result[2:].reshape(2, 3)[::-1]
    del result
    gc.collect()
    assert source.deleted == 0
    np.testing.assert_array_equal(view, [[5, 6, 7], [2, 3, 4]])
    del view
    assert source.deleted == 1


@pytest.mark.parametrize("first", ["source", "result"])
@pytest.mark.parametrize("target", ["ndarray", "capsule"])
@pytest.mark.parametrize("in_thread", [False, True])
def test_an_object_lives_as_long_as_the_result(first, target, in_thread):
    source, alive = watched()
    got = []
    importer = core.NDArrayImporter() if target == "ndarray" else keep_capsule(got)
    held = [memory_route(core.NDArrayExporter(), importer)(source)]
    got.clear()
    count = sys.getrefcount(source)
    if first == "source":
        del source
        gc.collect()
        assert alive() is not None
        drop(held, in_thread)
        assert alive() is None
    else:
        drop(held, in_thread)
        assert sys.getrefcount(source) == count - 1
        del source
        assert alive() is None


def drop(held, in_thread):
    """Clear a list here, or on another thread."""
    if not in_thread:
        held.clear()
        return
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()


@pytest.mark.hazard("robustness#deleters-without-the-gil")
def test_a_deleter_takes_the_gil_on_a_thread_that_python_did_not_create():
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "pthread_create"):
        pytest.skip("needs pthreads")
    for make in (watched, lambda: (lambda x: (x, x))(exported(np.arange(8.0)))):
        source, alive = make()
        got = []
        is_array = isinstance(source, np.ndarray)
        exporter = core.NDArrayExporter() if is_array else core.CapsuleExporter(lambda x: x)
        memory_route(exporter, keep_capsule(got))(source if is_array else source.capsule())
        managed = consume(got.pop())
        del source
        assert alive() is not None if is_array else alive.deleted == 0
        thread = ctypes.c_void_p()
        # The deleter itself is the thread's function; it returns nothing, and pthread_join ignores that.
        address = ctypes.c_void_p(ctypes.addressof(managed))
        assert libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(managed.deleter), address) == 0
        assert libc.pthread_join(thread, None) == 0
        assert alive() is None if is_array else alive.deleted == 1


def test_many_threads_share_one_source():
    array = np.arange(64.0)
    route = memory_route(core.NDArrayExporter(), core.NDArrayImporter())
    count, wrong = sys.getrefcount(array), []

    def work():
        for _ in range(2000):
            result = route(array)
            if result[5] != 5:
                wrong.append(result)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sys.getrefcount(array) == count


def test_a_copy_does_not_keep_its_source():
    source, alive = watched()
    result = memory_route(core.NDArrayExporter(), core.NDArrayImporter(), copy=True)(source)
    del source
    assert alive() is None
    assert result[63] == 63


PROGRAM = """
import ctypes, os, sys
sys.path.insert(0, "tests")
import numpy as np
from helpers.native_core import consume, core, declare, keep_capsule, memory_route
declare()
got, keep = [], []
versions = [None] + ([{"max_version": (1, 0)}] if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else [])
for keywords in versions:
    exporter = core.CapsuleExporter(np.ndarray.__dlpack__, keywords=keywords)
    keep.append(memory_route(exporter, core.NDArrayImporter())(np.arange(8.0)))
    memory_route(exporter, keep_capsule(got))(np.arange(9.0))
    memory_route(core.NDArrayExporter(), keep_capsule(got))(np.arange(9.0))
    keep.append(memory_route(core.BufferExporter(), core.NDArrayImporter())(bytearray(64)))
keep.append(got)
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "cycle = [keep]; cycle.append(cycle); del keep, got",
        "sys.keep = keep",
        "import threading; threading.current_thread().keep = keep",
        "import atexit; atexit.register(keep.clear)",
        "sys.modules['keep'] = keep; del np",
        "raise SystemExit(0)",
    ],
)
def test_the_interpreter_exits_with_live_results(run_python, end):
    completed = run_python(PROGRAM + 'print("end", flush=True)\n' + end)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "end\n", "")


@pytest.mark.hazard("robustness#deleters-without-the-gil")
def test_a_deleter_after_the_interpreter_has_ended_leaves_the_owner(run_python):
    completed = run_python(
        PROGRAM
        + """
# The C library calls these at exit, after Python has ended.
register = getattr(ctypes.CDLL(None), "__cxa_atexit", None)
for capsule in got:
    managed = consume(capsule)
    if register is not None:
        address = ctypes.c_void_p(ctypes.addressof(managed))
        assert register(ctypes.c_void_p(managed.deleter), address, None) == 0
print("end", flush=True)
"""
    )
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "end\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_fork_drops_and_makes_results(run_python):
    completed = run_python(
        PROGRAM
        + """
child = os.fork()
if child == 0:
    keep.clear(); got.clear()
    route = memory_route(core.NDArrayExporter(), core.NDArrayImporter())
    for _ in range(100):
        assert route(np.arange(5.0))[4] == 4
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
keep.clear(); got.clear()
print("end", flush=True)
"""
    )
    assert completed.stdout == "end\n", completed.stderr


def test_a_hundred_thousand_conversions_leave_no_memory_and_no_reference():
    import resource

    array, leaf_count = np.arange(100.0), 10
    frozen = np.arange(100.0)
    frozen.flags.writeable = False
    data, got = bytearray(80), []
    to_array = memory_route(core.NDArrayExporter(), core.NDArrayImporter())
    to_capsule = memory_route(core.NDArrayExporter(), keep_capsule(got))
    buffered = memory_route(core.BufferExporter(), core.NDArrayImporter())
    copied = memory_route(core.NDArrayExporter(), core.NDArrayImporter(), copy=True)
    refused = memory_route(core.NDArrayExporter(), core.NDArrayImporter(), fallback=lambda x: None)
    reversed_ = array[::-1]

    def work(count):
        for _ in range(count):
            to_array(array), to_array(frozen), to_capsule(array), buffered(data), copied(array)
            refused(reversed_)
            got.clear()

    work(2000)
    gc.collect()
    counts = [sys.getrefcount(x) for x in (array, frozen, data, array.dtype, np.ndarray, reversed_)]
    objects, memory = len(gc.get_objects()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work(10_000 * leaf_count // 6)
    gc.collect()
    after = [sys.getrefcount(x) for x in (array, frozen, data, array.dtype, np.ndarray, reversed_)]
    assert after == counts
    assert abs(len(gc.get_objects()) - objects) < 100
    maps = Path("/proc/self/maps")
    if maps.exists() and "libasan" not in maps.read_text():  # AddressSanitizer keeps freed blocks
        # In KiB; 100 bytes for each would be 10 MB.
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 4096
