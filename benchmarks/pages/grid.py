"""The page of the grid of pairs with a table framework."""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

from benchmarks.formats import format_duration
from benchmarks.grid.cells import ARRAYS, MEAN, TABLES, WORST, ratio
from benchmarks.pages.words import picture, table
from benchmarks.results import read_case
from benchmarks.suite import Case, median
from benchmarks.timing import Timing

TITLE = "Benchmarks of pairs with tables"
ABOUT = (
    "Each pair in which one side is pandas, polars, pyarrow, DuckDB or nanoarrow: the time of `zc.convert`, "
    "relative to the fastest correct code by hand."
)

_METHOD = f"""\
A candidate is correct if it gives the type, the labels, the types of columns and the values that zerocopy
gives; NaN counts as null, as in pandas. Each cell is the time of `zc.convert` divided by that of the fastest
candidate that aliases at least the memory that zerocopy aliases. The file of results also has candidates that
copy this memory. `-` is a cell in which each candidate copies memory that zerocopy aliases, or gives other
values. The goals: a geometric mean of at
most {MEAN}x, and no cell above {WORST}x.
"""
_WHY = """\
Why cells are slower than code by hand:

- **DuckDB as the source.** zerocopy reads the types of a query before it runs the query, because values of
  some types need a check.
- **polars as the source.** zerocopy counts the chunks of each column first: `pa.table(x)` and
  `na.Array(x)` join the chunks of the source in place. It also checks names and types, because polars aborts
  the process when it exports a name with a zero byte. polars stores text as views, which pandas and nanoarrow
  cannot use, so zerocopy copies it.
- **nanoarrow as the source.** zerocopy reads the types before the data, because nanoarrow aborts the process
  when it exports views, and checks the arrays.
- **pyarrow as the source.** zerocopy validates each table, because buffers of a crafted file may be too
  small: 22 microseconds for 300 columns. It writes a matrix row-major; the code by hand writes it
  column-major.
- **polars to a matrix.** zerocopy checks each column for nulls, which polars' own call converts to NaN.
- **One column.** The difference is one microsecond of checks: names, types and chunks.
"""
_SHOWN = 40


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    cases = [read_case(case) for case in data["sections"]["grid/cells"]]
    kinds: dict[str, list[Case]] = {}
    for case in cases:
        kinds.setdefault(case.name.partition(", ")[2], []).append(case)
    rows = [[name, *_summary(of_kind)] for name, of_kind in (*kinds.items(), ("all", cases))]
    heads = ["objects", "cells", "geometric mean", "worst", f"above {WORST}x"]
    notes = [f"{data['note']}\n"] if "note" in data else []
    parts = [
        _METHOD,
        *notes,
        _goals(cases),
        _blocks(cases, data["settings"]["pace"]["rounds"]),
        f"## Summary\n\n{table(heads, rows)}\n",
        picture("tables-grid", "Mean of each pair relative to the fastest code by hand, and its range"),
    ]
    parts += [f"## {name[0].upper()}{name[1:]}\n\n{_matrix(of_kind)}\n" for name, of_kind in kinds.items()]
    return [*parts, _worst(cases)]


def _goals(cases: list[Case]) -> str:
    """Return whether the goals are met."""
    ratios = [value for case in cases if (value := ratio(case)) is not None]
    if not ratios:
        return ""
    mean, above = geometric_mean(ratios), sum(r > WORST for r in ratios)
    met = "met" if mean <= MEAN and not above else "missed"
    return f"The goals are {met}: {mean:.2f}x, and {above} of {len(ratios)} cells are above {WORST}x.\n"


def _blocks(cases: list[Case], rounds: int) -> str:
    """Return how many cells have fewer blocks than the others."""
    blocks = [
        min(e.timing.rounds for e in c.timed() if isinstance(e.timing, Timing)) for c in cases if c.timed()
    ]
    fewer = [count for count in blocks if count < rounds]
    if not fewer:
        return ""
    why = "their calls are long, or the run was shortened"
    return f"{len(fewer)} cells have fewer blocks, at least {min(fewer)}: {why}.\n"


def _summary(cases: list[Case]) -> list[str]:
    ratios = {case.name: value for case in cases if (value := ratio(case)) is not None}
    if not ratios:
        return [str(len(cases)), "-", "-", "-"]
    mean = geometric_mean(ratios.values())
    name = max(ratios, key=lambda each: ratios[each])
    above = sum(value > WORST for value in ratios.values())
    return [str(len(cases)), f"{mean:.2f}x", f"{ratios[name]:.2f}x ({name.partition(',')[0]})", str(above)]


def _matrix(cases: list[Case]) -> str:
    cells = {tuple(case.name.partition(",")[0].split(" -> ")): _cell(case) for case in cases}
    names = (*TABLES, *ARRAYS)
    sources, targets = ([n for n in names if any(pair[side] == n for pair in cells)] for side in (0, 1))
    return table(["from, to", *targets], [[a, *(cells.get((a, b), "") for b in targets)] for a in sources])


def _cell(case: Case) -> str:
    ours, value = case.fastest("ours"), ratio(case)
    shown = "-" if value is None else f"{value:.2f}x"
    return "" if ours is None else f"{shown} ({format_duration(median(ours))})"


def _worst(cases: list[Case]) -> str:
    above = [(value, case) for case in cases if (value := ratio(case)) is not None and value > WORST]
    rows = []
    for value, case in sorted(above, key=lambda pair: -pair[0])[:_SHOWN]:
        hand = case.fastest("idiom")
        assert hand is not None
        rows.append([case.name, f"{value:.2f}x", format_duration(median(hand)), f"`{hand.label}`"])
    heads = ["cell", "ratio", "by hand", "code by hand"]
    return f"## The slowest cells\n\n{_WHY}\n{table(heads, rows)}" if rows else ""
