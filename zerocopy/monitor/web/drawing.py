"""The charts, tables and paragraphs of an open page, as elements of Bokeh."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

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

from zerocopy.formatting.html import escape
from zerocopy.monitor.web.parts import COLORS, SUFFIXES, Chart, Moment, Table, Text, Unit, Values, show

#: The style of texts and tables: the page's style does not apply in the shadow DOM of Bokeh's elements.
STYLE = """
:host { color: #24292f }
p, table { font: 14px system-ui, sans-serif }
h2 { font: 600 15px system-ui, sans-serif; margin: 10px 0 4px }
p { margin: 4px 0; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100%; max-width: 1100px }
th, td { text-align: left; vertical-align: top; padding: 3px 12px 3px 0; overflow-wrap: anywhere }
th { font-weight: 600; border-bottom: 1px solid #80808080; overflow-wrap: normal }
td code { white-space: nowrap }
td.number, th.number { text-align: right; white-space: nowrap }
tr.note td { padding: 0 0 8px 12px; border-bottom: 1px solid #80808040 }
code { font-family: ui-monospace, monospace; font-size: 13px }
.bad { color: #b35900; font-weight: 600 }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font: 13px system-ui, sans-serif }
.legend b { font-weight: 600 }
.legend span { overflow-wrap: anywhere }
.legend i { display: inline-block; width: 10px; height: 10px; margin-right: 5px; border-radius: 2px }
@media (prefers-color-scheme: dark) { :host { color: #d0d7de } .bad { color: #ffa657 } }
@media (max-width: 640px) {
  thead { display: none }
  table, tbody, tr, td { display: block }
  td code { white-space: normal }
  td.number { display: inline-block; text-align: left; white-space: normal }
  td[data-title]::before { content: attr(data-title) ": "; opacity: 0.75 }
  td:empty { display: none }
  tr { padding: 4px 0 }
}
"""
TEXT = {"light": "#24292f", "dark": "#d0d7de"}
#: Lines or areas of one chart: a machine can have 144 NVLinks, or hundreds of processes.
MOST_LABELS = 20

# Bokeh's own formatters have neither units of 1024 with a space nor the time zone of the browser.
_TICK = """
const units = ["B", "KiB", "MiB", "GiB", "TiB"];
if (!unit.startsWith("bytes")) return `${tick.toLocaleString("en")} ${unit}`.trim();
let value = tick, power = 0;
while (value >= 1024 && power < 4) { value /= 1024; power++ }
return `${+value.toFixed(1)} ${units[power]}${unit.slice(5)}`;
"""
_TIME = "return new Date(tick).toLocaleTimeString([], {hourCycle: 'h23'})"


def _div(**options: Any) -> Any:
    """Return an element of text. File names may contain TeX, for which Bokeh would load MathJax."""
    styles: list[Any] = [InlineStyleSheet(css=STYLE)]
    return Div(stylesheets=styles, sizing_mode="stretch_width", disable_math=True, **options)


# -- tables and paragraphs -----------------------------------------------------------------


class TextView:
    """A table or paragraphs in one open page; hidden while they have no text.

    The text is replaced as a whole: Bokeh's DataTable kept its first figures for three seconds, although its
    source had changed (Bokeh 3.9).
    """

    def __init__(self, part: Table | Text) -> None:
        self._part = part
        self.model: Any = _div(min_width=280)

    def update(self, moments: Sequence[Moment], keep: int) -> None:
        """Show the newest moment."""
        if moments:
            self.model.text = self._part.html(moments[-1])
            self.model.visible = bool(self.model.text)

    def set_theme(self, theme: str) -> None:
        """Do nothing: the style sheet follows the browser."""


# -- charts --------------------------------------------------------------------------------


class ChartView:
    """A chart in one open page: it creates a new Bokeh figure when the labels change."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._labels: tuple[str, ...] = ()
        self._hidden = 0
        self._source = ColumnDataSource()
        self._figure: Any = None
        self._theme = "light"
        self._head = _div()
        self.model: Any = column(self._head, sizing_mode="stretch_width", min_width=280)
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
        self._source, self._figure = ColumnDataSource(self._data(self._moments)), None
        if self._labels:
            self._figure = figure(
                x_axis_type="datetime",
                height=190,
                toolbar_location=None,
                tools="",
                sizing_mode="stretch_width",
            )
            self._draw()
            _set_axes(self._figure, self._chart.unit)
            _color(self._figure, TEXT[self._theme])
        self.model.children = [self._head, *([self._figure] if self._figure is not None else [])]

    def _draw(self) -> None:
        """Draw lines, or areas on top of each other."""
        names, colors = [f"y{number}" for number in range(len(self._labels))], self._colors()
        if self._chart.stacked:
            self._figure.varea_stack(names, x="time", source=self._source, color=colors, fill_alpha=0.75)
            return
        for name, color in zip(names, colors, strict=True):
            self._figure.line("time", name, source=self._source, color=color, line_width=2)

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


def _set_axes(made: Any, unit: Unit) -> None:
    """Set ranges, so that charts below each other have equal times, and the texts of the ticks."""
    made.min_border_left, made.min_border_right = 78, 24
    made.x_range = DataRange1d(range_padding=0.02, default_span=60_000)
    made.xaxis.formatter = CustomJSTickFormatter(code=_TIME)
    made.xaxis.ticker.desired_num_ticks = 4
    made.yaxis.formatter = CustomJSTickFormatter(args={"unit": SUFFIXES.get(unit, unit)}, code=_TICK)
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
