"""The pages: an overview, those of NVDashboard by name, and those of zerocopy.

`Feed` has the samples that all open pages show: they are read once for all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.layouts import column
from bokeh.models import CustomJS, InlineStyleSheet
from bokeh.models.widgets import TextInput
from jinja2 import Template
from tornado.web import RequestHandler

from zerocopy.monitor.conversion import summarized
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.web import contents as own
from zerocopy.monitor.web.drawing import ChartView, TextView
from zerocopy.monitor.web.parts import Chart, Moment, Table, Text

Part = Chart | Table | Text


class Page(NamedTuple):
    """One page: the last part of its address, its title and its parts."""

    path: str
    title: str
    parts: tuple[Part, ...]


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
  :root { color-scheme: light dark; --text: #24292f; --back: #ffffff; --line: #80808050; --link: #0550ae }
  @media (prefers-color-scheme: dark) { :root { --text: #d0d7de; --back: #0d1117; --link: #79b8ff } }
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

# Charts lie next to each other where there is room; tables have all columns.
_GRID = """:host {
  display: grid !important; gap: 6px 24px !important;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr));
}"""
_WIDE = ":host { grid-column: 1 / -1 }"

# Milliseconds between updates of a page: a slow browser cannot draw eight charts ten times a second.
_SHORTEST = 500

# The browser reports its colours once, and when the user changes them.
_REPORT_THEME = """
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const report = () => { theme.value = dark.matches ? "dark" : "light" };
dark.addEventListener("change", report);
report();
"""


def applications(feed: Feed, every: float) -> dict[str, Application]:
    """Return the Bokeh application of each page, by its path."""
    return {
        f"/{page.path}": Application(FunctionHandler(partial(_open, page=page, feed=feed, every=every)))
        for page in PAGES
    }


def _open(document: Any, page: Page, feed: Feed, every: float) -> None:
    """Fill the document of one open page, and update it while it is open."""
    views = [ChartView(part) if isinstance(part, Chart) else TextView(part) for part in page.parts]
    for view in _wide(views):
        view.model.stylesheets = [*view.model.stylesheets, InlineStyleSheet(css=_WIDE)]
    theme = TextInput(value="light", visible=False, name="theme")
    document.title = f"{page.title} - zerocopy monitor"
    document.template = Template(PAGE)
    document.template_variables.update(heading=page.title, page=page.path, pages=PAGES)
    models = [view.model for view in views]
    document.add_root(
        column(*models, theme, sizing_mode="stretch_width", stylesheets=[InlineStyleSheet(css=_GRID)])
    )

    def set_theme(attribute: str, old: Any, new: Any) -> None:
        with _one_message(document):
            for view in views:
                view.set_theme(new)

    theme.on_change("value", set_theme)
    document.js_on_event("document_ready", CustomJS(args={"theme": theme}, code=_REPORT_THEME))
    shown = 0

    def update() -> None:
        nonlocal shown
        moments = list(feed.since(shown))
        if moments:
            shown = moments[-1].number
            with _one_message(document):
                for view in views:
                    view.update(moments, feed.most)

    update()
    document.add_periodic_callback(update, max(_SHORTEST, round(every * 1000)))


@contextmanager
def _one_message(document: Any) -> Iterator[None]:
    """Send all changes to the browser as one message, not one for each property."""
    document.hold("combine")
    try:
        yield
    finally:
        document.unhold()


def _wide(views: list[Any]) -> list[Any]:
    """Return the views that fill a row of the page: all except pairs of charts."""
    wide, open_chart = [], None
    for view in views:
        if not isinstance(view, ChartView):
            wide += [view] if open_chart is None else [open_chart, view]
            open_chart = None
        else:
            open_chart = view if open_chart is None else None
    return wide if open_chart is None else [*wide, open_chart]


def metrics(feed: Feed) -> type[RequestHandler]:
    """Return the handler of ``/metrics``: the newest sample in the Prometheus text format."""

    class Metrics(RequestHandler):
        def get(self) -> None:
            from zerocopy.monitor.prometheus import CONTENT_TYPE, exposition

            moment = feed.newest
            self.set_header("Content-Type", CONTENT_TYPE)
            self.finish("" if moment is None else exposition(moment.sample))

    return Metrics


class Feed:
    """The moments of the last `keep` seconds, oldest first; only the newest has call sites."""

    def __init__(self, source: Observer, every: float, keep: float = 300.0) -> None:
        self._source = source
        self.most: int = max(2, round(keep / every))
        self._moments: deque[Moment] = deque(maxlen=self.most)
        self._number = 0

    def read(self) -> None:
        """Read one sample. One thread at a time may call it."""
        sample = self._source.read()
        self._number += 1
        self._moments.append(Moment(sample, self._source.rates(), self._number))
        if self._number > 1:
            last = self._moments[-2]
            processes = [summarized(record) for record in last.sample["processes"]]
            self._moments[-2] = last._replace(sample={**last.sample, "processes": processes})

    @property
    def newest(self) -> Moment | None:
        """The latest moment; None before the first read."""
        return self._moments[-1] if self._moments else None

    def since(self, number: int) -> Iterator[Moment]:
        """Yield the moments after the one with this number."""
        for moment in self._moments.copy():  # another thread appends
            if moment.number > number:
                yield moment
