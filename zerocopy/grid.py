"""The matrix as people read it: one grid for arrays that fare alike, and numbered notes below."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from rich.table import Table
from rich.text import Text

import zerocopy
from zerocopy.datasets import Data
from zerocopy.errors import Reason
from zerocopy.matrix import OUTCOMES, Cell, Matrix
from zerocopy.terminal import Output, Signs, duration, printable

_WORDS = {
    "zero-copy": "zero-copy",
    "copy": "copy",
    "empty": "empty",
    "refused": "refused",
    "no source": "no source",
    "broken": "BROKEN",
}
_COLOURS = {
    "zero-copy": "green",
    "copy": "yellow",
    "empty": "dim",
    "refused": "cyan",
    "no source": "cyan",
    "broken": "bold white on red",
}
_HEADINGS = {
    "broken": "Broken promises",
    "refused": "Why it is refused",
    "copy": "Why it copies",
    "beware": "Beware",
}


@dataclass(slots=True)
class _Note:
    kind: str
    why: str
    remedy: str
    number: int = 0
    arrays: dict[str, None] = field(default_factory=dict)


class _Notes:
    """The distinct reasons of all cells, numbered in the order in which they are listed."""

    def __init__(self, cells: list[Cell]) -> None:
        self._notes: dict[tuple[str, str, str], _Note] = {}
        for cell in cells:
            for key in self._keys(cell):
                self._notes.setdefault(key, _Note(*key)).arrays[cell.array] = None
        self.listed = sorted(self._notes.values(), key=lambda n: list(_HEADINGS).index(n.kind))
        for number, note in enumerate(self.listed, 1):
            note.number = number

    def of(self, cells: list[Cell]) -> list[int]:
        """Return the numbers of the notes of some cells."""
        return sorted({self._notes[key].number for cell in cells for key in self._keys(cell)})

    @staticmethod
    def _keys(cell: Cell) -> list[tuple[str, str, str]]:
        kind = "copy" if cell.outcome in ("copy", "empty") else "refused"
        return [
            *(("broken", text, "") for text in cell.broken),
            *((kind, r.why, r.remedy) for r in cell.reasons if cell.outcome != "zero-copy"),
            *(("beware", text, "") for text in cell.warnings),
        ]


def show(matrix: Matrix, data: Data, out: Output) -> None:
    """Print the grids, the notes, and what is not in them."""
    _show_title(data, out)
    notes = _Notes(matrix.cells)
    for cells in _alike(matrix.cells):
        _show_group(matrix, cells, notes, out)
    _show_legend(matrix, len(data.arrays), out)
    _show_notes(notes, len(data.arrays), out)
    _show_absent(matrix, data, out)
    _show_verdict(matrix, out)


def _alike(cells: list[Cell]) -> list[list[Cell]]:
    """Return the cells of arrays with the same outcome for every pair together.

    The types of twenty columns are many; what comes of them is two or three things.
    """
    by_array: dict[str, list[Cell]] = {}
    for cell in cells:
        by_array.setdefault(cell.array, []).append(cell)
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for own in by_array.values():
        groups.setdefault(tuple(cell.outcome for cell in own), []).extend(own)
    return list(groups.values())


def _show_title(data: Data, out: Output) -> None:
    size = sum(array.nbytes for array in data.arrays.values())
    title = Text.assemble(
        (f"zerocopy {zerocopy.__version__}", "bold"), f"  {printable(data.name)}, {size:,} bytes"
    )
    if data.note:
        title.append(f" ({data.note})", "dim")
    out.show(title)


def _show_group(matrix: Matrix, cells: list[Cell], notes: _Notes, out: Output) -> None:
    out.show("", _caption(cells, out))
    by_pair: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        by_pair.setdefault((cell.source, cell.target), []).append(cell)
    texts = {pair: _cell(some, notes, out.signs) for pair, some in by_pair.items()}
    heads = {name: _head(name, version) for name, version in matrix.frameworks.items()}
    first = max([len(out.signs.corner), *(_width(head) for head in heads.values())]) + 2
    widths = {
        target: 2 + max([len(target), *(_width(texts[source, target]) for source in heads)])
        for target in heads
    }
    for targets in _fit(widths, out.width + 2 - first):  # the last one needs no gap after it
        table = Table(
            box=out.signs.box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style=""
        )
        table.add_column(Text(out.signs.corner, "dim"), min_width=first - 2, no_wrap=True)
        for target in targets:
            table.add_column(
                Text(printable(target), "bold"), no_wrap=True, overflow="ignore", min_width=widths[target] - 2
            )
        for i, (source, head) in enumerate(heads.items()):
            if i:
                table.add_row()
            table.add_row(head, *(texts[source, target] for target in targets))
        out.show("", table)


def _caption(cells: list[Cell], out: Output) -> Text:
    arrays = {cell.array: cell for cell in cells}
    if len(arrays) == 1:
        ((name, cell),) = arrays.items()
        return Text(f"{printable(name)}: {_shape(cell.shape)}, {cell.dtype}")
    types = Counter(cell.dtype for cell in arrays.values())
    shapes = {cell.shape for cell in arrays.values()}
    each = f", each {_shape(shapes.pop())}" if len(shapes) == 1 else ""
    what = ", ".join(f"{count} {dtype}" for dtype, count in types.items())
    return Text(f"{len(arrays)} arrays ({what}){each}: {_names(list(arrays))}")


def _names(names: list[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(printable(name) for name in names[:most]) + more


def _shape(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"{shape[0]:,} values"
    return " x ".join(f"{n:,}" for n in shape) or "one value"


def _head(name: str, version: str | None) -> Text:
    return Text.assemble((printable(name), "bold"), "\n", (printable(version or ""), "dim"))


def _cell(cells: list[Cell], notes: _Notes, signs: Signs) -> Text:
    """Return two lines: what comes of a pair; the time and the notes."""
    outcome = cells[0].outcome
    text = Text(f"{_sign(outcome, signs)} {_WORDS[outcome]}", _COLOURS[outcome])
    timed = [c.median_ns for c in cells if c.median_ns is not None]
    below = [duration(median(timed), signs)] if timed else []
    numbers = notes.of(cells)
    if numbers:
        below.append(f"[{','.join(map(str, numbers))}]")
    return Text.assemble(text, "\n", (" ".join(below), "dim" if outcome == "zero-copy" else ""))


def _sign(outcome: str, signs: Signs) -> str:
    return {
        "zero-copy": signs.zero_copy,
        "copy": signs.copy,
        "empty": signs.empty,
        "broken": signs.broken,
    }.get(outcome, signs.refused)


def _width(text: Text) -> int:
    return max(line.cell_len for line in text.split("\n"))


def _fit(widths: dict[str, int], room: int) -> list[list[str]]:
    """Return the columns in as many grids as it takes to keep each within the room."""
    grids: list[list[str]] = [[]]
    for target, width in widths.items():
        if grids[-1] and sum(widths[t] for t in grids[-1]) + width > room:
            grids.append([])
        grids[-1].append(target)
    return grids


def _show_legend(matrix: Matrix, arrays: int, out: Output) -> None:
    met = {cell.outcome for cell in matrix.cells}
    aliases = [cell for cell in matrix.cells if cell.outcome == "zero-copy"]
    written = sum("write" in cell.proof for cell in aliases)
    meaning = {
        "zero-copy": "the result lies at the source's own address"
        + (
            f"; in {written:,} of {len(aliases):,}, a value written to the source was read from it"
            if written
            else ""
        ),
        "copy": "the result has memory of its own",
        "empty": "no elements: nothing to share, nothing to copy",
        "refused": "an error that says why, and what to do",
        "no source": "the framework of that row cannot hold the data",
        "broken": "a promise does not hold",
    }
    table = Table.grid(padding=(0, 1))
    for outcome, what in meaning.items():
        if outcome in met:
            sign = Text(f"{_sign(outcome, out.signs)} {_WORDS[outcome]}", _COLOURS[outcome])
            table.add_row(sign, Text(what, "dim"))
    if any(cell.median_ns is not None for cell in matrix.cells):
        middle = "; of several arrays, the middle one's" if arrays > 1 else ""
        what = f"of one convert() call with default options, the median{middle}"
        table.add_row(Text("  time", "dim"), Text(what, "dim"))
    if table.row_count:
        out.show("", table)


def _show_notes(notes: _Notes, arrays: int, out: Output) -> None:
    kind = ""
    for note in notes.listed:
        if note.kind != kind:
            kind = note.kind
            out.show("", Text(_HEADINGS[kind], "bold red" if kind == "broken" else "bold"))
        text = Text(printable(note.why))
        if note.remedy:
            text.append("\n")
            text.append("fix: ", "dim")
            text.append(printable(note.remedy))
        if len(note.arrays) < arrays:
            text.append(f"\nin {_names(list(note.arrays))}", "dim")
        _listed([(Text(f"[{note.number}]", "bold"), text)], out)


def _show_absent(matrix: Matrix, data: Data, out: Output) -> None:
    if matrix.not_usable:
        out.show("", Text("Installed, and not usable here", "bold"))
        alike: dict[Reason, list[str]] = {}
        for name, reason in matrix.not_usable.items():
            alike.setdefault(reason, []).append(name)
        for reason, names in alike.items():
            text = Text(printable(reason.why))
            if reason.remedy:
                text.append("\n")
                text.append("fix: ", "dim")
                text.append(printable(reason.remedy))
            _listed([(Text(_names(names)), text)], out)
    if matrix.not_installed:
        out.show("", Text("Known, and not installed", "bold"))
        _listed([(Text(printable(n)), Text(line)) for n, line in matrix.not_installed.items()], out)
    if data.left_out:
        out.show("", Text(f"Left out of {printable(data.name)}", "bold"))
        _listed([(Text(printable(n)), Text(printable(why))) for n, why in data.left_out.items()], out)


def _listed(rows: list[tuple[Text, Text]], out: Output) -> None:
    table = Table.grid(padding=(0, 1))
    table.add_column(max_width=out.width // 3)
    table.add_column(ratio=1)
    for name, text in rows:
        table.add_row(Text.assemble(" ", name), text)
    out.show(table)


def _show_verdict(matrix: Matrix, out: Output) -> None:
    if not matrix.cells:
        out.show("", Text("No framework that is asked for can be used here: nothing was converted."))
        return
    counts = Counter(cell.outcome for cell in matrix.cells)
    words = _WORDS | {"copy": "copied"}
    parts = ", ".join(f"{counts[o]:,} {words[o]}" for o in reversed(OUTCOMES) if counts[o])
    total = f"{len(matrix.cells):,} conversion{'' if len(matrix.cells) == 1 else 's'}"
    if matrix.broken:
        verdict = Text(f"{out.signs.broken} {len(matrix.broken):,} of {total} broke a promise", "bold red")
        out.show("", Text.assemble(verdict, f": {parts}."))
    else:
        verdict = Text(f"{out.signs.yes} Every promise held", "bold green")
        out.show("", Text.assemble(verdict, f" in {total}: {parts}."))
