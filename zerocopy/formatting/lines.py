"""Lines of a page with fixed width: grids, and texts that wrap below their label. A style names a colour."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from textwrap import wrap

#: Texts with their styles, from left to right.
Line = list[tuple[str, str]]


def width_of(text: str) -> int:
    """Return the columns that a text takes: two for each East Asian wide character, none for accents."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def shorten(text: str, width: int, ellipsis: str) -> str:
    """Return a text cut to the width, with an ellipsis if it is longer."""
    if width_of(text) <= width:
        return text
    while width_of(text) > width - len(ellipsis):
        text = text[:-1]
    return text + ellipsis


def paragraph(text: str, style: str, width: int) -> list[Line]:
    """Return a text wrapped to the width."""
    return [[(line, style)] for line in wrap(text, width, break_on_hyphens=False)]


def labelled(rows: Sequence[tuple[str, str, list[Line]]], width: int, indent: str = " ") -> list[Line]:
    """Return rows of a label, its style and lines; both parts wrap in columns of their own."""
    lines: list[Line] = []
    first = min(max((width_of(label) for label, _, _ in rows), default=0), width // 3)
    for label, style, texts in rows:
        labels: list[Line] = [[(part, style)] for part in wrap(label, first, break_on_hyphens=False)]
        wrapped = [part for text in texts for part in _wrap(text, width - first - len(indent) - 1)]
        for line in side_by_side([(first + 1, labels), (0, wrapped)]):
            lines.append([(indent, ""), *line])
    return lines


def _wrap(line: Line, width: int) -> list[Line]:
    """Return a line as several; only its last text is wrapped."""
    *before, (text, style) = line
    start = " " * sum(width_of(part) for part, _ in before)
    first, *others = wrap(text, width, initial_indent=start, break_on_hyphens=False) or [start]
    return [[*before, (first.removeprefix(start), style)], *([(part, style)] for part in others)]


def grid(
    corner: Line,
    rows: dict[str, list[Line]],
    titles: Sequence[str],
    cells: dict[tuple[str, str], list[Line]],
    width: int,
    *,
    gap: int = 2,
    rule: str = "",
    blank: bool = False,
) -> list[Line]:
    """Return a grid, split into as few as fit the width, each after an empty line.

    `rows` has each row's head, and `cells` each cell's lines by row and title. `rule` is drawn below the
    titles. `blank` adds an empty line between rows.
    """

    def width_of_lines(lines: Sequence[Line]) -> int:
        return max(sum(width_of(text) for text, _ in line) for line in lines)

    first = gap + max(map(width_of_lines, [[corner], *rows.values()]))
    widths = {
        title: gap + max(width_of(title), *(width_of_lines(cells[row, title]) for row in rows))
        for title in titles
    }
    lines: list[Line] = []
    for some in _split(widths, width + gap - first):  # the last column needs no gap after it
        heads = {title: [[(title, "bold")]] for title in some}
        lines += [[], *side_by_side([(first, [corner]), *((widths[title], heads[title]) for title in some)])]
        if rule:
            lines.append([(rule * (first + sum(widths[title] for title in some) - gap), "")])
        for i, (row, head) in enumerate(rows.items()):
            lines += [[]] if blank and i else []
            lines += side_by_side([(first, head), *((widths[title], cells[row, title]) for title in some)])
    return lines


def side_by_side(cells: Sequence[tuple[int, list[Line]]]) -> Iterator[Line]:
    """Yield the lines of cells next to each other, each with its width."""
    for i in range(max(len(lines) for _, lines in cells)):
        line: Line = []
        for width, lines in cells:
            texts = lines[i] if i < len(lines) else []
            line += [*texts, (" " * (width - sum(width_of(text) for text, _ in texts)), "")]
        yield line


def _split(widths: dict[str, int], width: int) -> list[list[str]]:
    """Return the columns in as few grids as fit the width, all of about one width."""
    count = len(_fill(widths, width))
    narrower = range(max(widths.values(), default=0), width)
    return _fill(widths, next((w for w in narrower if len(_fill(widths, w)) == count), width))


def _fill(widths: dict[str, int], width: int) -> list[list[str]]:
    """Return the columns in grids, each filled up to the width."""
    grids: list[list[str]] = [[]]
    for title, own in widths.items():
        if grids[-1] and sum(widths[other] for other in grids[-1]) + own > width:
            grids.append([])
        grids[-1].append(title)
    return grids
