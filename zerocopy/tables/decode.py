"""What a column becomes in a tensor framework: the tree of tensors that ``convert`` will make.

Leaves are :class:`Leaf`: a :class:`Source`, planned and run like any other tensor's.
Around them stand the classes of :mod:`zerocopy.tables.result`. What tensors have no
type for is refused, unless ``encode=True`` asks for the numbers behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from zerocopy.device import HOST
from zerocopy.dtype import DType, by_name
from zerocopy.errors import LossyConversionError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables import on_device
from zerocopy.tables.column import Column
from zerocopy.tables.fixed_shape import shape_of
from zerocopy.tables.nulls import Nulls
from zerocopy.tables.result import Encoded, Masked

_INT64, _BYTE = by_name("int64"), by_name("uint8")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor to be: its memory, what NumPy is to take its integers for, and whether it is new."""

    source: Source
    temporal: str = ""
    made: bool = False


@dataclass(frozen=True, slots=True)
class Decoder:
    """How columns are to be decoded.

    Attributes
    ----------
    nulls : Nulls
        What becomes of nulls.
    encode : bool
        Whether what tensors lack is given as numbers.
    temporal : bool
        Whether the target has dates and durations of 64 bits, as NumPy has.
    """

    nulls: Nulls
    encode: bool = False
    temporal: bool = False

    def decode(self, column: Column) -> Any:
        """Return the tree of a column.

        Raises
        ------
        UnsupportedConversionError
            Tensors lack its type: the reason begins with what follows a column's name.
        LossyConversionError
            It has nulls, and they are refused.
        """
        if column.refusal is not None and not self.encode:
            raise UnsupportedConversionError("", column.refusal.why, column.refusal.remedy)
        field = column.field
        if field is None:
            return self._leaf(column, column.values(_BYTE))
        if field.extension:
            return self._extension(column, field)
        return _KINDS.get(field.kind, Decoder._lacking)(self, column, field)

    def _leaf(self, column: Column, values: Source, temporal: str = "") -> Any:
        tree = self.nulls.apply(column, values, bool(temporal))
        if isinstance(tree, Masked):
            return Masked(Leaf(tree.values, temporal), self._mask(column))
        return Leaf(tree, temporal)

    def _mask(self, column: Column) -> Leaf:
        # Without nulls nothing is unpacked: a mask that says so is made, and copies nothing.
        return Leaf(column.mask()) if column.null_count else Leaf(none_of(column), made=True)

    def _masked(self, column: Column, tree: Any) -> Any:
        """Set a mask beside what has no place a row to fill."""
        self.nulls.refuse(column)
        return Masked(tree, self._mask(column)) if self.nulls.how == "mask" else tree

    # -- kinds ------------------------------------------------------------------

    def _number(self, column: Column, field: Field) -> Any:
        return self._leaf(column, column.values(by_name(field.dtype)))

    def _bool(self, column: Column, field: Field) -> Any:
        return self._leaf(column, column.values(by_name("bool")))

    def _date(self, column: Column, field: Field) -> Any:
        if self.encode:
            return self._encoded(column, field)
        if not self.temporal:
            raise _lacks(field)
        values = column.values(by_name(field.dtype))
        if field.dtype == "int32":  # NumPy's dates are of 64 bits
            values = _widened(values)
        return self._leaf(column, values, f"datetime64[{field.unit}]")

    def _timestamp(self, column: Column, field: Field) -> Any:
        if self.encode:
            return self._encoded(column, field)
        if self.temporal and field.timezone:
            raise UnsupportedConversionError(
                "",
                f"is {field}, and NumPy's dates have no time zone",
                "encode=True gives integers, counted in UTC, with the zone beside them",
            )
        if not self.temporal:
            raise _lacks(field)
        return self._leaf(column, column.values(_INT64), f"datetime64[{field.unit}]")

    def _duration(self, column: Column, field: Field) -> Any:
        if self.encode:
            return self._encoded(column, field)
        if not self.temporal:
            raise _lacks(field)
        return self._leaf(column, column.values(_INT64), f"timedelta64[{field.unit}]")

    def _encoded(self, column: Column, field: Field) -> Any:
        """Return a date, time or duration as the integers that it is, with their unit."""
        if not self.encode:
            raise _lacks(field)
        said = Encoded(str(field), None, unit=field.unit, timezone=field.timezone or None)
        return self._integers(column, column.values(by_name(field.dtype)), said)

    def _integers(self, column: Column, values: Source, said: Encoded) -> Any:
        """Return integers with what is said of them; a mask, as everywhere, is around it all."""
        return _each(self._leaf(column, values), lambda leaf: replace(said, values=leaf))

    def _decimal(self, column: Column, field: Field) -> Any:
        if not self.encode:
            raise _lacks(field, "cast it in Arrow, x.cast('float64'), or encode=True gives scaled integers")
        if field.dtype:
            values = column.values(by_name(field.dtype))
        else:  # little-endian limbs, the lowest first: (rows, 2) or (rows, 4)
            values = column.values(by_name("uint64"), (field.width // 8,))
        return self._integers(column, values, Encoded(str(field), None, scale=field.scale))

    def _fixed_binary(self, column: Column, field: Field) -> Any:
        if not self.encode:
            raise _lacks(field, "encode=True gives its bytes, (rows, width)")
        return self._integers(column, column.values(_BYTE, (field.width,)), Encoded(str(field), None))

    def _dictionary(self, column: Column, field: Field) -> Any:
        if not self.encode:
            raise _lacks(field, "encode=True gives its codes, with what they stand for")
        categories = replace(self, nulls=Nulls("mask") if self.nulls.how == "mask" else Nulls())
        of = column.dictionary()
        tree = categories.decode(of)
        if isinstance(tree, Masked) and not of.null_count:
            tree = tree.values
        said = Encoded(str(field), None, categories=tree, ordered=field.ordered)
        return self._integers(column, column.values(by_name(field.dtype)), said)

    def _text(self, column: Column, field: Field) -> Any:
        if not self.encode:
            raise _lacks(field, "encode=True gives its bytes with their offsets; x.to_pylist() gives objects")
        tree = Encoded(str(field), Leaf(column.text()), offsets=self._offsets(column))
        return self._masked(column, tree)

    def _offsets(self, column: Column) -> Leaf:
        # Without rows there is one offset, and no memory of the producer's that has it.
        return Leaf(column.offsets(), made=not column.length)

    def _list(self, column: Column, field: Field) -> Any:
        if not self.encode:
            raise _lacks(field, "encode=True gives its elements with their offsets; lists of one length fit")
        sizes = Leaf(column.sizes()) if field.kind == "list_view" else None
        inner = self.decode(column.child())
        tree = Encoded(str(field), inner, offsets=self._offsets(column), sizes=sizes)
        return self._masked(column, tree)

    def _struct(self, column: Column, field: Field) -> Any:
        if not self.encode:
            raise _lacks(
                field,
                "encode=True gives a dict of its fields; zc.aos_to_soa(x) makes columns of them, "
                "and an Arrow table's x.flatten()",
            )
        names = [child.name for child in field.children]
        if len({*names}) != len(names):
            raise UnsupportedConversionError(
                "", f"is {field}, with two fields of one name", "rename them, or flatten it: x.flatten()"
            )
        inner = {name: self.decode(column.child(i)) for i, name in enumerate(names)}
        return self._masked(column, Encoded(str(field), inner))

    def _fixed_list(self, column: Column, field: Field) -> Any:
        shape, level, between = [field.list_size], column.child(), []
        while level.field is not None and level.field.kind == "fixed_list" and not level.field.extension:
            between.append(level)
            shape.append(level.field.list_size)
            level = level.child()
        return self._tensors(column, level, tuple(shape), between)

    def _tensors(
        self, column: Column, level: Column, shape: tuple[int, ...], between: Sequence[Column] = ()
    ) -> Any:
        """Return lists of one shape as one tensor, ``(rows, *shape)``; `between` are lists of lists."""
        inner = level.field
        assert inner is not None
        if inner.kind not in ("number", "bool") or (inner.extension and inner.extension != "arrow.bool8"):
            raise UnsupportedConversionError(
                "", f"is {column.field}, whose elements are no numbers", "flatten it first: x.flatten()"
            )
        _refuse_inner_nulls(column, [*between, level])
        flat = level.values(by_name("bool" if inner.extension or inner.kind == "bool" else inner.dtype))
        return self._leaf(column, reshaped(flat, (column.length, *shape)))

    def _extension(self, column: Column, field: Field) -> Any:
        if field.extension == "arrow.bool8":
            return self._leaf(column, column.values(by_name("bool")))
        if field.extension == "arrow.fixed_shape_tensor" and field.kind == "fixed_list":
            shape, order = shape_of(field)
            tree = self._tensors(column, column.child(), shape)
            return _each(tree, lambda leaf: Leaf(permuted(leaf.source, order))) if order else tree
        if not self.encode:
            raise _lacks(field, "encode=True gives what it is stored as")
        return _KINDS.get(field.kind, Decoder._lacking)(self, column, field)

    def _run_ends(self, column: Column, field: Field) -> Any:
        raise _lacks(field, "decode it first: pyarrow.compute.run_end_decode(x)")

    def _null(self, column: Column, field: Field) -> Any:
        raise _lacks(field, "leave it out with columns=[...]: it has no values")

    def _lacking(self, column: Column, field: Field) -> Any:
        raise _lacks(field, "cast it first, or leave it out with columns=[...]")


_KINDS: dict[str, Callable[[Decoder, Column, Field], Any]] = {
    "number": Decoder._number,
    "bool": Decoder._bool,
    "date": Decoder._date,
    "time": Decoder._encoded,
    "timestamp": Decoder._timestamp,
    "duration": Decoder._duration,
    "decimal": Decoder._decimal,
    "fixed_binary": Decoder._fixed_binary,
    "dictionary": Decoder._dictionary,
    "string": Decoder._text,
    "binary": Decoder._text,
    "string_view": Decoder._text,
    "binary_view": Decoder._text,
    "list": Decoder._list,
    "list_view": Decoder._list,
    "map": Decoder._list,
    "struct": Decoder._struct,
    "fixed_list": Decoder._fixed_list,
    "run_end_encoded": Decoder._run_ends,
    "null": Decoder._null,
}


def as_tensor(column: Column) -> Source:
    """Return a column of plain values, without nulls, as a tensor.

    Raises
    ------
    ZeroCopyError
        It is none.
    """
    try:
        tree = Decoder(Nulls()).decode(column)
    except ZeroCopyError as error:
        error.asked, error.why = f"convert({column.name})", f"it {error.why}"
        error.args = (error.asked, error.why, error.remedy)
        raise
    assert isinstance(tree, Leaf)
    return tree.source


def _lacks(field: Field, remedy: str = "") -> UnsupportedConversionError:
    return UnsupportedConversionError(
        "", f"is {field}, which tensors do not have", remedy or "encode=True gives integers with their unit"
    )


def _refuse_inner_nulls(column: Column, levels: Sequence[Column]) -> None:
    """Refuse nulls inside lists; a list that is null itself has elements all the same, null as a rule."""
    inside = sum(level.null_count for level in levels)
    if not inside:
        return
    hidden: Array | None = None
    if column.null_count and column.device.is_host:
        hidden = column.mask().host()
        rows = [level.mask().host().reshape(column.length, -1).any(axis=1) for level in levels]
        inside = int(np.count_nonzero(np.logical_or.reduce(rows) & ~hidden))
    if inside:
        said = "nulls inside its lists" if hidden is None else "lists with nulls inside"
        raise LossyConversionError("", f"has {said}: {inside:,}", "fill them first")


def _each(tree: Any, change: Callable[[Leaf], Any]) -> Any:
    return Masked(change(tree.values), tree.mask) if isinstance(tree, Masked) else change(tree)


def none_of(column: Column) -> Source:
    """Return a mask for a column without nulls."""
    made = np.zeros(column.length, np.bool_)
    device = getattr(column, "device", HOST)
    view = StridedView(made.ctypes.data, made.shape, made.strides, by_name("bool"), device, False, made)
    source = Source(column.name, view, lambda: made, obj=made)
    if device.is_host:
        return source
    why = Reason("it has no nulls, and the mask that says so is made", "")
    return on_device.made(replace(source, view=replace(view, ptr=0), reasons=(why,)))


def _widened(values: Source) -> Source:
    why = Reason("Arrow's dates have 32 bits and NumPy's have 64", "encode=True gives them as they are")
    view = replace(values.view, ptr=0, strides=contiguous_strides(values.view.shape, 8), dtype=_INT64)
    reasons = (*values.reasons, why)
    wide = replace(values, view=view, host=lambda: values.host().astype(np.int64), reasons=reasons)
    return wide if view.device.is_host else on_device.made(wide)


def reshaped(flat: Source, shape: tuple[int, ...]) -> Source:
    """Return row-major elements in another shape, without copying them."""
    view = replace(flat.view, shape=shape, strides=contiguous_strides(shape, flat.view.dtype.itemsize))
    count = prod(shape)

    def host() -> Array:
        return flat.host()[:count].reshape(shape)

    return _with(flat, view, host)


def permuted(source: Source, order: tuple[int, ...]) -> Source:
    """Return the dimensions after the first in another order, without copying."""
    axes = (0, *(i + 1 for i in order))
    old: Any = source.view
    view = replace(old, shape=tuple(old.shape[i] for i in axes), strides=tuple(old.strides[i] for i in axes))
    return _with(source, view, lambda: source.host().transpose(axes))


def _with(source: Source, view: StridedView, host: Callable[[], Array]) -> Source:
    """Return a source that looks at the same memory in another shape."""
    to_host = None if source.to_host is None else lambda stream: host()
    return replace(source, view=view, host=host, obj=view, to_host=to_host)


def dtype_of(leaf: Leaf) -> DType:
    """Return the type of a leaf's elements."""
    return leaf.source.view.dtype
