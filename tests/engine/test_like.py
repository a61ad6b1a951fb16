"""``to=`` as an object of the target: its framework, its form and its device."""

import gc
import weakref

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.frameworks import HOST

import zerocopy as zc
from zerocopy import registry
from zerocopy.errors import UnknownFrameworkError

X = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize("options", [{}, {"copy": True}, {"dtype": "int32"}], ids=repr)
@pytest.mark.parametrize("to", HOST)
def test_every_framework_takes_its_objects(to, options):
    like = zc.convert(X, to)
    expected = zc.convert(X, to, **options)
    for _ in range(2):  # without and with a route
        result = zc.convert(X, like, **options)
        assert type(result) is type(expected)
        assert zc.convert(result, "numpy").tolist() == X.tolist()
    plan, named = zc.explain(X, like, **options), zc.explain(X, to, **options)
    assert (plan.possible, plan.zero_copy, plan.target) == (named.possible, named.zero_copy, named.target)
    for schema in (X, np.ndarray):
        assert type(zc.converter(schema, like, **options)(X)) is type(expected)


TABLES = [
    pd.DataFrame(),
    pd.Series([1]),
    pl.DataFrame(),
    pl.Series([1]),
    pa.table({}),
    pa.chunked_array([[1]]),
]


@pytest.mark.parametrize("to", HOST)
def test_a_loader_takes_an_object_of_its_target(to):
    like = zc.convert(X, to)
    (named,), (batch,) = zc.loader({"x": X}, to), zc.loader({"x": X}, like)
    assert type(batch["x"]) is type(named["x"])
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.loader({"x": X}, object())


@pytest.mark.parametrize("like", TABLES, ids=lambda like: f"{type(like).__module__}.{type(like).__name__}")
def test_a_table_gives_its_form(like):
    assert type(zc.convert(X, like)) is type(like)


def test_containers_and_tables():
    assert [type(x) for x in zc.convert([X, {"a": X}], pl.Series([1]))] == [pl.Series, dict]
    assert zc.convert({"a": X}, X)["a"] is X


def test_objects_are_not_kept():
    torch = pytest.importorskip("torch")
    like = torch.zeros(3)
    zc.convert(X, like)
    kept = weakref.ref(like)
    del like
    gc.collect()
    assert kept() is None
    assert zc.converter(X, torch.zeros(3)).to == "torch"


def test_an_object_gives_its_device():
    torch = pytest.importorskip("torch")
    assert zc.converter(X, torch.zeros(3)).options == {"device": "cpu"}
    assert zc.converter(X, torch.zeros(3), device="cuda_host").options == {"device": "cuda_host"}
    assert zc.converter(X, X).options == {}  # NumPy has one device


def test_a_stub_of_a_device_gives_the_device():
    from zerocopy._engine.target import device_of
    from zerocopy.device import CUDA, Device

    class View:
        device = Device(CUDA, 1)

    class Source:
        view = View

    class Framework:
        table = staticmethod(lambda obj: None)
        source = staticmethod(lambda obj: Source)

    assert device_of(Framework(), None) == "cuda:1"


class Refuses:
    """An object that cannot be hashed, and whose ``==`` raises."""

    __hash__ = None

    def __eq__(self, other):
        raise ValueError("ambiguous")


@pytest.mark.parametrize("function", [zc.convert, zc.explain, zc.converter])
@pytest.mark.parametrize(
    "to", [Refuses(), [X], {}, 3, None, 2.5, memoryview(b"ab")], ids=lambda to: type(to).__name__
)
def test_other_objects_are_refused(function, to):
    for options in ({}, {"copy": True}):
        with pytest.raises(
            UnknownFrameworkError, match="a name, a module, a type or an object of a framework"
        ):
            function(X, to, **options)


@pytest.mark.parametrize("function", [zc.convert, zc.explain])
def test_swapped_arguments(function):
    with pytest.raises(UnknownFrameworkError, match="the arguments are swapped"):
        function("torch", X)


def test_objects_with_an_eq_of_arrays():
    """Arrays and frames cannot be hashed, and compare elementwise."""
    for like in (np.zeros((2, 2)), pd.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": [1, 2]})):
        assert registry.by_type(type(zc.convert(X, like, copy=None))) is registry.by_type(type(like))


def test_errors_of_options_come_before_those_of_the_target() -> None:
    for call in (zc.convert, zc.explain):
        with pytest.raises(TypeError, match="unknown"):
            call(np.arange(3), [], unknown=1)


def test_objects_whose_class_raises_are_refused() -> None:
    class Raises:
        @property
        def __class__(self):
            raise KeyError("class")

    for call in (zc.convert, zc.explain):
        with pytest.raises(zc.errors.UnknownFrameworkError):
            call(np.arange(3), Raises())
