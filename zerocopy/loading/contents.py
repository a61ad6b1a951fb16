"""Rows as the sources return them: Arrow tables, dicts of NumPy arrays, or objects of a framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zerocopy.source import Array


class DecodedRows:
    """Rows that their framework slices: decoded on a device, or sparse. Its hook has a subclass.

    Attributes
    ----------
    table : object
        Its table, which ``convert`` accepts.
    """

    table: Any = None

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """The bytes of the rows."""
        raise NotImplementedError

    def slice(self, start: int, length: int) -> DecodedRows:
        """Return an alias of some rows."""
        raise NotImplementedError

    def joined(self, others: Sequence[Any]) -> DecodedRows:
        """Return a copy of these rows and those of others."""
        raise NotImplementedError

    def take(self, rows: Array) -> DecodedRows:
        """Return a copy of some rows, in any order."""
        raise NotImplementedError


def count_rows(content: Any) -> int:
    """Return the number of rows."""
    if isinstance(content, dict):
        return len(next(iter(content.values()))) if content else 0
    return int(content.num_rows)


def slice_rows(content: Any, low: int, high: int) -> Any:
    """Return the rows from `low` to `high`, without a copy."""
    if isinstance(content, dict):
        return {name: array[low:high] for name, array in content.items()}
    return content.slice(low, high - low)


def concatenate(contents: Sequence[Any]) -> Any:
    """Return the rows of several contents, without a copy if they are Arrow tables."""
    if len(contents) == 1:
        return contents[0]
    if isinstance(contents[0], dict):
        return {name: np.concatenate([content[name] for content in contents]) for name in contents[0]}
    if isinstance(contents[0], DecodedRows):
        return contents[0].joined(contents[1:])
    import pyarrow as pa

    return pa.concat_tables(contents)


def take_rows(contents: Sequence[Any], rows: Array) -> Any:
    """Return a copy of `rows`, which are numbers of rows of the concatenated contents."""
    content = concatenate(contents)
    if isinstance(content, dict):
        return {name: array[rows] for name, array in content.items()}
    if isinstance(content, DecodedRows):
        return content.take(rows)
    # Arrow takes rows from one chunk five times as fast as from several.
    return content.combine_chunks().take(rows)
