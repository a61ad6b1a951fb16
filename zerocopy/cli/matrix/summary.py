"""The summary of a matrix: verdict, one sign per pair, and the most frequent reasons; without Rich."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from zerocopy.cli.datasets import Data
from zerocopy.cli.matrix.arrays import ArrayCell, ArrayMatrix
from zerocopy.cli.matrix.cell import Cell
from zerocopy.cli.matrix.columns import ColumnCell, ColumnMatrix
from zerocopy.cli.matrix.notes import Footnote, generalize, join_names

MOST_REASONS = 5

#: Outcomes with the words of the verdict, from the best to the worst.
WORDS = {
    "zero-copy": "zero-copy",
    "empty": "empty",
    "copy": "copied",
    "encoded": "encoded",
    "masked": "masked",
    "refused": "refused",
    "no source": "no source",
    "broken": "BROKEN",
}


@dataclass(frozen=True, slots=True)
class Square:
    """A pair of frameworks: the worst outcome of its arrays, or a count of columns; and its reasons."""

    outcome: str
    text: str = ""
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """The parts of a summary, as text."""

    verdict: str
    is_broken: bool
    caption: str
    sources: list[str]
    targets: list[str]
    squares: dict[tuple[str, str], Square]
    reasons: list[Footnote] = field(default_factory=list)
    more_reasons: int = 0
    remarks: list[str] = field(default_factory=list)


def verdict(cells: Sequence[Cell]) -> tuple[bool, str, str]:
    """Return whether a promise is broken, the verdict, and the counts of the outcomes."""
    if not cells:
        return False, "None of these frameworks can be used here", "nothing was converted."
    counts = Counter(WORDS[cell.outcome] for cell in cells)
    details = ", ".join(f"{counts[word]:,} {word}" for word in WORDS.values() if counts[word]) + "."
    total = f"{len(cells):,} conversion{'' if len(cells) == 1 else 's'}"
    broken = sum(bool(cell.broken) for cell in cells)
    if broken:
        return True, f"{broken:,} of {total} broke a promise", details
    return False, f"Every promise held in {total}", details


def summarize(arrays: ArrayMatrix, columns: ColumnMatrix, data: Data, why: str = "") -> Summary:
    """Return the summary of the arrays or, without arrays, of the columns."""
    cells: list[Any] = [*arrays.cells, *columns.cells]
    is_broken, text, details = verdict(cells)
    shown: list[Any] = list(arrays.cells or columns.cells)
    reasons = _rank(shown)
    by_pair: dict[tuple[str, str], list[Any]] = {}
    for cell in shown:
        by_pair.setdefault((cell.source, cell.target), []).append(cell)
    of_pair = _array_square if arrays.cells else _column_square
    noted: dict[int, set[int]] = {}
    for note in reasons[:MOST_REASONS]:
        for cell in note.cells:
            noted.setdefault(id(cell), set()).add(note.number)
    squares = {
        pair: of_pair(group, sorted(set().union(*(noted.get(id(cell), set()) for cell in group))))
        for pair, group in by_pair.items()
    }
    return Summary(
        f"{text}: {details}",
        is_broken,
        _array_caption(data.name, arrays.cells) if arrays.cells else _column_caption(data.name, columns),
        list(dict.fromkeys(source for source, _ in by_pair)),
        list(dict.fromkeys(target for _, target in by_pair)),
        squares,
        reasons[:MOST_REASONS],
        max(0, len(reasons) - MOST_REASONS),
        [*([why] if why else []), *_left_out(data, columns), *_remarks(arrays, columns)],
    )


def _rank(cells: list[Any]) -> list[Footnote]:
    """Return the reasons for broken promises, then those for refusals and copies of the most cells."""
    notes: dict[Any, Footnote] = {}
    for cell in cells:
        kind = "copy" if cell.outcome in ("copy", "empty", "encoded", "masked") else "refused"
        refusals = [] if getattr(cell, "options", None) else getattr(cell, "refusals", [])
        keys = [("broken", text, "") for text in cell.broken]
        keys += [("refused", reason.why, reason.remedy) for reason in refusals]
        keys += [(kind, reason.why, reason.remedy) for reason in cell.reasons]
        for key in dict.fromkeys(keys):
            note = notes.setdefault(generalize(key), Footnote(key[0]))
            note.reasons.append(key[1:])
            note.cells.append(cell)
    ranked = sorted(notes.values(), key=lambda note: (note.kind != "broken", -len(note.cells)))
    for number, note in enumerate(ranked, 1):
        note.number = number
    return ranked


def _array_square(cells: list[ArrayCell], numbers: list[int]) -> Square:
    order = list(WORDS)
    return Square(max((cell.outcome for cell in cells), key=order.index), "", tuple(numbers))


def _column_square(cells: list[ColumnCell], numbers: list[int]) -> Square:
    converted = sum(cell.outcome not in ("refused", "no source", "broken") for cell in cells)
    aliased = sum(cell.zero_copy for cell in cells)
    outcome = "broken" if any(cell.broken for cell in cells) else "refused" if not converted else "copy"
    outcome = "zero-copy" if aliased == len(cells) and outcome == "copy" else outcome
    return Square(outcome, f"{aliased}/{converted}", tuple(numbers))


def _array_caption(name: str, cells: list[ArrayCell]) -> str:
    arrays = {cell.array: cell for cell in cells}
    if len(arrays) == 1:
        ((array, cell),) = arrays.items()
        shape = " x ".join(f"{n:,}" for n in cell.shape) or "one value"
        return f"{array}: {shape}, {cell.dtype}"
    return f"{name}: {len(arrays)} arrays, the worst outcome of each pair"


def _column_caption(name: str, columns: ColumnMatrix) -> str:
    count = len(columns.types)
    return f"{name}: {count} columns; 5/7 = 5 are aliased and 7 are converted"


def _left_out(data: Data, columns: ColumnMatrix) -> list[str]:
    """Return a line for each column of a file that was not converted, at most 3."""
    left_out = [
        f"Left out: {name}, {reason}." for name, reason in data.left_out.items() if name not in columns.types
    ]
    more = [f"Left out: {len(left_out) - 3:,} more."] if len(left_out) > 3 else []
    return [*left_out[:3], *more]


def _remarks(arrays: ArrayMatrix, columns: ColumnMatrix) -> list[str]:
    """Return lines on the columns, the warnings and the frameworks that were left out."""
    remarks = []
    if arrays.cells and columns.cells:
        counts = Counter(WORDS[cell.outcome] for cell in columns.cells)
        details = ", ".join(f"{counts[word]:,} {word}" for word in WORDS.values() if counts[word])
        start = f"Columns of {len(columns.types)} types from {len(columns.sources)} frameworks"
        remarks.append(f"{start}: {details}.")
    absent = [
        f"{title}: {join_names(names)}."
        for title, names in (
            ("Not usable here", arrays.not_usable),
            ("Not installed", arrays.not_installed),
        )
        if names
    ]
    return [*remarks, " ".join(absent)] if absent else remarks
