"""The parts of the pages of the pool suite: host memory, and GPU memory."""

from __future__ import annotations

from benchmarks.formats import format_quantity
from benchmarks.pages.shared import code, size, speedup, table, time
from benchmarks.results import Results
from benchmarks.suite import median

#: A ratio of times below this counts as no change.
SAME = 1.05


def aligned(results: Results) -> str:
    """Return the counts of arrays that JAX aliases, and times."""
    cases = results.cases["pool/aligned"]
    rows = []
    for case in cases:
        counts = dict(case.figures)
        of = counts.pop("arrays", None)
        if of is not None:
            rows.append([case.name, *(f"{count:.0f} of {of:.0f}" for count in counts.values()), ""])
        else:
            plain, ours = case.entries
            rows.append([case.name, time(plain), time(ours), speedup(ours, plain)])
    remarks = [f"> {line}" for case in cases for line in case.remarks]
    return "\n\n".join([table(["", "without", '`host="aligned"`', "speed"], rows), "\n".join(remarks)])


def workloads(results: Results) -> str:
    """Return the time and the speed of each workload whose speed changes, then the names of the others."""
    cases = [case for case in results.cases["pool/recycle"] if case.entries]
    heads = ["workload", "without"]
    for entry in cases[0].entries[1:]:
        heads += [code(entry.label), "speed"]
    rows, same = [], []
    for case in cases:
        plain, *ours = case.entries
        if all(1 / SAME < median(plain) / median(entry) < SAME for entry in ours):
            same.append(case.name)
            continue
        rows.append([case.name, time(plain)])
        for entry in ours:
            rows[-1] += [time(entry), speedup(entry, plain)]
    others = f"\n\nWithin {SAME:.2f}x in both modes: {'; '.join(same)}." if same else ""
    return table(heads, rows) + others


def kept(results: Results) -> str:
    """Return the memory that each group of workloads leaves."""
    cases = [case for case in results.cases["pool/recycle"] if not case.entries]
    names = list(cases[0].figures)
    rows = [[case.name, *(size(case, name) for name in names)] for case in cases]
    return table(["", *(name.removeprefix("bytes ") for name in names)], rows)


def rates(results: Results) -> str:
    """Return figures of a device other than times, such as rates and peak memory, and the remarks."""
    cases = results.cases["pool/device"]
    rows = [
        [case.name, name, format_quantity(value, "bytes") if "bytes" in name else f"{value:,.1f}"]
        for case in cases
        for name, value in case.figures.items()
    ]
    remarks = dict.fromkeys(f"- {line}" for case in cases for line in case.remarks)
    return "\n\n".join([table(["case", "figure", "value"], rows), "\n".join(remarks)])
