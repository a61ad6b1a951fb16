"""Columns of every type as people read them: a block for each source, types down, targets across."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from zerocopy.cli.matrix.columns import ColumnCell, ColumnMatrix
from zerocopy.cli.matrix.footnotes import Key, Notes, names
from zerocopy.cli.matrix.print_grid import show_crossing
from zerocopy.cli.terminal import Output, Signs, printable

_WIDEST = 36  # of a row's head: the rest of the names is left out

_TYPE = "<type>"

_COLOURS = {
    "zero-copy": "green",
    "copy": "yellow",
    "encoded": "green",
    "masked": "green",
    "refused": "cyan",
    "no source": "dim",
    "broken": "bold white on red",
}


def show(columns: ColumnMatrix, first: int, out: Output) -> None:
    """Print a block for each source, the legend and the notes.

    Parameters
    ----------
    columns : ColumnMatrix
    first : int
        The number of the first note.
    out : Output
    """
    rows = sorted(set(columns.rows.values()))
    count = " or ".join(f"{n:,}" for n in rows)
    title = Text.assemble(("Columns by type", "bold"), f", {count} rows")
    title.append(", each as a table of one column", "dim")
    out.show("", title)
    notes = Notes(columns.cells, _keys, lambda cell: str(cell.column), first, {"beware"})
    for source in columns.sources:
        _show_block(columns, source, notes, out)
    _show_legend(columns, notes, out)
    notes.show(len(columns.types), out)


def _keys(cell: ColumnCell) -> list[Key]:
    """Return a cell's notes; the type is that of the row, so that one note does for all types."""

    def plain(text: str) -> str:
        return text.replace(f"is {cell.type}", f"is {_TYPE}")

    # What its mark says needs no note: "e" and "m" are the remedies.
    refusals = [] if cell.options else cell.refusals
    return [
        *(("broken", text, "") for text in cell.broken),
        *(("refused", plain(r.why), r.remedy) for r in refusals),
        *(("copy", plain(r.why), r.remedy) for r in cell.reasons if not cell.zero_copy),
        *(("beware", plain(text), "") for text in cell.warnings),
    ]


def _show_block(columns: ColumnMatrix, source: str, notes: Notes, out: Output) -> None:
    by_column: dict[str, list[ColumnCell]] = {}
    for cell in columns.cells:
        if cell.source == source:
            by_column.setdefault(cell.column, []).append(cell)
    texts: dict[tuple[str, str], Text] = {}
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, cells in by_column.items():
        found = [_cell(cell, notes, out.signs) for cell in cells]
        # A file's columns of one type that fare alike are one row.
        row = (name,) if columns.named else (columns.types[name], *(text.plain for text in found))
        alike.setdefault(row, []).append(name)
        texts |= {(name, cell.target): text for cell, text in zip(cells, found, strict=True)}
    heads = {some[0]: _head(some, columns, out) for some in alike.values()}
    show_crossing(heads, columns.targets, texts, Text.assemble("from ", (printable(source), "bold")), 0, out)


def _head(some: list[str], columns: ColumnMatrix, out: Output) -> Text:
    """Return the names of columns with their type, unless it is their name."""
    if columns.named:
        return Text(some[0])
    kind = _cut(Text(printable(columns.types[some[0]]), "dim"), _WIDEST // 2, out)
    return Text.assemble(_cut(Text(names(some, 2)), _WIDEST // 2, out), " ", kind)


def _cut(text: Text, width: int, out: Output) -> Text:
    if text.cell_len > width:
        text.truncate(width - len(out.signs.ellipsis))
        text.append(out.signs.ellipsis)
    return text


def _cell(cell: ColumnCell, notes: Notes, signs: Signs) -> Text:
    numbers = ",".join(map(str, notes.of([cell])))
    text = Text(_mark(cell, signs), _colour(cell))
    return Text.assemble(text, f" {numbers}") if numbers else text


def _mark(cell: ColumnCell, signs: Signs) -> str:
    """Return the sign of what comes; before it what had to be asked for."""
    plain = {"refused": signs.refused, "no source": signs.no_source, "broken": signs.broken}
    if cell.outcome in plain:
        return plain[cell.outcome]
    asked = "".join(letter for letter, name in (("e", "encode"), ("m", "nulls")) if name in cell.options)
    return asked + (signs.zero_copy if cell.zero_copy else signs.copy)


def _colour(cell: ColumnCell) -> str:
    return "yellow" if cell.options and not cell.zero_copy else _COLOURS[cell.outcome]


def _show_legend(columns: ColumnMatrix, notes: Notes, out: Output) -> None:
    signs, met = out.signs, {cell.outcome for cell in columns.cells}
    asked = {name for cell in columns.cells for name in cell.options}
    aliases = [c for c in columns.cells if c.zero_copy and c.outcome != "broken"]
    unseen = sum(not cell.proof for cell in aliases)
    query = f"; in {unseen:,} of {len(aliases):,} a query, whose memory nobody sees" if unseen else ""
    lines = [
        (bool(aliases), signs.zero_copy, "green", f"zero-copy: all of it lies in the source's memory{query}"),
        (
            any(c.copied_bytes for c in columns.cells) or "copy" in met,
            signs.copy,
            "yellow",
            "copy: some of it has memory of its own",
        ),
        ("encode" in asked, "e", "green", "refused as it is, and with encode=True comes as numbers"),
        ("nulls" in asked, "m", "green", 'refused as it is, and with nulls="mask" comes with a mask'),
        ("refused" in met, signs.refused, "cyan", "refused: an error that says why, and what to do"),
        ("no source" in met, signs.no_source, "dim", "the framework of that block cannot hold the column"),
        (any(_TYPE in n.why for n in notes.listed), _TYPE, "", "in a note: that of the row"),
        ("broken" in met, signs.broken, "bold white on red", "BROKEN: a promise does not hold"),
    ]
    table = Table.grid(padding=(0, 1))
    for shown, sign, colour, what in lines:
        if shown:
            table.add_row(Text(sign, colour), Text(what, "dim"))
    out.show("", table)
