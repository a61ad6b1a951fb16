"""Throughput by layout: records to columns and back, beside copies and other ways."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from benchmarks.plots import style
from benchmarks.results import Results
from benchmarks.suite import Case, median

#: By the names of ways. What belongs together has one colour, the one in fresh memory a lighter tone.
COLORS = {
    "zerocopy": style.OURS,
    "zerocopy, fresh memory": "#f5a56c",
    "ordinary copy": "#7d858c",
    "non-temporal copy": "#aab2b9",
    **dict.fromkeys(("np.copyto per field", "assignment per field"), "#2f6fb0"),
    **dict.fromkeys(("np.ascontiguousarray per field", "np.rec.fromarrays"), "#6fa8dc"),
    **dict.fromkeys(("structured_to_unstructured, np.copyto", "unstructured_to_structured"), "#2f9e44"),
    "structured_to_unstructured": "#74c686",
    "Numba loop": "#8a63c9",
    "Numba loop, parallel": "#bd9be0",
    **dict.fromkeys(("pandas.DataFrame", "pandas.DataFrame.to_records"), "#b8860b"),
    **dict.fromkeys(("polars.from_numpy", "polars.DataFrame.to_numpy"), "#d6ab3c"),
    "pyarrow per field": "#17a2b8",
}

_BARS, _KEYS, _COLUMNS = 2.6, 0.17, 3  # inches of a panel, of a line of its legend


def draw(found: Results) -> Any:
    """Draw both directions, one above the other."""
    # Here, so that other pictures are drawn without loading what is timed.
    from benchmarks.layout.moves import TO_COLUMNS, TO_ROWS

    directions = (
        ("layout/to-columns", "Records to columns (AoS to SoA)", TO_COLUMNS),
        ("layout/to-rows", "Columns to records (SoA to AoS)", TO_ROWS),
    )
    panels = [
        (found.cases[key], title, ways)
        for key, title, ways in directions
        if any(case.timed() for case in found.cases.get(key, ()))
    ]
    heights = [_BARS + 0.55 + _KEYS * -(-len(ways) // _COLUMNS) for *_, ways in panels]
    figure = style.sheet(sum(heights) + 1.1)
    style.place(figure, above=0.62, below=0.4)
    axes = figure.subplots(len(panels), 1, squeeze=False, sharey=True)[:, 0]
    for axis, (cases, title, ways) in zip(axes, panels, strict=True):
        _panel(axis, cases, title, [(way.code, way.name) for way in ways])
    style.head(
        figure,
        "Throughput by layout, in GB/s",
        "More is better. Bytes of the records count once, in copies too; a way that cannot has no bar.",
    )
    style.footer(figure, found, "numba", "pandas", "polars", "pyarrow")
    return figure


def _panel(axis: Any, cases: Sequence[Case], title: str, ways: Sequence[tuple[str, str]]) -> None:
    """Draw a group of bars a type of records; a way that was left out leaves its place empty."""
    width = 0.88 / len(ways)
    for i, (label, name) in enumerate(ways):
        places, rates = [], []
        for group, case in enumerate(cases):
            entry = next((entry for entry in case.timed() if entry.label == label), None)
            if entry is not None:
                places.append(group - 0.44 + (i + 0.5) * width)
                rates.append(case.figures["bytes a record"] * case.figures["records"] / median(entry))
        axis.bar(places, rates, width * 0.94, label=name, color=COLORS[name])
        if not i:
            for place, rate in zip(places, rates, strict=True):
                # To the left, where the bars of the group before are low.
                at = (place + width / 2, rate)
                axis.annotate(f"{rate:.1f}", at, ha="right", va="bottom", fontsize=7.5, color=COLORS[name])
    axis.set_title(title)
    axis.set_ylabel("GB/s")
    axis.set_xticks(range(len(cases)), [_broken(case.name) for case in cases], fontsize=7.5)
    axis.set_xlim(-0.7, len(cases) - 0.45)
    axis.tick_params(axis="both", length=0)
    axis.grid(axis="y")
    axis.spines["left"].set_visible(False)
    keys = {"ncols": _COLUMNS, "handlelength": 1.2, "handleheight": 0.7, "labelspacing": 0.35}
    axis.legend(loc="upper left", bbox_to_anchor=(-0.04, -0.19), fontsize=8, columnspacing=1.2, **keys)


def _broken(name: str) -> str:
    """Break the name of a type of records so that its neighbours have room."""
    fields, bracket, size = name.partition(" (")
    return "\n".join([*wrap(fields, 13), *[f"({size}"] * bool(bracket)])
