"""The parts of the page of the loader suite."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.formats import format_duration, format_quantity
from benchmarks.loader.goals import ELSEWHERE, FEWER, PEAK, PER_VALUE
from benchmarks.loader.turns import TIMES
from benchmarks.pages.shared import labels_of, size, table, time
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, median


def contests(results: Results, *sections: str) -> str:
    """Return the contenders of each case of the sections."""
    return _contest(case for section in sections for case in results.cases[section])


def targets(results: Results) -> str:
    """Return a row for each target and a column for each mode, as multiples of the bound."""
    cases = results.cases["loader/targets"]
    rows = []
    for label in labels_of(Case("", case.timed("ours")) for case in cases):
        ratios = [case.figures.get(TIMES + label) for case in cases]
        shown = ["-" if value is None else format_quantity(value, "x") for value in ratios]
        rows.append([f"`{label}`", *shown])
    return table(["", *(case.name for case in cases)], rows)


def computes(results: Results) -> str:
    """Return the time of a consumer's computation for a batch."""
    (case,) = results.cases["loader/waiting"]
    return format_duration(next(v for name, v in case.figures.items() if name.startswith("nanoseconds")))


def waiting(results: Results) -> str:
    """Return the epochs of a consumer that computes."""
    return _contest(results.cases["loader/waiting"])


def copies(results: Results) -> str:
    """Return the share of the bytes of the batches by where they are."""
    kinds = ("in decoded columns", "in a buffer of rows", "in columns of one batch")
    rows = []
    for case in results.cases["loader/copies"]:
        total = case.figures["bytes of the batches"]
        shares = [f"{case.figures[name] / total:.0%}" for name in (*(f"bytes {k}" for k in kinds), ELSEWHERE)]
        rows.append([case.name, *shares, f"{case.figures[PER_VALUE]:.2g}"])
    return table(["", *kinds, "elsewhere", "writes of a byte"], rows)


def memory(results: Results) -> str:
    """Return the peaks of memory of each mode and number of rows."""
    rows, cases = [], results.cases["loader/memory"]
    for case in cases:
        for name in (name.removeprefix(PEAK) for name in case.figures if name.startswith(PEAK)):
            kinds = (PEAK, "Arrow's pool, ", "buffers of rows, ")
            rows.append([f"{case.name}: {name}", *(size(case, kind + name) for kind in kinds)])
    remarks = dict.fromkeys(f"{remark}." for case in cases for remark in case.remarks)
    heads = ["", "peak of the process", "peak of Arrow's pool", "buffers"]
    return f"{table(heads, rows)}\n\n" + "\n".join(remarks)


def _title(case: Case) -> str:
    """Return the name of a case with its rows, and those of its window."""
    rows = f"{case.figures['rows']:,.0f} rows" if "rows" in case.figures else ""
    window = case.figures.get("rows of the window")
    facts = [rows, f"`shuffle=True` has windows of {window:,.0f} rows" if window else ""]
    return f"{case.name.removesuffix(FEWER)} ({', '.join(filter(None, facts))})"


def _contest(cases: Iterable[Case]) -> str:
    """Return a row for each contender of each case by its ratio; the bound first."""
    every, left_out = [], []
    for case in cases:
        bound = [entry for entry in case.timed("reference") if TIMES + entry.label not in case.figures]
        others = [entry for entry in case.timed() if TIMES + entry.label in case.figures]
        others.sort(key=lambda entry: case.figures[TIMES + entry.label])
        rows = [_row(case, entry) for entry in (*bound, *others)]
        every += [[_title(case) * (row is rows[0]), *row] for row in rows]
        left_out += [f"\n> `{entry.label}` {entry.left_out}\n" for entry in case.entries if entry.left_out]
    return table(["", "contender", "x", "time of an epoch", "million rows per second"], every) + "".join(
        left_out
    )


def _row(case: Case, entry: Entry) -> list[str]:
    times_bound = case.figures.get(TIMES + entry.label)
    name = f"**{entry.label}**" if entry.role == "ours" else entry.label
    shown = "1" if times_bound is None else format_quantity(times_bound, "x")
    return [name, shown, time(entry), f"{case.figures['rows'] / median(entry) * 1e3:.3g}"]
