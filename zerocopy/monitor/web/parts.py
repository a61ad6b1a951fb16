"""The parts of the pages and of the terminal view: charts, tables and paragraphs, and their HTML.

A chart is SVG, whose lines stretch with the page and whose texts do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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

    def html(self, samples: Sequence[Sample]) -> str:
        """Return the table of the newest sample as HTML."""
        title, rows = f"<h2>{escape(self.title)}</h2>", self.rows(samples[-1])
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

    def html(self, samples: Sequence[Sample]) -> str:
        """Return the paragraphs of the newest sample as HTML."""
        return "".join(f"<p>{escape(line)}</p>" for line in self.lines(samples[-1]))


class Chart(NamedTuple):
    """The content of a chart: ``values(sample)`` returns the figure of each label; None cannot be read."""

    title: str
    values: Callable[[Sample], Values]
    unit: Unit
    stacked: bool = False  # whether the figures are parts of a sum, and shown as areas
    absent: str = "no figures yet"  # shown without labels; "" shows not even the title
    colors: Mapping[str, str] = MappingProxyType({})  # of some labels; the others get those of `COLORS`

    def html(self, samples: Sequence[Sample]) -> str:
        """Return the title, the newest figures and the drawing as HTML; "" while it is hidden."""
        moments = [(sample["time"], self.values(sample)) for sample in samples]
        labels = list(dict.fromkeys(label for _, values in moments for label in values))
        if not labels and not self.absent:
            return ""
        title = f"<h2>{escape(self.title)}</h2>"
        if not labels:
            return f"{title}<p>{escape(self.absent)}</p>"
        shown = labels[:MOST_LABELS]
        others = iter(COLORS * MOST_LABELS)
        colors = {label: self.colors[label] if label in self.colors else next(others) for label in shown}
        newest = moments[-1][1]
        marks = [
            f'<span><svg class="mark"><rect fill="{color}"/></svg>{escape(label)} '
            f"<b>{escape(show(newest.get(label), self.unit))}</b></span>"
            for label, color in colors.items()
        ]
        if len(labels) > len(shown):
            marks.append(f"<span>and {len(labels) - len(shown)} more, which are not drawn</span>")
        return f'{title}<div class="legend">{"".join(marks)}</div>{_plot(self, moments, colors)}'


# -- the drawing of a chart ------------------------------------------------------------------

#: Lines or areas of one chart: a machine can have 144 NVLinks, or hundreds of processes.
MOST_LABELS = 20
#: The plot's coordinates; the browser stretches its width.
_WIDTH, _HEIGHT = 1000, 150
#: Seconds of a chart's width at least.
_SHORTEST = 10.0
#: Seconds between two times below a chart.
_INTERVALS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)


def _plot(chart: Chart, moments: list[tuple[float, Values]], colors: dict[str, str]) -> str:
    """Return the axes, and the lines or areas."""
    last = moments[-1][0]
    first = min(moments[0][0], last - _SHORTEST)
    columns = {label: [values.get(label) for _, values in moments] for label in colors}
    tops = [sum(filter(None, row)) if chart.stacked else max(filter(None, row), default=0) for row in
            zip(*columns.values(), strict=True)]  # fmt: skip
    ticks = y_ticks(max(tops), chart.unit)
    xs = [round((time - first) / (last - first) * _WIDTH) for time, _ in moments]
    lines = []
    for value in ticks:
        y = _y(value, ticks[-1])
        lines.append(f'<line class="grid" x2="100%" y1="{y}" y2="{y}"/>')
        lines.append(f'<text x="-8" y="{y + 4}" text-anchor="end">{escape(show(value, chart.unit))}</text>')
    for time in _x_ticks(first, last):
        x = f"{(time - first) / (last - first):.2%}"
        lines.append(f'<line class="grid" x1="{x}" x2="{x}" y2="{_HEIGHT}"/>')
        # The script of the page replaces the time by that of the browser's time zone.
        lines.append(f'<text x="{x}" y="{_HEIGHT + 18}" text-anchor="middle" data-time="{time}"></text>')
    draw = _areas if chart.stacked else _lines
    shapes = "".join(draw(xs, columns, colors, ticks[-1]))
    return (
        f'<svg class="chart">{"".join(lines)}<svg width="100%" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">{shapes}</svg></svg>'
    )


def y_ticks(top: float, unit: Unit) -> list[float]:
    """Return about five values from 0, of which the last is at least `top`.

    Examples
    --------
    >>> y_ticks(700, "W"), y_ticks(3 << 30, "bytes")[-1] >> 30, y_ticks(3, "percent")[-1]
    ([0, 200, 400, 600, 800], 3, 100)
    """
    if unit == "percent":
        return [0, 20, 40, 60, 80, 100]
    of_bytes = unit.startswith("bytes")
    least = (top or (2048 if of_bytes else 8)) / 5
    if of_bytes:
        step: float = 2 ** max(math.ceil(math.log2(least)), 0)
    else:
        power = 10 ** math.floor(math.log10(least))
        step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= least)
    return [number * step for number in range(max(math.ceil(top / step), 1) + 1)]


def _x_ticks(first: float, last: float) -> Iterator[int]:
    """Yield about five times, in whole intervals since 1970."""
    step = next((each for each in _INTERVALS if each >= (last - first) / 5), _INTERVALS[-1])
    yield from range(math.ceil(first / step) * step, math.floor(last) + 1, step)


def _y(value: float, top: float) -> float:
    return round(_HEIGHT - value / top * _HEIGHT, 1)


Columns = dict[str, list[float | None]]


def _lines(xs: list[int], columns: Columns, colors: dict[str, str], top: float) -> Iterator[str]:
    """Yield a line for each label, with gaps where the figure is unknown."""
    for label, values in columns.items():
        path, pen = [], "M"
        for x, value in zip(xs, values, strict=True):
            if value is not None:
                path.append(f"{pen}{x} {_y(value, top)}")
            pen = "M" if value is None else "L"
        yield f'<path class="line" stroke="{colors[label]}" d="{"".join(path)}"/>'


def _areas(xs: list[int], columns: Columns, colors: dict[str, str], top: float) -> Iterator[str]:
    """Yield areas on top of each other; an unknown figure has no height."""
    below = [0.0] * len(xs)
    for label, values in columns.items():
        above = [low + (value or 0) for low, value in zip(below, values, strict=True)]
        points = [f"{x} {_y(value, top)}" for x, value in zip(xs, above, strict=True)]
        points += [f"{x} {_y(value, top)}" for x, value in zip(xs[::-1], below[::-1], strict=True)]
        yield f'<path class="area" fill="{colors[label]}" d="M{"L".join(points)}Z"/>'
        below = above
