"""The pages: an overview, those of NVDashboard by name, and those of zerocopy."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from zerocopy.monitor.web import contents as own
from zerocopy.monitor.web.drawing import Chart, History, Moment, Table, Text

Part = Chart | Table | Text


class Page(NamedTuple):
    """One page: the last part of its address, its title and its parts."""

    path: str
    title: str
    parts: tuple[Part, ...]

    def html(self, moment: Moment, history: History, every: float) -> str:
        """Return the page, whose script reads it again every `every` seconds."""
        parts = [part.html(history) if isinstance(part, Chart) else part.html(moment) for part in self.parts]
        looks = [" hidden" * (not html) for html in parts]
        for number in _wide(self.parts):
            looks[number] += ' class="wide"'
        return PAGE.format(
            title=self.title,
            links="".join(each.link(each.path == self.path) for each in PAGES),
            pause=max(_SHORTEST, round(every * 1000)),
            parts="".join(
                f"<section{look}>{html}</section>" for look, html in zip(looks, parts, strict=True)
            ),
            style=STYLE,
            script=SCRIPT,
        )

    def link(self, is_shown: bool) -> str:
        """Return a link to the page."""
        current = ' aria-current="page"' * is_shown
        return f'<a href="./{self.path}"{current}>{self.title}</a>\n'


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

#: The charts of all pages.
CHARTS = {part.title: part for page in PAGES for part in page.parts if isinstance(part, Chart)}

# Milliseconds between updates of a page: a slow browser cannot draw eight charts ten times a second.
_SHORTEST = 500


def _wide(parts: Sequence[Part]) -> set[int]:
    """Return the numbers of the parts that fill a row of the page: all except pairs of charts."""
    wide, open_chart = set(range(len(parts))), None
    for number, part in enumerate(parts):
        if isinstance(part, Chart) and open_chart is not None:
            wide -= {open_chart, number}
            open_chart = None
        else:
            open_chart = number if isinstance(part, Chart) else None
    return wide


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title} - zerocopy monitor</title>
<link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{style}</style>
</head>
<body>
<header>
<h1>zerocopy monitor: {title}</h1>
<nav aria-label="Pages">
{links}</nav>
</header>
<p id="late" role="status" hidden>The monitor does not answer: these are its last figures.</p>
<main data-pause="{pause}">{parts}</main>
<script>{script}</script>
</body>
</html>
"""

# Charts lie next to each other where there is room; tables have all columns.
STYLE = """
:root { color-scheme: light dark; --text: #24292f; --back: #ffffff; --line: #80808050; --link: #0550ae;
  --bad: #b35900 }
@media (prefers-color-scheme: dark) {
  :root { --text: #d0d7de; --back: #0d1117; --link: #79b8ff; --bad: #ffa657 }
}
[hidden] { display: none !important }
html, body { margin: 0; background: var(--back); color: var(--text); font: 14px system-ui, sans-serif }
header { padding: 10px 16px 0; border-bottom: 1px solid var(--line) }
h1 { font-size: 18px; margin: 0 0 6px }
nav { display: flex; flex-wrap: wrap; gap: 2px 14px; padding-bottom: 8px; font-size: 15px }
nav a { color: var(--link); text-decoration: none; padding: 3px 0; border-bottom: 2px solid transparent }
nav a:hover { border-color: var(--line) }
nav a[aria-current] { color: var(--text); font-weight: 600; border-color: currentColor }
nav a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
main { padding: 8px 16px 32px; max-width: 1200px; display: grid; gap: 6px 24px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)) }
section { min-width: 0 }
.wide { grid-column: 1 / -1 }
#late { padding: 0 16px }
h2 { font-size: 15px; font-weight: 600; margin: 10px 0 4px }
p { margin: 4px 0; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100%; max-width: 1100px }
th, td { text-align: left; vertical-align: top; padding: 3px 12px 3px 0; overflow-wrap: anywhere }
th { font-weight: 600; border-bottom: 1px solid #80808080; overflow-wrap: normal }
td code { white-space: nowrap }
td.number, th.number { text-align: right; white-space: nowrap }
tr.note td { padding: 0 0 8px 12px; border-bottom: 1px solid #80808040 }
code { font-family: ui-monospace, monospace; font-size: 13px }
.bad, #late { color: var(--bad); font-weight: 600 }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 13px }
.legend b { font-weight: 600 }
.legend span { overflow-wrap: anywhere }
.legend i { display: inline-block; width: 10px; height: 10px; margin-right: 5px; border-radius: 2px }
figure { position: relative; height: 150px; margin: 10px 24px 26px 78px; font-size: 12px }
figure svg { position: absolute; width: 100%; height: 100%; overflow: visible }
figure path { stroke-width: 2; stroke-linecap: round; stroke-linejoin: round;
  vector-effect: non-scaling-stroke }
.grid span { position: absolute; left: 0; width: 100%; height: 0; border-top: 1px solid var(--line);
  line-height: 0; text-indent: -78px; white-space: nowrap }
.clock time { position: absolute; bottom: -20px; width: 80px; margin-left: -40px; text-align: center }
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
# Only a part that has changed is replaced, so that a selection elsewhere remains. Times are local.
SCRIPT = """
const before = [], pause = +document.querySelector("main").dataset.pause;
const show = (page) => {
  const old = document.querySelectorAll("main > section");
  page.querySelectorAll("main > section").forEach((part, number) => {
    const html = part.outerHTML;
    if (html === before[number]) return;
    before[number] = html;
    for (const time of part.querySelectorAll("time"))
      time.textContent = new Date(time.dataset.seconds * 1000).toLocaleTimeString([], {hourCycle: "h23"});
    if (part !== old[number]) old[number].replaceWith(part);
  });
};
const read = async () => {
  let answered = false;
  try {
    const response = await fetch(location.href);
    answered = response.ok;
    if (answered) show(new DOMParser().parseFromString(await response.text(), "text/html"));
  } catch {}
  document.getElementById("late").hidden = answered;
};
const update = async () => { if (!document.hidden) await read(); setTimeout(update, pause) };
show(document);
setTimeout(update, pause);
"""
_DIGEST = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
#: Sent with every response: a browser runs no script except this one.
CONTENT_POLICY = (
    f"default-src 'none'; script-src 'sha256-{_DIGEST}'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
