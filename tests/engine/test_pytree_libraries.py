"""Containers of torch, tensordict and flax keep their types, or are refused with a call that works."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc

torch = pytest.importorskip("torch")


def test_state_dicts_keep_their_metadata_and_alias_the_parameters() -> None:
    module = torch.nn.Linear(2, 3)
    state = zc.convert(module.state_dict(), to="numpy")
    assert type(state) is OrderedDict
    assert state._metadata == module.state_dict()._metadata
    state["weight"][:] = 5
    assert float(module.weight.detach()[0, 0]) == 5
    module.load_state_dict(zc.convert(state, to="torch"))


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Linear(2, 2),
        torch.nn.ParameterDict({"a": torch.ones(2)}),
        torch.nn.ParameterList([torch.ones(2)]),
    ],
    ids=lambda module: type(module).__name__,
)
def test_modules_are_refused_with_a_call_that_works(module: Any) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(module, to="numpy")
    result = pasted(caught.value.calls[0], {"zc": zc, "x": module})
    assert {type(value) for value in result.values()} == {np.ndarray}


def test_tensordicts_keep_their_batch_size() -> None:
    tensordict = pytest.importorskip("tensordict")
    inner = tensordict.TensorDict({"y": torch.zeros(4)}, batch_size=[4])
    x = tensordict.TensorDict({"x": torch.ones(4, 3), "n": inner}, batch_size=[4])
    y = zc.convert(x, to="torch", copy=True)
    assert type(y) is type(x)
    assert y.batch_size == y["n"].batch_size == torch.Size([4])
    assert not zc.shares_memory(x, y)


def test_hazard_torch_builds_tensordicts_of_numpy_arrays() -> None:
    """tree_unflatten() checks nothing, and the methods of the result fail."""
    tensordict = pytest.importorskip("tensordict")
    from torch.utils import _pytree as pytree

    x = tensordict.TensorDict({"x": torch.ones(4)}, batch_size=[4])
    children, spec = pytree.tree_flatten(x)
    broken = pytree.tree_unflatten([child.numpy() for child in children], spec)
    with pytest.raises((TypeError, AttributeError)):
        broken + 1


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"td": [x]}], ids=["itself", "nested"])
@pytest.mark.parametrize("target", ["numpy", "jax"])
def test_tensordicts_are_refused_for_other_targets_with_a_call_that_works(target: str, wrap: Any) -> None:
    tensordict = pytest.importorskip("tensordict")
    inner = tensordict.TensorDict({"y": torch.zeros(4)}, batch_size=[4])
    x = wrap(tensordict.TensorDict({"x": torch.ones(4), "n": inner}, batch_size=[4]))
    with pytest.raises(zc.UnsupportedConversionError, match="holds arrays of torch only") as caught:
        zc.convert(x, to=target)
    plan = zc.explain(x, to=target)
    assert plan.error is not None
    assert plan.error.remedy == caught.value.remedy
    result = pasted(caught.value.calls[0], {"zc": zc, "x": x})
    assert type(result) is dict
    np.testing.assert_array_equal(result["n"]["y"], np.zeros(4))


def test_tensorclasses_keep_their_type_and_are_refused_for_numpy() -> None:
    tensordict = pytest.importorskip("tensordict")

    @tensordict.tensorclass
    class Batch:
        weights: torch.Tensor
        name: str

    x = Batch(weights=torch.ones(3), name="train", batch_size=[3])
    y = zc.convert(x, to="torch")
    assert type(y) is Batch
    assert y.name == "train"
    assert y.weights.data_ptr() == x.weights.data_ptr()
    with pytest.raises(zc.UnsupportedConversionError, match=r"x\.to_dict\(\)"):
        zc.convert(x, to="numpy")


def test_flax_states_and_modules_keep_their_types() -> None:
    nnx = pytest.importorskip("flax.nnx")
    module = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    state = nnx.state(module)
    x = zc.convert(state, to="numpy")
    assert type(x) is type(state)
    assert type(x["kernel"].get_value()) is np.ndarray
    assert zc.shares_memory(x, state) == zc.explain(state, to="numpy").zero_copy
