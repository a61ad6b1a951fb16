"""Memory stays alive while an alias exists, in MXNet too, is then freed, and nothing crashes."""

from __future__ import annotations

import gc
import subprocess
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from helpers.mxnet_or_skip import mxnet_or_skip

import zerocopy as zc

mx = mxnet_or_skip()
Run = Callable[..., subprocess.CompletedProcess[str]]

ELEMENTS = 10_000
DTYPES = ["float32", "int8", "bool"]


@pytest.fixture
def no_gc():
    """Disable the garbage collector, so that only reference counts free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# -- both orders ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_mxnet_keeps_numpys_memory(no_gc: None, dtype: str) -> None:
    source = np.ones(ELEMENTS, dtype)
    alive = weakref.ref(source)
    result = zc.convert(source, "mxnet", copy=False)
    del source
    assert alive() is not None
    assert (result.asnumpy() == 1).all()
    part, shaped = result[5:9], result.reshape((100, -1))
    del result
    assert alive() is not None
    assert (part.asnumpy() == 1).all()
    del part
    assert (shaped.asnumpy() == 1).all()
    del shaped
    assert alive() is None


def test_view_keeps_mxnets_memory() -> None:
    view = zc.view(mx.nd.full((ELEMENTS,), 7))
    others = [mx.nd.full((ELEMENTS,), -1) for _ in range(50)]
    mx.nd.waitall()
    assert (view.numpy() == 7).all()
    del others


def test_chain_of_conversions_shares_one_memory(no_gc: None) -> None:
    source = np.ones(ELEMENTS, "float32")
    alive = weakref.ref(source)
    result = source
    for _ in range(20):
        result = zc.convert(zc.convert(result, "mxnet", copy=False), "numpy", copy=False)
    source[3] = 5
    assert result[3] == 5
    del source
    assert alive() is not None
    assert result[3] == 5
    del result
    assert alive() is None


# -- threads ------------------------------------------------------------------------


def test_result_can_be_dropped_by_mxnets_thread() -> None:
    """The engine holds queued arrays, and releases the last reference on a thread without the GIL."""
    alive = []
    for _ in range(200):
        source = np.ones((300, 300), "float32")
        alive.append(weakref.ref(source))
        alias = zc.convert(source, "mxnet")
        pending = mx.nd.dot(alias, alias)
        del source, alias, pending
    mx.nd.waitall()
    for _ in range(100):
        if not any(reference() is not None for reference in alive):
            return
        threading.Event().wait(0.05)  # the engine releases it after it reports completion
    pytest.fail("MXNet did not release the memory")


@pytest.mark.hazard("other-frameworks#mxnet-exit")
def test_an_exit_waits_for_a_deleter_that_waits_for_the_gil(run_python: Run) -> None:
    """The main thread keeps the GIL until the interpreter exits, with threads of MXNet in a deleter.

    MXNet's own function at exit would release the GIL once more, most often for long enough.
    """
    code = """
        import atexit, sys, time
        import numpy as np, mxnet as mx, zerocopy as zc
        sys.setswitchinterval(1000)
        for _ in range(20):
            alias = zc.convert(np.ones(10_000, "float32"), "mxnet")
            pending = alias + 1
            del alias, pending
        end = time.perf_counter() + 0.2
        while time.perf_counter() < end:
            pass
        atexit.unregister(mx.base._notify_shutdown)
    """
    completed = run_python(code)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.hazard("other-frameworks#mxnet-deleters")
def test_the_deleter_takes_the_gil(run_python: Run) -> None:
    """Python's debug allocator aborts if it is called without the GIL."""
    code = """
        import numpy as np, mxnet as mx, zerocopy as zc
        for dtype in ("float32", "bool"):
            for _ in range(100):
                source = np.ones(10_000, dtype)
                alias = zc.convert(source, "mxnet")
                pending = alias + 1
                del source, alias, pending
        mx.nd.waitall()
        print("alive")
    """
    completed = run_python(code, PYTHONMALLOC="debug")
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip() == "alive"


@pytest.mark.hazard("other-frameworks#mxnet-deleters")
def test_numpy_deleter_without_the_gil_crashes(run_python: Run) -> None:
    """NumPy before 1.24 (numpy/numpy#22507): if this test fails, the plain capsule is sufficient."""
    code = """
        import numpy as np, mxnet as mx
        alias = mx.nd.from_dlpack(np.ones(10_000, "float32").__dlpack__())
        del alias
    """
    completed = run_python(code, PYTHONMALLOC="debug")
    assert completed.returncode != 0
    assert "without holding the GIL" in completed.stderr


# -- at interpreter exit --------------------------------------------------------------

HOLDERS = {
    "a global": "alias = make()",
    "a cycle": "class A: pass\nA.alias, A.itself = make(), A",
    "a module": "import types, sys; sys.modules['m'] = m = types.ModuleType('m'); m.alias = make()",
    "builtins": "import builtins; builtins.alias = make()",
    "a thread's locals": "import threading; here = threading.local(); here.alias = make()",
    "a default argument": "import sys; sys.excepthook = lambda *a, alias=make(): None",
    "a reference that leaked": "import ctypes; ctypes.pythonapi.Py_IncRef(ctypes.py_object(make()))",
    "work that is queued": "alias = make(); big = mx.nd.ones((900, 900)); pending = mx.nd.dot(big, big)",
}
THINGS = {
    "mxnet's alias of numpy": "zc.convert(np.ones(1000, 'float32'), 'mxnet')",
    "numpy's alias of mxnet": "zc.convert(mx.nd.ones((1000,)), 'numpy')",
    "a plan": "zc.explain(mx.nd.ones((1000,)), 'numpy')",
}


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_interpreter_exits_with_live_arrays(run_python: Run, holder: str, thing: str) -> None:
    code = (
        "import numpy as np, mxnet as mx, zerocopy as zc\n"
        f"def make(): return [{THINGS[thing]} for _ in range(20)]\n{HOLDERS[holder]}\n"
    )
    completed = run_python(code, PYTHONWARNINGS="ignore")
    assert (completed.returncode, completed.stderr) == (0, "")


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize(
    "module",
    ["mx", "mx.nd.ndarray", "zc._frameworks.mxnet", "ctypes"],
)
def test_arrays_held_by_modules_cleared_after_mxnet(run_python: Run, thing: str, module: str) -> None:
    """Modules imported first are cleared last, when MXNet's modules are already empty.

    mx.nd.from_numpy crashes the process there: its deleter is freed with its module.
    """
    code = (
        "import ctypes, io, threading\nimport numpy as np, mxnet as mx, zerocopy as zc\n"
        f"io.alias = threading.alias = np.alias = [{THINGS[thing]} for _ in range(20)]\n"
        f"io.module = {module}\n"
    )
    completed = run_python(code, PYTHONWARNINGS="ignore", PYTHONMALLOC="debug")
    assert (completed.returncode, completed.stderr) == (0, "")


def test_conversions_at_exit(run_python: Run) -> None:
    """Conversions after zerocopy's exit hook; after its own hook MXNet hangs on any call."""
    code = """
        import atexit, io, numpy as np, mxnet as mx, zerocopy as zc
        def late():
            io.kept = zc.convert(np.arange(4, dtype="float32"), "mxnet")
            print(io.kept.asnumpy().sum(), zc.convert(io.kept, "numpy").sum())
        atexit.register(late)  # called after the hook that the first conversion registers
        alias = zc.convert(np.ones(3), "mxnet")
    """
    completed = run_python(code, PYTHONWARNINGS="ignore", PYTHONMALLOC="debug")
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.split() == ["6.0", "6.0"]


# -- leaks ----------------------------------------------------------------------------
