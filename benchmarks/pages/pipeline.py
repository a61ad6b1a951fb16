"""The parts of the pages of the pipeline suite."""

from __future__ import annotations

from benchmarks.formats import format_duration, format_quantity
from benchmarks.pages.shared import code, entry_of, labels_of, quoted, ratio, table, time
from benchmarks.pipeline.contenders import METHODS
from benchmarks.pipeline.contest import COPIED
from benchmarks.pipeline.memory import PEAK
from benchmarks.pipeline.stages import WHOLE
from benchmarks.results import Results
from benchmarks.suite import Case, median


def stages(results: Results, section: str) -> str:
    """Return a row for each stage: time, copied bytes and ratio to zerocopy of each contender."""
    cases = results.cases[section]
    first, *others = labels_of(cases)
    heads = ["stage", first, "copied"]
    for label in others:
        heads += [label, "to zerocopy", "copied"]
    rows = []
    for case in cases:
        ours = case.entries[0]
        rows.append([f"**{case.name}**" if case.name == WHOLE else case.name])
        for entry in case.entries:
            to_ours = [] if entry is ours else [ratio(entry, ours)]
            rows[-1] += [time(entry), *to_ours, _copied(case, entry.label)]
    remarks = [line for case in cases for line in case.remarks]
    remarks += [f"left out {entry.label}: {entry.left_out}" for entry in cases[-1].entries if entry.left_out]
    return f"{table(heads, rows)}\n\n{quoted(remarks)}"


def borders(results: Results, section: str) -> str:
    """Return the time of the borders, and its share of the whole."""
    cases = results.cases[section]
    whole = _whole(cases)
    between = [case for case in cases if " -> " in case.name]
    rows = []
    for i, entry in enumerate(whole.entries):
        if entry.timing:
            spent = sum(median(case.entries[i]) for case in between)
            share = f"{100 * spent / median(entry):.1f}%"
            rows.append([entry.label, format_duration(spent), share, _copied(whole, entry.label)])
    return table(["", "time", "share", "copied"], rows)


def memory(results: Results) -> str:
    """Return the peak of each contender."""
    (case,) = results.cases["pipeline/memory"]
    rows = [[n.removeprefix(PEAK), format_quantity(value, "bytes")] for n, value in case.figures.items()]
    return f"{table(['', 'peak'], rows)}\n\n{quoted(case.remarks)}"


def against_cpu(results: Results) -> str:
    """Return the whole on the GPU, and on the CPU of the same machine."""
    whole, other = _whole(results.cases["pipeline/gpu"]), _whole(results.cases["pipeline/stages"])
    rows = []
    for entry in whole.timed():
        there = entry_of(other, entry.label)
        rows.append([entry.label, time(entry), time(there), ratio(entry, there)])
    return table(["whole pipeline", "on the GPU", "on the CPU", "to the CPU"], rows)


def written(results: Results, section: str) -> str:
    """Return the code at each border; ``x`` is the value of the code before it."""
    rows = []
    for case in results.cases[section]:
        source, arrow, target = case.name.partition(" -> ")
        if arrow:
            codes = (" then ".join(map(code, method.borders[source, target])) for method in METHODS)
            rows.append([f"{source} to {target}", *codes])
    return table(["border", *(method.label for method in METHODS)], rows)


def _whole(cases: list[Case]) -> Case:
    return next(case for case in cases if case.name == WHOLE)


def _copied(case: Case, label: str) -> str:
    value = case.figures.get(COPIED + label)
    return "" if value is None else format_quantity(value, "bytes") if value else "nothing"
