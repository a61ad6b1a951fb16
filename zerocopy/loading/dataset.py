"""``Dataset`` and ``Stream``: sources of rows, read in groups or in sequence."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from zerocopy.formatting.printable import printable
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


_NONE: Mapping[str, Any] = MappingProxyType({})


class Group(NamedTuple):
    """Rows that are read at once: a row group of a Parquet file, a record batch, rows of an array.

    Attributes
    ----------
    rows : int
        Number of rows.
    file : str
        Path or URL of the file; empty for memory.
    number : int
        Number of the group within the file, from 0.
    """

    rows: int
    file: str = ""
    number: int = 0

    def __str__(self) -> str:
        return printable(f"{self.file}, row group {self.number}" if self.file else f"row group {self.number}")


class Dataset:
    """Rows in groups that can be read in any order, several times.

    Attributes
    ----------
    name : str
        Its name in messages: ``"3 Parquet files"``.
    schema : pyarrow.Schema or None
        The types of the columns that `read` returns; None if it returns arrays.
    groups : sequence of Group
        All groups, in the order of the source.
    in_memory : bool
        Whether `read` returns aliases of memory that exists already.
    dictionaries : mapping of str to pyarrow.Array
        The words of columns that `read` returns as codes.
    note : str
        What ``explain`` reports about it; empty for nothing.
    only_here : str
        Why a copy of the loader cannot read it; empty if it can.
    """

    name = note = only_here = ""
    schema: Any = None
    groups: Sequence[Group] = ()
    in_memory = False
    dictionaries: Mapping[str, Any] = _NONE
    #: Number of the open file, or -1, followed by its reader.
    _open: Any = (-1, None, None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, without the open file, which `read` opens again."""
        state = {name: value for name, value in self.__dict__.items() if name != "_open"}
        return state | ({"_source": copy.copy(state["_source"])} if "_source" in state else {})

    def read(self, index: int) -> Any:
        """Return the rows of a group: a ``pyarrow.Table``, or a dict of NumPy arrays.

        Called in the reader's thread, one group at a time.
        """
        raise NotImplementedError

    def split(self) -> Dataset:
        """Return a dataset of the same rows in the smallest groups that can be read alone."""
        return self

    def select(self, columns: Sequence[str]) -> Dataset:
        """Return a dataset of the same groups with some of the columns."""
        return _Selected(self, columns)

    def with_dictionaries(self, columns: Sequence[str]) -> Dataset:
        """Return a dataset that may read some columns of text as dictionaries, to decode less."""
        return self

    def fingerprint(self) -> str:
        """Return a digest of the source: it changes if the rows, or their order, may have changed."""
        raise NotImplementedError

    def close(self) -> None:
        """Close open files; `read` opens them again."""


class Stream:
    """Rows that are read from the first to the last. Their number is unknown before the last is read.

    Attributes
    ----------
    name : str
        Its name in messages: ``"pyarrow.RecordBatchReader"``.
    schema : pyarrow.Schema
        The types of the columns.
    once : bool
        Whether `batches` can be called only once.
    only_here : str
        Why a copy of the loader cannot read it; empty if it can.
    dictionaries : mapping of str to pyarrow.Array
        The words of columns that are codes.
    """

    name = note = only_here = ""
    schema: Any = None
    once = False
    in_memory = False
    dictionaries: Mapping[str, Any] = _NONE

    def batches(self) -> Iterator[Any]:
        """Return an iterator of ``pyarrow.Table`` objects, from the first row; closed with ``close()``."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return a digest of the source, as far as it is known before reading."""
        raise NotImplementedError


class _Selected(Dataset):
    """Some of the columns of a dataset that reads all of them."""

    def __init__(self, source: Dataset, columns: Sequence[str]) -> None:
        self._source, self._columns = source, list(columns)
        self.groups, self.only_here = source.groups, source.only_here

    def read(self, index: int) -> Any:
        """Return these columns of a group."""
        content = self._source.read(index)
        if isinstance(content, dict):
            return {name: content[name] for name in self._columns}
        return content.select(self._columns)

    def close(self) -> None:
        """Close open files."""
        self._source.close()


def file_name(path: str) -> str:
    """Return the last part of a path or URL, without the query of a URL.

    Examples
    --------
    >>> file_name("/data/private/a.parquet"), file_name("https://x.org/d/b.parquet?token=secret")
    ('a.parquet', 'b.parquet')
    """
    if "://" in path:
        path = urlsplit(path).path
    return path.rstrip("/").rpartition("/")[2]
