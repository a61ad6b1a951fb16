"""Arrow IPC files (Feather): their record batches, mapped into memory."""

from __future__ import annotations

from typing import Any

from zerocopy.loading.dataset import Dataset, Group
from zerocopy.loading.errors import ReadError
from zerocopy.loading.sources.files import Files


class IpcFiles(Dataset):
    """The record batches of Arrow IPC files; those of local files alias a memory map.

    A file may have either IPC format: the one with a footer (Feather), or the stream format, which Hugging
    Face writes.
    """

    def __init__(self, files: Files) -> None:
        self.name = f"{len(files)} Arrow file{'s' * (len(files) != 1)}"
        self._files, self.in_memory = files, files.is_local
        self._batches: list[tuple[int, int]] = []
        self.groups: list[Group] = []
        self._open: tuple[int, Any] = (-1, None)
        for file, path in enumerate(files.paths):
            try:
                source = self._source(file)
                schema, rows = source.schema, [batch.num_rows for batch in _all_batches(source)]
            except MemoryError:
                raise
            except Exception as error:
                raise files.unreadable(file, error) from error
            if self.schema is None:
                self.schema = schema
            if not schema.equals(self.schema):
                why = f"{_difference(self.schema, schema)} in {files.paths[0]} and {path}"
                fix = "write the files with one schema, or create a loader for each"
                raise ReadError(files.asked, why, fix, code="schema-drift", file=path)
            for number, count in enumerate(rows):
                if count:
                    self._batches.append((file, number))
                    self.groups.append(Group(count, path, number))

    def read(self, index: int) -> Any:
        """Return a record batch as a table."""
        import pyarrow as pa

        file, number = self._batches[index]
        self._files.check(file)
        try:
            if self._open[0] != file:
                self._open = (file, self._source(file))
            batch = self._open[1].get_batch(number)
            batch.validate()
        except MemoryError:
            raise
        except Exception as error:
            raise self._files.unreadable(file, error, number) from error
        return pa.table(batch)

    def _source(self, file: int) -> Any:
        """Return an open file with the method ``get_batch``."""
        import pyarrow as pa

        is_local = self._files.is_local
        handle = pa.memory_map(self._files.paths[file]) if is_local else self._files.open(file)
        try:
            if handle.read(6) == b"ARROW1":
                return pa.ipc.open_file(handle)
            handle.seek(0)
            return _StreamFormat(pa.ipc.open_stream(handle))
        except BaseException:
            handle.close()
            raise

    def fingerprint(self) -> str:
        """Return a digest of the names, sizes and times of the files."""
        return self._files.fingerprint()

    def close(self) -> None:
        """Drop the open file; batches that alias its map keep the map."""
        self._open = (-1, None)


class _StreamFormat:
    """A file in the stream format: its batches are listed once."""

    def __init__(self, reader: Any) -> None:
        self.schema = reader.schema
        self._batches = list(reader)
        self.num_record_batches = len(self._batches)

    def get_batch(self, number: int) -> Any:
        return self._batches[number]


def _all_batches(source: Any) -> Any:
    return (source.get_batch(number) for number in range(source.num_record_batches))


def _difference(first: Any, other: Any) -> str:
    """Return the types of the first column that differs between two schemas, as text."""
    for name in [*first.names, *other.names]:
        types = [schema.field(name).type if name in schema.names else "missing" for schema in (first, other)]
        if types[0] != types[1]:
            return f"column {name!r} is {types[0]} and {types[1]}"
    return "the order of the columns differs"
