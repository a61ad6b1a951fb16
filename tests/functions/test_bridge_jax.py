"""`bridge` to JAX: gradients of PyTorch and TensorFlow functions under JAX's transformations."""

from __future__ import annotations

import gc
import subprocess
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.jax_x64 import enable_x64
from helpers.tiers import sampled

import zerocopy as zc

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
jnp = jax.numpy


def bridged(fn: Callable[..., Any]) -> Callable[..., Any]:
    return zc.bridge(fn, to="jax", source="torch")


def product(x: Any, w: Any) -> Any:
    return torch.sin(x @ w), (w**3).sum()


X = np.linspace(-1, 1, 6).reshape(3, 2)
W = np.linspace(0.1, 2, 8).reshape(2, 4)


def inputs() -> tuple[Any, Any]:
    return jnp.array(X), jnp.array(W)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_gradients_match_finite_differences(wrap: Callable[..., Any]) -> None:
    from jax.test_util import check_grads

    call = wrap(bridged(product))
    # Finite differences are NumPy arrays.
    check_grads(lambda *xs: call(*map(jnp.asarray, xs)), inputs(), order=2, modes=["rev"])


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_transformations(wrap: Callable[..., Any]) -> None:
    def function(x: Any, y: Any) -> Any:
        return (torch.sin(x) * y).sum()

    ours = bridged(function)
    theirs = lambda x, y: (jnp.sin(x) * y).sum()  # noqa: E731
    xs, y = jnp.array(np.linspace(0, 1, 6).reshape(2, 3)), jnp.arange(3.0)
    changes: list[Callable[..., Any]] = [
        lambda f: jax.vmap(f, (0, None)),
        lambda f: jax.vmap(jax.grad(f), (0, None)),
        lambda f: lambda xs, y: jax.jacrev(jax.grad(f))(xs[0], y),
        lambda f: lambda xs, y: jax.value_and_grad(f, argnums=(0, 1))(xs[0], y),
        lambda f: lambda xs, y: jax.lax.scan(lambda c, x: (c + f(x, y), jax.grad(f)(x, y)), 0.0, xs),
        lambda f: lambda xs, y: jax.checkpoint(jax.grad(f))(xs[0], y),
    ]
    for (change,) in sampled(2, changes, first=wrap is jax.jit):
        for one, other in zip(
            *(jax.tree.leaves(wrap(change(f))(xs, y)) for f in (ours, theirs)), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("number", [1.5, 2, np.float32(1.5), np.float64(1.5), np.array(1.5)])
def test_gradients_at_numbers(number: Any) -> None:
    """JAX passes a Python number on as an object of its own subclass of float."""
    function = zc.bridge(lambda x: (x**2).sum(), to="jax", source="torch")
    value, gradient = jax.value_and_grad(function)(number * 1.0)
    assert float(value) == float(number) ** 2
    assert float(gradient) == 2 * float(number)
    assert float(jax.jit(jax.grad(function))(number * 1.0)) == 2 * float(number)


def test_sparse_gradients_become_dense() -> None:
    rows = torch.tensor([0, 2, 2])

    def look_up(weight: Any, sparse: bool) -> Any:
        return (torch.nn.functional.embedding(rows, weight, sparse=sparse) ** 2).sum()

    weight = torch.rand(4, 3, requires_grad=True)
    look_up(weight, True).backward()
    assert weight.grad.layout is torch.sparse_coo  # the hazard
    x = jnp.asarray(weight.detach().numpy())
    expected = 2 * np.asarray(x) * [[1], [0], [2], [0]]
    for sparse in (True, False):
        function = zc.bridge(lambda w, sparse=sparse: look_up(w, sparse), to="jax", source="torch")
        np.testing.assert_allclose(jax.grad(function)(x), expected, rtol=1e-6)
        np.testing.assert_allclose(jax.jit(jax.grad(function))(x), expected, rtol=1e-6)


def test_an_empty_batch() -> None:
    function = zc.bridge(lambda x: (x.sum(), x * 2), to="jax", source="torch")
    total, doubled = jax.vmap(function)(jnp.ones((0, 3)))
    assert (total.shape, doubled.shape) == ((0,), (0, 3))


def test_a_pullback_of_vjp_is_called_again() -> None:
    x, w = inputs()
    (out, _), back = jax.vjp(bridged(product), x, w)
    first = back((jnp.ones_like(out), jnp.array(1.0)))
    second = back((jnp.ones_like(out), jnp.array(1.0)))
    np.testing.assert_array_equal(first[0], second[0])
    batch = jax.vmap(back)((jnp.ones((2, *out.shape)), jnp.ones(2)))
    np.testing.assert_allclose(batch[1][1], first[1])


def test_only_the_wanted_gradients_are_computed() -> None:
    seen: list[tuple[bool, ...]] = []

    def function(x: Any, w: Any, i: Any) -> Any:
        seen.append((x.requires_grad, w.requires_grad, i.requires_grad))
        return (x @ w)[i].sum()

    jax.grad(bridged(function), argnums=1)(*inputs(), jnp.array([0, 1]))
    assert seen == [(False, True, False)]


def test_integers_and_unused_outputs() -> None:
    call = bridged(lambda x, i: {"value": x[i], "index": x.argmax(), "other": x.exp(), "none": None})
    x, i = jnp.arange(3.0), jnp.array([2, 0])
    result = call(x, i)
    assert result["none"] is None
    assert result["index"] == 2
    gradient = jax.grad(lambda x: call(x, i)["value"].sum())(x)
    np.testing.assert_array_equal(gradient, [1.0, 0.0, 1.0])
    with pytest.raises(TypeError, match=r"real-valued outputs|real- or complex-valued"):
        jax.grad(lambda x: call(x, i)["index"])(x)
    with pytest.raises(TypeError, match="int64"):
        jax.grad(lambda i: call(x, i)["value"].sum())(i)


@pytest.mark.hazard("training#complex-gradients")
def test_complex_gradients_have_the_convention_of_jax() -> None:
    def function(z: Any) -> Any:
        return (abs(z) ** 2 * z).sum() * (1 + 2j)

    z = jnp.array([1 + 2j, -0.5 + 0.3j])
    for wrap in (lambda f: f, jax.jit):
        for part in (jnp.real, jnp.imag):
            ours = wrap(jax.grad(lambda z, part=part: part(bridged(function)(z))))(z)
            theirs = jax.grad(lambda z, part=part: part(function(z)))(z)
            np.testing.assert_allclose(ours, theirs)


def test_parameters_of_a_module() -> None:
    module = torch.nn.Linear(3, 2, dtype=torch.float64)

    def call(parameters: Any, x: Any) -> Any:
        return torch.func.functional_call(module, parameters, (x,))

    x = jnp.ones((4, 3))
    parameters = zc.convert({name: p.detach() for name, p in module.named_parameters()}, to="jax")
    gradient = jax.jit(jax.grad(lambda p: bridged(call)(p, x).sum()))(parameters)
    np.testing.assert_array_equal(gradient["weight"], np.full((2, 3), 4.0))
    # The module itself is a function with constant parameters, of a known type.
    whole = zc.bridge(module, to="jax")
    np.testing.assert_allclose(jax.grad(lambda x: whole(x).sum())(x)[0], module.weight.detach().sum(0))
    assert module.weight.grad is None


# -- memory --------------------------------------------------------------------------


def test_inputs_outputs_and_gradients_are_aliases() -> None:
    seen: list[int] = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            out = x * 2
            seen.extend([x.data_ptr(), out.data_ptr()])
            return out

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            gradient = cotangent * 2
            seen.extend([cotangent.data_ptr(), gradient.data_ptr()])
            return gradient

    x, cotangent = jnp.arange(64.0), jnp.ones(64)
    out, back = jax.vjp(bridged(Double.apply), x)
    (gradient,) = back(cotangent)
    assert seen == [array.unsafe_buffer_pointer() for array in (x, out, cotangent, gradient)]


@pytest.mark.hazard("training#writes-to-immutable-arguments")
def test_a_function_that_writes_to_its_argument_is_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        bridged(lambda x: x.mul_(2))(jnp.arange(3.0))
    assert caught.value.code == "argument-written"
    with pytest.raises(RuntimeError, match="leaf Variable"):  # torch refuses it first
        jax.grad(lambda x: bridged(lambda x: x.mul_(2))(x).sum())(jnp.arange(3.0))


def test_the_graph_is_freed_with_the_pullback() -> None:
    graphs: list[Any] = []

    def function(x: Any) -> Any:
        out = x * 2
        graphs.append(weakref.ref(out))
        return out

    x = jnp.ones(3)
    _, back = jax.vjp(bridged(function), x)
    gc.collect()
    assert graphs[0]() is not None
    back(x)
    del back
    gc.collect()
    assert graphs[0]() is None


@pytest.mark.hazard("training#callbacks-of-jit")
def test_large_arrays_under_jit_do_not_hang(
    run_warm: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    result = run_warm(
        """
        import jax, jax.numpy as jnp, torch, zerocopy as zc
        call = zc.bridge(lambda x: torch.sin(x) @ x, to="jax", source="torch")
        step = jax.jit(jax.grad(lambda x: (call(x + 1) @ x).sum()))
        x = jnp.ones((700, 700))
        for _ in range(5):
            x = step(x) * 0
        print(float(x.sum()))
        """
    )
    assert result.stdout.strip() == "0.0", result.stderr


# -- refusals ------------------------------------------------------------------------


@pytest.mark.hazard("training#random-numbers")
def test_random_numbers_are_refused_where_the_function_runs_again() -> None:
    dropout = zc.bridge(torch.nn.Dropout(0.5), to="jax")
    x = jnp.ones(100)
    out, back = jax.vjp(dropout, x)
    np.testing.assert_array_equal(back(x)[0], out)  # eager: the mask of the forward pass
    with pytest.raises(Exception, match="draws random numbers"):
        jax.jit(jax.grad(lambda x: dropout(x).sum()))(x).block_until_ready()


def test_shapes_that_depend_on_values_are_refused_under_jit() -> None:
    call = bridged(lambda x: x[x > 0])
    assert call(jnp.arange(3.0)).shape == (2,)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        jax.jit(call)(jnp.arange(3.0))
    assert caught.value.code == "unknown-result"
    assert caught.value.__cause__ is not None


@pytest.mark.hazard("training#callbacks-of-jit")
def test_jax_inside_a_callback_of_jax_is_refused() -> None:
    inner = zc.bridge(jnp.sin, to="torch", source="jax")
    outer = bridged(lambda x: inner(x) * 2)
    np.testing.assert_allclose(outer(jnp.ones(2)), 2 * np.sin(np.ones(2)))
    np.testing.assert_allclose(jax.grad(lambda x: outer(x).sum())(jnp.ones(2)), 2 * np.cos(np.ones(2)))
    with pytest.raises(Exception, match=r"JAX can hang|[Ff]ake"):
        jax.jit(outer)(jnp.ones(2)).block_until_ready()


def test_forward_mode_is_refused() -> None:
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jacfwd(bridged(torch.sin))(jnp.ones(2))


def test_64_bit_results_without_x64_are_refused_under_jit() -> None:
    call = bridged(lambda x: x.argmax())
    with enable_x64(False):
        x = jnp.ones(3)
        for run in (call, jax.jit(call)):
            with pytest.raises(zc.LossyConversionError):
                run(x)


def test_arguments_on_several_devices(run_warm: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = run_warm(
        """
        import jax, torch, zerocopy as zc
        one, two = (jax.device_put(jax.numpy.ones(2), device) for device in jax.devices())
        try:
            zc.bridge(lambda x, y: x + y, to="jax", source="torch")(one, two)
        except zc.DeviceError as error:
            print(error.code)
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert result.stdout.strip() == "several-devices", result.stderr
