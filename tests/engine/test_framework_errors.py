"""Errors that frameworks raise during a conversion: out of memory, and mistakes in their hooks."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays import sample

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import routes


@pytest.mark.parametrize(("lazy", "to"), [(False, "torch"), (True, "torch"), (True, "numpy"), (True, "jax")])
def test_out_of_memory_in_torch_is_a_memory_error(lazy: bool, to: str) -> None:
    """Either the copy runs out of memory, or the resolved conjugate before it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip(to)
    huge = torch.ones(1, dtype=torch.complex64).expand(1 << 50)
    huge = huge.conj() if lazy else huge
    assert zc.explain(huge, to=to, copy=True).possible
    with pytest.raises(
        MemoryError,
        match=rf"convert\(torch.Tensor.*, to='{to}', copy=True\): torch could not allocate memory",
    ):
        zc.convert(huge, to=to, copy=True)


def test_error_in_a_description_is_translated(monkeypatch) -> None:
    torch = pytest.importorskip("torch")
    framework = type(registry.by_name("torch"))
    for error, kind in ((RuntimeError("DefaultCPUAllocator: no"), MemoryError), (OSError("no"), TypeError)):

        def source(self, obj, error=error):
            raise error

        monkeypatch.setattr(framework, "source", source)
        routes.clear()  # a route does not describe the tensor
        with pytest.raises(kind) as caught:
            zc.convert(torch.zeros(3), to="numpy", copy=True)
        assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "method", ["__dlpack__", "__array__", "__arrow_c_array__", "__arrow_c_stream__", "__array_interface__"]
)
def test_out_of_memory_in_an_exporter_is_a_memory_error(method: str) -> None:
    torch = pytest.importorskip("torch")

    def export(self, *args, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    methods = {method: property(export) if method == "__array_interface__" else export}
    exporter = type("Exporter", (), {"__dlpack_device__": lambda self: (1, 0), **methods})()
    for obj in (exporter, {"x": [exporter]}):
        for function in [zc.convert, zc.explain][
            : 2 if method == "__dlpack__" else 1
        ]:  # which reads no stream
            with pytest.raises(MemoryError, match=r"convert\(.*: torch could not allocate memory") as caught:
                function(obj, to="numpy")
            assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
            notes = getattr(caught.value, "__notes__", [])
            assert notes == ([] if obj is exporter else ["at ['x'][0]"])
    if method == "__dlpack__":
        with pytest.raises(MemoryError, match="column 'x'"):
            zc.convert({"x": exporter}, to="pyarrow")


def test_a_type_without_a_hash_gets_a_clear_error() -> None:
    meta = type("Meta", (type,), {"__eq__": lambda cls, other: cls is other})
    obj = meta("Odd", (), {})()
    for x in (obj, [obj], {"x": obj}, {"x": [obj]}):
        with pytest.raises(zc.UnsupportedConversionError, match=r"unhashable type: 'Meta'.*\n.*__hash__"):
            zc.convert(x, to="numpy")


def test_an_exporter_that_hashes_a_list_is_not_a_type_without_a_hash() -> None:
    obj = type(
        "Exporter", (), {"__dlpack__": lambda self, **options: {[]}, "__dlpack_device__": lambda self: (1, 0)}
    )()
    with pytest.raises(zc.UnsupportedConversionError, match="unhashable type: 'list'") as caught:
        zc.convert(obj, to="numpy")
    assert "__hash__" not in str(caught.value)


@pytest.mark.parametrize("error", [MemoryError("no memory"), RuntimeError("DefaultCPUAllocator: no memory")])
def test_out_of_memory_while_composing_keeps_the_result(monkeypatch, error: Exception) -> None:
    """The conversion has succeeded; memory runs out while a framework creates an object for the route."""
    pytest.importorskip("torch")

    def fast_exporters(self, cls):
        raise error

    monkeypatch.setattr(type(registry.by_name("numpy")), "fast_exporters", fast_exporters)
    routes.clear()
    x = sample("f4")
    for _ in range(2):
        assert zc.shares_memory(x, zc.convert(x, to="torch"))
    assert routes.routes_of("torch", {}).get(np.ndarray) is None


def test_error_while_composing_a_fast_path_is_reported(monkeypatch) -> None:
    """A mistake in a framework's file becomes an error of zerocopy (P9)."""
    pytest.importorskip("torch")

    def fast_exporters(self, cls):
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(type(registry.by_name("numpy")), "fast_exporters", fast_exporters)
    routes.clear()
    with pytest.raises(zc.UnsupportedConversionError, match="raised ZeroDivisionError") as caught:
        zc.convert(sample("f4"), to="torch")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_errors_that_mean_out_of_memory_are_recognised() -> None:
    torch = pytest.importorskip("torch")
    framework = registry.by_name("torch")
    assert framework.is_out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory"))
    assert not framework.is_out_of_memory(RuntimeError("CUDA error: an illegal memory access"))
    pytest.importorskip("jax")
    framework = registry.by_name("jax")
    assert framework.is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 4 bytes."))
    assert not framework.is_out_of_memory(RuntimeError("INTERNAL: RESOURCE"))
    assert not registry.by_name("numba").is_out_of_memory(OSError(2, "no such file"))


def test_failing_imports_are_refused(run_python, tmp_path) -> None:
    """As when a package on the path shadows one that the framework imports, or versions do not match."""
    completed = run_python(f"""
import importlib, pathlib, sys
import numpy as np
import zerocopy as zc

sys.path.insert(0, {str(tmp_path)!r})
# A file cannot shadow cuda.core, which is in a namespace package.
names = [name for name in zc.frameworks() if name != "numpy" and "." not in name]
for kind in ("ImportError", "AttributeError", "TypeError", "ValueError", "RuntimeError", "OSError"):
    for name in names:
        (pathlib.Path({str(tmp_path)!r}) / f"{{name}}.py").write_text(f"raise {{kind}}('no {{kind}}')")
        importlib.invalidate_caches()
        assert not zc.explain(np.zeros(3), name).possible, name
        try:
            zc.convert(np.zeros(3), name)
        except zc.FrameworkNotInstalledError as error:
            assert f"no {{kind}}" in str(error), error
        else:
            raise AssertionError(name)
print(len(names))
""")
    assert completed.returncode == 0, completed.stderr
    assert int(completed.stdout) >= 12
