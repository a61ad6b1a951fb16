"""`bridge` to PyTorch: gradients of JAX and TensorFlow functions in autograd."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

import zerocopy as zc

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
jnp = jax.numpy


def bridged(fn: Callable[..., Any]) -> Callable[..., Any]:
    return zc.bridge(fn, to="torch", source="jax")


def doubles(*shape: int) -> Any:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.rand(shape, dtype=torch.float64, generator=generator).requires_grad_()


def test_first_and_second_gradients_match_finite_differences() -> None:
    function = bridged(lambda x, w: (jnp.sin(x @ w), (w**3).sum()))
    inputs = doubles(3, 2), doubles(2, 4)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_third_gradients_call_the_function_again() -> None:
    x = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    value = bridged(lambda x: x**4)(x)
    for expected in (32.0, 48.0, 48.0):
        (value,) = torch.autograd.grad(value, x, create_graph=True)
        assert value.item() == pytest.approx(expected)


@pytest.mark.hazard("training#complex-gradients")
def test_complex_gradients_have_the_convention_of_torch() -> None:
    z = torch.tensor([1 + 2j, -0.5 + 0.3j], dtype=torch.complex128, requires_grad=True)
    function = bridged(lambda z: (jnp.abs(z) ** 2 * z).sum() * (1 + 2j))
    assert torch.autograd.gradcheck(function, z)
    assert torch.autograd.gradgradcheck(function, z)


def test_containers_options_and_arguments_that_are_not_arrays() -> None:
    def function(parameters: dict[str, Any], *xs: Any, power: int, mode: str, extra: Any = None) -> Any:
        assert (mode, extra) == ("sum", None)
        return {"value": sum((parameters["w"][0] * x**power).sum() for x in xs), "none": None, "xs": [*xs]}

    w, x = doubles(3), doubles(3)
    result = bridged(function)({"w": (w, 7)}, x, x, power=2, mode="sum")
    assert result["none"] is None
    assert len(result["xs"]) == 2
    result["value"].backward()
    torch.testing.assert_close(w.grad, 2 * x.detach() ** 2)
    torch.testing.assert_close(x.grad, 4 * (w * x).detach())


def test_inputs_without_gradients_get_none() -> None:
    x, constant, index = doubles(3), doubles(3).detach(), torch.tensor([2, 0])
    unused = doubles(2)
    out = bridged(lambda x, c, i, u: (x * c)[i])(x, constant, index, unused)
    out.sum().backward()
    torch.testing.assert_close(x.grad, constant * torch.tensor([1.0, 0.0, 1.0]))
    assert constant.grad is None
    assert index.grad is None
    torch.testing.assert_close(unused.grad, torch.zeros(2, dtype=torch.float64))


def test_unused_outputs_have_zero_cotangents() -> None:
    x = doubles(3)
    used, _, _ = bridged(lambda x: (x**2, jnp.exp(x), jnp.argmax(x)))(x)
    used.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_integer_outputs_have_no_gradient() -> None:
    index = bridged(jnp.argmax)(doubles(3))
    assert not index.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        index.backward()


def test_without_gradients_the_function_runs_alone() -> None:
    with torch.no_grad():
        assert bridged(lambda x: x * 2)(doubles(3)).grad_fn is None
    with torch.inference_mode():
        torch.testing.assert_close(bridged(lambda x: x * 2)(torch.ones(2)), torch.full((2,), 2.0))


# -- memory --------------------------------------------------------------------------


def test_inputs_outputs_and_gradients_are_aliases() -> None:
    seen: list[int] = []

    @jax.custom_vjp
    def function(x: Any) -> Any:
        return x * 2

    def forward(x: Any) -> Any:
        seen.append(x.unsafe_buffer_pointer())
        out = x * 2
        seen.append(out.unsafe_buffer_pointer())
        return out, None

    def backward(_: Any, cotangent: Any) -> Any:
        seen.append(cotangent.unsafe_buffer_pointer())
        gradient = cotangent * 2
        seen.append(gradient.unsafe_buffer_pointer())
        return (gradient,)

    function.defvjp(forward, backward)
    x, cotangent = doubles(64), torch.ones(64, dtype=torch.float64)
    out = bridged(function)(x)
    (gradient,) = torch.autograd.grad(out, x, cotangent)
    assert seen == [tensor.data_ptr() for tensor in (x, out, cotangent, gradient)]
    gradient[0] = 7  # torch writes to its results
    assert gradient[0] == 7


@pytest.mark.hazard("training#writes-between-forward-and-backward")
@pytest.mark.parametrize("changed", ["input", "output"])
def test_gradients_are_refused_after_a_write_in_place(changed: str) -> None:
    x = doubles(8)
    out = bridged(jnp.exp)(x)
    with torch.no_grad():
        (x if changed == "input" else out).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.hazard("training#results-that-share-memory")
def test_an_output_never_shares_memory_with_an_input_or_another_output() -> None:
    x = doubles(64).detach()
    part = x[8:]
    same, again, twice = bridged(lambda x: (x, x, x * 2))(part)
    same[0] = 5.0
    assert part[0] != 5.0
    assert again[0] != 5.0
    torch.testing.assert_close(twice, part * 2)


@pytest.mark.hazard("training#results-that-share-memory")
def test_gradients_do_not_share_memory() -> None:
    x, y = doubles(64), doubles(64)
    bridged(lambda x, y: x + y)(x, y).backward(cotangent := torch.ones(64, dtype=torch.float64))
    x.grad.mul_(3)
    assert (x.grad[0], y.grad[0], cotangent[0]) == (3, 1, 1)


def test_results_keep_their_memory() -> None:
    x = doubles(1000)
    expected = x.detach().exp()
    out = bridged(jnp.exp)(x)
    del x
    gradient_of = out.grad_fn
    torch.testing.assert_close(out.detach(), expected)
    assert gradient_of is not None
    leaf = doubles(1000)
    (gradient,) = torch.autograd.grad(bridged(jnp.exp)(leaf * 1).sum(), leaf)
    torch.testing.assert_close(gradient, expected)


# -- transformations -------------------------------------------------------------------


def test_torch_func() -> None:
    function = bridged(lambda x, y: (jnp.sin(x) * y).sum())
    xs, y = doubles(3, 4).detach(), doubles(4).detach()
    gradient = torch.func.grad(function)
    torch.testing.assert_close(gradient(xs[0], y), xs[0].cos() * y)
    torch.testing.assert_close(torch.func.vmap(function, (0, None))(xs, y), (xs.sin() * y).sum(-1))
    torch.testing.assert_close(torch.func.vmap(gradient, (0, None))(xs, y), xs.cos() * y)
    hessian = torch.func.jacrev(gradient)(xs[0], y)
    torch.testing.assert_close(hessian, torch.diag(-xs[0].sin() * y))


@pytest.mark.parametrize("dim", [0, 1])
def test_an_empty_batch(dim: int) -> None:
    """No call tells the shapes of the results; JAX computes them without values."""
    function = bridged(lambda x, y: {"sum": x.sum(), "whole": (x + y).astype(jnp.float16)})
    y = torch.ones(3)
    x = torch.empty((0, 3) if dim == 0 else (3, 0))
    result = torch.func.vmap(function, in_dims=(dim, None))(x, y)
    assert (result["sum"].shape, result["sum"].dtype) == ((0,), torch.float32)
    assert (result["whole"].shape, result["whole"].dtype) == ((0, 3), torch.float16)


def test_sparse_cotangents_become_dense() -> None:
    weight = torch.rand(4, 3, requires_grad=True)
    doubled = bridged(lambda w: w * 2)(weight)
    torch.nn.functional.embedding(torch.tensor([0, 2, 2]), doubled, sparse=True).sum().backward()
    expected = torch.tensor([2.0, 0.0, 4.0, 0.0])
    assert torch.equal(weight.grad, expected[:, None].expand(4, 3))


def test_gradients_of_tensorflow_that_are_slices_become_dense() -> None:
    tf = pytest.importorskip("tensorflow")
    weight = torch.rand(4, 3, requires_grad=True)
    zc.bridge(lambda w: tf.gather(w, [0, 2, 2]), to="torch", source="tensorflow")(weight).sum().backward()
    expected = torch.tensor([1.0, 0.0, 2.0, 0.0])
    assert torch.equal(weight.grad, expected[:, None].expand(4, 3))


def test_containers_that_hold_themselves_are_refused() -> None:
    array: list[Any] = [torch.ones(2)]
    array.append(array)
    mapping: dict[str, Any] = {"a": torch.ones(2)}
    mapping["b"] = [mapping]
    for cyclic in (array, mapping):
        with pytest.raises(zc.UnsupportedConversionError, match="arguments holds itself") as caught:
            bridged(lambda x: x)(cyclic)
        assert caught.value.code == "cyclic-container"
    same = torch.ones(2)
    assert bridged(lambda x: x["a"][0] + x["b"][0])({"a": [same], "b": [same]}).tolist() == [2.0, 2.0]

    def cyclic_result(x: Any) -> Any:
        result = [x]
        result.append(result)
        return result

    with pytest.raises(zc.UnsupportedConversionError, match="results holds itself"):
        bridged(cyclic_result)(same)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own
def test_forward_mode_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jacfwd(bridged(jnp.sin))(doubles(2).detach())


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # the compiler reads it
def test_torch_compile_breaks_the_graph() -> None:
    function = bridged(jnp.sin)
    compiled = torch.compile(lambda x: (function(x * 2) + 1).sum(), backend="eager")
    x = doubles(3)
    compiled(x).backward()
    torch.testing.assert_close(x.grad, 2 * (2 * x.detach()).cos())


def test_checkpoint_runs_the_function_again() -> None:
    from torch.utils.checkpoint import checkpoint

    x = doubles(3)
    checkpoint(lambda x: bridged(jnp.sin)(x * 2).sum(), x, use_reentrant=False).backward()
    torch.testing.assert_close(x.grad, 2 * (2 * x.detach()).cos())


def test_threads() -> None:
    function = bridged(jax.jit(lambda x: jnp.sin(x).sum()))
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for _ in range(5):
                x = torch.full((50,), float(seed), requires_grad=True)
                function(x).backward()
                torch.testing.assert_close(x.grad, x.detach().cos())
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


def test_a_torch_loop_trains_a_jax_layer_as_jax_does() -> None:
    def layer(parameters: dict[str, Any], x: Any) -> Any:
        return jnp.tanh(x @ parameters["w"] + parameters["b"])

    x, y = doubles(16, 3).detach(), doubles(16, 2).detach()
    start = {"w": doubles(3, 2), "b": doubles(2)}
    mine = {name: value.detach().clone().requires_grad_() for name, value in start.items()}
    optimizer = torch.optim.SGD(mine.values(), lr=0.1)
    call = bridged(layer)
    for _ in range(5):
        optimizer.zero_grad()
        ((call(mine, x) - y) ** 2).mean().backward()
        optimizer.step()

    theirs = {name: jnp.array(value.detach().numpy()) for name, value in start.items()}
    jx, jy = jnp.array(x.numpy()), jnp.array(y.numpy())
    gradient = jax.jit(jax.grad(lambda p: ((layer(p, jx) - jy) ** 2).mean()))
    for _ in range(5):
        theirs = jax.tree.map(lambda p, g: p - 0.1 * g, theirs, gradient(theirs))
    for name, value in mine.items():
        torch.testing.assert_close(value.detach(), torch.tensor(theirs[name].tolist(), dtype=torch.float64))


def test_a_tensorflow_function() -> None:
    tf = pytest.importorskip("tensorflow")
    function = zc.bridge(lambda x, i: tf.gather(tf.sin(x), i), to="torch", source="tensorflow")
    index = torch.tensor([2, 0])
    assert torch.autograd.gradcheck(lambda x: function(x, index), doubles(3))
    assert torch.autograd.gradgradcheck(lambda x: function(x, index), doubles(3))


# -- refusals ------------------------------------------------------------------------


def test_64_bits_without_x64(run_warm: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = run_warm(
        """
        import torch, zerocopy as zc
        function = zc.bridge(lambda x: x * 2, to="torch", source="jax")
        try:
            function(torch.ones(2, dtype=torch.float64, requires_grad=True))
        except zc.LossyConversionError as error:
            print(error)
        """,
        JAX_ENABLE_X64="0",
    )
    assert "jax_enable_x64" in result.stdout, result.stderr


def test_arguments_on_several_devices() -> None:
    with pytest.raises(zc.DeviceError, match="cpu and meta") as caught:
        bridged(lambda x, y: x)(torch.zeros(2), torch.zeros(2, device="meta"))
    assert caught.value.code == "several-devices"
