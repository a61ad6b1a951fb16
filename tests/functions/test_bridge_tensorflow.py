"""`bridge` to TensorFlow: gradients of JAX and PyTorch functions under ``tf.GradientTape``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zerocopy as zc

tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

SOURCES: dict[str, Callable[..., Any]] = {
    "jax": lambda x, y: {"value": jax.numpy.sin(x) * y, "index": x.argmax(), "none": None},
    "torch": lambda x, y: {"value": torch.sin(x) * y, "index": x.argmax(), "none": None},
}


@pytest.fixture(params=SOURCES)
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return zc.bridge(SOURCES[request.param], to="tensorflow", source=request.param)


X = np.linspace(0.1, 1, 3)


def test_gradients_match_finite_differences(call: Callable[..., Any]) -> None:
    y = tf.constant([1.0, 2.0, 3.0], tf.float64)
    for function in (call, tf.function(lambda x, y: call(x, y)["value"])):
        value = function if function is not call else lambda x, y: call(x, y)["value"]
        theory, numbers = tf.test.compute_gradient(value, [tf.constant(X), y])
        for one, other in zip(theory, numbers, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_gradients_of_gradients(call: Callable[..., Any]) -> None:
    x, y = tf.Variable(X), tf.ones(3, tf.float64)
    with tf.GradientTape() as third, tf.GradientTape() as second, tf.GradientTape() as first:
        result = call(x, y)
        value = tf.reduce_sum(result["value"])
        # The tapes record the gradients that are computed inside them.
        one = first.gradient(value, x)
        two = second.gradient(tf.reduce_sum(one), x)
        total = tf.reduce_sum(two)
    assert result["none"] is None
    assert int(result["index"]) == 2
    np.testing.assert_allclose(one, np.cos(X))
    np.testing.assert_allclose(two, -np.sin(X))
    np.testing.assert_allclose(third.gradient(total, x), -np.cos(X))


@pytest.mark.hazard("training#complex-gradients")
def test_complex_gradients_have_the_convention_of_tensorflow() -> None:
    z = tf.constant([1 + 2j, -0.5 + 0.3j], tf.complex128)
    ours = zc.bridge(lambda z: (abs(z) ** 2 * z).sum() * (1 + 2j), to="tensorflow", source="jax")
    theirs = lambda z: tf.reduce_sum(tf.cast(abs(z) ** 2, z.dtype) * z) * (1 + 2j)  # noqa: E731
    gradients = []
    for function in (ours, theirs):
        with tf.GradientTape() as tape:
            tape.watch(z)
            value = tf.math.imag(function(z))
        gradients.append(tape.gradient(value, z))
    np.testing.assert_allclose(*gradients)


def test_inputs_and_outputs_are_aliases() -> None:
    seen: list[int] = []

    def function(x: Any) -> Any:
        out = x * 2
        seen.extend([x.data_ptr(), out.data_ptr()])
        return out

    x = tf.constant(np.arange(64.0))
    out = zc.bridge(function, to="tensorflow", source="torch")(x)
    assert seen[0] == zc.view(x).ptr
    assert seen[1] == zc.view(out).ptr


def test_a_graph_with_unknown_shapes_is_refused(call: Callable[..., Any]) -> None:
    signature = [tf.TensorSpec([None], tf.float64)] * 2
    # tf.function raises an error of its own, with the message.
    with pytest.raises(Exception, match="not known in the graph"):
        tf.function(lambda x, y: call(x, y)["value"], input_signature=signature).get_concrete_function()


def test_maps(call: Callable[..., Any]) -> None:
    xs, y = tf.ones((2, 3), tf.float64), tf.ones(3, tf.float64)
    np.testing.assert_allclose(tf.map_fn(lambda x: call(x, y)["value"], xs), np.sin(xs))
    np.testing.assert_allclose(tf.vectorized_map(lambda x: call(x, y)["value"], xs), np.sin(xs))
