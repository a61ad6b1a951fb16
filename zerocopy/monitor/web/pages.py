"""The pages: an overview, those of NVDashboard by name, and those of zerocopy."""

from __future__ import annotations

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

from zerocopy.monitor.web import gpu_pages as gpu, process_pages as ours
from zerocopy.monitor.web.charts import Chart, ChartView
from zerocopy.monitor.web.feed import Feed
from zerocopy.monitor.web.tables import Table, TableView, Text, TextView
from zerocopy.monitor.web.template import PAGE

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
        (ours.STATE, ours.TOTALS, ours.BYTES, ours.FRAMEWORKS, ours.WORST_SITES, gpu.NO_GPU,
         _if_any(gpu.DEVICES), _if_any(gpu.UTILIZATION), _if_any(gpu.MEMORY_SPLIT), ours.LOADERS, gpu.CPU,
         gpu.MACHINE_MEMORY),
    ),
    Page("conversions", "Conversions", (ours.STATE, ours.TOTALS, ours.BYTES, ours.CALLS, ours.SITES)),
    Page("conversions-by-time", "Conversions by time", (ours.STATE, ours.TOTALS, ours.SLOW_SITES)),
    Page("pool", "Pool", (ours.STATE, ours.FRAMEWORKS, ours.HOST_MODES, ours.POOLS, ours.ATTACHED)),
    Page("processes", "Processes", (ours.STATE, ours.PROCESSES, ours.RESIDENT)),
    Page("loader", "Loader", (ours.STATE, ours.LOADERS, ours.DEPTH)),
    Page("gpu-utilization", "GPU utilization", (gpu.NO_GPU, gpu.UTILIZATION, gpu.MEMORY_UTILIZATION)),
    Page(
        "gpu-memory", "GPU memory",
        (gpu.NO_GPU, gpu.MEMORY_SPLIT, gpu.MEMORY_PARTS, gpu.MEMORY_USED, gpu.CARD_PROCESSES),
    ),
    Page("gpu-resources", "GPU resources", (gpu.NO_GPU, gpu.DEVICES, gpu.POWER, gpu.TEMPERATURE, gpu.CLOCK)),
    Page("pcie-throughput", "PCIe throughput", (gpu.NO_GPU, gpu.PCIE_RECEIVED, gpu.PCIE_SENT)),
    Page("nvlink-throughput", "NVLink throughput", (gpu.NO_GPU, gpu.LINKS_RECEIVED, gpu.LINKS_SENT)),
    Page("nvlink-timeline", "NVLink timeline", (gpu.NO_GPU, gpu.LINK_SUMS)),
    Page("machine-resources", "Machine resources", (gpu.CPU, gpu.MACHINE_MEMORY, gpu.DISK, gpu.NETWORK)),
)  # fmt: skip

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
    views = [_view(part) for part in page.parts]
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


def _view(part: Part) -> Any:
    if isinstance(part, Chart):
        return ChartView(part)
    return TableView(part) if isinstance(part, Table) else TextView(part)


def metrics(feed: Feed) -> type[RequestHandler]:
    """Return the handler of ``/metrics``: the newest sample in the Prometheus text format."""

    class Metrics(RequestHandler):
        def get(self) -> None:
            from zerocopy.monitor.prometheus import CONTENT_TYPE, exposition

            moment = feed.newest
            self.set_header("Content-Type", CONTENT_TYPE)
            self.finish("" if moment is None else exposition(moment.sample))

    return Metrics
