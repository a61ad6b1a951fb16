"""The compiled core: the time of each pair relative to the fastest code by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.conversion import goals
from benchmarks.plots import style
from benchmarks.results import Results

_ROW = 0.19  # inches
_TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)


def draw(results: Results) -> Any:
    """Draw a row for each pair, by target: with the compiled core, and in pure Python."""
    rows = []
    for case in results.cases["conversion/core"]:
        ours, pure = goals.ratio(case, goals.BY_HAND), goals.ratio(case, goals.PURE)
        if case.name in goals.PAIRS and ours is not None:
            # In pure Python relative to the code by hand: both have zerocopy's time as numerator.
            rows.append((case.name, ours, ours / pure if results.compiled and pure else None))
    rows.sort(key=lambda row: goals.FRAMEWORKS.index(row[0].partition(" -> ")[2]))
    figure = style.new_figure(_ROW * len(rows) + 1.8)
    style.reserve(figure, above=0.55, below=0.4)
    axis = figure.subplots()
    axis.set_xscale("log")
    series: list[tuple[str, str, list[tuple[int, float]]]] = [
        ("pure Python", style.NEUTRAL, [(i, pure) for i, (_, _, pure) in enumerate(rows) if pure]),
        (
            "compiled core" if results.compiled else "pure Python",
            style.OURS,
            [(i, ours) for i, (_, ours, _) in enumerate(rows)],
        ),
    ]
    for label, color, points in series:
        if points:
            y, x = zip(*points, strict=True)
            axis.plot(x, y, linestyle="none", marker="o", markersize=5, color=color, label=label, zorder=3)
    axis.axvline(1.0, color=style.OTHER, linewidth=1.2)
    axis.annotate(
        "by hand",
        (1.0, 1.0),
        (4, 2),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        color=style.OTHER,
        fontweight="bold",
    )
    axis.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    style.plain(axis, "both")
    style.multiples(axis, _TICKS)
    axis.legend(loc="lower left", ncols=2, bbox_to_anchor=(-0.02, 1.0), handletextpad=0.2)
    style.head(
        figure,
        "zerocopy.convert(x, to=...): time relative to the fastest code by hand",
        "x: 1,000 float32 values, 64-byte-aligned. Less is better.",
    )
    style.footer(figure, results, "torch", "jax", "tensorflow", "pyarrow")
    return figure
