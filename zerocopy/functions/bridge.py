"""``bridge``: a function of one framework, with its gradients, as a function of another."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zerocopy import registry
from zerocopy._engine.container_types import CONTAINERS, is_container, items_of, rebuild
from zerocopy._engine.convert import convert
from zerocopy._engine.options import Target
from zerocopy._engine.target import resolve
from zerocopy.errors import DeviceError, Fix, UnsupportedConversionError
from zerocopy.errors.tracebacks import public
from zerocopy.framework import Framework, hook_of
from zerocopy.functions.gradients import GradientsHook, Pullback, Spec
from zerocopy.source import type_name


@public
def bridge(fn: Callable[..., Any], to: Target, *, source: Target | None = None) -> Callable[..., Any]:
    """Return a function of one framework, with its gradients, as a function of another.

    Parameters
    ----------
    fn : callable
        A function of JAX, PyTorch or TensorFlow, or a module of PyTorch. It takes arrays, containers of
        arrays and other objects, and returns arrays, None, or containers of these. It must be pure: it
        changes neither its arguments nor other state.
    to : str, module or type
        The framework of the result, as in :func:`zerocopy.convert`.
    source : str, module or type, optional
        The framework of `fn`. None: it is taken from the type of `fn`, such as ``torch.nn.Module``, a
        function of ``jax.jit`` or of ``tf.function``. Plain Python functions need it.

    Returns
    -------
    callable
        A function with the parameters of `fn`, for arrays of `to`. Inputs, results and gradients are
        aliases wherever :func:`zerocopy.convert` does not need a copy. Arrays of integers and booleans
        have no gradients. Objects that are not arrays reach `fn` unchanged.

    Raises
    ------
    UnknownFrameworkError
        `to` or `source` does not name a framework.
    FrameworkNotInstalledError
        One of the two frameworks is not installed.
    UnsupportedConversionError
        `fn` is not callable, `source` is needed, or a framework has no gradients. A call raises it for
        arguments of another framework, and for results that are not arrays.
    DeviceError
        A call raises it for arguments on several devices.
    LossyConversionError
        As :func:`zerocopy.convert`: JAX without its x64 mode takes no 64-bit numbers.

    Notes
    -----
    Gradients of gradients call `fn` again. So do gradients under ``jax.jit``, which runs `fn` in a
    ``jax.pure_callback``. See docs/bridge.md.

    Examples
    --------
    >>> import jax, torch, zerocopy as zc
    >>> def energy(x):
    ...     return (x**3).sum()
    >>> torch_energy = zc.bridge(energy, to="torch", source="jax")
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> torch_energy(x).backward()
    >>> x.grad
    tensor([ 3., 12.])
    """
    target = resolve(to, fn)
    if not callable(fn):
        raise UnsupportedConversionError(
            f"bridge({type(fn).__qualname__})", "it is not callable", "pass a function", code="not-callable"
        )
    asked = f"bridge({getattr(fn, '__qualname__', type(fn).__qualname__)}, to={target.name!r})"
    producing = resolve(source) if source is not None else _framework_of(fn, asked)
    consumer, producer = _gradients(target, asked), _gradients(producing, asked)
    if target is producing:
        return fn
    arguments, results = Arguments(target, asked), Results(producing, asked)

    @functools.wraps(fn)
    def bridged(*args: Any, **options: Any) -> Any:
        arrays: list[Any] = []
        skeleton = arguments.flatten((args, options) if options else args, arrays)
        if len(arrays) > 1:
            _check_devices(consumer, arrays, asked)
        function = FlatFunction(fn, skeleton, results, bool(options))
        crossing = _BridgedFunction(function, producer, producing.name, consumer, target.name)
        outputs = consumer.differentiable(crossing)(*arrays)
        return unflatten(function.skeleton, outputs)

    return consumer.adopt(bridged)


def _framework_of(fn: Any, asked: str) -> Framework:
    inner = fn.func if isinstance(fn, functools.partial) else fn
    for obj in (inner, getattr(inner, "__self__", None)):
        for cls in type(obj).__mro__:
            for framework in registry.by_root(cls):
                if framework.has_hook("gradients"):
                    return framework
    raise UnsupportedConversionError(
        asked,
        f"the type of the function, {type(fn).__qualname__}, does not name its framework",
        f"pass source=, one of {', '.join(map(repr, _with_gradients()))}",
        code="unknown-source",
    )


def _gradients(framework: Framework, asked: str) -> GradientsHook:
    if framework.has_hook("gradients"):
        framework.module()
        hook = hook_of(framework, GradientsHook)
        if type(hook) is not GradientsHook:  # a plugin can have a file of that name for another purpose
            return hook
    raise UnsupportedConversionError(
        asked,
        f"{framework.name} has no gradients",
        f"choose from {', '.join(_with_gradients())}",
        code="no-gradients",
    )


def _with_gradients() -> list[str]:
    return sorted(framework.name for framework in registry.known() if framework.has_hook("gradients"))


def _check_devices(consumer: GradientsHook, arrays: Sequence[Any], asked: str) -> None:
    first = consumer.device(arrays[0])
    for array in arrays:
        if (device := consumer.device(array)) != first and device is not None and first is not None:
            raise DeviceError(
                asked,
                f"its arguments are on several devices: {first} and {device}",
                "move them to one device first",
                code="several-devices",
            )


class FlatFunction:
    """A function with the arguments of one call, as a function of the arrays among them."""

    __slots__ = ("__weakref__", "_fn", "_has_options", "_inputs", "_results", "skeleton")

    def __init__(self, fn: Callable[..., Any], inputs: Any, results: Results, has_options: bool) -> None:
        self._fn, self._inputs, self._results, self._has_options = fn, inputs, results, has_options
        #: The result of the last call without its arrays.
        self.skeleton: Any = None

    def __call__(self, *arrays: Any) -> list[Any]:
        args, options = unflatten(self._inputs, arrays), {}
        if self._has_options:
            args, options = args
        outputs: list[Any] = []
        self.skeleton = self._results.flatten(self._fn(*args, **options), outputs)
        return outputs


class _BridgedFunction:
    """A function of the producer for arrays of the consumer: a `gradients.Crossing`."""

    __slots__ = ("_consumer", "_function", "_producer", "_source", "_target")

    def __init__(
        self, function: Any, producer: GradientsHook, source: str, consumer: GradientsHook, target: str
    ) -> None:
        self._function, self._producer, self._source = function, producer, source
        self._consumer, self._target = consumer, target

    def run(self, arrays: Sequence[Any], to: str = "") -> list[Any]:
        outputs = self._producer.run(self._function, [convert(x, self._source) for x in arrays])
        return [convert(x, to or self._target) for x in outputs]

    def pull(self, arrays: Sequence[Any], wanted: tuple[bool, ...]) -> tuple[list[Any], Pullback]:
        source, target = self._source, self._target
        inputs = [convert(x, source) for x in arrays]
        outputs, pullback = self._producer.pull(self._function, inputs, wanted)

        def across(cotangents: Sequence[Any]) -> list[Any]:
            given = [None if x is None else convert(x, source) for x in cotangents]
            return [None if x is None else convert(x, target) for x in pullback(given)]

        return [convert(x, target) for x in outputs], across

    def specs(self, inputs: Sequence[Spec]) -> list[Spec]:
        return self._producer.specs(self._function, inputs)

    def derivative(
        self, wanted: tuple[bool, ...], given: tuple[bool, ...], known: Pullback | None = None
    ) -> _Derivative:
        return _Derivative(self, wanted, given, known)


class _Derivative(_BridgedFunction):
    """The gradients of a `_BridgedFunction`, as a function of its inputs and of cotangents."""

    __slots__ = ("_given", "_known", "_wanted")

    def __init__(
        self, of: _BridgedFunction, wanted: tuple[bool, ...], given: tuple[bool, ...], known: Pullback | None
    ) -> None:
        function = of._producer.derivative(of._function, wanted, given)
        super().__init__(function, of._producer, of._source, of._consumer, of._target)
        self._wanted, self._given, self._known = wanted, given, known

    def pull(self, arrays: Sequence[Any], wanted: tuple[bool, ...]) -> tuple[list[Any], Pullback]:
        if self._known is None:
            return super().pull(arrays, wanted)
        # The first derivative is known. The function runs again only if a second one is asked for.
        kept = list(arrays)
        again: list[Pullback] = []

        def later(cotangents: Sequence[Any]) -> list[Any]:
            if not again:
                again.append(_BridgedFunction.pull(self, kept, wanted)[1])
            return again[0](cotangents)

        return self.run(arrays), later

    def run(self, arrays: Sequence[Any], to: str = "") -> list[Any]:
        if self._known is None:
            return super().run(arrays, to)
        count = len(self._wanted)
        cotangents = iter(arrays[count:])
        gradients = self._known([next(cotangents) if given else None for given in self._given])
        pairs = zip(arrays, gradients, self._wanted, strict=False)
        return [self._consumer.zeros(x) if g is None else g for x, g, wanted in pairs if wanted]

    def specs(self, inputs: Sequence[Spec]) -> list[Spec]:
        return [spec for spec, wanted in zip(inputs, self._wanted, strict=False) if wanted]


#: Types of arguments that are passed on unchanged; the others are checked.
_PLAIN = frozenset((str, bytes, bool, int, float, complex, type(None), slice, range))


class _Array:
    """Mark of an array's place in a skeleton."""


class _Container:
    """A container in a skeleton: the original, its keys, and the skeletons of its items."""

    __slots__ = ("items", "keys", "original")

    def __init__(self, original: Any, keys: list[Any], items: list[Any]) -> None:
        self.original, self.keys, self.items = original, keys, items


ARRAY = _Array()


class Arguments:
    """Takes the arrays of one framework out of the arguments of a call."""

    __slots__ = ("asked", "framework")
    _role = "arguments"

    def __init__(self, framework: Framework, asked: str) -> None:
        self.framework: Framework = framework
        self.asked: str = asked

    def flatten(self, obj: Any, arrays: list[Any], parents: tuple[int, ...] = ()) -> Any:
        """Append the arrays in `obj` to `arrays`, and return the structure without them.

        Raises
        ------
        UnsupportedConversionError
            It contains an array of another framework, or a container that holds itself.
        """
        cls = type(obj)
        if cls in _PLAIN:
            return obj
        if not issubclass(cls, CONTAINERS):
            owner = registry.target_of(cls)
            if owner is self.framework:
                arrays.append(obj)
                return ARRAY
            if owner is not None:
                raise self._foreign(obj, owner)
            if not is_container(obj):
                return obj
        return self._flatten_items(obj, arrays, parents)

    def _flatten_items(self, obj: Any, arrays: list[Any], parents: tuple[int, ...]) -> _Container:
        if id(obj) in parents:
            raise UnsupportedConversionError(
                self.asked,
                f"a {type_name(obj)} among its {self._role} holds itself",
                "pass a tree of containers",
                code="cyclic-container",
            )
        pairs, inner = items_of(obj), (*parents, id(obj))
        items = [self.flatten(value, arrays, inner) for _, value in pairs]
        return _Container(obj, [key for key, _ in pairs], items)

    def _foreign(self, obj: Any, owner: Framework) -> UnsupportedConversionError:
        name = self.framework.name
        return UnsupportedConversionError(
            self.asked,
            f"an argument is an array of {owner.name}; the function takes arrays of {name}",
            fixes=[Fix(f'zc.convert({{x}}, to="{name}")', "converts it", alone=True)],
            code="foreign-argument",
        )


class Results(Arguments):
    """Takes the arrays of one framework out of the result of a function."""

    __slots__ = ()
    _role = "results"

    def flatten(self, obj: Any, arrays: list[Any], parents: tuple[int, ...] = ()) -> Any:
        """As `Arguments.flatten`; all leaves are arrays of the framework or None."""
        cls = type(obj)
        if obj is None:
            return None
        if not issubclass(cls, CONTAINERS):
            if registry.by_type(cls) is self.framework:
                arrays.append(obj)
                return ARRAY
            if not is_container(obj):
                name = self.framework.name
                raise UnsupportedConversionError(
                    self.asked,
                    f"the function returned {type_name(obj)}, which is not an array of {name}",
                    f"return arrays of {name}, None, or containers of these",
                    code="result-not-an-array",
                )
        return self._flatten_items(obj, arrays, parents)


def unflatten(skeleton: Any, arrays: Sequence[Any]) -> Any:
    """Return a skeleton with `arrays` in their places."""
    return _fill(skeleton, iter(arrays))


def _fill(skeleton: Any, arrays: Iterator[Any]) -> Any:
    if skeleton is ARRAY:
        return next(arrays)
    if type(skeleton) is not _Container:
        return skeleton
    return rebuild(skeleton.original, skeleton.keys, [_fill(item, arrays) for item in skeleton.items])
