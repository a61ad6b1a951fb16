"""The page of the sparse suite."""

from __future__ import annotations

from typing import Any

from benchmarks.formats import format_duration, format_quantity
from benchmarks.pages.words import goals, table
from benchmarks.results import read_case
from benchmarks.sparse.conversions import BY_HAND, OURS
from benchmarks.suite import Case, median

TITLE = "Benchmarks of sparse arrays"
ABOUT = "A CSR array of 10 million float32 elements with int32 indices, from one framework to another."

_UNITS = """\
*by hand* calls the target's constructor with the three arrays, each passed on without a copy. *convert*
checks more: torch needs sorted indices, and its constructor does not check them. SciPy keeps the answer
of the check, so that these conversions do not read the indices again. The blocks of a row take turns.
"""


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    cases = [read_case(case) for case in data["sections"]["sparse/conversions"]]
    heads = ["conversion", BY_HAND, OURS, "ratio", "bytes copied by convert"]
    return [_UNITS, goals(data), f"## Conversions\n\n{table(heads, [_row(case) for case in cases])}\n"]


def _row(case: Case) -> list[str]:
    times = {entry.label: median(entry) for entry in case.timed()}
    ours, by_hand = times[OURS], times[BY_HAND]
    copied = format_quantity(case.figures["copied bytes"], "bytes")
    return [case.name, format_duration(by_hand), format_duration(ours), f"{ours / by_hand:.2f}x", copied]
