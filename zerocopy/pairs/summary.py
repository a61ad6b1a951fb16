"""The summary of a matrix: verdict, one sign per pair, and the most frequent reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import zerocopy
from zerocopy.formatting import printable
from zerocopy.formatting.lines import Line, grid, labelled, paragraph
from zerocopy.pairs.arrays import ArrayCell, ArrayMatrix
from zerocopy.pairs.cells import OUTCOMES, Cell, Footnote, Footnotes, join_names
from zerocopy.pairs.columns import ColumnCell, ColumnMatrix
from zerocopy.pairs.samples import Data

MOST_REASONS = 5


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

    def lines(self, width: int, unicode: bool, hint: str = "") -> list[Line]:
        """Return the verdict, the grid, the most frequent reasons, and `hint`."""
        lines = self.verdict_lines(width, unicode)
        lines += [[], [(printable(self.caption), ""), (f"  (zerocopy {zerocopy.__version__})", "dim")]]
        if self.squares:
            rows = {name: [[(printable(name), "bold")]] for name in self.sources}
            cells = {pair: [_draw_square(square, unicode)] for pair, square in self.squares.items()}
            corner: Line = [(corner_text(unicode), "dim")]
            lines += grid(corner, rows, self.targets, cells, width, gap=1)
            lines += paragraph(self._legend(unicode), "dim", width)
        if self.reasons:
            more = f" ({self.more_reasons} more)" if self.more_reasons else ""
            lines += [[], [("Most frequent reasons", "bold"), (more, "dim")]]
            notes = [
                (f"[{each.number}]", "bold", reason_lines(each.why, each.remedy)) for each in self.reasons
            ]
            lines += labelled(notes, width)
        lines.append([])
        for remark in [*self.remarks, *([hint] if hint else [])]:
            lines += paragraph(printable(remark), "dim", width)
        return lines

    def verdict_lines(self, width: int, unicode: bool) -> list[Line]:
        """Return whether every promise held, and how often each outcome occurred."""
        sign, style = ("!✗", "bold red") if self.is_broken else ("+✓", "bold green")
        return paragraph(f"{sign[unicode]} {self.verdict}", style, width)

    def _legend(self, unicode: bool) -> str:
        """Return the meaning of the signs, in one line."""
        if any(square.text for square in self.squares.values()):
            return " numbers after a count: reasons"
        used = {square.outcome for square in self.squares.values()}
        signs = [f"{each.signs[unicode]} {each.word}" for name, each in OUTCOMES.items() if name in used]
        return " " + "   ".join([*signs, "1, 2, ... reasons"])


def corner_text(unicode: bool) -> str:
    """Return the title of the column of sources."""
    return "from ↓ to →" if unicode else "from \\ to"


def reason_lines(why: str, remedy: str) -> list[Line]:
    """Return a reason, and its fix on a line of its own."""
    fix: list[Line] = [[("fix: ", "dim"), (printable(remedy), "")]] if remedy else []
    return [[(printable(why), "")], *fix]


def _draw_square(square: Square, unicode: bool) -> Line:
    outcome = OUTCOMES[square.outcome]
    numbers = ",".join(map(str, square.numbers))
    return [(square.text or outcome.signs[unicode], outcome.colour), (f" {numbers}" if numbers else "", "")]


def summarize(arrays: ArrayMatrix, columns: ColumnMatrix, data: Data, why: str = "") -> Summary:
    """Return the summary of the arrays or, without arrays, of the columns."""
    is_broken, verdict = _verdict([*arrays.cells, *columns.cells])
    main = [cell for cell in arrays.cells if cell.array not in data.subbyte or cell.broken]
    shown: Sequence[Any] = main or columns.cells
    notes = Footnotes(
        shown,
        rank=lambda note: (note.kind == "warning", note.kind != "broken", -len(note.cells)),
        most=MOST_REASONS,
        unnumbered={"warning"},
    )
    by_pair: dict[tuple[str, str], list[Any]] = {}
    for cell in shown:
        by_pair.setdefault((cell.source, cell.target), []).append(cell)
    square = _array_square if main else _column_square
    caption = f"{data.name}: {len(columns.types)} columns; 5/7 = 5 are aliased and 7 are converted"
    return Summary(
        verdict,
        is_broken,
        _array_caption(data.name, main) if main else caption,
        list(dict.fromkeys(source for source, _ in by_pair)),
        list(dict.fromkeys(target for _, target in by_pair)),
        {pair: square(cells, tuple(notes.numbers(cells))) for pair, cells in by_pair.items()},
        notes.numbered,
        sum(note.kind != "warning" for note in notes.listed) - len(notes.numbered),
        [*([why] if why else []), *_left_out(data, columns), *_remarks(arrays, columns, data)],
    )


def _verdict(cells: Sequence[Cell]) -> tuple[bool, str]:
    """Return whether a promise is broken, and the verdict with the counts of the outcomes."""
    if not cells:
        return False, "None of these frameworks can be used here: nothing was converted."
    total = f"{len(cells):,} conversion{'' if len(cells) == 1 else 's'}"
    broken = sum(bool(cell.broken) for cell in cells)
    text = f"{broken:,} of {total} broke a promise" if broken else f"Every promise held in {total}"
    return bool(broken), f"{text}: {_counts(cells)}."


def _counts(cells: Sequence[Cell]) -> str:
    counts = Counter(cell.outcome for cell in cells)
    return ", ".join(f"{counts[name]:,} {each.counted}" for name, each in OUTCOMES.items() if counts[name])


def _array_square(cells: list[ArrayCell], numbers: tuple[int, ...]) -> Square:
    return Square(max((cell.outcome for cell in cells), key=list(OUTCOMES).index), "", numbers)


def _column_square(cells: list[ColumnCell], numbers: tuple[int, ...]) -> Square:
    converted = sum(cell.outcome not in ("refused", "no source", "broken") for cell in cells)
    aliased = sum(cell.zero_copy for cell in cells)
    outcome = "broken" if any(cell.broken for cell in cells) else "refused" if not converted else "copy"
    outcome = "zero-copy" if aliased == len(cells) and outcome == "copy" else outcome
    return Square(outcome, f"{aliased}/{converted}", numbers)


def _array_caption(name: str, cells: list[ArrayCell]) -> str:
    arrays = {cell.array: cell for cell in cells}
    if len(arrays) == 1:
        ((array, cell),) = arrays.items()
        return f"{array}: {format_shape(cell.shape)}, {cell.dtype}"
    return f"{name}: {len(arrays)} arrays, the worst outcome of each pair"


def format_shape(shape: tuple[int, ...]) -> str:
    """Return a shape as text."""
    if len(shape) == 1:
        return f"{shape[0]:,} values"
    return " x ".join(f"{n:,}" for n in shape) or "one value"


def _left_out(data: Data, columns: ColumnMatrix) -> list[str]:
    """Return a line for each column of a file that was not converted, at most 3."""
    left_out = [
        f"Left out: {name}, {reason}." for name, reason in data.left_out.items() if name not in columns.types
    ]
    more = [f"Left out: {len(left_out) - 3:,} more."] if len(left_out) > 3 else []
    return [*left_out[:3], *more]


def _remarks(arrays: ArrayMatrix, columns: ColumnMatrix, data: Data) -> list[str]:
    """Return lines on small types and columns, and on the frameworks that were left out."""
    remarks = []
    small = [cell for cell in arrays.cells if cell.array in data.subbyte]
    if small:
        remarks.append(f"Arrays of {join_names(cell.array for cell in small)}: {_counts(small)}.")
    if arrays.cells and columns.cells:
        start = f"Columns of {len(columns.types)} types from {len(columns.sources)} frameworks"
        remarks.append(f"{start}: {_counts(columns.cells)}.")
    options = {cell.outcome for cell in columns.cells} & {"encoded", "masked"}
    remarks += [f"{OUTCOMES[name].counted}: {OUTCOMES[name].meaning}." for name in sorted(options)]
    absent: dict[str, Collection[str]] = {
        "Not usable here": arrays.not_usable,
        "Not installed": arrays.not_installed,
    }
    lists = [f"{title}: {join_names(names)}." for title, names in absent.items() if names]
    return [*remarks, " ".join(lists)] if lists else remarks
