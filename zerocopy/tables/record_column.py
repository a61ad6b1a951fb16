"""Structured arrays as tables: a column a field, made of the rows when one is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from zerocopy.device import HOST
from zerocopy.dtype import DType, by_name
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.layout.aos_to_soa import aos_to_soa
from zerocopy.layout.record_source import record_source
from zerocopy.layout.schema import parts
from zerocopy.protocols.array_interface import address
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables.column import Column, Table
from zerocopy.tables.numpy_column import (
    OBJECTS,
    FieldColumn,
    binary_field,
    no_text,
    numbers_of,
    of_strangers,
    single,
    times,
)
from zerocopy.tables.object_column import ObjectColumn, RefusedColumn
from zerocopy.tables.tensor_column import TensorColumn

_BYTE = by_name("uint8")
INTERLEAVED = Reason(
    "rows are interleaved, and columns are made of them",
    "leave copy=False out; zc.aos_to_soa(x) makes all columns in one pass",
)


def table(array: Array, name: str) -> Table | None:
    """Return a structured array as a table, dates, bytes, text and objects as a series.

    None for what is a tensor, and for what has not one dimension.
    """
    dtype = array.dtype
    if array.ndim != 1 or (dtype.names is None and dtype.kind not in "mMSVUOT"):
        return None
    if numbers_of(dtype) is not None or of_strangers(dtype):
        return None  # of ml_dtypes, whose kind is V, too
    if isinstance(array, np.ma.MaskedArray) and _masked(array):
        return None  # as a tensor it is refused, and told what to do
    if dtype.names is None:
        return Table(name, [""], [single(array.view(np.ndarray), name)], len(array), single=True, obj=array)
    rows = _Rows(array.data if isinstance(array, np.ma.MaskedArray) else array)
    columns = [rows.top(field, name) for field in dtype.names]
    return Table(name, list(dtype.names), columns, len(array), obj=array)


def _masked(array: Any) -> bool:
    mask = np.ascontiguousarray(np.ma.getmaskarray(array))  # type: ignore[no-untyped-call]
    return bool(mask.view(np.bool_).any())


class _Rows:
    """Records, and the columns that have been made of them.

    All fields that were asked about before the first column is wanted are taken apart
    together: each record passes through the cache once, and not once a field.
    """

    def __init__(self, records: Array) -> None:
        self.records = records
        # Scaled columns of FITS files, say, are shown otherwise than they lie there.
        given = record_source(records)
        self.views = {name: given.array[name] for name, _, _ in parts(records.dtype)} | given.converted
        self.types = {name: dtype for name, dtype, _ in parts(records.dtype)}
        for name, shown in given.converted.items():
            self.types[name] = np.dtype((shown.dtype, shown.shape[1:]))
        self.wanted: dict[str, None] = {}
        self.made: dict[str, Any] = {}

    def column(self, name: str) -> Any:
        """Return a field's column, or its columns if it is a record."""
        if name not in self.made:
            self.wanted[name] = None
            # A view of some fields; another thread may have made them too, which is no harm.
            fields = [n for n in self.wanted if n not in self.made]
            self.made.update(aos_to_soa(self.records, fields=fields, copy=True))
        return self.made[name]

    def top(self, field: str, name: str) -> Column:
        view, length = self.views[field], len(self.records)
        dtype = self.types[field]
        if dtype.hasobject and (dtype.base.names is not None or dtype.subdtype is not None):
            why = "holds Python objects inside a record or a sub-array"
            error = UnsupportedConversionError("", why, "pick other fields with columns=[...]")
            return RefusedColumn(name, length, error)
        if dtype.hasobject:
            return ObjectColumn(name, length, lambda: view, OBJECTS)
        return _column(
            partial(self.column, field), lambda: self.wanted.setdefault(field), view, dtype, length, name
        )


def _column(
    made: Callable[[], Any],
    want: Callable[[], None],
    view: Array,
    dtype: np.dtype[Any],
    length: int,
    name: str,
) -> Column:
    """Return a field as a column.

    Parameters
    ----------
    made : callable
        Returns the contiguous column, or the dict of a record's: of any shape, `length` in all.
    want : callable
        To be told that the field will be asked for.
    view : ndarray
        The field among the records.
    dtype : dtype
        One row's, of which a sub-array is a part.
    length : int
        Rows: those of the table times the elements of the sub-arrays around.
    name : str
        What messages call it.
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        numbers = numbers_of(base)
        if numbers is not None and _plain(numbers.name).kind == "unknown":
            # Arrow lacks them, and some tensors have them: they need be no lists of lists.
            return _leaf(made, want, view, base, (length, *shape), name)
        column = _column(made, want, view, base, length * prod(shape), name)
        for i in reversed(range(len(shape))):
            column = ListColumn(column, shape[i], length * prod(shape[:i]))
        return column
    if dtype.names is None:
        return _leaf(made, want, view, dtype, (length,), name)
    columns = [
        _column(partial(_part, made, part), want, view[part], inner, length, name)
        for part, inner, _ in parts(dtype)
    ]
    return StructColumn(columns, dtype.names, length, name)


def _part(made: Callable[[], dict[str, Any]], name: str) -> Any:
    return made()[name]


def _leaf(
    made: Callable[[], Array],
    want: Callable[[], None],
    view: Array,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    name: str,
) -> Column:
    standard = numbers_of(dtype)
    if standard is not None:
        column = _made(lambda: made().reshape(shape), shape, standard, None, name, want)
        if dtype.isnative and view.shape == shape:
            column.in_place = _strided(view, standard, name)
        return column
    native = dtype.newbyteorder("=")
    if native.kind == "U":
        # Text is read and written anew in any case: from the rows themselves.
        text = ObjectColumn(name, shape[0], lambda: view.reshape(shape).astype(native), no_text(native))
        text.field = Field("u")
        return text
    if native.kind in "mM":

        def look() -> Array:
            return view.reshape(shape)

        return times(lambda: made().reshape(shape), look, native, shape[0], name, (INTERLEAVED,), want)
    if native.kind in "SV" and native.itemsize and not of_strangers(native):
        wide = (*shape, native.itemsize)
        raw = _made(lambda: _bytes(made().reshape(shape)), wide, _BYTE, binary_field(native), name, want)
        raw.refusal = no_text(native)
        return raw
    error = UnsupportedConversionError(
        "", f"is {dtype}, which no other framework has", "cast it, x.astype('float64'), or leave it out"
    )
    return RefusedColumn(name, shape[0], error)


def _strided(view: Array, dtype: DType, name: str) -> TensorColumn:
    """Return a field where it lies among the records."""
    readonly = not view.flags.writeable
    place = StridedView(address(view), view.shape, view.strides, dtype, HOST, readonly, view)
    return TensorColumn(Source(name, place, place.numpy, "buffer", obj=view))


def _bytes(array: Array) -> Array:
    return array.view(np.uint8).reshape(*array.shape, array.dtype.itemsize)


def _made(
    host: Callable[[], Array], shape: tuple[int, ...], dtype: DType, field: Field | None, name: str, want: Any
) -> FieldColumn:
    view = StridedView(0, shape, contiguous_strides(shape, dtype.itemsize), dtype, HOST, False, host)
    return FieldColumn(Source(name, view, host, "buffer", (INTERLEAVED,), obj=view), field, want=want)


class StructColumn(Column):
    """A record in a record."""

    def __init__(self, parts: list[Column], names: tuple[str, ...], length: int, name: str) -> None:
        self.name, self.length, self.reasons, self._parts = name, length, (INTERLEAVED,), parts
        children = [replace(_field_of(part), name=label) for part, label in zip(parts, names, strict=True)]
        self.field: Field = Field("+s", children=tuple(children))

    @property
    def null_count(self) -> int:
        return 0

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)

    def child(self, index: int = 0) -> Column:
        return self._parts[index]

    def arrow_reasons(self) -> list[Reason]:
        found = dict.fromkeys(self.reasons)
        for part, field in zip(self._parts, self.field.children, strict=True):
            try:
                found |= dict.fromkeys(part.arrow_reasons())
            except UnsupportedConversionError as error:
                error.why = f"field {field.name!r}: {error.why}"
                raise
        return list(found)

    def arrow(self) -> Any:
        return _hub().nested(self.field, [part.arrow() for part in self._parts], self.length)

    def extents(self) -> Iterator[tuple[int, int]]:
        return iter(())


class ListColumn(Column):
    """A sub-array in each record: lists of one length."""

    def __init__(self, values: Column, size: int, length: int) -> None:
        self.name, self.length, self.reasons, self._values = values.name, length, (INTERLEAVED,), values
        inner = replace(_field_of(values), name="item")
        if values.field is None:
            values.field = inner  # elements are asked for theirs, where a column of numbers has none
        self.field: Field = Field(f"+w:{size}", children=(inner,))

    @property
    def null_count(self) -> int:
        return 0

    @property
    def nbytes(self) -> int:
        return self._values.nbytes

    def child(self, index: int = 0) -> Column:
        return self._values

    def arrow_reasons(self) -> list[Reason]:
        return list(dict.fromkeys([*self.reasons, *self._values.arrow_reasons()]))

    def arrow(self) -> Any:
        return _hub().nested(self.field, [self._values.arrow()], self.length)

    def extents(self) -> Iterator[tuple[int, int]]:
        return iter(())


def _field_of(column: Column) -> Field:
    if column.field is not None:
        return column.field
    source: Source | None = getattr(column, "_source", None)
    return Field("unknown") if source is None else _plain(source.view.dtype.name)


def _plain(dtype: str) -> Field:
    try:
        return Field.of(dtype)
    except KeyError:
        return Field(dtype)  # complex numbers, say, which Arrow has no format for


def _hub() -> Any:
    from zerocopy import registry

    hub = registry.by_name("pyarrow")
    hub.module()
    return hub
