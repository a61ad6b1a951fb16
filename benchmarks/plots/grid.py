"""Grids of conversions as heat maps: a row for each source, a column for each target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

from benchmarks.plots import style
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, median

Cells = dict[tuple[str, str], Entry]

# Viridis from its yellow to its violet, without the pale and the dark end.
_FAST, _SLOW = 0.86, 0.2

_HEAD, _FOOT = 1.0, 0.95  # inches

#: The input of the section, which its results do not state.
INPUT = "1,000 float32 values, 64-byte-aligned input"

#: Targets that import 64-byte-aligned memory only, and sources that rarely allocate such memory:
#: between these, a conversion shares aligned memory and copies other memory.
ALIGNED_TARGETS = frozenset({"jax", "tensorflow"})
UNALIGNED_SOURCES = frozenset({"numpy", "pandas", "nanoarrow"})

COPIES, IF_ALIGNED = "copies", "if aligned"


def draw(results: Results) -> Any:
    """Draw the whole grid if it was measured, otherwise the pairs that have contenders."""
    cases = results.cases.get("conversion/grid")
    cells = _whole(cases) if cases and any(case.timed() for case in cases) else {}
    cells = cells or _pairs(results.cases["conversion/pairs"])
    sources = list(dict.fromkeys(source for source, _ in cells))
    targets = list(dict.fromkeys(target for _, target in cells))
    # Same order as the sources, so that the diagonal is a diagonal.
    targets.sort(key=lambda name: sources.index(name) if name in sources else len(sources))

    figure, axis = style.table(sources, targets, _HEAD, _FOOT, 9)
    # The diagonal is outside the scale: there, convert returns x itself.
    timed = [entry for (source, target), entry in cells.items() if entry.timing and source != target]
    colours = _Colours(timed or [entry for entry in cells.values() if entry.timing])
    notes = {pair: _note(pair, entry) for pair, entry in cells.items()}
    for (source, target), entry in cells.items():
        position = targets.index(target), sources.index(source)
        if entry.timing is None or source == target:
            _uncoloured(axis, position, entry)
        else:
            note = notes[source, target]
            lines = [(style.time(median(entry)), 8.5), *[(note, 7.0)] * bool(note)]
            style.cell(axis, *position, colours(median(entry)), lines, note == COPIES)

    style.head(
        figure,
        "zerocopy.convert(x, to=...): time of one call",
        "\n".join([f"{INPUT}. From the left to the top.", *_caption(notes)]),
    )
    refuses = any(entry.timing is None for entry in cells.values())
    itself = any(source == target for source, target in cells)
    _legend(figure, colours, COPIES in notes.values(), refuses, itself)
    style.footer(figure, results, *sorted({*sources, *targets} - {"numpy"}))
    return figure


def _note(pair: tuple[str, str], entry: Entry) -> str:
    """Return the second line of a cell."""
    source, target = pair
    if entry.timing is None or source == target:
        return ""
    if entry.note:
        return COPIES
    return IF_ALIGNED if source in UNALIGNED_SOURCES and target in ALIGNED_TARGETS else ""


def _caption(notes: dict[tuple[str, str], str]) -> list[str]:
    """Explain "if aligned" where a cell has it."""
    sources = [source for (source, _), note in notes.items() if note == IF_ALIGNED]
    names = list(dict.fromkeys(sources))
    if not names:
        return []
    several = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return [f'"{IF_ALIGNED}": most arrays of {several} are not 64-byte-aligned, and are copied.']


def _whole(cases: Sequence[Case]) -> Cells:
    return {
        (case.name, entry.label): entry
        for case in cases
        for entry in case.entries
        if entry.role == "ours" and (entry.timing is not None or entry.left_out)
    }


def _pairs(cases: Sequence[Case]) -> Cells:
    """Return the zerocopy entries of the pairs, which are timed only if they alias."""
    cells: Cells = {}
    for case in cases:
        ours, (source, _, target) = case.fastest("ours"), case.name.partition(" -> ")
        if ours is not None and target:
            cells[source, target] = ours
    return cells


class _Colours:
    """The colour of a time, on a log scale from the least to the most."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        from matplotlib import colormaps

        self._map = colormaps["viridis"]
        self.least = min(map(median, entries))
        self.most = max(map(median, entries))

    def __call__(self, nanoseconds: float) -> Any:
        whole = math.log(self.most / self.least)
        return self.at(math.log(nanoseconds / self.least) / whole if whole else 0)

    def at(self, part: float) -> Any:
        """Return the colour at a part of the scale, from 0 to 1."""
        return self._map(_FAST + (_SLOW - _FAST) * part)


def _uncoloured(axis: Any, position: tuple[int, int], entry: Entry) -> None:
    """Write a cell without a colour: a refusal, a failure, or a time on the diagonal."""
    text = "failed" if entry.left_out.startswith("raises") else "–"
    if entry.timing is not None:
        text = style.time(median(entry))
    axis.text(position[0] + 0.5, position[1] + 0.5, text, ha="center", va="center_baseline")


def _legend(figure: Any, colours: _Colours, copies: bool, refuses: bool, itself: bool) -> None:
    """Draw one line below the grid, in inches."""
    axis = style.strip(figure, 0.45, 0.3)

    def write(x: float, text: str, align: str = "left") -> None:
        axis.text(x, 0.15, text, ha=align, va="center_baseline")

    write(0.07, style.time(colours.least))
    end = style.scale(axis, 0.6, 0.025, [colours.at(i / 47) for i in range(48)])
    write(end + 0.06, style.time(colours.most))
    x = end + 0.7
    keys = [("", "shares memory"), *[("hatched", COPIES)] * copies, *[("–", "refused")] * refuses]
    for kind, text in keys:
        colour = colours.at(0.4)
        if kind == "–":
            write(x + 0.11, kind, "center")
        else:
            style.box(axis, (x, 0.07), (0.22, 0.16), colour, style.ink(colour) if kind else "")
        write(x + 0.29, text)
        x += 0.29 + 0.07 * len(text) + 0.22
    if itself:
        write(x, "diagonal: x itself")


# -- pairs with a table framework -------------------------------------------------------

#: The ends of the scale of colours, symmetrical on a log scale.
_LEAST, _MOST = 0.25, 4.0


def draw_tables(results: Results) -> Any:
    """Draw a row for each source and a column for each target, with the mean of the pair's cells."""
    from benchmarks.grid.cells import ARRAYS, TABLES, WORST, ratio

    pairs: dict[tuple[str, str], list[float]] = {}
    for case in results.cases["grid/cells"]:
        source, _, target = case.name.partition(",")[0].partition(" -> ")
        if (value := ratio(case)) is not None:
            pairs.setdefault((source, target), []).append(value)
    names = (*TABLES, *ARRAYS)
    sources, targets = ([name for name in names if any(pair[i] == name for pair in pairs)] for i in (0, 1))
    figure, axis = style.table(sources, targets, 0.95, _FOOT, 8)
    for (source, target), values in pairs.items():
        mean = geometric_mean(values)
        lines = [(f"{mean:.2f}x", 8.5), (f"{min(values):.2f} to {max(values):.2f}", 6.5)]
        x, y = targets.index(target), sources.index(source)
        style.cell(axis, x, y, _relative(mean), lines if len(values) > 1 else lines[:1], False)
    every = [value for values in pairs.values() for value in values]
    above = sum(value > WORST for value in every)
    style.head(
        figure,
        "zerocopy.convert(x, to=...): time relative to the fastest code by hand",
        "Mean of each pair, and its range: series, tables, dicts and matrices, with and without nulls and "
        "text.\n"
        f"Less is better. {len(every)} cells: mean {geometric_mean(every):.2f}x, {above} above {WORST}x.",
    )
    axis = style.strip(figure, 0.45, 0.3)
    axis.text(0.07, 0.15, f"{_LEAST}x", va="center_baseline")
    colors = [_relative(_LEAST * (_MOST / _LEAST) ** (i / 63)) for i in range(64)]
    end = style.scale(axis, 0.75, 0.03, colors)
    axis.text(end + 0.06, 0.15, f"{_MOST:g}x     white: as fast as the code by hand", va="center_baseline")
    style.footer(figure, results, *sorted({*sources, *targets} - {"numpy"}))
    return figure


def _relative(value: float) -> Any:
    """Return a blue for less than 1, white for 1, an orange for more."""
    from matplotlib import colormaps

    part = math.log(min(max(value, _LEAST), _MOST) / _LEAST) / math.log(_MOST / _LEAST)
    return colormaps["PuOr_r"](0.08 + 0.84 * part)
