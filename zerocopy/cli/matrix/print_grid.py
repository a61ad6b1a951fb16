"""Print a grid of cells, split to fit the terminal's width, and the legend below it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.table import Table
from rich.text import Text

from zerocopy.cli.matrix.cell_style import STYLES, format_outcome
from zerocopy.cli.terminal import Output
from zerocopy.formatting.printable import printable


def print_grid(
    heads: dict[str, Text],
    targets: list[str],
    texts: dict[tuple[str, str], Text],
    corner: Text,
    blank_lines: int,
    out: Output,
) -> None:
    """Print a grid, split to fit the width.

    `heads` has each row's first text, `texts` each cell's by row and column, and `blank_lines` is
    their number between rows.
    """
    first = max([corner.cell_len, *map(_width, heads.values())]) + 2
    widths = {
        target: 2 + max([len(target), *(_width(texts[row, target]) for row in heads)]) for target in targets
    }
    for grid in _split_columns(widths, out.width + 2 - first):  # the last column needs no gap after it
        table = Table(
            box=out.signs.box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style=""
        )
        table.add_column(corner, min_width=first - 2, no_wrap=True)
        for target in grid:
            title = Text(printable(target), "bold")
            table.add_column(title, no_wrap=True, overflow="ignore", min_width=widths[target] - 2)
        for i, (row, head) in enumerate(heads.items()):
            for _ in range(blank_lines if i else 0):
                table.add_row()
            table.add_row(head, *(texts[row, target] for target in grid))
        out.show("", table)


def print_legend(
    outcomes: Collection[str], remarks: dict[str, str], more: Sequence[tuple[str, str]], out: Output
) -> None:
    """Print the meaning of some outcomes, with remarks on some, and of more terms."""
    table = Table.grid(padding=(0, 1))
    for outcome, style in STYLES.items():
        if outcome in outcomes:
            meaning = style.meaning + remarks.get(outcome, "")
            table.add_row(format_outcome(outcome, out.signs), Text(meaning, "dim"))
    for term, meaning in more:
        table.add_row(Text(f"  {term}", "dim"), Text(meaning, "dim"))
    if table.row_count:
        out.show("", table)


def _width(text: Text) -> int:
    return max(line.cell_len for line in text.split("\n"))


def _split_columns(widths: dict[str, int], width: int) -> list[list[str]]:
    """Return the columns in as few grids as fit the width, all of about one width."""
    count = len(_fill_grids(widths, width))
    narrower = range(max(widths.values(), default=0), width)
    return _fill_grids(widths, next((w for w in narrower if len(_fill_grids(widths, w)) == count), width))


def _fill_grids(widths: dict[str, int], width: int) -> list[list[str]]:
    """Return the columns in grids, each filled up to the width."""
    grids: list[list[str]] = [[]]
    for target, own in widths.items():
        if grids[-1] and sum(widths[other] for other in grids[-1]) + own > width:
            grids.append([])
        grids[-1].append(target)
    return grids
