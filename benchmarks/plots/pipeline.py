"""The pipeline: time, time of conversions, bytes copied and peak memory of each contender.

The work is the same for all contenders, and has one colour. A border between two engines has the
colour of its target: a table or tensors. Stages are named on their bars.
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

#: Values by contender and stage.
Bars = dict[str, dict[str, float]]

_WORK, _INTO_TABLE, _INTO_TENSORS = "work", "conversion to a table", "conversion to tensors"
COLORS = {_WORK: style.NEUTRAL, _INTO_TABLE: "#d9722c", _INTO_TENSORS: "#3b8edb"}
_TABLES = frozenset({"polars", "cuDF", "Arrow"})

_BAR, _PANEL, _HEAD, _KEY, _FOOT = 0.3, 0.42, 0.72, 0.19, 0.42  # inches
_LETTER = 0.063  # inches of a letter on a bar, with its share of the margins
_SCALE = 5.0  # inches of the longest bar


@dataclass(frozen=True)
class _Panel:
    """One quantity: a bar for each contender.

    `parts` are the stages of each bar, and `wholes` the value at its end: the measured whole, or the sum
    where it was not measured.
    """

    title: str
    parts: Bars
    wholes: dict[str, float]
    write: Callable[[float], str]

    @classmethod
    def of(cls, title: str, bars: Bars, write: Callable[[float], str]) -> _Panel:
        """Separate the whole from the stages; a contender without figures has no bar."""
        bars = {name: by_stage for name, by_stage in bars.items() if by_stage}
        parts = {name: {s: v for s, v in by.items() if s != WHOLE} for name, by in bars.items()}
        return cls(title, parts, {n: by.get(WHOLE, sum(by.values())) for n, by in bars.items()}, write)


def draw(results: Results) -> Any:
    """Draw a panel for each quantity, with a bar for each contender, made of stages."""
    cases = [case for case in results.cases["pipeline/stages"] if not case.failed]
    stages = [case.name for case in cases if case.name != WHOLE]
    borders = [stage for stage in stages if BORDER in stage]
    names = list(dict.fromkeys(entry.label for case in cases for entry in case.timed()))
    peaks = _figures(results.cases.get("pipeline/memory", ()), PEAK, names)
    # One bar each, which has no stages.
    peaks = {name: {"": max(by.values())} for name, by in peaks.items() if by}
    times = _times(cases, names)
    at_borders = {name: {s: v for s, v in by.items() if s in borders} for name, by in times.items()}
    panels = [
        _Panel.of("Time", times, style.time),
        *[_Panel.of("Time of the conversions alone", at_borders, style.time)] * bool(borders),
        _Panel.of("Bytes copied", _figures(cases, COPIED, names), style.size),
        _Panel.of("Peak memory", peaks, style.size),
    ]
    panels = [panel for panel in panels if panel.wholes]

    above = _HEAD + _KEY
    figure = style.new_figure(above + len(panels) * (_PANEL + _BAR * len(names)) + _FOOT)
    style.reserve(figure, above=above, below=_FOOT)
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        _draw(axis, panel, names)
    style.head(
        figure,
        "One pipeline with three ways to convert between its engines",
        "Less is better. At the end of a bar: the whole run, and the ratio to zerocopy.",
    )
    _legend(figure, [kind for kind in COLORS if kind in {_kind(stage) for stage in stages}])
    style.footer(figure, results, "pyarrow", "polars", "torch", "jax")
    return figure


def _kind(stage: str) -> str:
    """Return what a stage is: work, or a border by its target."""
    _, border, target = stage.partition(BORDER)
    if not border:
        return _WORK
    return _INTO_TABLE if target in _TABLES else _INTO_TENSORS


def _shown(stage: str) -> str:
    """Return the name of a stage on its bar; of work without the engine."""
    return stage.replace(BORDER, " → ") if BORDER in stage else stage.partition(",")[0]


def _times(cases: Iterable[Case], names: Sequence[str]) -> Bars:
    bars: Bars = {name: {} for name in names}
    for case in cases:
        for entry in case.timed():
            bars[entry.label][case.name] = median(entry)
    return bars


def _figures(cases: Iterable[Case], prefix: str, names: Sequence[str]) -> Bars:
    """Return the figures whose names start with `prefix`, by contender."""
    bars: Bars = {name: {} for name in names}
    for case in cases:
        for figure, value in case.figures.items():
            if figure.startswith(prefix) and (name := figure.removeprefix(prefix)) in bars:
                bars[name][case.name] = value
    return bars


def _draw(axis: Any, panel: _Panel, names: Sequence[str]) -> None:
    # Medians do not add up to the measured whole: bars are as long as the sum of their stages.
    ends = {name: sum(by.values()) for name, by in panel.parts.items()}
    most = max(ends.values()) or 1.0
    for y, name in enumerate(names):
        start = 0.0
        for stage, value in panel.parts.get(name, {}).items():
            colour = COLORS[_kind(stage)]
            axis.barh(y, value, 0.72, left=start, color=colour, edgecolor=style.BACKGROUND, linewidth=0.6)
            if stage:
                text = _fitting(stage, panel.write(value), value / most * _SCALE)
                ink = style.ink(colour)
                at = start + value / 2
                axis.text(at, y, text, ha="center", va="center_baseline", color=ink, fontsize=7.5)
            start += value
        if name in ends:
            text = _whole(panel, name, names[0])
            axis.text(ends[name] + 0.01 * most, y, text, va="center_baseline", fontweight="bold")
    axis.set_title(panel.title)
    axis.set(xlim=(0, most * 1.22), ylim=(len(names) - 0.5, -0.5))
    axis.set_yticks(range(len(names)), names)
    axis.set_xticks([])
    axis.tick_params(length=0)
    axis.spines["bottom"].set_visible(False)


def _fitting(stage: str, value: str, inches: float) -> str:
    """Return the name of a stage and its value, the value alone, or nothing: what fits on the bar."""
    texts = (f"{_shown(stage)} {value}", value)
    return next((text for text in texts if _LETTER * len(text) < inches), "")


def _whole(panel: _Panel, name: str, ours: str) -> str:
    """Return the whole of a contender, and its ratio to zerocopy."""
    text, ratio = panel.write(panel.wholes[name]), ""
    if name != ours and panel.wholes.get(ours):
        times = panel.wholes[name] / panel.wholes[ours]
        ratio = f", {times:.{2 if times < 9.95 else 0}f}x"
    return text + ratio


def _legend(figure: Any, kinds: Sequence[str]) -> None:
    """Draw one line above the panels."""
    from matplotlib.patches import Rectangle

    axis = style.strip(figure, figure.get_figheight() - (0.58 + _KEY), _KEY)
    axis.set_ylim(1, 0)
    x = 0.07
    for kind in kinds:
        text = f"{kind}, the same for all" if kind == _WORK else kind
        axis.add_patch(Rectangle((x, 0.2), 0.16, 0.6, facecolor=COLORS[kind], linewidth=0))
        axis.text(x + 0.23, 0.5, text, va="center_baseline", fontsize=8)
        x += 0.23 + 0.068 * len(text) + 0.25


# -- the bytes that each border copies: README shows this picture -----------------------

# Its letters are large, because a phone shows the picture at half its width.
#: The contenders, each with the colour of its copies and a remark.
_CHAINS = (
    ("documented calls", style.OTHER, "through pandas"),
    ("aliases by hand", style.OTHER, "six other calls"),
    ("zerocopy", style.OURS, "zc.convert"),
)

_TOP, _ROW, _BOTTOM = 0.42, 1.5, 0.45  # inches
_BOX, _TALL, _BELOW = 0.76, 0.32, 0.5  # inches: a box, and the distance to an input below the chain
_THICKEST = 9.0  # points

Point = tuple[float, float]


def draw_copies(results: Results) -> Any:
    """Draw the chain of engines for each contender, with its bytes and its time."""
    cases = [case for case in results.cases["pipeline/stages"] if not case.failed]
    borders = [case for case in cases if BORDER in case.name]
    figure = style.new_figure(_TOP + _ROW * len(_CHAINS) + _BOTTOM, placed=True)
    width, height = figure.get_size_inches()
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width), ylim=(height, 0))
    axis.set_axis_off()
    times = _times(cases, [name for name, *_ in _CHAINS])
    title = "Bytes copied in a pipeline: one call instead of six that you must know"
    axis.text(0.08, 0.2, title, va="center_baseline", fontsize=11.5)
    most = max((_copied(case, name) for case in borders for name, *_ in _CHAINS), default=0.0)
    for row, (name, color, remark) in enumerate(_CHAINS):
        top = _TOP + row * _ROW
        total = sum(_copied(case, name) for case in borders)
        look: dict[str, Any] = {"fontsize": 15, "fontweight": "bold", "va": "center_baseline"}
        shown = axis.text(0.08, top + 0.18, name, **look)
        axis.annotate(remark, (1, 0.5), (7, 0), shown, "offset points", va="center_baseline", fontsize=11)
        text = f"{style.size(total)} copied, {style.time(times[name][WHOLE])}"
        axis.text(width - 0.08, top + 0.18, text, color=color, ha="right", **look)
        amounts = [(*case.name.split(BORDER), _copied(case, name)) for case in borders]
        _chain(axis, top + 0.78, amounts, most, color)
    style.footer(figure, results, "pyarrow", "polars", "torch", "jax")
    return figure


def has_copies(results: Results) -> bool:
    """Whether the results have the time and the bytes of the whole pipeline."""
    return any(
        case.name == WHOLE
        and all(COPIED + name in case.figures for name, *_ in _CHAINS)
        and {name for name, *_ in _CHAINS} <= {entry.label for entry in case.timed()}
        for case in results.cases.get("pipeline/stages", ())
    )


def _copied(case: Case, name: str) -> float:
    return case.figures.get(COPIED + name, 0.0)


def _chain(axis: Any, y: float, amounts: Sequence[tuple[str, str, float]], most: float, color: str) -> None:
    """Draw the engines from left to right; an input that joins them later is below the first."""
    chain = list(amounts[0][:2])
    for source, target, _ in amounts:
        if source == chain[-1]:
            chain.append(target)
    step = (axis.get_xlim()[1] - 0.16 - _BOX) / (len(chain) - 1)
    places = [0.08 + _BOX / 2 + step * i for i in range(len(chain))]
    for x, name in zip(places, chain, strict=True):
        _engine(axis, x, y, name)
    reached = 0
    for source, target, amount in amounts:
        if source == chain[reached]:
            reached += 1
            start, end = (places[reached - 1], y), (places[reached], y)
            above = ((start[0] + end[0]) / 2, y - 0.29)
        else:
            joined = chain.index(target)
            start, end = (places[joined - 1], y + _BELOW), (places[joined], y + _TALL / 2)
            above = (end[0] + 0.1, y + _BELOW)
            _engine(axis, *start, source)
        _border(axis, start, end, above, amount, most, color)


def _engine(axis: Any, x: float, y: float, name: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    box = (x - _BOX / 2 + 0.05, y - _TALL / 2 + 0.05), _BOX - 0.1, _TALL - 0.1
    axis.add_patch(FancyBboxPatch(*box, "round,pad=0.05", facecolor="none", edgecolor=style.TEXT))
    axis.text(x, y, name, ha="center", va="center_baseline", fontsize=11.5)


def _border(
    axis: Any, start: Point, end: Point, label: Point, amount: float, most: float, color: str
) -> None:
    """Draw an arrow as thick as its bytes; one that copies nothing is thin and grey."""
    width = 1.2 + (_THICKEST - 1.2) * amount / most if amount else 1.2
    color = color if amount else style.TEXT
    level = start[1] == end[1]
    tip = (end[0] - _BOX / 2 - 0.06, end[1]) if level else (end[0], end[1] + 0.06)
    corner = [] if level else [(end[0], start[1])]
    xs, ys = zip((start[0] + _BOX / 2, start[1]), *corner, tip, strict=True)
    axis.plot(xs, ys, color=color, linewidth=width, solid_capstyle="butt", zorder=1)
    axis.plot(*tip, ">" if level else "^", color=color, markersize=7 + width / 1.6, zorder=2)
    text = style.size(amount) if amount else "alias"
    axis.text(*label, text, ha="center" if level else "left", va="center_baseline", color=color, fontsize=11)
