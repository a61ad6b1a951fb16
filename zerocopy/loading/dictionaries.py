"""``encode_source``: one dictionary for each text column of a source, for all of its batches."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from zerocopy._engine.target import resolve
from zerocopy.errors import Fix, LossyConversionError, OptionError, UnsupportedConversionError, ZeroCopyError
from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.dataset import Dataset, Stream, derived
from zerocopy.loading.options import LoaderOptions
from zerocopy.tables.encoding import Codes, Distinct, given_words, is_dictionary, value_type
from zerocopy.tables.hub import hub

T = TypeVar("T")

#: Seconds before a bar appears, so that short work shows none.
_DELAY = 0.5


def encode_source(source: Dataset | Stream, options: LoaderOptions) -> Dataset | Stream:
    """Return a source whose text columns are codes, with ``encode=``; otherwise the source itself.

    The words that ``encode=`` does not list are collected in one pass over these columns.
    """
    if not options.is_encoded or resolve(options.to).kind == "table":
        return source  # the plan refuses the option for other targets
    types = _types_of(source.empty())
    given = options.encode if isinstance(options.encode, Mapping) else {}
    for name in given:
        if name not in types:
            raise OptionError(
                f"loader(encode={{{name!r}: ...}})",
                f"{source.name} has no column {name!r}; it has {', '.join(map(repr, list(types)[:8]))}",
                fixes=[Fix(options={"encode": {name: None for name in given if name not in types}})],
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
    nulls = options.nulls

    def codes_of(words: Mapping[str, Any]) -> dict[str, Codes]:
        replaced = {name: nulls.get(name) if isinstance(nulls, Mapping) else nulls for name in words}
        if options.drops_rows:  # nulls of rows that remain are refused when a batch is converted
            replaced = dict.fromkeys(words, "drop")
        return {
            name: Codes(name, words[name], name in ordered, refuses_nulls=replaced[name] is None)
            for name in types
            if name in words
        }

    if wanted:
        import pyarrow as pa

        _refuse_once(source, wanted)
        # Before the pass, refuse types that the target lacks.
        empty = {name: pa.array([], value_type(types[name])) for name in wanted}
        BatchPlan(_encoded(source, codes_of(words | empty), decoded).empty(), options)
        words |= _collect(source, {name: types[name] for name in wanted}, options.progress)
    return _encoded(source, codes_of(words), decoded) if words or decoded else source


def digest(dictionaries: Mapping[str, Any]) -> str:
    """Return a digest of the words of all columns, and of their order; empty without words.

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


def _encoded(source: Dataset | Stream, codes: Mapping[str, Codes], decoded: set[str]) -> Dataset | Stream:
    """Return a source with codes in place of text, and without the dictionaries of `decoded` columns."""
    schema = source.schema
    for name in [*codes, *decoded] if schema is not None else ():
        place = schema.get_field_index(name)
        field = schema.field(place)
        type_ = codes[name].type if name in codes else hub().without_views(field.type.value_type)
        schema = schema.set(place, field.with_type(type_))
    if isinstance(source, Dataset):
        source = source.with_dictionaries(list(codes))
    encoded = derived(source, schema, partial(_encode, codes, schema))
    encoded.dictionaries = {name: column.words for name, column in codes.items()}
    encoded.in_memory, encoded.has_rows = False, source.in_memory or source.has_rows
    return encoded


def _encode(codes: Mapping[str, Codes], schema: Any, content: Any, place: str) -> Any:
    """Return a table of a schema, or a dict of arrays, with codes in place of the text."""
    if isinstance(content, dict):
        return {
            name: codes[name].encode_array(array, place) if name in codes else array
            for name, array in content.items()
        }
    columns = []
    for field, column in zip(schema, content.columns, strict=True):
        if field.name in codes:
            column = codes[field.name].encode(column, place)
        elif is_dictionary(column.type) and not is_dictionary(field.type):
            column = hub().decoded(column)  # Arrow's cast lacks views and lists
        columns.append(hub().cast_views(column, field.type))
    return content.from_arrays(columns, schema=schema)


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
        fix = f'pass each word once: encode={{{name!r}: ["Bern", "Oslo"]}}, or True to collect them'
        asked = f"loader(encode={{{name!r}: ...}})"
        raise OptionError(asked, f"its value {error}", fix) from error.__cause__


def _refuse_once(source: Dataset | Stream, wanted: list[str]) -> None:
    """Refuse to collect the words of a stream that can be read only once."""
    if isinstance(source, Stream) and source.once:
        listed = ", ".join(f"{name!r}: words" for name in wanted)
        raise UnsupportedConversionError(
            "loader(encode=True)",
            f"the words of column {wanted[0]!r} are unknown, and {source.name} can be read only once",
            f"pass them: encode={{{listed}}}",
            code="words-unknown",
            fixes=[Fix(options={"encode": "bytes"}, effect="gives the text's bytes")],
        )


def _collect(source: Dataset | Stream, types: Mapping[str, Any], show: bool | None) -> dict[str, Any]:
    """Return the distinct words of columns in sorted order, from one pass over the source."""
    collectors = {
        name: _Ordered(name, type_) if is_dictionary(type_) and type_.ordered else Distinct(type_)
        for name, type_ in types.items()
    }
    for content in _contents(source, list(types), show):
        for name, collector in collectors.items():
            collector.add(content[name])
    words = {}
    for name, collector in collectors.items():
        try:
            words[name] = collector.words()
        except ZeroCopyError as error:
            error.fixes = (Fix(options={"encode": {name: False}}, effect="gives the column's values"),)
            raise error.with_context(asked="loader(encode=True)") from error.__cause__
    return words


def _contents(source: Dataset | Stream, names: list[str], show: bool | None) -> Iterator[Any]:
    if isinstance(source, Stream):
        yield from source.batches()
        return
    columns = source.select(names).with_dictionaries(names)
    try:
        for index in _with_bar(range(len(columns.groups)), show):
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
            words = hub().cast_views(chunk.dictionary, value_type(self._type))
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


def _with_bar(items: Sequence[T], show: bool | None) -> Iterator[T]:
    """Return an iterator of `items` that shows a bar on standard error.

    None shows it after 0.5 s if standard error is a terminal. Without rich, no bar is shown.
    """
    # A process without a console has no standard error.
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    wanted, bar, began = is_terminal if show is None else show, None, time.perf_counter()
    try:
        for done, item in enumerate(items):
            if wanted and bar is None and (show or time.perf_counter() - began > _DELAY):
                bar = _bar(len(items), is_terminal)
                wanted = bar is not None
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done)
            yield item
        if bar is not None:
            bar.update(bar.task_ids[0], completed=len(items))
    finally:
        if bar is not None:
            bar.stop()


def _bar(total: int, is_transient: bool) -> Any:
    """Return a bar that has been started; None without rich, which is an optional dependency."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        return None
    bar = Progress(console=Console(file=sys.stderr), transient=is_transient)
    bar.add_task("Collecting words", total=total)
    bar.start()
    return bar
