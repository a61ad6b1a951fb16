"""Exceptions that do not derive from ``Exception``, and containers whose memory is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST

import zerocopy as zc
from zerocopy._engine import routes
from zerocopy.protocols.exporter_errors import is_error

#: PyO3's class for a panic of a Rust extension has this name and this base.
PanicException = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})


class Raises:
    """A producer whose export raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise self.error

    def __arrow_c_schema__(self) -> object:
        raise self.error


@pytest.mark.parametrize("target", HOST)
def test_panic_of_a_rust_extension_is_translated(target: str) -> None:
    panic = PanicException("not implemented")
    with pytest.raises(zc.UnsupportedConversionError, match="PanicException: not implemented") as caught:
        zc.convert(Raises(panic), to=target)
    assert caught.value.__cause__ is panic
    assert not zc.explain(Raises(panic), target).possible


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()], ids=repr)
def test_requests_to_end_are_not_translated(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        zc.convert(Raises(error), to="numpy")
    assert caught.value is error
    assert not is_error(error)


def test_panic_on_the_fast_path_leads_to_the_slow_path() -> None:
    def route(_: object) -> object:
        raise PanicException("not implemented")

    x = sample("f4")
    routes.clear()
    assert routes.routes_of("numpy", {}).get(np.ndarray) is None
    routes.store(route, np.ndarray, "numpy", {}, routes.generation())
    assert zc.convert(x, to="numpy") is x
    routes.clear()


def test_empty_containers_share_no_memory() -> None:
    for empty in ((), [], {}, ((), []), [np.zeros(0)]):
        assert not zc.shares_memory(empty, empty)
    x = [np.zeros(3)]
    assert zc.shares_memory(x, x)


def test_memory_of_a_container_that_holds_itself_is_refused() -> None:
    cyclic: list = [np.zeros(2)]
    cyclic.append(cyclic)
    with pytest.raises(zc.UnsupportedConversionError, match="holds itself"):
        zc.shares_memory(cyclic, np.zeros(2))
    assert zc.shares_memory(cyclic, cyclic)


ERRORS = [RuntimeError, ValueError, KeyError, AttributeError, TypeError, StopIteration, RecursionError]


class Proxy:
    """A proxy whose attributes raise, ``__class__`` too, which ``isinstance`` reads."""

    def __init__(self, error: type[Exception]) -> None:
        object.__setattr__(self, "error", error)

    def __getattribute__(self, name: str) -> object:
        raise object.__getattribute__(self, "error")(name)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: [x], lambda x: {"a": x}], ids=["itself", "list", "dict"]
)
def test_object_whose_attributes_raise_is_refused(wrap, error: type[Exception]) -> None:
    obj = wrap(Proxy(error))
    for target in HOST:
        with pytest.raises(zc.UnsupportedConversionError):
            zc.convert(obj, to=target)
        assert not zc.explain(obj, target).possible


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("base", "method"),
    [
        *((dict, name) for name in ("items", "values", "__iter__", "__len__", "__bool__", "__setitem__")),
        *((list, name) for name in ("__iter__", "__len__", "__bool__")),
        (tuple, "__iter__"),
    ],
)
def test_container_whose_method_raises_is_converted_or_refused(
    base: type, method: str, error: type[Exception]
) -> None:
    def fail(*_: object) -> object:
        raise error(method)

    hostile = type("Hostile", (base,), {method: fail})
    obj = base.__new__(hostile, [np.zeros(2)]) if base is tuple else base.__new__(hostile)
    if base is dict:
        dict.__setitem__(obj, "a", np.zeros(2))
    elif base is list:
        list.append(obj, np.zeros(2))
    for target in HOST:
        possible = zc.explain(obj, target).possible
        try:
            zc.convert(obj, to=target)
        except zc.ZeroCopyError:
            assert not possible
        else:
            assert possible
