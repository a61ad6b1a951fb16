"""The two tiers of the tests: ``python -m pytest`` runs the quick one, ``python -m pytest --full`` all tests.

The quick tier leaves out tests with the marker ``full``, and runs a parametrised test over a covering
array of its parameters instead of their product: each pair of values of two parameters occurs in at least
one case. A source and a target are an exception, because an exporter is independent of the importer: each of
both occurs, and with each value of a third parameter. The marker ``every_pair`` on a test keeps their pairs.
`sampled` thins the loops inside a test, and large products of two parameters. The full tier finds the faults
that depend on more values at once. ``python -m tests.faults`` measures what each tier finds.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

import pytest

# Below this number of cases a test runs whole: small products list special cases, and cost little.
SMALLEST_PRODUCT = 12

#: Names of parameters that are frameworks: an exporter of one and an importer of another are independent.
INDEPENDENT = frozenset(("source", "target", "to"))

#: Whether every test runs whole; also in a program that uses a helper without pytest.
_runs_all = True

#: One or two parameters with their values.
Combination = tuple[tuple[str, Hashable], ...]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run every test; without it, the quick tier")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "full: runs with --full only; the quick tier has a cheaper test of the same"
    )
    config.addinivalue_line("markers", "every_pair: the quick tier keeps each pair of a source and a target")
    config.addinivalue_line(
        "markers", "hazard(*names): the hazards of docs/hazards and docs/robustness.md that it shows"
    )
    # Collecting tests creates objects that stay alive: garbage collections would take a sixth of its time.
    gc.disable()
    # Contiguous tests stay in one worker, so that a browser, a cluster or a server of a file starts once.
    if getattr(config.option, "dist", None) == "load":
        config.option.dist = "worksteal"
    global _runs_all
    _runs_all = _runs_every_test(config)


def runs_all() -> bool:
    """Whether every test runs whole."""
    return _runs_all


def _runs_every_test(config: pytest.Config) -> bool:
    """Whether all tests are requested, or one is named by its node id."""
    return config.getoption("--full") or any("::" in argument for argument in config.args)


def sampled(every: int, *values: Sequence[Any], first: int = 0) -> Iterator[tuple[Any, ...]]:
    """Yield the product of lists; in the quick tier one case of `every`, as in a Latin square.

    These are the cases whose indexes and `first` have a sum that `every` divides. If `first` is the sum of
    the indexes of the test's parameters, these occur with all values of the lists.
    """
    for case in product(*map(enumerate, values)):
        if _runs_all or (first + sum(index for index, _ in case)) % every == 0:
            yield tuple(value for _, value in case)


def sample_size(full: int, quick: int) -> int:
    """Return the number of repetitions, examples or seeds in this tier."""
    return full if _runs_all else quick


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of the quick tier, unless all are requested or a test is named by its node id."""
    if _runs_every_test(config):
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
