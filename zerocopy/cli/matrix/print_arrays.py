"""Print the grids of arrays: rows are sources, columns are targets."""

from __future__ import annotations

from collections import Counter
from statistics import median

from rich.text import Text

from zerocopy.cli.matrix.arrays import ArrayCell, ArrayMatrix
from zerocopy.cli.matrix.cell_style import format_outcome
from zerocopy.cli.matrix.footnotes import Footnotes
from zerocopy.cli.matrix.notes import Key, join_names
from zerocopy.cli.matrix.print_grid import print_grid, print_legend
from zerocopy.cli.terminal import Output, Signs, format_duration
from zerocopy.formatting.printable import printable


def print_arrays(matrix: ArrayMatrix, out: Output) -> int:
    """Print the grids, the legend and the footnotes; return the number of the next footnote."""
    footnotes = Footnotes(matrix.cells, _footnote_keys, lambda cell: str(cell.array))
    for cells in _group_by_outcomes(matrix.cells):
        _print_group(matrix, cells, footnotes, out)
    count = len({cell.array for cell in matrix.cells})
    _print_legend(matrix.cells, count, out)
    footnotes.print(count, out)
    return footnotes.next


def _footnote_keys(cell: ArrayCell) -> list[Key]:
    kind = "copy" if cell.outcome in ("copy", "empty") else "refused"
    return [
        *(("broken", text, "") for text in cell.broken),
        *((kind, reason.why, reason.remedy) for reason in cell.reasons),
        *(("warning", text, "") for text in cell.warnings),
    ]


def _group_by_outcomes(cells: list[ArrayCell]) -> list[list[ArrayCell]]:
    """Return the cells in groups of arrays that have the same outcome for every pair."""
    by_array: dict[str, list[ArrayCell]] = {}
    for cell in cells:
        by_array.setdefault(cell.array, []).append(cell)
    groups: dict[tuple[str, ...], list[ArrayCell]] = {}
    for of_array in by_array.values():
        groups.setdefault(tuple(cell.outcome for cell in of_array), []).extend(of_array)
    return list(groups.values())


def _print_group(matrix: ArrayMatrix, cells: list[ArrayCell], footnotes: Footnotes, out: Output) -> None:
    out.show("", _format_caption(cells))
    by_pair: dict[tuple[str, str], list[ArrayCell]] = {}
    for cell in cells:
        by_pair.setdefault((cell.source, cell.target), []).append(cell)
    texts = {pair: _format_cell(of_pair, footnotes, out.signs) for pair, of_pair in by_pair.items()}
    sources = {source for source, _ in by_pair}
    heads = {
        name: Text.assemble((printable(name), "bold"), "\n", (printable(version or ""), "dim"))
        for name, version in matrix.frameworks.items()
        if name in sources
    }
    print_grid(heads, list(matrix.frameworks), texts, Text(out.signs.corner, "dim"), 1, out)


def _format_caption(cells: list[ArrayCell]) -> Text:
    arrays = {cell.array: cell for cell in cells}
    if len(arrays) == 1:
        ((name, cell),) = arrays.items()
        return Text(f"{printable(name)}: {_format_shape(cell.shape)}, {cell.dtype}")
    dtypes = Counter(cell.dtype for cell in arrays.values())
    shapes = {cell.shape for cell in arrays.values()}
    each = f", each {_format_shape(shapes.pop())}" if len(shapes) == 1 else ""
    counts = ", ".join(f"{count} {dtype}" for dtype, count in dtypes.items())
    return Text(f"{len(arrays)} arrays ({counts}){each}: {join_names(list(arrays))}")


def _format_shape(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"{shape[0]:,} values"
    return " x ".join(f"{n:,}" for n in shape) or "one value"


def _format_cell(cells: list[ArrayCell], footnotes: Footnotes, signs: Signs) -> Text:
    """Return two lines: the outcome of a pair; its time and footnotes."""
    outcome = cells[0].outcome
    times = [cell.median_ns for cell in cells if cell.median_ns is not None]
    details = [format_duration(median(times), signs)] if times else []
    if numbers := footnotes.numbers(cells):
        details.append(f"[{','.join(map(str, numbers))}]")
    style = "dim" if outcome == "zero-copy" else ""
    return Text.assemble(format_outcome(outcome, signs), "\n", (" ".join(details), style))


def _print_legend(cells: list[ArrayCell], arrays: int, out: Output) -> None:
    aliases = [cell for cell in cells if cell.outcome == "zero-copy"]
    written = sum("write" in cell.proof for cell in aliases)
    checked = f", at the same address; {written:,} of {len(aliases):,} also checked by writing to the source"
    timed = any(cell.median_ns is not None for cell in cells)
    middle = "; the median array, if there are several" if arrays > 1 else ""
    time = ("time", f"the median of one convert() call with default options{middle}")
    remarks = {"zero-copy": checked if written else ", at the same address"}
    print_legend({cell.outcome for cell in cells}, remarks, [time] if timed else [], out)
