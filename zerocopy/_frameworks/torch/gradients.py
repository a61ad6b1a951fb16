"""Gradients of PyTorch functions, and functions of other frameworks for autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

from zerocopy import registry
from zerocopy.errors import UnsupportedConversionError
from zerocopy.functions.gradients import ArrayFunction, Crossing, GradientsHook, Pullback, Spec
from zerocopy.protocols.exporter_errors import is_error


class Gradients(GradientsHook):
    """``torch.autograd.grad`` as producer, ``torch.autograd.Function`` as consumer."""

    def run(self, function: ArrayFunction, arrays: Sequence[Any]) -> list[Any]:
        torch = _torch()
        with torch.inference_mode(False), torch.no_grad(), _unchanged(arrays):
            return [x.detach() for x in function(*arrays)]

    def pull(
        self, function: ArrayFunction, arrays: Sequence[Any], wanted: tuple[bool, ...]
    ) -> tuple[list[Any], Pullback]:
        torch = _torch()
        with torch.inference_mode(False), torch.enable_grad():
            inputs = [x.detach().requires_grad_(want) for x, want in zip(arrays, wanted, strict=True)]
            with _unchanged(inputs):
                outputs = function(*inputs)
        sources = [x for x in inputs if x.requires_grad]

        def pullback(cotangents: Sequence[Any]) -> list[Any]:
            pairs = zip(outputs, cotangents, strict=True)
            used = [(x, c) for x, c in pairs if c is not None and x.requires_grad]
            if not used or not sources:
                return [None] * len(wanted)
            tensors, given = zip(*used, strict=True)
            # The graph is kept: a pullback can be called again, and is freed with its last reference.
            gradients = iter(
                torch.autograd.grad(tensors, sources, given, retain_graph=True, allow_unused=True)
            )
            return [_dense(next(gradients)) if want else None for want in wanted]

        return [x.detach() for x in outputs], pullback

    def derivative(
        self, function: ArrayFunction, wanted: tuple[bool, ...], given: tuple[bool, ...]
    ) -> ArrayFunction:
        torch = _torch()
        count = len(wanted)

        def gradients(*arrays: Any) -> list[Any]:
            again = torch.is_grad_enabled()
            with torch.enable_grad():
                inputs = [
                    x.detach().requires_grad_() if want and not x.requires_grad else x
                    for x, want in zip(arrays, wanted, strict=False)
                ]
                with _without_random_numbers():
                    outputs = function(*inputs)
                used = [x for x, give in zip(outputs, given, strict=True) if give]
                pairs = [(x, c) for x, c in zip(used, arrays[count:], strict=True) if x.requires_grad]
                sources = [x for x, want in zip(inputs, wanted, strict=True) if want]
                if not pairs:
                    return [torch.zeros_like(x) for x in sources]
                results = torch.autograd.grad(
                    *([pair[0] for pair in pairs], sources, [pair[1] for pair in pairs]),
                    create_graph=again,
                    allow_unused=True,
                    materialize_grads=True,
                )
            return [_dense(x) for x in results]

        return gradients

    def specs(self, function: ArrayFunction, inputs: Sequence[Spec]) -> list[Spec]:
        from torch._subclasses.fake_tensor import FakeTensorMode

        torch = _torch()
        try:
            with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
                outputs = function(*[torch.empty(s, dtype=getattr(torch, name)) for s, name in inputs])
                return [(tuple(map(int, x.shape)), str(x.dtype).removeprefix("torch.")) for x in outputs]
        except UnsupportedConversionError:
            raise
        except Exception as error:
            if not is_error(error):
                raise
            raise UnsupportedConversionError(
                "bridge(...)",
                f"the shapes of the results are not known before the function runs: torch raised {error}",
                "call it outside jax.jit, jax.vmap and tf.function, or remove branches that depend on values",
                code="unknown-result",
            ) from error

    # -- consumer ------------------------------------------------------------

    def differentiable(self, crossing: Crossing) -> Callable[..., Sequence[Any]]:
        torch = _torch()

        def function(*tensors: Any) -> Sequence[Any]:
            if torch._C._are_functorch_transforms_active():
                wanted = tuple(map(_is_inexact, tensors))
            elif torch.is_grad_enabled():
                wanted = tuple(x.requires_grad for x in tensors)
            else:
                wanted = (False,) * len(tensors)
            return _function().apply(_Step(crossing, wanted), *tensors)  # type: ignore[no-any-return]

        return function

    def adopt(self, function: Callable[..., Any]) -> Callable[..., Any]:
        torch = _torch()
        compiling = torch.compiler.is_compiling
        # The public decorator imports torch's compiler, which takes over a second.
        disable = getattr(torch, "_disable_dynamo", None) or torch.compiler.disable
        in_python = disable(function)

        @wraps(function)
        def adopted(*args: Any, **options: Any) -> Any:
            return in_python(*args, **options) if compiling() else function(*args, **options)

        return adopted

    def zeros(self, array: Any) -> Any:
        return _torch().zeros_like(array)


def _torch() -> Any:
    return registry.by_name("torch").module()


def _dense(gradient: Any) -> Any:
    """Return a gradient as a dense tensor: those of ``embedding(sparse=True)`` are sparse."""
    if gradient is None or gradient.layout is _torch().strided:
        return gradient
    return gradient.to_dense()


def _is_inexact(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


@contextmanager
def _unchanged(tensors: Sequence[Any]) -> Iterator[None]:
    """Refuse a function that writes to its arguments, which alias immutable memory."""
    before = [x._version for x in tensors]
    yield
    if before != [x._version for x in tensors]:
        raise UnsupportedConversionError(
            "bridge(...)",
            "the function wrote to one of its arguments in place, and so to memory of another framework",
            "clone the argument in the function first: x = x.clone()",
            code="argument-written",
        )


@contextmanager
def _without_random_numbers() -> Iterator[None]:
    """Refuse a function that draws random numbers, if it is called again for its gradients."""
    torch = _torch()
    before = torch.get_rng_state()
    yield
    if not torch.equal(before, torch.get_rng_state()):
        raise UnsupportedConversionError(
            "bridge(...)",
            "the function draws random numbers, and is called again for these gradients with other numbers",
            "call module.eval(), or pass the random numbers as an argument",
            code="random-function",
        )


# -- autograd ------------------------------------------------------------------------


class _Step:
    """One call of a crossing, with its pullback once it has run."""

    __slots__ = ("crossing", "pullback", "wanted")

    def __init__(self, crossing: Crossing, wanted: tuple[bool, ...]) -> None:
        self.crossing, self.wanted = crossing, wanted
        self.pullback: Pullback | None = None

    def forward(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        inputs = [x.detach() for x in tensors]
        if any(self.wanted):
            outputs, self.pullback = self.crossing.pull(inputs, self.wanted)
        else:
            outputs = self.crossing.run(inputs)
        return tuple(_own_memory(outputs, inputs))

    def backward(self, tensors: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        torch = _torch()
        cotangents = [_dense(x) for x in cotangents]
        given = tuple(x is not None for x in cotangents)
        if not any(given):
            return [None] * len(self.wanted)
        if not (torch.is_grad_enabled() or torch._C._are_functorch_transforms_active()):
            assert self.pullback is not None
            gradients = self.pullback(cotangents)
            known = [x for x in cotangents if x is not None]
            wanted = [x for x in gradients if x is not None]
            owned = iter(_own_memory(wanted, tensors, {_layout(x): x for x in known}))
            return [None if x is None else next(owned) for x in gradients]
        derivative = self.crossing.derivative(self.wanted, given, self.pullback)
        used = [x for x in cotangents if x is not None]
        step = Gradients().differentiable(derivative)
        results = iter(step(*tensors, *used))
        return [next(results) if want else None for want in self.wanted]


def _layout(tensor: Any) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _own_memory(
    results: Sequence[Any], inputs: Sequence[Any], known: dict[Any, Any] | None = None
) -> list[Any]:
    """Return results that share no memory with the inputs or each other, because torch writes in place.

    With `known`, tensors by layout, a result with the memory and the layout of one becomes that tensor:
    autograd copies a gradient that it holds twice.
    """
    taken = [_span(x) for x in (*inputs, *(known or {}).values())]
    owned = []
    for result in results:
        layout = _layout(result)
        if known is None or layout not in known:
            if any(start <= layout[0] < end for start, end in taken):
                result = result.clone()
            taken.append(_span(result))
            if known is not None:
                known[layout] = result
        owned.append(result if known is None else known[layout])
    return owned


def _span(tensor: Any) -> tuple[int, int]:
    """Return the addresses of a tensor's storage, from first to last."""
    storage = tensor.untyped_storage()
    start = storage.data_ptr()
    return start, start + storage.nbytes()


def _empty_batch(
    crossing: Crossing, tensors: Sequence[Any], in_dims: Sequence[int | None]
) -> tuple[Any, Any]:
    """Return the results of no calls: their shapes and dtypes are those of one."""
    torch = _torch()
    items = [
        (tuple(size for i, size in enumerate(x.shape) if i != dim), str(x.dtype).removeprefix("torch."))
        for x, dim in zip(tensors, in_dims, strict=True)
    ]
    specs = crossing.specs(items)
    device = tensors[0].device
    results = [torch.empty((0, *shape), dtype=getattr(torch, name), device=device) for shape, name in specs]
    return tuple(results), (0,) * len(results)


@cache
def _function() -> Any:
    """Return the ``torch.autograd.Function`` of all bridges."""
    torch = _torch()

    class Bridge(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """Calls a `_Step`; saved tensors let autograd refuse gradients after writes in place."""

        @staticmethod
        def forward(step: _Step, *tensors: Any) -> tuple[Any, ...]:
            return step.forward(tensors)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
            ctx.step = inputs[0]
            ctx.inputs = len(inputs) - 1
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*[x for x in output if not _is_inexact(x)])
            # JAX's residuals alias inputs and outputs. Autograd checks that both are unchanged.
            ctx.save_for_backward(*inputs[1:], *output)

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
            saved = ctx.saved_tensors
            return None, *ctx.step.backward(saved[: ctx.inputs], cotangents)

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], step: _Step, *tensors: Any) -> tuple[Any, Any]:
            if info.batch_size == 0:
                return _empty_batch(step.crossing, tensors, in_dims[1:])
            # One call for each item: torch has no memory to hand over for a whole batch.
            items = [
                Bridge.apply(
                    _Step(step.crossing, step.wanted),
                    *[
                        x if dim is None else x.select(dim, i)
                        for x, dim in zip(tensors, in_dims[1:], strict=True)
                    ],
                )
                for i in range(info.batch_size)
            ]
            results = tuple(torch.stack(parts) for parts in zip(*items, strict=True))
            return results, (0,) * len(results)

    return Bridge
