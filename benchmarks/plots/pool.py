"""The speed of workloads with the pool, relative to the speed without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.formats import format_speedup
from benchmarks.plots import style
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, median

_SECTIONS = ("pool/aligned", "pool/recycle")
WITHOUT = "without"

#: Each mode with its colour and its marker.
MODES = {"host='recycle'": (style.OURS, "o"), "host='aligned'": (style.OTHER, "D")}
#: Two sizes, so that both markers are visible where they coincide.
_LARGE = {"o": 7, "D": 3.6}

#: Rows at most. Of more workloads these are shown: evenly spaced by rank, with the fastest and the slowest.
ROWS = 12

_ROW, _HEAD, _FOOT = 0.24, 0.98, 0.95  # inches
#: Greater values are drawn as an arrow at the edge: one row would take half of the scale.
_MOST = 50.0

#: A row: the workload, and its speed-up by mode.
Row = tuple[str, dict[str, float]]


def draw(results: Results) -> Any:
    """Draw a marker for each mode in each row, the fastest row first."""
    cases = [case for section in _SECTIONS for case in results.cases.get(section, ())]
    every = sorted(_rows(cases), key=lambda row: -next(row[1][mode] for mode in MODES if mode in row[1]))
    rows = _spaced(every, ROWS)

    figure = style.new_figure(_HEAD + _ROW * len(rows) + _FOOT, placed=True)
    width, height = figure.get_size_inches()
    left, right = 0.15 + 0.068 * max(len(name) for name, _ in rows), 1.95
    axis = figure.add_axes(
        (left / width, _FOOT / height, 1 - (left + right) / width, _ROW * len(rows) / height)
    )
    axis.set(xscale="log", ylim=(len(rows) - 0.4, -0.6))
    values = [speedup for _, by_mode in rows for speedup in by_mode.values()]
    axis.set_xlim(min(0.5, *values) / 1.2, min(_MOST, max(2.0, *values)) * 1.3)
    _ticks(axis)
    axis.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    axis.tick_params(length=0)
    axis.grid(axis="x")
    axis.spines[["left", "bottom"]].set_visible(False)
    axis.axvline(1, color=style.TEXT, linewidth=1.4)
    for y, (_, by_mode) in enumerate(rows):
        _row(axis, y, by_mode)
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
    _legend(figure, _counts(cases))
    style.footer(figure, results, "torch", "jax", "pandas", "pyarrow")
    return figure


def _rows(cases: Sequence[Case]) -> list[Row]:
    rows = []
    for case in cases:
        by_label = {entry.label: entry for entry in case.timed()}
        plain = by_label.get(WITHOUT)
        speedups = {mode: _speedup(by_label[mode], plain) for mode in MODES if plain and mode in by_label}
        if speedups:
            rows.append((case.name, speedups))
    return rows


def _spaced(rows: list[Row], count: int) -> list[Row]:
    """Return at most `count` rows, evenly spaced, with the first and the last."""
    if len(rows) <= count:
        return rows
    return [rows[round(i * (len(rows) - 1) / (count - 1))] for i in range(count)]


def _speedup(ours: Entry, plain: Entry) -> float:
    return median(plain) / median(ours)


def _row(axis: Any, y: int, by_mode: dict[str, float]) -> None:
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
    axis.text(
        1 + (0.0 + position) / inches,
        y,
        text,
        transform=axis.get_yaxis_transform(),
        ha="right",
        va="center_baseline",
        fontsize=8,
        color=MODES[mode][0],
        **look,
    )


def _ticks(axis: Any) -> None:
    style.multiples(axis, [step * 10.0**power for power in range(-2, 4) for step in (1, 2, 5)])
    axis.minorticks_off()


def _counts(cases: Sequence[Case]) -> str:
    """Return the line about arrays that are counted, not timed."""
    for case in cases:
        figures = dict(case.figures)
        total = figures.pop("arrays", None)
        if total is not None:
            counts = (f"{count:.0f} of {total:.0f} {_with(name)}" for name, count in figures.items())
            return f"{case.name}: {', '.join(counts)}".replace("'", '"')
    return ""


def _with(name: str) -> str:
    return name if name == WITHOUT else f"with {name}"


def _legend(figure: Any, counts: str) -> None:
    """Explain the markers between the axis and the footer, and write the counts."""
    axis = style.strip(figure, 0.36, 0.36)
    x = 0.15
    for mode, (colour, marker) in MODES.items():
        text = mode.replace("'", '"')
        axis.plot(x, 0.1, marker, color=colour, markersize=_LARGE[marker])
        axis.text(x + 0.12, 0.1, text, va="center_baseline", fontsize=8)
        x += 0.3 + 0.075 * len(text)
    axis.text(0.07, 0.28, counts, va="center_baseline", fontsize=7.5)
