"""`Matrix`: the result of ``zerocopy matrix`` and of :func:`zerocopy.matrix`; ``str`` needs Rich."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zerocopy import registry
from zerocopy.cli.datasets import Data
from zerocopy.cli.matrix import arrays, columns
from zerocopy.cli.matrix.row import Progress
from zerocopy.cli.matrix.summary import Summary, summarize
from zerocopy.notebooks import html


@dataclass(frozen=True, slots=True, repr=False)
class Matrix:
    """Conversions between every pair of frameworks, from :func:`zerocopy.matrix`.

    Attributes
    ----------
    data : Data
        The arrays that were converted, and the columns of a table.
    arrays : ArrayMatrix
        One cell for each array and pair of frameworks, as ``arrays.cells``.
    columns : ColumnMatrix
        One cell for each column and pair of frameworks, as ``columns.cells``.
    why : str
        Why there are no columns, if the output should explain it.
    """

    data: Data
    arrays: arrays.ArrayMatrix
    columns: columns.ColumnMatrix
    why: str = ""

    @property
    def broken(self) -> list[Any]:
        """The cells that break a promise."""
        return [*self.arrays.broken, *self.columns.broken]

    @property
    def exit_code(self) -> int:
        """1 for a broken promise, 2 if nothing was converted."""
        if self.broken:
            return 1
        return 0 if self.arrays.cells or self.columns.cells else 2

    def summary(self) -> Summary:
        """Return the verdict, one sign per pair, and the most frequent reasons."""
        return summarize(self.arrays, self.columns, self.data, self.why)

    def __str__(self) -> str:
        try:
            from zerocopy.cli.matrix.print_summary import print_summary
            from zerocopy.cli.terminal import Output
        except ImportError:
            return f"{self.summary().verdict}\n(for the grid: pip install 'zerocopy-interchange[cli]')"
        file = io.StringIO()
        print_summary(self.summary(), Output(file), hint="")
        return file.getvalue().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return tables for notebooks: the grid with words, and the most frequent reasons."""
        summary = self.summary()
        grid = []
        for source in summary.sources:
            squares = [summary.squares[source, target] for target in summary.targets]
            texts = [
                (square.text or square.outcome) + "".join(f" [{number}]" for number in square.numbers)
                for square in squares
            ]
            grid.append((source, *texts))
        caption = f"{summary.verdict}\n{summary.caption}"
        tables = [html.table(caption, grid, ("from \\ to", *summary.targets))]
        if summary.reasons:
            rows = [(f"[{note.number}]", note.why, note.remedy) for note in summary.reasons]
            tables.append(html.table("Most frequent reasons", rows, ("number", "why", "fix")))
        if summary.remarks:
            tables.append(html.table("Remarks", [("note", remark) for remark in summary.remarks]))
        return "".join(tables)


def measure(
    data: Data,
    chosen: dict[str, Any],
    frameworks: Sequence[str] | None,
    sources: Sequence[str] | None,
    samples: int | None,
    progress: Progress,
    why: str = "",
) -> Matrix:
    """Convert the arrays of `data`, and the columns in `chosen`, between the frameworks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of imports; a cell records those of its conversion
        of_arrays = arrays.measure(data.arrays, frameworks, samples, progress, sources)
        usable = list(of_arrays.frameworks)
        with_tables = [name for name in usable if registry.by_name(name).tables]
        origins = with_tables if sources is None else [name for name in sources if name in usable]
        of_columns = columns.measure(chosen if origins else {}, usable, origins, progress)
        of_columns.named = data.columns is None
        return Matrix(data, of_arrays, of_columns, why)
