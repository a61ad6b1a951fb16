"""Print the whole matrix: the title, the arrays, the columns, what is missing, and the verdict."""

from __future__ import annotations

from collections import Counter

from rich.text import Text

import zerocopy
from zerocopy.cli.datasets import Data
from zerocopy.cli.matrix.arrays import ArrayMatrix
from zerocopy.cli.matrix.cell import Cell
from zerocopy.cli.matrix.cell_style import STYLES
from zerocopy.cli.matrix.columns import ColumnMatrix
from zerocopy.cli.matrix.footnotes import join_names, print_rows, with_fix
from zerocopy.cli.matrix.print_arrays import print_arrays
from zerocopy.cli.matrix.print_columns import print_columns
from zerocopy.cli.terminal import Output, printable
from zerocopy.errors import Reason


def print_matrix(
    arrays: ArrayMatrix, columns: ColumnMatrix | None, data: Data, out: Output, why: str = ""
) -> None:
    """Print what ``zerocopy matrix`` measured; `why` explains missing columns."""
    size = sum(array.nbytes for array in data.arrays.values())
    version = (f"zerocopy {zerocopy.__version__}", "bold")
    note = (f" ({data.note})" if data.note else "", "dim")
    out.show(Text.assemble(version, f"  {printable(data.name)}, {size:,} bytes", note))
    footnote = print_arrays(arrays, out)
    if columns is not None and columns.cells:
        print_columns(columns, footnote, out)
    if why:
        out.show("", Text(printable(why)))
    _print_absent(arrays, out)
    _print_left_out(data, columns, out)
    _print_verdict([*arrays.cells, *(columns.cells if columns is not None else [])], out)


def _print_absent(arrays: ArrayMatrix, out: Output) -> None:
    if arrays.not_usable:
        out.show("", Text("Installed, and not usable here", "bold"))
        by_reason: dict[Reason, list[str]] = {}
        for name, reason in arrays.not_usable.items():
            by_reason.setdefault(reason, []).append(name)
        rows = [(Text(join_names(names)), with_fix(r.why, r.remedy)) for r, names in by_reason.items()]
        print_rows(rows, out)
    if arrays.not_installed:
        out.show("", Text("Known, and not installed", "bold"))
        print_rows([(Text(printable(n)), Text(line)) for n, line in arrays.not_installed.items()], out)


def _print_left_out(data: Data, columns: ColumnMatrix | None, out: Output) -> None:
    tried = columns.types if columns is not None else {}
    left_out = {name: why for name, why in data.left_out.items() if name not in tried}
    if left_out:
        out.show("", Text(f"Left out of {printable(data.name)}", "bold"))
        print_rows([(Text(printable(n)), Text(printable(why))) for n, why in left_out.items()], out)


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
