"""The parts of a page: charts over time, tables and paragraphs, as HTML in which every text is escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from zerocopy.formatting import format_bytes
from zerocopy.formatting.html import escape
from zerocopy.monitor.observer import Rates
from zerocopy.monitor.sample import Sample

#: The colours of Okabe and Ito, which people with colour blindness can distinguish, on light and dark pages.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7f00")
GRAY = "#8c959f"
#: Lines or areas of one chart: a machine can have 144 NVLinks, or hundreds of processes.
MOST_LABELS = 20

Unit = Literal["bytes", "bytes/s", "percent", "count", "MHz", "W", "°C"]
Values = Mapping[str, float | None]
_SUFFIXES = {"percent": "%", "count": ""}


class Moment(NamedTuple):
    """A sample, and the rates at its time."""

    sample: Sample
    rates: Rates | None


#: The times of the last minutes, and the values of all charts by title.
History = Sequence[tuple[float, Mapping[str, Values]]]


def show(value: float | None, unit: Unit) -> str:
    """Return a figure with its unit.

    Examples
    --------
    >>> show(1536, "bytes/s"), show(None, "percent"), show(41, "percent"), show(0.25, "count")
    ('1.5 KiB/s', 'N/A', '41 %', '0.2')
    """
    if value is None:
        return "N/A"
    if unit in ("bytes", "bytes/s"):
        return format_bytes(round(value)) + unit[5:]
    text = f"{value:,.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"
    return f"{text} {_SUFFIXES.get(unit, unit)}".rstrip()


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
    rows: Callable[[Moment], Sequence[Row]]
    absent: str = "none"

    def html(self, moment: Moment) -> str:
        """Return the table as HTML."""
        title, rows = f"<h2>{escape(self.title)}</h2>", self.rows(moment)
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
    """Paragraphs without a title: ``lines(moment)`` returns them."""

    lines: Callable[[Moment], Sequence[str]]
    title: str = ""

    def html(self, moment: Moment) -> str:
        """Return the paragraphs as HTML."""
        return "".join(f"<p>{escape(line)}</p>" for line in self.lines(moment))


# -- charts --------------------------------------------------------------------------------


class Chart(NamedTuple):
    """The content of a chart: ``values(moment)`` returns the figure of each label; None cannot be read."""

    title: str
    values: Callable[[Moment], Values]
    unit: Unit
    stacked: bool = False  # whether the figures are parts of a sum, and shown as areas
    absent: str = "no figures yet"  # shown without labels; "" shows not even the title
    colors: Mapping[str, str] = MappingProxyType({})  # of some labels; the others get those of `COLORS`

    def html(self, history: History) -> str:
        """Return the title, the newest figures and the lines or areas of all figures as HTML."""
        points = [(time, values[self.title]) for time, values in history]
        labels = list(dict.fromkeys(label for _, values in points for label in values))
        shown = labels[:MOST_LABELS]
        title = f"<h2>{escape(self.title)}</h2>"
        if not shown:
            return f"{title}<p>{escape(self.absent)}</p>" if self.absent else ""
        others = iter([COLORS[number % len(COLORS)] for number in range(MOST_LABELS)])
        colors = [self.colors[label] if label in self.colors else next(others) for label in shown]
        marks = [
            f'<span><i style="background:{color}"></i>{escape(label)} '
            f"<b>{escape(show(points[-1][1].get(label), self.unit))}</b></span>"
            for color, label in zip(colors, shown, strict=True)
        ]
        if len(labels) > MOST_LABELS:
            marks.append(f"<span>and {len(labels) - MOST_LABELS} more, which are not drawn</span>")
        series = [[values.get(label) for _, values in points] for label in shown]
        times = [time for time, _ in points]
        return f'{title}<div class="legend">{"".join(marks)}</div>{self._drawing(times, series, colors)}'

    def _drawing(self, times: list[float], series: list[list[float | None]], colors: list[str]) -> str:
        """Return the lines, or areas on top of each other, with their axes."""
        if self.stacked:  # areas have no gaps
            series = _sums(series)
        figures = [value for values in series for value in values if value is not None]
        marks = _marks(max(figures, default=0), self.unit)
        first, span = times[0], max(times[-1] - times[0], 1.0)
        across = [(time - first) / span * 1000 for time in times]
        grid = "".join(
            f'<span style="bottom:{mark / marks[-1]:.1%}">{escape(show(mark, self.unit))}</span>'
            for mark in marks
        )
        clock = "".join(
            f'<time style="left:{(time - first) / span:.1%}" data-seconds="{time}"></time>'
            for time in _moments(first, first + span)
        )
        shapes, below = [], [100.0] * len(times)
        for values, color in zip(series, colors, strict=True):
            heights = [None if value is None else 100 - value / marks[-1] * 100 for value in values]
            path = _path(across, heights)
            if self.stacked:
                back = _path(across[::-1], below[::-1])
                shapes.append(f'<path d="{path}L{back[1:]}Z" fill="{color}" fill-opacity="0.75"/>')
                below = [100.0 if height is None else height for height in heights]
            else:
                shapes.append(f'<path d="{path}" stroke="{color}"/>')
        return (
            f'<figure><div class="grid">{grid}</div><div class="clock">{clock}</div>'
            '<svg viewBox="0 0 1000 100" preserveAspectRatio="none" fill="none" aria-hidden="true">'
            f"{''.join(shapes)}</svg></figure>"
        )


def _sums(series: list[list[float | None]]) -> list[list[float | None]]:
    """Return each series plus those before it; an unknown value counts as 0."""
    total, sums = [0.0] * len(series[0]), []
    for values in series:
        total = [before + (value or 0.0) for before, value in zip(total, values, strict=True)]
        sums.append(list(total))
    return sums  # type: ignore[return-value]


def _path(across: Sequence[float], heights: Sequence[float | None]) -> str:
    """Return a line, with a gap for each unknown height; a single point is a dot."""
    path, is_down = [], False
    for x, y in zip(across, heights, strict=True):
        if y is not None:
            path.append(f"L{x:.1f} {y:.2f}" if is_down else f"M{x:.1f} {y:.2f}h0")
        is_down = y is not None
    return "".join(path)


def _marks(top: float, unit: Unit) -> list[float]:
    """Return round figures from 0 to at least `top`.

    Examples
    --------
    >>> _marks(87, "percent"), _marks(7, "count"), _marks(3000, "bytes")
    ([0, 25, 50, 75, 100], [0.0, 2.0, 4.0, 6.0, 8.0], [0, 1024, 2048, 3072])
    """
    if unit == "percent":
        return [0, 25, 50, 75, 100]
    is_bytes = unit.startswith("bytes")
    step = (top or (2048 if is_bytes else 8)) / 4
    if is_bytes:
        step = 2 ** max(math.ceil(math.log2(step)), 0)
    else:
        power = 10.0 ** math.floor(math.log10(step))
        step = max(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step), 0.1)
    return [step * number for number in range(max(math.ceil(top / step), 1) + 1)]


def _moments(first: float, last: float) -> Iterator[int]:
    """Yield at most four round times in seconds."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
    step = next((step for step in steps if (last - first) / step <= 3.5), 3600)
    yield from range(math.ceil(first / step) * step, math.floor(last) + 1, step)
