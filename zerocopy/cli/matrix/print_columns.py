"""Print the grids of columns: one for each source, rows are types, columns are targets."""

from __future__ import annotations

from rich.text import Text

from zerocopy.cli.matrix.cell_style import format_mark
from zerocopy.cli.matrix.columns import ColumnCell, ColumnMatrix
from zerocopy.cli.matrix.comparison import LABEL
from zerocopy.cli.matrix.footnotes import Footnotes
from zerocopy.cli.matrix.notes import Key, join_names
from zerocopy.cli.matrix.print_grid import print_grid, print_legend
from zerocopy.cli.terminal import Output
from zerocopy.formatting.printable import printable

_MAX_WIDTH = 36  # of a row's head: longer ones are cut
_TYPE = "<type>"


def print_columns(matrix: ColumnMatrix, first: int, out: Output) -> None:
    """Print the grids, the legend and the footnotes, whose first number is `first`."""
    counts = " or ".join(f"{n:,}" for n in sorted(set(matrix.rows.values())))
    title = Text.assemble(("Columns by type", "bold"), f", {counts} rows")
    out.show("", title.append(f", each as the column {LABEL!r} of a table", "dim"))
    footnotes = Footnotes(matrix.cells, _footnote_keys, lambda cell: str(cell.column), first, {"warning"})
    for source in matrix.sources:
        _print_source(matrix, source, footnotes, out)
    _print_legend(matrix.cells, footnotes, out)
    footnotes.print(len(matrix.types), out)


def _footnote_keys(cell: ColumnCell) -> list[Key]:
    """Return a cell's footnotes with a placeholder for its type, so that types share a footnote."""

    def general(text: str) -> str:
        return text.replace(f"is {cell.type}", f"is {_TYPE}")

    # A cell with "e" or "m" shows the fix; it needs no footnote.
    refusals = [] if cell.options else cell.refusals
    return [
        *(("broken", text, "") for text in cell.broken),
        *(("refused", general(reason.why), reason.remedy) for reason in refusals),
        *(("copy", general(reason.why), reason.remedy) for reason in cell.reasons),
        *(("warning", general(text), "") for text in cell.warnings),
    ]


def _print_source(matrix: ColumnMatrix, source: str, footnotes: Footnotes, out: Output) -> None:
    by_column: dict[str, list[ColumnCell]] = {}
    for cell in matrix.cells:
        if cell.source == source:
            by_column.setdefault(cell.column, []).append(cell)
    texts: dict[tuple[str, str], Text] = {}
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, cells in by_column.items():
        row = {(name, cell.target): _format_cell(cell, footnotes, out) for cell in cells}
        texts |= row
        # A file's columns of one type with the same cells are one row.
        plain = (text.plain for text in row.values())
        alike.setdefault((name,) if matrix.named else (matrix.types[name], *plain), []).append(name)
    heads = {names[0]: _format_head(names, matrix, out) for names in alike.values()}
    corner = Text.assemble("from ", (printable(source), "bold"))
    print_grid(heads, matrix.targets, texts, corner, 0, out)


def _format_head(names: list[str], matrix: ColumnMatrix, out: Output) -> Text:
    """Return the names of columns with their type, unless they are called after it."""
    if matrix.named:
        return Text(names[0])
    type_name = _cut(Text(printable(matrix.types[names[0]]), "dim"), out)
    return Text.assemble(_cut(Text(join_names(names, 2)), out), " ", type_name)


def _cut(text: Text, out: Output) -> Text:
    if text.cell_len > _MAX_WIDTH // 2:
        text.truncate(_MAX_WIDTH // 2 - len(out.signs.ellipsis))
        text.append(out.signs.ellipsis)
    return text


def _format_cell(cell: ColumnCell, footnotes: Footnotes, out: Output) -> Text:
    numbers = ",".join(map(str, footnotes.numbers([cell])))
    return Text.assemble(format_mark(cell, cell.options, out.signs), f" {numbers}" if numbers else "")


def _print_legend(cells: list[ColumnCell], footnotes: Footnotes, out: Output) -> None:
    options = {name for cell in cells for name in cell.options}
    aliases = [cell for cell in cells if cell.zero_copy and cell.outcome != "broken"]
    outcomes = {cell.outcome for cell in cells} - {"encoded", "masked"}
    outcomes |= {name for name, option in (("encoded", "encode"), ("masked", "nulls")) if option in options}
    if aliases:
        outcomes.add("zero-copy")
    if any(cell.copied_bytes for cell in cells):
        outcomes.add("copy")
    queries = sum(not cell.proof for cell in aliases)
    query = (
        f"; {queries:,} of {len(aliases):,} are queries, whose memory cannot be checked" if queries else ""
    )
    placeholder = any(_TYPE in footnote.why for footnote in footnotes.listed)
    print_legend(
        outcomes,
        {"zero-copy": f", all of it{query}", "copy": ", at least in part"},
        [(_TYPE, "in a footnote: the type of the row")] if placeholder else [],
        out,
    )
