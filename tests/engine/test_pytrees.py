"""Types that optree, JAX and torch register as pytrees are containers."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import zerocopy as zc

optree = pytest.importorskip("optree")
jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")


class Pair:
    """Two children and static data; the registrations below are of its subclasses."""

    def __init__(self, a: Any, b: Any, tag: Any = "tag") -> None:
        self.a, self.b, self.tag = a, b, tag


class InOptree(Pair):
    pass


class InJax(Pair):
    pass


class InTorch(Pair):
    pass


class InTorchWithoutKeys(Pair):
    pass


class InAll(Pair):
    """optree sees its children swapped."""


class Checked(Pair):
    """Its constructor accepts NumPy arrays only."""

    def __init__(self, a: Any, b: Any, tag: Any = "tag") -> None:
        if not all(isinstance(child, np.ndarray) for child in (a, b)):
            raise TypeError("arrays of NumPy only")
        super().__init__(a, b, tag)


class Copying(Pair):
    """Its constructor stores other objects than it is given."""

    def __init__(self, a: Any, b: Any, tag: Any = "tag") -> None:
        super().__init__(np.array(a), np.array(b), tag)


class Raising(Pair):
    pass


def _children(x: Pair) -> tuple[tuple[Any, Any], Any]:
    return (x.a, x.b), x.tag


def _refuse(x: Pair) -> Any:
    raise RuntimeError("no children today")


def _register() -> None:
    names = ("a", "b")
    attribute = optree.GetAttrEntry

    def in_optree(cls: type, flatten: Any = lambda x: ((x.a, x.b), x.tag, names)) -> None:
        build = lambda tag, children: cls(*children, tag)  # noqa: E731
        optree.register_pytree_node(cls, flatten, build, path_entry_type=attribute, namespace=GLOBAL)

    for cls in (InOptree, Checked, Copying):
        in_optree(cls)
    in_optree(Raising, _refuse)
    optree.register_pytree_node(
        InAll,
        lambda x: ((x.b, x.a), x.tag, ("b", "a")),
        lambda tag, children: InAll(children[1], children[0], tag),
        path_entry_type=attribute,
        namespace=GLOBAL,
    )
    keys = [jax.tree_util.GetAttrKey(name) for name in names]
    for cls in (InJax, InAll):
        jax.tree_util.register_pytree_with_keys(
            cls,
            lambda x: ([*zip(keys, (x.a, x.b), strict=True)], x.tag),
            lambda tag, children, cls=cls: cls(*children, tag),
        )
    from torch.utils import _pytree as pytree

    key = pytree.GetAttrKey
    pytree.register_pytree_node(
        InTorch,
        _children,
        lambda children, tag: InTorch(*children, tag),
        flatten_with_keys_fn=lambda x: ([(key("a"), x.a), (key("b"), x.b)], x.tag),
    )
    pytree.register_pytree_node(
        InTorchWithoutKeys, _children, lambda children, tag: InTorchWithoutKeys(*children, tag)
    )


from optree.registry import __GLOBAL_NAMESPACE as GLOBAL  # noqa: E402

_register()
REGISTERED = (InOptree, InJax, InTorch, InTorchWithoutKeys, InAll)


@pytest.mark.parametrize("cls", REGISTERED)
def test_registered_types_keep_their_type_and_static_data(cls: type) -> None:
    tag = object()
    x = cls(np.arange(3.0), {"c": [np.ones(2)]}, tag)
    y = zc.convert(x, to="torch")
    assert type(y) is cls
    assert y.tag is tag
    assert type(x.a) is np.ndarray
    y.a[0] = 7
    assert x.a[0] == 7
    assert y.b["c"][0].data_ptr() == x.b["c"][0].ctypes.data
    assert zc.shares_memory(x, y)
    assert zc.explain(x, to="torch").zero_copy
    assert not zc.shares_memory(x, zc.convert(x, to="torch", copy=True))


@pytest.mark.parametrize(
    ("cls", "paths"),
    [
        (InOptree, [".a", ".b[0]"]),
        (InJax, [".a", ".b[0]"]),
        (InTorch, [".a", ".b[0]"]),
        (InTorchWithoutKeys, ["[0]", "[1][0]"]),
        (InAll, [".b[0]", ".a"]),  # optree's registration comes first
    ],
)
def test_paths_name_the_children(cls: type, paths: list[str]) -> None:
    x = cls(np.ones(1), [np.ones(1)])
    assert list(zc.explain(x, to="torch").leaves) == paths


def test_none_is_a_leaf() -> None:
    x = InJax(np.ones(1), None)
    with pytest.raises(zc.UnsupportedConversionError, match=r"at \.b: "):
        zc.convert(x, to="torch")
    assert zc.convert(x, to="torch", leaves="keep").b is None


def test_types_that_refuse_the_results_are_refused() -> None:
    x = Checked(np.ones(1), np.ones(2))
    assert type(zc.convert(x, to="numpy", copy=True)) is Checked
    with pytest.raises(zc.UnsupportedConversionError, match="arrays of NumPy only") as caught:
        zc.convert(x, to="torch")
    assert caught.value.code == "container-type"


def test_types_that_change_their_children_are_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="cannot be rebuilt from its items"):
        zc.convert(Copying(np.ones(1), np.ones(2)), to="torch")


def test_a_registration_that_raises_is_an_error_of_zerocopy() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="no children today") as caught:
        zc.convert(Raising(np.ones(1), np.ones(1)), to="torch")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_type_can_be_registered_after_it_was_refused() -> None:
    class Late(Pair):
        pass

    x = Late(np.ones(1), np.ones(1))
    with pytest.raises(zc.UnsupportedConversionError, match="not an array"):
        zc.convert(x, to="torch")
    optree.register_pytree_node(
        Late, lambda x: ((x.a, x.b), x.tag), lambda tag, children: Late(*children, tag), namespace=GLOBAL
    )
    assert type(zc.convert(x, to="torch").a) is torch.Tensor


def test_a_pytree_that_holds_itself_is_refused() -> None:
    x = InJax(np.ones(1), None)
    x.b = [x]
    with pytest.raises(zc.UnsupportedConversionError, match="holds itself"):
        zc.convert(x, to="torch", leaves="keep")


def test_no_registry_is_imported(run_python) -> None:
    process = run_python(
        """
import sys, numpy as np, zerocopy as zc
class Own: pass
try: zc.convert(Own(), to="numpy")
except zc.UnsupportedConversionError: pass
zc.convert([np.ones(1)], to="numpy", copy=True)
assert not {"optree", "jax", "torch"} & sys.modules.keys()
"""
    )
    assert process.returncode == 0, process.stderr


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
    result = eval(caught.value.calls[0], {"zc": zc, "x": module})
    assert {type(value) for value in result.values()} == {np.ndarray}


def test_tensordicts_keep_their_batch_size() -> None:
    tensordict = pytest.importorskip("tensordict")
    inner = tensordict.TensorDict({"y": torch.zeros(4)}, batch_size=[4])
    x = tensordict.TensorDict({"x": torch.ones(4, 3), "n": inner}, batch_size=[4])
    y = zc.convert(x, to="torch", copy=True)
    assert type(y) is type(x)
    assert y.batch_size == y["n"].batch_size == torch.Size([4])
    assert not zc.shares_memory(x, y)
    assert zc.convert(x.to_dict(), to="numpy")["n"]["y"].shape == (4,)


def test_flax_containers_keep_their_types() -> None:
    struct = pytest.importorskip("flax.struct")
    from flax.core import FrozenDict

    @struct.dataclass
    class State:
        weights: Any
        name: str = struct.field(pytree_node=False, default="name")

    x = State(FrozenDict({"w": np.ones(2, "f4")}))
    y = zc.convert(x, to="torch")
    assert type(y) is State
    assert type(y.weights) is FrozenDict
    assert y.name == "name"
    assert zc.shares_memory(x, y)


@pytest.mark.parametrize("leaves", [None, "error"])
def test_leaves_error_is_the_default(leaves: str | None) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match=r"at \['name'\]"):
        zc.convert({"x": np.ones(1), "name": "n"}, to="torch", leaves=leaves)
    assert not zc.explain({"name": "n"}, to="torch", leaves=leaves).possible
    assert zc.convert({"x": np.ones(1)}, to="torch", leaves=leaves)["x"].tolist() == [1]


def test_an_unknown_value_of_leaves_is_an_error() -> None:
    with pytest.raises(ValueError, match='"keep", "error" or None'):
        zc.convert([np.ones(1)], to="torch", leaves="drop")


LEAVES = st.builds(lambda n: np.arange(float(n)), st.integers(1, 3)) | st.sampled_from([None, "text", 3])
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.builds(lambda cls, a, b: cls(a, b), st.sampled_from(REGISTERED), inner, inner)
    ),
    max_leaves=8,
)


def _arrays(x: Any) -> list[np.ndarray]:
    if isinstance(x, np.ndarray):
        return [x]
    children = (x.a, x.b) if isinstance(x, Pair) else x.values() if isinstance(x, dict) else x
    return (
        []
        if x is None or isinstance(x, (str, int))
        else [leaf for child in children for leaf in _arrays(child)]
    )


@settings(max_examples=60, deadline=None)
@given(TREES.filter(lambda x: isinstance(x, (Pair, list, dict))))
def test_explain_and_shares_memory_agree_over_mixed_trees(x: Any) -> None:
    plan = zc.explain(x, to="torch", leaves="keep")
    y = zc.convert(x, to="torch", leaves="keep")
    assert type(y) is type(x)
    assert zc.shares_memory(x, y) == plan.zero_copy == bool(_arrays(x))
    assert plan.aliased_bytes == sum(leaf.nbytes for leaf in _arrays(x))
    back = zc.convert(y, to="numpy", leaves="keep")
    assert [leaf.tolist() for leaf in _arrays(back)] == [leaf.tolist() for leaf in _arrays(x)]
