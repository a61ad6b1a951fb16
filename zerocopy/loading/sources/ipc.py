"""Arrow IPC files (Feather): their record batches, mapped into memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from zerocopy.loading.dataset import Dataset, Group
from zerocopy.loading.errors import ReadError
from zerocopy.loading.sources.files import Files
from zerocopy.loading.sources.fitting import as_schema, choose, type_of


class _Source(NamedTuple):
    """An open file of either format."""

    schema: Any
    batches: int
    get_batch: Callable[[int], Any]


class IpcFiles(Dataset):
    """The record batches of Arrow IPC files; those of local files alias a memory map.

    A file may have either IPC format: the one with a footer (Feather), or the stream format, which Hugging
    Face writes.
    """

    def __init__(self, files: Files, columns: Sequence[Hashable] | None = None, schema: Any = None) -> None:
        self.name, self._files, self.in_memory = files.title("Arrow"), files, files.is_local
        self._batches: list[tuple[int, int]] = []
        self.groups: list[Group] = []
        for file, path in enumerate(files.paths):
            with files.reading(file):
                here, rows = self._contents(file)
            if self.schema is None:
                self.schema = here
            if not here.equals(self.schema):
                why = f"{_difference(self.schema, here)} in {files.paths[0]} and {path}"
                fix = "write the files with one schema, or create a loader for each"
                raise ReadError(files.asked, why, fix, code="schema-drift", file=path)
            for number, count in enumerate(rows):
                if count:
                    self._batches.append((file, number))
                    self.groups.append(Group(count, path, number))
        self._columns: list[str] | None = None
        if columns is not None or schema is not None:
            self._select(columns, self.schema if schema is None else as_schema(schema))

    def _select(self, columns: Sequence[Hashable] | None, schema: Any) -> None:
        """Read, and so validate, only the columns that the caller asks for."""
        asked = set(choose(columns, schema.names))
        names = [name for name in self.schema.names if name in asked]
        if names:  # without a column, a table has no rows
            self._columns, self.schema = names, type_of(self.schema, names)

    def read(self, index: int) -> Any:
        """Return a record batch as a table."""
        import pyarrow as pa

        file, number = self._batches[index]
        self._files.check(file)
        with self._files.reading(file, number):
            if self._open[0] != file:
                self._open = (file, self._source(file).get_batch)
            batch = self._open[1](number)
            if self._columns is not None:
                batch = batch.select(self._columns)
            # A damaged offset of text makes a reader leave the map, which ends the process. The check of
            # 1,000,000 rows takes 4 ms (14 MB of text), 7 ms (104 MB of text) or 0.00 ms (numbers).
            batch.validate(full=True)
        return pa.table(batch)

    def _contents(self, file: int) -> tuple[Any, list[int]]:
        """Return a file's schema and the rows of its batches, and close the file."""
        source = self._source(file)  # in `__init__`, the traceback of a later error would keep it open
        return source.schema, [source.get_batch(number).num_rows for number in range(source.batches)]

    def _source(self, file: int) -> _Source:
        import pyarrow as pa

        is_local = self._files.is_local
        handle = pa.memory_map(self._files.paths[file]) if is_local else self._files.open(file)
        try:
            if handle.read(6) == b"ARROW1":
                reader = pa.ipc.open_file(handle)
                return _Source(reader.schema, reader.num_record_batches, reader.get_batch)
            handle.seek(0)
            reader = pa.ipc.open_stream(handle)
            batches = list(reader)
            return _Source(reader.schema, len(batches), batches.__getitem__)
        except BaseException:
            handle.close()
            raise

    def fingerprint(self) -> str:
        """Return a digest of the names, sizes and times of the files."""
        return self._files.fingerprint()

    def close(self) -> None:
        """Drop the open file; batches that alias its map keep the map."""
        self._open = (-1, None, None)


def _difference(first: Any, other: Any) -> str:
    """Return the types of the first column that differs between two schemas, as text."""
    for name in [*first.names, *other.names]:
        types = [schema.field(name).type if name in schema.names else "missing" for schema in (first, other)]
        if types[0] != types[1]:
            return f"column {name!r} is {types[0]} and {types[1]}"
    return "the order of the columns differs"
