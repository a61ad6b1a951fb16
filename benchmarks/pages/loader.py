"""The parts of the page of the loader suite."""

from __future__ import annotations

from functools import partial

from benchmarks.formats import format_duration, format_quantity
from benchmarks.loader.goals import ELSEWHERE, FEWER, PEAK, PER_VALUE
from benchmarks.loader.turns import TIMES
from benchmarks.pages.shared import entry_of, labels_of, size, table, time
from benchmarks.results import Results
from benchmarks.suite import Case, Entry


def contests(results: Results, *sections: str) -> str:
    """Return a row for each contender and a column for each case: the multiple of the bound, and the time."""
    cases = [case for section in sections for case in results.cases[section]]
    labels = dict.fromkeys(
        e.label for case in cases for e in sorted(case.timed(), key=partial(_multiple, case))
    )
    rows = []
    for label in labels:
        entries = [(case, entry_of(case, label)) for case in cases]
        ours = any(entry and entry.role == "ours" for _, entry in entries)
        shown = [_cell(case, entry) if entry else "" for case, entry in entries]
        rows.append([f"**{label}**" if ours else label, *shown])
    left_out = dict.fromkeys(
        f"`{e.label}` {e.left_out}" for case in cases for e in case.entries if e.left_out
    )
    return table(["", *map(_title, cases)], rows) + "".join(f"\n\n{line}" for line in left_out)


def _multiple(case: Case, entry: Entry) -> float:
    return case.figures.get(TIMES + entry.label, 0.0)


def _cell(case: Case, entry: Entry) -> str:
    multiple = _multiple(case, entry)
    return f"{format_quantity(multiple, 'x')} ({time(entry)})" if multiple else time(entry)


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
    """Return the peaks of memory of each mode, by the number of rows."""
    cases = results.cases["loader/memory"]
    rows = [name.removeprefix(PEAK) for name in cases[0].figures if name.startswith(PEAK)]
    kinds = {"process": PEAK, "Arrow's pool": "Arrow's pool, ", "buffers": "buffers of rows, "}
    heads = ["", *(f"{kind}: {count}" for kind in kinds for count in rows)]
    shown = [[c.name, *(size(c, start + count) for start in kinds.values() for count in rows)] for c in cases]
    remarks = dict.fromkeys(f"{remark}." for case in cases for remark in case.remarks)
    return f"{table(heads, shown)}\n\n" + "\n".join(remarks)


def _title(case: Case) -> str:
    """Return the name of a case with its rows, and those of its window."""
    rows = f"{case.figures['rows']:,.0f} rows" if "rows" in case.figures else ""
    window = case.figures.get("rows of the window")
    facts = [rows, f"`shuffle=True` has windows of {window:,.0f} rows" if window else ""]
    return f"{case.name.removesuffix(FEWER)} ({', '.join(filter(None, facts))})"
