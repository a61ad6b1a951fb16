"""The quick tier of the tests (helpers/tiers.py)."""

from __future__ import annotations

from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.tiers import covering_array, quick_tier


def cases(full: bool = False, **parameters: list[Any]) -> list[Any]:
    """Return stubs of the tests that the product of parameters makes."""
    names = list(parameters)
    marker = SimpleNamespace(name="full") if full else None
    return [
        Case(
            nodeid=f"test_a.py::test_b[{number}]",
            callspec=SimpleNamespace(params=dict(zip(names, values, strict=True))),
            get_closest_marker=lambda name: marker,
        )
        for number, values in enumerate(product(*parameters.values()))
    ]


class Case(SimpleNamespace):
    """A stub of a test, which sets can hold as pytest's tests."""

    __hash__ = object.__hash__


PARAMETERS = {
    "source": ["a", "b", "c", "d"],
    "dtype": [int, float, bool],
    "copy": [None, True, False],
    "shape": [[], [1]],
}


def test_each_pair_of_values_occurs_in_the_covering_array() -> None:
    every = cases(**PARAMETERS)
    chosen = covering_array(every)
    assert len(chosen) < len(every) / 3

    def pairs(tests: list[Any]) -> set[Any]:
        return {
            pair
            for test in tests
            for pair in combinations([(n, str(v)) for n, v in test.callspec.params.items()], 2)
        }

    assert pairs(chosen) == pairs(every)
    assert chosen == covering_array(every), "each worker of xdist must choose the same tests"


def test_sources_and_targets_are_covered_each_by_itself() -> None:
    every = cases(source=list("abcdef"), target=list("abcdef"), copy=[None, True])
    chosen = covering_array(every)
    values = [test.callspec.params for test in chosen]
    for name in ("source", "target"):
        assert {(v[name], v["copy"]) for v in values} == set(product("abcdef", [None, True]))
    assert len(chosen) == 12
    for case in every:
        case.get_closest_marker = {"every_pair": True}.get
    assert {(t.callspec.params["source"], t.callspec.params["target"]) for t in covering_array(every)} == set(
        product("abcdef", "abcdef")
    )


def test_tests_that_are_marked_run_in_the_full_tier_only(pytestconfig: pytest.Config) -> None:
    assert quick_tier(cases(full=True, source=["a", "b"])) == set()
