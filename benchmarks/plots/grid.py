"""The grid of conversions as a heat map: a row for each source, a column for each target."""

from __future__ import annotations

from collections.abc import Sequence
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
            _cell(axis, position, entry, notes[source, target], colours)

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
        from math import log

        whole = log(self.most / self.least)
        part = log(nanoseconds / self.least) / whole if whole else 0
        return self.at(part)

    def at(self, part: float) -> Any:
        """Return the colour at a part of the scale, from 0 to 1."""
        return self._map(_FAST + (_SLOW - _FAST) * part)


def _cell(axis: Any, position: tuple[int, int], entry: Entry, note: str, colours: _Colours) -> None:
    x, y = position
    colour = colours(median(entry))
    ink = style.ink(colour)
    _box(axis, (x + 0.02, y + 0.04), (0.96, 0.92), colour, ink if note == COPIES else "")
    lines = [(style.time(median(entry)), 0.5, 8.5)]
    if note:
        lines = [(style.time(median(entry)), 0.31, 8.5), (note, 0.68, 7)]
    # Text has the cell's colour behind it, without hatching.
    behind = {"facecolor": colour, "linewidth": 0, "pad": 1.3}
    for text, at, size in lines:
        axis.text(
            x + 0.5,
            y + at,
            text,
            ha="center",
            va="center_baseline",
            color=ink,
            fontsize=size,
            bbox=behind,
            zorder=3,
        )


def _uncoloured(axis: Any, position: tuple[int, int], entry: Entry) -> None:
    """Write a cell without a colour: a refusal, a failure, or a time on the diagonal."""
    text = "failed" if entry.left_out.startswith("raises") else "–"
    if entry.timing is not None:
        text = style.time(median(entry))
    axis.text(position[0] + 0.5, position[1] + 0.5, text, ha="center", va="center_baseline")


def _box(axis: Any, corner: tuple[float, float], size: tuple[float, float], colour: Any, hatch: str) -> None:
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    style.box(axis, corner, size, colour)
    if hatch:
        edge = to_rgba(hatch, 0.4)
        axis.add_patch(Rectangle(corner, *size, fill=False, edgecolor=edge, hatch="////", linewidth=0))


def _legend(figure: Any, colours: _Colours, copies: bool, refuses: bool, itself: bool) -> None:
    """Draw one line below the grid, in inches."""
    axis = style.strip(figure, 0.45, 0.3)

    def write(x: float, text: str, align: str = "left") -> None:
        axis.text(x, 0.15, text, ha=align, va="center_baseline")

    parts = 48
    write(0.07, style.time(colours.least))
    start = 0.6
    for i in range(parts):
        _box(axis, (start + 0.025 * i, 0.08), (0.026, 0.14), colours.at(i / (parts - 1)), "")
    end = start + 0.025 * parts
    write(end + 0.06, style.time(colours.most))
    x = end + 0.7
    keys = [("", "shares memory"), *[("hatched", COPIES)] * copies, *[("–", "refused")] * refuses]
    for kind, text in keys:
        colour = colours.at(0.4)
        if kind == "–":
            write(x + 0.11, kind, "center")
        else:
            _box(axis, (x, 0.07), (0.22, 0.16), colour, style.ink(colour) if kind else "")
        write(x + 0.29, text)
        x += 0.29 + 0.07 * len(text) + 0.22
    if itself:
        write(x, "diagonal: x itself")
