"""Conversion rows as plain text, as HTML, and as an Arrow table."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from zerocopy.formatting.printable import printable
from zerocopy.formatting.units import format_bytes, format_count, format_seconds
from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.totals import NAMES, Totals, as_dict

#: The most rows of the text; `rows` has all of them.
_MOST = 30
#: A space at which lines are not broken.
_NO_BREAK = "\N{NO-BREAK SPACE}"
_NARROWEST, _WIDEST = 60, 140
_UNITS = {"aliased_bytes": "bytes", "copied_bytes": "bytes", "seconds": "seconds"}


def summary(totals: Totals) -> str:
    """Return the line above a table.

    Examples
    --------
    >>> summary(Totals(12, 9, 2, 0, 1, 0, 36 << 20, 4 << 20, seconds=0.003))
    '12 calls: 36 MiB aliased, 4 MiB copied, 1 refused, in 3.0 ms'
    """
    if not totals.calls:
        return "no conversions"
    parts = [f"{format_bytes(totals.aliased_bytes)} aliased", f"{format_bytes(totals.copied_bytes)} copied"]
    parts += [f"{totals.refused_calls:,} refused"] * bool(totals.refused_calls)
    parts += [f"{totals.unmeasured_calls:,} not measured"] * bool(totals.unmeasured_calls)
    if totals.seconds is not None:
        parts.append(f"in {format_seconds(totals.seconds)}")
    return f"{format_count(totals.calls, 'call')}: {', '.join(parts)}"


def text_table(rows: Sequence[ConversionRow], width: int | None = None) -> str:
    """Return a table of plain text, with the reason and the fix below each row; "" without rows."""
    if not rows:
        return ""
    if width is None:
        width = shutil.get_terminal_size((80, 24)).columns
    width = min(max(width, _NARROWEST), _WIDEST)
    titles, table = _cells(rows[:_MOST])
    texts = 2 if titles[0] == "call site" else 1
    numbers = [max(len(row[i]) for row in [titles, *table]) for i in range(texts, len(titles))]
    room = width - sum(numbers) - 2 * (len(titles) - 1)
    columns = [[row[i] for row in [titles, *table]] for i in range(texts)]
    if texts == 2 and sum(map(_longest_word, columns)) > room:
        table = [[cells[0].rpartition("/")[2], *cells[1:]] for cells in table]  # the file without its folder
        columns[0] = [titles[0], *(cells[0] for cells in table)]
    widths = [*_divided(room, columns), *numbers]
    lines = _lines(titles, widths, texts)
    for row, cells in zip(rows, table, strict=False):
        lines += _lines(cells, widths, texts)
        for name in ("not_measured", "why", "fix"):
            lines += _wrapped(name.replace("_", " "), printable(getattr(row, name)), width)
    if len(rows) > _MOST:
        lines.append(f"and {format_count(len(rows) - _MOST, 'more row')}: see .rows")
    return "\n".join(lines)


def html_table(caption: str, rows: Sequence[ConversionRow]) -> str:
    """Return a table for notebooks."""
    from zerocopy.notebooks import html

    if not rows:
        return html.table(caption, [])
    titles, table = _cells(rows[:_MOST])
    cells = [(*line, "\n".join(_notes(row))) for row, line in zip(rows, table, strict=False)]
    return html.table(caption, cells, (*titles, "why"))


def _notes(row: ConversionRow) -> list[str]:
    """Return which figures are unknown, the reason and the fix, as far as the row has them."""
    notes = [f"not measured: {row.not_measured}"] * bool(row.not_measured)
    return notes + [row.why] * bool(row.why) + [f"fix: {row.fix}"] * bool(row.fix)


def arrow_table(rows: Iterable[ConversionRow]) -> Any:
    """Return a ``pyarrow.Table`` with the attributes of `ConversionRow`, and units in its metadata."""
    from zerocopy.registry import by_name

    pa = by_name("pyarrow").module()
    types = {"line": pa.int64(), "seconds": pa.float64()}
    texts = ("file", "function", "source", "target", "why", "fix", "code")
    schema = pa.schema(
        [
            pa.field(
                name,
                pa.string() if name in texts else types.get(name, pa.int64()),
                nullable=name == "seconds",
                metadata={"unit": _UNITS[name]} if name in _UNITS else None,
            )
            for name in NAMES
        ]
    )
    return pa.Table.from_pylist([as_dict(row) for row in rows], schema=schema)


def _cells(rows: Sequence[ConversionRow]) -> tuple[list[str], list[list[str]]]:
    """Return titles and texts; a column without a value in any row is omitted."""
    with_sites = any(row.file for row in rows)
    with_time = any(row.seconds is not None for row in rows)
    titles = ["call site", "conversion", "calls", "aliased", "copied", "time"]
    table = []
    for row in rows:
        place = f"{short_path(row.file)}:{row.line} {row.function}" if row.file else "(other call sites)"
        pair = f"{row.source} -> {row.target}" if row.source else "(all others)"
        calls, *figures = count_cells(row)
        calls += " refused" if row.refused_calls == row.calls else ""
        table.append([printable(text) for text in (place, pair, calls, *figures)])
    kept = [i for i in range(6) if (i or with_sites) and (i < 5 or with_time)]
    return [titles[i] for i in kept], [[cells[i] for i in kept] for cells in table]


def count_cells(row: ConversionRow) -> tuple[str, str, str, str]:
    """Return calls, aliased and copied bytes and time; a question mark stands for what was not measured."""
    seconds = "?" if row.seconds is None else format_seconds(row.seconds)
    return f"{row.calls:,}", _bytes(row.aliased_bytes, row), _bytes(row.copied_bytes, row), seconds


def _bytes(count: int, row: ConversionRow) -> str:
    if not row.unmeasured_calls:
        return format_bytes(count)
    return f"{format_bytes(count)}+?" if count else "?"


def short_path(file: str) -> str:
    """Return the last two parts of a path, or the path from the working directory if that is shorter."""
    parts = file.replace(os.sep, "/").split("/")
    return file if len(parts) <= 2 else "/".join(parts[-2:])


def _divided(room: int, columns: list[list[str]]) -> list[int]:
    """Return the widths of columns of text: as wide as their texts, or half of the room."""
    needed = [max(map(len, column)) for column in columns]
    if sum(needed) <= room or len(needed) == 1:
        return [min(need, room) for need in needed]
    half = room // 2
    first = needed[0] if needed[0] < half else max(half, room - needed[1])
    words = [_longest_word(column) for column in columns]
    if sum(words) <= room:  # no name is broken
        first = min(max(first, words[0]), room - words[1])
    return [first, room - first]


def _longest_word(column: Sequence[str]) -> int:
    return max(len(word) for cell in column for word in cell.split(" "))


def _lines(cells: Sequence[str], widths: Sequence[int], texts: int) -> list[str]:
    """Return the lines of a row: its first cells are wrapped, and its numbers aligned to the right."""
    texts_of_cells = [cell.replace("-> ", f"->{_NO_BREAK}") for cell in cells[:texts]]
    wrapped = [
        textwrap.wrap(cell, width, break_on_hyphens=False) or [""]
        for cell, width in zip(texts_of_cells, widths, strict=False)
    ]
    wrapped += [[cell] for cell in cells[texts:]]
    lines = []
    for number in range(max(map(len, wrapped))):
        parts = [part[number].replace(_NO_BREAK, " ") if number < len(part) else "" for part in wrapped]
        padded = [
            part.ljust(width) if i < texts else part.rjust(width)
            for i, (part, width) in enumerate(zip(parts, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def _wrapped(name: str, text: str, width: int) -> list[str]:
    """Return the lines of a reason or a fix; code in it is not broken within a word."""
    if not text:
        return []
    return textwrap.wrap(
        text, width, initial_indent=f"  {name}: ", subsequent_indent=" " * 7, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
