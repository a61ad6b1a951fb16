"""The page of the monitor suite."""

from __future__ import annotations

from typing import Any

from benchmarks.formats import format_duration, format_quantity
from benchmarks.monitor.overhead import BY_LINE, COUNTED, OFF, STOPPED
from benchmarks.pages.words import goals, table
from benchmarks.results import read_case
from benchmarks.suite import Case, median

TITLE = "Benchmarks of the monitor"
ABOUT = "The time that recording adds to a call of `zc.convert`, which then takes the slow path."

_UNITS = """\
*not recorded* is the time of a call while no recorder is started. The other columns are multiples of it:
*recorded before*, after a recorder was stopped; *counted*, `start(sites=False)`; *by line of code*,
`record()` and `start()`, which also measure the duration of each call. The blocks of a row take turns. Each
block starts or stops its recorder before the clock runs.
"""


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    cases = [read_case(case) for case in data["sections"]["monitor/overhead"]]
    rows = [_row(case) for case in cases]
    heads = ["conversion", OFF, STOPPED, COUNTED, BY_LINE]
    load, cores = data["load_before"], data["machine"]["cores"]
    busy = f"Other programs ran meanwhile (load {load:.1f} on {cores} cores): times are too long.\n" * (
        load > cores
    )
    return [_UNITS + busy, goals(data), f"## Calls\n\n{table(heads, rows)}\n"]


def _row(case: Case) -> list[str]:
    times = {entry.label: median(entry) for entry in case.timed()}
    ratios = [format_quantity(times[mode] / times[OFF], "x") for mode in (STOPPED, COUNTED, BY_LINE)]
    return [case.name, format_duration(times[OFF]), *ratios]
