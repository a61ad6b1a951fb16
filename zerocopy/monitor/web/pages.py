"""The pages: an overview, those of NVDashboard by name, and those of zerocopy, as HTML of a history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from zerocopy.monitor.sample import Sample
from zerocopy.monitor.web import contents as own
from zerocopy.monitor.web.parts import Chart, Table, Text

#: Points of a chart: the overview of 8 GPUs takes 28 ms of CPU time for each update.
_MOST_POINTS = 150


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


def page_html(page: Page, content: str, every: float) -> str:
    """Return the document of a page; its script requests the content again every `every` seconds."""
    links = "".join(
        f'<a href="./{each.path}"{" aria-current=page" if each == page else ""}>{each.title}</a>'
        for each in PAGES
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{page.title} - zerocopy monitor</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="./page.css">
<script src="./page.js" defer></script>
</head>
<body data-every="{every}">
<header>
<h1>zerocopy monitor: {page.title}</h1>
<nav aria-label="Pages">{links}</nav>
</header>
<main>{content}</main>
</body>
</html>
"""


def content_html(page: Page, history: Iterable[Sample], newest: Sample) -> str:
    """Return the parts of a page: charts of all samples, tables and paragraphs of the newest."""
    samples = [*history] or [newest]
    # One sample of each equal interval, so that the same points are drawn at the next update.
    step = max((samples[-1]["time"] - samples[0]["time"]) / _MOST_POINTS, 1e-3)
    points = [*{int(sample["time"] / step): sample for sample in samples}.values()]
    parts = [(part, part.html([*points[:-1], newest])) for part in page.parts]
    return "".join(
        f"<section{' class=chart' if isinstance(part, Chart) else ''}>{html}</section>"
        for part, html in parts
        if html
    )


STYLE = """
:root { color-scheme: light dark; --text: #24292f; --back: #ffffff; --line: #80808050; --link: #0550ae;
  --bad: #b35900 }
@media (prefers-color-scheme: dark) {
  :root { --text: #d0d7de; --back: #0d1117; --link: #79b8ff; --bad: #ffa657 }
}
html, body { margin: 0; background: var(--back); color: var(--text); font: 14px system-ui, sans-serif }
header { padding: 10px 16px 0; border-bottom: 1px solid var(--line) }
h1 { font-size: 18px; margin: 0 0 6px }
nav { display: flex; flex-wrap: wrap; gap: 2px 14px; padding-bottom: 8px; font-size: 15px }
nav a { color: var(--link); text-decoration: none; padding: 3px 0; border-bottom: 2px solid transparent }
nav a:hover { border-color: var(--line) }
nav a[aria-current] { color: var(--text); font-weight: 600; border-color: currentColor }
nav a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
/* Charts lie next to each other where there is room; tables, and a chart alone, have the whole width. */
main { padding: 8px 16px 32px; max-width: 1200px; display: grid; gap: 6px 24px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)) }
section { min-width: 0; grid-column: 1 / -1 }
section.chart + section.chart, section.chart:has(+ section.chart) { grid-column: auto }
h2 { font-size: 15px; font-weight: 600; margin: 10px 0 4px }
p { margin: 4px 0; overflow-wrap: anywhere }
table { border-collapse: collapse; max-width: 1100px }
th, td { text-align: left; vertical-align: top; padding: 3px 12px 3px 0; overflow-wrap: anywhere }
th { font-weight: 600; border-bottom: 1px solid #80808080; overflow-wrap: normal }
td code { white-space: nowrap }
td.number, th.number { text-align: right; white-space: nowrap }
tr.note td { padding: 0 0 8px 12px; border-bottom: 1px solid #80808040 }
code { font-family: ui-monospace, monospace; font-size: 13px }
.bad { color: var(--bad); font-weight: 600 }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 13px }
.legend b { font-weight: 600 }
.legend span { overflow-wrap: anywhere }
.mark { width: 10px; height: 10px; margin-right: 5px }
.mark rect { width: 100%; height: 100%; rx: 2px }
svg.chart { box-sizing: border-box; width: 100%; height: 190px; padding: 12px 24px 0 78px; overflow: visible }
svg.chart svg { overflow: visible }
svg.chart text { fill: currentColor; font-size: 11px }
.grid { stroke: var(--line) }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; vector-effect: non-scaling-stroke }
.area { fill-opacity: 0.75 }
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

#: A selected text stays until it is no longer selected, and the last figures after the server's end.
SCRIPT = """
const main = document.querySelector("main");
const pause = Math.max(500, document.body.dataset.every * 1000);
function showTimes() {
  for (const text of main.querySelectorAll("[data-time]")) {
    const time = new Date(text.dataset.time * 1000);
    text.textContent = time.toLocaleTimeString([], {hourCycle: "h23"});
  }
}
async function update() {
  if (!document.hidden && getSelection().isCollapsed) {
    const answer = await fetch(location.pathname + "?content").catch(() => null);
    if (answer && answer.ok) {
      main.innerHTML = await answer.text();
      showTimes();
    }
  }
  setTimeout(update, pause);
}
showTimes();
setTimeout(update, pause);
"""
