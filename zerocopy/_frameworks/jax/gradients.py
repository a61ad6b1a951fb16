"""Gradients of JAX functions, and functions of other frameworks that JAX can transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import local
from typing import Any

from zerocopy import registry
from zerocopy.errors import UnsupportedConversionError
from zerocopy.functions.gradients import ArrayFunction, Crossing, GradientsHook, Pullback, Spec

_thread = local()  # its attribute `in_callback` is True while JAX waits for a callback


class Gradients(GradientsHook):
    """``jax.vjp`` as producer, ``jax.custom_vjp`` as consumer."""

    def run(self, function: ArrayFunction, arrays: Sequence[Any]) -> list[Any]:
        _refuse_in_callback()
        return function(*arrays)

    def pull(
        self, function: ArrayFunction, arrays: Sequence[Any], wanted: tuple[bool, ...]
    ) -> tuple[list[Any], Pullback]:
        _refuse_in_callback()
        outputs, back = _jax().vjp(_of_wanted(function, arrays, wanted), *_select(arrays, wanted))
        kinds = [(x.shape, x.dtype) for x in outputs]

        def pullback(cotangents: Sequence[Any]) -> list[Any]:
            gradients = iter(back([_cotangent(x, *kind) for x, kind in zip(cotangents, kinds, strict=True)]))
            return [_conjugate(next(gradients)) if want else None for want in wanted]

        return list(outputs), pullback

    def derivative(
        self, function: ArrayFunction, wanted: tuple[bool, ...], given: tuple[bool, ...]
    ) -> ArrayFunction:
        count = len(wanted)

        def gradients(*arrays: Any) -> list[Any]:
            inputs, rest = arrays[:count], iter(arrays[count:])
            outputs, back = _jax().vjp(_of_wanted(function, inputs, wanted), *_select(inputs, wanted))
            cotangents = [next(rest) if give else None for give in given]
            pairs = zip(cotangents, outputs, strict=True)
            return [_conjugate(x) for x in back([_cotangent(c, x.shape, x.dtype) for c, x in pairs])]

        return gradients

    def specs(self, function: ArrayFunction, inputs: Sequence[Spec]) -> list[Spec]:
        jax = _jax()
        shapes = [jax.ShapeDtypeStruct(shape, jax.numpy.dtype(name)) for shape, name in inputs]
        return [(x.shape, x.dtype.name) for x in jax.eval_shape(function, *shapes)]

    # -- consumer ------------------------------------------------------------

    def differentiable(self, crossing: Crossing) -> Callable[..., Sequence[Any]]:
        function = _jax().custom_vjp(lambda *arrays: _run(crossing, arrays))

        def forward(*primals: Any) -> tuple[Any, Any]:
            arrays = tuple(_as_array(primal.value) for primal in primals)
            wanted = tuple(primal.perturbed and _is_inexact(primal.value) for primal in primals)
            if _any_traced(arrays):
                return function(*arrays), _residual()(arrays, wanted, None)
            outputs, pullback = crossing.pull(arrays, wanted)
            return tuple(outputs), _residual()(arrays, wanted, pullback)

        def backward(residual: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
            values = [None if _is_zero(x) else _conjugate(x) for x in cotangents]
            given = tuple(x is not None for x in values)
            wanted, arrays = residual.wanted, residual.arrays
            if not any(given):
                return (None,) * len(wanted)
            if residual.pullback is not None and not _any_traced((*arrays, *_select(values, given))):
                gradients = iter(_select(residual.pullback(values), wanted))
            else:
                known = crossing.derivative(wanted, given)
                gradients = iter(self.differentiable(known)(*arrays, *_select(values, given)))
            results = (next(gradients) if want else None for want in wanted)
            return tuple(None if x is None else _conjugate(x) for x in results)

        function.defvjp(forward, backward, symbolic_zeros=True)
        return function  # type: ignore[no-any-return]

    def zeros(self, array: Any) -> Any:
        return _jax().numpy.zeros_like(array)

    def device(self, array: Any) -> Any:
        return None if _any_traced((array,)) else array.sharding.device_set


def _jax() -> Any:
    return registry.by_name("jax").module()


def _select(values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    return [value for value, want in zip(values, wanted, strict=True) if want]


def _of_wanted(
    function: ArrayFunction, arrays: Sequence[Any], wanted: Sequence[bool]
) -> Callable[..., list[Any]]:
    """Return a function of the wanted arrays; the others are constants."""
    if all(wanted):
        return function

    def of_wanted(*chosen: Any) -> list[Any]:
        values = iter(chosen)
        return function(*[next(values) if want else x for x, want in zip(arrays, wanted, strict=True)])

    return of_wanted


def _is_inexact(array: Any) -> bool:
    jax = _jax()
    # JAX before 0.7 passes Python numbers on, which have no dtype.
    return bool(jax.numpy.issubdtype(jax.numpy.result_type(array), jax.numpy.inexact))


def _conjugate(array: Any) -> Any:
    """Return the complex conjugate, because JAX's complex gradients are the conjugates of the others'."""
    return array.conj() if array.dtype.kind == "c" else array


def _cotangent(cotangent: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a cotangent as ``jax.vjp`` takes it, for an output of this shape and dtype."""
    jax = _jax()
    if not jax.numpy.issubdtype(dtype, jax.numpy.inexact):
        import numpy as np

        return np.zeros(shape, jax.dtypes.float0)
    return jax.numpy.zeros(shape, dtype) if cotangent is None else _conjugate(cotangent)


def _is_zero(cotangent: Any) -> bool:
    jax = _jax()
    return isinstance(cotangent, jax.custom_derivatives.SymbolicZero) or cotangent.dtype == jax.dtypes.float0


def _as_array(value: Any) -> Any:
    """Return an array for a Python number, which JAX passes on as an object of its own subclass."""
    return _jax().numpy.asarray(value) if isinstance(value, (bool, int, float, complex)) else value


def _any_traced(arrays: Sequence[Any]) -> bool:
    tracer = _jax().core.Tracer
    return any(isinstance(array, tracer) for array in arrays)


@cache
def _residual() -> Any:
    """Return the type of residuals, a pytree node with the pullback as static data."""

    class Residual:
        """What the backward rule needs; without a pullback, it calls the function again."""

        __slots__ = ("arrays", "pullback", "wanted")

        def __init__(
            self, arrays: tuple[Any, ...], wanted: tuple[bool, ...], pullback: Pullback | None
        ) -> None:
            self.arrays, self.wanted, self.pullback = arrays, wanted, pullback

    _jax().tree_util.register_pytree_node(
        Residual,
        lambda residual: (residual.arrays, (residual.wanted, residual.pullback)),
        lambda static, arrays: Residual(tuple(arrays), *static),
    )
    return Residual


# -- under transformations -------------------------------------------------------------


def _run(crossing: Crossing, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the outputs; traced arrays get a callback."""
    if not _any_traced(arrays):
        return tuple(crossing.run([_as_array(x) for x in arrays]))
    jax = _jax()
    specs = crossing.specs([(x.shape, x.dtype.name) for x in arrays])
    for _, name in specs:  # JAX would truncate the results of the callback
        registry.by_name("jax").refuse_wide(name)  # type: ignore[attr-defined]
    results = [jax.ShapeDtypeStruct(shape, jax.numpy.dtype(name)) for shape, name in specs]

    def callback(*values: Any) -> list[Any]:
        # NumPy arrays: computations of JAX inside a callback can hang (jax-ml/jax#24255, #25861).
        with _callback():
            return crossing.run(values, to="numpy")

    return tuple(jax.pure_callback(callback, results, *arrays, vmap_method="sequential"))


@contextmanager
def _callback() -> Iterator[None]:
    _thread.in_callback = True
    try:
        yield
    finally:
        _thread.in_callback = False


def _refuse_in_callback() -> None:
    """Refuse to run a JAX function in a callback of JAX, which can hang (jax-ml/jax#25861)."""
    if getattr(_thread, "in_callback", False):
        raise UnsupportedConversionError(
            "bridge(...)",
            "a function of JAX runs inside a function that jax.jit calls back, where JAX can hang",
            "call the outer function outside jax.jit, jax.vmap and other transformations",
            code="nested-callback",
        )
