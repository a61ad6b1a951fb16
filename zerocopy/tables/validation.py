"""``validate="full"``: checks the content of Arrow columns with pyarrow, in time proportional to their size.

The checks that need constant time are made always, in :mod:`zerocopy.protocols.arrow_array_checks`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from zerocopy.errors import FrameworkNotInstalledError, UnsupportedConversionError
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.hub import hub
from zerocopy.tables.object_column import ObjectColumn
from zerocopy.tables.summary import map_columns


def check(table: Table) -> None:
    """Check the content of a table's columns; columns that are not in Arrow memory have none to check.

    Raises
    ------
    UnsupportedConversionError
        The content is invalid, lies on a device, or has a type that pyarrow lacks.
    FrameworkNotInstalledError
        pyarrow is not installed.
    """
    map_columns(table, _check)


def _check(label: Hashable, path: str, column: Column) -> None:
    if not isinstance(column, ArrowColumn) or isinstance(column, ObjectColumn):  # pyarrow made the latter
        return
    try:
        pa = hub().module()
    except FrameworkNotInstalledError as error:
        error.with_context(why=f"validate='full' checks Arrow columns with pyarrow: {error.why}")
        raise
    column.arrow_reasons()  # refuses device memory, and types that Arrow lacks
    for chunk in _chunks(column.arrow()):
        # pyarrow 26 rejects valid empty slices of string views.
        if len(chunk):
            validate(pa, chunk)


def _chunks(array: Any) -> list[Any]:
    return list(array.chunks) if hasattr(array, "chunks") else [array]


def validate(pa: Any, chunk: Any) -> None:
    """Check the content of an array."""
    try:
        chunk.validate(full=True)
    except (pa.ArrowException, ValueError, IndexError) as error:
        raise UnsupportedConversionError(
            "",
            f"its content is invalid: {error}",
            "fix it where it is created",
            code="invalid-content",
        ) from error
