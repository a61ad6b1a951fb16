"""Sources whose text columns are read as codes of one dictionary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zerocopy.loading.contents import slice_rows
from zerocopy.loading.dataset import Dataset, Stream
from zerocopy.tables.codes import Codes


def empty_content(source: Any) -> Any:
    """Return the columns of a `Dataset` or `Stream` without rows: a table, or a dict of arrays."""
    if isinstance(source, (EncodedDataset, EncodedStream)):
        return source.empty()
    if source.schema is not None:
        return source.schema.empty_table()
    if not source.groups:
        return {}
    return slice_rows(source.read(0), 0, 0)


class _Encoder:
    """The columns of a source that are encoded, and those whose dictionaries are decoded."""

    def __init__(self, schema: Any, codes: Mapping[str, Codes], decoded: frozenset[str]) -> None:
        self.codes, self._decoded = codes, decoded
        self.schema = schema
        for name, column in codes.items():
            self._set(name, column.type)
        for name in decoded:
            self._set(name, schema.field(name).type.value_type)

    def _set(self, name: str, type_: Any) -> None:
        if self.schema is not None:
            place = self.schema.get_field_index(name)
            self.schema = self.schema.set(place, self.schema.field(place).with_type(type_))

    def encode(self, content: Any, place: str) -> Any:
        """Return a table, or a dict of arrays, with codes in place of the text."""
        if isinstance(content, dict):
            return {
                name: self.codes[name].encode_array(array, place) if name in self.codes else array
                for name, array in content.items()
            }
        columns = []
        for name, column in zip(content.column_names, content.columns, strict=True):
            if name in self.codes:
                column = self.codes[name].encode(column, place)
            elif name in self._decoded:
                column = column.cast(self.schema.field(name).type)
            columns.append(column)
        return content.from_arrays(columns, schema=self.schema)


class _EncodedSource:
    """The parts that `EncodedDataset` and `EncodedStream` share."""

    name: str
    _source: Any
    _encoder: _Encoder

    def empty(self) -> Any:
        """Return the columns without rows, with their dictionaries."""
        return self._encoder.encode(empty_content(self._source), self.name)

    def fingerprint(self) -> str:
        """Return the digest of the source."""
        digest: str = self._source.fingerprint()
        return digest


class EncodedDataset(_EncodedSource, Dataset):
    """A dataset with codes in place of text."""

    def __init__(self, source: Dataset, codes: Mapping[str, Codes], decoded: frozenset[str]) -> None:
        self._source = source.with_dictionaries(list(codes))
        self._encoder = _Encoder(source.schema, codes, decoded)
        self.name, self.groups, self.schema = source.name, source.groups, self._encoder.schema
        self.dictionaries, self.only_here = _words(codes), source.only_here

    def read(self, index: int) -> Any:
        """Return the rows of a group, with codes."""
        group = self.groups[index]
        return self._encoder.encode(self._source.read(index), str(group))

    def close(self) -> None:
        """Close open files."""
        self._source.close()


class EncodedStream(_EncodedSource, Stream):
    """A stream with codes in place of text."""

    def __init__(self, source: Stream, codes: Mapping[str, Codes], decoded: frozenset[str]) -> None:
        self._source, self._encoder = source, _Encoder(source.schema, codes, decoded)
        self.name, self.once, self.schema = source.name, source.once, self._encoder.schema
        self.dictionaries, self.only_here = _words(codes), source.only_here

    def batches(self) -> Iterator[Any]:
        """Return an iterator of tables with codes."""
        tables = self._source.batches()
        try:
            for number, table in enumerate(tables):
                yield self._encoder.encode(table, f"{self.name}, record batch {number}")
        finally:
            close = getattr(tables, "close", None)
            if close is not None:
                close()


def _words(codes: Mapping[str, Codes]) -> dict[str, Any]:
    """Return the words of each column."""
    return {name: column.words for name, column in codes.items()}
