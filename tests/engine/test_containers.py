"""Containers of arrays: converted leaf by leaf into the same container."""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST

import zerocopy as zc
from zerocopy import registry

Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize("target", HOST)
def test_every_kind_of_container(target: str) -> None:
    a, b = sample("f4"), sample("i4")
    kinds = [
        {"a": a, "b": b},
        [a, b],
        (a, b),
        Pair(a, b),
        OrderedDict(a=a, b=b),
        defaultdict(list, a=a, b=b),
        {"deep": [{"a": a}, (b,)], 3: Pair(a, [b])},
        [],
        {},
        (),
    ]
    for container in kinds:
        result = zc.convert(container, to=target)
        if isinstance(container, dict) and registry.by_name(target).tables and "deep" not in container:
            continue  # a table: test_tables has the say
        assert type(result) is type(container)
        back = zc.convert(result, to="numpy")
        np.testing.assert_equal(back, container)
        plan = zc.explain(container, target)
        assert plan.possible
    result = zc.convert(Pair(a, b), to=target)
    assert zc.shares_memory(result.x, a)
    assert result._fields == ("x", "y")
    if not registry.by_name(target).tables:
        assert zc.convert(defaultdict(list, a=a), to=target).default_factory is list


def test_options_reach_the_leaves() -> None:
    x = {"a": sample("f4"), "b": [sample("f4")]}
    result = zc.convert(x, to="numpy", copy=True)
    assert not zc.shares_memory(result["a"], x["a"])
    assert not zc.shares_memory(result["b"][0], x["b"][0])


def test_the_container_is_left_as_it_is() -> None:
    a = sample("f4")
    x = {"a": a, "b": [a]}
    zc.convert(x, to=HOST[-1])
    assert x["a"] is a
    assert x["b"][0] is a


def test_plans_sum_up() -> None:
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


def test_a_container_in_itself_is_refused() -> None:
    x: list = [sample("f4")]
    x.append(x)
    with pytest.raises(zc.UnsupportedConversionError, match="holds itself"):
        zc.convert(x, to="numpy")
    assert not zc.explain(x, "numpy").possible
    a = [sample("f4")]
    assert len(zc.convert([a, a], to="numpy")) == 2  # twice is not within


def test_containers_with_constructors_of_their_own() -> None:
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


def test_nesting_deeper_than_python_can_follow() -> None:
    deep: object = sample("f4")
    for _ in range(3000):
        deep = [deep]
    with pytest.raises(zc.UnsupportedConversionError, match="nested deeper"):
        zc.convert(deep, to="numpy")


def test_a_counter_keeps_its_values() -> None:
    """Its update() adds: each leaf was there twice."""
    counts: Counter = Counter()
    dict.__setitem__(counts, "w", np.ones(3))
    result = zc.convert(counts, to="numpy", copy=False)
    assert type(result) is Counter
    assert zc.shares_memory(counts["w"], result["w"])
    assert zc.explain(counts, to="numpy").possible


def test_an_unknown_target_is_told_of_an_empty_container_too() -> None:
    for empty in ([], (), {}):
        with pytest.raises(zc.UnknownFrameworkError):
            zc.convert(empty, to="nonsense")
        with pytest.raises(zc.UnknownFrameworkError):
            zc.explain(empty, to="nonsense")


def test_nesting_too_deep_is_a_plan_that_is_not_possible() -> None:
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    assert not zc.explain(deep, to="numpy").possible


class Frozen(dict):
    """One that keeps its values."""

    def __setitem__(self, key, value):
        raise TypeError("it is frozen")


class Couple(tuple):
    """One that is particular about what it is made of."""

    __slots__ = ()

    def __new__(cls, items):
        first, second = items
        if first is None or second is None:
            raise ValueError("it wants two")
        return super().__new__(cls, (first, second))


def test_a_container_that_cannot_be_made_again_is_refused_by_both() -> None:
    frozen = Frozen(x=sample("f4"))
    assert not zc.explain(frozen, to="numpy").possible
    with pytest.raises(zc.UnsupportedConversionError, match="cannot be rebuilt from its items"):
        zc.convert(frozen, to="numpy")


def test_explaining_makes_no_container_of_plans() -> None:
    """One that checks its items was said to be impossible, and could be converted."""
    couple = Couple([sample("f4"), sample("i4")])
    assert zc.explain(couple, to="numpy").possible
    assert type(zc.convert(couple, to="numpy")) is Couple


def test_a_leaf_that_changes_its_container_changes_nothing_of_the_result() -> None:
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
