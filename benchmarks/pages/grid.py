"""The parts of the page of the grid of pairs with a table framework."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import geometric_mean

from benchmarks.grid.cells import ARRAYS, TABLES, WORST, ratio
from benchmarks.pages.shared import code, table, time
from benchmarks.results import Results
from benchmarks.suite import Case
from benchmarks.timing import Timing

#: The kinds of objects of the table of times: a table, and a dict of its columns.
_TYPICAL = ("table 1,000 x 10", "table 1,000 x 10 to a dict", "dict 1,000 x 10")


def verdict(results: Results) -> str:
    """Return the mean, how many cells are slower or have no ratio, and how many have fewer blocks."""
    cases = results.cases["grid/cells"]
    ratios = list(_ratios(cases).values())
    mean, above = geometric_mean(ratios), sum(r > WORST for r in ratios)
    text = f"The geometric mean is {mean:.2f}x. {above} of the {len(ratios)} cells with a ratio are above "
    text += f"{WORST}x, and {len(cases) - len(ratios)} further cells have no ratio."
    rounds = results.facts["settings"]["pace"]["rounds"]
    blocks = [[e.timing.rounds for e in c.timed() if isinstance(e.timing, Timing)] for c in cases]
    fewer = [min(counts) for counts in blocks if counts and min(counts) < rounds]
    why = "their calls are long, or the run was shortened"
    return text + (
        f"\n\n{len(fewer)} cells have fewer blocks, at least {min(fewer)}: {why}." if fewer else ""
    )


def summary(results: Results) -> str:
    """Return the mean and the worst cell of each kind of objects."""
    every = results.cases["grid/cells"]
    rows = []
    for name, cases in (*_kinds(every).items(), ("all", every)):
        ratios = _ratios(cases)
        if ratios:
            worst = max(ratios, key=lambda each: ratios[each])
            above = sum(value > WORST for value in ratios.values())
            mean = f"{geometric_mean(ratios.values()):.2f}x"
            named = f"{ratios[worst]:.2f}x ({worst.partition(',')[0]})"
            rows.append([name, str(len(cases)), mean, named, str(above)])
        else:
            rows.append([name, str(len(cases)), "-", "-", "-"])
    return table(["objects", "cells", "geometric mean", "worst", f"above {WORST}x"], rows)


def times(results: Results) -> str:
    """Return a row for each source and a column for each target: the ratio and the time of one table."""
    shown: dict[tuple[str, ...], str] = {}
    for case in results.cases["grid/cells"]:
        pair, _, kind = case.name.partition(", ")
        if kind in _TYPICAL:
            value = ratio(case)
            text = "-" if value is None else f"{value:.2f}x"
            shown[tuple(pair.split(" -> "))] = f"{text} ({time(case.fastest('ours'))})"
    names = (*TABLES, *ARRAYS)
    sources, targets = ([n for n in names if any(pair[side] == n for pair in shown)] for side in (0, 1))
    return table(["from, to", *targets], [[a, *(shown.get((a, b), "") for b in targets)] for a in sources])


def slowest(results: Results) -> str:
    """Return all cells that are above the limit, a row for each pair and code by hand; the worst first."""
    cases = {case.name: case for case in results.cases["grid/cells"]}
    above = {name: value for name, value in _ratios(cases.values()).items() if value > WORST}
    rows: dict[tuple[str, str], list[str]] = {}
    for name in sorted(above, key=lambda each: -above[each]):
        pair, _, kind = name.partition(", ")
        hand = cases[name].fastest("idiom")
        assert hand
        both = f"{time(cases[name].fastest('ours'))}, by hand {time(hand)}"
        rows.setdefault((pair, code(hand.label)), []).append(f"{above[name]:.2f}x {kind} ({both})")
    return table(
        ["pair", "objects", "code by hand"],
        [[pair, "; ".join(kinds), by_hand] for (pair, by_hand), kinds in rows.items()],
    )


def _kinds(cases: list[Case]) -> dict[str, list[Case]]:
    kinds: dict[str, list[Case]] = {}
    for case in cases:
        kinds.setdefault(case.name.partition(", ")[2], []).append(case)
    return kinds


def _ratios(cases: Iterable[Case]) -> dict[str, float]:
    return {case.name: value for case in cases if (value := ratio(case)) is not None}
