"""Bytes that a border copies, measured by comparing memory addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import zerocopy as zc

#: Functions that return the bytes of columns without ``nbytes``.
_SIZES: dict[str, Callable[[Any], int]] = {
    "polars": lambda column: _in_arrow(column).nbytes,
    "pandas": lambda column: column.memory_usage(index=False, deep=True),
    "cudf": lambda column: column.memory_usage(index=False, deep=True),
}


def copied(source: Any, result: Any) -> int:
    """Return the bytes of the columns of `result` that share no memory with the same column of `source`.

    Parameters
    ----------
    source, result : object
        Tables, structured arrays or dicts of arrays.
    """
    before = columns(source)
    return sum(
        size(column) for name, column in columns(result).items() if not _aliases(column, before.get(name))
    )


def columns(table: Any) -> dict[str, Any]:
    """Return the columns of a table, the fields of records, or the arrays of a dict."""
    return {str(name): table[name] for name in _names(table)}


def size(column: Any) -> int:
    """Return the bytes of one column."""
    root = type(column).__module__.partition(".")[0]
    return int(_SIZES[root](column) if root in _SIZES else column.nbytes)


def _in_arrow(series: Any) -> Any:
    """Return a polars column as Arrow, because `estimated_size` ignores the views of text."""
    import polars as pl

    return series.to_arrow(compat_level=pl.CompatLevel.newest())


def _names(table: Any) -> Iterable[Any]:
    if isinstance(table, Mapping):
        return table
    if hasattr(table, "column_names"):  # pyarrow, whose `columns` are not names
        return list(table.column_names)
    return list(table.columns) if hasattr(table, "columns") else list(table.dtype.names)


def _aliases(column: Any, source: Any) -> bool:
    """Whether they share memory; columns of Python objects do not."""
    if source is None:
        return False
    try:
        return zc.shares_memory(source, column)
    except zc.UnsupportedConversionError:
        return False
