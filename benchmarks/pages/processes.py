"""The parts of the processes, channels and hosts suites."""

from __future__ import annotations

from benchmarks.formats import format_duration, format_quantity
from benchmarks.pages.shared import entry_of, labels_of, table, time
from benchmarks.processes.channels import COPIED, IN_PLACE, SIZES, STREAM
from benchmarks.processes.scale import curves
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, median


def rows(results: Results, *sections: str) -> str:
    """Return a row for each framework, and columns for each exchange: without and with zerocopy, figures.

    Times are followed by their multiple of the reference, which took its turn with them.
    """
    every = [case for section in sections for case in results.cases[section]]
    by_framework: dict[str, dict[str, Case]] = {}
    for case in every:
        exchange, _, framework = case.name.rpartition(", ")
        by_framework.setdefault(framework, {})[exchange] = case
    exchanges = list(dict.fromkeys(e for cases in by_framework.values() for e in cases))
    columns: list[tuple[str, str]] = []
    for exchange in exchanges:
        cases = [row[exchange] for row in by_framework.values() if exchange in row]
        columns += [(exchange, _WITHOUT)] * any(case.timed("idiom") for case in cases) + [(exchange, "")]
        columns += [(exchange, name) for name in dict.fromkeys(n for case in cases for n in case.figures)]
    shown = [
        [framework, *(_exchange(cases.get(exchange), what) for exchange, what in columns)]
        for framework, cases in by_framework.items()
    ]
    common = len({exchange.partition(", ")[0] for exchange in exchanges}) == 1
    heads = []
    for exchange, what in columns:
        short = (common and exchange.partition(", ")[2]) or exchange
        heads.append((f"{short}: " if len(exchanges) > 1 else "") + (what or "zerocopy"))
    labels = dict.fromkeys(
        f"`{entry.label}`" for case in every for entry in case.timed("idiom") if entry.label not in case.name
    )
    remarks = [f"Without zerocopy: {', '.join(labels)}."] if labels else []
    remarks += dict.fromkeys(remark for case in every for remark in case.remarks)
    remarks += [f"{case.name}: {e.label} {e.left_out}" for case in every for e in case.entries if e.left_out]
    return table(["", *heads], shown) + "".join(f"\n\n{line}" for line in remarks)


_WITHOUT = "without"


def _exchange(case: Case | None, what: str) -> str:
    if case is None:
        return ""
    if what not in ("", _WITHOUT):
        return _figure(case, what)
    entry, reference = case.fastest("idiom" if what else "ours"), case.fastest("reference")
    if entry is None or reference is None:
        return time(entry)
    return f"{time(entry)} ({format_quantity(median(entry) / median(reference), 'x')})"


def _figure(case: Case, name: str) -> str:
    if name not in case.figures:
        return "-"
    return format_quantity(case.figures[name], "bytes" if "bytes" in name else "")


def scale(results: Results) -> str:
    """Return a row for each operation: its time for the fewest, for the most, and the longest."""
    shown = []
    for section in ("processes/readers", "processes/segments", "processes/workers"):
        cases = results.cases[section]
        for label in labels_of(cases):
            times = [
                (entry, case.name) for case in cases if (entry := entry_of(case, label)) and entry.timing
            ]
            (few, fewest), (most, largest) = times[0], times[-1]
            longest, at = max(times, key=lambda pair: median(pair[0]))
            ends = [f"{time(few)}, {fewest}", f"{time(most)}, {largest}", f"{time(longest)}, {at}"]
            shown.append([label, *ends])
    return table(["", "fewest", "most", "longest"], shown)


def leases(results: Results, curve: str, which: str) -> str:
    """Return a time with the fewest or the most leases, their number, or the time that one more adds."""
    if which == "count":
        return f"{int(max(curves(results.cases['processes/readers'])['open'])):,}"
    times = curves(results.cases["processes/readers"])[curve]
    few, most = min(times), max(times)
    if which == "one more":
        return format_duration(max(0.0, times[most] - times[few]) / max(most - few, 1))
    return format_duration(times[few if which == "few" else most])


def frames(results: Results) -> str:
    """Return a row for each measure, size and number of readers, and a column for each contender."""
    cases: dict[str, dict[str, Entry]] = {}
    for case in results.cases["channels/frames"]:
        row = cases.setdefault(case.name.replace(IN_PLACE, ""), {})
        row |= {entry.label: entry for entry in case.entries}
    labels = list(dict.fromkeys(label for row in cases.values() for label in row))
    shown = [[name, *(_frame(name, row.get(label)) for label in labels)] for name, row in cases.items()]
    left_out = dict.fromkeys(
        f"{e.label} {e.left_out}" for row in cases.values() for e in row.values() if e.left_out
    )
    return table(["", *labels], shown) + "".join(f"\n\n{line}" for line in left_out)


def _frame(name: str, entry: Entry | None) -> str:
    if entry is None or not entry.timing:
        return "-"
    measure, size, _ = name.split(", ")
    return time(entry) + f", {SIZES[size] / median(entry):.2g} GB/s" * (measure == STREAM)


def copies(results: Results) -> str:
    """Return how often a frame of each size is copied, in one sentence."""
    counts = [
        f"{case.figures[COPIED]:.2f} times for {case.name.replace(IN_PLACE, '').split(', ')[1]} by "
        f"{'`slot`' if IN_PLACE in case.name else '`put`'}"
        for case in results.cases["channels/frames"]
        if COPIED in case.figures and case.name.endswith("1 reader")
    ]
    return f"A frame is copied {', '.join(counts)}."
