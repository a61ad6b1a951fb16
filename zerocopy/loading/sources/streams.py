"""Streams of record batches: readers, queries, and files whose number of rows is not known."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from typing import Any

from zerocopy.errors import ReadError, ZeroCopyError
from zerocopy.loading.dataset import Stream, as_schema, fit
from zerocopy.loading.sources.files import Files, digest
from zerocopy.protocols.exporter_errors import as_read_errors


class BatchStream(Stream):
    """Record batches of an iterable that a function returns."""

    is_new = False

    def __init__(
        self,
        name: str,
        schema: Any,
        start: Callable[[], Iterable[Any]],
        once: bool = False,
        only_here: str = "",
    ) -> None:
        """``start()`` returns record batches or tables; with `once`, it can be called only once.

        `only_here` says why `start` cannot be pickled.
        """
        self.name = name
        self.schema = schema
        self.once = once
        self._start = start
        self.only_here: str = "can be read only once, and not by two loaders" if once else only_here

    def batches(self) -> Iterator[Any]:
        """Return the rows as tables of the stream's schema."""
        import pyarrow as pa

        batches = self._translated()
        try:
            for batch in batches:
                if isinstance(batch, pa.RecordBatch):  # through C, a NUL would end the name of a column
                    batch = pa.Table.from_batches([batch])
                table = batch if isinstance(batch, pa.Table) else pa.table(batch)
                if table.num_rows:
                    yield fit(self.schema, table, self.name)
        finally:
            batches.close()

    def _translated(self) -> Generator[Any, None, None]:
        """Return the batches; an exception of their producer becomes a `ReadError`."""
        with as_read_errors(self._failure):
            yield from self._start()

    def _failure(self, error: BaseException) -> ReadError:
        why = f"the producer raised {type(error).__name__}: {error}"
        fix = "correct the query or the producer; rows of a stream cannot be skipped"
        return ReadError(f"reading {self.name}", why, fix, code="producer-raised")

    def fingerprint(self) -> str:
        """Return a digest of the columns and their types: the rows are not known before they are read."""
        return digest(self.name, [(field.name, str(field.type)) for field in self.schema])


class CapsuleStream(BatchStream):
    """An object with ``__arrow_c_stream__``, which exports its rows for each epoch if it can."""

    def __init__(self, obj: Any, name: str) -> None:
        import pyarrow as pa

        self._obj = obj
        # An object may export only one stream, so the first one gives both the schema and the first epoch.
        self._first = pa.RecordBatchReader.from_stream(obj)
        self._was_read = False
        super().__init__(name, self._first.schema, self._export)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle without the open stream: the copy requests another one."""
        return {**self.__dict__, "_first": None}

    def _export(self) -> Iterator[Any]:
        import pyarrow as pa

        reader, self._first = self._first, None
        rows = 0
        try:
            if reader is None:
                reader = pa.RecordBatchReader.from_stream(self._obj)
            for batch in reader:
                rows += batch.num_rows
                yield batch
        except (pa.ArrowException, ValueError, RuntimeError) as error:
            if rows or not self._was_read:
                raise
            raise self._used_up() from error
        if not rows and self._was_read:
            raise self._used_up()
        self._was_read = self._was_read or rows > 0

    def _used_up(self) -> ZeroCopyError:
        why = f"{self.name} has exported its rows once, and exports none the second time"
        fix = "pass a source that can be read again, such as a path or a table"
        return ZeroCopyError("iter(loader)", why, fix, code="used-up")


class FileStream(Stream):
    """Files that ``pyarrow.dataset`` reads from their beginning: CSV, JSON and ORC."""

    def __init__(self, files: Files, format: str, schema: Any = None) -> None:
        self.name: str = files.title(format.upper())
        self._files = files
        files.refuse_empty()
        self._data = self._open(format, None if schema is None else as_schema(schema))
        if schema is None and any(_has_null(field.type) for field in self._data.schema):
            self._data = self._open(format, self._typed(self._data.schema))
        self.schema: Any = self._data.schema

    def _open(self, format: str, schema: Any) -> Any:
        """Return the files as a data set; without a schema, that of the first file."""
        with self._files.reading(0):
            data = self._files.data_set(format, schema)
            _ = data.schema.names  # pyarrow decodes the names here: a header may not be UTF-8
        return data

    def _typed(self, schema: Any) -> Any:
        """Return a schema in which columns without a value in the first file have the types of later ones."""
        import pyarrow as pa

        for file, path in enumerate(self._files.paths):
            unknown = [field.name for field in schema if _has_null(field.type)]
            if file and unknown:
                with self._files.reading(file):
                    here = self._data.format.inspect(path, self._files.filesystem)
                known = pa.schema([here.field(name) for name in unknown if here.names.count(name) == 1])
                with suppress(pa.ArrowTypeError):  # reading this file raises the error later
                    schema = pa.unify_schemas([schema, known], promote_options="permissive")
        if any(_has_null(field.type) for field in schema) and not self._has_rows():
            # Without rows any type is right, and every target has float64.
            types = [pa.float64() if pa.types.is_null(field.type) else field.type for field in schema]
            schema = pa.schema(zip(schema.names, types, strict=True))
        return schema

    def _has_rows(self) -> bool:
        """Whether a file has a row; reads a block of each file before it."""
        for file, fragment in enumerate(self._data.get_fragments()):
            with self._files.reading(file):
                if fragment.head(1, columns=[]).num_rows:
                    return True
        return False

    def batches(self) -> Iterator[Any]:
        """Return the rows, file after file."""
        import pyarrow as pa

        for file, fragment in enumerate(self._data.get_fragments()):
            self._files.check(file)
            with self._files.reading(file):
                for batch in fragment.to_batches(schema=self.schema):
                    if batch.num_rows:
                        yield pa.Table.from_batches([batch])
            self._files.check(file)

    def fingerprint(self) -> str:
        """Return a digest of the names, sizes and times of the files."""
        return self._files.fingerprint()


def _has_null(type_: Any) -> bool:
    """Whether a type is, or contains, that of columns without values."""
    import pyarrow as pa

    return pa.types.is_null(type_) or any(_has_null(type_.field(k).type) for k in range(type_.num_fields))
