"""What a bridge costs: one step, forward and backward, and the same with the usual wrapper by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.contest import Contest
from benchmarks.goals import Promise, judge, labelled, ratio
from benchmarks.suite import Case, Section, Settings, Suite, Task
from benchmarks.timing import Statement

OURS, BY_HAND = "zc.bridge", "by hand, DLPack"
#: The largest ratio to the wrapper by hand.
LIMIT = 1.2
#: Rows and columns of the input; the weights are square.
SIZES = ((8, 8), (256, 64), (2048, 128))


def jax_layer(w: Any, x: Any) -> Any:
    """A layer in JAX."""
    import jax.numpy as jnp

    return jnp.tanh(x @ w).sum(-1)


def torch_layer(w: Any, x: Any) -> Any:
    """The same layer in torch."""
    import torch

    return torch.tanh(x @ w).sum(-1)


def autograd_by_hand(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a JAX function as an ``autograd.Function`` over ``jax.vjp``, for one output."""
    import jax
    import torch
    from torch.utils.dlpack import from_dlpack

    def to_jax(tensor: Any) -> Any:
        return jax.dlpack.from_dlpack(tensor.detach().contiguous())

    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            out, ctx.back = jax.vjp(function, *map(to_jax, tensors))
            return from_dlpack(out)

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:  # type: ignore[override]
            return tuple(map(from_dlpack, ctx.back(to_jax(cotangent))))

    return ByHand.apply  # type: ignore[no-any-return]


def custom_vjp_by_hand(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a torch function as a ``jax.custom_vjp`` for eager calls and one output."""
    import jax
    import torch

    from_dlpack = jax.dlpack.from_dlpack
    graphs = []

    @jax.custom_vjp
    def by_hand(*arrays: Any) -> Any:
        return from_dlpack(function(*map(torch.from_dlpack, arrays)))

    def forward(*arrays: Any) -> Any:
        inputs = [torch.from_dlpack(x).requires_grad_() for x in arrays]
        out = function(*inputs)
        graphs.append((out, inputs))
        return from_dlpack(out.detach()), None

    def backward(_: Any, cotangent: Any) -> Any:
        gradients = torch.autograd.grad(*graphs.pop(), torch.from_dlpack(cotangent))
        return tuple(map(from_dlpack, gradients))

    by_hand.defvjp(forward, backward)
    return by_hand  # type: ignore[no-any-return]


def torch_step(call: Callable[..., Any], rows: int, columns: int) -> Callable[[], Any]:
    """Return a step of torch through `call`."""
    import torch

    inputs = torch.ones(columns, columns) / columns, torch.ones(rows, columns)
    for tensor in inputs:
        tensor.requires_grad_()
    return lambda: torch.autograd.grad(call(*inputs).sum(), inputs)


def jax_step(call: Callable[..., Any], rows: int, columns: int) -> Callable[[], Any]:
    """Return a step of JAX through `call`."""
    import jax

    inputs = jax.numpy.ones((columns, columns)) / columns, jax.numpy.ones((rows, columns))
    gradient = jax.grad(lambda w, x: call(w, x).sum(), (0, 1))
    return lambda: jax.block_until_ready(gradient(*inputs))


def contenders() -> dict[str, tuple[Callable[..., Any], dict[str, Callable[..., Any]]]]:
    """Return the kind of step and the wrappers of each direction, by name."""
    import jax

    jitted = jax.jit(jax_layer)
    return {
        "jax -> torch": (
            torch_step,
            {OURS: zc.bridge(jax_layer, to="torch", source="jax"), BY_HAND: autograd_by_hand(jax_layer)},
        ),
        "jax.jit -> torch": (
            torch_step,
            {OURS: zc.bridge(jitted, to="torch"), BY_HAND: autograd_by_hand(jitted)},
        ),
        "torch -> jax": (
            jax_step,
            {
                OURS: zc.bridge(torch_layer, to="jax", source="torch"),
                BY_HAND: custom_vjp_by_hand(torch_layer),
            },
        ),
    }


def tasks(settings: Settings) -> list[Task]:
    return [
        Task(f"{rows} x {columns}", partial(run, settings, rows, columns), 6.0) for rows, columns in SIZES
    ]


def run(settings: Settings, rows: int, columns: int) -> list[Case]:
    """Time a step in each direction."""
    if not (settings.wants("torch") and settings.wants("jax")):
        return []
    cases = []
    for name, (step, wrappers) in contenders().items():
        contest = Contest()
        case = contest.case(f"{name}, {rows} x {columns}")
        for label, call in wrappers.items():
            statement = Statement("step()", {"step": step(call, rows, columns)})
            contest.add(case, label, "ours" if label == OURS else "idiom", statement)
        cases += contest.time(settings.pace)
    return cases


PROMISES = (
    Promise(
        f"one step: at most {LIMIT:.1f}x of the wrapper by hand",
        ratio(labelled(BY_HAND), labelled(OURS)),
        LIMIT,
    ),
)

SUITE = Suite(
    "bridge",
    "one step through a function of another framework, compared with a wrapper by hand",
    (Section("steps", "one step, forward and backward", tasks, "series", partial(judge, PROMISES)),),
    frameworks=("torch", "jax"),
    distributions=("torch", "jax", "jaxlib"),
)
