"""The matrix as people read it: one grid for arrays that fare alike, and numbered notes below.

The grids of columns are below that, see :mod:`zerocopy.cli.matrix.print_columns`.
"""

from __future__ import annotations

from collections import Counter
from statistics import median

from rich.table import Table
from rich.text import Text

import zerocopy
from zerocopy.cli.datasets import Data
from zerocopy.cli.matrix import print_columns as column_grid
from zerocopy.cli.matrix.arrays import Cell, Matrix
from zerocopy.cli.matrix.columns import ColumnCell, ColumnMatrix
from zerocopy.cli.matrix.footnotes import Key, Notes, listed, names
from zerocopy.cli.matrix.print_grid import show_crossing
from zerocopy.cli.terminal import Output, Signs, duration, printable
from zerocopy.errors import Reason

_WORDS = {
    "zero-copy": "zero-copy",
    "copy": "copy",
    "empty": "empty",
    "refused": "refused",
    "no source": "no source",
    "broken": "BROKEN",
}
_COUNTED = {
    "zero-copy": "zero-copy",
    "empty": "empty",
    "copy": "copied",
    "encoded": "encoded",
    "masked": "masked",
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


def show(matrix: Matrix, columns: ColumnMatrix | None, data: Data, out: Output, why: str = "") -> None:
    """Print the grids of arrays and those of columns, the notes, and what is not in them.

    Parameters
    ----------
    matrix : Matrix
    columns : ColumnMatrix or None
    data : Data
    out : Output
    why : str
        Why there are no columns.
    """
    _show_title(data, out)
    arrays = len({cell.array for cell in matrix.cells})
    notes = Notes(matrix.cells, _keys, lambda cell: str(cell.array))
    for cells in _alike(matrix.cells):
        _show_group(matrix, cells, notes, out)
    _show_legend(matrix, arrays, out)
    notes.show(arrays, out)
    if columns is not None and columns.cells:
        column_grid.show(columns, notes.next, out)
    if why:
        out.show("", Text(printable(why)))
    _show_absent(matrix, data, columns, out)
    _show_verdict(matrix, columns, out)


def _keys(cell: Cell) -> list[Key]:
    kind = "copy" if cell.outcome in ("copy", "empty") else "refused"
    return [
        *(("broken", text, "") for text in cell.broken),
        *((kind, r.why, r.remedy) for r in cell.reasons if cell.outcome != "zero-copy"),
        *(("beware", text, "") for text in cell.warnings),
    ]


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


def _show_group(matrix: Matrix, cells: list[Cell], notes: Notes, out: Output) -> None:
    out.show("", _caption(cells, out))
    by_pair: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        by_pair.setdefault((cell.source, cell.target), []).append(cell)
    texts = {pair: _cell(some, notes, out.signs) for pair, some in by_pair.items()}
    sources = {source for source, _ in by_pair}
    heads = {name: _head(name, version) for name, version in matrix.frameworks.items() if name in sources}
    corner = Text(out.signs.corner, "dim")
    show_crossing(heads, list(matrix.frameworks), texts, corner, 1, out)


def _caption(cells: list[Cell], out: Output) -> Text:
    arrays = {cell.array: cell for cell in cells}
    if len(arrays) == 1:
        ((name, cell),) = arrays.items()
        return Text(f"{printable(name)}: {_shape(cell.shape)}, {cell.dtype}")
    types = Counter(cell.dtype for cell in arrays.values())
    shapes = {cell.shape for cell in arrays.values()}
    each = f", each {_shape(shapes.pop())}" if len(shapes) == 1 else ""
    what = ", ".join(f"{count} {dtype}" for dtype, count in types.items())
    return Text(f"{len(arrays)} arrays ({what}){each}: {names(list(arrays))}")


def _shape(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"{shape[0]:,} values"
    return " x ".join(f"{n:,}" for n in shape) or "one value"


def _head(name: str, version: str | None) -> Text:
    return Text.assemble((printable(name), "bold"), "\n", (printable(version or ""), "dim"))


def _cell(cells: list[Cell], notes: Notes, signs: Signs) -> Text:
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


def _show_absent(matrix: Matrix, data: Data, columns: ColumnMatrix | None, out: Output) -> None:
    if matrix.not_usable:
        out.show("", Text("Installed, and not usable here", "bold"))
        alike: dict[Reason, list[str]] = {}
        for name, reason in matrix.not_usable.items():
            alike.setdefault(reason, []).append(name)
        for reason, some in alike.items():
            text = Text(printable(reason.why))
            if reason.remedy:
                text.append("\n")
                text.append("fix: ", "dim")
                text.append(printable(reason.remedy))
            listed([(Text(names(some)), text)], out)
    if matrix.not_installed:
        out.show("", Text("Known, and not installed", "bold"))
        listed([(Text(printable(n)), Text(line)) for n, line in matrix.not_installed.items()], out)
    tried = columns.types if columns is not None else {}
    left_out = {name: why for name, why in data.left_out.items() if name not in tried}
    if left_out:
        out.show("", Text(f"Left out of {printable(data.name)}", "bold"))
        listed([(Text(printable(n)), Text(printable(why))) for n, why in left_out.items()], out)


def _show_verdict(matrix: Matrix, columns: ColumnMatrix | None, out: Output) -> None:
    cells: list[Cell | ColumnCell] = [*matrix.cells, *(columns.cells if columns is not None else [])]
    if not cells:
        out.show("", Text("No framework that is asked for can be used here: nothing was converted."))
        return
    counts = Counter(cell.outcome for cell in cells)
    parts = ", ".join(f"{n:,} {words}" for o, words in _COUNTED.items() if (n := counts[o]))
    total = f"{len(cells):,} conversion{'' if len(cells) == 1 else 's'}"
    broken = sum(bool(cell.broken) for cell in cells)
    if broken:
        verdict = Text(f"{out.signs.broken} {broken:,} of {total} broke a promise", "bold red")
        out.show("", Text.assemble(verdict, f": {parts}."))
    else:
        verdict = Text(f"{out.signs.yes} Every promise held", "bold green")
        out.show("", Text.assemble(verdict, f" in {total}: {parts}."))
