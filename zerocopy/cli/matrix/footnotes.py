"""Numbered notes below a grid: each reason once, however many cells have it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from zerocopy.cli.terminal import Output, printable

#: The kinds of notes, in the order in which they are listed.
HEADINGS = {
    "broken": "Broken promises",
    "refused": "Why it is refused",
    "copy": "Why it copies",
    "beware": "Beware",
}

#: A number that stands alone: an address, a count of nulls. Not that of int64.
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?![\w.])")

#: Of a cell: what kind of note, why, and the remedy.
Key = tuple[str, str, str]


@dataclass(slots=True)
class Note:
    """One reason: what differs in numbers alone is one."""

    kind: str
    texts: dict[tuple[str, str], None] = field(default_factory=dict)
    number: int = 0
    names: dict[str, None] = field(default_factory=dict)
    sources: dict[str, None] = field(default_factory=dict)
    targets: dict[str, None] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """The reason, with all numbers that it is met with."""
        return _merged([why for why, _ in self.texts])

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return _merged([remedy for _, remedy in self.texts])


class Notes:
    """The distinct reasons of all cells, numbered in the order in which they are listed.

    Parameters
    ----------
    cells : iterable
    keys : callable
        Returns a cell's notes.
    name : callable
        Returns what a cell is of: an array, a column.
    first : int
        The first number.
    unnumbered : collection of str, optional
        The kinds to which no cell refers: they say from where or to where they are met.
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
        self._notes: dict[Key, Note] = {}
        for cell in cells:
            for key in keys(cell):
                note = self._notes.setdefault(_alike(key), Note(key[0]))
                note.texts[key[1:]] = None
                note.names[name(cell)] = None
                note.sources[cell.source] = None
                note.targets[cell.target] = None
        self.listed = sorted(self._notes.values(), key=lambda note: list(HEADINGS).index(note.kind))
        numbered = [note for note in self.listed if note.kind not in unnumbered]
        for number, note in enumerate(numbered, first):
            note.number = number
        self.next = first + len(numbered)

    def of(self, cells: Iterable[Any]) -> list[int]:
        """Return the numbers of the notes of some cells."""
        keys = {_alike(key) for cell in cells for key in self._keys(cell)}
        return sorted({self._notes[key].number for key in keys if key[0] not in self._unnumbered})

    def show(self, total: int, out: Output) -> None:
        """Print them; `total` is how many arrays or columns there are, for those in some only."""
        kind = ""
        for note in self.listed:
            if note.kind != kind:
                kind = note.kind
                out.show("", Text(HEADINGS[kind], "bold red" if kind == "broken" else "bold"))
            text = Text(printable(note.why))
            if note.remedy:
                text.append("\n")
                text.append("fix: ", "dim")
                text.append(printable(note.remedy))
            where = [f"in {names(list(note.names))}"] if len(note.names) < total else []
            if note.number:
                sign = f"[{note.number}]"
            else:
                sign = out.signs.no
                # Of one target's, as a rule, or of one source's.
                way = (
                    ("to", note.targets) if len(note.targets) <= len(note.sources) else ("from", note.sources)
                )
                where = [f"{way[0]} {names(list(way[1]))}", *where]
            if where:
                text.append(f"\n{', '.join(where)}", "dim")
            listed([(Text(sign, "bold"), text)], out)


def _alike(key: Key) -> Key:
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
    places = zip(*(_NUMBER.findall(text) for text in texts), strict=True)
    said = iter([_either(list(dict.fromkeys(values))) for values in places])
    return _NUMBER.sub(lambda _: next(said), texts[0])


def _either(values: list[str]) -> str:
    if len(values) > 4:
        values = [*values[:3], "other numbers"]
    return " or ".join(filter(None, [", ".join(values[:-1]), values[-1]]))


def names(found: list[str], most: int = 6) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(printable(name) for name in found[:most]) + more


def listed(rows: list[tuple[Text, Text]], out: Output) -> None:
    """Print rows of a name and a text, which is wrapped beside it."""
    table = Table.grid(padding=(0, 1))
    table.add_column(max_width=out.width // 3)
    table.add_column(ratio=1)
    for name, text in rows:
        table.add_row(Text.assemble(" ", name), text)
    out.show(table)
