"""Numbered footnotes below a grid: each reason once, however many cells have it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

from zerocopy.cli.matrix.cell import Cell
from zerocopy.cli.matrix.notes import HEADINGS, Footnote, Key, generalize
from zerocopy.cli.terminal import Output
from zerocopy.formatting.printable import printable


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
                footnote = self._footnotes.setdefault(generalize(key), Footnote(key[0]))
                footnote.reasons.append(key[1:])
                footnote.cells.append(cell)
        self.listed = sorted(self._footnotes.values(), key=lambda note: list(HEADINGS).index(note.kind))
        numbered = [footnote for footnote in self.listed if footnote.kind not in unnumbered]
        for number, footnote in enumerate(numbered, first):
            footnote.number = number
        self.next = first + len(numbered)

    def numbers(self, cells: Iterable[Cell]) -> list[int]:
        """Return the numbers of some cells' footnotes."""
        numbers = {self._footnotes[generalize(key)].number for cell in cells for key in self._keys(cell)}
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
