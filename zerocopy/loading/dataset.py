"""``Dataset`` and ``Stream``: what the loader reads, in row groups or in sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


class Group(NamedTuple):
    """Rows that are read at once: a row group of a Parquet file, a record batch, rows of an array.

    Attributes
    ----------
    rows : int
        Number of rows.
    file : str
        Path or URL of the file; empty for memory.
    number : int
        Its number within the file, from 0.
    """

    rows: int
    file: str = ""
    number: int = 0

    def __str__(self) -> str:
        return f"{self.file}, row group {self.number}" if self.file else f"row group {self.number}"


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
    """

    name = ""
    schema: Any = None
    groups: Sequence[Group] = ()
    in_memory = False
    #: The number of the open file, or -1, and what reads it.
    _open: Any = (-1, None, None)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or another process needs: without the open file, which `read` opens again."""
        return {name: value for name, value in self.__dict__.items() if name != "_open"}

    def read(self, index: int) -> Any:
        """Return the rows of a group: a ``pyarrow.Table``, or a dict of NumPy arrays.

        Called in the reader's thread, one group at a time.
        """
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return a digest of the source: it changes if the rows, or their order, may have changed."""
        raise NotImplementedError

    def close(self) -> None:
        """Close open files; `read` opens them again."""


class Stream:
    """Rows that are read from the first to the last, and whose number is unknown before.

    Attributes
    ----------
    name : str
        Its name in messages: ``"pyarrow.RecordBatchReader"``.
    schema : pyarrow.Schema
        The types of the columns.
    once : bool
        Whether `batches` can be called only once.
    """

    name = ""
    schema: Any = None
    once = False

    def batches(self) -> Iterator[Any]:
        """Return an iterator of ``pyarrow.Table`` objects, from the first row; closed with ``close()``."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return a digest of the source, as far as it is known before reading."""
        raise NotImplementedError
