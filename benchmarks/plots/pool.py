"""The pool against the default: time with it over time without, a row a load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.plots import style
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, median

_SECTIONS = ("pool/aligned", "pool/recycle")
WITHOUT = "without"

#: By mode: colour, and mark.
MODES = {"host='recycle'": (style.OURS, "o"), "host='aligned'": (style.OTHER, "D")}
#: So that both are seen where they fall together.
_LARGE = {"o": 7, "D": 3.6}

_ROW, _HEAD, _FOOT = 0.185, 0.78, 1.0  # inches
#: What is less is drawn at the edge, as an arrow: one row would take half of the scale.
_LEAST = 0.02

#: A row: the load, and its ratio by mode.
Row = tuple[str, dict[str, float]]


def draw(found: Results) -> Any:
    """Draw a dot a mode in each row, the fastest row first."""
    cases = [case for section in _SECTIONS for case in found.cases.get(section, ())]
    rows = sorted(_rows(cases), key=lambda row: next(row[1][mode] for mode in MODES if mode in row[1]))
    limits = _limits(found, {name for name, _ in rows})

    figure = style.sheet(_HEAD + _ROW * len(rows) + _FOOT, placed=True)
    width, height = figure.get_size_inches()
    left, right = 0.15 + 0.068 * max(len(name) for name, _ in rows), 1.05
    axis = figure.add_axes(
        (left / width, _FOOT / height, 1 - (left + right) / width, _ROW * len(rows) / height)
    )
    axis.set(xscale="log", ylim=(len(rows) - 0.4, -0.6))
    ratios = [ratio for _, by_mode in rows for ratio in by_mode.values()]
    axis.set_xlim(max(_LEAST, min(0.5, *ratios) / 1.3), max(2.0, *ratios) * 1.2)
    _ticks(axis)
    axis.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    axis.tick_params(length=0)
    axis.grid(axis="x")
    axis.spines[["left", "bottom"]].set_visible(False)
    axis.axvline(1, color=style.TEXT, linewidth=1.4)
    for y, (name, by_mode) in enumerate(rows):
        _row(axis, y, by_mode, {mode: limits.get((name, mode)) for mode in by_mode})
    for place, mode in zip((0.5, 1.0), MODES, strict=True):
        _write(axis, place, -1.25, mode.removeprefix("host=").strip("'"), mode, fontweight="bold")
    style.head(
        figure,
        "install_pool(host=...): time of a load with the pool over its time without",
        "On a log scale. To the left of 1x the pool is faster."
        + " An arrow points to what lies further to the left." * (min(ratios) < _LEAST),
    )
    _legend(figure, bool(limits), _counted(cases))
    style.footer(figure, found, "torch", "jax", "pandas", "pyarrow")
    return figure


def _rows(cases: Sequence[Case]) -> list[Row]:
    rows = []
    for case in cases:
        by_label = {entry.label: entry for entry in case.timed()}
        plain = by_label.get(WITHOUT)
        ratios = {mode: _over(by_label[mode], plain) for mode in MODES if plain and mode in by_label}
        if ratios:
            rows.append((case.name, ratios))
    return rows


def _over(ours: Entry, plain: Entry) -> float:
    return median(ours) / median(plain)


def _limits(found: Results, names: set[str]) -> dict[tuple[str, str], float]:
    """Return the goals: the ratio that a load is to keep below, by load and mode."""
    return {
        (goal.case, mode): goal.limit
        for goal in found.goals
        for mode in MODES
        if goal.unit == "x" and goal.case in names and goal.name.startswith(mode.split("'")[1] + ":")
    }


def _row(axis: Any, y: int, by_mode: dict[str, float], limits: dict[str, float | None]) -> None:
    between = [max(_LEAST, ratio) for ratio in by_mode.values()]
    axis.plot(between, [y] * len(by_mode), color=style.TEXT, alpha=0.5, linewidth=0.8, zorder=2)
    for place, (mode, (colour, mark)) in zip((0.5, 1.0), MODES.items(), strict=True):
        if mode not in by_mode:
            continue
        ratio, limit = by_mode[mode], limits[mode]
        at, shown = (_LEAST * 1.08, "<") if ratio < _LEAST else (ratio, mark)
        axis.plot(at, y, shown, color=colour, markersize=5 if shown == "<" else _LARGE[mark], zorder=4)
        if limit is not None and limit >= _LEAST:
            axis.plot(limit, y, "|", color=colour, markersize=9, markeredgewidth=1.6, zorder=3)
        missed = limit is not None and ratio > limit
        _write(axis, place, y, _ratio(ratio), mode, fontweight="bold" if missed else "normal")


def _write(axis: Any, place: float, y: float, text: str, mode: str, **look: Any) -> None:
    """Write into one of the two columns of numbers at the right, each an inch's half wide."""
    inches = axis.figure.get_figwidth() * axis.get_position().width
    axis.text(
        1 + (0.03 + place * 0.96) / inches,
        y,
        text,
        transform=axis.get_yaxis_transform(),
        ha="right",
        va="center_baseline",
        fontsize=7.5,
        color=MODES[mode][0],
        **look,
    )


def _ratio(value: float) -> str:
    return f"{value:.2f}x" if value >= 0.0995 else f"{value:#.2g}x"


def _ticks(axis: Any) -> None:
    low, high = axis.get_xlim()
    ticks = [step * 10.0**power for power in range(-2, 4) for step in (1, 2, 5)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    axis.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axis.minorticks_off()


def _counted(cases: Sequence[Case]) -> str:
    """Return the line about arrays that are counted and not timed."""
    for case in cases:
        figures = dict(case.figures)
        total = figures.pop("arrays", None)
        if total is not None:
            told = ", ".join(f"{count:.0f} of {total:.0f} {_with(name)}" for name, count in figures.items())
            return f"{case.name}: {told}".replace("'", '"')
    return ""


def _with(name: str) -> str:
    return name if name == WITHOUT else f"with {name}"


def _legend(figure: Any, goals: bool, counted: str) -> None:
    """Write what the marks mean, and what was counted, between the axis and the footer."""
    width, height = figure.get_size_inches()
    axis = figure.add_axes((0, 0.36 / height, 1, 0.36 / height))
    axis.set(xlim=(0, width), ylim=(0.36, 0))
    axis.set_axis_off()
    x = 0.15
    keys = [(mark, mode.replace("'", '"'), colour) for mode, (colour, mark) in MODES.items()]
    if goals:
        keys.append(("|", "goal: at this or to the left; a number in bold misses it", style.OURS))
    for mark, text, colour in keys:
        size, edge = (9, 1.6) if mark == "|" else (_LARGE[mark], 1)
        axis.plot(x, 0.1, mark, color=colour, markersize=size, markeredgewidth=edge)
        axis.text(x + 0.12, 0.1, text, va="center_baseline", fontsize=8)
        x += 0.3 + 0.075 * len(text)
    axis.text(0.07, 0.28, counted, va="center_baseline", fontsize=7.5)
