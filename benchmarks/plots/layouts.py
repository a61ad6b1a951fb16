"""Throughput by record type, in both directions: zerocopy, a copy, Numba and NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from benchmarks.plots import style
from benchmarks.results import Results
from benchmarks.suite import Case, median

#: The series, by the names of methods, each with its colour. The page has all contenders.
COLORS = {
    "zerocopy": style.OURS,
    "ordinary copy": style.NEUTRAL,
    "Numba loop, parallel": "#8a63c9",
    **dict.fromkeys(("np.copyto per field", "assignment per field"), style.OTHER),
}

_BARS, _KEYS = 2.2, 0.17  # inches of a panel and of its legend


def draw(results: Results) -> Any:
    """Draw both directions, one above the other."""
    # Imported here: other pictures are drawn without the modules that are timed.
    from benchmarks.layout.moves import TO_COLUMNS, TO_ROWS

    directions = (
        ("layout/to-columns", "Records to columns (AoS to SoA)", TO_COLUMNS),
        ("layout/to-rows", "Columns to records (SoA to AoS)", TO_ROWS),
    )
    panels = [
        (results.cases[key], title, [method for method in methods if method.name in COLORS])
        for key, title, methods in directions
        if any(case.timed() for case in results.cases.get(key, ()))
    ]
    figure = style.new_figure((_BARS + 0.55 + _KEYS) * len(panels) + 1.4)
    style.reserve(figure, above=0.95, below=0.4)
    axes = figure.subplots(len(panels), 1, squeeze=False, sharey=True)[:, 0]
    for axis, (cases, title, methods) in zip(axes, panels, strict=True):
        _panel(axis, cases, title, [(method.code, method.name) for method in methods])
    style.head(
        figure,
        "Throughput by record type, in GB/s",
        "More is better. The bytes of the records count once, in the copy too.\n"
        "No bar: the method does not support this type. The page has all methods, among\n"
        "them a non-temporal copy, which transfers a third less than an ordinary one.",
    )
    style.footer(figure, results, "numba")
    return figure


def _panel(axis: Any, cases: Sequence[Case], title: str, methods: Sequence[tuple[str, str]]) -> None:
    """Draw a group of bars for each type of records; a method that was left out leaves a gap."""
    width = 0.88 / len(methods)
    for i, (label, name) in enumerate(methods):
        positions, rates = [], []
        for group, case in enumerate(cases):
            entry = next((entry for entry in case.timed() if entry.label == label), None)
            if entry is not None:
                positions.append(group - 0.44 + (i + 0.5) * width)
                rates.append(case.figures["bytes a record"] * case.figures["records"] / median(entry))
        axis.bar(positions, rates, width * 0.94, label=name, color=COLORS[name])
        if not i:
            for position, rate in zip(positions, rates, strict=True):
                at = (position, rate)
                axis.annotate(f"{rate:.1f}", at, ha="center", va="bottom", fontsize=7.5, color=COLORS[name])
    axis.set_title(title)
    axis.set_ylabel("GB/s")
    axis.set_xticks(range(len(cases)), [_wrapped(case.name) for case in cases], fontsize=7.5)
    axis.set_xlim(-0.7, len(cases) - 0.45)
    axis.tick_params(axis="both", length=0)
    axis.grid(axis="y")
    axis.spines["left"].set_visible(False)
    keys = {"ncols": len(methods), "handlelength": 1.2, "handleheight": 0.7, "columnspacing": 1.6}
    axis.legend(loc="upper left", bbox_to_anchor=(-0.04, -0.22), fontsize=8, **keys)


def _wrapped(name: str) -> str:
    """Break the name of a record type into lines that fit below its group."""
    fields, bracket, size = name.partition(" (")
    return "\n".join([*wrap(fields, 13), *[f"({size}"] * bool(bracket)])
