"""A grid of rows and columns, cut into as many as it takes to fit the width."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from zerocopy.cli.terminal import Output, printable


def show_crossing(
    heads: dict[str, Text],
    targets: list[str],
    texts: dict[tuple[str, str], Text],
    corner: Text,
    apart: int,
    out: Output,
) -> None:
    """Print a grid, or as many as it takes to keep each within the width.

    Parameters
    ----------
    heads : dict of str to Text
        The rows and what stands before each.
    targets : list of str
        The columns.
    texts : dict of (row, column) to Text
    corner : Text
    apart : int
        Blank lines between rows.
    """
    first = max([corner.cell_len, *(_width(head) for head in heads.values())]) + 2
    widths = {
        target: 2 + max([len(target), *(_width(texts[row, target]) for row in heads)]) for target in targets
    }
    for some in _fit(widths, out.width + 2 - first):  # the last one needs no gap after it
        table = Table(
            box=out.signs.box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style=""
        )
        table.add_column(corner, min_width=first - 2, no_wrap=True)
        for target in some:
            table.add_column(
                Text(printable(target), "bold"), no_wrap=True, overflow="ignore", min_width=widths[target] - 2
            )
        for i, (row, head) in enumerate(heads.items()):
            for _ in range(apart if i else 0):
                table.add_row()
            table.add_row(head, *(texts[row, target] for target in some))
        out.show("", table)


def _width(text: Text) -> int:
    return max(line.cell_len for line in text.split("\n"))


def _fit(widths: dict[str, int], room: int) -> list[list[str]]:
    """Return the columns in as few grids as keep each within the room, of about one width."""
    grids = _filled(widths, room)
    while len(grids) > 1:
        room = max(sum(widths[t] for t in grid) for grid in grids) - 1
        narrower = _filled(widths, room)
        if len(narrower) > len(grids) or room < max(widths.values()):
            break
        grids = narrower
    return grids


def _filled(widths: dict[str, int], room: int) -> list[list[str]]:
    grids: list[list[str]] = [[]]
    for target, width in widths.items():
        if grids[-1] and sum(widths[t] for t in grids[-1]) + width > room:
            grids.append([])
        grids[-1].append(target)
    return grids
