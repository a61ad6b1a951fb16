"""One cell of the matrix: the outcome of one conversion, and its footnotes: each reason once."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from zerocopy.errors import Reason
from zerocopy.formatting import printable

#: A footnote of a cell: its kind, the reason and the remedy.
Key = tuple[str, str, str]

#: The kinds of footnotes, in the order of the headings.
HEADINGS = {
    "broken": "Broken promises",
    "refused": "Why it is refused",
    "copy": "Why it copies",
    "warning": "Warnings",
}
_REFUSED = "refused by default"
#: In a footnote, the type of the row.
TYPE = "<type>"

#: A separate number, such as an address or a count of nulls, unlike the 64 of int64.
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?![\w.])")


@dataclass(frozen=True, slots=True)
class Outcome:
    """An outcome's signs in ASCII and in Unicode, its colour, its words, and its meaning in the legend.

    Signs differ in shape too, for readers without colours.
    """

    signs: str
    colour: str
    word: str
    counted: str  # the word of the verdict
    meaning: str


#: From the best outcome to the worst.
OUTCOMES = {
    "zero-copy": Outcome("=●", "green", "zero-copy", "zero-copy", "the result is in the source's memory"),
    "empty": Outcome(".·", "dim", "empty", "empty", "a zero-size array: nothing to share or copy"),
    "copy": Outcome("+◐", "yellow", "copy", "copied", "the result has its own memory"),
    "encoded": Outcome("ee", "green", "encoded", "encoded", f'{_REFUSED}; encode="bytes" returns numbers'),
    "masked": Outcome("mm", "green", "masked", "masked", f'{_REFUSED}; nulls="mask" returns a mask as well'),
    "refused": Outcome("-○", "cyan", "refused", "refused", "an error with the reason and the fix"),
    "no source": Outcome(
        "x∅", "dim", "no source", "no source", "the source's framework cannot hold the data"
    ),
    "broken": Outcome("!✗", "bold white on red", "BROKEN", "BROKEN", "a promise does not hold"),
}


@dataclass(slots=True, kw_only=True)
class Cell:
    """The outcome of converting an object of the framework `source` to the framework `target`.

    `proof` has the evidence for `zero_copy`: ``"shares_memory"``; ``"address"``, both begin at the
    same address; ``"write"``, the result was read after a write to the source. It is empty for a
    query, whose memory cannot be inspected.
    """

    source: str
    target: str
    outcome: str = "broken"  # a key of OUTCOMES
    zero_copy: bool = False  # whether every block of the result is in the source's memory
    proof: list[str] = field(default_factory=list)
    protocol: str = ""
    copied_bytes: int = 0
    reasons: list[Reason] = field(default_factory=list)  # why it copies or is refused
    warnings: list[str] = field(default_factory=list)  # the plan's, and those that Python issued
    broken: list[str] = field(default_factory=list)  # the promises that do not hold, in words

    @property
    def item(self) -> str:
        """The name of the array or column."""
        raise NotImplementedError

    def keys(self, general: bool = False) -> list[Key]:
        """Return the cell's footnotes; `general` writes `TYPE` for its type, so that types share them."""
        kind = "refused" if self.outcome in ("refused", "no source") else "copy"
        return [
            *(("broken", text, "") for text in self.broken),
            *((kind, reason.why, reason.remedy) for reason in self.reasons),
            *(("warning", text, "") for text in self.warnings),
        ]


@dataclass(slots=True)
class Footnote:
    """Reasons that differ in numbers alone, and the cells that have them; 0 for a footnote without number."""

    kind: str
    number: int = 0
    reasons: list[tuple[str, str]] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)

    @property
    def why(self) -> str:
        """The reason, with the numbers of all cells."""
        return _merge([why for why, _ in self.reasons])

    @property
    def remedy(self) -> str:
        """The fix, with the numbers of all cells."""
        return _merge([remedy for _, remedy in self.reasons])

    def place(self, total: int) -> str:
        """Return the arrays or columns unless all have it; without a number the frameworks as well."""
        items = [cell.item for cell in self.cells]
        parts = [f"in {join_names(items)}"] if len(set(items)) < total else []
        if not self.number:
            sources, targets = ([getattr(c, side) for c in self.cells] for side in ("source", "target"))
            fewer_targets = len(set(targets)) <= len(set(sources))
            parts.insert(0, f"to {join_names(targets)}" if fewer_targets else f"from {join_names(sources)}")
        return ", ".join(parts)


class Footnotes:
    """The footnotes of some cells in the order of `rank`, at most `most` of them numbered from `first`.

    Cells do not refer to the `unnumbered` kinds: these name their frameworks instead.
    """

    def __init__(
        self,
        cells: Iterable[Cell],
        *,
        general: bool = False,
        rank: Callable[[Footnote], Any] = lambda note: list(HEADINGS).index(note.kind),
        first: int = 1,
        most: int | None = None,
        unnumbered: Collection[str] = (),
    ) -> None:
        footnotes: dict[Key, Footnote] = {}
        self._by_cell: dict[int, list[Footnote]] = {}
        for cell in cells:
            for key in dict.fromkeys(cell.keys(general)):
                footnote = footnotes.setdefault(_without_numbers(key), Footnote(key[0]))
                footnote.reasons.append(key[1:])
                footnote.cells.append(cell)
                self._by_cell.setdefault(id(cell), []).append(footnote)
        self.listed: list[Footnote] = sorted(footnotes.values(), key=rank)
        self.numbered: list[Footnote] = [note for note in self.listed if note.kind not in unnumbered][:most]
        for number, footnote in enumerate(self.numbered, first):
            footnote.number = number
        self.next: int = first + len(self.numbered)

    def numbers(self, cells: Sequence[Cell]) -> list[int]:
        """Return the numbers of some cells' footnotes."""
        return sorted({note.number for cell in cells for note in self._by_cell.get(id(cell), ())} - {0})


def _without_numbers(key: Key) -> Key:
    """Return a key without numbers, which all cells of a footnote share."""
    if key[0] == "broken":
        return key
    return (key[0], _NUMBER.sub("#", key[1]), _NUMBER.sub("#", key[2]))


def _merge(texts: list[str]) -> str:
    """Return texts that differ in numbers alone as one."""
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
