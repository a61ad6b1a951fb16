"""`bridge` between all pairs of frameworks, and the functions and arguments that it refuses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import zerocopy as zc
from zerocopy import registry
from zerocopy.framework import hook_of
from zerocopy.functions.gradients import GradientsHook

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
tf = pytest.importorskip("tensorflow")

NAMES = sorted(f.name for f in registry.known() if f.has_hook("gradients"))
PAIRS = sorted(permutations(NAMES, 2))


def polynomial(x: Any, y: Any) -> Any:
    """A function that each framework can differentiate."""
    return [x * x * y + 3.0 * x, (y * y * y,)]


def value_and_gradients(call: Callable[..., Any], name: str, x: Any, y: Any) -> list[Any]:
    """Return the value and the gradients of a function, by the framework's own calls."""
    x, y = zc.convert((x, y), to=name, copy=True)
    total = lambda x, y: (r := call(x, y))[0].sum() + 2 * r[1][0].sum()  # noqa: E731
    if name == "jax":
        value, gradients = jax.value_and_grad(total, (0, 1))(x, y)
    elif name == "torch":
        value = total(x.requires_grad_(), y.requires_grad_())
        gradients = torch.autograd.grad(value, (x, y))
        value = value.detach()
    else:
        with tf.GradientTape() as tape:
            tape.watch((x, y))
            first, (second,) = call(x, y)
            value = tf.reduce_sum(first) + 2 * tf.reduce_sum(second)
        gradients = tape.gradient(value, (x, y))
    return [np.asarray(zc.convert(part, to="numpy")) for part in (value, *gradients)]


def test_the_three_frameworks_have_gradients() -> None:
    assert {"jax", "torch", "tensorflow"} <= set(NAMES)
    assert all(type(hook_of(registry.by_name(name), GradientsHook)) is not GradientsHook for name in NAMES)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(0, 4), max_size=3),
    seed=st.integers(0, 99),
    dtype=st.sampled_from(["f4", "f8"]),
)
def test_pairs(source: str, target: str, shape: list[int], seed: int, dtype: str) -> None:
    numbers = np.random.default_rng(seed)
    x, y = (np.asarray(numbers.normal(size=shape), dtype) for _ in range(2))
    call = zc.bridge(polynomial, to=target, source=source)
    value, dx, dy = value_and_gradients(call, target, x, y)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == "f4" else {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(value, (x * x * y + 3 * x + 2 * y**3).sum(), **tolerance)
    np.testing.assert_allclose(dx, 2 * x * y + 3, **tolerance)
    np.testing.assert_allclose(dy, x * x + 6 * y * y, **tolerance)
    assert (dx.dtype, dx.shape) == (x.dtype, x.shape)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_there_and_back(source: str, target: str) -> None:
    there = zc.bridge(polynomial, to=target, source=source)
    back = zc.bridge(there, to=source, source=target)
    x, y = np.arange(3.0), np.ones(3)
    for one, other in zip(
        value_and_gradients(back, source, x, y),
        value_and_gradients(polynomial, source, x, y),
        strict=True,
    ):
        np.testing.assert_allclose(one, other)


def test_the_type_of_a_function_can_name_its_framework() -> None:
    x = np.ones(2)
    functions = {
        "jax": [jax.jit(lambda x: x * 2), functools.partial(jax.jit(lambda y, x: x * y), 2.0)],
        "torch": [torch.nn.Identity(), torch.nn.Identity().forward],
        "tensorflow": [tf.function(lambda x: x * 2)],
    }
    for source, calls in functions.items():
        for target in {*NAMES} - {source}:
            for call in calls:
                result = zc.bridge(call, to=target)(zc.convert(x, to=target, copy=True))
                assert registry.by_type(type(result)) is registry.by_name(target)


def test_the_framework_of_a_plain_function_is_needed() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="source=") as caught:
        zc.bridge(polynomial, to="torch")
    assert caught.value.code == "unknown-source"


def test_to_the_same_framework_returns_the_function() -> None:
    assert zc.bridge(polynomial, to=torch, source="torch") is polynomial


def test_refusals() -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.bridge(3, to="torch")  # type: ignore[arg-type]
    assert caught.value.code == "not-callable"
    for options in ({"to": "numpy", "source": "jax"}, {"to": "torch", "source": "pandas"}):
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.bridge(polynomial, **options)
        assert caught.value.code == "no-gradients"
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.bridge(polynomial, to="tourch", source="jax")


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_arrays_of_another_framework_are_refused(source: str, target: str) -> None:
    call = zc.bridge(polynomial, to=target, source=source)
    x = zc.convert(np.ones(2), to=target, copy=True)
    with pytest.raises(zc.UnsupportedConversionError, match=rf'to="{target}"') as caught:
        call(x, {"y": [np.ones(2)]})
    assert caught.value.code == "foreign-argument"


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize(
    "result", ["text", 1.5, {"a": [object()]}, np.ones(2)], ids=["text", "number", "object", "ndarray"]
)
def test_results_that_are_not_arrays_are_refused(source: str, target: str, result: Any) -> None:
    call = zc.bridge(lambda x: result, to=target, source=source)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        call(zc.convert(np.ones(2), to=target, copy=True))
    assert caught.value.code == "result-not-an-array"


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_errors_of_the_function_are_not_changed(source: str, target: str) -> None:
    def function(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        zc.bridge(function, to=target, source=source)(zc.convert(np.ones(2), to=target, copy=True))


def test_the_name_and_the_documentation_are_kept() -> None:
    call = zc.bridge(polynomial, to="torch", source="jax")
    assert call.__name__ == "polynomial"
    assert call.__doc__ == polynomial.__doc__
