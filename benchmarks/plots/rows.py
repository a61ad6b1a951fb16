"""Rows of markers on a log scale of multiples: the core, the loader, the pool and the processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.conversion import goals
from benchmarks.formats import format_speedup
from benchmarks.loader.goals import FEWER, MODES as LOADER_MODES, OURS
from benchmarks.loader.turns import TIMES
from benchmarks.plots import style
from benchmarks.processes.goals import PROMISES as EXCHANGES
from benchmarks.results import Results
from benchmarks.suite import Case, median


def draw_core(results: Results) -> Any:
    """Draw a row for each pair, by target: with the compiled core, and in pure Python."""
    rows = []
    for case in results.cases["conversion/core"]:
        ours, pure = goals.ratio(case, goals.BY_HAND), goals.ratio(case, goals.PURE)
        if case.name in goals.PAIRS and ours is not None:
            # In pure Python relative to the code by hand: both have zerocopy's time as numerator.
            rows.append((case.name, ours, ours / pure if results.compiled and pure else None))
    rows.sort(key=lambda row: goals.FRAMEWORKS.index(row[0].partition(" -> ")[2]))
    figure = style.new_figure(0.19 * len(rows) + 1.8)
    style.reserve(figure, above=0.55, below=0.4)
    axis = figure.subplots()
    own = "compiled core" if results.compiled else "pure Python"
    for column, label, color in ((2, "pure Python", style.NEUTRAL), (1, own, style.OURS)):
        points = [(row[column], y) for y, row in enumerate(rows) if row[column]]
        if points:
            axis.plot(*zip(*points, strict=True), "o", markersize=5, color=color, label=label, zorder=3)
    axis.axvline(1.0, color=style.OTHER, linewidth=1.2)
    look = {"textcoords": "offset points", "color": style.OTHER, "fontweight": "bold"}
    axis.annotate("by hand", (1.0, 1.0), (4, 2), xycoords=("data", "axes fraction"), **look)
    style.rows(axis, [name for name, _, _ in rows], "both")
    style.multiples(axis, (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0))
    axis.legend(loc="lower left", ncols=2, bbox_to_anchor=(-0.02, 1.0), handletextpad=0.2)
    style.head(
        figure,
        "zerocopy.convert(x, to=...): time relative to the fastest code by hand",
        "x: 1,000 float32 values, 64-byte-aligned. Less is better.",
    )
    style.footer(figure, results, "torch", "jax", "tensorflow", "pyarrow")
    return figure


# -- loader -----------------------------------------------------------------------------

_ROW, _PANEL = 0.19, 0.34  # inches
#: Greater multiples are drawn as an arrow at the edge: one row would take a third of the scale.
_LONGEST = 100.0


def draw_loader(results: Results) -> Any:
    """Draw a panel for each mode, with a row for each contender."""
    sections = [results.cases.get(f"loader/{name}", []) for name in ("order", "shuffle")]
    cases = {case.name: case for section in sections for case in section}
    panels = {mode: rows for mode in LOADER_MODES if (rows := _epochs(cases, mode))}
    count = sum(map(len, panels.values()))
    figure = style.new_figure(_ROW * count + _PANEL * len(panels) + 1.35)
    style.reserve(figure, above=0.72, below=0.4)
    heights = [len(rows) + _PANEL / _ROW for rows in panels.values()]
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (mode, rows) in zip(axes, panels.items(), strict=True):
        _mode(axis, mode, rows)
    ratios = [ratio for rows in panels.values() for _, ratio, _ in rows]
    axes[-1].set_xlim(min(0.8, min(ratios) * 0.8), min(_LONGEST, max(ratios)) * 2)
    style.multiples(axes[-1], (0.1, 1, 2, 5, 10, 20, 50, 100))
    style.head(
        figure,
        "An epoch as a multiple of the time in which pyarrow reads the file",
        "Less is better. The line at 1x is pyarrow, which does nothing with the data.\n"
        "*: on a smaller file, as a multiple of its own bound."
        + " An arrow: beyond the scale."
        * (max(ratios) > _LONGEST),
    )
    style.footer(figure, results, "torch", "pyarrow", "polars", "datasets", "tensorflow")
    return figure


def _epochs(cases: dict[str, Case], mode: str) -> list[tuple[str, float, bool]]:
    """Return the contenders of a mode by their ratio, and whether each is the loader."""
    rows = []
    for name, mark in ((mode, ""), (mode + FEWER, "*")):
        case = cases.get(name)
        for entry in case.timed("ours", "idiom", "library") if case else ():
            if entry.role != "ours" or (entry.label == OURS and not mark):
                rows.append((entry.label + mark, case.figures[TIMES + entry.label], entry.role == "ours"))
    return sorted(rows, key=lambda row: row[1])


def _mode(axis: Any, mode: str, rows: list[tuple[str, float, bool]]) -> None:
    axis.set_title(mode)
    style.rows(axis, [label for label, _, _ in rows], fontsize=7.5)
    for y, (_, ratio, ours) in enumerate(rows):
        color = style.OURS if ours else style.OTHER
        at, marker = (_LONGEST, ">") if ratio > _LONGEST else (ratio, "o" if ours else "D")
        axis.plot([1, at], [y, y], color=color, linewidth=1.2, alpha=0.6, zorder=2)
        axis.plot(at, y, marker, color=color, markersize=4 if marker == "D" else 5, zorder=3)
        text = f"{ratio:.2f}x" if ratio < 10 else f"{ratio:,.0f}x"
        look = {"textcoords": "offset points", "va": "center", "fontsize": 7.5, "color": color}
        axis.annotate(text, (max(at, 1), y), xytext=(6, 0), **look)
    axis.axvline(1, color=style.TEXT, linewidth=1.4, zorder=1)


# -- pool -------------------------------------------------------------------------------

_POOL = ("pool/aligned", "pool/recycle")
WITHOUT = "without"

#: Each mode with its colour and its marker.
MODES = {"host='recycle'": (style.OURS, "o"), "host='aligned'": (style.OTHER, "D")}
#: Two sizes, so that both markers are visible where they coincide.
_LARGE = {"o": 7, "D": 3.6}

#: Rows at most. Of more workloads these are shown: evenly spaced by rank, with the fastest and the slowest.
ROWS = 12

_HEAD, _FOOT = 0.98, 0.95  # inches
#: Greater values are drawn as an arrow at the edge: one row would take half of the scale.
_MOST = 50.0

#: A row: the workload, and its speed-up by mode.
Row = tuple[str, dict[str, float]]


def draw_pool(results: Results) -> Any:
    """Draw a marker for each mode in each row, the fastest row first."""
    cases = [case for section in _POOL for case in results.cases.get(section, ())]
    every = sorted(_speedups(cases), key=lambda row: -next(row[1][mode] for mode in MODES if mode in row[1]))
    rows = _spaced(every, ROWS)

    figure = style.new_figure(_HEAD + 0.24 * len(rows) + _FOOT, placed=True)
    width, height = figure.get_size_inches()
    left, right = 0.15 + 0.068 * max(len(name) for name, _ in rows), 1.95
    axis = figure.add_axes(
        (left / width, _FOOT / height, 1 - (left + right) / width, 0.24 * len(rows) / height)
    )
    style.rows(axis, [name for name, _ in rows], fontsize=8)
    values = [speedup for _, by_mode in rows for speedup in by_mode.values()]
    axis.set_xlim(min(0.5, *values) / 1.2, min(_MOST, max(2.0, *values)) * 1.3)
    style.multiples(axis, [step * 10.0**power for power in range(-2, 4) for step in (1, 2, 5)])
    axis.minorticks_off()
    axis.spines["bottom"].set_visible(False)
    axis.axvline(1, color=style.TEXT, linewidth=1.4)
    for y, (_, by_mode) in enumerate(rows):
        _workload(axis, y, by_mode)
    for position, mode in zip((0.95, 1.9), MODES, strict=True):
        _write(axis, position, -1, mode.removeprefix("host=").strip("'"), mode, fontweight="bold")
    chosen = f"{len(rows)} of {len(every)} workloads, evenly spaced from the fastest to the slowest. "
    style.head(
        figure,
        "install_pool(host=...): speed with the pool over speed without",
        "On a log scale: right of 1x the pool is faster."
        + " An arrow: beyond the scale." * (max(values) > _MOST)
        + f"\n{chosen}The page has all." * (len(rows) < len(every)),
    )
    _pool_legend(figure, _counts(cases))
    style.footer(figure, results, "torch", "jax", "pandas", "pyarrow")
    return figure


def _speedups(cases: Sequence[Case]) -> list[Row]:
    rows = []
    for case in cases:
        by_label = {entry.label: entry for entry in case.timed()}
        plain = by_label.get(WITHOUT)
        speedups = {
            mode: median(plain) / median(by_label[mode]) for mode in MODES if plain and mode in by_label
        }
        if speedups:
            rows.append((case.name, speedups))
    return rows


def _spaced(rows: list[Row], count: int) -> list[Row]:
    """Return at most `count` rows, evenly spaced, with the first and the last."""
    if len(rows) <= count:
        return rows
    return [rows[round(i * (len(rows) - 1) / (count - 1))] for i in range(count)]


def _workload(axis: Any, y: int, by_mode: dict[str, float]) -> None:
    between = [min(_MOST, speedup) for speedup in by_mode.values()]
    axis.plot(between, [y] * len(by_mode), color=style.TEXT, alpha=0.5, linewidth=0.8, zorder=2)
    for position, (mode, (colour, marker)) in zip((0.95, 1.9), MODES.items(), strict=True):
        if mode not in by_mode:
            continue
        speedup = by_mode[mode]
        at, shown = (_MOST, ">") if speedup > _MOST else (speedup, marker)
        axis.plot(at, y, shown, color=colour, markersize=5 if shown == ">" else _LARGE[marker], zorder=4)
        _write(axis, position, y, format_speedup(speedup), mode)


def _write(axis: Any, position: float, y: float, text: str, mode: str, **look: Any) -> None:
    """Write into one of the two columns on the right."""
    inches = axis.figure.get_figwidth() * axis.get_position().width
    look |= {"ha": "right", "va": "center_baseline", "fontsize": 8, "color": MODES[mode][0]}
    axis.text(1 + position / inches, y, text, transform=axis.get_yaxis_transform(), **look)


def _counts(cases: Sequence[Case]) -> str:
    """Return the line about arrays that are counted, not timed."""
    for case in cases:
        figures = dict(case.figures)
        total = figures.pop("arrays", None)
        if total is not None:
            counts = (
                f"{count:.0f} of {total:.0f} {name if name == WITHOUT else f'with {name}'}"
                for name, count in figures.items()
            )
            return f"{case.name}: {', '.join(counts)}".replace("'", '"')
    return ""


def _pool_legend(figure: Any, counts: str) -> None:
    """Explain the markers between the axis and the footer, and write the counts."""
    axis = style.strip(figure, 0.36, 0.36)
    x = 0.15
    for mode, (colour, marker) in MODES.items():
        text = mode.replace("'", '"')
        axis.plot(x, 0.1, marker, color=colour, markersize=_LARGE[marker])
        axis.text(x + 0.12, 0.1, text, va="center_baseline", fontsize=8)
        x += 0.3 + 0.075 * len(text)
    axis.text(0.07, 0.28, counts, va="center_baseline", fontsize=7.5)


# -- processes --------------------------------------------------------------------------

_LANE = 0.18  # of a row, between its middle and a lane

#: By framework: the multiple without zerocopy, and that with it.
Multiples = dict[str, tuple[float, float]]


def draw_processes(results: Results) -> Any:
    """Draw a row for each exchange with two lanes: without zerocopy, and with it."""
    rows = _exchanges(results)
    figure = style.new_figure(0.4 * len(rows) + 1.65)
    style.reserve(figure, above=0.72, below=0.4)
    axis = figure.subplots()
    style.rows(axis, [*rows])
    lanes = (("without zerocopy", style.OTHER, "D", -_LANE), ("zerocopy", style.OURS, "o", _LANE))
    for y, multiples in enumerate(rows.values()):
        for lane, (label, color, marker, below) in enumerate(lanes):
            by_framework = {name: both[lane] for name, both in multiples.items()}
            _lane(axis, y + below, by_framework, color, marker, "" if y else label)
    values = [value for multiples in rows.values() for both in multiples.values() for value in both]
    axis.set_xlim(min(values) / 1.6, max(values) * 1.6)
    axis.axvline(1, color=style.TEXT, linewidth=1.4, zorder=1)
    style.multiples(axis, (0.001, 0.01, 0.1, 1, 10, 100))
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


def _exchanges(results: Results) -> dict[str, Multiples]:
    """Return the multiples of each exchange, from the goals that have a time without zerocopy."""
    sections = {key: cases for key, cases in results.cases.items() if key.startswith("processes/")}
    cases = [case for section in sections.values() for case in section]
    rows: dict[str, Multiples] = {}
    for promise in EXCHANGES:
        if promise.unit != "x":
            continue
        for case in cases:
            without = promise.without(case) if promise.concerns(case.name) else None
            ours = promise.measure(case) if without else None
            if without and ours and ours > 0:
                rows.setdefault(promise.question, {})[case.name.rpartition(", ")[2]] = without, ours
    return rows
