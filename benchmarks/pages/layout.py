"""The page of layouts: records to columns and back."""

from __future__ import annotations

from typing import Any

from benchmarks.pages.words import best, goals, picture, ratio, table, time

TITLE = "Benchmarks of layouts"
ABOUT = "What it costs to turn records into columns and back, beside copies and what people call today."
ON_GPU = "What it costs a GPU to turn records into columns and back, beside a copy of its own memory."

#: What is asked of the speed against an ordinary copy where cores share no method to the memory.
COLUMNS_APART, ROWS_APART = 0.95, 0.8

Case = dict[str, Any]
Entry = dict[str, Any]

_COMPARED = """\
## What is compared

GB/s counts the bytes of the records once, in copies too; padding is a part of the records.
The records are {size} of random values. Input and output were touched before; the output
is used again unless a row says *fresh memory*: then each call takes it, writes it and gives it
back. The C library keeps arrays of up to 32 MiB for the next call; larger ones the system
clears anew. Each method has to give what NumPy gives, field by field, before it is timed.

- *Ordinary copy*: `np.copyto` of as many bytes as the records have, one part on each of
  {threads} threads.
- *Non-temporal copy*: the same parts, in lines of 64 bytes, with stores that go past the caches.
  It moves a third less: an ordinary store first fetches the line that it overwrites.

zerocopy takes as many threads as the copies, and so does a Numba loop with `parallel=True`.

"""

_PICTURE = "GB/s of zerocopy, of copies, and of other methods, for each type of records, in both directions"

_WHY = f"""
The limits against an ordinary copy are for cores that share one method to the memory, where
stores that go past the caches gain the most. Where each core has its own,
{COLUMNS_APART} times an ordinary copy is asked to columns, and {ROWS_APART} times to rows.

Where a goal is missed, and why:

- **Few records.** Below some thousands the time is Python's, not the memory's. NumPy moves them in
  either case; what is added are memory at multiples of 64 bytes, the look at what `out` is, and a
  dict: some microseconds a call, and about one a field.
- **Text and short arrays** (S10, 3 x f4) are no groups that are transposed in registers. They are put
  side by side in the first cache, value by value, and leave it in full lines.
- **Wide and mixed records on the method back** are stored field by field into records that lie across the
  lines of the cache: it is the stores, one a field, that take the time.
"""


def body(data: dict[str, Any]) -> list[str]:
    """Return the parts of the page after its head."""
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
    """Return the parts of the page of a GPU after its head."""
    parts = [goals(data), *_gpu(data["sections"]["layout/gpu"], data["goals"])]
    return [part.rstrip("\n") + "\n" for part in parts if part]


def _compared(data: dict[str, Any]) -> str:
    (first, *_) = data["sections"]["layout/to-columns"]
    size = first["figures"]["bytes a record"] * first["figures"]["records"] / 2**20
    told = _COMPARED.format(size=f"{size:.0f} MiB", threads=data["machine"]["threads"])
    return told + picture("layouts", _PICTURE)


def _moves(cases: list[Case] | None, title: str) -> list[str]:
    """Ours and the copies, a row a type of records; then all methods; then who was left out."""
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
    heads = ["records", "zerocopy, GB/s", *(f"to the {name}" for name in copies), "to the next best"]
    return [
        f"## {title}\n\nSpeed, and how many times that of others it is.\n\n{table(heads, rows)}",
        f"### {title}: all methods, in GB/s\n\n{_all_ways(cases)}",
        _left_out(cases),
    ]


def _all_ways(cases: list[Case]) -> str:
    """A row a method, a column a type of records."""
    labels = {entry["label"]: entry for case in cases for entry in case["entries"]}
    rows = []
    for label, entry in labels.items():
        found = [next((e for e in case["entries"] if e["label"] == label), None) for case in cases]
        rows.append(
            [f"`{label}`", entry.get("note", ""), *(_rate(c, e) for c, e in zip(cases, found, strict=True))]
        )
    return table(["", "", *(case["name"] for case in cases)], rows)


def _left_out(cases: list[Case]) -> str:
    said: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        for entry in case["entries"]:
            if entry.get("left_out"):
                said.setdefault((entry["label"], entry["left_out"]), []).append(case["name"])
    lines = [f"- `{label}`: {why} ({'; '.join(names)})." for (label, why), names in said.items()]
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
    told = (
        "GB/s, and how many times `r.copy()` it is: memory is taken and given back in each\n"
        "call. `raw.copy()` is of the same bytes as an array of bytes, which NumPy copies faster."
    )
    return [f"## Fresh memory\n\n{told}\n\n{table(heads, rows)}"]


def _fields(cases: list[Case] | None) -> list[str]:
    if not cases:
        return []
    labels = [f"`{entry['label']}`" for entry in cases[0]["entries"]]
    rows = [[case["name"], *(time(entry) for entry in case["entries"])] for case in cases]
    notes = ["", *(entry.get("note", "").partition(":")[0] for entry in cases[0]["entries"])]
    return [f"## Some of the fields\n\n{table(['', *labels], [notes, *rows])}"]


def _sizes(cases: list[Case] | None) -> list[str]:
    """Times, and after each pair the ratio."""
    if not cases:
        return []
    heads: list[str] = []
    for ours, theirs in _pairs(cases[0]["entries"]):
        heads += [f"`{ours['label']}`", theirs["label"], "times NumPy's"]
    rows = []
    for case in cases:
        rows.append([case["name"]])
        for ours, theirs in _pairs(case["entries"]):
            rows[-1] += [time(ours), time(theirs), ratio(ours, theirs)]
    return [f"## Few records and many: a particle of 59 bytes\n\n{table(['', *heads], rows)}"]


def _pairs(entries: list[Entry]) -> list[tuple[Entry, Entry]]:
    return list(zip(entries[::2], entries[1::2], strict=True))


def _start(cases: list[Case] | None) -> list[str]:
    if not cases:
        return []
    rows = [[f"`{entry['label']}`", time(entry)] for case in cases for entry in case["entries"]]
    rows += [[name, f"{value:.0f}"] for case in cases for name, value in case["figures"].items()]
    told = "In a fresh process, with the kernels' machine code on disk."
    return [f"## The first call\n\n{told}\n\n{table(['', 'time'], rows)}"]


def _gpu(cases: list[Case], judged: list[dict[str, Any]]) -> list[str]:
    """Rates, and of the methods that have a goal how much of the copy they reach, and what is asked."""
    asked = {goal["case"]: 1 / goal["limit"] for goal in judged}
    labels = list(dict.fromkeys(entry["label"] for case in cases for entry in case["entries"]))
    ours = {e["label"] for case in cases for e in case["entries"] if e["role"] == "ours"}
    heads = ["records"]
    for label in labels:
        heads += [f"`{label}`", *(["of the copy", "asked"] if label in ours else [])]
    rows = []
    for case in cases:
        rows.append([case["name"]])
        copied = best(case, "reference")
        for label in labels:
            entry = next((each for each in case["entries"] if each["label"] == label), None)
            rows[-1].append(_rate(case, entry))
            if label in ours:
                limit = asked.get(f"{case['name']} {label}")
                rows[-1] += [_times(entry, copied) if entry and entry.get("ns") else "-"]
                rows[-1] += [f"{limit:.2f}x" if limit else "-"]
    told = "By the device's own clock. The bytes of the records count once, in the copy too."
    left_out = [_left_out(cases)] if _left_out(cases) else []
    return [f"## On the device, in GB/s\n\n{told}\n\n{table(heads, rows)}", *left_out]


def _of(case: Case, *roles: str) -> list[Entry]:
    return [entry for entry in case["entries"] if entry["role"] in roles]


def _rate(case: Case, entry: Entry | None) -> str:
    if not entry or not entry.get("ns"):
        return "-"
    nbytes = case["figures"]["bytes a record"] * case["figures"]["records"]
    return f"{nbytes / entry['ns']['median']:.1f}"


def _times(ours: Entry, other: Entry | None) -> str:
    """Return how many times as fast ours is."""
    if not other or not other.get("ns"):
        return "-"
    return f"{other['ns']['median'] / ours['ns']['median']:.2f}x"
