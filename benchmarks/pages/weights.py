"""The page of the weights suite."""

from __future__ import annotations

from typing import Any

from benchmarks.formats import format_duration, format_quantity
from benchmarks.pages.words import goals, table
from benchmarks.results import read_case
from benchmarks.suite import Case, median
from benchmarks.weights.loading import COPIED, COUNT, LIBRARY, NBYTES, OURS, PEAK

TITLE = "Benchmarks of weights"
ABOUT = f"A model of {COUNT} float32 tensors, from a file in the page cache."

_UNITS = """\
*library* is `load_file` of `safetensors.torch`, `safetensors.flax` and `safetensors.numpy`, `safe_open` for
the first tensor, and `numpy.load` for the archive. *load* is `zc.load`. The tensors of the file start at 8
bytes after a multiple of 64, so that JAX copies them; the aligned file was written by `zerocopy align`. A
tensor of torch or NumPy that aliases the file is read when it is used: the rows with sums show that time too.
"""
_MEMORY = """\
The growth of the peak of resident memory while a fresh process loads all tensors and sums them. Pages of a
mapped file count, although the page cache shares them with other processes.
"""


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    sections = {name: [read_case(case) for case in cases] for name, cases in data["sections"].items()}
    heads = ["tensors", LIBRARY, OURS, "ratio", "bytes copied by load"]
    sizes = data["settings"]["sizes"]
    size = f"{sizes[0] >> 20:,} MiB (`--sizes {sizes[0] >> 20}MiB`)" if sizes else f"{NBYTES >> 20} MiB"
    parts = [f"The file has {size}.\n\n{_UNITS}", goals(data)]
    parts.append(f"## Time\n\n{table(heads, [_row(case) for case in sections['weights/loading']])}\n")
    peaks = [_peaks(case) for case in sections.get("weights/memory", [])]
    if peaks:
        parts.append(f"## Memory\n\n{_MEMORY}\n{table(['tensors', LIBRARY, OURS], peaks)}\n")
    return parts


def _row(case: Case) -> list[str]:
    times = {entry.label: median(entry) for entry in case.timed()}
    ours, library = times[OURS], times[LIBRARY]
    copied = format_quantity(case.figures[COPIED], "bytes")
    return [case.name, format_duration(library), format_duration(ours), f"{ours / library:.2f}x", copied]


def _peaks(case: Case) -> list[str]:
    return [case.name, *(format_quantity(case.figures[f"{PEAK}, {who}"], "bytes") for who in (LIBRARY, OURS))]
