"""Types that optree, JAX and torch register as pytrees are containers."""

from __future__ import annotations

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


@pytest.mark.parametrize("leaves", [None, "keep"])
def test_a_registration_that_raises_inside_a_container_is_an_error_with_its_path(leaves: Any) -> None:
    x = {"inner": [Raising(np.ones(1), np.ones(1))]}
    with pytest.raises(zc.UnsupportedConversionError, match=r"at \['inner'\]\[0\]: .*no children today"):
        zc.convert(x, to="torch", leaves=leaves)
    plan = zc.explain(x, to="torch", leaves=leaves)
    assert plan.error is not None
    assert "no children today" in plan.error.why
    with pytest.raises(zc.UnsupportedConversionError, match="no children today"):
        zc.shares_memory(x, np.ones(1))
    with pytest.raises(zc.UnsupportedConversionError, match="no children today"):
        zc.accepts("torch")(lambda x: x)(x)


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


def test_a_registration_can_be_removed() -> None:
    class Removed(Pair):
        pass

    x = Removed(np.ones(1), np.ones(1))
    optree.register_pytree_node(
        Removed,
        lambda x: ((x.a, x.b), x.tag),
        lambda tag, children: Removed(*children, tag),
        namespace=GLOBAL,
    )
    assert type(zc.convert(x, to="torch")) is Removed
    optree.unregister_pytree_node(Removed, namespace=GLOBAL)
    with pytest.raises(zc.UnsupportedConversionError, match="not registered as a pytree any more"):
        zc.convert(x, to="torch")
    with pytest.raises(zc.UnsupportedConversionError, match="not an array"):
        zc.convert(x, to="torch")


@pytest.mark.parametrize("cls", REGISTERED)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x]], ids=["itself", "list"])
def test_a_pytree_that_holds_itself_is_refused(cls: type, wrap: Any) -> None:
    x = cls(np.ones(1), None)
    x.b = wrap(x)
    # torch's walk of a child that is its parent ends with a RecursionError.
    with pytest.raises(zc.UnsupportedConversionError, match=r"holds itself|nested deeper"):
        zc.convert(x, to="torch", leaves="keep")
    assert not zc.explain(x, to="torch", leaves="keep").possible
    x.b = None  # a cycle is collected late


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


def test_accepts_converts_pytrees_and_returns_the_callers_framework() -> None:
    @zc.accepts("torch")
    def doubled(x: Any) -> Any:
        assert type(x.a) is torch.Tensor
        return InJax(x.a * 2, x.b)

    result = doubled(InJax(np.ones(2), [np.ones(1)]))
    assert type(result) is InJax
    assert type(result.a) is np.ndarray
    assert result.a.tolist() == [2, 2]


def test_pytrees_are_pickled_with_their_arrays_out_of_band() -> None:
    from zerocopy import pickling

    x = InJax(np.arange(1000.0), torch.ones(1000))
    buffers: list[Any] = []
    data = pickling.dumps(x, buffer_callback=buffers.append)
    assert len(data) < 1000
    y = pickling.loads(data, buffers=buffers)
    assert type(y) is InJax
    np.testing.assert_array_equal(y.a, x.a)
    assert torch.equal(y.b, x.b)


def test_share_refuses_pytrees() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="not one array or table"):
        zc.share(InJax(np.ones(2), np.ones(1)))


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
    with pytest.raises(ValueError, match="'keep' or 'error' or None"):
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
