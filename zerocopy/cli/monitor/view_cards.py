"""The GPUs of a sample, with their memory divided among pools and processes."""

from __future__ import annotations

from rich.text import Text

from zerocopy.cli.monitor.view_lines import LABEL, labelled, limited
from zerocopy.formatting.units import format_bytes
from zerocopy.monitor.memory_split import MemorySplit, memory_split
from zerocopy.monitor.sample import Card, Sample

#: The parts of a GPU's memory: field, sign in the bar, name, style.
_PARTS = (
    ("pool_in_use", "#", "pool used", "green"),
    ("pool_free", "=", "pool free", "cyan"),
    ("process_outside_pool", "+", "outside pool", "yellow"),
    ("other_processes", "o", "others", "magenta"),
    ("free", ".", "free", "dim"),
)


def card_lines(sample: Sample, width: int, most: int = 10_000, full: bool = False) -> list[Text]:
    """Return three lines for each GPU, one line if there are many, or why there are none."""
    cards = sample["cards"]
    if not cards["cards"]:
        return [labelled("GPUs", f"none: {cards['why_not'] or 'NVML lists no GPU'}")]
    if not full and len(cards["cards"]) > most:
        return limited([_headline(card) for card in cards["cards"]], most * 2, "GPUs")
    lines = []
    for card in cards["cards"]:
        lines.append(_headline(card))
        if not card["lost"]:
            split = memory_split(card, sample["processes"], cards)
            lines += _memory(card, split, width)
            if full:
                lines += [Text(f"{' ' * LABEL}{why}", "dim") for why in split.why_not]
    return lines


def _headline(card: Card) -> Text:
    if card["lost"]:
        return labelled(f"GPU {card['index']}", card["lost"], "red")
    parts = [card["name"]]
    if card["utilization"] is not None:
        parts.append(f"{card['utilization']}%")
    if card["temperature"] is not None:
        parts.append(f"{card['temperature']} C")
    if card["power"] is not None:
        limit = "" if card["power_limit"] is None else f"/{card['power_limit']:.0f}"
        parts.append(f"{card['power']:.0f}{limit} W")
    if card["pcie_received"] is not None and card["pcie_sent"] is not None:
        received, sent = format_bytes(card["pcie_received"]), format_bytes(card["pcie_sent"])
        parts.append(f"PCIe/s in {received} out {sent}")
    return labelled(f"GPU {card['index']}", "  ".join(parts))


def _memory(card: Card, split: MemorySplit, width: int) -> list[Text]:
    """Return a bar, and the figures of its parts."""
    total, used = card["memory_total"], card["memory_used"]
    if not total or used is None:
        return [labelled("", "memory: not readable", "dim")]
    known = [part for part in _PARTS if getattr(split, part[0]) is not None]
    if split.total is None:  # the parts do not add up to the bar
        known = [part for part in known if part[0] not in ("other_processes", "free")]
        rest = used - sum(getattr(split, part[0]) for part in known)
        known_sizes = [(getattr(split, name), sign, text, style) for name, sign, text, style in known]
        sizes = [*known_sizes, (max(rest, 0), "?", "not divided", ""), (total - used, ".", "free", "dim")]
    else:
        sizes = [(getattr(split, name), sign, text, style) for name, sign, text, style in known]
    text = f"{format_bytes(used)} of {format_bytes(total)} "
    room = max(min(width, 120) - LABEL - len(text) - 2, 10)
    bar = Text(" " * LABEL + text + "[")
    drawn, seen = 0, 0
    for size, sign, _, style in sizes:
        seen += size
        end = min(round(room * seen / total), room)
        bar.append(sign * (end - drawn), style)
        drawn = max(end, drawn)
    bar.append("." * (room - drawn) + "]")
    legend = Text(" ")
    for size, sign, name, style in sizes:
        if size and sign != ".":
            legend.append(sign, style)
            legend.append(f" {name} {_short(size)}  ")
    return [bar, legend] if legend.plain.strip() else [bar]


def _short(size: int) -> str:
    """Return GiB without a digit after the point for large sizes, so that the parts fit in 80 columns."""
    return f"{size / (1 << 30):.0f} GiB" if size >= 10 << 30 else format_bytes(size)
