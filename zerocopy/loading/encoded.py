"""Sources whose text columns are read as codes of one dictionary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zerocopy.errors import LossyConversionError
from zerocopy.loading.contents import slice_rows
from zerocopy.loading.dataset import Dataset, Stream

#: Number of unknown words that an error lists.
_NAMED_WORDS = 3
#: Ratio of all words to those of a group from which a Python dict is faster than Arrow's lookup, which
#: hashes all words in each call.
_MANY_WORDS = 8


class Codes:
    """Encodes the rows of one column.

    Parameters
    ----------
    name : str
        The column's name.
    words : pyarrow.Array
        Its dictionary, without nulls.
    ordered : bool
        Whether the order of the words has a meaning.
    refuses_nulls : bool
        Whether nulls are an error.

    Examples
    --------
    >>> import pyarrow as pa
    >>> codes = Codes("city", pa.array(["Bern", "Oslo"]))
    >>> codes.encode(pa.chunked_array([["Oslo", None]]), "row group 0").chunk(0).indices.to_pylist()
    [1, None]
    """

    def __init__(self, name: str, words: Any, ordered: bool = False, refuses_nulls: bool = False) -> None:
        import pyarrow as pa

        self.name, self.words, self.refuses_nulls = name, words, refuses_nulls
        self.type = pa.dictionary(pa.int32(), words.type, ordered)
        self._last: tuple[Any, Any] | None = None  # the source's last dictionary, and the codes of its words
        self._places: dict[Any, int] | None = None

    def encode(self, column: Any, place: str) -> Any:
        """Return a chunked array as codes; nulls stay nulls.

        Raises
        ------
        LossyConversionError
            The dictionary lacks a word; the message names it and `place`.
        """
        import pyarrow as pa

        # A column without rows has the dictionary too.
        chunks = [self._chunk(chunk, place) for chunk in column.chunks or [pa.array([], self.words.type)]]
        return pa.chunked_array(chunks, self.type)

    def encode_array(self, array: Any, place: str) -> Any:
        """Return a NumPy array of text as a ``pyarrow.DictionaryArray``."""
        import pyarrow as pa

        return self._chunk(pa.array(array, from_pandas=True), place)

    def _chunk(self, chunk: Any, place: str) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(chunk.type):
            own = chunk.dictionary.cast(self.words.type)
            positions = chunk.indices
            if own.null_count:  # a row whose word is null is null
                positions = pc.if_else(own.is_valid().take(positions), positions, None)
            codes = self._of_words(own).take(positions)
            missing = codes.null_count - positions.null_count
        else:
            own = chunk.cast(self.words.type)
            codes = pc.index_in(own, self.words)
            missing = codes.null_count - own.null_count
        if missing:
            raise self._error(chunk, place)
        if codes.null_count and self.refuses_nulls:
            raise self._null_error(codes.null_count, len(codes), place)
        # safe=False, because the codes are valid by construction and a check takes time.
        return pa.DictionaryArray.from_arrays(codes, self.words, ordered=self.type.ordered, safe=False)

    def _of_words(self, own: Any) -> Any:
        """Return the codes of the words of a dictionary of the source: int32, null for unknown words."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._last is not None and self._last[0].equals(own):
            return self._last[1]
        if len(self.words) > _MANY_WORDS * len(own) and (
            pa.types.is_string(own.type) or pa.types.is_large_string(own.type)
        ):
            if self._places is None:
                self._places = {word: code for code, word in enumerate(self.words.to_pylist())}
            codes = pa.array([self._places.get(word) for word in own.to_pylist()], pa.int32())
        else:
            codes = pc.index_in(own, self.words)
        self._last = (own, codes)
        return codes

    def _null_error(self, count: int, rows: int, place: str) -> LossyConversionError:
        return LossyConversionError(
            f"reading {place}",
            f"column {self.name!r} has {count:,} null{'s' if count > 1 else ''} in {rows:,} rows",
            f'pass nulls={{{self.name!r}: -1}} for the code -1, or nulls="mask" for a mask',
            code="nulls",
        )

    def _error(self, chunk: Any, place: str) -> LossyConversionError:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
        distinct = values.cast(self.words.type).unique().drop_null()
        unknown = distinct.filter(pc.invert(pc.is_in(distinct, self.words))).to_pylist()
        named = ", ".join(map(repr, unknown[:_NAMED_WORDS]))
        more = f" and {len(unknown) - _NAMED_WORDS:,} more" if len(unknown) > _NAMED_WORDS else ""
        verb = "are" if len(unknown) > 1 else "is"
        return LossyConversionError(
            f"reading {place}",
            f"column {self.name!r} has {named}{more}, which {verb} not among its {len(self.words):,} words",
            f"add to the words: encode={{{self.name!r}: [*words, {unknown[0]!r}]}}; "
            "or collect those of this source: encode=True",
            code="unknown-word",
        )


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


def used_words(chunk: Any) -> Any:
    """Return the words of a dictionary array that occur in its rows."""
    used = np.zeros(len(chunk.dictionary), bool)
    used[np.asarray(chunk.indices.drop_null())] = True
    return chunk.dictionary if used.all() else chunk.dictionary.filter(used)
