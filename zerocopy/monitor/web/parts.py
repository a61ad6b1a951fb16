"""The parts of the pages and of the terminal view: charts, and tables and paragraphs with their HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from zerocopy.formatting import format_bytes
from zerocopy.formatting.html import escape
from zerocopy.monitor.sample import Sample

#: The colours of Okabe and Ito, which people with colour blindness can distinguish, on light and dark pages.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7f00")
GRAY = "#8c959f"

Unit = Literal["bytes", "bytes/s", "percent", "count", "/s", "MHz", "W", "°C"]
Values = Mapping[str, float | None]
SUFFIXES = {"percent": "%", "count": ""}


def show(value: float | None, unit: Unit) -> str:
    """Return a figure with its unit.

    Examples
    --------
    >>> show(1536, "bytes/s"), show(None, "percent"), show(41, "percent"), show(0.25, "count")
    ('1.5 KiB/s', 'N/A', '41 %', '0.2')
    """
    if value is None or math.isnan(value):
        return "N/A"
    if unit in ("bytes", "bytes/s"):
        return format_bytes(round(value)) + unit[5:]
    text = f"{value:,.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"
    return f"{text} {SUFFIXES.get(unit, unit)}".rstrip()


# -- tables and paragraphs -----------------------------------------------------------------


class Cell(NamedTuple):
    """A text and its style: "code" or "bad"."""

    text: str
    look: str = ""

    def html(self) -> str:
        """Return the text as HTML."""
        text = escape(self.text)
        if not text or not self.look:
            return text
        return f"<code>{text}</code>" if self.look == "code" else f'<span class="{self.look}">{text}</span>'


Row = Sequence[Cell | str]


class Table(NamedTuple):
    """The content of a table: titles of columns, of which those with "#" are of numbers, and rows of cells.

    A row of one cell is a note on the row above it. `absent` is shown if there are no rows; "" shows nothing,
    not even the title.
    """

    title: str
    heads: Sequence[str]
    rows: Callable[[Sample], Sequence[Row]]
    absent: str = "none"

    def html(self, sample: Sample) -> str:
        """Return the table as HTML."""
        title, rows = f"<h2>{escape(self.title)}</h2>", self.rows(sample)
        if not rows:
            return f"{title}<p>{escape(self.absent)}</p>" if self.absent else ""
        heads = [(head.removeprefix("#"), "number" if head.startswith("#") else "") for head in self.heads]
        head = "".join(f'<th class="{look}" scope="col">{escape(text)}</th>' for text, look in heads)
        body = "".join(_row(row, heads) for row in rows)
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(row: Row, heads: Sequence[tuple[str, str]]) -> str:
    cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
    if len(cells) == 1 and len(heads) > 1:
        return f'<tr class="note"><td colspan="{len(heads)}">{cells[0].html()}</td></tr>'
    texts = [
        f'<td class="{look}" data-title="{escape(title)}">{cell.html()}</td>'
        for cell, (title, look) in zip(cells, heads, strict=True)
    ]
    return f"<tr>{''.join(texts)}</tr>"


class Text(NamedTuple):
    """Paragraphs without a title: ``lines(sample)`` returns them."""

    lines: Callable[[Sample], Sequence[str]]
    title: str = ""

    def html(self, sample: Sample) -> str:
        """Return the paragraphs as HTML."""
        return "".join(f"<p>{escape(line)}</p>" for line in self.lines(sample))


class Chart(NamedTuple):
    """The content of a chart: ``values(sample)`` returns the figure of each label; None cannot be read."""

    title: str
    values: Callable[[Sample], Values]
    unit: Unit
    stacked: bool = False  # whether the figures are parts of a sum, and shown as areas
    absent: str = "no figures yet"  # shown without labels; "" shows not even the title
    colors: Mapping[str, str] = MappingProxyType({})  # of some labels; the others get those of `COLORS`
