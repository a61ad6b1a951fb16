"""The pages: an overview, those of NVDashboard by name, and those of zerocopy, as documents of Bokeh."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.layouts import column
from bokeh.models import InlineStyleSheet
from jinja2 import Template
from tornado.web import RequestHandler

from zerocopy.errors import ZeroCopyError
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.prometheus import CONTENT_TYPE, exposition
from zerocopy.monitor.sample import Sample
from zerocopy.monitor.web import contents as own
from zerocopy.monitor.web.drawing import ChartView, TextView
from zerocopy.monitor.web.parts import Chart, Table, Text

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
