"""Streams of record batches: readers, queries, and files whose number of rows is not known."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from zerocopy.errors import ZeroCopyError
from zerocopy.loading.dataset import Stream
from zerocopy.loading.read_error import ReadError
from zerocopy.loading.sources.files import Files, digest
from zerocopy.loading.sources.fitting import as_schema, fit


class BatchStream(Stream):
    """Record batches of an iterable that a function returns.

    Parameters
    ----------
    name : str
        Its name in messages.
    schema : pyarrow.Schema
        The types of the columns.
    start : callable
        Returns an iterable of ``pyarrow.RecordBatch``, ``pyarrow.Table`` or table objects of a framework.
    once : bool
        Whether `start` can be called only once.
    """

    def __init__(
        self, name: str, schema: Any, start: Callable[[], Iterable[Any]], once: bool = False
    ) -> None:
        self.name, self.schema, self.once, self._start = name, schema, once, start

    def batches(self) -> Iterator[Any]:
        """Return the rows as tables of the stream's schema."""
        import pyarrow as pa

        batches = self._translated()
        try:
            for batch in batches:
                table = batch if isinstance(batch, pa.Table) else pa.table(batch)
                if table.num_rows:
                    yield fit(table, self.schema, self.name)
        finally:
            batches.close()

    def _translated(self) -> Generator[Any, None, None]:
        """Return the batches; an exception of their producer becomes a `ReadError`."""
        try:
            yield from self._start()
        except (ZeroCopyError, MemoryError):
            raise
        except Exception as error:
            why = f"the producer raised {type(error).__name__}: {error}"
            fix = "correct the query or the producer; rows of a stream cannot be skipped"
            raise ReadError(f"reading {self.name}", why, fix, code="producer-raised") from error

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
        from pyarrow import dataset as ds

        self.name = f"{len(files)} {format.upper()} file{'s' * (len(files) != 1)}"
        self._files = files
        self._places = {path: file for file, path in enumerate(files.paths)}
        with files.reading(0):
            self._dataset = ds.dataset(
                files.paths,
                schema=None if schema is None else as_schema(schema),
                format=format,
                filesystem=files.filesystem,
                partitioning="hive" if files.base else None,
                partition_base_dir=files.base or None,
            )
            self.schema = self._dataset.schema
            _ = self.schema.names  # pyarrow decodes the names here: a header may not be UTF-8

    def batches(self) -> Iterator[Any]:
        """Return the rows, file after file."""
        import pyarrow as pa

        for fragment in sorted(self._dataset.get_fragments(), key=lambda each: self._places[each.path]):
            file = self._places[fragment.path]
            self._files.check(file)
            with self._files.reading(file):
                for batch in fragment.to_batches(schema=self._dataset.schema):
                    if batch.num_rows:
                        yield pa.table(batch)
            self._files.check(file)

    def fingerprint(self) -> str:
        """Return a digest of the names, sizes and times of the files."""
        return self._files.fingerprint()
