"""The page of conversions."""

from __future__ import annotations

from typing import Any

from benchmarks.pages.words import added, best, goals, picture, ratio, table, time
from benchmarks.report import format_duration

TITLE = "Benchmarks of conversions"
ABOUT = "What a conversion costs, beside the calls that people write by hand."
ON_GPU = "What a conversion costs between frameworks of one GPU, and to and from NumPy across the bus."

Cases = list[dict[str, Any]]


def body(data: dict[str, Any]) -> list[str]:
    """Return the parts of the page after its head, of the sections that the file has."""
    parts = {
        "grid": _grid,
        "pairs": _pairs,
        "sizes": _sizes,
        "containers": _containers,
        "dtypes": _dtypes,
    }
    told = [make(cases) for name, make in parts.items() if (cases := _cases(data, name))]
    return [goals(data, _why(data)), *told, *_rivals(data), _calls(data)]


def on_gpu(data: dict[str, Any]) -> list[str]:
    """Return the parts of the page of a GPU after its head, of the sections that the file has."""
    parts = {"gpu": _gpu, "gpu-bus": _bus}
    told = [make(cases) for name, make in parts.items() if (cases := _cases(data, name))]
    return [*filter(None, [goals(data)]), *told]


def _cases(data: dict[str, Any], section: str) -> Cases:
    cases: Cases = data["sections"].get(f"conversion/{section}", [])
    return [case for case in cases if not case.get("failed")]


#: Why a pair misses a goal; said only where it does.
_REASONS = {
    "torch -> tensorflow": "the documented call checks nothing. It exports a tensor that requires grad, and "
    "one that is lazily conjugated or negated, whose memory holds other values. Ours checks these, and the "
    "alignment, without which TensorFlow aborts.",
    "numpy -> tensorflow": "ours checks the alignment, without which TensorFlow aborts.",
    "pyarrow -> tensorflow": "ours checks the alignment, without which TensorFlow aborts.",
    "tensorflow -> numpy": "`__array__` hands out immutable memory as writable; ours is marked read-only, "
    "which takes one call more.",
}


def _why(data: dict[str, Any]) -> str:
    names = ("documented call", "fastest by hand")
    missed = {goal["case"] for goal in data["goals"] if not goal["met"] and goal["name"].startswith(names)}
    if not missed:
        return ""
    reasons = [f"- `{pair}`: {why}" for pair, why in _REASONS.items() if pair in missed]
    always = (
        "- What `convert` adds to any pair is dictionary lookups and a Python call or two around the "
        "framework's own. Where the framework's own call is short, that shows.\n"
        "- Limits in nanoseconds and microseconds are the same for every machine, and a slower one misses "
        "them sooner. Ratios say more."
    )
    return "\n".join(["\nWhere ours costs more than a goal allows, and why:\n", *reasons, always, ""])


def _grid(cases: Cases) -> str:
    labels = _labels(cases)
    rows = [[case["name"], *(_cell(_by_label(case).get(label)) for label in labels)] for case in cases]
    figures = [case.get("figures", {}) for case in cases]
    cells = sum(len(case["entries"]) for case in cases)
    refused = sum(bool(entry.get("left_out")) for case in cases for entry in case["entries"])
    written, unproved, wrong = (
        int(sum(f.get(name, 0) for f in figures))
        for name in (
            "cells with a write seen or not",
            "cells without a proof",
            "cells where explain and the proof differ",
        )
    )
    text = (
        "1,000 elements of float32, one column of a table, in memory at a multiple of 64 bytes, so that "
        "what can alias does. *Copies* is said where it copies. Each cell was proved before it was timed: "
        "the memory of both sides was compared, and where the source can be written, a write was looked "
        f"for on the other side. Of {cells} cells {written} have a write in their proof, {unproved} have no "
        f"proof (a query has no memory before it has run), {refused} are refused; in {wrong} `explain` says "
        "otherwise."
    )
    alt = "The time of one conversion from each framework to each other one, and which of them copy"
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
    # A copy grows with the size, and stands below what does not.
    cases = sorted(cases, key=lambda case: best(case, "ours") is None)
    labels = _labels(cases)
    rows = [[case["name"], *(_cell(_by_label(case).get(label)) for label in labels)] for case in cases]
    copied = any(best(case, "reference") for case in cases)
    text = "Nothing is copied, so the size does not matter."
    if copied:
        alt = "The time of a conversion against the size of the array, beside that of an ordinary copy"
        text += f" The last row is an ordinary copy of as many bytes.\n\n{picture('conversion-sizes', alt)}"
    return f"\n## Cost against size\n\n{text}\n\n" + table(["pair", *labels], rows)


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
        "A dict of arrays of 1,000 float32, in one call. By hand it is a comprehension or a map over the "
        "tree with the pair's own function, for which all leaves are of one framework; ours looks at each "
        "leaf for what it is, and into containers of any depth."
    )
    return f"\n## Containers\n\n{text}\n\n" + table(heads, rows)


def _dtypes(cases: Cases) -> str:
    labels = _labels(cases)
    rows = [[case["name"], *(_cell(_by_label(case).get(label)) for label in labels)] for case in cases]
    head = "\n## Dtypes\n\n1,000 elements of each, and below it the call that the target documents. "
    parts = [
        head + "A dash: it does not carry the dtype, or changes it.\n\n" + table(["pair", *labels], rows)
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
        heads = ["pair", "dtypes, and what the documented call does with them"]
        parts.append("\nWhat zerocopy alone carries:\n\n" + table(heads, alone))
    return "\n".join(parts)


#: What is in an expression of a library, and what the library is called.
_LIBRARIES = {
    "tvm_ffi.": "tvm-ffi: `from_dlpack`",
    "move_to(": "scikit-learn: `move_to`",
    "xp_": "array-api-compat: `asarray`",
}


def _rivals(data: dict[str, Any]) -> list[str]:
    rows = []
    for case in _cases(data, "pairs"):
        ours = best(case, "ours")
        found: dict[str, str] = {}
        for entry in case["entries"]:
            name = next((name for part, name in _LIBRARIES.items() if part in entry["label"]), "")
            if entry["role"] == "library" and name:
                found.setdefault(name, _against(entry, ours))
        rows.append([case["name"], time(ours), *(found.get(name, "") for name in _LIBRARIES.values())])
    text = (
        "The pairs again. Each library's time, and how many times ours that is. A dash: it cannot, or it "
        "copies. Nothing: it has no such target, or no method in from there. array-api-compat's `to_device` "
        "stays within one framework."
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
            "pydlpack gives any array a `__dlpack__`, in pure Python. It was run in a process of its own: "
            "it can keep the destructors of capsules that it has handed out, and says so at the end."
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
        "1,000 elements of float32 in CUDA memory, and to and from NumPy. The times are the host's, until "
        "the call returns. What the device does for it is in the last columns, between two events on its "
        "stream; JAX has streams of its own, and no such figure. No limit was set for these: the ratios are "
        "what to look at."
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
        "To and from NumPy, in memory that is not page-locked, from an idle device until the data are there. "
        "All of these copy."
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
    return "\n## Other calls\n\n" + table(["pair", "what", "time"], rows) if rows else ""


def _labels(cases: Cases) -> list[str]:
    return list(dict.fromkeys(entry["label"] for case in cases for entry in case["entries"]))


def _by_label(case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["label"]: entry for entry in case["entries"]}


def _cell(entry: dict[str, Any] | None) -> str:
    """Return a time and its note; a dash for what was left out, nothing for what was not asked."""
    if entry is None:
        return ""
    note = entry.get("note")
    return time(entry) + (f" ({note})" if note and entry.get("ns") else "")


def _remarks(cases: Cases) -> str:
    """What the table does not say: each remark once, and why a cell has a dash."""
    told: dict[str, list[str]] = {}
    for case in cases:
        for remark in case.get("remarks", []):
            told.setdefault(remark, []).append(case["name"])
        for entry in case["entries"]:
            if entry.get("left_out"):
                told.setdefault(f"`{entry['label']}`: {entry['left_out']}", []).append(case["name"])
    lines = [
        f"- {what}" + ("" if len(names) == len(cases) else f" ({', '.join(names)})")
        for what, names in told.items()
    ]
    return "\n\n" + "\n".join(lines) if lines else ""
