"""Versions of torch that the compiled core does not support: there is no compiled exporter or importer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from zerocopy._frameworks.torch import native  # noqa: E402 - after the skip


@pytest.mark.hazard("robustness#offsets-in-torch")
@pytest.mark.parametrize("value", [0, 2**64 - 1])
def test_without_unique_offsets_there_is_no_layout(value: int) -> None:
    assert native._find_layout(torch, lambda address: value) is None


@pytest.mark.hazard("robustness#offsets-in-torch")
@pytest.mark.parametrize("version", ["2.8.1", "3.0.0"])
def test_unknown_versions_of_torch_have_no_compiled_functions(version: str) -> None:
    other = SimpleNamespace(__version__=version, Tensor=torch.Tensor)
    assert native.exporter(other) is None
    assert native.importer(other, ()) is None


#: Contexts in which the first tensors of a process have other keys, or cannot be made.
MODES = {
    "no mode": "contextlib.nullcontext()",
    "inference mode": "torch.inference_mode()",
    "no_grad": "torch.no_grad()",
    "default device": "torch.device('meta')",
    "fake tensors": "torch._subclasses.fake_tensor.FakeTensorMode()",
    "dispatch mode": "Doubling()",
}


def test_the_layout_does_not_depend_on_modes_of_the_first_use(run_warm) -> None:
    result = run_warm(f"""
        import contextlib, sys
        sys.path.insert(0, "tests")
        import numpy as np, torch, torch._subclasses.fake_tensor
        from torch.utils._python_dispatch import TorchDispatchMode
        import zerocopy as zc
        from helpers.forked_child import in_child

        class Doubling(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                return torch.stack([function(*args, **(kwargs or {{}}))] * 2)

        def check(mode):
            from zerocopy._frameworks.torch import native
            with eval(mode):
                layout = native.find_layout(torch)
            assert layout == native.find_layout(torch), layout
            tensor = torch.arange(3)
            return zc.shares_memory(tensor, zc.convert(tensor, "numpy"))

        for mode in {list(MODES.values())}:
            assert in_child(lambda: check(mode)) == 0, mode
        """)
    assert result.returncode == 0, result.stderr


#: Calls of a function `f` and an array `x` by torch's transformations.
TRANSFORMATIONS = [
    "torch.func.vmap(f)(x)",
    "torch.func.grad(lambda x: f(x).sum())(x)",
    "torch.func.jvp(f, (x,), (x,))[1]",
    "torch.func.jacrev(f)(x).sum((1, 3))",
    "torch.func.vmap(torch.func.grad(lambda x: f(x).sum()))(x)",
]


def test_the_first_use_is_in_a_function_that_torch_transforms(run_warm) -> None:
    result = run_warm(f"""
        import sys
        sys.path.insert(0, "tests")
        import numpy as np, torch
        import torch._dynamo, torch._decomp.decompositions_for_jvp  # 1 s in each child
        import zerocopy as zc
        from helpers.forked_child import in_child

        def double(x):
            return x * 2

        x = torch.arange(6.0).reshape(2, 3)

        def check(function, call):
            f = eval(function)
            result = eval(call, {{**globals(), "f": f}})
            assert torch.equal(result, eval(call, {{**globals(), "f": double}})), result
            return zc.shares_memory(x, zc.convert(x, "numpy"))

        for function in ("zc.accepts('torch')(double)", "lambda x: double(zc.convert(x, 'torch'))"):
            for call in {TRANSFORMATIONS}:
                assert in_child(lambda: check(function, call)) == 0, (function, call)
        """)
    assert result.returncode == 0, result.stderr


def test_without_threads_there_is_no_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter starts none while it ends."""

    def refuse(self: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr("threading.Thread.start", refuse)
    assert native.find_layout(torch) is None
