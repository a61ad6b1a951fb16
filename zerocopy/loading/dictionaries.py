"""``encode_source``: one dictionary for each text column of a source, for all of its batches."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from zerocopy._engine.target import resolve
from zerocopy.errors import LossyConversionError, UnsupportedConversionError, ZeroCopyError
from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.dataset import Dataset, Stream, slice_rows
from zerocopy.loading.errors import LoaderOptionError
from zerocopy.loading.options import LoaderOptions
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.tables.codes import Codes, Distinct, given_words, is_dictionary, value_type

T = TypeVar("T")

#: Seconds before a bar appears, so that short work shows none.
_DELAY = 0.5


def progress(items: Sequence[T], title: str, show: bool | None) -> Iterator[T]:
    """Return an iterator of `items` that shows a bar.

    Parameters
    ----------
    items : sequence
        Items to iterate over.
    title : str
        Label of the bar.
    show : bool or None
        True shows a bar; False shows none. None shows one after 0.5 s if standard error is a terminal.
        Without rich, no bar is shown.

    Examples
    --------
    >>> list(progress([1, 2], "Reading", show=False))
    [1, 2]
    """
    wanted = show if show is not None else _is_terminal()
    bar, began = None, time.perf_counter()
    try:
        for done, item in enumerate(items):
            if wanted and bar is None and (show or time.perf_counter() - began > _DELAY):
                bar = _bar(title, len(items))
                wanted = bar is not None
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done)
            yield item
        if bar is not None:
            bar.update(bar.task_ids[0], completed=len(items))
    finally:
        if bar is not None:
            bar.stop()


def _is_terminal() -> bool:
    # A process without a console has no standard error.
    return sys.stderr is not None and sys.stderr.isatty()


def _bar(title: str, total: int) -> Any:
    """Return a bar that has been started; None without rich, which is an optional dependency."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        return None
    bar = Progress(console=Console(file=sys.stderr), transient=_is_terminal())
    bar.add_task(title, total=total)
    bar.start()
    return bar


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


def encode_source(source: Dataset | Stream, options: LoaderOptions) -> Dataset | Stream:
    """Return a source whose text columns are codes, with ``encode=``; otherwise the source itself.

    The words that ``encode=`` does not list are collected in one pass over these columns.

    Raises
    ------
    UnsupportedConversionError
        The words of a stream that can be read only once are unknown; the target lacks a type.
    LossyConversionError
        The order of an ordered dictionary differs between groups.
    LoaderOptionError
        ``encode=`` names a column that does not exist, or its words have nulls or duplicates.
    """
    if not options.is_encoded or resolve(options.to).kind == "table":
        return source  # the plan refuses the option for other targets
    content = empty_content(source)
    types = _types_of(content)
    given = options.encode if isinstance(options.encode, Mapping) else {}
    for name in given:
        if name not in types:
            raise LoaderOptionError(
                f"loader(encode={{{name!r}: ...}})",
                f"{source.name} has no column {name!r}",
                f"choose from {', '.join(map(repr, list(types)[:8]))}",
            )
    words: dict[str, Any] = {}
    decoded: set[str] = set()
    wanted: list[str] = []
    for name, type_ in types.items():
        choice = given.get(name, options.encode != "bytes" or is_dictionary(type_) or None)
        words_type = value_type(type_)
        if choice is False:
            decoded.update({name} if is_dictionary(type_) else ())
        elif choice is not True and choice is not None:
            words[name] = _given_words(name, choice, words_type or type_)
        elif words_type is not None and choice:
            wanted.append(name)
    ordered = {name for name, type_ in types.items() if is_dictionary(type_) and type_.ordered}
    if wanted:
        _check_plan(source, types, words, wanted, decoded, ordered, options)
        words |= _collect(source, {name: types[name] for name in wanted}, options.progress)
    if not words and not decoded:
        return source
    nulls = options.nulls
    codes = {
        name: Codes(
            name, words[name], name in ordered,
            refuses_nulls=(nulls.get(name) if isinstance(nulls, Mapping) else nulls) is None,
        )
        for name in types
        if name in words
    }  # fmt: skip
    return _encoded(source, codes, frozenset(decoded))


def digest(dictionaries: Mapping[str, Any]) -> str:
    """Return a digest of the words of all columns, and of their order; empty without words.

    Examples
    --------
    >>> import pyarrow as pa
    >>> digest({}), digest({"city": pa.array(["Bern", "Oslo"])})
    ('', '6618df6a93c6864f')
    """
    if not dictionaries:
        return ""
    result = hashlib.sha256()
    for name in sorted(dictionaries):
        result.update(repr((name, dictionaries[name].to_pylist())).encode())
    return result.hexdigest()[:16]


def _encoded(source: Any, codes: Mapping[str, Codes], decoded: frozenset[str]) -> Dataset | Stream:
    kind: Any = EncodedStream if isinstance(source, Stream) else EncodedDataset
    encoded: Dataset | Stream = kind(source, codes, decoded)
    return encoded


def _types_of(content: Any) -> dict[str, Any]:
    """Return the Arrow types of columns by their names; None for arrays that are not text."""
    if not isinstance(content, dict):
        return dict(zip(content.schema.names, content.schema.types, strict=True))
    import pyarrow as pa

    # NumPy's text: padded, or of variable length.
    return {name: pa.string() if array.dtype.kind in "UT" else None for name, array in content.items()}


def _given_words(name: str, choice: Any, type_: Any) -> Any:
    """Return the words that the caller passed as an array without nulls and duplicates."""
    try:
        return given_words(choice, type_)
    except ValueError as error:
        if not is_error(error):
            raise
        raise _words_error(name, str(error)) from error.__cause__


def _words_error(name: str, fault: str) -> LoaderOptionError:
    return LoaderOptionError(
        f"loader(encode={{{name!r}: ...}})",
        f"its value {fault}",
        f'pass each word once: encode={{{name!r}: ["Bern", "Oslo"]}}, or True to collect them',
    )


def _check_plan(
    source: Dataset | Stream,
    types: Mapping[str, Any],
    words: Mapping[str, Any],
    wanted: list[str],
    decoded: set[str],
    ordered: set[str],
    options: LoaderOptions,
) -> None:
    """Before the pass, refuse types that the target lacks and streams that can be read only once."""
    import pyarrow as pa

    if isinstance(source, Stream) and source.once:
        listed = ", ".join(f"{name!r}: words" for name in wanted)
        raise UnsupportedConversionError(
            "loader(encode=True)",
            f"the words of column {wanted[0]!r} are unknown, and {source.name} can be read only once",
            f"pass them: encode={{{listed}}}; False in place of words gives the text's bytes",
            code="words-unknown",
        )
    empty = {name: pa.array([], value_type(types[name])) for name in wanted}
    codes = {name: Codes(name, each, name in ordered) for name, each in {**words, **empty}.items()}
    BatchPlan(empty_content(_encoded(source, codes, frozenset(decoded))), options)


def _collect(source: Dataset | Stream, types: Mapping[str, Any], show: bool | None) -> dict[str, Any]:
    """Return the distinct words of columns in sorted order, from one pass over the source."""
    collectors = {
        name: _Ordered(name, type_) if is_dictionary(type_) and type_.ordered else Distinct(type_)
        for name, type_ in types.items()
    }
    for content in _contents(source, list(types), show):
        for name, collector in collectors.items():
            collector.add(content[name])
    try:
        return {name: collector.words() for name, collector in collectors.items()}
    except ZeroCopyError as error:
        raise error.with_context(asked="loader(encode=True)") from error.__cause__


def _contents(source: Dataset | Stream, names: list[str], show: bool | None) -> Iterator[Any]:
    if isinstance(source, Stream):
        yield from source.batches()
        return
    columns = source.select(names).with_dictionaries(names)
    try:
        for index in progress(range(len(columns.groups)), "Collecting words", show):
            yield columns.read(index)
    finally:
        columns.close()


class _Ordered:
    """The words of an ordered dictionary, which must be the same in all groups."""

    def __init__(self, name: str, type_: Any) -> None:
        self._name, self._type = name, type_
        self._words: Any = None

    def add(self, column: Any) -> None:
        """Keep the words of the first group; refuse a group with other words."""
        for chunk in column.chunks:
            words = chunk.dictionary.cast(value_type(self._type))
            if self._words is None:
                self._words = words
            elif not words.equals(self._words):
                raise LossyConversionError(
                    "loader(encode=True)",
                    f"the ordered dictionary of column {self._name!r} differs between row groups",
                    f"pass the words in their order: encode={{{self._name!r}: words}}",
                    code="words-unknown",
                )

    def words(self) -> Any:
        """Return the words in their order."""
        import pyarrow as pa

        return pa.array([], value_type(self._type)) if self._words is None else self._words
