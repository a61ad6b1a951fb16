"""``encode=`` of ``convert`` and of the loader: text as codes of a dictionary of its words."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy.dtype import by_name
from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import Field, read_schema
from zerocopy.request import Request
from zerocopy.tables.arrow_column import ArrowColumn, UnreadColumn
from zerocopy.tables.column import ArrowArray, Column, Table
from zerocopy.tables.content import validate
from zerocopy.tables.hub import hub
from zerocopy.tables.labels import map_columns

_BYTES = Fix(options={"encode": "bytes"}, effect="gives its bytes with their offsets")
_COMPUTED = Reason("the codes of its words are computed", code="computed-codes", fixes=[_BYTES])
_DECODED = Reason(
    "the values of its dictionary are repeated for its rows",
    code="decoded-dictionary",
    fixes=[Fix(options={"encode": True}, effect="gives its codes")],
)


def encode_columns(table: Table, request: Request, unread: bool = False) -> Table:
    """Return the table with codes in place of the columns of text that ``encode=`` applies to.

    With `unread`, the columns have types and no memory: their dictionaries are empty.

    Raises
    ------
    UnsupportedConversionError
        The words of a column are not a list of distinct words, or it is on a device.
    LossyConversionError
        A column has a word that is not among its given words.
    """
    option, layout = request.encode, request.layout
    if option == "bytes" or (layout not in (None, "columns") and not table.single):
        return table  # one matrix holds no codes
    choices: Mapping[Hashable, Any] = option if isinstance(option, Mapping) else {}

    def encode(label: Hashable, path: str, column: Column) -> Column:
        choice = choices.get(label, True)
        if choice is False:
            return _decoded(column, unread)
        field = column.field
        is_text = field is not None and not field.extension and field.kind in ("string", "string_view")
        if not is_text and (choice is True or unread):
            return column
        # Codes of words are copies, so a trial without copy=False needs only their type.
        is_typed = unread or (request.is_trial and request.copy is not False and not column.null_count)
        if choice is True and is_typed:
            _require_host(column)
            words = Field("U" if field is not None and field.wide else "u")
            codes = Field("i", dictionary=words)
            return UnreadColumn(column.name, codes, (*column.reasons, _COMPUTED))
        return _codes(column, None if choice is True else choice, unread)

    columns = list(map_columns(table, encode).values())
    if all(new is old for new, old in zip(columns, table.columns, strict=True)):
        return table
    return replace(table, columns=columns, obj=None)


def _codes(column: Column, choice: object, unread: bool) -> Column:
    """Return a column as codes of the given words, or of its own distinct words in sorted order."""
    pa = hub().module()
    array = _array(column, unread)
    if choice is None:
        # Only this call hashes all rows: words and codes are computed from the dictionary.
        array = array.dictionary_encode()
        distinct = Distinct(array.type)
        distinct.add(array)
        words = distinct.words()
    else:
        words = hub().copied(_given(choice, value_type(array.type) or array.type)).combine_chunks()
    codes = Codes("", words, pa.types.is_dictionary(array.type) and array.type.ordered)
    return _column(column, codes.encode(pa.chunked_array([array])).chunk(0), _COMPUTED)


def _given(choice: object, type_: Any) -> ArrowArray:
    try:
        return given_words(choice, type_)
    except ValueError as error:
        collect = Fix(options={"encode": True}, effect="collects the words of text")
        why = f"its value in encode= {error}"
        raise UnsupportedConversionError("", why, code="option-value", fixes=[collect]) from error


def _decoded(column: Column, unread: bool) -> Column:
    """Return a dictionary as the values of its rows, and any other column unchanged."""
    field = column.field
    if field is None or field.kind != "dictionary" or field.extension:
        return column
    if unread:
        assert field.dictionary is not None
        return UnreadColumn(column.name, field.dictionary, column.reasons)
    _require_host(column)
    pa, array = hub().module(), column.arrow()
    validate(pa, array)
    return _column(column, hub().whole(hub().decoded(array)), _DECODED)


def _require_host(column: Column) -> None:
    if not column.device.is_host:
        why = f"it is on {column.device}, and codes of words are computed on the host"
        raise UnsupportedConversionError("", why, code="other-device", fixes=[_BYTES])


def _array(column: Column, unread: bool = False) -> ArrowArray:
    """Return a column as one array, whose content is checked because Arrow reads all of it."""
    _require_host(column)
    pa, field = hub().module(), column.field
    kind = "number" if field is None else field.kind
    if unread:
        return pa.array([], pa.large_string() if field is not None and field.wide else pa.string())
    nulls = column.mask().host() if column.null_count else None
    if field is not None and kind in ("string", "string_view"):
        offsets, text = column.offsets().host(), column.text().host()
        if kind == "string_view" and len(text) < 1 << 31:
            offsets = offsets.astype(np.int32)
        array = hub().text(offsets, text, nulls)
        validate(pa, array)
        return array
    if field is not None and kind == "dictionary":
        codes = pa.array(column.values(by_name(field.dtype)).host(), mask=nulls)
        words = _array(column.dictionary())
        array = pa.DictionaryArray.from_arrays(codes, words, ordered=field.ordered, safe=False)
        validate(pa, array)
        return array
    dtype = by_name("uint8" if field is None else field.dtype or "uint8")
    if kind != "number" or column.values(dtype).view.ndim != 1:
        why = f"it is {field or 'a tensor'}, and encode= takes words for text, numbers and categories"
        rest = Fix(options={"encode": True}, effect="encodes it without them")
        raise UnsupportedConversionError("", why, code="option-value", fixes=[rest])
    return pa.array(column.values(dtype).host(), mask=nulls)


def _column(column: Column, array: ArrowArray, why: Reason) -> Column:
    field = read_schema(array.type.__arrow_c_schema__())
    reasons = (*column.reasons, why)
    return ArrowColumn(
        column.name, field, lambda: [arrow_c.read_array(array)], len(array), lambda: array, reasons
    )


# -- codes and words ---------------------------------------------------------------------------

#: Number of unknown words that an error lists.
_NAMED_WORDS = 3
#: Ratio of all words to those of a group from which a Python dict is faster than Arrow's lookup, which
#: hashes all words in each call.
_MANY_WORDS = 8
#: Least number of pending words, with duplicates, at which they are merged into the distinct words.
_PENDING_WORDS = 1 << 16


class Codes:
    """Encodes the rows of one column.

    Parameters
    ----------
    name : str
        The column's name; empty if the caller's error has it.
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

    def __init__(
        self, name: str, words: ArrowArray, ordered: bool = False, refuses_nulls: bool = False
    ) -> None:
        pa = hub().module()
        self.name = name
        self.words = words
        self.refuses_nulls = refuses_nulls
        self.type: Any = pa.dictionary(pa.int32(), words.type, ordered)
        # The source's last dictionary, and the codes of its words.
        self._last: tuple[ArrowArray, ArrowArray] | None = None
        self._places: dict[Any, int] | None = None

    def encode(self, column: ArrowArray, place: str = "") -> ArrowArray:
        """Return a chunked array as codes; nulls stay nulls.

        Raises
        ------
        LossyConversionError
            The dictionary lacks a word; the message names it and `place`.
        """
        pa = hub().module()
        # A column without rows has the dictionary too.
        chunks = [self._chunk(chunk, place) for chunk in column.chunks or [pa.array([], self.words.type)]]
        return pa.chunked_array(chunks, self.type)

    def encode_array(self, array: ArrowArray, place: str) -> ArrowArray:
        """Return a NumPy array of text as a ``pyarrow.DictionaryArray``."""
        return self._chunk(hub().module().array(array, from_pandas=True), place)

    def _chunk(self, chunk: ArrowArray, place: str) -> ArrowArray:
        pa, pc = hub().module(), hub().compute()
        if pa.types.is_dictionary(chunk.type):
            positions = _checked_indices(chunk)
            own = hub().cast_views(chunk.dictionary, self.words.type)
            if own.null_count:  # a row whose word is null is null
                positions = pc.if_else(own.is_valid().take(positions), positions, None)
            codes = self._of_words(own).take(positions)
            missing = codes.null_count - positions.null_count
        else:
            own = hub().cast_views(chunk, self.words.type)
            codes = pc.index_in(own, self.words)
            missing = codes.null_count - own.null_count
        if missing:
            raise self._error(chunk, place)
        if codes.null_count and self.refuses_nulls:
            raise self._null_error(codes.null_count, len(codes), place)
        # safe=False, because the codes are valid by construction and a check takes time.
        return pa.DictionaryArray.from_arrays(codes, self.words, ordered=self.type.ordered, safe=False)

    def _of_words(self, own: ArrowArray) -> ArrowArray:
        """Return the codes of the words of a dictionary of the source: int32, null for unknown words."""
        pa = hub().module()
        if self._last is not None and self._last[0].equals(own):
            return self._last[1]
        if len(self.words) > _MANY_WORDS * len(own) and (
            pa.types.is_string(own.type) or pa.types.is_large_string(own.type)
        ):
            if self._places is None:
                self._places = {word: code for code, word in enumerate(self.words.to_pylist())}
            codes = pa.array([self._places.get(word) for word in own.to_pylist()], pa.int32())
        else:
            codes = hub().compute().index_in(own, self.words)
        self._last = (own, codes)
        return codes

    def _null_error(self, count: int, rows: int, place: str) -> LossyConversionError:
        return LossyConversionError(
            f"reading {place}",
            f"column {self.name!r} has {count:,} null{'s' if count > 1 else ''} in {rows:,} rows",
            code="nulls",
            fixes=[
                Fix(options={"nulls": {self.name: -1}}, effect="gives them the code -1"),
                Fix(options={"nulls": "mask"}, effect="gives a mask"),
            ],
        )

    def _error(self, chunk: ArrowArray, place: str) -> LossyConversionError:
        pa, pc = hub().module(), hub().compute()
        values = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
        distinct = hub().cast_views(values, self.words.type).unique().drop_null()
        unknown = distinct.filter(pc.invert(pc.is_in(distinct, self.words))).to_pylist()
        named = ", ".join(map(repr, unknown[:_NAMED_WORDS]))
        more = f" and {len(unknown) - _NAMED_WORDS:,} more" if len(unknown) > _NAMED_WORDS else ""
        verb = "are" if len(unknown) > 1 else "is"
        why = f"has {named}{more}, which {verb} not among its {len(self.words):,} words"
        choice: object = {self.name: True} if place else True
        collect = Fix(options={"encode": choice}, effect="collects the words")
        asked, why = (f"reading {place}", f"column {self.name!r} {why}") if place else ("", f"it {why}")
        fixes = [collect]
        if place and len(self.words) + len(unknown) <= _MANY_WORDS:
            words = {self.name: [*self.words.to_pylist(), *unknown]}
            fixes.append(Fix(options={"encode": words}, effect="adds the words"))
        return LossyConversionError(asked, why, code="unknown-word", fixes=fixes)


class Distinct:
    """The distinct words of one column.

    Parameters
    ----------
    type_ : pyarrow.DataType
        The type of the column: text, or a dictionary.
    """

    def __init__(self, type_: Any) -> None:
        pa = hub().module()
        self._type = value_type(type_)
        self._known = pa.array([], self._type)
        self._pending: list[ArrowArray] = []
        self._count = 0

    def add(self, column: ArrowArray) -> None:
        """Add the words of an array, a chunked array or a NumPy array."""
        pa = hub().module()
        if not isinstance(column, pa.ChunkedArray):
            column = pa.chunked_array([pa.array(column, from_pandas=True)])
        for chunk in column.chunks:
            is_dictionary = pa.types.is_dictionary(chunk.type)
            words = used_words(chunk) if is_dictionary else hub().cast_views(chunk, self._type).unique()
            self._pending.append(hub().cast_views(words, self._type))
            self._count += len(words)
        # A merge hashes all words, so it waits until their number may have doubled.
        if self._count > max(len(self._known), _PENDING_WORDS):
            self._merge()

    def _merge(self) -> None:
        pa = hub().module()
        self._known = pa.chunked_array([self._known, *self._pending], self._type).unique()
        self._pending, self._count = [], 0

    def words(self) -> ArrowArray:
        """Return the words in sorted order."""
        self._merge()
        try:
            return self._known.drop_null().sort()
        except hub().module().ArrowNotImplementedError as error:
            raise UnsupportedConversionError(
                "",
                f"Arrow cannot sort the dictionary's values of type {self._type}",
                code="words-unknown",
            ) from error


def used_words(chunk: ArrowArray) -> ArrowArray:
    """Return the words of a dictionary array that occur in its rows."""
    used = np.zeros(len(chunk.dictionary), bool)
    used[np.asarray(_checked_indices(chunk).drop_null())] = True
    if used.all():
        return chunk.dictionary
    # Arrow's filter has no kernel for views, which are the words of polars' categories.
    return hub().cast_views(chunk.dictionary, hub().without_views(chunk.dictionary.type)).filter(used)


def _checked_indices(chunk: ArrowArray) -> ArrowArray:
    """Return the codes of a dictionary array; refuse those that its dictionary lacks."""
    extremes = hub().compute().min_max(chunk.indices).as_py()
    if extremes["max"] is not None and not 0 <= extremes["min"] <= extremes["max"] < len(chunk.dictionary):
        validate(hub().module(), chunk)
    return chunk.indices


def is_dictionary(type_: Any) -> bool:
    """Whether a type is a dictionary; False for None."""
    return type_ is not None and bool(hub().module().types.is_dictionary(type_))


def value_type(type_: Any) -> Any:
    """Return the type of the words of text and dictionaries; None for another type."""
    pa = hub().module()
    if is_dictionary(type_):
        inner = type_.value_type
        return pa.string() if pa.types.is_string_view(inner) else inner
    if type_ is None:
        return None
    if pa.types.is_string_view(type_):
        return pa.string()  # Arrow has no lookup of string views
    return type_ if pa.types.is_string(type_) or pa.types.is_large_string(type_) else None


def given_words(choice: object, type_: Any) -> ArrowArray:
    """Return the caller's words as an array without nulls and duplicates.

    Raises
    ------
    ValueError
        The words are invalid; the message completes a sentence about them.
    """
    pa = hub().module()
    try:
        if isinstance(choice, (str, bytes)):
            raise TypeError("the elements of text are its characters")
        words = choice.combine_chunks() if isinstance(choice, pa.ChunkedArray) else choice
        if not isinstance(words, pa.Array):
            if type_ is not None and pa.types.is_integer(type_):
                pa.array(words).cast(type_)  # refuses 3.9, which pyarrow.array(words, type_) truncates to 3
            words = pa.array(words, type_)
        words = words if type_ is None else words.cast(type_)
        fault = "has nulls" if words.null_count else "has a word twice"
        if not words.null_count and len(words.unique()) == len(words):
            hub().compute().index_in(words, words)
            return words
    except pa.ArrowNotImplementedError as error:
        raise ValueError(f"has type {type_}, whose values Arrow cannot look up") from error
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"is not a list of words of type {type_}") from error
    raise ValueError(fault)
