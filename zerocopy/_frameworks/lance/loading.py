"""Rows of Lance's data sets, read in ranges."""

from __future__ import annotations

from typing import Any

from zerocopy.errors import ReadError
from zerocopy.loading.dataset import Dataset, Group, Stream, choose, type_of
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.sources.files import digest
from zerocopy.loading.sources.memory import GROUP_ROWS
from zerocopy.protocols.exporter_errors import as_read_errors


class Loading(LoadingHook):
    """One version of a data set."""

    suffixes = ("lance",)

    def open_path(self, path: str) -> Any:
        """Return the latest version of a data set."""
        import lance

        return lance.dataset(path)

    def open(self, obj: Any, columns: Any) -> Dataset | Stream | None:
        return LanceRows(obj, columns)


class LanceRows(Dataset):
    """The rows of a data set's version, in ranges of one fragment and at most 131,072 rows."""

    name = "lance.LanceDataset"

    def __init__(self, data: Any, columns: Any) -> None:
        self._data, self._version = data, data.version
        self._columns = choose(columns, data.schema.names)
        self.schema = type_of(data.schema, self._columns)
        self.groups: list[Group] = []
        self._starts: list[int] = []
        start = 0
        for fragment in data.get_fragments():
            rows = fragment.count_rows()
            for low in range(0, rows, GROUP_ROWS):
                self._starts.append(start + low)
                self.groups.append(Group(min(GROUP_ROWS, rows - low), number=len(self.groups)))
            start += rows

    def read(self, index: int) -> Any:
        """Return the rows of a group as a table of one chunk."""
        with as_read_errors(lambda error: self._failure(index, error)):
            table = self._data.to_table(
                columns=self._columns,
                offset=self._starts[index],
                limit=self.groups[index].rows,
                scan_in_order=True,
            )
        return table.combine_chunks()

    def _failure(self, index: int, error: BaseException) -> ReadError:
        why = f"Lance raised {type(error).__name__}: {error}"
        fix = 'restore the files; or on_error="skip" leaves these rows out'
        return ReadError(f"reading {self.name}, row group {index}", why, fix, row_group=index)

    def fingerprint(self) -> str:
        """Return a digest of the version, the columns and the rows: a version of a data set never changes."""
        columns = [(field.name, str(field.type)) for field in self._data.schema]
        return digest(self.name, self._version, columns, [group.rows for group in self.groups])
