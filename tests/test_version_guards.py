"""Both sides of each guard by version: without the branch for a version, the results are the same.

A program forces the side of other versions before the first conversion. zerocopy/_frameworks/versions.toml
names the test of each guard, or the runs that have each of its sides.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.native_core import exported
from helpers.paths import ROOT
from helpers.versions import VERSIONED_CAPSULES, needs

import zerocopy as zc
from zerocopy import registry
from zerocopy.cli.support import table
from zerocopy.device import HOST
from zerocopy.dtype import by_name
from zerocopy.framework import version_numbers
from zerocopy.protocols import dlpack
from zerocopy.protocols.array_interface import host_view
from zerocopy.strided_view import MAX_NDIM

#: Converts arrays to a framework and back, twice each: by the slow path, then by the fast path.
ROUND_TRIPS = """
import numpy as np, zerocopy as zc
from zerocopy.protocols.array_interface import aligned_copy

def outcome(obj, **options):
    try: result = zc.convert(obj, **options)
    except zc.ZeroCopyError as error: return None, error.code
    view = zc.view(result)
    strides = view.strides if view.size else ()
    return result, (str(view.dtype), view.shape, strides, zc.shares_memory(obj, result))

NAMES = "float32", "float16", "int16", "uint8", "complex64", "bool", "float64"

def round_trips(to, names=NAMES):
    for name in names:
        for shape in ((), (5,), (2, 3), (0, 4)):
            x = aligned_copy(np.arange(int(np.prod(shape))).reshape(shape).astype(name))
            for copy in (None, None, True, False):
                there, about = outcome(x, to=to, copy=copy)
                print(name, shape, copy, about)
                for again in () if there is None else (None, None, False):
                    back, about = outcome(there, to="numpy", copy=again)
                    print("back", again, about, None if back is None else back.tolist())
"""

#: For each guard of a framework: how to force the other side, and what shows which side ran.
FRAMEWORKS = {
    "jax": (
        "capsules._IMPORT.known = False",
        "import jax; jax.config.update('jax_enable_x64', True)",
        "capsules._IMPORT.known and capsules._import.arguments != ()",
    ),
    "torch without its exchange API": (
        "native._KNOWN = (0, 0), (0, 0)",
        "import torch; from zerocopy._frameworks.torch import native",
        "native.importer(torch, ()) is not None",
    ),
}
#: Types that NumPy lacks and ml_dtypes adds to it.
NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
NAMES = """
from zerocopy import registry
from zerocopy._native import core
from zerocopy._frameworks.jax import capsules
"""


@pytest.mark.parametrize("guard", FRAMEWORKS)
def test_other_versions_of_a_framework_give_the_same_results(guard: str, run_warm: Any) -> None:
    name = guard.partition(" ")[0]
    pytest.importorskip(name)
    if name == "jax" and version_numbers(version("jax")) < (0, 7):
        pytest.skip("JAX 0.6 has one side only: the public functions")
    force, setup, shows = FRAMEWORKS[guard]
    outputs = []
    for forced in (False, True):
        code = [NAMES, setup, force if forced else "", ROUND_TRIPS, f"round_trips({name!r})"]
        if forced or "exchange" not in guard or zc._native.core is not None:
            code += [f"assert ({shows}) is {not forced}, 'the other side ran'"]
        process = run_warm("\n".join(code))
        assert process.returncode == 0, process.stderr
        outputs.append(process.stdout.splitlines())
    assert len(outputs[0]) > 300
    assert outputs[0] == outputs[1]


@needs("numpy", "2.5", "register_dlpack_dtype")
@pytest.mark.parametrize("name", ["jax", "torch", "tensorflow"])
def test_types_that_ml_dtypes_registers_give_the_same_results(name: str, run_warm: Any) -> None:
    """NumPy 2.5 exports bfloat16 and float8 by DLPack once registered, which ml_dtypes 0.6 omits."""
    pytest.importorskip(name)
    outputs = []
    for registered in (False, True):
        code = f"""
            import ml_dtypes, numpy as np, {name}
            from zerocopy.dtype import by_name
            for name in {NARROW}:
                dtype = np.dtype(getattr(ml_dtypes, name))
                if {registered}:
                    np.dtypes.register_dlpack_dtype((by_name(name).code, 8 * dtype.itemsize), dtype)
                    assert np.from_dlpack(np.ones(2, dtype)).dtype == dtype
        """
        process = run_warm(
            "\n".join([textwrap.dedent(code), ROUND_TRIPS, f"round_trips({name!r}, {NARROW})"])
        )
        assert process.returncode == 0, process.stderr
        outputs.append(process.stdout.splitlines())
    assert len(outputs[0]) > 40
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("by_numpy", [True, False])
def test_versioned_capsules_are_imported_with_each_numpy(
    by_numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_numpy and not VERSIONED_CAPSULES:
        pytest.skip(f"NumPy {np.__version__} does not import versioned capsules")
    monkeypatch.setattr(dlpack, "NUMPY_TAKES_VERSIONED", by_numpy)
    wide = np.arange(6.0).reshape(2, 3).T
    for memory in (wide, np.array([True, False]), np.arange(4, dtype="u1"), np.array(2, "f4")):
        for flags in (0, dlpack.FLAG_READ_ONLY):
            source = exported(memory, version=(1, 0), flags=flags)
            capsule = source.capsule()
            result = dlpack.as_ndarray(capsule, dlpack.read(capsule))
            assert (result.dtype, result.strides) == (memory.dtype, memory.strides)
            assert result.tolist() == memory.tolist()
            assert zc.shares_memory(result, memory)
            assert result.flags.writeable is not bool(flags)
            del capsule
            source.drop()
            assert source.deleted == 0
            del result
            assert source.deleted == 1


def test_arrays_have_as_many_dimensions_as_numpy_allows() -> None:
    assert np.zeros((1,) * MAX_NDIM).ndim == MAX_NDIM
    with pytest.raises(ValueError, match="dimension"):
        np.zeros((1,) * (MAX_NDIM + 1))


@pytest.mark.parametrize(("release", "package"), [("1.26.4", "numpy.core"), ("2.0.0", "numpy._core")])
def test_the_compiled_module_of_numpy_is_found(
    release: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zerocopy.pool.host import data_handler

    monkeypatch.setattr(data_handler, "_numpy_version", lambda: release)
    monkeypatch.setattr(data_handler, "import_module", lambda name: name)
    assert data_handler._module() == f"{package}._multiarray_umath"


def ort_module(release: str, has_all_types: bool) -> SimpleNamespace:
    """Return a stand-in for ``onnxruntime``, with the types that a version's capsules have."""

    def from_dlpack(producer: Any) -> SimpleNamespace:
        capsule = producer.__dlpack__() if hasattr(producer, "__dlpack__") else producer
        read = dlpack.read(capsule)
        name = read.dtype.name
        if not has_all_types:
            if name == "bool":
                raise RuntimeError("Unsupported code 6")
            name = "bool" if str(getattr(producer, "dtype", "")) == "bool" else name
        exported = dlpack.as_ndarray(capsule, read)  # of bytes, if the capsule is
        return SimpleNamespace(
            has_value=lambda: True,
            is_sparse_tensor=lambda: False,
            is_tensor=lambda: True,
            device_name=lambda: "cpu",
            data_type=lambda: f"tensor({name})",
            __dlpack__=exported.__dlpack__,
            shape=lambda: exported.shape,
            data_ptr=lambda: exported.ctypes.data,
        )

    return SimpleNamespace(__version__=release, OrtValue=SimpleNamespace(from_dlpack=from_dlpack))


@pytest.mark.hazard("other-frameworks#booleans-in-onnxruntime")
@pytest.mark.parametrize(("release", "recent"), [("1.31.1", False), ("1.32.0", True)])
def test_onnxruntime_has_float8_and_booleans_from_1_32_on(
    release: str, recent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework: Any = registry.by_name("onnxruntime")
    monkeypatch.setattr(type(framework), "module", lambda self: ort_module(release, recent))
    float8 = host_view(np.ones(3, "u1"), by_name("float8_e5m2"))
    with nullcontext() if recent else pytest.raises(zc.UnsupportedConversionError, match="no float8_e5m2"):
        framework.copy_reasons(float8)
    for shape in ((), (3,), (2, 2)):
        x = np.ones(shape, bool)
        value = framework.from_host(x, by_name("bool"), HOST, None)
        view = framework.source(value).view
        assert (value.data_type(), view.dtype, view.shape) == ("tensor(bool)", by_name("bool"), shape)
        assert view.ptr == x.ctypes.data
    import_ndarray = framework.fast_importers()["ndarray"]
    assert import_ndarray(np.ones(3, bool)).data_type() == "tensor(bool)"
    assert import_ndarray(np.ones(3, "u1")).data_type() == "tensor(uint8)"


@pytest.mark.parametrize(
    ("release", "before", "name"),
    [
        ("2.8.1", {}, "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.9.0", {}, "PYTORCH_ALLOC_CONF"),
        ("2.9.0", {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, "PYTORCH_CUDA_ALLOC_CONF"),
        ("", {}, "PYTORCH_ALLOC_CONF"),
    ],
)
def test_torch_reads_the_variable_that_selects_its_allocator(
    release: str, before: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zerocopy._frameworks.torch import pool

    monkeypatch.setattr(pool, "_version", lambda: release)
    hook: Any = object.__new__(pool.Pool)
    value = ",".join([*before.values(), "backend:cudaMallocAsync"])
    assert hook.allocator_env(SimpleNamespace(uses_rmm=False), before) == {name: value}


@pytest.mark.skipif(sys.platform != "linux", reason="memfd_create")
def test_mappings_are_the_same_with_a_second_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.13, mmap duplicates the descriptor of a file that it maps."""
    from zerocopy.shared import segment

    for options in ({}, segment.MAP_OPTIONS):
        monkeypatch.setattr(segment, "MAP_OPTIONS", options)
        mapped = segment.mapped_memfd("zerocopy-test", 4096)
        mapped[:3] = b"abc"
        assert mapped[:3] == b"abc"
        assert mapped.has_descriptor()


@pytest.mark.skipif(sys.platform == "win32", reason="timers of signals")
@pytest.mark.hazard("robustness#signals-in-a-with")
def test_errors_of_signal_handlers_leave_locks_free(run_python: Any) -> None:
    """With the locks of Python 3.14, and with those that each version uses."""
    completed = run_python(
        """
        import signal
        from zerocopy import forks
        from zerocopy.interpreter import _LockOf314
        class Stop(Exception): pass
        def handle(*_):
            if is_armed: raise Stop
        is_armed = False
        signal.signal(signal.SIGALRM, handle)
        def use(lock):
            while True:
                with lock: pass
        others = map(_LockOf314, (forks.RLock(), forks.allocate_lock()))
        for lock in forks.lock(), forks.plain_lock(), *others:
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
            for _ in range(200):
                try:
                    is_armed = True
                    use(lock)
                except Stop:
                    is_armed = False
                    try: lock.release()
                    except RuntimeError: continue
                    raise AssertionError("it was locked")
            signal.setitimer(signal.ITIMER_REAL, 0)
        """
    )
    assert completed.returncode == 0, completed.stderr


def test_annotations_may_name_absent_modules() -> None:
    """From Python 3.14 on, ``inspect.signature`` evaluates annotations by default."""
    function: dict[str, Callable[..., Any]] = {}
    future = "from __future__ import annotations\n" if sys.version_info < (3, 14) else ""
    code = f"{future}def same(x: absent.Array) -> absent.Array: return x"
    exec(compile(code, "<test>", "exec", dont_inherit=True), function)
    assert zc.accepts("numpy")(function["same"])(np.ones(2)).tolist() == [1, 1]


def test_each_guard_names_its_test_or_its_runs() -> None:
    runs = table()["runs"]
    for guard in table()["guards"]:
        sides = guard["both"]
        if isinstance(sides, str):
            path, _, name = sides.partition("::")
            assert f"def {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), guard
        else:
            assert len(sides) >= 2
            assert {*sides} <= {*runs}, guard
