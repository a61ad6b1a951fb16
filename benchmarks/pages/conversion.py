"""The parts of the pages of the conversion suite."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.formats import format_duration
from benchmarks.pages.shared import added, entry_of, labels_of, noted, ratio, reasons, table, time, timed_code
from benchmarks.results import Results
from benchmarks.suite import Case, Entry

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
    return "\n\n".join([_by_label(cases, "from \\ to"), _remarks(cases)])


def pairs(results: Results) -> str:
    """Return each pair, compared with the documented call and the fastest code by hand."""
    heads = ["pair", "to the documented call", "to the fastest by hand", "zerocopy", "documented", "by hand"]
    return table(heads, map(_contest, results.cases["conversion/pairs"]))


def sizes(results: Results) -> str:
    """Return a column for each size; the row of the copy comes last."""
    cases = sorted(results.cases["conversion/sizes"], key=lambda case: case.fastest("ours") is None)
    return _by_label(cases, "pair")


def containers(results: Results) -> str:
    """Return each container, compared with code by hand and libraries."""
    rows = []
    for case in results.cases["conversion/containers"]:
        name, to_documented, to_hand, ours, _, hand = _contest(case)
        rows.append([name, ours, to_documented, to_hand, hand, timed_code(case.fastest("library"))])
    heads = ["container", "zerocopy", "to the documented call", "to the fastest by hand", "fastest by hand"]
    return table([*heads, "fastest library"], rows)


def dtypes(results: Results) -> str:
    """Return a column for each dtype."""
    return _by_label(results.cases["conversion/dtypes"], "pair")


def dtypes_alone(results: Results) -> str:
    """Return the dtypes that only zerocopy supports, with the result of the documented call."""
    rows = []
    by_name = {case.name: case for case in results.cases["conversion/dtypes"]}
    for name, case in by_name.items():
        documented = by_name.get(f"{name} (documented call)", Case(name))
        theirs = {entry.label: entry.left_out for entry in documented.entries}
        alone = [f"{e.label}: {why}" for e in case.timed("ours") if (why := theirs.get(e.label))]
        if alone:
            rows.append([name, "; ".join(alone)])
    return table(["pair", "dtypes, and the result of the documented call"], rows)


def libraries(results: Results) -> str:
    """Return the times of other libraries for the same pairs."""
    rows = []
    for case in results.cases["conversion/pairs"]:
        times: dict[str, str] = {}
        for entry in case.entries:
            name = next((name for part, name in _LIBRARIES.items() if part in entry.label), "")
            if entry.role == "library" and name:
                times.setdefault(name, _against(entry, case.fastest("ours")))
        named = (times.get(name, "") for name in _LIBRARIES.values())
        rows.append([case.name, time(case.fastest("ours")), *named])
    return table(["pair", "zerocopy", *_LIBRARIES.values()], rows)


def pydlpack(results: Results) -> str:
    """Return the times of pydlpack, and what it keeps."""
    kept = ("calls", "destructors kept", "bytes that the process grew by")
    rows = []
    for case in results.cases["conversion/pydlpack"]:
        ours, theirs = case.fastest("ours"), next(e for e in case.entries if e.role == "library")
        counted = [f"{case.figures[n]:,.0f}" if n in case.figures else "-" for n in kept]
        rows.append(
            [case.name, time(ours), time(case.fastest("documented")), _against(theirs, ours), *counted]
        )
    return table(["pair", "zerocopy", "documented", "pydlpack", *kept], rows)


def calls(results: Results) -> str:
    """Return the times of forms of the call, and of the import."""
    cases = [
        *results.cases["conversion/calls"],
        *(Case("", c.entries) for c in results.cases["conversion/import"]),
    ]
    rows = [[case.name, f"`{entry.label}`", time(entry)] for case in cases for entry in case.entries]
    return table(["pair", "call", "time"], rows)


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


def _against(entry: Entry, ours: Entry | None) -> str:
    return f"{time(entry)} ({ratio(entry, ours)})" if entry.timing and ours else "-"


def _by_label(cases: Sequence[Case], head: str) -> str:
    labels = labels_of(cases)
    rows = [[case.name, *(noted(entry_of(case, label)) for label in labels)] for case in cases]
    return table([head, *labels], rows)


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
