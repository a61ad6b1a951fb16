"""Footnotes: each reason once, however many cells have it. Rich is not imported here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from zerocopy.formatting.printable import printable

#: The kinds of footnotes, in the order of the headings.
HEADINGS = {
    "broken": "Broken promises",
    "refused": "Why it is refused",
    "copy": "Why it copies",
    "warning": "Warnings",
}

#: A separate number, such as an address or a count of nulls, unlike the 64 of int64.
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?![\w.])")

#: A footnote of a cell: its kind, the reason and the remedy.
Key = tuple[str, str, str]


@dataclass(slots=True)
class Footnote:
    """Reasons that differ in numbers alone, and the cells that have them; 0 for a footnote without number."""

    kind: str
    number: int = 0
    reasons: list[tuple[str, str]] = field(default_factory=list)
    cells: list[Any] = field(default_factory=list)

    @property
    def why(self) -> str:
        """The reason, with the numbers of all cells."""
        return _merge([why for why, _ in self.reasons])

    @property
    def remedy(self) -> str:
        """The fix, with the numbers of all cells."""
        return _merge([remedy for _, remedy in self.reasons])

    def place(self, names: Sequence[str], total: int) -> str:
        """Return the names of the cells unless all have it; without a number the frameworks as well."""
        parts = [f"in {join_names(names)}"] if len(set(names)) < total else []
        if not self.number:
            sources, targets = {cell.source for cell in self.cells}, {cell.target for cell in self.cells}
            side = "target" if len(targets) <= len(sources) else "source"
            frameworks = join_names([getattr(cell, side) for cell in self.cells])
            parts.insert(0, f"{'to' if side == 'target' else 'from'} {frameworks}")
        return ", ".join(parts)


def generalize(key: Key) -> Key:
    """Return a key without numbers, which all cells of a footnote share."""
    if key[0] == "broken":
        return key
    return (key[0], _NUMBER.sub("#", key[1]), _NUMBER.sub("#", key[2]))


def _merge(texts: list[str]) -> str:
    """Return texts that differ in numbers alone as one.

    Examples
    --------
    >>> _merge(["it is at 8", "it is at 16", "it is at 8", "it is at 32"])
    'it is at 8, 16 or 32'
    """
    columns = zip(*map(_NUMBER.findall, dict.fromkeys(texts)), strict=True)
    numbers = iter([_join_alternatives(list(dict.fromkeys(values))) for values in columns])
    return _NUMBER.sub(lambda _: next(numbers), texts[0])


def _join_alternatives(values: list[str]) -> str:
    if len(values) > 4:
        values = [*values[:3], "other numbers"]
    return " or ".join(filter(None, [", ".join(values[:-1]), values[-1]]))


def join_names(names: Iterable[str], most: int = 6) -> str:
    """Return the first distinct names, and the number of the others."""
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - most} more" if len(distinct) > most else ""
    return ", ".join(map(printable, distinct[:most])) + more
