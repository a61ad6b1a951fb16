"""The pages of pools: host memory, and the memory of a GPU."""

from __future__ import annotations

from typing import Any

from benchmarks.pages.words import goals, picture, ratio, rivals, table, time
from benchmarks.report import format_quantity

TITLE = "Benchmarks of the pool"
ABOUT = "What one memory pool under every framework gains, and what it costs."
ON_GPU = "What one memory pool under every framework gains for the memory of a GPU."

#: What is said in place of "all contenders run in one process": a mode is the process's.
CONTENDERS = "Each mode has a process of its own, and the processes of a row take turns"

Case = dict[str, Any]

_PICTURE = (
    "Time of each load with the pool over its time without, for both modes of host memory, on a log scale"
)

_HOST = """\
## Host memory

The same line runs in three processes: one as it is (*without*), one with `host="recycle"`, one with
`host="aligned"`, which recycles too. Times are of one call; a ratio below 1x is faster than
without. Loads of one group run in the same processes, one after the other, so that what one leaves
in the heap is there for the next; several sets of processes take a part of the blocks each. torch
has one thread here.
"""

_WHY = """
The limits are times over times: 0.20x is five times as fast. What loses, and why:

- **Small blocks, allocated and dropped at once.** Time without is some 100 to 200 ns, nearly all of
  it NumPy's; what the C library has in its free lists moves it by some tens of nanoseconds either
  method. With `aligned`, a block above 1 KB that does not fall on a multiple of 64 by itself is
  asked for a second time.
- **Zeros below 32 MiB.** Fresh pages are zero, kept ones are written first: so zeros that are filled
  afterwards are written twice.
- **Rows that differ by a process's luck.** Where the heap of a process lies makes tens of percent in
  loads that touch few megabytes, and stays for its life. A row that is missed here and kept in another
  run is of that kind; arithmetic of pandas' columns was slower in each of ours, and why is not known.
- **Memory.** What was freed stays resident until `pool.trim()`: see the last table.
"""


def body(data: dict[str, Any]) -> list[str]:
    """Return the parts of the page after its head."""
    sections = data["sections"]
    parts = [
        picture("pool", _PICTURE),
        goals(data, _WHY),
        _HOST,
        *_aligned(sections.get("pool/aligned")),
        *_recycle(sections.get("pool/recycle")),
    ]
    return [part.rstrip("\n") + "\n" for part in parts]


def on_gpu(data: dict[str, Any]) -> list[str]:
    """Return the parts of the page of a GPU after its head."""
    parts = [
        goals(data),
        rivals(data, "pool/device", "Device memory"),
        _seen(data["sections"]["pool/device"]),
    ]
    return [part.rstrip("\n") + "\n" for part in parts if part]


def _seen(cases: list[Case]) -> str:
    """What was measured beside times: rates, memory at the peak; and what the pool said."""
    rows = [
        [case["name"], name, format_quantity(value, "bytes") if "bytes" in name else f"{value:,.1f}"]
        for case in cases
        for name, value in case.get("figures", {}).items()
    ]
    remarks = dict.fromkeys(line for case in cases for line in case.get("remarks", []))
    told = "\n".join(f"- {line}" for line in remarks)
    parts = [*([table(["", "what", "how much"], rows)] if rows else []), *([told] if told else [])]
    return "## Rates and memory\n\n" + "\n\n".join(parts) if parts else ""


def _aligned(cases: list[Case] | None) -> list[str]:
    if not cases:
        return []
    rows = []
    for case in cases:
        figures = dict(case.get("figures", {}))
        count = figures.pop("arrays", None)
        if count is not None:
            rows.append([case["name"], *(f"{value:.0f} of {count:.0f}" for value in figures.values()), ""])
        else:
            plain, ours = case["entries"]
            rows.append([case["name"], time(plain), time(ours), ratio(ours, plain)])
    told = [line for case in cases for line in case.get("remarks", [])]
    heads = ["", "without", '`host="aligned"`', "times without"]
    return [
        "### NumPy to JAX\n\n" + table(heads, rows) + "\n\n" + "\n".join(f"> {line}" for line in told),
    ]


def _recycle(cases: list[Case] | None) -> list[str]:
    if not cases:
        return []
    rows, kept = [], []
    for case in cases:
        if not case["entries"]:
            kept.append(
                [case["name"], *(format_quantity(value, "bytes") for value in case["figures"].values())]
            )
            continue
        plain, *ours = case["entries"]
        rows.append([case["name"], time(plain)])
        for entry in ours:
            rows[-1] += [time(entry), ratio(entry, plain)]
    heads = ["load", "without"]
    for entry in next(case for case in cases if case["entries"])["entries"][1:]:
        heads += [f"`{entry['label']}`", "times without"]
    parts = ["### Loads\n\n" + table(heads, rows)]
    if kept:
        names = next(case for case in cases if not case["entries"])["figures"]
        columns = [name.removeprefix("bytes ") for name in names]
        told = "Resident memory after the loads of a group, beyond what was resident before them."
        parts.append(f"### Memory that is kept\n\n{told}\n\n" + table(["", *columns], kept))
    return parts
