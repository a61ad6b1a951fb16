"""``OpenParquet``: a ``pyarrow.parquet.ParquetFile`` that the caller has opened."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from zerocopy.loading.dataset import Dataset, Group
from zerocopy.loading.read_error import ReadError
from zerocopy.loading.sources.files import digest
from zerocopy.loading.sources.fitting import choose
from zerocopy.protocols.exporter_errors import is_error


class OpenParquet(Dataset):
    """The row groups of an open file, which the caller closes."""

    only_here = "is an open file, which two loaders cannot read"

    def __init__(self, file: Any, columns: Sequence[Hashable] | None) -> None:
        self.name, self._file = "pyarrow.ParquetFile", file
        full = file.schema_arrow
        self._columns = choose(columns, full.names)
        self.schema = full.empty_table().select(self._columns).schema
        rows = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        self.groups = [Group(count, number=number) for number, count in enumerate(rows)]

    def read(self, index: int) -> Any:
        """Return the columns of a row group as a table of one chunk."""
        try:
            return self._file.read_row_group(index, columns=self._columns).combine_chunks()
        except MemoryError:
            raise
        except BaseException as error:
            if not is_error(error):
                raise
            raise ReadError(
                f"reading {self.name}, row group {index}",
                f"pyarrow raised {type(error).__name__}: {error}",
                'keep the file open while the loader reads it; skip unreadable row groups: on_error="skip"',
                row_group=index,
            ) from error

    def fingerprint(self) -> str:
        """Return a digest of the columns and the row groups' sizes."""
        metadata = self._file.metadata
        groups = [metadata.row_group(group.number) for group in self.groups]
        sizes = [(group.num_rows, group.total_byte_size) for group in groups]
        return digest([(field.name, str(field.type)) for field in self.schema], sizes)
