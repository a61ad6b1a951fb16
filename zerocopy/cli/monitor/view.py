"""A sample as lines of text: a screen of a given height, or a report without a limit.

Bars and signs are ASCII and differ in shape, so that they are readable in every terminal and without colours.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich.text import Text

from zerocopy.formatting import format_bytes, printable
from zerocopy.monitor.conversion import ConversionRow, merged_rows
from zerocopy.monitor.memory_split import MemorySplit, memory_split
from zerocopy.monitor.report import summary, text_table
from zerocopy.monitor.sample import Card, Sample
from zerocopy.monitor.web import contents
from zerocopy.monitor.web.parts import Chart, Table, show

#: Width of the names of the parts.
_LABEL = 12
#: More items than a sample has.
_ALL = 10_000

#: How to monitor a process.
_NOT_MONITORED = (
    "No process is monitored. To monitor one:",
    "  zerocopy monitor -- script.py        runs a program under the monitor",
    "  ZEROCOPY_MONITOR=1 python script.py  in another terminal",
    "  zerocopy.monitor.start()             in the program itself",
)


def screen(sample: Sample, width: int, height: int, title: str) -> list[Text]:
    """Return at most `height` lines; conversions get the lines that the other parts leave."""
    for most in range(max(height // 8, 1), 0, -1):  # items of each part
        head = [Text(title, "bold"), *_cards(sample, width, most), *_machine(sample)]
        tail = _tail(sample, most)
        wrapped = _wrapped(tail, width)
        if height - len(head) - len(wrapped) >= height // 2:
            tail = wrapped
        room = max(height - len(head) - len(tail), 1)
        if room >= height // 3:
            break
    middle = _conversions(sample, width, room) if sample["processes"] else _not_monitored()[:room]
    lines = [*head, *middle, *tail][:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def report(sample: Sample, width: int, title: str) -> list[Text]:
    """Return all lines."""
    lines = [Text(title, "bold"), *_cards(sample, width, full=True), *_machine(sample)]
    lines += _conversions(sample, width) if sample["processes"] else _not_monitored()
    return _wrapped([*lines, *_tail(sample, _ALL)], width)


def final_report(sample: Sample, width: int, title: str) -> list[Text]:
    """Return the lines that are printed after a program has ended."""
    lines = [Text(title, "bold")]
    if not sample["processes"]:
        lines.append(Text("  No process of the program imported zerocopy, so nothing was recorded."))
        return lines
    lines += _conversions(sample, width)
    if any(record["pool"]["kind"] for record in sample["processes"]):
        lines += _pools(sample, 20)
    lines += _rows("Loaders", contents.LOADERS, sample, 20, "loaders")
    return _wrapped([*lines, *_problems(sample, 20)], width)


def _tail(sample: Sample, most: int) -> list[Text]:
    lines = [*_pools(sample, most), *_rows("Processes", contents.PROCESSES, sample, most, "processes")]
    return [*lines, *_rows("Loaders", contents.LOADERS, sample, most, "loaders"), *_problems(sample, most)]


def _pools(sample: Sample, most: int) -> list[Text]:
    charts = contents.FRAMEWORKS, contents.HOST_MODES
    return [*_rows("Pool", contents.POOLS, sample, most, "pools"), *_figures("", *charts, sample=sample)]


def _not_monitored() -> list[Text]:
    return [Text(_NOT_MONITORED[0], "bold cyan"), *map(Text, _NOT_MONITORED[1:])]


def _problems(sample: Sample, most: int) -> list[Text]:
    """Return the failed reads; other lines report that there is no process or no GPU."""
    why_not = sample["cards"]["why_not"]
    texts = [text for text in sample["problems"] if not (why_not and text.endswith(why_not))]
    return [Text(f"Note      {printable(text)}", "yellow") for text in texts[:most]]


def _machine(sample: Sample) -> list[Text]:
    machine, rates = sample["machine"], sample["rates"]
    cores, memory, swap = machine["cpu_percent"], machine["memory_total"], machine["swap_used"]
    used = memory - machine["memory_available"]
    total, free = machine["shared_memory_total"], machine["shared_memory_free"]
    parts = [
        f"CPU {sum(cores) / len(cores):.0f}% of {len(cores)} cores" if cores else "",
        f"memory {format_bytes(used)} of {format_bytes(memory)}" if memory else "",
        f"swap {format_bytes(swap)}" if swap else "",
        f"/dev/shm {format_bytes(total - free)}" if total and free is not None else "",
    ]
    lines = [_labelled("Machine", "   ".join(filter(None, parts)) or "not readable")]
    if rates is not None:
        figures = [rates["disk_read"], rates["disk_written"]]
        figures += [rates["network_received"], rates["network_sent"]]
        disk_in, disk_out, net_in, net_out = ("?" if each is None else _rate(each) for each in figures)
        traffic = f"disk read {disk_in} write {disk_out}   network in {net_in} out {net_out}"
        lines.append(_labelled("", traffic))
    return lines


# -- lines -----------------------------------------------------------------------------


def _labelled(label: str, text: str, style: str = "") -> Text:
    return Text.assemble((label.ljust(_LABEL), "bold cyan"), (printable(text), style))


def _limited(lines: Sequence[Text], most: int, noun: str) -> list[Text]:
    """Return the first lines, and a line with the number of omitted ones."""
    if len(lines) <= most:
        return list(lines)
    shown = max(most - 1, 1)
    return [*lines[:shown], Text(f"{' ' * _LABEL}and {len(lines) - shown} more {noun}", "dim")]


def _wrapped(lines: Iterable[Text], width: int) -> list[Text]:
    """Return each line as one or several that fit, indented below the name of its part."""
    result = []
    for line in lines:
        parts = textwrap.wrap(
            line.plain, width, subsequent_indent=" " * _LABEL, break_on_hyphens=False,
            replace_whitespace=False,
        )  # fmt: skip
        result += [line] if line.cell_len <= width else list(map(Text, parts))
    return result


def _rate(value: float) -> str:
    return f"{format_bytes(round(value))}/s"


# -- conversions: rates, sums, and the call sites with the reason and the fix -----------------


def _conversions(sample: Sample, width: int, height: int | None = None) -> list[Text]:
    """Return at most `height` lines; without it, all rows with reasons that are not cut."""
    rows = merged_rows(sample["processes"], sample["order"])
    lines = _figures("Conversions", contents.BYTES, contents.CALLS, sample=sample)
    lines.append(_labelled("" if lines else "Conversions", summary(rows)))
    if height is None:
        return [*lines, *_table(rows, width)]
    room = height - len(lines)
    for shown in range(min(len(rows), max(room, 0)), -1, -1):
        table = _table(rows[:shown], width)
        if shown < len(rows):
            table.append(Text(f"and {len(rows) - shown} more call sites", "dim"))
        if len(table) <= room:
            break
    if not shown:  # as much of the first row as fits
        table = _table(rows[:1], width)
    return [*lines, *table][:height]


def _table(rows: list[ConversionRow], width: int) -> list[Text]:
    """Return a table of call sites, with the reason and the fix below each."""
    lines = text_table(rows, width).split("\n") if rows else []
    return [Text(line, "dim" if line.startswith("  why") else "") for line in lines]


# -- GPUs, with their memory divided among pools and processes --------------------------------

#: The parts of a GPU's memory: field, sign in the bar, name, style.
_PARTS = (
    ("pool_in_use", "#", "pool used", "green"),
    ("pool_free", "=", "pool free", "cyan"),
    ("process_outside_pool", "+", "outside pool", "yellow"),
    ("other_processes", "o", "others", "magenta"),
    ("not_divided", "?", "not divided", ""),
    ("free", ".", "free", "dim"),
)


def _cards(sample: Sample, width: int, most: int = _ALL, full: bool = False) -> list[Text]:
    """Return three lines for each GPU, one line if there are many, or why there are none."""
    cards = sample["cards"]
    if not cards["cards"]:
        return [_labelled("GPUs", f"none: {cards['why_not'] or 'NVML lists no GPU'}")]
    if not full and len(cards["cards"]) > most:
        return _limited([_headline(card) for card in cards["cards"]], most * 2, "GPUs")
    lines = []
    for card in cards["cards"]:
        lines.append(_headline(card))
        if not card["lost"]:
            split = memory_split(card, sample["processes"], cards)
            lines += _memory(card, split, width)
            lines += [Text(f"{' ' * _LABEL}{why}", "dim") for why in split.why_not if full]
    return lines


def _headline(card: Card) -> Text:
    if card["lost"]:
        return _labelled(f"GPU {card['index']}", card["lost"], "red")
    received, sent = card["pcie_received"], card["pcie_sent"]
    limit = "" if card["power_limit"] is None else f"/{card['power_limit']:.0f}"
    parts = [
        card["name"],
        "" if card["utilization"] is None else f"{card['utilization']}%",
        "" if card["temperature"] is None else f"{card['temperature']} C",
        "" if card["power"] is None else f"{card['power']:.0f}{limit} W",
        ""
        if received is None or sent is None
        else f"PCIe/s in {format_bytes(received)} out {format_bytes(sent)}",
    ]
    return _labelled(f"GPU {card['index']}", "  ".join(filter(None, parts)))


def _memory(card: Card, split: MemorySplit, width: int) -> list[Text]:
    """Return a bar, and the figures of its parts."""
    total, used = card["memory_total"], card["memory_used"]
    if not total or used is None:
        return [_labelled("", "memory: not readable", "dim")]
    sizes = split.shown(total)
    text = f"{format_bytes(used)} of {format_bytes(total)} "
    room = max(min(width, 120) - _LABEL - len(text) - 2, 10)
    bar, legend = Text(" " * _LABEL + text + "["), Text(" ")
    drawn, seen = 0, 0
    for part, sign, name, style in _PARTS:
        size = sizes[part] or 0
        seen += size
        end = min(round(room * seen / total), room)
        bar.append(sign * (end - drawn), style)
        drawn = max(end, drawn)
        if size and sign != ".":
            # Without a digit after the point for large sizes, so that the parts fit in 80 columns.
            shown = f"{size / (1 << 30):.0f} GiB" if size >= 10 << 30 else format_bytes(size)
            legend.append(sign, style)
            legend.append(f" {name} {shown}  ")
    bar.append("." * (room - drawn) + "]")
    return [bar, legend] if legend.plain.strip() else [bar]


# -- the tables of the page, one line for each row ---------------------------------------------


def _rows(label: str, table: Table, sample: Sample, most: int, noun: str) -> list[Text]:
    """Return the rows of a table of the page: texts, and figures that are not 0 after their titles."""
    titles = [f"{head[1:]} " if head.startswith("#") else "" for head in table.heads]
    rows = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in table.rows(sample)]
    lines = [
        "  ".join(title + text for title, text in zip(titles, row, strict=False) if text not in ("", "0"))
        for row in rows
    ]
    return _limited([_labelled("" if i else label, line) for i, line in enumerate(lines)], most, noun)


def _figures(label: str, *charts: Chart, sample: Sample) -> list[Text]:
    """Return the newest figures of some charts that are not 0, in one line."""
    figures = [(name, value, chart.unit) for chart in charts for name, value in chart.values(sample).items()]
    text = "   ".join(f"{name} {show(value, unit)}" for name, value, unit in figures if value)
    return [_labelled(label, text)] if text else []
