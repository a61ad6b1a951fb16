"""The page of the functions suite."""

from __future__ import annotations

from typing import Any

from benchmarks.formats import format_duration
from benchmarks.functions.overhead import BY_HAND, DECORATED
from benchmarks.pages.words import goals, table
from benchmarks.results import read_case
from benchmarks.suite import Case, median

TITLE = "Benchmarks of functions across frameworks"
ABOUT = "What `zc.accepts` adds to the conversions of a call."

_UNITS = """\
*by hand* is the time of a call of the function with `zc.convert` around its arguments and its result, and
*accepts* the time of a call of the decorated function. The function returns its first argument. The blocks of
a row take turns.
"""


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    cases = [read_case(case) for case in data["sections"]["functions/overhead"]]
    rows = [_row(case) for case in cases]
    heads = ["call", BY_HAND, DECORATED, "added"]
    return [_UNITS, goals(data), f"## Calls\n\n{table(heads, rows)}\n"]


def _row(case: Case) -> list[str]:
    times = {entry.label: median(entry) for entry in case.timed()}
    added = times[DECORATED] - times[BY_HAND]
    return [case.name, format_duration(times[BY_HAND]), format_duration(times[DECORATED]), f"{added:.0f} ns"]
