"""The pages: an overview, those of NVDashboard by name, and those of zerocopy, as documents of Bokeh."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.layouts import column
from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    InlineStyleSheet,
    NoOverlap,
    Range1d,
)
from bokeh.models.widgets import Div
from bokeh.plotting import figure
from jinja2 import Template
from tornado.web import RequestHandler

from zerocopy.errors import ZeroCopyError
from zerocopy.formatting.html import escape
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.prometheus import CONTENT_TYPE, exposition
from zerocopy.monitor.sample import Sample
from zerocopy.monitor.web import contents as own
from zerocopy.monitor.web.parts import COLORS, SUFFIXES, Chart, Table, Text, Unit, Values, show

#: Points of a chart: the overview of 8 GPUs takes 30 ms of CPU time for each update.
_MOST_POINTS = 150
#: Milliseconds between updates of a page: a slow browser cannot draw eight charts ten times a second.
_SHORTEST = 500


class Page(NamedTuple):
    """One page: the last part of its address, its title and its parts."""

    path: str
    title: str
    parts: tuple[Chart | Table | Text, ...]


def _if_any(part: Any) -> Any:
    """Return a chart or a table that is hidden, with its title, while it has no content."""
    return part._replace(absent="")


PAGES = (
    Page(
        "", "Overview",
        (own.STATE, own.TOTALS, own.BYTES, own.FRAMEWORKS, own.WORST_SITES, own.NO_GPU,
         _if_any(own.DEVICES), _if_any(own.UTILIZATION), _if_any(own.MEMORY_SPLIT), own.LOADERS, own.CPU,
         own.MACHINE_MEMORY),
    ),
    Page("conversions", "Conversions", (own.STATE, own.TOTALS, own.BYTES, own.CALLS, own.SITES)),
    Page("conversions-by-time", "Conversions by time", (own.STATE, own.TOTALS, own.SLOW_SITES)),
    Page("pool", "Pool", (own.STATE, own.FRAMEWORKS, own.HOST_MODES, own.POOLS, own.ATTACHED)),
    Page("processes", "Processes", (own.STATE, own.PROCESSES, own.RESIDENT)),
    Page("loader", "Loader", (own.STATE, own.LOADERS, own.DEPTH)),
    Page("gpu-utilization", "GPU utilization", (own.NO_GPU, own.UTILIZATION, own.MEMORY_UTILIZATION)),
    Page(
        "gpu-memory", "GPU memory",
        (own.NO_GPU, own.MEMORY_SPLIT, own.MEMORY_PARTS, own.MEMORY_USED, own.CARD_PROCESSES),
    ),
    Page(
        "gpu-resources", "GPU resources",
        (own.NO_GPU, own.DEVICES, own.POWER, own.TEMPERATURE, own.CLOCK),
    ),
    Page("pcie-throughput", "PCIe throughput", (own.NO_GPU, own.PCIE_RECEIVED, own.PCIE_SENT)),
    Page("nvlink-throughput", "NVLink throughput", (own.NO_GPU, own.LINKS_RECEIVED, own.LINKS_SENT)),
    Page("nvlink-timeline", "NVLink timeline", (own.NO_GPU, own.LINK_SUMS)),
    Page("machine-resources", "Machine resources", (own.CPU, own.MACHINE_MEMORY, own.DISK, own.NETWORK)),
)  # fmt: skip


#: A Jinja template with the variables `base` (Bokeh's), `heading`, `page` and `pages`.
PAGE = """
{% extends base %}
{% block preamble %}
<link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  :root { color-scheme: light dark; --text: #24292f; --back: #ffffff; --line: #80808050; --link: #0550ae;
    --bad: #b35900 }
  @media (prefers-color-scheme: dark) {
    :root { --text: #d0d7de; --back: #0d1117; --link: #79b8ff; --bad: #ffa657 }
  }
  html, body { margin: 0; background: var(--back); color: var(--text); font: 15px system-ui, sans-serif }
  header { padding: 10px 16px 0; border-bottom: 1px solid var(--line) }
  h1 { font-size: 18px; margin: 0 0 6px }
  nav { display: flex; flex-wrap: wrap; gap: 2px 14px; padding-bottom: 8px }
  nav a { color: var(--link); text-decoration: none; padding: 3px 0; border-bottom: 2px solid transparent }
  nav a:hover { border-color: var(--line) }
  nav a[aria-current] { color: var(--text); font-weight: 600; border-color: currentColor }
  nav a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
  main { padding: 8px 16px 32px; max-width: 1200px }
</style>
{% endblock %}
{% block contents %}
<header>
  <h1>zerocopy monitor: {{ heading }}</h1>
  <nav aria-label="Pages">
  {% for each in pages %}
    <a href="{{ './' ~ each.path }}"{% if each.path == page %} aria-current="page"{% endif %}>
      {{- each.title -}}
    </a>
  {% endfor %}
  </nav>
</header>
<main>{{ embed(roots[0]) }}</main>
{% endblock %}
"""

# Charts lie next to each other where there is room; tables, and a chart alone, have the whole width.
_GRID = """
:host {
  display: grid !important; gap: 6px 24px !important;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr));
}
:host > div { grid-column: 1 / -1 !important }
.chart + .chart, .chart:has(+ .chart) { grid-column: auto !important }
"""


def applications(source: Observer, every: float) -> dict[str, Application]:
    """Return the Bokeh application of each page, by its path."""
    return {
        f"/{page.path}": Application(FunctionHandler(partial(_open, page=page, source=source, every=every)))
        for page in PAGES
    }


def _open(document: Any, page: Page, source: Observer, every: float) -> None:
    """Fill the document of one open page, and update it while it is open."""
    views = [ChartView(part) if isinstance(part, Chart) else TextView(part) for part in page.parts]
    document.title = f"{page.title} - zerocopy monitor"
    document.template = Template(PAGE)
    document.template_variables.update(heading=page.title, page=page.path, pages=PAGES)
    models = [view.model for view in views]
    document.add_root(column(*models, sizing_mode="stretch_width", stylesheets=[InlineStyleSheet(css=_GRID)]))

    def update() -> None:
        if source.newest is None:
            return
        samples = points(source.history, source.newest)
        document.hold("combine")  # one message to the browser, not one for each property
        try:
            for view in views:
                view.update(samples)
        finally:
            document.unhold()

    update()
    document.add_periodic_callback(update, max(_SHORTEST, round(every * 1000)))


def points(history: Iterable[Sample], newest: Sample) -> list[Sample]:
    """Return one sample of each equal interval, so that the next update draws the same, and the newest."""
    samples = [*history] or [newest]
    step = max((samples[-1]["time"] - samples[0]["time"]) / _MOST_POINTS, 1e-3)
    chosen = [*{int(sample["time"] / step): sample for sample in samples}.values()]
    return [*chosen[:-1], newest]


# -- the charts, tables and paragraphs of an open page --------------------------------------

#: The style of texts and tables: of the page's style, only variables apply in the shadow DOM of an element.
STYLE = """
:host { color: var(--text) }
p, table { font: 14px system-ui, sans-serif }
h2 { font: 600 15px system-ui, sans-serif; margin: 10px 0 4px }
p { margin: 4px 0; overflow-wrap: anywhere }
table { border-collapse: collapse; max-width: 1100px }
th, td { text-align: left; vertical-align: top; padding: 3px 12px 3px 0; overflow-wrap: anywhere }
th { font-weight: 600; border-bottom: 1px solid #80808080; overflow-wrap: normal }
td code { white-space: nowrap }
td.number, th.number { text-align: right; white-space: nowrap }
tr.note td { padding: 0 0 8px 12px; border-bottom: 1px solid #80808040 }
code { font-family: ui-monospace, monospace; font-size: 13px }
.bad { color: var(--bad); font-weight: 600 }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font: 13px system-ui, sans-serif }
.legend b { font-weight: 600 }
.legend span { overflow-wrap: anywhere }
.legend i { display: inline-block; width: 10px; height: 10px; margin-right: 5px; border-radius: 2px }
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


class TextView:
    """A table or paragraphs in one open page; hidden while they have no text.

    The text is replaced as a whole: Bokeh's DataTable kept its first figures for three seconds, although its
    source had changed (Bokeh 3.9).
    """

    def __init__(self, part: Table | Text) -> None:
        self._part = part
        self.model: Any = _div(min_width=280)

    def update(self, samples: Sequence[Sample]) -> None:
        """Show the newest sample."""
        self.model.text = self._part.html(samples[-1])
        self.model.visible = bool(self.model.text)


class ChartView:
    """A chart in one open page: it creates a new Bokeh figure when the labels change."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._source: Any = ColumnDataSource()
        self._colors: dict[str, str] = {}
        self._head = _div()
        self.model: Any = column(
            self._head, sizing_mode="stretch_width", min_width=280, css_classes=["chart"]
        )

    def update(self, samples: Sequence[Sample]) -> None:
        """Draw all samples."""
        moments = [self._chart.values(sample) for sample in samples]
        labels = list(dict.fromkeys(label for values in moments for label in values))
        missing = 0.0 if self._chart.stacked else math.nan  # Bokeh cannot stack areas over a gap
        data = {"time": [sample["time"] * 1000 for sample in samples]}
        for number, label in enumerate(labels[:MOST_LABELS]):
            figures = [values.get(label) for values in moments]
            data[f"y{number}"] = [missing if value is None else float(value) for value in figures]
        if labels[:MOST_LABELS] == [*self._colors]:
            self._source.data = data
        else:
            others = iter(COLORS * MOST_LABELS)
            fixed = self._chart.colors
            self._colors = {label: fixed.get(label) or next(others) for label in labels[:MOST_LABELS]}
            self._source = ColumnDataSource(data)
            self.model.children = [self._head, *([self._figure()] if labels else [])]
        self._head.text = self._text(moments[-1], len(labels[MOST_LABELS:]))
        self.model.visible = bool(self._head.text)

    def _figure(self) -> Any:
        """Return a figure of lines, or of areas on top of each other."""
        made = _empty_figure(self._chart.unit)
        names, colors = [f"y{number}" for number in range(len(self._colors))], [*self._colors.values()]
        if self._chart.stacked:
            made.varea_stack(names, x="time", source=self._source, color=colors, fill_alpha=0.75)
            return made
        for name, color in zip(names, colors, strict=True):
            made.line("time", name, source=self._source, color=color, line_width=2)
        return made

    def _text(self, newest: Values, hidden: int) -> str:
        """Return the title and the newest figures as HTML."""
        title = f"<h2>{escape(self._chart.title)}</h2>"
        if not self._colors:
            return f"{title}<p>{escape(self._chart.absent)}</p>" if self._chart.absent else ""
        marks = [
            f'<span><i style="background:{color}"></i>{escape(label)} '
            f"<b>{escape(show(newest.get(label), self._chart.unit))}</b></span>"
            for label, color in self._colors.items()
        ]
        if hidden:
            marks.append(f"<span>and {hidden} more, which are not drawn</span>")
        return f'{title}<div class="legend">{"".join(marks)}</div>'


def _empty_figure(unit: Unit) -> Any:
    """Return a figure with axes and without tools; charts below each other have equal times."""
    of_bytes = unit.startswith("bytes")
    # The span is that of a chart whose values are all 0.
    y_range: Any = DataRange1d(start=0, default_span=2048 if of_bytes else 8)
    made: Any = figure(
        x_axis_type="datetime", height=190, toolbar_location=None, tools="", sizing_mode="stretch_width",
        x_range=DataRange1d(range_padding=0.02, default_span=60_000),
        y_range=Range1d(start=0, end=100) if unit == "percent" else y_range,
        min_border_left=78, min_border_right=24,
        background_fill_alpha=0, border_fill_alpha=0, outline_line_color=None,
    )  # fmt: skip
    made.xaxis.formatter = CustomJSTickFormatter(code=_TIME)
    made.yaxis.formatter = CustomJSTickFormatter(args={"unit": SUFFIXES.get(unit, unit)}, code=_TICK)
    if of_bytes:
        mantissas = [2**power for power in range(10)]
        made.yaxis.ticker = AdaptiveTicker(base=1024, mantissas=mantissas, min_interval=1)
    if unit != "percent":
        made.yaxis.ticker.desired_num_ticks = 4
    made.xaxis.ticker.desired_num_ticks = 4
    made.grid.grid_line_color = "#80808050"
    made.axis.axis_line_color = made.axis.major_tick_line_color = "#80808080"
    made.axis.minor_tick_line_color = None
    # The colours of a canvas do not follow the page: this grey has a contrast above 4 on light and dark ones.
    made.axis.major_label_text_color = "#757d86"
    made.xaxis.major_label_policy = NoOverlap()
    return made


# -- figures for other programs ----------------------------------------------------------


class Metrics(RequestHandler):
    """Answers ``/metrics`` with the newest sample in the Prometheus text format."""

    def initialize(self, source: Observer) -> None:
        self._source = source

    def get(self) -> None:
        """Send the sample, or why it cannot be written."""
        sample = self._source.newest
        self.set_header("Content-Type", CONTENT_TYPE)
        try:
            self.finish("" if sample is None else exposition(sample))
        except ZeroCopyError as error:
            self.set_status(500)
            self.finish(f"500: {error}\n")
