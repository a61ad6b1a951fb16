"""Containers of arrays are converted leaf by leaf into the same container."""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import ALIASING, HOST

import zerocopy as zc
from zerocopy import registry

Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize("target", HOST)
def test_every_container_type_is_rebuilt(target: str) -> None:
    a, b = sample("f4"), sample("i4")
    containers = [
        {"a": a, "b": b},
        [a, b],
        (a, b),
        Pair(a, b),
        OrderedDict(a=a, b=b),
        defaultdict(list, a=a, b=b),
        {"deep": [{"a": a}, (b,)], 3: Pair(a, [b])},
        {},
    ]
    for container in containers:
        result = zc.convert(container, to=target)
        if isinstance(container, dict) and registry.by_name(target).tables and "deep" not in container:
            continue  # it becomes a table: see tests/tables/test_tables.py
        assert type(result) is type(container)
        back = zc.convert(result, to="numpy")
        np.testing.assert_equal(back, container)
        plan = zc.explain(container, target)
        assert plan.possible
    result = zc.convert(Pair(a, b), to=target)
    assert zc.shares_memory(result.x, a) == (target in ALIASING)
    assert result._fields == ("x", "y")
    if not registry.by_name(target).tables:
        assert zc.convert(defaultdict(list, a=a), to=target).default_factory is list


def test_options_reach_the_leaves() -> None:
    x = {"a": sample("f4"), "b": [sample("f4")]}
    result = zc.convert(x, to="numpy", copy=True)
    assert not zc.shares_memory(result["a"], x["a"])
    assert not zc.shares_memory(result["b"][0], x["b"][0])


def test_source_container_is_unchanged() -> None:
    a = sample("f4")
    x = {"a": a, "b": [a]}
    zc.convert(x, to=HOST[-1])
    assert x["a"] is a
    assert x["b"][0] is a


def test_plan_of_a_container_sums_its_leaves() -> None:
    x = {"aligned": sample("f4", (16,)), "reversed": sample("f4", (16,))[::-1]}
    plan = zc.explain(x, "torch") if "torch" in HOST else zc.explain(x, "numpy")
    assert plan.leaves["['aligned']"].zero_copy
    assert plan.copied_bytes == sum(leaf.copied_bytes for leaf in plan.leaves.values())
    assert plan.zero_copy == (plan.copied_bytes == 0)
    assert "['reversed']" in str(plan)


def test_errors_name_the_leaf() -> None:
    x = {"good": sample("f4"), "bad": [sample("f4"), "text"]}
    with pytest.raises(zc.UnsupportedConversionError, match=r"\['bad'\]\[1\]"):
        zc.convert(x, to="numpy")
    plan = zc.explain(x, "numpy")
    assert not plan.possible
    assert plan.leaves["['good']"].possible


def test_container_that_holds_itself_is_refused() -> None:
    x: list = [sample("f4")]
    x.append(x)
    with pytest.raises(zc.UnsupportedConversionError, match="holds itself"):
        zc.convert(x, to="numpy")
    assert not zc.explain(x, "numpy").possible
    a = [sample("f4")]
    assert len(zc.convert([a, a], to="numpy")) == 2  # the same array twice is not a cycle


def test_containers_with_custom_constructors_are_rebuilt_or_refused() -> None:
    class OddList(list):
        def __init__(self) -> None:
            super().__init__()

    class OddTuple(tuple):
        def __new__(cls, a, b):
            return super().__new__(cls, (a, b))

    odd = OddList()
    odd.append(sample("f4"))
    assert type(zc.convert(odd, to=HOST[0])) is OddList
    with pytest.raises(zc.UnsupportedConversionError, match="OddTuple cannot be rebuilt from its items"):
        zc.convert(OddTuple(sample("f4"), sample("f4")), to=HOST[0])


def test_nesting_beyond_the_recursion_limit_is_refused() -> None:
    deep: object = sample("f4")
    for _ in range(100_000):  # CPython 3.13 allows 10,000 calls of the core, one in another
        deep = [deep]
    with pytest.raises(zc.UnsupportedConversionError, match="nested deeper"):
        zc.convert(deep, to="numpy")


def test_counter_keeps_its_values() -> None:
    """Counter.update() adds values, so each leaf would be doubled."""
    counts: Counter = Counter()
    dict.__setitem__(counts, "w", np.ones(3))
    result = zc.convert(counts, to="numpy", copy=False)
    assert type(result) is Counter
    assert zc.shares_memory(counts["w"], result["w"])
    assert zc.explain(counts, to="numpy").possible


def test_unknown_targets_are_refused_for_empty_containers() -> None:
    for empty in ([], (), {}):
        with pytest.raises(zc.errors.UnknownFrameworkError):
            zc.convert(empty, to="nonsense")
        with pytest.raises(zc.errors.UnknownFrameworkError):
            zc.explain(empty, to="nonsense")


def test_plan_beyond_the_recursion_limit_is_not_possible() -> None:
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    assert not zc.explain(deep, to="numpy").possible


class Frozen(dict):
    """A dict without item assignment."""

    def __setitem__(self, key, value):
        raise TypeError("a frozen dict cannot be changed")


class Couple(tuple):
    """A tuple whose constructor checks its items."""

    __slots__ = ()

    def __new__(cls, items):
        first, second = items
        if first is None or second is None:
            raise ValueError("a couple has two items")
        return super().__new__(cls, (first, second))


def test_container_that_cannot_be_rebuilt_is_refused() -> None:
    frozen = Frozen(x=sample("f4"))
    assert not zc.explain(frozen, to="numpy").possible
    with pytest.raises(zc.UnsupportedConversionError, match="cannot be rebuilt from its items"):
        zc.convert(frozen, to="numpy")


def test_explain_does_not_rebuild_the_container() -> None:
    """A container that checks its items was reported as impossible, although convert() succeeded."""
    couple = Couple([sample("f4"), sample("i4")])
    assert zc.explain(couple, to="numpy").possible
    assert type(zc.convert(couple, to="numpy")) is Couple


def test_leaf_that_changes_its_container_does_not_change_the_result() -> None:
    tree: dict = {}

    class Busy:
        def __array__(self, dtype=None, copy=None):
            tree["another"] = sample("f4")
            return sample("f4")

        @property
        def __array_interface__(self):
            tree["another"] = sample("f4")
            return sample("f4").__array_interface__

    tree["busy"] = Busy()
    with contextlib.suppress(zc.ZeroCopyError):
        assert list(zc.convert(tree, to="numpy")) == ["busy"]
    assert "another" in tree


@pytest.mark.parametrize("target", HOST)
def test_a_tree_with_options_takes_the_leaves_routes_of_these_options(target: str) -> None:
    """Also after trees without options, which have other routes."""
    leaf = np.arange(6, dtype=np.float32)
    for options in ({}, {"copy": True}, {"copy": None}, {"copy": True, "writable": False}, {"copy": True}):
        for tree in ({"x": leaf}, [leaf], (leaf, [leaf])):
            for _ in range(2):
                result = zc.convert(tree, target, **options)
                shares = zc.shares_memory(tree, result)
                assert shares is (
                    False if options.get("copy") else zc.explain(tree, target, **options).zero_copy
                )
