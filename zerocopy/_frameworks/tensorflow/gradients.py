"""Gradients of TensorFlow functions, and functions of other frameworks under ``tf.GradientTape``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zerocopy import registry
from zerocopy.errors import UnsupportedConversionError
from zerocopy.functions.gradients import ArrayFunction, Crossing, GradientsHook, Pullback, Spec


class Gradients(GradientsHook):
    """``tf.GradientTape`` as producer, ``tf.custom_gradient`` as consumer."""

    def run(self, function: ArrayFunction, arrays: Sequence[Any]) -> list[Any]:
        return [_value(x) for x in function(*arrays)]

    def pull(
        self, function: ArrayFunction, arrays: Sequence[Any], wanted: tuple[bool, ...]
    ) -> tuple[list[Any], Pullback]:
        sources = [x for x, want in zip(arrays, wanted, strict=True) if want]
        # Persistent, because a pullback can be called again.
        with _tf().GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(sources)
            outputs = [_value(x) for x in function(*arrays)]

        def pullback(cotangents: Sequence[Any]) -> list[Any]:
            gradients = iter(_gradient(tape, outputs, sources, cotangents))
            return [next(gradients) if want else None for want in wanted]

        return outputs, pullback

    def derivative(
        self, function: ArrayFunction, wanted: tuple[bool, ...], given: tuple[bool, ...]
    ) -> ArrayFunction:
        count = len(wanted)

        def gradients(*arrays: Any) -> list[Any]:
            tf = _tf()
            sources = [x for x, want in zip(arrays, wanted, strict=False) if want]
            with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
                tape.watch(sources)
                outputs = function(*arrays[:count])
            rest = iter(arrays[count:])
            cotangents = [next(rest) if give else None for give in given]
            results = _gradient(tape, outputs, sources, cotangents)
            return [tf.zeros_like(x) if g is None else g for x, g in zip(sources, results, strict=True)]

        return gradients

    def specs(self, function: ArrayFunction, inputs: Sequence[Spec]) -> list[Spec]:
        tf = _tf()
        with tf.Graph().as_default():
            outputs = function(*[tf.compat.v1.placeholder(name, shape) for shape, name in inputs])
            if any(not x.shape.is_fully_defined() for x in outputs):
                raise _unknown("the shapes of its results depend on values")
            return [(tuple(x.shape), x.dtype.name) for x in outputs]

    # -- consumer ------------------------------------------------------------

    def differentiable(self, crossing: Crossing) -> Callable[..., Sequence[Any]]:
        def function(*values: Any) -> tuple[Sequence[Any], Callable[..., Any]]:
            wanted = tuple(map(_is_inexact, values))
            pullback = None
            if not all(map(_has_values, values)):
                outputs = _in_graph(crossing, values)
            elif any(wanted):
                outputs, pullback = crossing.pull(values, wanted)
            else:
                outputs = crossing.run(values)

            def gradient(*cotangents: Any) -> list[Any]:
                given = tuple(
                    c is not None and _is_inexact(x) for x, c in zip(outputs, cotangents, strict=True)
                )
                if not any(given):
                    return [None] * len(wanted)
                # A crossing too, so that the outer tapes record it, for gradients of gradients.
                derivative = self.differentiable(crossing.derivative(wanted, given, pullback))
                used = [_value(c) for c, give in zip(cotangents, given, strict=True) if give]
                results = iter(derivative(*values, *used))
                return [next(results) if want else None for want in wanted]

            return outputs, gradient

        custom = _tf().custom_gradient(function)
        return lambda *tensors: custom(*map(_value, tensors))

    def adopt(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # AutoGraph would rewrite the code of zerocopy.
        return _tf().autograph.experimental.do_not_convert(function)  # type: ignore[no-any-return]

    def zeros(self, array: Any) -> Any:
        return _tf().zeros_like(array)

    def device(self, array: Any) -> Any:
        return array.device or None


def _tf() -> Any:
    return registry.by_name("tensorflow").module()


def _value(tensor: Any) -> Any:
    """Return a variable's value; a tensor is returned as it is."""
    return _tf().convert_to_tensor(tensor)


def _is_inexact(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


def _has_values(tensor: Any) -> bool:
    """Whether a tensor is eager, and not symbolic."""
    return hasattr(tensor, "numpy")


def _in_graph(crossing: Crossing, tensors: Sequence[Any]) -> list[Any]:
    """Return symbolic outputs; the graph calls back with tensors that have values."""
    tf = _tf()
    if any(not x.shape.is_fully_defined() for x in tensors):
        raise _unknown("the shapes of its arguments are not known in the graph")
    specs = crossing.specs([(tuple(x.shape), x.dtype.name) for x in tensors])
    dtypes = [tf.as_dtype(name) for _, name in specs]
    outputs = tf.py_function(lambda *values: crossing.run(values), tensors, dtypes)
    return [tf.ensure_shape(x, shape) for x, (shape, _) in zip(outputs, specs, strict=True)]


def _gradient(tape: Any, outputs: Any, sources: Any, cotangents: Sequence[Any]) -> list[Any]:
    """Return the gradients of the outputs with cotangents; None for those that are zero."""
    pairs = [(x, c) for x, c in zip(outputs, cotangents, strict=True) if c is not None]
    if not pairs or not sources:
        return [None] * len(sources)
    results = tape.gradient([pair[0] for pair in pairs], sources, [pair[1] for pair in pairs])
    return [None if x is None else _value(x) for x in results]  # a gather has sparse gradients


def _unknown(why: str) -> UnsupportedConversionError:
    return UnsupportedConversionError(
        "bridge(...)",
        why,
        "call it outside jax.jit, jax.vmap and tf.function, or give tf.function an input_signature",
        code="unknown-result",
    )
