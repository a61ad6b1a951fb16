"""The page of the layout suite."""

from __future__ import annotations

from typing import Any

from benchmarks.pages.words import best, goals, picture, ratio, table, time

TITLE = "Benchmarks of layouts"
ABOUT = "Records to columns and back, compared with copies and with other methods."
ON_GPU = "Records to columns and back on a GPU, compared with a copy on the device."

#: Goals relative to an ordinary copy, on machines whose cores do not share memory bandwidth.
COLUMNS_APART, ROWS_APART = 0.95, 0.8

Case = dict[str, Any]
Entry = dict[str, Any]

_COMPARED = """\
## What is compared

GB/s counts the bytes of the records once, in copies too; padding is part of the records.
The records are {size} of random values. Input and output have been written to before. The output
is reused, except in rows with *fresh memory*, where each call allocates, writes and frees it.
The C library keeps freed arrays of up to 32 MiB for the next call; the system clears larger ones
again. Before a method is timed, its result is compared with that of NumPy, field by field.

- *Ordinary copy*: `np.copyto` of the bytes of the records, one part on each of {threads} threads.
- *Non-temporal copy*: the same parts, in lines of 64 bytes, with stores that bypass the caches.
  It transfers a third less: an ordinary store first reads the line that it overwrites.

zerocopy uses as many threads as the copies, and so does a Numba loop with `parallel=True`.

"""

#: For results that are older than the C code which copies records.
_BY_OLD_KERNELS = """\
These figures are older than the C code that copies records: in this run Numba compiled zerocopy's
kernels, and their machine code was kept on disk.

"""

_PICTURE = "GB/s of zerocopy, a copy, NumPy and Numba, for each record type, in both directions"

_WHY = f"""
The limits relative to an ordinary copy are for machines whose cores share memory bandwidth, where
non-temporal stores gain the most. On machines where each core has separate bandwidth, the limits
are {COLUMNS_APART} times an ordinary copy to columns, and {ROWS_APART} times to rows.

Why goals are missed:

- **Few records.** Below some thousands of records most of the time is spent in Python. NumPy moves the
  bytes in either case; zerocopy adds 64-byte-aligned allocation, checks of `out` and a dict: some
  microseconds for a call, and about one for each field.
- **Text and short arrays** (S10) cannot be transposed in registers. zerocopy collects them value
  by value in the L1 cache, and writes full lines.
- **Wide and mixed records to rows** are stored field by field into records that cross cache lines. The
  stores, one for each field, take most of the time.
"""


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    sections = data["sections"]
    parts = [
        _compared(data),
        goals(data, _WHY),
        *_moves(sections.get("layout/to-columns"), "Records to columns"),
        *_moves(sections.get("layout/to-rows"), "Columns to records"),
        *_fresh(sections.get("layout/fresh")),
        *_fields(sections.get("layout/fields")),
        *_sizes(sections.get("layout/sizes")),
        *_start(sections.get("layout/start")),
    ]
    return [part.rstrip("\n") + "\n" for part in parts]


def on_gpu(data: dict[str, Any]) -> list[str]:
    """Return the GPU page after its head."""
    parts = [goals(data), *_gpu(data["sections"]["layout/gpu"], data["goals"])]
    return [part.rstrip("\n") + "\n" for part in parts if part]


def _compared(data: dict[str, Any]) -> str:
    (first, *_) = data["sections"]["layout/to-columns"]
    size = first["figures"]["bytes a record"] * first["figures"]["records"] / 2**20
    text = _COMPARED.format(size=f"{size:.0f} MiB", threads=data["machine"]["threads"])
    if "columns_by_numba(r, o)" not in {entry["label"] for entry in first["entries"]}:
        text = _BY_OLD_KERNELS + text
    return text + picture("layouts", _PICTURE)


def _moves(cases: list[Case] | None, title: str) -> list[str]:
    """Return zerocopy and the copies by record type; then all methods; then those left out."""
    if not cases:
        return []
    rows = []
    for case in cases:
        ours, other = case["entries"][0], best(case, "idiom", "library")
        rows.append(
            [
                case["name"],
                _rate(case, ours),
                *(_times(ours, copied) for copied in _of(case, "reference")),
                f"{_times(ours, other)} `{other['label']}`" if other else "-",
            ]
        )
    copies = [entry["note"].partition(":")[0] for entry in _of(cases[0], "reference")]
    heads = ["records", "zerocopy, GB/s", *(f"to the {name}" for name in copies), "to the fastest other"]
    return [
        f"## {title}\n\nSpeed of zerocopy, and its ratio to the speed of others.\n\n{table(heads, rows)}",
        f"### {title}: all methods, in GB/s\n\n{_all_ways(cases)}",
        _left_out(cases),
    ]


def _all_ways(cases: list[Case]) -> str:
    """Return a row for each method and a column for each record type."""
    labels = {entry["label"]: entry for case in cases for entry in case["entries"]}
    rows = []
    for label, entry in labels.items():
        entries = [next((e for e in case["entries"] if e["label"] == label), None) for case in cases]
        rows.append(
            [f"`{label}`", entry.get("note", ""), *(_rate(c, e) for c, e in zip(cases, entries, strict=True))]
        )
    return table(["method", "note", *(case["name"] for case in cases)], rows)


def _left_out(cases: list[Case]) -> str:
    reasons: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        for entry in case["entries"]:
            if entry.get("left_out"):
                reasons.setdefault((entry["label"], entry["left_out"]), []).append(case["name"])
    lines = [f"- `{label}`: {why} ({'; '.join(names)})." for (label, why), names in reasons.items()]
    return "Left out:\n\n" + "\n".join(lines) if lines else ""


def _fresh(cases: list[Case] | None) -> list[str]:
    if not cases:
        return []
    rows = []
    for case in cases:
        ours, (copied, *others) = _of(case, "ours"), _of(case, "reference")
        rows.append([case["name"], *(f"{_rate(case, e)} ({_times(e, copied)})" for e in ours)])
        rows[-1] += [_rate(case, entry) for entry in (copied, *others)]
    heads = ["records", *(f"`{entry['label']}`" for entry in cases[0]["entries"])]
    text = (
        "GB/s, and the ratio to `r.copy()`. Each call allocates and frees memory.\n"
        "`raw.copy()` copies the same bytes as an array of bytes, which is faster in NumPy."
    )
    return [f"## Fresh memory\n\n{text}\n\n{table(heads, rows)}"]


def _fields(cases: list[Case] | None) -> list[str]:
    if not cases:
        return []
    labels = [f"`{entry['label']}`" for entry in cases[0]["entries"]]
    rows = [[case["name"], *(time(entry) for entry in case["entries"])] for case in cases]
    notes = ["", *(entry.get("note", "").partition(":")[0] for entry in cases[0]["entries"])]
    return [f"## Selected fields\n\n{table(['', *labels], [notes, *rows])}"]


def _sizes(cases: list[Case] | None) -> list[str]:
    """Return times, and the ratio of each pair."""
    if not cases:
        return []
    heads: list[str] = []
    for ours, theirs in _pairs(cases[0]["entries"]):
        heads += [f"`{ours['label']}`", theirs["label"], "to NumPy"]
    rows = []
    for case in cases:
        rows.append([case["name"]])
        for ours, theirs in _pairs(case["entries"]):
            rows[-1] += [time(ours), time(theirs), ratio(ours, theirs)]
    return [f"## By number of records: a particle of 59 bytes\n\n{table(['', *heads], rows)}"]


def _pairs(entries: list[Entry]) -> list[tuple[Entry, Entry]]:
    return list(zip(entries[::2], entries[1::2], strict=True))


def _start(cases: list[Case] | None) -> list[str]:
    if not cases:
        return []
    rows = [[f"`{entry['label']}`", time(entry)] for case in cases for entry in case["entries"]]
    rows += [[name, f"{value:.0f}"] for case in cases for name, value in case["figures"].items()]
    text = "In a fresh process, which has imported NumPy."
    return [f"## The first call\n\n{text}\n\n{table(['', 'time'], rows)}"]


def _gpu(cases: list[Case], judged: list[dict[str, Any]]) -> list[str]:
    """Return rates, and for methods with a goal their ratio to the copy and the limit."""
    limits = {goal["case"]: 1 / goal["limit"] for goal in judged}
    labels = list(dict.fromkeys(entry["label"] for case in cases for entry in case["entries"]))
    ours = {e["label"] for case in cases for e in case["entries"] if e["role"] == "ours"}
    heads = ["records"]
    for label in labels:
        heads += [f"`{label}`", *(["to the copy", "limit"] if label in ours else [])]
    rows = []
    for case in cases:
        rows.append([case["name"]])
        copied = best(case, "reference")
        for label in labels:
            entry = next((each for each in case["entries"] if each["label"] == label), None)
            rows[-1].append(_rate(case, entry))
            if label in ours:
                limit = limits.get(f"{case['name']} {label}")
                rows[-1] += [_times(entry, copied) if entry and entry.get("ns") else "-"]
                rows[-1] += [f"{limit:.2f}x" if limit else "-"]
    text = "Timed by events of the device. The bytes of the records count once, in the copy too."
    left_out = [_left_out(cases)] if _left_out(cases) else []
    return [f"## On the device, in GB/s\n\n{text}\n\n{table(heads, rows)}", *left_out]


def _of(case: Case, *roles: str) -> list[Entry]:
    return [entry for entry in case["entries"] if entry["role"] in roles]


def _rate(case: Case, entry: Entry | None) -> str:
    if not entry or not entry.get("ns"):
        return "-"
    nbytes = case["figures"]["bytes a record"] * case["figures"]["records"]
    return f"{nbytes / entry['ns']['median']:.1f}"


def _times(ours: Entry, other: Entry | None) -> str:
    """Return how many times as fast zerocopy is."""
    if not other or not other.get("ns"):
        return "-"
    return f"{other['ns']['median'] / ours['ns']['median']:.2f}x"
