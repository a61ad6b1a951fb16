"""The parts of the pages of the conversion suite."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from benchmarks.conversion import goals as core
from benchmarks.formats import format_duration, format_quantity
from benchmarks.pages.overview import LOSS
from benchmarks.pages.shared import added, entry_of, labels_of, noted, ratio, reasons, table, time, timed_code
from benchmarks.results import Results
from benchmarks.suite import Case, median

_DOCUMENTED = " (documented call)"

#: Names of libraries, by a part of their expressions.
_LIBRARIES = {
    "tvm_ffi.": "tvm-ffi: `from_dlpack`",
    "move_to(": "scikit-learn: `move_to`",
    "xp_": "array-api-compat: `asarray`",
}


def verified(results: Results) -> str:
    """Return how many cells of the grid were verified, and how."""
    cases = results.cases["conversion/grid"]
    cells = sum(len(case.entries) for case in cases)
    refused = sum(bool(entry.left_out) for case in cases for entry in case.entries)
    written, unproved, wrong = (
        sum(int(case.figures.get(name, 0)) for case in cases)
        for name in ("cells verified with a write", "cells not verified", "cells where explain is wrong")
    )
    return (
        f"Of {cells} cells, {written} were verified with a write, {unproved} could not be verified (a query "
        f"has no memory before it runs) and {refused} are refused; `explain` was wrong in {wrong}."
    )


def grid(results: Results) -> str:
    """Return a row for each source and a column for each target."""
    cases = results.cases["conversion/grid"]
    labels = labels_of(cases)
    rows = [[case.name, *(noted(entry_of(case, label)) for label in labels)] for case in cases]
    return f"{table(['from, to', *labels], rows)}\n\n{_remarks(cases)}"


def pairs(results: Results) -> str:
    """Return the pairs of the compiled core, and its other rows that take longer than code by hand."""
    rows = []
    for case in results.cases["conversion/core"]:
        to_hand = core.ratio(case, core.BY_HAND)
        if (ours := case.fastest("ours")) and (case.name in core.PAIRS or (to_hand or 0) > LOSS):
            ratios = [core.ratio(case, name) for name in (core.BY_HAND, core.DOCUMENTED, core.PURE)]
            shown = ["-" if value is None else format_quantity(value, "x") for value in ratios]
            rows.append([case.name, time(ours), *shown, timed_code(core.rival(case, core.BY_HAND))])
    heads = ["pair", "zerocopy", "to by hand", "to the documented call", "to pure Python", "by hand"]
    return table(heads, rows)


def sizes(results: Results) -> str:
    """Return how the times of the pairs change with the size, and those of the copy."""
    changes, copied = [], ""
    for case in results.cases["conversion/sizes"]:
        first, *_, last = case.timed()
        times = f"{time(first)} for {first.label} and {time(last)} for {last.label}"
        if last.role == "ours":
            changes.append((median(last) / median(first), f"{case.name} takes {times}"))
        else:
            copied = f"an ordinary copy takes {times}"
    (least, _), (most, worst) = min(changes), max(changes)
    return (
        f"The time of {len(changes)} pairs for the largest array is {least:.2f} to {most:.2f} times that for "
        f"the smallest: {worst}, and {copied}."
    )


def dtypes(results: Results) -> str:
    """Return the range of times of each pair, that of its ratios, and the dtypes of one or no contender."""
    by_name = {case.name: case for case in results.cases["conversion/dtypes"]}
    rows = []
    for name, case in by_name.items():
        if name.endswith(_DOCUMENTED):
            continue
        theirs = {entry.label: entry for entry in by_name.get(f"{name}{_DOCUMENTED}", Case(name)).entries}
        aliased, copied = ([e for e in case.timed() if bool(e.note) == copies] for copies in (False, True))
        slowest = max(aliased, key=median)
        both = [median(e) / median(t) for e in case.timed() if (t := theirs.get(e.label)) and t.timing]
        alone = [e.label for e in case.timed() if (t := theirs.get(e.label)) and t.left_out]
        rows.append(
            [
                name,
                f"{time(min(aliased, key=median))} to {time(slowest)} ({slowest.label})",
                ", ".join(f"{e.label} {time(e)}" for e in copied),
                f"{min(both):.2f}x to {max(both):.2f}x" if both else "-",
                ", ".join(alone),
                ", ".join(e.label for e in case.entries if not e.timing),
            ]
        )
    heads = ["pair", "zerocopy", "with a copy", "to the documented call", "only zerocopy", "neither"]
    return table(heads, rows)


def libraries(results: Results) -> str:
    """Return the ratios to other libraries for the same pairs: the mean, the best and the worst."""
    rows = []
    for part, name in _LIBRARIES.items():
        outcomes = [
            (median(ours) / median(entry), f"{case.name}, {time(ours)} and {time(entry)}")
            for case in results.cases["conversion/pairs"]
            for entry in [e for e in case.timed("library") if part in e.label][:1]
            if (ours := case.fastest("ours"))
        ]
        if outcomes:
            ends = [f"{value:.2f}x, {text}" for value, text in (min(outcomes), max(outcomes))]
            mean = geometric_mean(value for value, _ in outcomes)
            rows.append([name, str(len(outcomes)), f"{mean:.2f}x", *ends])
    return table(["library", "pairs", "mean", "best", "worst"], rows)


def pydlpack(results: Results) -> str:
    """Return the times of pydlpack, and the destructors that it keeps."""
    kept = ("calls", "destructors kept", "bytes that the process grew by")
    rows = []
    for case in results.cases["conversion/pydlpack"]:
        ours, theirs = case.fastest("ours"), next(e for e in case.entries if e.role == "library")
        counted = [f"{case.figures[n]:,.0f}" if n in case.figures else "-" for n in kept]
        against = f"{time(theirs)} ({ratio(theirs, ours)})"
        rows.append([case.name, time(ours), time(case.fastest("documented")), against, *counted])
    return table(["pair", "zerocopy", "documented", "pydlpack", *kept], rows)


def gpu(results: Results) -> str:
    """Return the pairs on a device, with the device's times."""
    heads = ["pair", "to the documented call", "to the fastest by hand", "zerocopy", "documented", "by hand"]
    heads += ["on the device: zerocopy", "documented"]
    names = ("device ns, zerocopy", "device ns, documented")
    cases = results.cases.get("conversion/gpu", [])
    rows = [
        [*_contest(case), *(format_duration(case.figures[n]) if n in case.figures else "-" for n in names)]
        for case in cases
    ]
    return f"{table(heads, rows)}\n\n{_remarks(cases)}"


def bus(results: Results) -> str:
    """Return the transfers across the bus, with their rates."""
    heads = ["transfer", "to the documented call", "to the fastest", "zerocopy", "documented", "fastest"]
    heads += ["GB/s: zerocopy", "documented"]
    names = ("GB/s zerocopy", "GB/s documented")
    cases = results.cases.get("conversion/gpu-bus", [])
    rows = [
        [*_contest(case), *(f"{case.figures[n]:.1f}" if n in case.figures else "-" for n in names)]
        for case in cases
    ]
    return f"{table(heads, rows)}\n\n{_remarks(cases)}"


def _contest(case: Case) -> list[str]:
    ours, documented = case.fastest("ours"), case.fastest("documented")
    hand = case.fastest("documented", "idiom")
    ratios = [ratio(ours, documented), added(ours, hand)]
    return [case.name, *ratios, time(ours), time(documented), timed_code(hand)]


def _remarks(cases: Sequence[Case]) -> str:
    """Return each remark once, and why cells have a dash."""
    remarks: dict[str, list[str]] = {}
    for case in cases:
        for remark in case.remarks:
            remarks.setdefault(remark, []).append(case.name)
    remarks |= {f"`{label}`: {why}": names for (label, why), names in reasons(cases).items()}
    return "\n".join(
        f"- {remark}" + ("" if len(names) == len(cases) else f" ({', '.join(names)})")
        for remark, names in remarks.items()
    )
