"""Print the whole matrix: title, arrays, columns, missing frameworks, and verdict."""

from __future__ import annotations

from rich.text import Text

import zerocopy
from zerocopy.cli.matrix.footnotes import format_reason, print_rows
from zerocopy.cli.matrix.notes import join_names
from zerocopy.cli.matrix.print_arrays import print_arrays
from zerocopy.cli.matrix.print_columns import print_columns
from zerocopy.cli.matrix.print_summary import print_verdict
from zerocopy.cli.matrix.result import Matrix
from zerocopy.cli.terminal import Output
from zerocopy.errors import Reason
from zerocopy.formatting.printable import printable


def print_matrix(matrix: Matrix, out: Output) -> None:
    """Print what ``zerocopy matrix --full`` measured; the verdict comes first and last."""
    arrays, columns, data = matrix.arrays, matrix.columns, matrix.data
    summary = matrix.summary()
    print_verdict(summary, out)
    size = sum(array.nbytes for array in data.arrays.values())
    version = (f"zerocopy {zerocopy.__version__}", "bold")
    note = (f" ({data.note})" if data.note else "", "dim")
    out.show(Text.assemble(version, f"  {printable(data.name)}, {size:,} bytes", note))
    footnote = print_arrays(arrays, out)
    if columns.cells:
        print_columns(columns, footnote, out)
    if matrix.why:
        out.show("", Text(printable(matrix.why)))
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
    out.show("")
    print_verdict(summary, out)


def _print_list(title: str, rows: list[tuple[str, Text]], out: Output) -> None:
    if rows:
        out.show("", Text(title, "bold"))
        print_rows([(Text(name), text) for name, text in rows], out)
