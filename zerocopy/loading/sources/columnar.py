"""Parquet and Arrow IPC files: their row groups and record batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from zerocopy.errors import ReadError
from zerocopy.loading.dataset import Dataset, DecodedRows, Group, as_schema, choose, fit, type_of
from zerocopy.loading.sources.files import Files, digest
from zerocopy.loading.sources.int96 import UNIT, checked, int96_columns, parquet_format, refuse_int96
from zerocopy.protocols.exporter_errors import as_read_errors

#: Consecutive row groups of a file are read together up to this number of rows: 1,000 row groups of 1,000
#: rows are read in 0.07 s instead of 0.20 s.
_LEAST_ROWS = 1 << 16
#: Row groups with fewer rows are decoded in one thread, because that is faster.
_THREADED_ROWS = 1 << 15
#: Bytes of a read of a local file: each of Arrow's threads reads its columns. Measured, a row group of 15 MB:
#: 4.8 ms instead of 6.4 with one read of the whole row group, which is pyarrow's default.
_BUFFER_BYTES = 1 << 16
#: Threads that read the metadata of remote files. One thread reads a local file's metadata in 65 us.
_METADATA_THREADS = 8


class ParquetFiles(Dataset):
    """The row groups of Parquet files.

    Reading releases the GIL; Arrow decodes the columns of a row group in its own threads. One file is open
    at a time. Files are not mapped into memory: truncating a mapped file ends the process.
    """

    _dictionary_names: Sequence[str] = ()

    def __init__(
        self, files: Files, columns: Sequence[Hashable] | None, schema: Any = None, data: Any = None
    ) -> None:
        """`data` is the ``pyarrow.dataset.Dataset`` of the files, if the caller has it."""
        from pyarrow import dataset as ds

        self.name: str = files.title("Parquet")
        self._files = files
        is_ours = data is None
        if data is None:
            with files.reading(0):
                data = files.data_set(parquet_format(), infer=schema is None)
        fragments = list(data.get_fragments())
        _read_metadata(files, fragments)
        self._metadata = [fragment.metadata for fragment in fragments]
        self._schemas = [fragment.physical_schema for fragment in fragments]
        #: The values of the partition of each file: the text of its folders, which `fit` casts.
        self._constants = (
            files.partitions()
            if is_ours
            else [ds.get_partition_keys(fragment.partition_expression) for fragment in fragments]
        )
        self.schema: Any = self._unified(data.schema, columns, schema)
        self._set_groups(_LEAST_ROWS)

    def _unified(self, whole: Any, columns: Sequence[Hashable] | None, schema: Any) -> Any:
        """Return the schema of the rows; refuse files of different columns, unless `schema` unifies them."""
        if schema is not None:
            target = as_schema(schema)
            return type_of(target, choose(columns, target.names))
        full, folders = self._schemas[0], {name for constants in self._constants for name in constants}
        for name in whole.names:
            if name in folders and name not in full.names:
                full = full.append(whole.field(name))
        target = type_of(full, choose(columns, full.names))
        paths = self._files.paths
        for file, other in enumerate(self._schemas):
            if other.equals(self._schemas[0]):
                continue
            names = [*target.names, *(other.names if columns is None else ())]
            types = [_types(self._schemas[k], folders) for k in (0, file)]
            why = _difference(types[0], types[1], names, paths[0], paths[file])
            if why:
                fix = (
                    "pass the types of all columns, to which the files are cast: schema="
                    "pyarrow.unify_schemas([pyarrow.parquet.read_schema(path) for path in "
                    f'({paths[0]!r}, {paths[file]!r})], promote_options="permissive")'
                )
                raise ReadError(self._files.asked, why, fix, code="schema-drift", file=paths[file])
        return target.with_metadata(full.metadata) if columns is None else target

    def _set_groups(self, most: int) -> None:
        """Set the groups: consecutive row groups of a file that have at most `most` rows together."""
        #: The row groups of each group: file, first row group, and the one after the last.
        self._places: list[tuple[int, int, int]] = []
        self.groups: list[Group] = []
        for file, metadata in enumerate(self._metadata):
            first = rows = 0
            counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
            for number, count in enumerate([*counts, most + 1]):  # the last count ends the last group
                if rows and rows + count > most:
                    self._places.append((file, first, number))
                    self.groups.append(Group(rows, self._files.paths[file], first))
                    first, rows = number, 0
                rows += count

    def read(self, index: int) -> Any:
        """Return the columns of a group as a table of one chunk."""
        file, first, stop = self._places[index]
        try:
            with as_read_errors(lambda error: self._failure(file, first, stop, error)):
                table = self._read(file, range(first, stop))
        except ReadError:
            self.close()  # the next read opens the file again
            raise
        return fit(self.schema, table, str(self.groups[index]), self._constants[file]).combine_chunks()

    def locate(self, number: int, row: int) -> str:
        """Return the name of a row of a group: the row group within the file that has it."""
        file, number, _ = self._places[number]
        while row >= (rows := self._metadata[file].row_group(number).num_rows):
            row, number = row - rows, number + 1
        return f"{Group(0, self._files.paths[file], number)}, row {row:,}"

    def _read(self, file: int, numbers: Sequence[int]) -> Any:
        reader = self._reader(file)
        names = [name for name in self.schema.names if name in self._own_names(file)]
        rows = sum(self._metadata[file].row_group(number).num_rows for number in numbers)
        is_threaded = rows >= _THREADED_ROWS
        table = reader.read_row_groups(list(numbers), columns=names, use_threads=is_threaded)
        times = int96_columns(self._metadata[file], table.schema)
        if times:
            exact = self._parquet_file(file, self._open[2], "ns")
            fine = exact.read_row_groups(list(numbers), columns=times, use_threads=is_threaded)
            place = str(Group(rows, self._files.paths[file], numbers[0]))
            table = checked(table, fine, self.schema, place)
        if self._files.is_local:
            self._files.check(file)
        return table

    def _failure(self, file: int, first: int, stop: int, error: BaseException) -> ReadError:
        """Return the error of a failed read, which names the first row group that cannot be read."""
        number = first
        try:
            self._files.check(file)
            for number in range(first, stop if stop - first > 1 else first):
                with self._files.reading(file, number):
                    self._read(file, [number])
        except ReadError as other:
            return other
        return self._files.unreadable(file, error, number)

    def _reader(self, file: int) -> Any:
        """Return an open file, which has not changed."""
        if self._open[0] != file:
            self.close()
            self._files.check(file)
            handle = self._files.open(file)
            self._open = (file, self._parquet_file(file, handle, UNIT), handle)
        return self._open[1]

    def _parquet_file(self, file: int, handle: Any, int96_unit: str) -> Any:
        """Return a reader of an open file."""
        import pyarrow.parquet as pq

        return pq.ParquetFile(
            handle,
            metadata=self._metadata[file],
            read_dictionary=self._dictionary_names,
            coerce_int96_timestamp_unit=int96_unit,
            page_checksum_verification=True,
            # One read of a row group would be one thread's work, before others decode.
            pre_buffer=not self._files.is_local,
            buffer_size=_BUFFER_BYTES if self._files.is_local else 0,
        )

    def _own_names(self, file: int) -> set[str]:
        """Return the columns that a file has itself; as in pyarrow, a folder's value replaces a column."""
        return set(self._schemas[file].names) - set(self._constants[file])

    @property
    def is_plain(self) -> bool:
        """Whether the files are local and have all columns: none is the name of a folder."""
        names = set(self.schema.names)
        return self._files.is_local and all(
            names <= self._own_names(file) for file in range(len(self._files))
        )

    def row_groups(self, index: int) -> list[int]:
        """Return the numbers of a group's row groups within its file."""
        return list(range(*self._places[index][1:]))

    def check(self, index: int) -> None:
        """Raise `ReadError` if the file of a group has changed since the loader was created."""
        self._files.check(self._places[index][0])

    def split(self) -> ParquetFiles:
        """Return the same files with each row group as a group."""
        result = copy.copy(self)
        result._set_groups(0)
        return result

    def select(self, columns: Sequence[str]) -> ParquetFiles:
        """Return the same files with some of the columns, which alone are read."""
        return self.cast(type_of(self.schema, columns))

    def cast(self, schema: Any) -> ParquetFiles:
        """Return the same files with the columns of a schema, which alone are read."""
        result = copy.copy(self)
        result.schema = schema
        return result

    def with_dictionaries(self, columns: Sequence[str]) -> ParquetFiles:
        """Return the same files with columns of text as dictionaries: Arrow decodes each word once."""
        import pyarrow as pa

        result, names = copy.copy(self), []
        for place, field in enumerate(self.schema):
            types = {schema.field(field.name).type for schema in self._schemas if field.name in schema.names}
            in_all = all(field.name in schema.names for schema in self._schemas)
            if field.name in columns and in_all and {*types, field.type} <= {pa.string(), pa.large_string()}:
                type_ = pa.dictionary(pa.int32(), field.type)
                result.schema = result.schema.set(place, field.with_type(type_))
                names.append(field.name)
        result._dictionary_names = names
        return result

    def fingerprint(self) -> str:
        """Return a digest of the files and of their row groups."""
        return digest(self._files.fingerprint(), [group.rows for group in self.groups])

    def close(self) -> None:
        """Close the open file."""
        _, reader, handle = self._open
        self._open = (-1, None, None)
        if reader is not None:
            reader.close()
            handle.close()


def _read_metadata(files: Files, fragments: Sequence[Any]) -> None:
    """Read the metadata of all files; those of remote files in several threads."""

    def read(file: int) -> None:
        with files.reading(file):
            fragments[file].ensure_complete_metadata()

    if files.is_local or len(files) == 1:
        for file in range(len(files)):
            read(file)
    else:
        with ThreadPoolExecutor(_METADATA_THREADS) as pool:
            list(pool.map(read, range(len(files))))


class OpenParquet(Dataset):
    """The row groups of a ``pyarrow.parquet.ParquetFile`` that the caller has opened, and closes."""

    name = "pyarrow.ParquetFile"
    only_here = "is an open file, which two loaders cannot read"

    def __init__(self, file: Any, columns: Sequence[Hashable] | None) -> None:
        self._file = file
        self._columns = choose(columns, file.schema_arrow.names)
        call = 'pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")'
        refuse_int96(self.name, file.metadata, file.schema_arrow, self._columns, call)
        self.schema: Any = type_of(file.schema_arrow, self._columns)
        self._infos = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        self.groups: list[Group] = [
            Group(info.num_rows, number=number) for number, info in enumerate(self._infos)
        ]

    def read(self, index: int) -> Any:
        """Return the columns of a row group as a table of one chunk."""
        fix = 'keep the file open while the loader reads it; skip unreadable row groups: on_error="skip"'
        with as_read_errors(
            lambda error: ReadError(
                f"reading {self.name}, row group {index}",
                f"pyarrow raised {type(error).__name__}: {error}",
                fix,
                row_group=index,
            )
        ):
            return self._file.read_row_group(index, columns=self._columns).combine_chunks()

    def fingerprint(self) -> str:
        """Return a digest of the columns and the row groups' sizes."""
        sizes = [(info.num_rows, info.total_byte_size) for info in self._infos]
        return digest([(field.name, str(field.type)) for field in self.schema], sizes)


class DecodedFiles(Dataset):
    """The row groups of local Parquet files; a framework decodes each on a device.

    ``decode(path, row_groups, columns)`` is the framework's function, and `library` its name, for messages.
    The host reads only the metadata of `files`.
    """

    def __init__(
        self, files: ParquetFiles, decode: Callable[[str, list[int], list[str]], DecodedRows], library: str
    ) -> None:
        self._files, self._decode, self._library = files, decode, library
        self.name: str = f"{files.name}, decoded by {library}"
        self.note: str = f"{library} decodes on the device, without a copy through the host"
        self.schema: Any = files.schema
        self.groups: list[Group] = files.groups

    def read(self, index: int) -> Any:
        """Return the rows of a group, on the device."""
        with as_read_errors(lambda error: self._failure(index, error)):
            rows = self._decode(
                self.groups[index].file, self._files.row_groups(index), list(self.schema.names)
            )
        self._files.check(index)
        return rows

    def _failure(self, index: int, error: BaseException) -> ReadError:
        group = self.groups[index]
        self._files.check(index)
        why = f"{self._library} raised {type(error).__name__}: {error}"
        fix = "replace the file; or leave out engine=: the host then decodes the files"
        return ReadError(f"reading {group}", why, fix, file=group.file, row_group=group.number)

    def fingerprint(self) -> str:
        """Return the digest of the files: the host can continue the state of a device."""
        return self._files.fingerprint()


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
        self.name: str = files.title("Arrow")
        self._files = files
        self.in_memory: bool = files.is_local
        self._batches: list[tuple[int, int]] = []
        self.groups: list[Group] = []
        for file, path in enumerate(files.paths):
            with files.reading(file):
                here, rows = self._contents(file)
            if self.schema is None:
                self.schema: Any = here
            if not here.equals(self.schema):
                types, names = (_types(self.schema), _types(here)), [*self.schema.names, *here.names]
                why = _difference(*types, names, files.paths[0], path)
                order = "the order, number or nullability of the columns differs"
                why = why or f"{order} in {files.paths[0]} and {path}"
                fix = "write the files with one schema, or create a loader for each"
                raise ReadError(files.asked, why, fix, code="schema-drift", file=path)
            for number, count in enumerate(rows):
                if count:
                    self._batches.append((file, number))
                    self.groups.append(Group(count, path, number))
        self._constants = files.partitions()
        self.schema = _with_folders(self.schema, self._constants, schema)
        self._columns: list[str] | None = None
        if columns is not None or schema is not None:
            # Read, and so validate, only the columns that the caller asks for.
            asked = set(choose(columns, (self.schema if schema is None else as_schema(schema)).names))
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
            constants, own = self._constants[file], batch.schema.names
            if self._columns is not None or constants:
                batch = batch.select([x for x in self.schema.names if x in own and x not in constants])
            # A damaged offset of text makes a reader leave the map, which ends the process. The check of
            # 1,000,000 rows takes 4 ms (14 MB of text), 7 ms (104 MB of text) or 0.00 ms (numbers).
            batch.validate(full=True)
        return fit(self.schema, pa.Table.from_batches([batch]), str(self.groups[index]), constants)

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


def _with_folders(schema: Any, constants: Sequence[Mapping[str, Any]], asked: Any) -> Any:
    """Return a schema with columns of folders: of the types asked for, or of those that pyarrow infers."""
    import pyarrow as pa

    types = {} if asked is None else _types(as_schema(asked))
    for name in dict.fromkeys(name for each in constants for name in each):
        place, type_ = schema.get_field_index(name), types.get(name)
        if type_ is None and place < 0:
            texts = pa.array([each.get(name) for each in constants], pa.string())
            try:
                type_ = texts.cast(pa.int32()).type
            except pa.ArrowInvalid:
                type_ = texts.type
        if type_ is not None:
            field = pa.field(name, type_)
            schema = schema.append(field) if place < 0 else schema.set(place, field)
    return schema


def _types(schema: Any, constants: Iterable[str] = ()) -> dict[str, Any]:
    """Return the types of a file's columns; None for those whose values are in the names of folders."""
    return dict.fromkeys(constants) | dict(zip(schema.names, schema.types, strict=True))


def _difference(
    first: Mapping[str, Any], here: Mapping[str, Any], names: Iterable[str], one: str, other: str
) -> str:
    """Return the first of some columns that differs between the files `one` and `other`, or an empty text."""
    for name in names:
        if name not in here:
            return f"column {name!r} of {one} is missing in {other}"
        if name not in first:
            return f"column {name!r} of {other} is missing in {one}"
        types = first[name], here[name]
        if types[0] is not None and types[1] is not None and types[0] != types[1]:
            return f"column {name!r} is {types[0]} in {one} and {types[1]} in {other}"
    return ""
