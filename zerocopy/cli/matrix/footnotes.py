"""Numbered footnotes below a grid: each reason once, however many cells have it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from zerocopy.cli.terminal import Output, printable

#: The kinds of footnotes, in the order of the headings.
HEADINGS = {
    "broken": "Broken promises",
    "refused": "Why it is refused",
    "copy": "Why it copies",
    "warning": "Warnings",
}

#: A number of its own, such as an address or a count of nulls, unlike the 64 of int64.
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?![\w.])")

#: A footnote of a cell: its kind, the reason and the remedy.
Key = tuple[str, str, str]


@dataclass(slots=True)
class Footnote:
    """Reasons that differ in numbers alone, and the cells that have them."""

    kind: str
    texts: dict[tuple[str, str], None] = field(default_factory=dict)
    number: int = 0
    names: dict[str, None] = field(default_factory=dict)
    sources: dict[str, None] = field(default_factory=dict)
    targets: dict[str, None] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """The reason, with the numbers of all cells."""
        return _merged([why for why, _ in self.texts])

    @property
    def remedy(self) -> str:
        """The fix, with the numbers of all cells."""
        return _merged([remedy for _, remedy in self.texts])

    def place(self, total: int) -> str:
        """Return where it applies: the arrays or columns unless all, and for a warning the frameworks."""
        parts = [f"in {join_names(list(self.names))}"] if len(self.names) < total else []
        if not self.number:
            to = len(self.targets) <= len(self.sources)
            frameworks = join_names(list(self.targets if to else self.sources))
            parts.insert(0, f"{'to' if to else 'from'} {frameworks}")
        return ", ".join(parts)


class Footnotes:
    """The footnotes of all cells, numbered in the order in which they are printed.

    Parameters
    ----------
    cells : iterable of Cell
    keys : callable
        Returns a cell's footnotes.
    name : callable
        Returns the name of a cell's array or column.
    first : int
        The first number.
    unnumbered : collection of str, optional
        The kinds that cells do not refer to: these name the frameworks instead.
    """

    def __init__(
        self,
        cells: Iterable[Any],
        keys: Callable[[Any], list[Key]],
        name: Callable[[Any], str],
        first: int = 1,
        unnumbered: Collection[str] = (),
    ) -> None:
        self._keys, self._unnumbered = keys, unnumbered
        self._footnotes: dict[Key, Footnote] = {}
        for cell in cells:
            for key in keys(cell):
                footnote = self._footnotes.setdefault(_general(key), Footnote(key[0]))
                footnote.texts[key[1:]] = None
                footnote.names[name(cell)] = None
                footnote.sources[cell.source] = None
                footnote.targets[cell.target] = None
        self.listed = sorted(self._footnotes.values(), key=lambda note: list(HEADINGS).index(note.kind))
        numbered = [footnote for footnote in self.listed if footnote.kind not in unnumbered]
        for number, footnote in enumerate(numbered, first):
            footnote.number = number
        self.next = first + len(numbered)

    def numbers(self, cells: Iterable[Any]) -> list[int]:
        """Return the numbers of some cells' footnotes."""
        keys = {_general(key) for cell in cells for key in self._keys(cell)}
        return sorted({self._footnotes[key].number for key in keys if key[0] not in self._unnumbered})

    def print(self, total: int, out: Output) -> None:
        """Print the footnotes; `total` is the number of arrays or columns."""
        kind = ""
        for footnote in self.listed:
            if footnote.kind != kind:
                kind = footnote.kind
                out.show("", Text(HEADINGS[kind], "bold red" if kind == "broken" else "bold"))
            text = with_fix(footnote.why, footnote.remedy)
            if place := footnote.place(total):
                text.append(f"\n{place}", "dim")
            sign = f"[{footnote.number}]" if footnote.number else out.signs.no
            print_rows([(Text(sign, "bold"), text)], out)


def _general(key: Key) -> Key:
    """Return a key without numbers, which all cells of a footnote share."""
    if key[0] == "broken":
        return key
    return (key[0], _NUMBER.sub("#", key[1]), _NUMBER.sub("#", key[2]))


def _merged(texts: list[str]) -> str:
    """Return texts that differ in numbers alone as one.

    Examples
    --------
    >>> _merged(["it is at 8", "it is at 16", "it is at 8", "it is at 32"])
    'it is at 8, 16 or 32'
    """
    columns = zip(*(_NUMBER.findall(text) for text in texts), strict=True)
    numbers = iter([_either(list(dict.fromkeys(values))) for values in columns])
    return _NUMBER.sub(lambda _: next(numbers), texts[0])


def _either(values: list[str]) -> str:
    if len(values) > 4:
        values = [*values[:3], "other numbers"]
    return " or ".join(filter(None, [", ".join(values[:-1]), values[-1]]))


def join_names(names: list[str], most: int = 6) -> str:
    """Return the first names, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(printable(name) for name in names[:most]) + more


def with_fix(why: str, remedy: str) -> Text:
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
