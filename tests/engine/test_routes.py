"""The fast path is taken and agrees with the plan; private functions agree with public ones (law 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.frameworks import ALIASING, HOST, PAIRS
from helpers.versions import needs

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import routes
from zerocopy._engine.convert import convert_slowly
from zerocopy._engine.planner import Call, make_plan
from zerocopy._native import core
from zerocopy.dtype import by_name, to_numpy
from zerocopy.protocols import dlpack
from zerocopy.strided_view import StridedView

# MXNet reports an operator's failure once: after an error on the fast path, the slow path would
# return the failed array.
SLOW_PATH_ONLY = {"mxnet"}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_second_conversion_takes_a_route_that_agrees_with_the_plan(source: str, target: str) -> None:
    x = zc.convert(sample("f4", (64,)), to=source, copy=True)
    zc.convert(x, to=target)
    route = routes.routes_of(target, {})[type(x)]
    assert (route is routes.NO_ROUTE) == (source in SLOW_PATH_ONLY and source != target)
    if route is routes.NO_ROUTE:
        return
    planned = make_plan(Call(x, target, {})).run()
    fast = route(x)
    assert type(fast) is type(planned)
    a, b = zc.view(fast), zc.view(planned)
    assert (a.shape, a.strides, a.dtype, a.readonly) == (b.shape, b.strides, b.dtype, b.readonly)
    assert a.ptr == b.ptr or (target not in ALIASING and source != target)
    assert bits(zc.convert(fast, to="numpy")) == bits(zc.convert(planned, to="numpy"))


def test_negative_answers_are_not_cached() -> None:
    class Later:
        def __array__(self):
            raise AssertionError

    x = Later()
    with pytest.raises(zc.UnsupportedConversionError):
        zc.convert(x, to="numpy")
    assert registry.by_type(Later) is None

    class LaterFramework(zc.Framework):
        name, root_modules = "later_framework", (Later.__module__.partition(".")[0],)

        def owns(self, cls: type) -> bool:
            return cls is Later

        def source(self, obj: object) -> zc.Source:
            view = zc.view(b"later")
            return zc.Source("Later", view, view.numpy)

    zc.register(LaterFramework())
    assert bytes(zc.convert(x, to="numpy")) == b"later"


def test_replacing_a_framework_drops_its_routes() -> None:
    x = sample("f4")
    numpy_routes = routes.routes_of("numpy", {})
    zc.convert(x, to="numpy")
    assert numpy_routes.get(np.ndarray) is not None
    zc.register(registry.by_name("numpy"))
    assert numpy_routes.get(np.ndarray) is None
    assert zc.convert(x, to="numpy") is x
    assert numpy_routes.get(np.ndarray) is not None


def count_compositions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that has an item for each route that is composed from now on."""
    composed: list[Any] = []
    compose = routes.compose

    def counted(*arguments: Any) -> Any:
        composed.append(arguments)
        return compose(*arguments)

    routes.clear()
    monkeypatch.setattr(routes, "compose", counted)
    return composed


@pytest.mark.parametrize("options", [{"nulls": 0}, {"encode": True}], ids=str)
def test_a_route_that_does_not_exist_is_looked_for_once(options, monkeypatch) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    composed = count_compositions(monkeypatch)
    results = [zc.convert(table, "numpy", **options) for _ in range(3)]
    assert len(composed) <= 1
    assert len({str(result) for result in results}) == 1
    assert core is None or not composed or routes.routes_of("numpy", options)[pa.Table] is routes.NO_ROUTE


def test_a_route_is_composed_once_for_equal_values_of_options(monkeypatch) -> None:
    """Lists of labels and devices are new objects in each call."""
    torch = pytest.importorskip("torch")
    pa = pytest.importorskip("pyarrow")
    table, x = pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0]}), sample("f4")
    composed = count_compositions(monkeypatch)
    for _ in range(3):
        assert list(zc.convert(table, "numpy", columns=list("b"))) == ["b"]
        assert list(zc.convert(table, "numpy", columns=tuple("b"))) == ["b"]
        assert list(zc.convert(table, "numpy", columns=list("ab"))) == ["a", "b"]
        assert zc.convert(x, "torch", device=torch.device("cpu")).shape == x.shape
        assert zc.convert(x, "torch", dtype="".join(("float", "32"))).dtype == torch.float32
    assert len(composed) == (0 if core is None else 4)


class DroppedAfterEachLookup(dict):  # type: ignore[type-arg]
    """Routes that another thread drops after each lookup."""

    def __contains__(self, cls: object) -> bool:
        answer = super().__contains__(cls)
        self.clear()
        return answer

    def get(self, cls: object, default: object = None) -> object:
        route = super().get(cls, default)
        self.clear()
        return route


@pytest.mark.skipif(core is not None, reason="tests/native/test_table.py drops the routes of the core")
@pytest.mark.parametrize("convert", [zc.convert, lambda x, to: convert_slowly(x, to, {})])
def test_routes_that_another_thread_drops_are_no_error(convert, monkeypatch) -> None:
    array = np.arange(3.0)
    for obj in (array, {"a": array}, [array, (array,)]):
        zc.convert(obj, "numpy")
        monkeypatch.setitem(routes.TABLE, "numpy", DroppedAfterEachLookup(routes.TABLE["numpy"]))
        assert type(convert(obj, "numpy")) is type(obj)


def test_route_depends_on_the_type_alone() -> None:
    """Arrays of one type in turn: contiguous, reversed, strided, byte-swapped, text."""
    x = sample("f4", (64,))
    for target in HOST:
        for y in (x, x[::-1], x, x[::2], x.astype(">f4"), x):
            try:
                result = zc.convert(y, to=target)
            except zc.ZeroCopyError:
                continue
            assert zc.convert(result, to="numpy").tolist() == y.tolist()
        text = np.array(["a"])
        if target == "numpy" or registry.by_name(target).tables:  # an ndarray, or a column of text
            assert np.asarray(zc.convert(text, to=target, copy=True)).tolist() == ["a"]
        else:
            with pytest.raises(zc.ZeroCopyError):
                zc.convert(text, to=target, copy=True)


# -- private functions of frameworks against the public ones they replace (law 6) ------


def same_memory(a: StridedView, b: StridedView) -> bool:
    return (a.ptr, a.shape, a.strides, a.dtype) == (b.ptr, b.shape, b.strides, b.dtype)


def test_torch_import() -> None:
    torch = pytest.importorskip("torch")
    from zerocopy._frameworks.torch import capsule_importer

    x = sample("f4")
    ours = capsule_importer(torch)
    assert ours is torch._C._from_dlpack
    a, b = ours(x.__dlpack__()), torch.utils.dlpack.from_dlpack(x.__dlpack__())
    assert a.data_ptr() == b.data_ptr()
    assert torch.equal(a, b)
    assert a.stride() == b.stride()


@needs("jax", "0.7", "the private functions that zerocopy calls")
def test_jax_import_and_export() -> None:
    jax = pytest.importorskip("jax")
    from zerocopy._frameworks.jax import capsules as ours

    x = sample("f4")
    private, public = ours.from_capsule(), jax.dlpack.from_dlpack
    assert private.__name__ == "private"
    a, b = private(x.__dlpack__()), public(dlpack.Handover(x.__dlpack__()))
    assert a.unsafe_buffer_pointer() == b.unsafe_buffer_pointer() == x.ctypes.data
    assert a.devices() == b.devices()
    assert (a == b).all()
    export = ours.to_capsule()
    assert export is not type(a).__dlpack__
    assert same_memory(dlpack.read(export(a)), dlpack.read(a.__dlpack__()))


def test_jax_export_waits_for_the_values() -> None:
    jax = pytest.importorskip("jax")

    @jax.jit
    def slow(x):
        return jax.lax.fori_loop(0, 20, lambda i, c: jax.numpy.sin(c) @ c * 1e-3 + 1, x)

    x = jax.numpy.ones((400, 400))
    expected = np.asarray(slow(x))
    zc.convert(x, to="torch") if "torch" in HOST else None
    for target in HOST:
        result = zc.convert(slow(x), to=target)
        assert (zc.convert(result, to="numpy") == expected).all()


def test_tensorflow_import_and_export() -> None:
    tf = pytest.importorskip("tensorflow")
    from zerocopy._frameworks.tensorflow import fast_path as ours

    x = sample("f4")
    imports = ours.fast_importers(tf)
    assert set(imports) - {"native"} == {"aligned", "readonly", "ndarray"}
    a, b = imports["aligned"](x.__dlpack__()), tf.experimental.dlpack.from_dlpack(x.__dlpack__())
    assert zc.view(a).ptr == zc.view(b).ptr == x.ctypes.data
    assert a.device == b.device
    assert a.dtype == b.dtype
    export = ours.capsule_exporter(tf)
    assert export is not tf.experimental.dlpack.to_dlpack
    assert same_memory(dlpack.read(export(a)), dlpack.read(tf.experimental.dlpack.to_dlpack(a)))
    is_unsafe = ours.unsafe_test(tf)
    assert is_unsafe(tf.constant(["a"]))
    assert not is_unsafe(a)
    as_ndarray = ours.ndarray_exporter(tf)
    assert as_ndarray.__name__ == "private"
    for name in ("float32", "float16", "bool", "complex64", "bfloat16", "float8_e5m2", "int4"):
        tensor = tf.constant(sample(to_numpy(by_name(name))))
        private, public = as_ndarray(tensor), np.asarray(tensor)
        assert private.ctypes.data == public.ctypes.data
        assert (private.shape, private.dtype) == (public.shape, public.dtype)
        assert not private.flags.writeable
    for tensor in (tf.constant(3.0), tf.constant(["a"])):
        with pytest.raises(BufferError):
            as_ndarray(tensor)


def test_an_exit_without_memory_reports_nothing(run_python) -> None:
    pytest.importorskip("pyarrow")
    process = run_python(
        """
        import resource, numpy as np, zerocopy as zc, pyarrow
        zc.convert(np.arange(3.0), "pyarrow")
        zc.convert(np.arange(3.0), "pyarrow")
        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
        held = []
        try:  # what the allocator has left
            while True: held.append(bytearray(1 << 14))
        except MemoryError: pass
        """
    )
    assert process.returncode == 0
    assert process.stderr == ""
