"""Print the whole matrix: title, arrays, columns, missing frameworks, and verdict."""

from __future__ import annotations

from collections import Counter

from rich.text import Text

import zerocopy
from zerocopy.cli.datasets import Data
from zerocopy.cli.matrix.arrays import ArrayMatrix
from zerocopy.cli.matrix.cell import Cell
from zerocopy.cli.matrix.cell_style import STYLES
from zerocopy.cli.matrix.columns import ColumnMatrix
from zerocopy.cli.matrix.footnotes import format_reason, join_names, print_rows
from zerocopy.cli.matrix.print_arrays import print_arrays
from zerocopy.cli.matrix.print_columns import print_columns
from zerocopy.cli.terminal import Output, printable
from zerocopy.errors import Reason


def print_matrix(arrays: ArrayMatrix, columns: ColumnMatrix, data: Data, out: Output, why: str) -> None:
    """Print what ``zerocopy matrix`` measured; `why` explains missing columns."""
    size = sum(array.nbytes for array in data.arrays.values())
    version = (f"zerocopy {zerocopy.__version__}", "bold")
    note = (f" ({data.note})" if data.note else "", "dim")
    out.show(Text.assemble(version, f"  {printable(data.name)}, {size:,} bytes", note))
    footnote = print_arrays(arrays, out)
    if columns.cells:
        print_columns(columns, footnote, out)
    if why:
        out.show("", Text(printable(why)))
    by_reason: dict[Reason, list[str]] = {}
    for name, reason in arrays.not_usable.items():
        by_reason.setdefault(reason, []).append(name)
    unusable = [(join_names(names), format_reason(r.why, r.remedy)) for r, names in by_reason.items()]
    _print_list("Installed, and not usable here", unusable, out)
    absent = [(printable(name), Text(line)) for name, line in arrays.not_installed.items()]
    _print_list("Known, and not installed", absent, out)
    left_out = {name: reason for name, reason in data.left_out.items() if name not in columns.types}
    rows = [(printable(name), Text(printable(text))) for name, text in left_out.items()]
    _print_list(f"Left out of {printable(data.name)}", rows, out)
    _print_verdict([*arrays.cells, *columns.cells], out)


def _print_list(title: str, rows: list[tuple[str, Text]], out: Output) -> None:
    if rows:
        out.show("", Text(title, "bold"))
        print_rows([(Text(name), text) for name, text in rows], out)


def _print_verdict(cells: list[Cell], out: Output) -> None:
    if not cells:
        out.show("", Text("None of these frameworks can be used here: nothing was converted."))
        return
    counts = Counter("copied" if cell.outcome == "copy" else STYLES[cell.outcome].word for cell in cells)
    words = ["copied" if outcome == "copy" else style.word for outcome, style in STYLES.items()]
    summary = ", ".join(f"{counts[word]:,} {word}" for word in words if counts[word])
    total = f"{len(cells):,} conversion{'' if len(cells) == 1 else 's'}"
    broken = sum(bool(cell.broken) for cell in cells)
    if broken:
        verdict = Text(f"{out.signs.broken} {broken:,} of {total} broke a promise", "bold red")
        out.show("", Text.assemble(verdict, f": {summary}."))
    else:
        verdict = Text(f"{out.signs.yes} Every promise held", "bold green")
        out.show("", Text.assemble(verdict, f" in {total}: {summary}."))
