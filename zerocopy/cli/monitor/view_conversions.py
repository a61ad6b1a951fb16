"""The conversions of a sample: rates, sums, and the call sites that copy most with the reason and the fix."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from zerocopy.cli.monitor.view_lines import labelled
from zerocopy.formatting.printable import printable
from zerocopy.formatting.units import format_bytes
from zerocopy.monitor.conversion import ConversionRow, merged_rows
from zerocopy.monitor.observer import Rates
from zerocopy.monitor.report import count_cells, summary, text_table
from zerocopy.monitor.sample import Sample

#: The columns after the call site, and their widths. 80 columns have no room for the time, unless it orders
#: the lines.
_NUMBERS = {"calls": 9, "aliased": 10, "copied": 10, "time": 7}


def conversion_lines(
    sample: Sample, rates: Rates | None, width: int, height: int | None = None
) -> list[Text]:
    """Return at most `height` lines; without it, all rows with reasons that are not cut."""
    rows = merged_rows(sample["processes"], sample["order"])
    lines = [_rates(rates)] if rates is not None else []
    label = "" if lines else "Conversions"
    lines.append(labelled(label, summary(rows)))
    if height is None:
        table = text_table(rows, width)
        return [*lines, *map(Text, table.split("\n"))] if table else lines
    titles = list(_NUMBERS)[: 4 if sample["order"] == "time" else 3]
    return (lines + _table(rows, titles, width, height - len(lines)))[:height]


def _rates(rates: Rates) -> Text:
    now = rates["conversions"]
    copied, refused = now["copied_bytes"], now["refused_calls"]
    line = labelled("Conversions", "")
    line.append(f"copied {format_bytes(round(copied))}/s", "yellow" if copied else "")
    line.append("   ")
    line.append(f"aliased {format_bytes(round(now['aliased_bytes']))}/s", "green")
    line.append(f"   {now['calls']:,.1f} calls/s   ")
    line.append(f"{refused:,.1f} refused/s", "red" if refused else "")
    return line


def _table(rows: list[ConversionRow], titles: list[str], width: int, height: int) -> list[Text]:
    """Return a title, and rows with their reason and fix, as many as fit."""
    if not rows or height < 2:
        return []
    room = width - sum(_NUMBERS[title] + 1 for title in titles)
    lines = [Text(_columns("call site", titles, room), "dim")]
    for number, row in enumerate(rows):
        block = _row(row, room, len(titles))
        left = height - len(lines)
        is_last = number == len(rows) - 1
        if len(block) > left - (not is_last):
            if len(lines) == 1 and left > 0:
                lines += block[:left]
            elif left > 0:
                lines.append(Text(f"and {len(rows) - number} more call sites", "dim"))
            break
        lines += block
    return lines


def _row(row: ConversionRow, room: int, columns: int) -> list[Text]:
    style = "yellow" if row.copied_bytes else "red" if row.refused_calls else ""
    lines = [Text(_columns(_place(row, room), count_cells(row)[:columns], room), style)]
    lines += [Text(f"    not measured: {row.not_measured}", "dim")] * bool(row.not_measured)
    lines += [Text(f"    why: {printable(row.why)}", "dim")] * bool(row.why)
    lines += [Text(f"    fix: {printable(row.fix)}")] * bool(row.fix)
    return lines


def _place(row: ConversionRow, room: int) -> str:
    """Return the call site and the pair, without the folder, the function or the place if they do not fit."""
    if not row.source:
        return "(other call sites)"
    parts = row.source.split(".")
    pair = f"{parts[0]}.{parts[-1]} -> {row.target}" if len(parts) > 1 else f"{row.source} -> {row.target}"
    name = f"{row.file.replace(chr(92), '/').rpartition('/')[2]}:{row.line}" if row.file else ""
    texts = [f"{name} {row.function}  {pair}", f"{name}  {pair}"] if name else [pair]
    return next((text for text in texts if len(text) <= room), texts[-1])


def _columns(text: str, numbers: Sequence[str], room: int) -> str:
    shown = printable(text)
    shown = shown if len(shown) <= room else f"{shown[: room - 2]}.."
    cells = [f" {number:>{width}}" for number, width in zip(numbers, _NUMBERS.values(), strict=False)]
    return shown.ljust(room) + "".join(cells)
