"""The parts of the pages of the processes, channels and hosts suites."""

from __future__ import annotations

from benchmarks.formats import format_duration, format_quantity
from benchmarks.pages.shared import entry_of, labels_of, table, time
from benchmarks.processes.channels import COPIED, IN_PLACE, SIZES, STREAM
from benchmarks.processes.scale import curves
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, median


def rows(results: Results, section: str) -> str:
    """Return a row for each case: without and with zerocopy, in multiples of the memcpy; other figures."""
    cases = results.cases[section]
    has_reference = any(case.timed("reference") for case in cases)
    figures = list(dict.fromkeys(name for case in cases for name in case.figures))
    heads = ["", "without zerocopy", "zerocopy", *(["reference"] if has_reference else []), *figures]
    shown = []
    for case in cases:
        reference = case.fastest("reference")
        row = [case.name, *(_multiple(case.fastest(role), reference) for role in ("idiom", "ours"))]
        row += [time(reference)] if has_reference else []
        shown.append(row + [_figure(case, name) for name in figures])
    labels = dict.fromkeys(f"`{entry.label}`" for case in cases for entry in case.timed("idiom"))
    remarks = dict.fromkeys(remark for case in cases for remark in case.remarks)
    left_out = [f"{case.name}: {e.label} {e.left_out}" for case in cases for e in case.entries if e.left_out]
    without = [f"Without zerocopy: {', '.join(labels)}."] if labels else []
    return table(heads, shown) + "".join(f"\n\n> {line}" for line in [*without, *remarks, *left_out])


def _multiple(entry: Entry | None, reference: Entry | None) -> str:
    if entry is None or reference is None:
        return time(entry)
    return f"{format_quantity(median(entry) / median(reference), 'x')} ({time(entry)})"


def _figure(case: Case, name: str) -> str:
    if name not in case.figures:
        return "-"
    return format_quantity(case.figures[name], "bytes" if "bytes" in name else "")


def leases(results: Results, curve: str, which: str) -> str:
    """Return a time with the fewest or the most leases, their number, or the time that one more adds."""
    if which == "count":
        return f"{int(max(curves(results.cases['processes/readers'])['open'])):,}"
    times = curves(results.cases["processes/readers"])[curve]
    few, most = min(times), max(times)
    if which == "one more":
        return format_duration(max(0.0, times[most] - times[few]) / max(most - few, 1))
    return format_duration(times[few if which == "few" else most])


def frames(results: Results, where: str = "") -> str:
    """Return a row for each measure, size and number of readers, and a column for each contender."""
    cases = _of_channels(results, bool(where))
    labels = labels_of(cases)
    shown = [[case.name.replace(IN_PLACE, ""), *(_frame(case, label) for label in labels)] for case in cases]
    left_out = dict.fromkeys(f"{e.label} {e.left_out}" for case in cases for e in case.entries if e.left_out)
    return table(["", *labels], shown) + "".join(f"\n\n> {line}" for line in left_out)


def _of_channels(results: Results, in_place: bool) -> list[Case]:
    return [case for case in results.cases["channels/frames"] if (IN_PLACE in case.name) == in_place]


def _frame(case: Case, label: str) -> str:
    entry = entry_of(case, label)
    if entry is None or entry not in case.timed():
        return "-"
    measure, size, _ = case.name.replace(IN_PLACE, "").split(", ")
    return time(entry) + f", {SIZES[size] / median(entry):.2g} GB/s" * (measure == STREAM)


def copies(results: Results) -> str:
    """Return how often a frame of each size is copied."""
    rows = [
        [
            case.name.replace(IN_PLACE, "").split(", ")[1],
            "slot" if in_place else "put",
            f"{case.figures[COPIED]:.2f}",
        ]
        for in_place in (False, True)
        for case in _of_channels(results, in_place)
        if COPIED in case.figures and case.name.endswith("1 reader")
    ]
    return table(["frame", "call", "copies of the frame"], rows)
