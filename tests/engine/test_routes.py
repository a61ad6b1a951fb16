"""The fast path is taken and agrees with the plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.frameworks import ALIASING, HOST, PAIRS

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import routes
from zerocopy._engine.convert import convert_slowly
from zerocopy._engine.planner import Call, make_plan
from zerocopy._native import core

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
    compose = routes.compose_route

    def counted(*arguments: Any) -> Any:
        composed.append(arguments)
        return compose(*arguments)

    routes.clear()
    monkeypatch.setattr(routes, "compose_route", counted)
    return composed


@pytest.mark.parametrize("options", [{"lists": "ragged"}, {"encode": True}], ids=str)
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
