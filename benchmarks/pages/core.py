"""The parts of the page of the compiled core."""

from __future__ import annotations

from benchmarks.conversion import goals as core
from benchmarks.formats import format_quantity
from benchmarks.pages.shared import table, time, timed_code
from benchmarks.results import Results
from benchmarks.suite import Goal

SECTION = "conversion/core"

# Cases that a missed goal names: the worst.
_NAMED = 4


def goals(results: Results) -> str:
    """Return a row for each goal: the measured range, and whether it was met, or where not."""
    by_name: dict[str, list[Goal]] = {bound.name: [] for bound in core.GOALS}
    for goal in results.goals:
        if goal.section in (SECTION, "conversion/import"):
            by_name.setdefault(goal.name, []).append(goal)
    rows = [[name, _range(judged), _verdict(judged)] for name, judged in by_name.items()]
    return table(["goal: at most", "measured", "result"], rows)


def pairs(results: Results) -> str:
    """Return the ratios of each pair to code by hand, to the documented call and to pure Python."""
    rows = []
    for case in results.cases[SECTION]:
        if case.name in core.PAIRS and (ours := case.fastest("ours")):
            ratios = [core.ratio(case, name) for name in (core.BY_HAND, core.DOCUMENTED, core.PURE)]
            shown = ["-" if value is None else format_quantity(value, "x") for value in ratios]
            rows.append([case.name, time(ours), *shown, timed_code(core.rival(case, core.BY_HAND))])
    heads = ["pair", "zerocopy", "to by hand", "to the documented call", "to pure Python", "by hand"]
    return table(heads, rows)


def _verdict(judged: list[Goal]) -> str:
    """Return whether a goal was met, or on how many cases not, with the worst of them."""
    missed = sorted((goal for goal in judged if not goal.met), key=lambda goal: -goal.value)
    if not missed:
        return "met" if judged else "not measured"
    if len(judged) == 1:
        return "missed"
    named = [f"{goal.case} ({format_quantity(goal.value, goal.unit)})" for goal in missed[:_NAMED]]
    more = f" and {len(missed) - _NAMED} more" * (len(missed) > _NAMED)
    return f"missed on {len(missed)} of {len(judged)}: {', '.join(named)}{more}"


def _range(judged: list[Goal]) -> str:
    """Return the least and the greatest value."""
    if not judged:
        return "-"
    ends = min(judged, key=lambda goal: goal.value), max(judged, key=lambda goal: goal.value)
    shown = [format_quantity(goal.value, goal.unit) for goal in ends]
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)
