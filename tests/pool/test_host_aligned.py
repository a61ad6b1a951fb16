"""``host="aligned"``: alignment of all NumPy arrays of the process, until its exit."""

import pytest
from helpers.free_threaded import FREE_THREADED
from helpers.tiers import sample_size

from zerocopy._native import core
from zerocopy.pool.host import c_library

pytestmark = pytest.mark.skipif(c_library.refusal() is not None, reason=str(c_library.refusal()))

native = pytest.mark.skipif(not hasattr(core, "allocator_functions"), reason="needs the compiled core")

ALIGNED = """
import gc, io, os, pickle, random, sys, threading
import numpy as np
from zerocopy.pool.host import parse

(mode,) = parse("aligned")
mode.install()

def offset(array):
    return array.ctypes.data % 64
"""

CONSTRUCTORS = """
def made(n):
    '''Arrays of about n bytes, by all ways to make one.'''
    k = max(1, n // 8)
    ones = np.ones(k)
    yield "empty", np.empty(k)
    yield "zeros", np.zeros(k)
    yield "ones", ones
    yield "full", np.full(k, 3.0)
    yield "arange", np.arange(k)
    yield "linspace", np.linspace(0, 1, k)
    yield "random", np.random.default_rng(0).random(k)
    yield "copy", ones.copy()
    yield "astype", ones.astype("f4")
    yield "sum", ones + ones
    yield "concatenate", np.concatenate([ones[: k // 2], ones])
    yield "array", np.array([ones, ones])
    yield "zeros_like", np.zeros_like(ones)
    yield "bool", ones > 0
    yield "complex", ones * 1j
    yield "fortran", np.zeros((k // 2 + 1, 2), order="F")
    yield "sort", np.sort(ones)
    if n <= 2**24:
        yield "fromiter", np.fromiter(iter(range(k)), np.int64)
        yield "resize", np.resize(ones, k * 2 + 1)
        grown = np.arange(k)
        grown.resize(2 * k + 1, refcheck=False)
        assert (grown[:k] == np.arange(k)).all() and not grown[k:].any()
        yield "ndarray.resize", grown
        grown.resize(k // 2 + 1, refcheck=False)
        assert (grown == np.arange(len(grown))).all()
        yield "shrunk", grown
        yield "frombuffer, copied", np.frombuffer(bytes(n), np.uint8).copy()
        kept = io.BytesIO()
        np.save(kept, ones)
        kept.seek(0)
        yield "load", np.load(kept)
    if n <= 2**17:
        yield "loadtxt", np.loadtxt([str(i) for i in range(k)])
        yield "fromstring", np.fromstring(" ".join(map(str, range(k))), sep=" ")
        yield "structured", np.zeros(k, [("a", "i1"), ("b", "f8")])
        yield "object", np.zeros(k, object)
        yield "text", np.array(["abc"] * k)

def check(sizes):
    wrong = [(n, name, offset(a)) for n in sizes for name, a in made(n) if offset(a)]
    assert not wrong, wrong
"""


@native
def test_every_constructor_is_aligned_at_every_size(run_python):
    sizes = [1, 8, 100, 1000, 1016, 1024, 1032, 2**12, 10**5, 2**20, 2**22, 2**25, 2**26, 2**28]
    completed = run_python(
        f"SIZES = {sizes[: sample_size(14, 12)]}\n"
        + ALIGNED
        + CONSTRUCTORS
        + """
before = np.ones(1000)
check(SIZES)
thread = threading.Thread(target=check, args=([1, 100, 1024, 10**5, 2**22, 2**25],))
thread.start()
thread.join()
from contextvars import Context
Context().run(check, [1000, 10**5])
print("checked", mode.describe())
"""
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr == ""
    assert completed.stdout.startswith("checked aligned: NumPy's arrays are 64-byte aligned;")


def test_foreign_memory_is_not_moved(run_python):
    """Memory that NumPy does not allocate keeps its address: pickled arrays are Python bytes."""
    completed = run_python(
        ALIGNED
        + """
x = np.arange(100_000)
y = pickle.loads(pickle.dumps(x, protocol=5))
assert (x == y).all() and not y.flags.owndata
print(offset(np.frombuffer(bytes(4096))) in range(0, 64, 16), offset(y.copy()))
"""
    )
    assert completed.stdout == "True 0\n", completed.stderr


@native
def test_jax_imports_every_array_without_copy(run_python):
    pytest.importorskip("jax")
    completed = run_python(
        """
import numpy as np
import zerocopy as zc
from zerocopy.pool.host import parse

def taken():
    makers = (np.empty, np.zeros, np.ones, lambda n, t: np.arange(n, dtype=t))
    arrays = [make(n, np.float32) for make in makers for n in (256, 1000, 10**5, 2**22)]
    # An offset of 16 bytes, so that the array is not aligned by chance.
    return [zc.explain(a, "jax", copy=False).zero_copy for a in arrays], arrays

before, _ = taken()
(mode,) = parse("aligned")
mode.install()
after, arrays = taken()
for a in arrays:
    b = zc.convert(a, to="jax", copy=False)
    assert zc.shares_memory(a, b)
print(all(before), all(after))
"""
    )
    assert completed.stdout == "False True\n", completed.stderr


@native
def test_zeros_in_reused_memory_are_zero(run_python):
    completed = run_python(
        ALIGNED
        + """
r = random.Random(0)
M = 2**20
sizes = [1, 63, 1023, 1024, 4095, 4096, 4097, 10**6, 32 * M - 1, 32 * M, 32 * M + 1, 40 * M, 64 * M + 4095]
for n in sizes * 3 + [r.randrange(1, 1 << r.randrange(1, 27)) for _ in range(300)]:
    dirty = np.empty(n, np.uint8)
    at = dirty.ctypes.data
    dirty.fill(0xAA)
    del dirty
    zeros = np.zeros(n, np.uint8)
    assert not zeros.any(), n
    zeros.fill(0xBB)
print("zero")
"""
    )
    assert completed.stdout == "zero\n", completed.stderr


@native
@pytest.mark.parametrize("mode", ["aligned", "recycle"])
def test_large_zeros_are_lazy(run_python, mode):
    completed = run_python(
        f"""
import numpy as np
from zerocopy.pool.host import c_library, parse
(mode,) = parse({mode!r})
mode.install()
x = np.empty(256 << 20, np.uint8)
x.fill(1)
del x
before = c_library.resident()
x = np.zeros(256 << 20, np.uint8)
taken = c_library.resident() - before
y = np.zeros(1 << 33, np.uint8)
assert c_library.resident() - before < 16 << 20
assert not y[:: 1 << 20].any() and not x.any()
print(taken < 1 << 20)
"""
    )
    assert completed.stdout == "True\n", completed.stderr


def test_out_of_memory_is_a_memory_error(run_python):
    completed = run_python(
        ALIGNED
        + """
for make in (np.empty, np.zeros):
    try:
        make(1 << 55, np.uint8)
    except MemoryError:
        print("refused")
x = np.arange(10)
try:
    x.resize(1 << 52, refcheck=False)
except MemoryError:
    print(x.sum())
"""
    )
    assert completed.stdout == "refused\nrefused\n45\n", completed.stderr


def test_the_fix_of_a_slice_does_not_install_the_pool_again(run_python):
    pytest.importorskip("jax")
    completed = run_python(
        "import zerocopy as zc\n"
        + ALIGNED
        + 'print(zc.explain(np.zeros(100, "f4")[1:], "jax").reasons[0].remedy)'
    )
    assert completed.stdout.startswith("x.copy() allocates"), completed.stderr


ENDS = {
    "cycle": "a = [np.zeros(n) for n in SIZES]; a.append(a); a[0].base is None; del a",
    "global": "kept = [np.zeros(n) for n in SIZES] + [np.empty(n) for n in SIZES]",
    "thread": """
stop = threading.Event()
def work():
    local = [np.ones(n) for n in SIZES]
    stop.wait(0.2)
    local = [a + 1 for a in local]
threading.Thread(target=work).start()
""",
    "atexit": """
import atexit
@atexit.register
def last():
    global late
    late = [np.zeros(n) for n in SIZES]
    late[0].resize(10, refcheck=False)
""",
    "daemon": """
go = threading.Event()
def work():
    while True:
        local = [np.ones(n) for n in SIZES]
        go.set()
threading.Thread(target=work, daemon=True).start()
go.wait()
""",
    "module that goes last": "sys.kept_for_ever = [np.zeros(n) for n in SIZES]",
}


@pytest.mark.hazard("robustness#numpy-blocks-after-exit")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("mode", ["aligned", "recycle"])
@pytest.mark.parametrize("setting", ["", "0"])
def test_interpreter_exit_with_live_arrays(run_python, setting, mode, end):
    if FREE_THREADED and setting == "0" and mode == "aligned":
        pytest.skip("the mode needs the compiled core on a free-threaded Python")
    code = (
        ALIGNED.replace('"aligned"', repr(mode)) + "SIZES = (1, 100, 10**4, 10**6, 5 * 10**6)\n" + ENDS[end]
    )
    completed = run_python(code, ZEROCOPY_NATIVE=setting)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


@native
def test_fork_keeps_both_processes_working(run_python):
    completed = run_python(
        ALIGNED
        + CONSTRUCTORS
        + """
held = np.full(10**6, 7)
child = os.fork()
check([100, 10**5, 2**25])
assert (held == 7).all()
zeros = np.zeros(40 << 20, np.uint8)
assert not zeros.any()
zeros.fill(1)
if not child:
    del held
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("both")
"""
    )
    assert completed.stdout == "both\n", completed.stderr


@native
def test_threads_allocate_while_modes_change(run_python):
    """Each call uses one consistent set of functions."""
    completed = run_python(
        ALIGNED
        + """
mode.restore()
stop, failed = threading.Event(), []
def work(seed):
    r = random.Random(seed)
    held = {}
    try:
        while not stop.is_set():
            n = r.randrange(1, 1 << r.randrange(1, 23))
            make = r.choice([np.empty, np.zeros])
            a = make(n, np.uint8)
            if make is np.zeros:
                assert not a.any()
            a.fill(seed)
            if r.random() < 0.1:
                a.resize(n * 2, refcheck=False)
                assert (a[:n] == seed).all() and not a[n:].any()
                a.fill(seed)
            old = held.get(n % 16)
            assert old is None or (old == seed).all()
            held[n % 16] = a
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=work, args=(i,)) for i in (1, 2)]
for thread in threads:
    thread.start()
for i in range(60):
    mode.install()
    mode.install()
    stop.wait(0.01)
    assert not np.ones(1000).ctypes.data % 64
    mode.trim()
    mode.restore()
    stop.wait(0.01)
stop.set()
for thread in threads:
    thread.join()
print(failed)
"""
    )
    assert (completed.returncode, completed.stdout) == (0, "[]\n"), completed.stderr


def test_arrays_outlive_mode_changes(run_python):
    completed = run_python(
        """
import numpy as np
from zerocopy.pool.host import data_handler, parse
sizes = (1, 100, 1000, 10**4, 10**6, 5 * 10**6)
make = lambda: [f(n) for n in sizes for f in (np.ones, np.zeros, np.empty)]
fields = ("ctx", "malloc", "calloc", "realloc", "free")
functions = lambda: [getattr(data_handler._handler().allocator, name) for name in fields]
before, found = make(), functions()
(mode,) = parse("aligned")
mode.install()
during = make()
assert functions() != found
del before
lost = mode.restore()
assert functions() == found and not mode.installed
after = make()
for a in during:
    a.resize(a.size * 2, refcheck=False)
del during
after = make()
print(lost)
mode.install()
assert not np.ones(1000).ctypes.data % 64
both = parse("aligned+recycle")
both[1].install()
mode.restore()
assert both[1].installed and functions()[1] == found[1]
both[1].restore()
assert functions() == found
"""
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("glibc no longer adapts its mmap threshold")


def test_custom_handler_of_context_is_reported(run_python):
    """A handler of another package is not changed (NEP 49)."""
    completed = run_python(
        ALIGNED
        + """
import ctypes
from zerocopy.pool.host import data_handler
table = ctypes.pythonapi.PyCapsule_GetPointer
table.restype, table.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
own = data_handler._Handler.from_buffer_copy(data_handler._handler())
own.name = b"mine"
make = ctypes.pythonapi.PyCapsule_New
make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
name = b"mem_handler"
capsule = make(ctypes.addressof(own), name, None)
slot = table(data_handler._module()._ARRAY_API, None) + 304 * 8
set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(ctypes.c_void_p.from_address(slot).value)
print(mode.describe().count("this context"))
set_handler(capsule)
print(mode.describe().count("this context allocates with 'mine'"))
os._exit(0 if sys.stdout.flush() is None else 1)
"""
    )
    assert completed.stdout == "0\n1\n", completed.stderr


def test_tracemalloc_may_start_later(run_python):
    completed = run_python(
        ALIGNED
        + """
import tracemalloc
before = np.ones(10**5)
tracemalloc.start()
x = [np.zeros(10**5), np.empty(100), np.arange(10)]
x[2].resize(10**4, refcheck=False)
traced = tracemalloc.get_traced_memory()[0]
del x, before
tracemalloc.stop()
y = np.ones(10**5)
print(traced > 8 * 10**5)
"""
    )
    assert (completed.returncode, completed.stdout) == (0, "True\n"), completed.stderr
