"""The pipeline's stages side by side: time, bytes copied, and the peak of memory.

Work is the same in all contenders. The borders between engines are not: so these have colours,
and a panel of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.plots import style
from benchmarks.results import Results
from benchmarks.suite import Case, median

WHOLE, BORDER = "whole pipeline", " -> "
COPIED, PEAK = "bytes copied, ", "bytes at the peak, "

#: By contender and stage.
Bars = dict[str, dict[str, float]]

_BAR, _PANEL, _HEAD, _KEY, _FOOT = 0.3, 0.42, 0.72, 0.19, 0.42  # inches
#: The part of the widest bar that a stage needs to have its figure written into it.
_ROOM = 0.085


@dataclass(frozen=True)
class _Panel:
    """One quantity: a bar a contender.

    Attributes
    ----------
    title : str
    parts : dict
        The bars; the whole is none of their stages.
    wholes : dict of str to float
        What is written at the end of each: measured for itself, and the sum where it was not.
    write : callable
        ``write(value) -> str``.
    """

    title: str
    parts: Bars
    wholes: dict[str, float]
    write: Callable[[float], str]

    @classmethod
    def of(cls, title: str, bars: Bars, write: Callable[[float], str]) -> _Panel:
        """Tell the whole from the stages; a contender without figures has no bar."""
        bars = {name: by_stage for name, by_stage in bars.items() if by_stage}
        parts = {name: {s: v for s, v in by.items() if s != WHOLE} for name, by in bars.items()}
        return cls(title, parts, {n: by.get(WHOLE, sum(by.values())) for n, by in bars.items()}, write)


def draw(found: Results) -> Any:
    """Draw a bar a contender, made of stages; below it what they copied, and how much memory was held."""
    cases = [case for case in found.cases["pipeline/stages"] if not case.failed]
    stages = [case.name for case in cases if case.name != WHOLE]
    borders = [stage for stage in stages if BORDER in stage] or stages
    names = list(dict.fromkeys(entry.label for case in cases for entry in case.timed()))
    colours = _colours(stages, borders)
    copied = _figures(cases, COPIED, names)
    peaks = _figures(found.cases.get("pipeline/memory", ()), PEAK, names)
    # One bar each, of no stage.
    peaks = {name: {"": max(by.values())} for name, by in peaks.items() if by}
    times = _times(cases, names)
    at_borders = {name: {s: v for s, v in by.items() if s in borders} for name, by in times.items()}
    panels = [
        _Panel.of("Time", times, style.time),
        *[_Panel.of("Time at the borders alone", at_borders, style.time)] * (borders != stages),
        _Panel.of("Bytes copied", copied, style.size),
        _Panel.of("Memory at the peak", peaks, style.size),
    ]
    panels = [panel for panel in panels if panel.wholes]

    keys = {_shown(stage): colours[stage] for stage in borders}
    work = [stage for stage in stages if stage not in borders]
    columns = max(1, int(style.WIDTH / (0.4 + 0.072 * max(map(len, [*keys, ""])))))
    above = _HEAD + _KEY * (-(-len(keys) // columns) + bool(work))
    figure = style.sheet(above + len(panels) * (_PANEL + _BAR * len(names)) + _FOOT)
    style.place(figure, above=above, below=_FOOT)
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        _draw(axis, panel, names, colours)
    style.head(
        figure,
        "One pipeline, written in different ways: what its stages cost",
        "Less is better. Beside a bar: the whole run, and how many times ours that is.",
    )
    _legend(figure, keys, columns, work)
    style.footer(figure, found, "pyarrow", "polars", "torch", "jax")
    return figure


def _colours(stages: Sequence[str], borders: Sequence[str]) -> dict[str, str]:
    """Return the colour of each stage: two greys in turns for work."""
    series, greys = iter(style.SERIES * len(stages)), iter((style.SINGLE, style.LIGHTER) * len(stages))
    return {stage: next(series if stage in borders else greys) for stage in stages}


def _shown(stage: str) -> str:
    return stage.replace(BORDER, " → ")


def _times(cases: Iterable[Case], names: Sequence[str]) -> Bars:
    bars: Bars = {name: {} for name in names}
    for case in cases:
        for entry in case.timed():
            bars[entry.label][case.name] = median(entry)
    return bars


def _figures(cases: Iterable[Case], prefix: str, names: Sequence[str]) -> Bars:
    """Return the figures that begin so, by the contender that they are of."""
    bars: Bars = {name: {} for name in names}
    for case in cases:
        for figure, value in case.figures.items():
            if figure.startswith(prefix) and (name := figure.removeprefix(prefix)) in bars:
                bars[name][case.name] = value
    return bars


def _draw(axis: Any, panel: _Panel, names: Sequence[str], colours: dict[str, str]) -> None:
    # The whole is measured for itself, and medians do not add up: bars are as long as their stages.
    ends = {name: sum(by.values()) for name, by in panel.parts.items()}
    most = max(ends.values()) or 1.0
    for y, name in enumerate(names):
        start = 0.0
        for stage, value in panel.parts.get(name, {}).items():
            colour = colours.get(stage, style.SINGLE)
            axis.barh(y, value, 0.72, left=start, color=colour)
            if stage and value > _ROOM * most:
                ink = style.ink(colour)
                at = start + value / 2
                axis.text(
                    at, y, panel.write(value), ha="center", va="center_baseline", color=ink, fontsize=7.5
                )
            start += value
        if name in ends:
            told = _told(panel, name, names[0])
            axis.text(ends[name] + 0.01 * most, y, told, va="center_baseline", fontweight="bold")
    axis.set_title(panel.title)
    axis.set(xlim=(0, most * 1.22), ylim=(len(names) - 0.5, -0.5))
    axis.set_yticks(range(len(names)), names)
    axis.set_xticks([])
    axis.tick_params(length=0)
    axis.spines["bottom"].set_visible(False)


def _told(panel: _Panel, name: str, ours: str) -> str:
    """Return the whole of a contender, and how many times ours that is."""
    told, ratio = panel.write(panel.wholes[name]), ""
    if name != ours and panel.wholes.get(ours):
        times = panel.wholes[name] / panel.wholes[ours]
        ratio = f", {times:.{2 if times < 9.95 else 0}f}x"
    return told + ratio


def _legend(figure: Any, keys: dict[str, str], columns: int, work: Sequence[str]) -> None:
    """Name the stages above the panels, in their order, line by line; below them the work."""
    from matplotlib.patches import Rectangle

    width, height = figure.get_size_inches()
    rows = -(-len(keys) // columns) + bool(work)
    axis = figure.add_axes((0, 1 - (0.58 + _KEY * rows) / height, 1, _KEY * rows / height))
    axis.set(xlim=(0, width), ylim=(rows, 0))
    axis.set_axis_off()

    def key(row: int, x: float, colour: str, wide: float) -> None:
        axis.add_patch(Rectangle((x, row + 0.2), wide, 0.6, facecolor=colour, linewidth=0))

    for i, (stage, colour) in enumerate(keys.items()):
        row, column = divmod(i, columns)
        x = 0.07 + column * (width - 0.07) / columns
        key(row, x, colour, 0.16)
        axis.text(x + 0.23, row + 0.5, stage, va="center_baseline", fontsize=8)
    if work:
        key(rows - 1, 0.07, style.SINGLE, 0.08)
        key(rows - 1, 0.15, style.LIGHTER, 0.08)
        told = ", ".join(stage.partition(",")[0] for stage in work)
        axis.text(0.3, rows - 0.5, f"work, the same in all: {told}", va="center_baseline", fontsize=8)
