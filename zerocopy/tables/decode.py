"""Decodes a column into a tree of the tensors that ``convert`` will create.

A leaf is a :class:`TensorLeaf`: a :class:`Source` that is planned and run like any other
tensor's. The nodes are the classes of :mod:`zerocopy.tables.result`. Types that tensors
lack are refused, unless ``encode=`` asks for the numbers that represent them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

import numpy as np

from zerocopy.dtype import by_name
from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols.arrow_schema import Field
from zerocopy.request import Request
from zerocopy.source import Array, HostCopy, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables import nulls, placement
from zerocopy.tables.column import Column, Table
from zerocopy.tables.labels import map_columns
from zerocopy.tables.lists import (
    LISTS,
    OBJECTS,
    REFUSED,
    Lists,
    Padded,
    Tensors,
    described,
    gathered,
    shape_of,
    tensors_of,
)
from zerocopy.tables.nulls import Nulls
from zerocopy.tables.options import is_encoded, list_policy
from zerocopy.tables.result import Encoded, Masked

_BYTE, _BOOL = by_name("uint8"), by_name("bool")
#: Unsigned types of codes, with the next larger signed type, which can hold -1.
_SIGNED = {"uint8": "int16", "uint16": "int32", "uint32": "int64"}


@dataclass(slots=True, eq=False)  # not frozen, which takes 400 ns more: one for each column
class TensorLeaf:
    """One tensor of the result: its memory, and how the result presents it.

    Attributes
    ----------
    source : Source
        The values.
    datetime_dtype : str
        NumPy's dtype for values that are dates or durations, ``"datetime64[us]"``; else empty.
    constant : bool
        Whether the values do not come from the column's memory, so that no bytes of it are copied.
    step : str
        A step of the plan, about lists that become dimensions; else empty.
    """

    source: Source
    datetime_dtype: str = ""
    constant: bool = False
    step: str = ""


#: A column of the result: the values of `Masked` and `Encoded` are trees too.
Tree: TypeAlias = TensorLeaf | Masked | Encoded


@dataclass(frozen=True, slots=True)
class Decoder:
    """How to decode columns.

    Attributes
    ----------
    nulls : Nulls
        The policy for nulls.
    encode : bool
        Whether types that tensors lack become numbers.
    datetimes : bool
        Whether the target has dates and durations of 64 bits, as NumPy has.
    lists : Lists
        The policy for lists.
    marks_padding : bool
        Whether masks are True in the padding of lists.
    """

    nulls: Nulls
    encode: bool = False
    datetimes: bool = False
    lists: Lists = REFUSED
    marks_padding: bool = True

    def decode(self, column: Column) -> Tree:
        """Return a column's tree.

        Raises
        ------
        UnsupportedConversionError
            Tensors lack its type.
        LossyConversionError
            It has nulls, and the policy refuses them.
        """
        if column.refusal is not None and not self.encode:
            raise refused_by(column.refusal)
        field = column.field
        if field is None:
            return self._leaf(column, column.values(_BYTE))
        return self._extension(column, field) if field.extension else self._kind(column, field)

    def _kind(self, column: Column, field: Field) -> Tree:
        decode = _KINDS.get(field.kind)
        if decode is None or (field.kind in ENCODED and not self.encode):
            fixes = ENCODED.get(field.kind, ())
            if self.nulls.mode == "refuse" and column.null_count:  # another type has them too
                masked = {"nulls": "mask"}
                fixes = tuple(
                    replace(f, options=f.options | masked) if f.action and not f.alone else f for f in fixes
                )
            raise _no_tensor_type(field, fixes)
        return decode(self, column, field)

    def _leaf(self, column: Column, values: Source, datetime_dtype: str = "") -> TensorLeaf | Masked:
        if self.nulls.mode == "mask":
            return Masked(TensorLeaf(values, datetime_dtype), self._mask(column))
        return TensorLeaf(self.nulls.apply(column, values, bool(datetime_dtype)), datetime_dtype)

    def _mask(self, column: Column) -> TensorLeaf:
        if column.null_count or column.masks_items:
            return TensorLeaf(column.mask())
        return TensorLeaf(empty_mask(column), constant=True)

    def _masked(self, column: Column, tree: Tree) -> Tree:
        """Add a mask to a tree without one value per row that could be filled."""
        self.nulls.refuse(column)
        return Masked(tree, self._mask(column)) if self.nulls.mode == "mask" else tree

    # -- kinds ------------------------------------------------------------------

    def _number(self, column: Column, field: Field) -> Tree:
        return self._leaf(column, column.values(by_name(field.dtype)))

    def _bool(self, column: Column, field: Field) -> Tree:
        return self._leaf(column, column.values(_BOOL))

    def _datetime(self, column: Column, field: Field) -> Tree:
        if self.encode:
            return self._counted(column, field)
        if self.datetimes and field.timezone:
            why = f"it is {field}, and NumPy's datetime64 has no time zone"
            fixes = _encode("gives integers, counted in UTC, and the name of the zone")
            raise UnsupportedConversionError("", why, code="no-tensor-type", fixes=fixes)
        if not self.datetimes:
            raise _no_tensor_type(field, _INTEGERS)
        values = column.values(by_name(field.dtype))
        if field.dtype == "int32":
            why = "Arrow's date32 has 32 bits and NumPy's datetime64 has 64"
            values = _widened(values, "int64", why, _encode("gives the 32-bit integers"))
        name = "timedelta64" if field.kind == "duration" else "datetime64"
        return self._leaf(column, values, f"{name}[{field.unit}]")

    def _counted(self, column: Column, field: Field) -> Tree:
        encoded = Encoded(str(field), None, unit=field.unit, timezone=field.timezone or None)
        return self._encoded(column, column.values(by_name(field.dtype)), encoded)

    def _encoded(self, column: Column, values: Source, encoded: Encoded) -> Tree:
        """Put the values into an `Encoded`; a mask goes around it."""
        return _each(self._leaf(column, values), lambda leaf: replace(encoded, values=leaf))

    def _decimal(self, column: Column, field: Field) -> Tree:
        if field.dtype:
            values = column.values(by_name(field.dtype))
        else:  # little-endian limbs of 64 bits, the lowest first: (rows, 2) or (rows, 4)
            values = column.values(by_name("uint64"), (field.width // 8,))
        return self._encoded(column, values, Encoded(str(field), None, scale=field.scale))

    def _fixed_binary(self, column: Column, field: Field) -> Tree:
        return self._encoded(column, column.values(_BYTE, (field.width,)), Encoded(str(field), None))

    def _dictionary(self, column: Column, field: Field) -> Tree:
        decoder = replace(self, nulls=Nulls("mask") if self.nulls.mode == "mask" else Nulls())
        dictionary = column.dictionary()
        if dictionary.field is not None and dictionary.field.kind == "null":
            # pandas' categories without values: tensors lack the type, and there is no number to show.
            categories = decoder._masked(dictionary, TensorLeaf(_no_numbers(dictionary), constant=True))
        else:
            categories = decoder._inner(dictionary)
        if isinstance(categories, Masked) and not dictionary.null_count:
            categories = categories.values
        encoded = Encoded(str(field), None, categories=categories, ordered=field.ordered)
        codes = column.values(by_name(field.dtype))
        signed = _SIGNED.get(field.dtype)
        if signed and self.nulls.is_negative and codes.view.device.is_host:
            codes = _widened(codes, signed, f"{field.dtype} cannot hold the code {self.nulls.value}")
        return self._encoded(column, codes, encoded)

    def _text(self, column: Column, field: Field) -> Tree:
        tree = Encoded(str(field), TensorLeaf(column.text()), offsets=self._offsets(column))
        return self._masked(column, tree)

    def _offsets(self, column: Column) -> TensorLeaf:
        # A column without rows has one offset, for which producers may omit the buffer.
        return TensorLeaf(column.offsets(), constant=not column.length)

    def _list(self, column: Column, field: Field) -> Tree:
        mode = self.lists.mode
        if mode != "ragged" and not (mode == "refuse" and self.encode):
            if mode == "refuse" or not _is_of_numbers(field):
                raise _no_tensor_type(field, _ENCODED_LIST)
            return self._dense(column, field) if mode == "dense" else self._padded(column, field)
        return self._ragged(column, field)

    def _dense(self, column: Column, field: Field) -> Tree:
        tensors = tensors_of(column)
        step = described(tensors.shape) if column.length else ""
        return _each(self._tensors(column, tensors), lambda leaf: replace(leaf, step=step))

    def _padded(self, column: Column, field: Field) -> Tree:
        padded = Padded(column, self.lists)
        flat, inner = self._elements(column, padded.elements, padded.levels, in_rows=False)
        values = padded.values(flat)
        if self.nulls.mode != "mask":
            return self._leaf(column, values)
        if inner is None and not self.marks_padding:
            return Masked(TensorLeaf(values), self._mask(column))
        mask = padded.mask(inner or empty_mask(padded.elements), self.marks_padding)
        return Masked(TensorLeaf(values), TensorLeaf(_with_rows(mask, column)))

    def _ragged(self, column: Column, field: Field) -> Tree:
        sizes = TensorLeaf(column.sizes()) if field.kind == "list_view" else None
        child = column.child()
        try:
            inner = self._inner(child)
        except LossyConversionError as error:
            if error.code == "nulls" and child.null_count:
                error.with_context(why=_nulls_in_lists(child.null_count))
            raise
        tree = Encoded(str(field), inner, offsets=self._offsets(column), sizes=sizes)
        return self._masked(column, tree)

    def _struct(self, column: Column, field: Field) -> Tree:
        names = [child.name for child in field.children]
        if len({*names}) != len(names):
            why = f"it is {field}, with two fields of one name"
            raise UnsupportedConversionError("", why, "rename them", code="duplicate-names")
        inner = {
            name: self._inner(column.child(i), f", in its field {name!r}") for i, name in enumerate(names)
        }
        return self._masked(column, Encoded(str(field), inner))

    def _inner(self, column: Column, place: str = "") -> Tree:
        """Decode a part of a column; the fixes of its error that change the object do not apply to a part."""
        try:
            return self.decode(column)
        except ZeroCopyError as error:
            error.fixes = tuple(fix for fix in error.fixes if fix.options or fix is OBJECTS)
            error.with_context(why=error.why + place, remedy="; or ".join(map(str, error.fixes)))
            raise

    def _tensors(self, column: Column, tensors: Tensors) -> TensorLeaf | Masked:
        """Return lists of one shape as one tensor, ``(rows, *shape)``."""
        flat, inner = self._elements(column, tensors.elements, tensors.levels, tensors.gather is None)
        values = _arranged(flat, tensors, column.length)
        if inner is None:
            return self._leaf(column, values)
        mask = _arranged(inner, tensors, column.length)
        return Masked(TensorLeaf(values), TensorLeaf(_with_rows(mask, column)))

    def _elements(
        self, column: Column, elements: Column, levels: Sequence[Column], in_rows: bool
    ) -> tuple[Source, Source | None]:
        """Return the elements of lists, with their nulls filled; or, with masks, which of them are null."""
        field = elements.field
        assert field is not None
        if not _is_number(field):
            why = f"it is {column.field}, whose elements are not numbers"
            raise UnsupportedConversionError("", why, code="no-tensor-type", fixes=(OBJECTS, _JOINED))
        flat = elements.values(_BOOL if field.extension or field.kind == "bool" else by_name(field.dtype))
        fixes = (OBJECTS, _JOINED)
        if levels and (count := _nulls_inside(column, levels, in_rows)):
            raise _refused_nulls(count, fixes)
        count = _nulls_inside(column, [elements], in_rows)
        if not count:
            return flat, None
        if self.nulls.mode == "refuse":
            raise _refused_nulls(count, (*nulls.fixes_for(flat.view.dtype), *fixes))
        if self.nulls.mode == "mask":
            return flat, elements.mask()
        return self.nulls.apply(elements, flat), None

    def _extension(self, column: Column, field: Field) -> Tree:
        if field.extension == "arrow.bool8":
            return self._bool(column, field)
        if field.extension == "arrow.fixed_shape_tensor" and field.kind == "fixed_list":
            shape, order = shape_of(field)
            tree = self._tensors(column, Tensors(shape, column.child(), []))
            return _each(tree, lambda leaf: TensorLeaf(permuted(leaf.source, order))) if order else tree
        if not self.encode:
            is_padded = field.kind not in LISTS or _is_of_numbers(field)  # or dense
            fixes = _encode("gives its storage") if is_padded else _ENCODED_LIST
            raise _no_tensor_type(field, fixes)
        return self._kind(column, field)


def _encode(effect: str) -> tuple[Fix, ...]:
    return (Fix(options={"encode": True}, effect=effect),)


_INTEGERS = _encode("gives integers with their unit")
_JOINED = Fix(action="join-lists", alone=True, effect="joins its lists")
_TEXT = (*_encode("gives codes of its words"), OBJECTS)
_BYTES = (*_encode("gives its bytes with their offsets"), OBJECTS)
_LIST = _encode("gives its elements with their offsets")
#: The same fix for a call with lists="pad" or "dense", which apply only to lists of numbers.
_ENCODED_LIST = (replace(_LIST[0], options={"lists": None, "encode": True}),)
#: The kinds that need encode=True, with fixes, and the kinds that have no encoding, with a remedy.
ENCODED: dict[str, tuple[Fix, ...]] = {
    "time": _INTEGERS,
    "decimal": (*_encode("gives scaled integers"), Fix(action="cast:float64", effect="gives floats")),
    "fixed_binary": _encode("gives its bytes, (rows, width)"),
    "dictionary": _encode("gives its codes and its categories"),
    "struct": _encode("gives a dict of its fields"),
    "interval": (
        Fix(action="seconds"),
        Fix(action="split-interval", options={"encode": True}),
        OBJECTS,
    ),
    "null": (Fix(action="cast:float64", effect="gives floats, all null"),),
    "run_end_encoded": (Fix(action="decode-runs", effect="decodes its runs"),),
    **dict.fromkeys(("string", "string_view"), _TEXT),
    **dict.fromkeys(("binary", "binary_view"), _BYTES),
    "map": _LIST,
}
_KINDS: dict[str, Callable[[Decoder, Column, Field], Tree]] = {
    "number": Decoder._number,
    "bool": Decoder._bool,
    "time": Decoder._counted,
    "decimal": Decoder._decimal,
    "fixed_binary": Decoder._fixed_binary,
    "dictionary": Decoder._dictionary,
    "struct": Decoder._struct,
    "fixed_list": lambda decoder, column, field: decoder._tensors(column, tensors_of(column)),
    **dict.fromkeys(("date", "timestamp", "duration"), Decoder._datetime),
    **dict.fromkeys(("string", "binary", "string_view", "binary_view"), Decoder._text),
    **dict.fromkeys(LISTS, Decoder._list),
    "map": Decoder._ragged,
}


def decode(table: Table, request: Request) -> dict[str, Tree]:
    """Return each column's tree by its path; raise one error for all columns that are refused."""
    encode, datetimes, lists = is_encoded(request), request.target.has_datetime64, list_policy(request)
    if not isinstance(request.nulls, dict):  # one policy, and so one decoder, for all columns
        decoder = Decoder(nulls.parse(request.nulls, None), encode, datetimes, lists)
        return map_columns(table, lambda label, path, column: decoder.decode(column))

    def tree(label: Hashable, path: str, column: Column) -> Tree:
        return Decoder(nulls.parse(request.nulls, label), encode, datetimes, lists).decode(column)

    return map_columns(table, tree)


def as_tensor(column: Column) -> Source:
    """Return a column of plain values, without nulls, as a tensor; raise ZeroCopyError for another."""
    try:
        tree = Decoder(Nulls()).decode(column)
    except ZeroCopyError as error:
        raise error.with_context(asked=f"convert({column.name})") from error.__cause__
    assert isinstance(tree, TensorLeaf)
    return tree.source


def as_one_tensor(table: Table) -> Source:
    """Return the one column of a series as a tensor; raise ZeroCopyError for a table of several."""
    if not table.single:
        remedy = "pick a column, or convert it to a dict of them"
        raise UnsupportedConversionError(
            f"convert({table.name})", "a table is not one array", remedy, code="not-an-array"
        )
    return as_tensor(table.columns[0])


def refused_by(refusal: Reason) -> UnsupportedConversionError:
    """Return the error for a column or a source that has a refusal."""
    return UnsupportedConversionError("", refusal.why, refusal.remedy, code=refusal.code, fixes=refusal.fixes)


def _no_tensor_type(field: Field, fixes: Sequence[Fix]) -> UnsupportedConversionError:
    why = f"it is {field}, which tensors do not have"
    return UnsupportedConversionError("", why, code="no-tensor-type", fixes=fixes or [OBJECTS])


def _is_number(field: Field) -> bool:
    return field.kind in ("number", "bool") and field.extension in ("", "arrow.bool8")


def _is_of_numbers(field: Field) -> bool:
    inner = field.children[0]
    while inner.kind in (*LISTS, "fixed_list") and not inner.extension:
        inner = inner.children[0]
    return _is_number(inner)


def _arranged(flat: Source, tensors: Tensors, rows: int) -> Source:
    if tensors.gather is None:
        return reshaped(flat, (rows, *tensors.shape))
    return gathered(flat, tensors, rows)


def _with_rows(mask: Source, column: Column) -> Source:
    """Return a mask of elements that is also True in each row that is null."""
    if not column.null_count:
        return mask

    def host() -> Array:
        out = mask.host().copy()
        out[column.mask().host()] = True
        return out

    return _with(mask, replace(mask.view, ptr=0), host)


def _nulls_inside(column: Column, levels: Sequence[Column], in_rows: bool) -> int:
    """Return the number of nulls inside lists; those inside a list that is itself null do not count.

    With `in_rows`, each row has as many items, so that those of null rows can be found: then lists with nulls
    are counted.
    """
    count = sum(level.null_count for level in levels)
    if not count or not (in_rows and column.null_count and column.device.is_host):
        return count
    hidden = column.mask().host()
    rows = [level.mask().host().reshape(column.length, -1).any(axis=1) for level in levels]
    return int(np.count_nonzero(np.logical_or.reduce(rows) & ~hidden))


def _refused_nulls(count: int, fixes: Sequence[Fix]) -> LossyConversionError:
    return LossyConversionError("", _nulls_in_lists(count), code="nulls", fixes=fixes)


def _nulls_in_lists(count: int) -> str:
    return f"it has nulls inside its lists: {count:,}"


def _each(tree: TensorLeaf | Masked, change: Callable[[TensorLeaf], TensorLeaf | Encoded]) -> Tree:
    return Masked(change(tree.values), tree.mask) if isinstance(tree, Masked) else change(tree)


def empty_mask(column: Column) -> Source:
    """Return a mask without True for a column without nulls; it is allocated when it is read."""
    why = Reason("the column has no nulls, so the mask is a new array", code="computed-mask")
    view = StridedView(0, (column.length,), (1,), _BOOL, column.device, False, column)
    source = Source(column.name, view, lambda: np.zeros(column.length, np.bool_), reasons=(why,), obj=view)
    return source if column.device.is_host else placement.via_host(source)


def _no_numbers(column: Column) -> Source:
    """Return NaN for each row of a column of nulls."""
    dtype = by_name("float64")
    view = StridedView(0, (column.length,), (dtype.itemsize,), dtype, column.device, False, column)
    source = Source(column.name, view, lambda: np.full(column.length, np.nan), obj=view)
    return source if column.device.is_host else placement.via_host(source)


def _widened(values: Source, name: str, why: str, fixes: Sequence[Fix] = ()) -> Source:
    """Return integers in a larger type."""
    dtype, shape = by_name(name), values.view.shape
    view = replace(values.view, ptr=0, strides=contiguous_strides(shape, dtype.itemsize), dtype=dtype)
    reasons = (*values.reasons, Reason(why, code="other-type", fixes=fixes))
    wide = replace(
        values, view=view, host=lambda: values.host().astype(dtype.storage), reasons=reasons, writer=None
    )
    return wide if view.device.is_host else placement.via_host(wide)


def reshaped(flat: Source, shape: tuple[int, ...]) -> Source:
    """Return row-major elements in another shape, without copying them."""
    view = replace(flat.view, shape=shape, strides=contiguous_strides(shape, flat.view.dtype.itemsize))
    count = prod(shape)
    return _with(flat, view, lambda: flat.host()[:count].reshape(shape))


def permuted(source: Source, order: tuple[int, ...]) -> Source:
    """Return the dimensions after the first in another order, without copying."""
    axes = (0, *(i + 1 for i in order))
    old = source.view
    view = replace(old, shape=tuple(old.shape[i] for i in axes), strides=tuple(old.strides[i] for i in axes))
    return _with(source, view, lambda: source.host().transpose(axes))


def _with(source: Source, view: StridedView, host: Callable[[], Array]) -> Source:
    to_host = None if source.to_host is None else HostCopy(lambda stream: host(), source.check_copy)
    return replace(source, view=view, host=host, obj=view, to_host=to_host)
