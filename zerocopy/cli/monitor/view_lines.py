"""Lines of the monitor's view."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.text import Text

from zerocopy.formatting.printable import printable

#: Width of the names of the parts.
LABEL = 12


def labelled(label: str, text: str, style: str = "") -> Text:
    """Return a line with the name of its part."""
    return Text.assemble((label.ljust(LABEL), "bold cyan"), (printable(text), style))


def limited(lines: Sequence[Text], most: int, noun: str) -> list[Text]:
    """Return the first lines, and a line with the number of omitted ones."""
    if len(lines) <= most:
        return list(lines)
    shown = max(most - 1, 1)
    more = Text(f"{' ' * LABEL}and {len(lines) - shown} more {noun}", "dim")
    return [*lines[:shown], more]


def wrapped(line: Text, width: int) -> list[Text]:
    """Return a line as several ones that fit, indented below the name of its part."""
    if line.cell_len <= width:
        return [line]
    indent = " " * LABEL
    parts = textwrap.wrap(
        line.plain, width, subsequent_indent=indent, break_on_hyphens=False, replace_whitespace=False
    )
    return [Text(part) for part in parts]
