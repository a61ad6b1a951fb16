"""``encode=`` of ``convert``: columns of text become codes and the dictionary of their words."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy.dtype import by_name
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import Field, read_schema
from zerocopy.request import Request
from zerocopy.tables.arrow_column import ArrowColumn, UnreadColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.dictionary_codes import Codes, Distinct, given_words, value_type
from zerocopy.tables.hub import hub
from zerocopy.tables.summary import map_columns
from zerocopy.tables.validation import validate

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


def _codes(column: Column, choice: Any, unread: bool) -> Column:
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


def _given(choice: Any, type_: Any) -> Any:
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


def _array(column: Column, unread: bool = False) -> Any:
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


def _column(column: Column, array: Any, why: Reason) -> Column:
    """Return an Arrow array in place of a column."""
    field = read_schema(array.type.__arrow_c_schema__())
    reasons = (*column.reasons, why)
    return ArrowColumn(
        column.name, field, lambda: [arrow_c.read_array(array)], len(array), lambda: array, reasons
    )
