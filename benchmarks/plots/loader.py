"""Loader: the epochs of each contender as multiples of the bound, in a panel for each mode."""

from __future__ import annotations

from typing import Any

from benchmarks.loader.goals import FEWER, MODES, OURS, PROMISES
from benchmarks.loader.turns import TIMES
from benchmarks.plots import style
from benchmarks.results import Results
from benchmarks.suite import Case

_ROW, _PANEL = 0.19, 0.34  # inches
_TICKS = (0.1, 1, 2, 5, 10, 20, 50, 100)
#: Greater multiples are drawn as an arrow at the edge: one row would take a third of the scale.
_MOST = 100.0

#: A row: the contender, its ratio, and whether it is the loader.
Row = tuple[str, float, bool]


def draw(results: Results) -> Any:
    """Draw a panel for each mode, with a row for each contender."""
    sections = [results.cases.get(f"loader/{name}", []) for name in ("order", "shuffle")]
    cases = {case.name: case for section in sections for case in section}
    panels = {mode: rows for mode in MODES if (rows := _rows(cases, mode))}
    count = sum(map(len, panels.values()))
    figure = style.new_figure(_ROW * count + _PANEL * len(panels) + 1.35)
    style.reserve(figure, above=0.72, below=0.4)
    heights = [len(rows) + _PANEL / _ROW for rows in panels.values()]
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (mode, rows) in zip(axes, panels.items(), strict=True):
        _draw(axis, mode, rows)
    ratios = [ratio for rows in panels.values() for _, ratio, _ in rows]
    axes[-1].set_xlim(min(0.8, min(ratios) * 0.8), min(_MOST, max(ratios)) * 2)
    style.multiples(axes[-1], _TICKS)
    style.head(
        figure,
        "An epoch as a multiple of the time in which pyarrow reads the file",
        "Less is better. The line at 1x is pyarrow, which does nothing with the data; dashed: the goal.\n"
        "*: on a smaller file, as a multiple of its own bound."
        + " An arrow: beyond the scale."
        * (max(ratios) > _MOST),
    )
    style.footer(figure, results, "torch", "pyarrow", "polars", "datasets", "tensorflow")
    return figure


def _rows(cases: dict[str, Case], mode: str) -> list[Row]:
    """Return the contenders of a mode by their ratio; those of the smaller file without the loader."""
    rows = []
    for name, mark in ((mode, ""), (mode + FEWER, "*")):
        case = cases.get(name)
        for entry in case.timed("ours", "idiom", "library") if case else ():
            if entry.role != "ours" or (entry.label == OURS and not mark):
                rows.append((entry.label + mark, case.figures[TIMES + entry.label], entry.role == "ours"))
    return sorted(rows, key=lambda row: row[1])


def _draw(axis: Any, mode: str, rows: list[Row]) -> None:
    axis.set(xscale="log", ylim=(len(rows) - 0.4, -0.6), title=mode)
    for y, (_, ratio, ours) in enumerate(rows):
        color = style.OURS if ours else style.OTHER
        at, marker = (_MOST, ">") if ratio > _MOST else (ratio, "o" if ours else "D")
        axis.plot([1, at], [y, y], color=color, linewidth=1.2, alpha=0.6, zorder=2)
        axis.plot(at, y, marker, color=color, markersize=4 if marker == "D" else 5, zorder=3)
        text = f"{ratio:.2f}x" if ratio < 10 else f"{ratio:,.0f}x"
        axis.annotate(text, (max(at, 1), y), xytext=(6, 0), textcoords="offset points",
                      va="center", fontsize=7.5, color=color)  # fmt: skip
    goal = next((p.limit for p in PROMISES if p.name == mode), None)
    if goal is not None:
        axis.axvline(goal, color=style.TEXT, linewidth=0.9, linestyle="--", zorder=1)
    axis.axvline(1, color=style.TEXT, linewidth=1.4, zorder=1)
    axis.set_yticks(range(len(rows)), [label for label, _, _ in rows], fontsize=7.5)
    style.plain(axis, "x")
