"""The page of the conversion suite."""

from __future__ import annotations

from typing import Any

from benchmarks.formats import format_duration
from benchmarks.pages.words import added, best, goals, picture, ratio, table, time

TITLE = "Benchmarks of conversions"
ABOUT = "The cost of one conversion, compared with calls written by hand."
ON_GPU = "The cost of one conversion between frameworks on one GPU, and to and from NumPy across the bus."

Cases = list[dict[str, Any]]


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head, for the sections in the results."""
    parts = {
        "grid": _grid,
        "pairs": _pairs,
        "sizes": _sizes,
        "containers": _containers,
        "dtypes": _dtypes,
    }
    tables = [make(cases) for name, make in parts.items() if (cases := _cases(data, name))]
    return [goals(_without_core(data), _why(data)), *_core(data), *tables, *_rivals(data), _calls(data)]


def on_gpu(data: dict[str, Any]) -> list[str]:
    """Return the GPU page after its head, for the sections in the results."""
    parts = {"gpu": _gpu, "gpu-bus": _bus}
    tables = [make(cases) for name, make in parts.items() if (cases := _cases(data, name))]
    return [*filter(None, [goals(data)]), *tables]


def _without_core(data: dict[str, Any]) -> dict[str, Any]:
    """Return results without the goals of the compiled core and of explain, which have their own page."""
    own = ("conversion/core", "conversion/explain")
    return data | {"goals": [goal for goal in data["goals"] if goal.get("section") not in own]}


def _core(data: dict[str, Any]) -> list[str]:
    text = "\nThe goals of the compiled core and of `explain` are on [its page](compiled-core.md).\n"
    return [text] if data["sections"].get("conversion/core") else []


def _cases(data: dict[str, Any], section: str) -> Cases:
    cases: Cases = data["sections"].get(f"conversion/{section}", [])
    return [case for case in cases if not case.get("failed")]


#: Why a pair misses a goal; shown only if it does.
_REASONS = {
    "torch -> tensorflow": "the documented call has no checks. It exports tensors that require grad, and "
    "lazily conjugated or negated tensors, whose memory has other values. zerocopy checks these and the "
    "alignment, because TensorFlow aborts on unaligned memory.",
    "numpy -> tensorflow": "zerocopy checks the alignment, because TensorFlow aborts on unaligned memory.",
    "pyarrow -> tensorflow": "zerocopy checks the alignment, because TensorFlow aborts on unaligned memory.",
    "tensorflow -> numpy": "`__array__` returns immutable memory as a writable array. zerocopy marks it "
    "read-only, which takes one more call.",
}


def _why(data: dict[str, Any]) -> str:
    names = ("documented call", "fastest by hand")
    missed = {goal["case"] for goal in data["goals"] if not goal["met"] and goal["name"].startswith(names)}
    if not missed:
        return ""
    reasons = [f"- `{pair}`: {why}" for pair, why in _REASONS.items() if pair in missed]
    always = (
        "- `convert` adds the lookup of a route and the checks of the object to the framework's own call. "
        "The shorter the framework's call, the greater the ratio.\n"
        "- Limits in nanoseconds and microseconds are the same for every machine, so that slower machines "
        "miss them more easily. Ratios are more meaningful."
    )
    return "\n".join(["\nWhy goals are missed:\n", *reasons, always, ""])


def _grid(cases: Cases) -> str:
    labels = _labels(cases)
    rows = [[case["name"], *(_cell(_by_label(case).get(label)) for label in labels)] for case in cases]
    figures = [case.get("figures", {}) for case in cases]
    cells = sum(len(case["entries"]) for case in cases)
    refused = sum(bool(entry.get("left_out")) for case in cases for entry in case["entries"])
    written, unproved, wrong = (
        int(sum(f.get(name, 0) for f in figures))
        for name in (
            "cells verified with a write",
            "cells not verified",
            "cells where explain is wrong",
        )
    )
    text = (
        "1,000 float32 values, or a table with one such column, in 64-byte-aligned memory. JAX and "
        "TensorFlow copy other memory, and most NumPy, pandas and nanoarrow arrays are not 64-byte-aligned. "
        "Before a cell was timed, the memory of source and result was compared and, if the source is "
        f"writable, a write to the source was read from the result. Of {cells} cells, {written} were "
        f"verified with a write, {unproved} could not be verified (a query has no memory before it runs) and "
        f"{refused} are refused; `explain` was wrong in {wrong}."
    )
    alt = "Time of one conversion between each pair of frameworks, and which of them copy"
    head = f"\n## All frameworks\n\n{text}\n\n{picture('conversion-grid', alt)}\n"
    return head + table(["from \\ to", *labels], rows) + _remarks(cases)


def _pairs(cases: Cases) -> str:
    rows = []
    for case in cases:
        ours, documented = best(case, "ours"), best(case, "documented")
        hand = best(case, "documented", "idiom")
        rows.append(
            [
                case["name"],
                ratio(ours, documented),
                added(ours, hand),
                time(ours),
                time(documented),
                f"{time(hand)} `{hand['label']}`" if hand else "-",
            ]
        )
    heads = ["pair", "to the documented call", "to the fastest by hand", "zerocopy", "documented", "by hand"]
    return "\n## Pairs: 1,000 elements of float32, default options\n\n" + table(heads, rows)


def _sizes(cases: Cases) -> str:
    # The row of the copy comes last.
    cases = sorted(cases, key=lambda case: best(case, "ours") is None)
    labels = _labels(cases)
    rows = [[case["name"], *(_cell(_by_label(case).get(label)) for label in labels)] for case in cases]
    copied = any(best(case, "reference") for case in cases)
    text = "No bytes are copied, so the size does not matter."
    if copied:
        alt = "Time of a conversion by the size of the array, compared with an ordinary copy"
        text += f" The last row is an ordinary copy of the same size.\n\n{picture('conversion-sizes', alt)}"
    return f"\n## Cost by size\n\n{text}\n\n" + table(["pair", *labels], rows)


def _containers(cases: Cases) -> str:
    rows = []
    for case in cases:
        ours, hand = best(case, "ours"), best(case, "documented", "idiom")
        other = best(case, "library")
        rows.append(
            [
                case["name"],
                time(ours),
                ratio(ours, best(case, "documented")),
                added(ours, hand),
                f"{time(hand)} `{hand['label']}`" if hand else "-",
                f"{time(other)} `{other['label']}`" if other else "-",
            ]
        )
    heads = [
        *("container", "zerocopy", "to the documented call", "to the fastest by hand", "fastest by hand"),
        "fastest library",
    ]
    text = (
        "A dict of arrays of 1,000 float32 values, in one call. By hand it is a comprehension or a tree map "
        "with the function of the pair, which requires that all leaves are of one framework; zerocopy "
        "looks up the type of each leaf, and supports containers of any depth."
    )
    return f"\n## Containers\n\n{text}\n\n" + table(heads, rows)


def _dtypes(cases: Cases) -> str:
    labels = _labels(cases)
    rows = [[case["name"], *(_cell(_by_label(case).get(label)) for label in labels)] for case in cases]
    head = "\n## Dtypes\n\n1,000 elements of each, compared with the call that the target documents. "
    parts = [
        head
        + "A dash: the call does not support the dtype, or changes it.\n\n"
        + table(["pair", *labels], rows)
    ]
    documented = {case["name"]: _by_label(case) for case in cases}
    alone = []
    for case in cases:
        theirs = documented.get(f"{case['name']} (documented call)", {})
        ours = [e for e in case["entries"] if e["role"] == "ours" and e.get("ns")]
        names = [f"{e['label']}: {why}" for e in ours if (why := theirs.get(e["label"], {}).get("left_out"))]
        if names:
            alone.append([case["name"], "; ".join(names)])
    if alone:
        heads = ["pair", "dtypes, and the result of the documented call"]
        parts.append("\nDtypes that only zerocopy supports:\n\n" + table(heads, alone))
    return "\n".join(parts)


#: Names of libraries, by a part of their expressions.
_LIBRARIES = {
    "tvm_ffi.": "tvm-ffi: `from_dlpack`",
    "move_to(": "scikit-learn: `move_to`",
    "xp_": "array-api-compat: `asarray`",
}


def _rivals(data: dict[str, Any]) -> list[str]:
    rows = []
    for case in _cases(data, "pairs"):
        ours = best(case, "ours")
        times: dict[str, str] = {}
        for entry in case["entries"]:
            name = next((name for part, name in _LIBRARIES.items() if part in entry["label"]), "")
            if entry["role"] == "library" and name:
                times.setdefault(name, _against(entry, ours))
        rows.append([case["name"], time(ours), *(times.get(name, "") for name in _LIBRARIES.values())])
    text = (
        "Times of other libraries for the same pairs, with the ratio to zerocopy. A dash: the library fails "
        "or copies. Empty: the library does not support the source or the target. array-api-compat's "
        "`to_device` stays within one framework."
    )
    parts = [f"\n## Other libraries\n\n{text}\n\n" + table(["pair", "zerocopy", *_LIBRARIES.values()], rows)]
    cases = _cases(data, "pydlpack")
    if cases:
        rows = []
        for case in cases:
            ours, theirs = best(case, "ours"), next(e for e in case["entries"] if e["role"] == "library")
            figures = case.get("figures", {})
            counted = [f"{figures[n]:,.0f}" if n in figures else "-" for n in _KEPT]
            rows.append(
                [case["name"], time(ours), time(best(case, "documented")), _against(theirs, ours), *counted]
            )
        text = (
            "pydlpack adds a `__dlpack__` to any array, in pure Python. It ran in a separate process, "
            "because it can keep destructors of capsules that it has exported."
        )
        heads = ["pair", "zerocopy", "documented", "pydlpack", *_KEPT]
        parts.append(f"\n### pydlpack\n\n{text}\n\n" + table(heads, rows))
    return parts if rows else []


_KEPT = ("calls", "destructors kept", "bytes that the process grew by")


def _against(entry: dict[str, Any], ours: dict[str, Any] | None) -> str:
    return f"{time(entry)} ({ratio(entry, ours)})" if entry.get("ns") and ours else "-"


def _gpu(cases: Cases) -> str:
    heads = [
        *("pair", "to the documented call", "to the fastest by hand", "zerocopy", "documented", "by hand"),
        *("on the device: zerocopy", "documented"),
    ]
    rows = []
    for case in cases:
        ours, documented = best(case, "ours"), best(case, "documented")
        hand, figures = best(case, "documented", "idiom"), case.get("figures", {})
        rows.append(
            [
                *(case["name"], ratio(ours, documented), added(ours, hand), time(ours), time(documented)),
                f"{time(hand)} `{hand['label']}`" if hand else "-",
                *(format_duration(figures[n]) if n in figures else "-" for n in _ON_DEVICE),
            ]
        )
    text = (
        "1,000 float32 values in CUDA memory, and to and from NumPy. Times are those of the host, until "
        "the call returns. The last columns have the time of the device, between two events on its stream; "
        "JAX uses private streams, and does not have these figures. No goals are set: compare "
        "the ratios."
    )
    return f"## From framework to framework\n\n{text}\n\n" + table(heads, rows) + _remarks(cases) + "\n"


_ON_DEVICE = ("device ns, zerocopy", "device ns, documented")


def _bus(cases: Cases) -> str:
    rows = []
    for case in cases:
        ours, documented = best(case, "ours"), best(case, "documented")
        hand, figures = best(case, "documented", "idiom"), case.get("figures", {})
        rows.append(
            [
                *(case["name"], ratio(ours, documented), added(ours, hand), time(ours), time(documented)),
                f"{time(hand)} `{hand['label']}`" if hand else "-",
                *(f"{figures[n]:.1f}" if n in figures else "-" for n in _RATES),
            ]
        )
    heads = [
        *("transfer", "to the documented call", "to the fastest", "zerocopy", "documented", "fastest"),
        *("GB/s: zerocopy", "documented"),
    ]
    text = (
        "To and from NumPy, in memory that is not page-locked, from an idle device until the data have "
        "arrived. All of these copy."
    )
    return f"## Across the bus\n\n{text}\n\n" + table(heads, rows) + _remarks(cases) + "\n"


_RATES = ("GB/s zerocopy", "GB/s documented")


def _calls(data: dict[str, Any]) -> str:
    rows = [
        [case["name"], f"`{entry['label']}`", time(entry)]
        for case in _cases(data, "calls")
        for entry in case["entries"]
    ]
    rows += [["", f"`{e['label']}`", time(e)] for case in _cases(data, "import") for e in case["entries"]]
    return "\n## Other calls\n\n" + table(["pair", "call", "time"], rows) if rows else ""


def _labels(cases: Cases) -> list[str]:
    return list(dict.fromkeys(entry["label"] for case in cases for entry in case["entries"]))


def _by_label(case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["label"]: entry for entry in case["entries"]}


def _cell(entry: dict[str, Any] | None) -> str:
    """Return a time and its note, a dash if it was left out, or nothing if it does not exist."""
    if entry is None:
        return ""
    note = entry.get("note")
    return time(entry) + (f" ({note})" if note and entry.get("ns") else "")


def _remarks(cases: Cases) -> str:
    """Return each remark once, and why cells have a dash."""
    remarks: dict[str, list[str]] = {}
    for case in cases:
        for remark in case.get("remarks", []):
            remarks.setdefault(remark, []).append(case["name"])
        for entry in case["entries"]:
            if entry.get("left_out"):
                remarks.setdefault(f"`{entry['label']}`: {entry['left_out']}", []).append(case["name"])
    lines = [
        f"- {remark}" + ("" if len(names) == len(cases) else f" ({', '.join(names)})")
        for remark, names in remarks.items()
    ]
    return "\n\n" + "\n".join(lines) if lines else ""
