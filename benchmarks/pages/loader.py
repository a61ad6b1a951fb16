"""The parts of the page of the loader suite."""

from __future__ import annotations

from benchmarks.formats import format_duration, format_quantity, format_speedup
from benchmarks.loader.goals import ELSEWHERE, FEWER, PEAK, PER_VALUE, PROMISES, Promise, times
from benchmarks.loader.turns import TIMES
from benchmarks.pages.shared import labels_of, size, table, time
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, median


def goals(results: Results) -> str:
    """Return the table of goals: the limit, what others take, the loader's figure, and whether it is met."""
    rows, every = [], _every(results)
    for promise in PROMISES:
        if judged := promise.values(every):
            missed = [case.name for case, value in judged if value > promise.limit]
            others = _others(promise, [case for case, _ in judged], every)
            worst = _show(promise, max(value for _, value in judged))
            met = f"no ({', '.join(missed)})" if missed else "yes"
            rows.append([promise.name, _limit(promise), others, worst, met])
    return table(["goal", "limit", "others", "zc.loader", "met"], rows)


def contests(results: Results, *sections: str) -> str:
    """Return a table for each case of the sections."""
    cases = [case for section in sections for case in results.cases[section]]
    return "\n".join(f"### {_title(case)}\n\n{_contest(case)}" for case in cases)


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
    (case,) = results.cases["loader/waiting"]
    return _contest(case)


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


def shortfalls(results: Results) -> str:
    """Return the missed goals, and the contenders with the same order of rows that are faster."""
    lines, every = [], _every(results)
    for promise in PROMISES:
        for _, value in promise.values(every):
            if value > promise.limit:
                lines.append(f"- **{promise.name}**: {_show(promise, value)}; the goal is {_limit(promise)}.")
    for case in every:
        own = times()(case)
        for entry in case.timed("idiom", "library") if own is not None else ():
            if own is not None and (other := case.figures[TIMES + entry.label]) < own:
                ratios = f"{format_quantity(other, 'x')} instead of {format_quantity(own, 'x')}"
                lines.append(f"- **{_title(case)}**: {entry.label} takes less time: {ratios}.")
    return "\n".join(lines or ["All goals are met, and no contender takes less time than `zc.loader`."])


def _every(results: Results) -> list[Case]:
    return [case for cases in results.cases.values() for case in cases]


def _others(promise: Promise, judged: list[Case], every: list[Case]) -> str:
    """Return the range of the ratios of others; with those of the same mode on fewer rows."""
    if promise.unit != "x" or not any(map(times(), judged)):
        return "-"
    names = {case.name.removesuffix(FEWER) for case in judged}
    ratios = [
        case.figures[TIMES + entry.label]
        for case in every
        if case.name.removesuffix(FEWER) in names
        for entry in case.timed("idiom", "library")
        if TIMES + entry.label in case.figures and promise.others in ("", entry.label)
    ]
    shown = [format_quantity(value, "x") for value in (min(ratios), max(ratios))] if ratios else []
    return " to ".join(dict.fromkeys(shown)) or "-"


def _limit(promise: Promise) -> str:
    if promise.shown == "speedup":
        return f"at least {1 / promise.limit:.0f}x faster"
    return _show(promise, promise.limit)


def _show(promise: Promise, value: float) -> str:
    if promise.shown == "speedup":
        return format_speedup(1 / value)
    return f"{value:g}" if promise.shown == "writes" else format_quantity(value, promise.unit)


def _title(case: Case) -> str:
    """Return the name of a case with its rows, and those of its window."""
    rows = f"{case.figures['rows']:,.0f} rows" if "rows" in case.figures else ""
    window = case.figures.get("rows of the window")
    facts = [rows, f"`shuffle=True` has windows of {window:,.0f} rows" if window else ""]
    return f"{case.name.removesuffix(FEWER)} ({', '.join(filter(None, facts))})"


def _contest(case: Case) -> str:
    """Return a row for each contender by its ratio; the bound first."""
    bound = [entry for entry in case.timed("reference") if TIMES + entry.label not in case.figures]
    others = [entry for entry in case.timed() if TIMES + entry.label in case.figures]
    others.sort(key=lambda entry: case.figures[TIMES + entry.label])
    rows = [_row(case, entry) for entry in (*bound, *others)]
    left_out = [f"\n> `{entry.label}` {entry.left_out}\n" for entry in case.entries if entry.left_out]
    return table(["", "x", "time of an epoch", "million rows per second"], rows) + "\n" + "".join(left_out)


def _row(case: Case, entry: Entry) -> list[str]:
    times_bound = case.figures.get(TIMES + entry.label)
    name = f"**{entry.label}**" if entry.role == "ours" else entry.label
    shown = "1" if times_bound is None else format_quantity(times_bound, "x")
    return [name, shown, time(entry), f"{case.figures['rows'] / median(entry) * 1e3:.3g}"]
