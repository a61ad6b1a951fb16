"""`matrix`: the conversions of ``zerocopy matrix``, from Python. Nothing is imported before the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocopy.errors.tracebacks import public

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocopy.cli.datasets import Data
    from zerocopy.cli.matrix.result import Matrix

_ROWS = 10_000  # of each column: the outcome does not depend on the number of rows


@public
def matrix(
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
        Default: Fisher's iris measurements and, with that extra, columns of every type.
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
        A notebook shows it as tables; ``print`` shows the summary, which needs the extra ``cli``.
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
    >>> result = zc.matrix(np.zeros((2, 3), np.float32), frameworks=["numpy"])
    >>> [(cell.source, cell.target, cell.outcome) for cell in result.arrays.cells]
    [('numpy', 'numpy', 'zero-copy')]
    >>> result.broken
    []
    """
    from zerocopy.cli.matrix.result import measure

    names = _installed([*(frameworks or ()), *(sources or ())])
    data, chosen = _default() if obj is None else _data(obj)
    targets = names if frameworks is not None else None
    return measure(data, chosen, targets, sources, repeat, lambda step, done, total: None)


def _installed(names: Sequence[str]) -> list[str]:
    """Return the distinct names of frameworks, all of which are installed."""
    from zerocopy import registry

    for name in names:
        registry.by_name(name).module()
    return list(dict.fromkeys(names))


def _default() -> tuple[Data, dict[str, Any]]:
    from zerocopy.cli import datasets
    from zerocopy.cli.matrix import samples

    columns = {} if samples.missing() else samples.samples()
    return datasets.iris(), columns


def _data(obj: Any) -> tuple[Data, dict[str, Any]]:
    """Return an object's arrays as NumPy's, or the columns of a table as Arrow's."""
    from zerocopy._engine.container_types import is_container
    from zerocopy._engine.containers import leaf_calls
    from zerocopy._engine.convert import convert
    from zerocopy.cli.datasets import Data
    from zerocopy.describe import describe
    from zerocopy.protocols.array_interface import aligned_copy
    from zerocopy.source import Source, type_name
    from zerocopy.tables.hub import hub

    name = type_name(obj)
    if is_container(obj):
        leaves = {path: convert(leaf, "numpy") for path, leaf, _ in leaf_calls(obj, {})}
        return Data(name, {path: aligned_copy(leaf) for path, leaf in leaves.items()}), {}
    if isinstance(describe(obj), Source):
        return Data(name, {"x": aligned_copy(convert(obj, "numpy"))}), {}
    table = convert(obj, f"{hub().name}.Table")
    columns = {str(label): table.column(i) for i, label in enumerate(table.column_names)}
    return Data(name, {}, columns=columns), {label: c.slice(0, _ROWS) for label, c in columns.items()}
