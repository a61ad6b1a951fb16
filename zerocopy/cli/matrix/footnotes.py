"""Numbered footnotes below a grid: each reason once, however many cells have it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from zerocopy.cli.matrix.cell import Cell
from zerocopy.cli.terminal import Output, printable

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


class Footnotes:
    """The footnotes of all cells, numbered from `first` in the order in which they are printed.

    `keys` returns a cell's footnotes, `name` its array or column. Cells do not refer to the
    `unnumbered` kinds: these name their frameworks instead.
    """

    def __init__(
        self,
        cells: Iterable[Cell],
        keys: Callable[[Any], list[Key]],
        name: Callable[[Any], str],
        first: int = 1,
        unnumbered: Collection[str] = (),
    ) -> None:
        self._keys, self._name = keys, name
        self._footnotes: dict[Key, Footnote] = {}
        for cell in cells:
            for key in keys(cell):
                footnote = self._footnotes.setdefault(_generalize(key), Footnote(key[0]))
                footnote.reasons.append(key[1:])
                footnote.cells.append(cell)
        self.listed = sorted(self._footnotes.values(), key=lambda note: list(HEADINGS).index(note.kind))
        numbered = [footnote for footnote in self.listed if footnote.kind not in unnumbered]
        for number, footnote in enumerate(numbered, first):
            footnote.number = number
        self.next = first + len(numbered)

    def numbers(self, cells: Iterable[Cell]) -> list[int]:
        """Return the numbers of some cells' footnotes."""
        numbers = {self._footnotes[_generalize(key)].number for cell in cells for key in self._keys(cell)}
        return sorted(numbers - {0})

    def print(self, total: int, out: Output) -> None:
        """Print the footnotes; `total` is the number of arrays or columns."""
        kind = ""
        for footnote in self.listed:
            if footnote.kind != kind:
                kind = footnote.kind
                out.show("", Text(HEADINGS[kind], "bold red" if kind == "broken" else "bold"))
            text = format_reason(footnote.why, footnote.remedy)
            if place := footnote.place([self._name(cell) for cell in footnote.cells], total):
                text.append(f"\n{place}", "dim")
            sign = f"[{footnote.number}]" if footnote.number else out.signs.no
            print_rows([(Text(sign, "bold"), text)], out)


def _generalize(key: Key) -> Key:
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


def format_reason(why: str, remedy: str) -> Text:
    """Return a reason, and its fix on a line of its own."""
    text = Text(printable(why))
    return text.append("\n").append("fix: ", "dim").append(printable(remedy)) if remedy else text


def print_rows(rows: list[tuple[Text, Text]], out: Output) -> None:
    """Print rows of a name and a text, which wraps within its own column."""
    table = Table.grid(padding=(0, 1))
    table.add_column(max_width=out.width // 3)
    table.add_column(ratio=1)
    for name, text in rows:
        table.add_row(Text.assemble(" ", name), text)
    out.show(table)
