"""Charts over time: lines or stacked areas of the figures that a function reads from each moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from bokeh.layouts import column
from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    InlineStyleSheet,
    Range1d,
)
from bokeh.models.widgets import Div
from bokeh.plotting import figure

from zerocopy.formatting.units import format_bytes
from zerocopy.monitor.web.feed import Moment
from zerocopy.monitor.web.look import STYLE
from zerocopy.notebooks.html import escape

#: The colours of Okabe and Ito, which people with colour blindness can distinguish, on light and dark pages.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7f00")
GRAY = "#8c959f"
TEXT = {"light": "#24292f", "dark": "#d0d7de"}
#: Lines or areas of one chart: a machine can have 144 NVLinks, or hundreds of processes.
MOST_LABELS = 20

Unit = Literal["bytes", "bytes/s", "percent", "count", "MHz", "W", "°C"]
Values = Mapping[str, float | None]

# Bokeh's own formatters have neither units of 1024 with a space nor the time zone of the browser.
_TICK = """
const units = ["B", "KiB", "MiB", "GiB", "TiB"];
if (!unit.startsWith("bytes")) return `${tick.toLocaleString("en")} ${unit}`.trim();
let value = tick, power = 0;
while (value >= 1024 && power < 4) { value /= 1024; power++ }
return `${+value.toFixed(1)} ${units[power]}${unit.slice(5)}`;
"""
_TIME = "return new Date(tick).toLocaleTimeString([], {hourCycle: 'h23'})"
_SUFFIXES = {"percent": "%", "count": ""}


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
    return f"{text} {_SUFFIXES.get(unit, unit)}".rstrip()


class Chart(NamedTuple):
    """The content of a chart.

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
    colors : mapping
        Colours of some labels; the others get those of `COLORS`, in order.
    """

    title: str
    values: Callable[[Moment], Values]
    unit: Unit
    stacked: bool = False
    absent: str = "no figures yet"
    colors: Mapping[str, str] = MappingProxyType({})


class ChartView:
    """A chart in one open page: it creates a new Bokeh figure when the labels change."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._labels: tuple[str, ...] = ()
        self._hidden = 0
        self._source = ColumnDataSource()
        self._figure: Any = None
        self._theme = "light"
        # File names may contain TeX, for which Bokeh would load MathJax.
        self._head = Div(
            stylesheets=[InlineStyleSheet(css=STYLE)], sizing_mode="stretch_width", disable_math=True
        )
        self.model = column(self._head, sizing_mode="stretch_width", min_width=280)
        self._moments: list[tuple[float, Values]] = []

    def update(self, moments: Iterable[Moment], keep: int) -> None:
        """Add moments."""
        new = [(moment.sample["time"] * 1000, self._chart.values(moment)) for moment in moments]
        if not new:
            return
        self._moments = [*self._moments, *new][-keep:]
        labels = tuple(dict.fromkeys(label for _, values in self._moments for label in values))
        self._hidden = len(labels[MOST_LABELS:])
        labels = labels[:MOST_LABELS]
        if labels != self._labels:
            self._labels = labels
            self._rebuild()
        else:
            self._source.stream(self._data(new), rollover=keep)
        self._head.text = self._text(new[-1][1])
        self.model.visible = bool(self._head.text)

    def set_theme(self, theme: str) -> None:
        """Draw for a light or a dark page."""
        self._theme = theme
        if self._figure is not None:
            _color(self._figure, TEXT[theme])

    def _data(self, moments: list[tuple[float, Values]]) -> dict[str, Any]:
        missing = 0.0 if self._chart.stacked else math.nan  # Bokeh cannot stack areas over a gap
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
            _draw(self._figure, self._source, self._colors(), chart.stacked)
            _set_axes(self._figure, chart.unit)
            _color(self._figure, TEXT[self._theme])
        self.model.children = [self._head, *([self._figure] if self._figure is not None else [])]

    def _colors(self) -> list[str]:
        """Return the colour of each label."""
        fixed = self._chart.colors
        others = iter([COLORS[number % len(COLORS)] for number in range(MOST_LABELS)])
        return [fixed[label] if label in fixed else next(others) for label in self._labels]

    def _text(self, values: Values) -> str:
        title = f"<h2>{escape(self._chart.title)}</h2>"
        if not self._labels:
            return f"{title}<p>{escape(self._chart.absent)}</p>" if self._chart.absent else ""
        marks = [
            f'<span><i style="background:{color}"></i>{escape(label)} '
            f"<b>{escape(show(values.get(label), self._chart.unit))}</b></span>"
            for color, label in zip(self._colors(), self._labels, strict=True)
        ]
        if self._hidden:
            marks.append(f"<span>and {self._hidden} more, which are not drawn</span>")
        return f'{title}<div class="legend">{"".join(marks)}</div>'


def _draw(made: Any, source: ColumnDataSource, colors: list[str], stacked: bool) -> None:
    """Draw lines, or areas on top of each other."""
    names = [f"y{number}" for number in range(len(colors))]
    if stacked:
        made.varea_stack(names, x="time", source=source, color=colors, fill_alpha=0.75)
        return
    for name, color in zip(names, colors, strict=True):
        made.line("time", name, source=source, color=color, line_width=2)


def _set_axes(made: Any, unit: Unit) -> None:
    """Set ranges, so that charts below each other have equal times, and the texts of the ticks."""
    made.min_border_left, made.min_border_right = 78, 24
    made.x_range = DataRange1d(range_padding=0.02, default_span=60_000)
    made.xaxis.formatter = CustomJSTickFormatter(code=_TIME)
    made.xaxis.ticker.desired_num_ticks = 4
    made.yaxis.formatter = CustomJSTickFormatter(args={"unit": _SUFFIXES.get(unit, unit)}, code=_TICK)
    if unit == "percent":
        made.y_range = Range1d(start=0, end=100)
        return
    # The span is that of a chart whose values are all 0.
    made.y_range = DataRange1d(start=0, default_span=2048 if unit.startswith("bytes") else 8)
    made.yaxis.ticker.desired_num_ticks = 4
    if unit.startswith("bytes"):
        made.yaxis.ticker = AdaptiveTicker(
            base=1024, mantissas=[2**k for k in range(10)], min_interval=1, desired_num_ticks=4
        )


def _color(made: Any, text: str) -> None:
    """Give axes, grid and border the colours of the page."""
    made.background_fill_alpha = made.border_fill_alpha = 0
    made.outline_line_color = None
    made.grid.grid_line_color = "#80808050"
    made.xaxis.axis_line_color = made.yaxis.axis_line_color = "#80808080"
    made.axis.major_tick_line_color = "#80808080"
    made.axis.minor_tick_line_color = None
    made.axis.major_label_text_color = text
