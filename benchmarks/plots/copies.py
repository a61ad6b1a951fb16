"""The pipeline before and after: the bytes that each border between two engines copies.

README shows this picture. Its letters are large, because a phone shows the picture at half its width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.plots import style
from benchmarks.plots.pipeline import BORDER, COPIED, WHOLE
from benchmarks.results import Results
from benchmarks.suite import Case

#: The contenders, each with the colour of its copies.
ROWS = (("documented calls", style.OTHER), ("zerocopy", style.OURS))

_HEAD, _ROW, _FOOT = 0.42, 1.6, 0.45  # inches
_BOX, _TALL, _BELOW = 0.76, 0.32, 0.5  # inches: a box, and the distance to an input below the chain
_THICKEST = 9.0  # points

Point = tuple[float, float]


def draw(results: Results) -> Any:
    """Draw the chain of engines for the documented calls and for zerocopy."""
    cases = [case for case in results.cases["pipeline/stages"] if not case.failed]
    borders = [case for case in cases if BORDER in case.name]
    figure = style.new_figure(_HEAD + _ROW * len(ROWS) + _FOOT, placed=True)
    width, height = figure.get_size_inches()
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width), ylim=(height, 0))
    axis.set_axis_off()
    axis.text(
        0.08, 0.2, "One pipeline: bytes copied between its engines", va="center_baseline", fontsize=11.5
    )
    most = max((_copied(case, name) for case in borders for name, _ in ROWS), default=0.0)
    for row, (name, color) in enumerate(ROWS):
        top = _HEAD + row * _ROW
        total = sum(_copied(case, name) for case in borders)
        look: dict[str, Any] = {"fontsize": 15, "fontweight": "bold", "va": "center_baseline"}
        axis.text(0.08, top + 0.18, name, **look)
        axis.text(width - 0.08, top + 0.18, f"{style.size(total)} copied", color=color, ha="right", **look)
        amounts = [(*case.name.split(BORDER), _copied(case, name)) for case in borders]
        _chain(axis, top + 0.78, amounts, most, color)
    style.footer(figure, results, "pyarrow", "polars", "torch", "jax")
    return figure


def drawable(results: Results) -> bool:
    """Whether the results have the bytes of the whole pipeline."""
    return any(
        case.name == WHOLE and all(COPIED + name in case.figures for name, _ in ROWS)
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
