"""Parquet files: their row groups."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Hashable, Sequence
from typing import Any

from zerocopy.loading.dataset import Dataset, Group
from zerocopy.loading.errors import ReadError


class ParquetFiles(Dataset):
    """The row groups of Parquet files of one schema.

    Reading releases the GIL; Arrow decodes the columns of a row group in its own threads.
    """

    def __init__(self, paths: Sequence[str], columns: Sequence[Hashable] | None) -> None:
        import pyarrow.parquet as pq

        self.name = f"{len(paths)} Parquet file{'s' * (len(paths) != 1)}"
        self._paths = list(paths)
        self._metadata = [pq.read_metadata(path) for path in paths]
        self._marks = [_mark(path) for path in paths]
        first = self._metadata[0].schema.to_arrow_schema()
        self._columns = list(first.names if columns is None else columns)
        self.schema = first.empty_table().select(self._columns).schema
        self._places = [
            (file, number)
            for file, metadata in enumerate(self._metadata)
            for number in range(metadata.num_row_groups)
        ]
        self.groups = [
            Group(self._metadata[file].row_group(number).num_rows, paths[file], number)
            for file, number in self._places
        ]
        self._open: tuple[int, Any] = (-1, None)

    def read(self, index: int) -> Any:
        """Return the columns of a row group as a table of one chunk."""
        file, number = self._places[index]
        try:
            table = self._file(file).read_row_group(number, columns=self._columns)
        except Exception as error:
            path = self._paths[file]
            raise ReadError(
                f"reading {path}, row group {number}",
                f"pyarrow raised {type(error).__name__}: {error}",
                'replace the file, or skip its unreadable row groups: on_error="skip"',
                file=path,
                row_group=number,
            ) from error
        return table.combine_chunks()

    def _file(self, file: int) -> Any:
        if self._open[0] != file:
            import pyarrow.parquet as pq

            self.close()
            path = self._paths[file]
            if _mark(path) != self._marks[file]:
                raise ReadError(
                    f"reading {path}", "the file has changed since the loader was created",
                    "create the loader again", code="changed-file", file=path,
                )  # fmt: skip
            self._open = (
                file,
                pq.ParquetFile(
                    path, metadata=self._metadata[file], read_dictionary=list(self.dictionary_columns)
                ),
            )
        return self._open[1]

    def select(self, columns: Sequence[str]) -> ParquetFiles:
        """Return the same files with some of the columns, which alone are read."""
        selected = copy.copy(self)
        selected._columns, selected._open = list(columns), (-1, None)
        return selected

    def fingerprint(self) -> str:
        """Return a digest of the names, sizes and times of the files."""
        text = repr(
            [(os.path.basename(path), *mark) for path, mark in zip(self._paths, self._marks, strict=True)]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def close(self) -> None:
        """Close the open file."""
        if self._open[1] is not None:
            self._open[1].close()
        self._open = (-1, None)


def _mark(path: str) -> tuple[int, int]:
    """Return the size and the time of the last change of a file."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
