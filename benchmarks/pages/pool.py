"""The pages of the pool suite: host memory, and GPU memory."""

from __future__ import annotations

from typing import Any

from benchmarks.formats import format_quantity
from benchmarks.pages.words import goals, picture, rivals, speedup, table, time

TITLE = "Benchmarks of the pool"
ABOUT = "Gains and costs of one memory pool for all frameworks."
ON_GPU = "Gains of one memory pool for all frameworks, in GPU memory."

#: Replaces "All contenders of a row run in one process": a mode applies to a whole process.
CONTENDERS = "Each mode has a separate process, and the processes of a row take turns"

Case = dict[str, Any]

_PICTURE = "Speed of workloads with the pool relative to their speed without, for both modes of host memory"

_HOST = """\
## Host memory

The same line of code runs in three processes: one *without* a pool, one with `host="recycle"`, and one
with `host="aligned"`, which recycles too. Times are of one call; speeds are relative to the process
without a pool. Workloads of one group run in the same processes in sequence, so that each starts with
the heap that the one before left; several sets of processes take a part of the blocks each. torch has
one thread.
"""

_WHY = """
Workloads that are slower with the pool:

- **Small blocks, allocated and freed immediately.** Without a pool they take 100 to 200 ns, most of it
  in NumPy; the free lists of the C library change this by some tens of nanoseconds. With `aligned`, a
  block above 1 KB that is not 64-byte-aligned by chance is allocated a second time.
- **Zeros below 32 MiB.** Fresh pages are zero, but kept pages must be cleared: zeros that are filled
  afterwards are written twice.
- **Rows that vary between processes.** The address of the heap changes workloads on few megabytes by
  tens of percent, for the lifetime of a process. A goal that is missed in one run and met in another is
  of this kind. Arithmetic on pandas columns was slower in every run, for an unknown reason.
- **Memory.** Freed memory stays resident until `pool.trim()`: see the last table.
"""


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    sections = data["sections"]
    parts = [
        picture("pool", _PICTURE),
        goals(data, _WHY, speedups=True),
        _HOST,
        *_aligned(sections.get("pool/aligned")),
        *_recycle(sections.get("pool/recycle")),
    ]
    return [part.rstrip("\n") + "\n" for part in parts]


def on_gpu(data: dict[str, Any]) -> list[str]:
    """Return the GPU page after its head."""
    parts = [
        goals(data),
        rivals(data, "pool/device", "Device memory"),
        _rates(data["sections"]["pool/device"]),
    ]
    return [part.rstrip("\n") + "\n" for part in parts if part]


def _rates(cases: list[Case]) -> str:
    """Return figures other than times, such as rates and peak memory, and the remarks."""
    rows = [
        [case["name"], name, format_quantity(value, "bytes") if "bytes" in name else f"{value:,.1f}"]
        for case in cases
        for name, value in case.get("figures", {}).items()
    ]
    remarks = dict.fromkeys(line for case in cases for line in case.get("remarks", []))
    text = "\n".join(f"- {line}" for line in remarks)
    parts = [*([table(["case", "figure", "value"], rows)] if rows else []), *([text] if text else [])]
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
            rows.append([case["name"], time(plain), time(ours), speedup(ours, plain)])
    remarks = [line for case in cases for line in case.get("remarks", [])]
    heads = ["", "without", '`host="aligned"`', "speed"]
    return [
        "### NumPy to JAX\n\n" + table(heads, rows) + "\n\n" + "\n".join(f"> {line}" for line in remarks),
    ]


def _recycle(cases: list[Case] | None) -> list[str]:
    if not cases:
        return []
    rows, memory_rows = [], []
    for case in cases:
        if not case["entries"]:
            memory_rows.append(
                [case["name"], *(format_quantity(value, "bytes") for value in case["figures"].values())]
            )
            continue
        plain, *ours = case["entries"]
        rows.append([case["name"], time(plain)])
        for entry in ours:
            rows[-1] += [time(entry), speedup(entry, plain)]
    heads = ["workload", "without"]
    for entry in next(case for case in cases if case["entries"])["entries"][1:]:
        heads += [f"`{entry['label']}`", "speed"]
    parts = ["### Workloads\n\n" + table(heads, rows)]
    if memory_rows:
        names = next(case for case in cases if not case["entries"])["figures"]
        columns = [name.removeprefix("bytes ") for name in names]
        text = "Resident memory after the workloads of a group, minus that before them."
        parts.append(f"### Kept memory\n\n{text}\n\n" + table(["", *columns], memory_rows))
    return parts
