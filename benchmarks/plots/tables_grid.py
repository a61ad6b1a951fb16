"""Pairs with a table framework as a heat map: zerocopy's time relative to the fastest code by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

from benchmarks.grid.cells import ARRAYS, TABLES, WORST, ratio
from benchmarks.plots import style
from benchmarks.results import Results

Pair = tuple[str, str]

_HEAD, _FOOT = 0.95, 0.95  # inches
#: The ends of the scale of colours, symmetrical on a log scale.
_LEAST, _MOST = 0.25, 4.0


def draw(results: Results) -> Any:
    """Draw a row for each source and a column for each target, with the mean of the pair's cells."""
    pairs = _ratios(results)
    names = (*TABLES, *ARRAYS)
    sources, targets = ([name for name in names if any(pair[i] == name for pair in pairs)] for i in (0, 1))
    figure, axis = style.table(sources, targets, _HEAD, _FOOT, 8)
    for (source, target), values in pairs.items():
        _cell(axis, (targets.index(target), sources.index(source)), values)
    every = [value for values in pairs.values() for value in values]
    above = sum(value > WORST for value in every)
    style.head(
        figure,
        "zerocopy.convert(x, to=...): time relative to the fastest code by hand",
        "Mean of each pair, and its range: series, tables, dicts and matrices, with and without nulls and "
        "text.\n"
        f"Less is better. {len(every)} cells: mean {geometric_mean(every):.2f}x, {above} above {WORST}x.",
    )
    _legend(figure)
    style.footer(figure, results, *sorted({*sources, *targets} - {"numpy"}))
    return figure


def _ratios(results: Results) -> dict[Pair, list[float]]:
    """Return the ratios of each pair's cells."""
    pairs: dict[Pair, list[float]] = {}
    for case in results.cases["grid/cells"]:
        source, _, target = case.name.partition(",")[0].partition(" -> ")
        value = ratio(case)
        if value is not None:
            pairs.setdefault((source, target), []).append(value)
    return pairs


def _colour(value: float) -> Any:
    """Return a blue for less than 1, white for 1, an orange for more."""
    from matplotlib import colormaps

    part = math.log(min(max(value, _LEAST), _MOST) / _LEAST) / math.log(_MOST / _LEAST)
    return colormaps["PuOr_r"](0.08 + 0.84 * part)


def _cell(axis: Any, position: tuple[int, int], values: Sequence[float]) -> None:
    x, y = position
    mean = geometric_mean(values)
    colour = _colour(mean)
    ink = style.ink(colour)
    style.box(axis, (x + 0.02, y + 0.04), (0.96, 0.92), colour)
    texts = [
        (f"{geometric_mean(values):.2f}x", 0.31, 8.5),
        (f"{min(values):.2f} to {max(values):.2f}", 0.68, 6.5),
    ]
    for text, at, size in texts if len(values) > 1 else [(texts[0][0], 0.5, 8.5)]:
        axis.text(x + 0.5, y + at, text, ha="center", va="center_baseline", color=ink, fontsize=size)


def _legend(figure: Any) -> None:
    """Draw the scale below the grid, in inches."""
    axis = style.strip(figure, 0.45, 0.3)
    parts, start = 64, 0.75
    axis.text(0.07, 0.15, f"{_LEAST}x", va="center_baseline")
    for i in range(parts):
        value = _LEAST * (_MOST / _LEAST) ** (i / (parts - 1))
        style.box(axis, (start + 0.03 * i, 0.08), (0.031, 0.14), _colour(value))
    end = start + 0.03 * parts
    axis.text(end + 0.06, 0.15, f"{_MOST:g}x     white: as fast as the code by hand", va="center_baseline")
