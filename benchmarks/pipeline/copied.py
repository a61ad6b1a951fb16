"""How many bytes a border copies: looked up in the memory, and not claimed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import zerocopy as zc

#: How large a column is, where it has no ``nbytes`` that says so.
_SIZES: dict[str, Callable[[Any], int]] = {
    "polars": lambda column: _in_arrow(column).nbytes,
    "pandas": lambda column: column.memory_usage(index=False, deep=True),
    "cudf": lambda column: column.memory_usage(index=False, deep=True),
}


def copied(given: Any, made: Any) -> int:
    """Return the bytes of the columns of ``made`` that lie in no memory of the same column of ``given``.

    Parameters
    ----------
    given, made : object
        Tables, structured arrays or dicts of arrays.
    """
    before = columns(given)
    return sum(
        size(column) for name, column in columns(made).items() if not _aliases(column, before.get(name))
    )


def columns(table: Any) -> dict[str, Any]:
    """Return the columns of a table, the fields of records, the arrays of a dict."""
    return {str(name): table[name] for name in _names(table)}


def size(column: Any) -> int:
    """Return the bytes of one column."""
    root = type(column).__module__.partition(".")[0]
    return int(_SIZES[root](column) if root in _SIZES else column.nbytes)


def _in_arrow(series: Any) -> Any:
    """Return a column of polars as Arrow has it: `estimated_size` leaves out the views of text."""
    import polars as pl

    return series.to_arrow(compat_level=pl.CompatLevel.newest())


def _names(table: Any) -> Iterable[Any]:
    if isinstance(table, Mapping):
        return table
    if hasattr(table, "column_names"):  # pyarrow, whose `columns` are no names
        return list(table.column_names)
    return list(table.columns) if hasattr(table, "columns") else list(table.dtype.names)


def _aliases(column: Any, source: Any) -> bool:
    """Whether they overlap; objects of Python do not, for nobody can say where they lie."""
    if source is None:
        return False
    try:
        return zc.shares_memory(source, column)
    except zc.UnsupportedConversionError:
        return False
