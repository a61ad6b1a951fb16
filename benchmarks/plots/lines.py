"""Lines: the cost by size for each target, and the cost of one more reader, segment and worker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import exp, floor, log, log10
from typing import Any

from benchmarks.plots import style
from benchmarks.processes.scale import curves
from benchmarks.results import Results
from benchmarks.suite import Case, median

_SIZE = re.compile(r"(\d+) (B|KiB|MiB|GiB)$")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_TICKS = ("4 B", "64 B", "1 KiB", "16 KiB", "256 KiB", "4 MiB", "64 MiB", "1 GiB")

#: A line: its label, and nanoseconds by bytes.
Line = tuple[str, dict[int, float]]

_GAP = 0.19  # inches between labels
_FAN = 0.035  # of the width of the panel, from the ends of lines to their label


def draw(results: Results) -> Any:
    """Draw the pairs of the first source; the page has all pairs."""
    source, lines = _lines(results.cases["conversion/sizes"])
    references = _references(results.cases["conversion/sizes"])
    targets = list(dict.fromkeys(target for target, _ in lines))
    colours = dict(zip(targets, style.SERIES * len(targets), strict=False))

    figure = style.new_figure(4.6)
    style.reserve(figure, above=0.55, below=0.4)
    axis = figure.subplots()
    axis.set(xscale="log", yscale="log")
    for target, points in lines:
        axis.plot(*_xy(points), color=colours[target], linewidth=1.2, marker="o", markersize=2.4)
    for _, points in references:
        axis.plot(*_xy(points), color=style.TEXT, linewidth=2.2, marker="s", markersize=3.5)
    axes = [nbytes for _, points in [*lines, *references] for nbytes in points]
    axis.set_xlim(min(axes) / 1.6, max(axes) * 1.6)
    times = [time for _, points in [*lines, *references] for time in points.values()]
    axis.set_ylim(min(100, min(times) / 2), max(10_000, max(times) * 2))
    _ticks(axis, min(axes), max(axes))
    _labels(axis, lines, references, colours)
    copied = " The copy is for comparison." if references else ""
    style.head(
        figure,
        "zerocopy.convert(x, to=...): time of one call by the size of x",
        f"x: a 64-byte-aligned float32 array of {source}. Flat: no bytes are copied.{copied}",
    )
    style.footer(figure, results, *sorted(set(targets) - {"numpy"}))
    return figure


def _lines(cases: Sequence[Case]) -> tuple[str, list[Line]]:
    """Return the first source, and its lines with their targets."""
    first, lines = "", []
    for case in cases:
        source, _, target = case.name.partition(" -> ")
        points = {
            nbytes: median(entry)
            for entry in case.timed("ours")
            if (nbytes := _bytes(entry.label)) is not None
        }
        if points and target and source == (first or source):
            first = source
            lines.append((target, points))
    return first, lines


def _references(cases: Sequence[Case]) -> list[Line]:
    """Return the lines of references, by their label without the size, their note, or their case."""
    by_label: dict[str, dict[int, float]] = {}
    for case in cases:
        for entry in case.timed("reference"):
            nbytes = _bytes(entry.label)
            if nbytes is not None:
                label = _SIZE.sub("", entry.label).strip(" ,:") or entry.note or case.name
                by_label.setdefault(label, {})[nbytes] = median(entry)
    return [*by_label.items()]


def _bytes(label: str) -> int | None:
    """Return the size at the end of a label."""
    match = _SIZE.search(label)
    return int(match[1]) * _UNITS[match[2]] if match else None


def _xy(points: dict[int, float]) -> tuple[list[int], list[float]]:
    return sorted(points), [points[nbytes] for nbytes in sorted(points)]


def _ticks(axis: Any, least: int, most: int) -> None:
    ticks = {nbytes: tick for tick in _TICKS if least <= (nbytes := _bytes(tick) or 0) <= most}
    axis.set_xticks([*ticks], [*ticks.values()])
    _decades(axis)
    style.plain(axis, "y")


def _decades(axis: Any) -> None:
    low, high = axis.get_ylim()
    decades = [10**power for power in range(12) if low <= 10**power <= high]
    axis.set_yticks(decades, [style.time(decade).replace(".0", "") for decade in decades])


def _labels(axis: Any, lines: Sequence[Line], references: Sequence[Line], colours: dict[str, str]) -> None:
    """Write each target once, on the right, connected to the ends of its lines."""
    ends: dict[str, list[tuple[int, float]]] = {}
    for target, points in lines:
        ends.setdefault(target, []).append((max(points), points[max(points)]))
    low, high = map(log, axis.get_ylim())
    gap = _GAP * (high - low) / 3.3  # the panel's height
    middles = [sum(log(time) for _, time in several) / len(several) for several in ends.values()]
    look: dict[str, Any] = {"fontweight": "bold", "va": "center_baseline"}
    to_data = axis.transData.inverted().transform
    left, right = (to_data(axis.transAxes.transform((part, 0.5)))[0] for part in (1.0, 1.0 + _FAN))
    for target, position in zip(ends, style.spread(middles, gap), strict=True):
        for nbytes, time in ends[target]:
            connector = [nbytes, left, right], [time, time, exp(position)]
            axis.plot(*connector, color=colours[target], linewidth=0.8, clip_on=False)
        at = (1.0 + 1.2 * _FAN, exp(position))
        axis.annotate(f"to {target}", at, xycoords=("axes fraction", "data"), color=colours[target], **look)
    for label, points in references:
        axis.annotate(label, _middle(points), (-8, 0), textcoords="offset points", ha="right", **look)


def _middle(points: dict[int, float]) -> tuple[float, float]:
    """Return a point near the end of a line, between two decades, so that no grid line crosses the label."""
    from numpy import interp

    sizes, times = _xy(points)
    power = floor(log10(times[-1])) - 0.5
    return 10 ** float(interp(power, [*map(log10, times)], [*map(log10, sizes)])), 10**power


# -- readers, segments and workers ------------------------------------------------------

_PANELS = {"readers": "leases of one segment", "segments": "live segments", "workers": "workers at once"}


def draw_scale(results: Results) -> Any:
    """Draw a panel for each count, with a line for each cost."""
    panels = {
        title: curves(results.cases[f"processes/{name}"])
        for name, title in _PANELS.items()
        if results.cases.get(f"processes/{name}")
    }
    figure = style.new_figure(3.6)
    style.reserve(figure, above=0.55, below=0.4)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        axis.set(xscale="log", yscale="log", title=title)
        for (label, points), color in zip(lines.items(), style.SERIES, strict=False):
            counts = sorted(points)
            axis.plot(counts, [points[n] for n in counts], marker="o", markersize=3, color=color, label=label)
        counts = sorted({n for points in lines.values() for n in points})
        axis.set_xticks([counts[0], counts[-1]], [f"{counts[0]:,.0f}", f"{counts[-1]:,.0f}"])
        axis.minorticks_off()
        axis.grid(axis="y")
        axis.legend(loc="lower left", bbox_to_anchor=(-0.04, -0.02), fontsize=7, handlelength=1.2)
    times = [time for lines in panels.values() for points in lines.values() for time in points.values()]
    axes[0].set_ylim(min(times) / 12, max(times) * 2)  # room for the legends below the lines
    _decades(axes[0])
    style.head(
        figure,
        "The cost of one more reader, segment and worker",
        "Time of one call; for workers, CPU time. Flat: one more costs the others nothing.",
    )
    style.footer(figure, results)
    return figure
