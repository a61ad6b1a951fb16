"""``dtype=`` for tables: columns of numbers and booleans whose values are cast when they are copied."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache

from zerocopy.casting.option import DTypeOption
from zerocopy.casting.sources import cast_source
from zerocopy.dtype import BOOL8, DType, by_name
from zerocopy.errors import Fix, UnsupportedConversionError, ZeroCopyError
from zerocopy.request import Request
from zerocopy.source import Array
from zerocopy.tables import memory, placement
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import Decoder, TensorLeaf, empty_mask
from zerocopy.tables.labels import combine_errors
from zerocopy.tables.lists import LISTS
from zerocopy.tables.nulls import Nulls, parse
from zerocopy.tables.options import is_encoded, list_policy
from zerocopy.tables.result import Masked
from zerocopy.tables.tensor_column import Marks, TensorColumn

_BYTE, _BOOL = by_name("uint8"), by_name("bool")


def cast_columns(table: Table, request: Request, keeps_columns: bool, unread: bool = False) -> Table:
    """Return the table with the columns that ``dtype=`` casts replaced.

    Parameters
    ----------
    table : Table
        The chosen columns.
    request : Request
        With the option ``dtype=``.
    keeps_columns : bool
        Whether the result is a table. Row labels then keep their type, unless it is given by label.
    unread : bool
        Whether the columns have types and no memory, so that there is nothing to check.
    """
    option = request.cast
    assert option is not None
    known = len(option.checks)
    columns: list[Column] = []
    refused: dict[Hashable, ZeroCopyError] = {}
    first_index = len(table.columns) - table.index
    for place, (label, column) in enumerate(zip(table.labels, table.columns, strict=True)):
        if keeps_columns and place >= first_index and not option.named(label):
            columns.append(column)
            continue
        try:
            columns.append(_cast(table, label, column, request, keeps_columns))
        except ZeroCopyError as error:
            if table.single:
                raise
            refused[label] = error
    if refused:
        raise combine_errors(refused)
    if unread:
        del option.checks[known:]
    if all(new is old for new, old in zip(columns, table.columns, strict=True)):
        return table
    return replace(table, columns=columns, obj=None)


def _cast(table: Table, label: Hashable, column: Column, request: Request, keeps_columns: bool) -> Column:
    option = request.cast
    assert option is not None
    encoded = is_encoded(request) and not keeps_columns  # decoding then ignores the column's refusal
    old, lists = _type(column, request.target.packs_booleans, encoded), None
    if old is None:
        lists = None if keeps_columns else _lists(column, request, parse(request.nulls, label))
        if lists is None:
            _refuse_meaning(table, label, column, request, keeps_columns)
            return column
        old = lists.values.source.view.dtype
    new = option.new_type(old, label)
    if new is None:
        return column
    shown = "" if table.single else label
    if lists is not None:
        return _cast_lists(column, lists, new, request, label, shown)
    nulls = _nulls(column) if column.null_count else None
    # A field of records is cast from its place: a contiguous copy would be one more pass.
    values = (column.in_place or column).values(old)
    chunks = column.chunks if isinstance(column, ArrowColumn) else ()
    several = len(chunks) > 1 and column.device.is_host and old not in (_BOOL, BOOL8)
    pieces = (lambda: [memory.elements(chunk, old) for chunk in chunks if chunk.length]) if several else None
    cast = cast_source(values, new, option, shown, rows=True, nulls=nulls, pieces=pieces)
    if nulls is None or not (why := column.mask().reasons):
        result = TensorColumn(cast, mask=nulls)
    else:
        result = TensorColumn(cast, mask=Marks(nulls, lambda mask: mask, why[0]))
    result.of_booleans = old in (_BOOL, BOOL8)
    return result


def _cast_lists(
    column: Column, lists: Masked, new: DType, request: Request, label: Hashable, shown: Hashable
) -> Column:
    """Return a column of the cast items of lists, with the mask that the lists have."""
    assert request.cast is not None
    policy = parse(request.nulls, label)
    missing = lists if policy.mode == "refuse" else _lists(column, request, policy, marks_padding=False)
    assert missing is not None
    nulls = None if missing.mask.constant else _mask(missing)
    cast = cast_source(lists.values.source, new, request.cast, shown, rows=True, nulls=nulls)
    is_masked = policy.mode == "mask" and not lists.mask.constant
    if not is_masked:
        return TensorColumn(cast, mask=nulls)
    mask, shape = lists.mask.source, lists.mask.source.view.shape
    marks = Marks(_mask(lists), lambda mask: mask, mask.reasons[0], shape) if mask.reasons else _mask(lists)
    result = TensorColumn(cast, mask=marks)
    result.masks_items = len(shape) > 1
    return result


def _mask(lists: Masked) -> Callable[[], Array]:
    return cache(lambda: placement.fetch(lists.mask.source))


def _type(column: Column, packs_booleans: bool = False, encoded: bool = False) -> DType | None:
    """Return the type of a column of plain numbers, booleans or tensors; None for another.

    For a target that packs booleans, bool8 differs from bool. With `encoded`, Python objects have the type
    that Arrow infers.
    """
    if column.refusal is not None and not (encoded and column.field is not None):
        return None
    field = column.field
    if field is None:
        return column.values(_BYTE).view.dtype
    if field.kind == "bool" or field.extension == "arrow.bool8":
        return BOOL8 if packs_booleans and field.extension else _BOOL
    return by_name(field.dtype) if field.kind == "number" and not field.extension else None


def _lists(column: Column, request: Request, nulls: Nulls, marks_padding: bool = True) -> Masked | None:
    """Return lists of one length, or tensors of one shape, as values and mask; None for other columns."""
    field = column.field
    if field is None or field.kind not in ("fixed_list", *LISTS):
        return None
    # If nulls are refused, those inside lists are refused too.
    mode = nulls if nulls.mode == "refuse" and not column.null_count else Nulls("mask")
    decoder = Decoder(mode, is_encoded(request), lists=list_policy(request), marks_padding=marks_padding)
    try:
        tree = decoder.decode(column)
    except ZeroCopyError:
        return None  # the conversion refuses it, with the options of the call
    if isinstance(tree, TensorLeaf):
        tree = Masked(tree, TensorLeaf(empty_mask(column), constant=True))
    return tree if isinstance(tree, Masked) and isinstance(tree.values, TensorLeaf) else None


def _nulls(column: Column) -> Callable[[], Array]:
    return cache(lambda: placement.fetch(column.mask()))


def _refuse_meaning(
    table: Table, label: Hashable, column: Column, request: Request, keeps_columns: bool
) -> None:
    """Refuse text, dates and other types, unless the option leaves them alone or decoding refuses them."""
    option, field = request.cast, column.field
    assert option is not None
    named = option.named(label)
    if option.one is None and not named:
        return
    datetimes = field is not None and field.kind in ("date", "timestamp", "duration")
    if not named and not keeps_columns and (is_encoded(request) or not datetimes):
        return  # encoded numbers keep their type; without encode=True decoding refuses the column
    if not named and not keeps_columns and not request.target.has_datetime64:
        return
    kind = "objects" if column.refusal is not None else field
    encoded = Fix(options={"encode": True}, effect="gives integers, which keep their type")
    fixes = [] if named or keeps_columns else [encoded]
    fixes.append(option.without(label) if named else _numbers_alone(table, option))
    why = f"it is {kind}, and dtype= casts numbers and booleans"
    raise UnsupportedConversionError("", why, code="not-numbers", fixes=fixes)


def _numbers_alone(table: Table, option: DTypeOption) -> Fix:
    """Return the option that casts only the columns of numbers."""
    types = {dtype.name for column in table.columns if (dtype := _type(column)) is not None}
    if not types or option.one is None:
        return Fix(options={"dtype": None}, effect="keeps the types")
    return Fix(
        options={"dtype": dict.fromkeys(sorted(types), option.one.name)}, effect="casts only the numbers"
    )
