"""Processes: each exchange as a multiple of a memcpy, and the cost of one more reader, segment and worker."""

from __future__ import annotations

from typing import Any

from benchmarks.plots import style
from benchmarks.processes.goals import PROMISES
from benchmarks.processes.scale import curves
from benchmarks.results import Results

_ROW, _LANE = 0.4, 0.18  # inches of a row, and rows between the middle and a lane
_TICKS = (0.001, 0.01, 0.1, 1, 10, 100)
_PANELS = {"readers": "leases of one segment", "segments": "live segments", "workers": "workers at once"}

#: By framework: the multiple without zerocopy, and that with it.
Multiples = dict[str, tuple[float, float]]


def draw(results: Results) -> Any:
    """Draw a row for each exchange with two lanes: without zerocopy, and with it."""
    rows = _rows(results)
    figure = style.new_figure(_ROW * len(rows) + 1.65)
    style.reserve(figure, above=0.72, below=0.4)
    axis = figure.subplots()
    axis.set(xscale="log", ylim=(len(rows) - 0.5, -0.6))
    lanes = (("without zerocopy", style.OTHER, "D", -_LANE), ("zerocopy", style.OURS, "o", _LANE))
    for y, multiples in enumerate(rows.values()):
        for lane, (label, color, marker, below) in enumerate(lanes):
            by_framework = {name: both[lane] for name, both in multiples.items()}
            _lane(axis, y + below, by_framework, color, marker, "" if y else label)
    values = [value for multiples in rows.values() for both in multiples.values() for value in both]
    axis.set_xlim(min(values) / 1.6, max(values) * 1.6)
    axis.axvline(1, color=style.TEXT, linewidth=1.4, zorder=1)
    axis.set_yticks(range(len(rows)), [*rows])
    style.plain(axis, "x")
    style.multiples(axis, _TICKS)
    axis.legend(loc="lower left", ncols=2, bbox_to_anchor=(-0.02, 1.0), handletextpad=0.2)
    style.head(
        figure,
        "From one process to another: time as a multiple of a memcpy",
        "Of the same bytes, in the same run; Dask: of an empty task. Less is better.\n"
        "From the best framework to the worst, which are named; the page has all.",
    )
    style.footer(figure, results, "torch", "jax", "pyarrow", "distributed", "ray")
    return figure


def _lane(axis: Any, y: float, multiples: dict[str, float], color: str, marker: str, label: str) -> None:
    """Draw the best and the worst multiple, each with its framework."""
    best, worst = min(multiples, key=multiples.__getitem__), max(multiples, key=multiples.__getitem__)
    ends = dict.fromkeys((worst, best))  # one framework: one end
    points = [multiples[name] for name in ends]
    axis.plot(points, [y] * len(points), color=color, linewidth=1.2, alpha=0.6, zorder=2)
    axis.plot(points, [y] * len(points), marker, color=color, markersize=4.5, zorder=3, label=label)
    text = ", ".join(f"{name} {_short(multiples[name])}" for name in reversed(ends))
    axis.text(
        1.02, y, text, transform=axis.get_yaxis_transform(), va="center_baseline", fontsize=8, color=color
    )


def _short(multiple: float) -> str:
    return f"{multiple:.2g}x" if multiple < 1 else f"{multiple:.{1 if multiple < 9.95 else 0}f}x"


def _rows(results: Results) -> dict[str, Multiples]:
    """Return the multiples of each exchange, from the goals that have a time without zerocopy."""
    sections = {key: cases for key, cases in results.cases.items() if key.startswith("processes/")}
    cases = [case for section in sections.values() for case in section]
    rows: dict[str, Multiples] = {}
    for promise in PROMISES:
        if promise.unit != "x":
            continue
        for case in cases:
            without = promise.without(case) if promise.concerns(case) else None
            ours = promise.measure(case) if without else None
            if without and ours and ours > 0:
                rows.setdefault(promise.question, {})[case.name.rpartition(", ")[2]] = without, ours
    return rows


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
    decades = [10.0**power for power in range(2, 9) if min(times) / 12 <= 10.0**power <= max(times) * 2]
    axes[0].set_yticks(decades, [style.time(decade).replace(".0", "") for decade in decades])
    style.head(
        figure,
        "The cost of one more reader, segment and worker",
        "Time of one call; for workers, CPU time. Flat: one more costs the others nothing.",
    )
    style.footer(figure, results)
    return figure
