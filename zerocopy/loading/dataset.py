"""``Dataset`` and ``Stream``: rows that are read in groups or in sequence, and the choice of columns."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from zerocopy.errors import Fix, LossyConversionError, UnsupportedConversionError
from zerocopy.formatting import printable
from zerocopy.source import Array
from zerocopy.tables.hub import hub

_NONE: Mapping[str, Any] = MappingProxyType({})
#: Chunks of fewer bytes are joined once: 1,024 rows of 8 columns take 0.2 ms instead of 5 ms.
_JOINED_BYTES = 1 << 30


class Group(NamedTuple):
    """Rows that are read at once: a row group of a Parquet file, a record batch, rows of an array.

    `file` is the path or URL, empty for memory; `number` is that of the group within the file.
    """

    rows: int
    file: str = ""
    number: int = 0

    def __str__(self) -> str:
        return printable(f"{self.file}, row group {self.number}" if self.file else f"row group {self.number}")


class Place(NamedTuple):
    """A group of a dataset, or a record batch of a stream; its text names it in messages."""

    source: Any
    number: int

    def __str__(self) -> str:
        return str(self.source.place(self.number))

    def row(self, row: int) -> str:
        """Return the name of one of its rows."""
        return str(self.source.locate(self.number, row))


class _Rows:
    """The attributes that datasets and streams share."""

    #: Its name in messages: ``"3 Parquet files"``.
    name = ""
    #: What ``explain`` reports about it; empty for nothing.
    note = ""
    #: Why a copy of the loader cannot read it; empty if it can.
    only_here = ""
    #: The types of the columns, a ``pyarrow.Schema``; None for arrays.
    schema: Any = None
    #: Whether reading returns aliases of memory that exists already.
    in_memory = False
    #: Whether reading returns memory that the program does not have, or cannot write to.
    is_new = True
    #: Whether `explain` may read its first rows, because no file is read.
    has_rows = False
    #: The words of columns that are read as codes, as ``pyarrow.Array`` objects.
    dictionaries: Mapping[str, Any] = _NONE

    def empty(self) -> Any:
        """Return the columns without rows: a table, or a dict of arrays."""
        return empty_table(self.schema)

    def fingerprint(self) -> str:
        """Return a digest of the source: it changes if the rows, or their order, may have changed."""
        raise NotImplementedError

    def place(self, number: int) -> str:
        """Return the name of a group or a record batch in messages."""
        return f"{self.name}, record batch {number}"

    def locate(self, number: int, row: int) -> str:
        """Return the name of a row of a group or a record batch in messages."""
        return f"{self.place(number)}, row {row:,}"


class Dataset(_Rows):
    """Rows in groups, which can be read in any order, several times."""

    #: All groups, in the order of the source.
    groups: Sequence[Group] = ()
    #: The content that has all rows in memory, and their places in it if they have another order.
    whole: Any = None
    order: Array | None = None
    #: Number of the open file, or -1, followed by its reader.
    _open: Any = (-1, None, None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, without the open file, which `read` opens again."""
        state = {name: value for name, value in self.__dict__.items() if name != "_open"}
        return state | ({"_source": copy.copy(state["_source"])} if "_source" in state else {})

    def read(self, index: int) -> Any:
        """Return the rows of a group: a ``pyarrow.Table``, or a dict of NumPy arrays.

        Called in the reader's thread, one group at a time.
        """
        raise NotImplementedError

    def all_groups(self) -> Iterator[Any]:
        """Return the rows of one group after the other."""
        return map(self.read, range(len(self.groups)))

    def gatherer(self) -> Callable[[Array], Any]:
        """Return a function that copies rows by their numbers; reads all groups that are not in memory."""
        groups = self.all_groups() if self.whole is None else [self.whole]
        gather, order = _gatherer(concatenate([*groups] or [self.empty()])), self.order
        return gather if order is None else lambda rows: gather(order[rows])

    def place(self, number: int) -> str:
        group = self.groups[number]
        return str(group) if group.file else f"{self.name}, {group}"

    def empty(self) -> Any:
        """Return the columns without rows: a table, or a dict of arrays."""
        if self.schema is None:
            return slice_rows(self.read(0), 0, 0) if self.groups else {}
        return super().empty()

    def split(self) -> Dataset:
        """Return a dataset of the same rows in the smallest groups that can be read alone."""
        return self

    def select(self, columns: Sequence[str]) -> Dataset:
        """Return a dataset of the same groups that reads some of the columns, or all."""
        return self

    def cast(self, schema: Any) -> Dataset:
        """Return a dataset of the same groups with the columns of a schema."""
        return DerivedDataset(self, schema, partial(fit, schema))

    def with_dictionaries(self, columns: Sequence[str]) -> Dataset:
        """Return a dataset that may read some columns of text as dictionaries, to decode less."""
        return self

    def close(self) -> None:
        """Close open files; `read` opens them again."""


class Stream(_Rows):
    """Rows that are read from the first to the last. Their number is unknown before the last is read."""

    #: Whether `batches` can be called only once.
    once = False

    def batches(self) -> Iterator[Any]:
        """Return an iterator of ``pyarrow.Table`` objects, from the first row; closed with ``close()``."""
        raise NotImplementedError


class _Derived(_Rows):
    """A source whose rows a function changes: it chooses, casts or encodes columns."""

    def __init__(self, source: Any, schema: Any, change: Callable[[Any, Any], Any]) -> None:
        """``change(rows, place)`` returns the changed rows; `place`, a `Place` or a text, names them."""
        self._source = source
        self.schema = schema
        self._change = change
        self.name: str = source.name
        self.note: str = source.note
        self.only_here: str = source.only_here
        self.in_memory: bool = source.in_memory
        self.is_new: bool = source.is_new
        self.has_rows: bool = source.has_rows
        self.dictionaries: Mapping[str, Any] = dict(source.dictionaries)

    def empty(self) -> Any:
        return self._change(self._source.empty(), self.name)

    def fingerprint(self) -> str:
        digest: str = self._source.fingerprint()
        return digest


class DerivedDataset(_Derived, Dataset):
    """A dataset whose rows a function changes."""

    def __init__(self, source: Dataset, schema: Any, change: Callable[[Any, Any], Any]) -> None:
        super().__init__(source, schema, change)
        self.groups: Sequence[Group] = source.groups

    def read(self, index: int) -> Any:
        return self._change(self._source.read(index), Place(self, index))

    def locate(self, number: int, row: int) -> str:
        return str(self._source.locate(number, row))

    def close(self) -> None:
        self._source.close()


class DerivedStream(_Derived, Stream):
    """A stream whose rows a function changes."""

    def __init__(self, source: Stream, schema: Any, change: Callable[[Any, Any], Any]) -> None:
        super().__init__(source, schema, change)
        self.once: bool = source.once

    def batches(self) -> Iterator[Any]:
        tables = self._source.batches()
        try:
            for number, table in enumerate(tables):
                yield self._change(table, Place(self, number))
        finally:
            close_iterator(tables)


def derived(
    source: Dataset | Stream, schema: Any, change: Callable[[Any, Any], Any]
) -> DerivedDataset | DerivedStream:
    """Return a source whose rows ``change(rows, place)`` changes; their types are those of `schema`."""
    if isinstance(source, Stream):
        return DerivedStream(source, schema, change)
    return DerivedDataset(source, schema, change)


def close_iterator(iterator: Any) -> None:
    """Close an iterator, if it can be closed."""
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


def file_name(path: str) -> str:
    """Return the last part of a path or URL, without the query of a URL.

    Examples
    --------
    >>> file_name("/data/private/a.parquet"), file_name("https://x.org/d/b.parquet?token=secret")
    ('a.parquet', 'b.parquet')
    """
    if "://" in path:
        path = urlsplit(path).path
    return path.rstrip("/").rpartition("/")[2]


class DecodedRows:
    """Rows that their framework slices: decoded on a device, or sparse. Its hook has a subclass."""

    #: Its table, which ``convert`` accepts.
    table: Any = None

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """The bytes of the rows."""
        raise NotImplementedError

    def slice(self, start: int, length: int) -> DecodedRows:
        """Return an alias of some rows."""
        raise NotImplementedError

    def joined(self, others: Sequence[Any]) -> DecodedRows:
        """Return a copy of these rows and those of others."""
        raise NotImplementedError

    def take(self, rows: Array) -> DecodedRows:
        """Return a copy of some rows, in any order."""
        raise NotImplementedError


def count_rows(content: Any) -> int:
    """Return the number of rows."""
    if isinstance(content, dict):
        return len(next(iter(content.values()))) if content else 0
    return int(content.num_rows)


def table_bytes(table: Any) -> int:
    """Return the bytes of rows, without the words of dictionaries."""
    if isinstance(table, dict):
        return sum(int(array.nbytes) for array in table.values())
    if isinstance(table, DecodedRows):
        return table.nbytes
    import pyarrow as pa

    return sum(
        sum(chunk.indices.nbytes for chunk in column.chunks)
        if pa.types.is_dictionary(column.type)
        else int(column.nbytes)
        for column in table.columns
    )


def slice_rows(content: Any, low: int, high: int) -> Any:
    """Return the rows from `low` to `high`, without a copy."""
    if isinstance(content, dict):
        return {name: array[low:high] for name, array in content.items()}
    return content.slice(low, high - low)


def concatenate(contents: Sequence[Any]) -> Any:
    """Return the rows of several contents, without a copy if they are Arrow tables."""
    if len(contents) == 1:
        return contents[0]
    if isinstance(contents[0], dict):
        return {name: np.concatenate([content[name] for content in contents]) for name in contents[0]}
    if isinstance(contents[0], DecodedRows):
        return contents[0].joined(contents[1:])
    import pyarrow as pa

    return pa.concat_tables(contents)


def empty_table(schema: Any) -> Any:
    """Return a table without rows or chunks; `Schema.empty_table` builds arrays, and lacks some types."""
    import pyarrow as pa

    return pa.Table.from_arrays([pa.chunked_array([], kind) for kind in schema.types], schema=schema)


def take_rows(contents: Sequence[Any], rows: Array) -> Any:
    """Return a copy of `rows`, which are numbers of rows of the concatenated contents."""
    content = concatenate(contents)
    if isinstance(content, dict):
        return {name: array[rows] for name, array in content.items()}
    if isinstance(content, DecodedRows):
        return content.take(rows)
    return take_table(content, rows)


def take_table(table: Any, rows: Any) -> Any:
    """Return a copy of rows of an Arrow table, in any order."""
    import pyarrow as pa

    if not table.num_columns:
        return table.take(rows)
    return pa.Table.from_arrays([hub().take(column, rows) for column in table.columns], schema=table.schema)


def _gatherer(content: Any) -> Callable[[Array], Any]:
    is_whole = all(column.num_chunks <= 1 for column in getattr(content, "columns", ()))
    if is_whole or content.nbytes <= _JOINED_BYTES:
        return partial(take_rows, [content if is_whole else content.combine_chunks()])
    batches = content.to_batches()
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])

    def gather(rows: Array) -> Any:
        # Arrow's `take` would join the chunks in each call: 48 ms for 10 million rows.
        places = np.searchsorted(starts, rows, side="right") - 1
        pairs = zip(places.tolist(), (rows - starts[places]).tolist(), strict=True)
        parts = [batches[place].slice(row, 1) for place, row in pairs]
        return content.from_batches(parts, content.schema).combine_chunks()

    return gather


def choose(columns: Sequence[Hashable] | None, names: Sequence[Hashable]) -> list[Hashable]:
    """Return the columns to read, in their order."""
    chosen = list(names if columns is None else columns)
    for name in chosen:
        count = list(names).count(name)
        if count == 1:
            continue
        if count:
            why, fix = f"{count} columns are called {name!r}", "rename them"
            raise UnsupportedConversionError("loader(...)", why, fix, code="duplicate-names")
        near = get_close_matches(str(name), [str(each) for each in names], 1)
        listed = ", ".join(map(repr, names[:20])) + ", ..." * (len(names) > 20)
        # The nearest name in place of the unknown one, and the others; without any, all columns.
        known = [each for old in chosen for each in ([old] if old != name else near) if each in names]
        raise UnsupportedConversionError(
            f"loader(columns={chosen!r})",
            f"the source has no column {name!r}; it has {listed}",
            code="unknown-name",
            fixes=[Fix(options={"columns": list(dict.fromkeys(known)) or None})],
        )
    return chosen


def as_schema(schema: Any) -> Any:
    """Return the option ``schema=`` as a ``pyarrow.Schema``."""
    hub()  # its error names the package to install
    import pyarrow as pa

    if isinstance(schema, pa.Schema):
        return schema
    if not isinstance(schema, Mapping):
        why = "it must be a pyarrow.Schema, or a dict of the types of all columns"
        raise UnsupportedConversionError(f"loader(schema={schema!r})", why, 'pass schema={"x": "float64"}')
    try:
        return pa.schema([(name, _as_type(kind)) for name, kind in schema.items()])
    except (pa.ArrowException, TypeError, ValueError) as error:
        why, fix = str(error), 'pass the names of Arrow types, such as schema={"x": "float64"}'
        raise UnsupportedConversionError(f"loader(schema={schema!r})", why, fix) from error


def _as_type(kind: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    if isinstance(kind, (pa.DataType, str)):
        return kind if isinstance(kind, pa.DataType) else pa.type_for_alias(kind)
    return pa.from_numpy_dtype(np.dtype(kind))


def fit(schema: Any, table: Any, place: str, constants: Mapping[str, Any] | None = None) -> Any:
    """Return the columns of `schema`: cast, and with nulls, or a constant, for those that are missing.

    `place` names the rows in the message of a value that does not fit its type.
    """
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    names, columns = table.column_names, []
    for field in schema:
        if names.count(field.name) > 1:
            choose([field.name], names)
        is_constant = field.name not in names and field.name in (constants or _NONE)
        if field.name in names:
            column = table.column(field.name)
        elif is_constant:
            column = pa.array([(constants or _NONE)[field.name]])
        else:
            column = pa.nulls(table.num_rows, field.type)
        try:
            column = hub().cast_views(column, field.type)
            columns.append(_repeated(column, table.num_rows) if is_constant else column)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            why = f"column {field.name!r} is {column.type}, which cannot be cast to {field.type}: {error}"
            fix = "pass a type that holds all values in schema="
            raise LossyConversionError(f"reading {place}", why, fix, code="lossy-cast") from error
    return pa.Table.from_arrays(columns, schema=schema) if columns else table.select([])


def _repeated(value: Any, rows: int) -> Any:
    """Return a column of the value of an array of one row, of any type."""
    return hub().take(value, np.zeros(rows, np.int64))


def fitted(source: Dataset | Stream, columns: Sequence[Hashable] | None, schema: Any) -> Dataset | Stream:
    """Return a source with the columns that the caller asks for; one without a schema is unchanged."""
    if source.schema is None or (columns is None and schema is None):
        return source
    target = source.schema if schema is None else as_schema(schema)
    if columns is not None:
        target = type_of(target, choose(columns, target.names))
    else:
        choose(None, target.names)
    if target.equals(source.schema):
        return source
    return (
        derived(source, target, partial(fit, target)) if isinstance(source, Stream) else source.cast(target)
    )


def type_of(schema: Any, names: Sequence[Hashable]) -> Any:
    """Return the schema of some columns, in the order of `names`."""
    import pyarrow as pa

    return pa.schema([schema.field(name) for name in names])
