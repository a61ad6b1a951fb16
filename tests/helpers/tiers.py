"""The two tiers of the tests: ``python -m pytest`` runs the quick one, ``python -m pytest --full`` all tests.

The quick tier leaves out tests with the marker ``full``, and runs a parametrised test over a covering
array of its parameters instead of their product: each pair of values of two parameters occurs in at least
one case. A source and a target are an exception, because an exporter is independent of the importer: each of
both occurs, and with each value of a third parameter. The marker ``every_pair`` on a test keeps their pairs.
The full tier finds the faults that depend on three values at once. ``python -m tests.faults`` measures what
each tier finds.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from itertools import combinations

import pytest

# Below this number of cases a test runs whole: small products list special cases, and cost little.
SMALLEST_PRODUCT = 24

#: Names of parameters that are frameworks: an exporter of one and an importer of another are independent.
INDEPENDENT = frozenset(("source", "target", "to"))

#: One or two parameters with their values.
Combination = tuple[tuple[str, Hashable], ...]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run every test; without it, the quick tier")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "full: runs with --full only; the quick tier has a cheaper test of the same"
    )
    config.addinivalue_line("markers", "every_pair: the quick tier keeps each pair of a source and a target")


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of the quick tier, unless all are requested or a test is named by its node id."""
    if config.getoption("--full") or any("::" in argument for argument in config.args):
        return
    kept = quick_tier(items)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def quick_tier(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests without the marker ``full``; of products of parameters, a covering array."""
    kept: set[pytest.Item] = set()
    products: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("full"):
            continue
        if len(_parameters(item)) < 2:
            kept.add(item)
        else:
            products.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in products.values():
        kept.update(covering_array(cases) if len(cases) > SMALLEST_PRODUCT else cases)
    return kept


def covering_array(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Return cases in which each pair of values of two parameters occurs; the choice is deterministic."""
    independent = INDEPENDENT if cases[0].get_closest_marker("every_pair") is None else frozenset()
    pairs = [_combinations(case, independent) for case in cases]
    # The number of new pairs of a case only falls, so a number that is out of date is an upper bound.
    heap = [(-len(own), index) for index, own in enumerate(pairs)]
    heapq.heapify(heap)
    covered: set[Combination] = set()
    chosen = []
    while heap:
        _, index = heapq.heappop(heap)
        new = len(pairs[index] - covered)
        if heap and -heap[0][0] > new > 0:
            heapq.heappush(heap, (-new, index))
        elif new:
            covered |= pairs[index]
            chosen.append(cases[index])
    return chosen


def _combinations(case: pytest.Item, independent: frozenset[str]) -> set[Combination]:
    """Return each value of a case, and each pair of values whose parameters are not independent."""
    values = [(name, _key(value)) for name, value in sorted(_parameters(case).items())]
    pairs = [pair for pair in combinations(values, 2) if not {name for name, _ in pair} <= independent]
    return {*((value,) for value in values), *pairs}


def _parameters(item: pytest.Item) -> dict[str, object]:
    """Return the values of the test's parameters by name."""
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


def _key(value: object) -> Hashable:
    """Return what identifies a parameter's value: cases that are objects of their own compare by identity."""
    return (type(value), value) if isinstance(value, str | int | type | None) else id(value)
