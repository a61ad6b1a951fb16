"""``encode_source``: one dictionary for each text column of a source, for all of its batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from zerocopy._engine.target import resolve
from zerocopy.errors import LossyConversionError, UnsupportedConversionError, ZeroCopyError
from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.dataset import Dataset, Stream
from zerocopy.loading.encoded import EncodedDataset, EncodedStream, empty_content
from zerocopy.loading.options import LoaderOptionError, LoaderOptions
from zerocopy.loading.progress import progress
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.tables.codes import Codes, Distinct, given_words, is_dictionary, value_type


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
