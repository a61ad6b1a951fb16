"""The page of the hosts suite."""

from __future__ import annotations

from typing import Any

from benchmarks.hosts.engines import PROMISES, SECTIONS
from benchmarks.pages.processes import (
    CONTENDERS as CONTENDERS,
    ROUNDS as ROUNDS,
    goals_table,
    rows_table,
)
from benchmarks.results import read_case

TITLE = "Benchmarks between two hosts"
ABOUT = "Arrays and tables from one host to another, compared with what each engine does without zerocopy."

_HOSTS = """\
The hosts are two network namespaces of one machine, joined by a link (veth), each with a PID namespace, so
that zerocopy treats the other host as another machine. It was not measured with a real network. The
processes of both hosts share the machine's cores, so Dask's goal is about the CPU time of both workers.
NumPy and pandas have no goal, because Dask alone sends them without a copy.

"x" is an empty task for Dask, and a memcpy of the same bytes for the others.
"""


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    sections = {one: list(map(read_case, data["sections"].get(f"hosts/{one.name}", ()))) for one in SECTIONS}
    cases = [case for several in sections.values() for case in several]
    load = (
        "Other work ran on the machine: its load was {load_before} before and {load_after} after the run.\n"
    )
    parts = [_HOSTS, load.format(**data), f"## Goals\n\n{goals_table(cases, PROMISES)}\n"]
    return parts + [f"## {one.about}\n\n{rows_table(cases)}\n" for one, cases in sections.items() if cases]
