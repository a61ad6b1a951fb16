"""A sample as lines of text: a screen of a given height, or a report without a limit.

Bars and signs are ASCII and differ in shape, so that they are readable in every terminal and without colours.
"""

from __future__ import annotations

from rich.text import Text

from zerocopy.cli.monitor.view_cards import card_lines
from zerocopy.cli.monitor.view_conversions import conversion_lines
from zerocopy.cli.monitor.view_lines import labelled, wrapped
from zerocopy.cli.monitor.view_processes import loader_lines, pool_lines, process_lines
from zerocopy.formatting.printable import printable
from zerocopy.formatting.units import format_bytes
from zerocopy.monitor.observer import Rates
from zerocopy.monitor.sample import Machine, Sample

#: How to monitor a process.
HOW = (
    "No process is monitored. To monitor one:",
    "  zerocopy monitor -- script.py        runs a program under the monitor",
    "  ZEROCOPY_MONITOR=1 python script.py  in another terminal",
    "  zerocopy.monitor.start()             in the program itself",
)


def screen(sample: Sample, rates: Rates | None, width: int, height: int, title: str) -> list[Text]:
    """Return at most `height` lines; conversions get the lines that the other parts leave."""
    for most in range(max(height // 8, 1), 0, -1):  # items of each part
        head = [Text(title, "bold"), *card_lines(sample, width, most)]
        head += machine_lines(sample["machine"], rates)
        tail = _tail(sample, rates, most)
        room = max(height - len(head) - len(tail), 1)
        if room >= height // 3:
            break
    middle = conversion_lines(sample, rates, width, room) if sample["processes"] else _how()[:room]
    lines = [*head, *middle, *tail][:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def report(sample: Sample, rates: Rates | None, width: int, title: str) -> list[Text]:
    """Return all lines."""
    lines = [Text(title, "bold"), *card_lines(sample, width, full=True)]
    lines += machine_lines(sample["machine"], rates)
    lines += conversion_lines(sample, rates, width) if sample["processes"] else _how()
    lines += _tail(sample, rates, most=10_000)
    return [part for line in lines for part in wrapped(line, width)]


def final_report(sample: Sample, width: int, title: str) -> list[Text]:
    """Return the lines that are printed after a program has ended."""
    lines = [Text(title, "bold")]
    if not sample["processes"]:
        lines.append(Text("  No process of the program imported zerocopy, so nothing was recorded."))
        return lines
    lines += conversion_lines(sample, None, width)
    pools = [record for record in sample["processes"] if record["pool"]["kind"]]
    lines += pool_lines(pools, 20)
    lines += loader_lines(sample["processes"], 20) + _problems(sample, 20)
    return [part for line in lines for part in wrapped(line, width)]


def _tail(sample: Sample, rates: Rates | None, most: int) -> list[Text]:
    records = sample["processes"]
    lines = pool_lines(records, most) + process_lines(records, rates, most) if records else []
    return lines + loader_lines(records, most) + _problems(sample, most)


def _how() -> list[Text]:
    return [Text(HOW[0], "bold cyan"), *map(Text, HOW[1:])]


def _problems(sample: Sample, most: int) -> list[Text]:
    """Return what could not be read; the sample says elsewhere that there is no process or no GPU."""
    why_not = sample["cards"]["why_not"]
    texts = [text for text in sample["problems"] if not (why_not and text.endswith(why_not))]
    return [Text(f"Note      {printable(text)}", "yellow") for text in texts[:most]]


def machine_lines(machine: Machine, rates: Rates | None) -> list[Text]:
    """Return the use of the cores and memory, and the traffic of disks and networks."""
    parts = []
    cores = machine["cpu_percent"]
    if cores:
        parts.append(f"CPU {sum(cores) / len(cores):.0f}% of {len(cores)} cores")
    if machine["memory_total"]:
        used = machine["memory_total"] - machine["memory_available"]
        parts.append(f"memory {format_bytes(used)} of {format_bytes(machine['memory_total'])}")
    if machine["swap_used"]:
        parts.append(f"swap {format_bytes(machine['swap_used'])}")
    total, free = machine["shared_memory_total"], machine["shared_memory_free"]
    if total and free is not None:
        parts.append(f"/dev/shm {format_bytes(total - free)}")
    lines = [labelled("Machine", "   ".join(parts) or "not readable")]
    if rates is not None:
        disk = [_per_second(rates, "disk_read"), _per_second(rates, "disk_written")]
        network = [_per_second(rates, "network_received"), _per_second(rates, "network_sent")]
        traffic = f"disk read {disk[0]} write {disk[1]}   network in {network[0]} out {network[1]}"
        lines.append(labelled("", traffic))
    return lines


def _per_second(rates: Rates, key: str) -> str:
    value = rates[key]  # type: ignore[literal-required]
    return "?" if value is None else f"{format_bytes(round(value))}/s"
