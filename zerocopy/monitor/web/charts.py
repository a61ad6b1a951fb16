"""Charts over time: lines or stacked areas of the figures that a function reads from each moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any, Literal, NamedTuple

from bokeh.layouts import column
from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    InlineStyleSheet,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.models.widgets import Div
from bokeh.plotting import figure

from zerocopy.monitor.web.feed import Moment
from zerocopy.pool.sizes import show_size

#: The colours of Okabe and Ito, which people with colour blindness can distinguish, on light and dark pages.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7f00", "#7f7f7f")
TEXT = {"light": "#24292f", "dark": "#d0d7de"}

Unit = Literal["bytes", "bytes/s", "percent", "count", "MHz", "W", "°C"]
Values = Mapping[str, float | None]

_FORMATS = {"bytes": "0 ib", "bytes/s": "0 ib", "percent": "0", "count": "0.[0]a"}
_STYLE = """
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font: 13px system-ui, sans-serif; color: #24292f }
.legend b { font-weight: 600 }
.legend i { display: inline-block; width: 10px; height: 10px; margin-right: 5px; border-radius: 2px }
h2 { font: 600 15px system-ui, sans-serif; margin: 10px 0 4px }
p { font: 14px system-ui, sans-serif; margin: 4px 0 }
:host { color: #24292f }
@media (prefers-color-scheme: dark) { :host, .legend { color: #d0d7de } }
"""


def style() -> InlineStyleSheet:
    """Return the style of text between charts; each Bokeh element has a document of its own."""
    return InlineStyleSheet(css=_STYLE)


def show(value: float | None, unit: Unit) -> str:
    """Return a figure with its unit.

    Examples
    --------
    >>> show(1536, "bytes/s"), show(None, "percent"), show(41, "percent")
    ('1.5 KiB/s', 'N/A', '41 %')
    """
    if value is None or math.isnan(value):
        return "N/A"
    if unit in ("bytes", "bytes/s"):
        return show_size(round(value)) + unit[5:]
    return (
        f"{value:,.0f} {unit}"
        if unit not in ("percent", "count")
        else f"{value:,.0f}{' %' * (unit == 'percent')}"
    )


class Chart(NamedTuple):
    """What a chart shows.

    Attributes
    ----------
    title : str
    values : callable
        ``values(moment) -> dict``: the figure of each label; None where it cannot be read.
    unit : str
    stacked : bool
        Whether the figures are parts of a sum, and shown as areas.
    absent : str
        Text instead of the chart while there are no labels; "" shows nothing, not even the title.
    """

    title: str
    values: Callable[[Moment], Values]
    unit: Unit
    stacked: bool = False
    absent: str = "nothing to show yet"


class ChartView:
    """A chart in one open page: the figure is made again when the labels change."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._labels: tuple[str, ...] = ()
        self._source = ColumnDataSource()
        self._figure: Any = None
        self._theme = "light"
        self._head = Div(stylesheets=[style()], sizing_mode="stretch_width")
        self.model = column(self._head, sizing_mode="stretch_width", min_width=280)
        self._moments: list[tuple[float, Values]] = []

    def update(self, moments: Iterable[Moment], keep: int) -> None:
        """Add moments."""
        new = [(moment.sample["time"] * 1000, self._chart.values(moment)) for moment in moments]
        if not new:
            return
        self._moments = [*self._moments, *new][-keep:]
        labels = tuple(dict.fromkeys(label for _, values in self._moments for label in values))
        if labels != self._labels:
            self._labels = labels
            self._rebuild()
        else:
            self._source.stream(self._data(new), rollover=keep)
        self._head.text = self._text(new[-1][1])

    def set_theme(self, theme: str) -> None:
        """Draw for a light or a dark page."""
        self._theme = theme
        if self._figure is not None:
            _color(self._figure, TEXT[theme])

    def _data(self, moments: list[tuple[float, Values]]) -> dict[str, Any]:
        missing = 0.0 if self._chart.stacked else math.nan  # areas cannot be drawn on top of a gap
        data: dict[str, Any] = {"time": [time for time, _ in moments]}
        for number, label in enumerate(self._labels):
            values = [values.get(label) for _, values in moments]
            data[f"y{number}"] = [missing if value is None else float(value) for value in values]
        return data

    def _rebuild(self) -> None:
        chart = self._chart
        self._source = ColumnDataSource(self._data(self._moments))
        self._figure = None
        if self._labels:
            self._figure = figure(
                x_axis_type="datetime",
                height=190,
                toolbar_location=None,
                tools="",
                sizing_mode="stretch_width",
            )
            _draw(self._figure, self._source, len(self._labels), chart.stacked)
            if chart.unit == "percent":
                self._figure.y_range = Range1d(start=0, end=100)
            else:
                self._figure.y_range.start = 0
            if chart.unit in ("bytes", "bytes/s"):
                self._figure.yaxis.ticker = AdaptiveTicker(base=1024, mantissas=[2**k for k in range(10)])
            if chart.unit in _FORMATS:
                self._figure.yaxis.formatter = NumeralTickFormatter(format=_FORMATS[chart.unit])
            _color(self._figure, TEXT[self._theme])
        self.model.children = [self._head, *([self._figure] if self._figure is not None else [])]

    def _text(self, values: Values) -> str:
        title = f"<h2>{escape(self._chart.title)}</h2>"
        if not self._labels:
            return f"{title}<p>{escape(self._chart.absent)}</p>" if self._chart.absent else ""
        marks = [
            f'<span><i style="background:{COLORS[number % len(COLORS)]}"></i>{escape(label)} '
            f"<b>{escape(show(values.get(label), self._chart.unit))}</b></span>"
            for number, label in enumerate(self._labels)
        ]
        return f'{title}<div class="legend">{"".join(marks)}</div>'


def _draw(made: Any, source: ColumnDataSource, count: int, stacked: bool) -> None:
    """Draw lines, or areas on top of each other."""
    colors = [COLORS[number % len(COLORS)] for number in range(count)]
    names = [f"y{number}" for number in range(count)]
    if stacked:
        made.varea_stack(names, x="time", source=source, color=colors, fill_alpha=0.75)
        return
    for name, color in zip(names, colors, strict=True):
        made.line("time", name, source=source, color=color, line_width=2)


def _color(made: Any, text: str) -> None:
    """Give axes, grid and border the colours of the page."""
    made.background_fill_alpha = made.border_fill_alpha = 0
    made.outline_line_color = None
    made.grid.grid_line_color = "#80808050"
    made.xaxis.axis_line_color = made.yaxis.axis_line_color = "#80808080"
    made.axis.major_tick_line_color = "#80808080"
    made.axis.minor_tick_line_color = None
    made.axis.major_label_text_color = text
