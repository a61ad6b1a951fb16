"""The page of the bridge suite."""

from __future__ import annotations

from typing import Any

from benchmarks.bridge.steps import BY_HAND, OURS
from benchmarks.formats import format_duration, format_quantity
from benchmarks.pages.words import goals, table
from benchmarks.results import read_case
from benchmarks.suite import Case, median

TITLE = "Benchmarks of the bridge"
ABOUT = "What one step, forward and backward, through a function of another framework takes."

_UNITS = """\
*by hand* is the usual wrapper: an `autograd.Function` over `jax.vjp`, or a `jax.custom_vjp` over
`torch.autograd.grad`, with DLPack. It takes one output, and does not notice writes in place.
"""


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    cases = [read_case(case) for case in data["sections"]["bridge/steps"]]
    heads = ["step", BY_HAND, OURS, "ratio"]
    return [_UNITS, goals(data), f"## Steps\n\n{table(heads, [_row(case) for case in cases])}\n"]


def _row(case: Case) -> list[str]:
    times = {entry.label: median(entry) for entry in case.timed()}
    ratio = format_quantity(times[OURS] / times[BY_HAND], "x")
    return [case.name, format_duration(times[BY_HAND]), format_duration(times[OURS]), ratio]
