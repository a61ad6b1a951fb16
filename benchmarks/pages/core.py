"""The parts of the page of the compiled core."""

from __future__ import annotations

from benchmarks.conversion import goals as core
from benchmarks.formats import format_quantity
from benchmarks.pages.shared import table, time, timed_code
from benchmarks.results import Results

SECTION = "conversion/core"


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
