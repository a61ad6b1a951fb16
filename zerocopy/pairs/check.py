"""`check_pairs`: the conversions of ``zerocopy matrix``, from Python, and `Matrix`, their result."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zerocopy import registry
from zerocopy._engine.container_types import is_container
from zerocopy._engine.containers import leaf_calls
from zerocopy._engine.convert import convert
from zerocopy.describe import describe
from zerocopy.errors.tracebacks import public
from zerocopy.formatting import html, printable
from zerocopy.pairs import arrays, columns
from zerocopy.pairs.attempt import Progress
from zerocopy.pairs.samples import Data, iris
from zerocopy.pairs.summary import Summary, summarize
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.source import Source, type_name
from zerocopy.tables.hub import hub


@public
def check_pairs(
    obj: Any = None,
    *,
    frameworks: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    repeat: int | None = 0,
) -> Matrix:
    """Convert an object between every pair of installed frameworks, and check each promise.

    The command ``zerocopy matrix`` prints the same result.

    Parameters
    ----------
    obj : object, optional
        An array, a container of arrays or, with the extra ``arrow``, a table, as for
        :func:`zerocopy.convert`. Arrays are copied, and at most 10,000 rows of a table are used.
        Default: Fisher's iris measurements, arrays of the types with fewer than 8 bits and, with that
        extra, columns of every type.
    frameworks : sequence of str, optional
        Import names of the frameworks. Default: all that are installed; they are imported.
    sources : sequence of str, optional
        The frameworks to convert from. Default: all.
    repeat : int, optional
        Times to measure per cell of arrays. 0, the default: none. None: up to 50 within a
        tenth of a second.

    Returns
    -------
    Matrix
        A notebook shows it as tables; ``print`` shows the summary.
        ``broken`` lists the cells that break a promise; ``arrays.cells`` and ``columns.cells``
        have the outcome, the reasons and the times of each conversion.

    Raises
    ------
    UnknownFrameworkError, FrameworkNotInstalledError
        A name is not a known, or not an installed, framework.
    ZeroCopyError
        NumPy cannot hold the arrays of `obj`.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> result = zc.check_pairs(np.zeros((2, 3), np.float32), frameworks=["numpy"])
    >>> [(cell.source, cell.target, cell.outcome) for cell in result.arrays.cells]
    [('numpy', 'numpy', 'zero-copy')]
    >>> result.broken
    []
    """
    names = list(dict.fromkeys([*(frameworks or ()), *(sources or ())]))
    for name in names:
        registry.by_name(name).module()
    targets = names if frameworks is not None else None
    return measure(iris() if obj is None else _data(obj), targets, sources, repeat)


def _data(obj: Any) -> Data:
    """Return an object's arrays as NumPy's, or the columns of a table as Arrow's."""
    name = type_name(obj)
    if is_container(obj):
        leaves = {path: convert(leaf, "numpy") for path, leaf, *_ in leaf_calls(obj, {})}
        return Data(name, {path: aligned_copy(leaf) for path, leaf in leaves.items()})
    if isinstance(describe(obj), Source):
        return Data(name, {"x": aligned_copy(convert(obj, "numpy"))})
    table = convert(obj, f"{hub().name}.Table")
    return Data(name, {}, columns={str(label): table.column(i) for i, label in enumerate(table.column_names)})


@dataclass(frozen=True, slots=True, repr=False)
class Matrix:
    """Conversions between every pair of frameworks, from :func:`zerocopy.check_pairs`.

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
        lines = self.summary().lines(80, unicode=False)
        return "\n".join(printable("".join(text for text, _ in line)).rstrip() for line in lines)

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
    frameworks: Sequence[str] | None,
    sources: Sequence[str] | None,
    repeat: int | None,
    progress: Progress = lambda step, done, total: None,
    why: str = "",
) -> Matrix:
    """Convert the arrays and the columns of `data` between the frameworks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of imports; a cell records those of its conversion
        each = data.arrays | data.subbyte
        of_arrays = arrays.measure(each, frameworks, repeat, progress, sources, optional=data.subbyte)
        usable = list(of_arrays.frameworks)
        with_tables = [name for name in usable if registry.by_name(name).tables]
        origins = with_tables if sources is None else [name for name in sources if name in usable]
        of_columns = columns.measure(data.columns if origins else {}, usable, origins, progress)
        of_columns.by_type = data.by_type
        return Matrix(data, of_arrays, of_columns, why)
