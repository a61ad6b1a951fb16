"""``nulls=`` for the rows of a table: which values are missing, and ``"drop"``, which leaves rows out.

Both are resolved once for all columns, before they are encoded, cast and decoded.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import compress
from typing import Any

import numpy as np

from zerocopy.dtype import DType
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.protocols import arrow_c
from zerocopy.request import Request
from zerocopy.source import Array, Source
from zerocopy.strided_view import contiguous_strides
from zerocopy.tables import memory, placement
from zerocopy.tables.arrow_column import ArrowColumn, UnreadColumn
from zerocopy.tables.column import ArrowArray, Column, RefusedColumn, Table
from zerocopy.tables.hub import hub, new_memory
from zerocopy.tables.labels import map_columns
from zerocopy.tables.nulls import DROPPED, parse
from zerocopy.tables.object_column import ObjectColumn
from zerocopy.tables.tensor_column import Marks, PaddedColumn, TensorColumn

_COMPUTED = Reason("the mask of the rows that remain is new", code="computed-mask")
#: Kinds whose nulls can be those of the values that the rows refer to, and not in the column's bitmap.
_LOGICAL = ("run_end_encoded", "union")
#: Policies of ``nulls=`` that treat missing values, such as NaN of pandas, as nulls.
_COUNTING = ("mask", "fill", "drop")
#: Kinds of which the filter keeps memory of the source: the text of views, the items of list views.
_SHARING = ("string_view", "binary_view", "list_view", "union", "unknown")


class Rows:
    """The rows of a table that remain.

    Attributes
    ----------
    keep : ndarray
        True for each row that remains.
    count : int
        Their number.
    """

    def __init__(self, keep: Array) -> None:
        self.keep = keep
        self.count: int = int(np.count_nonzero(keep))

    @cached_property
    def places(self) -> Array:
        """The positions of the rows that remain."""
        return np.flatnonzero(self.keep)

    def of(self, array: Array) -> Array:
        """Return the rows of an array that remain, as a copy."""
        # Positions are 1.2 to 7 times as fast as a mask. With `clip`, NumPy needs no temporary buffer.
        if array.dtype.hasobject:
            return array.take(self.places, axis=0)
        fresh = new_memory((self.count, *array.shape[1:]), array.dtype)
        return array.take(self.places, axis=0, out=fresh, mode="clip")


def split(request: Request) -> Request:
    """Return the request with ``"drop"`` in `Request.drop` alone; tables keep their other nulls."""
    nulls = request.nulls
    if isinstance(nulls, Mapping):
        rest: Any = {label: value for label, value in nulls.items() if not parse(value, None).drops} or None
    else:
        rest = None if parse(nulls, None).drops else nulls
    if rest is nulls or rest == nulls:
        return request
    given = {name: value for name, value in request.of_tables.items() if name != "nulls"}
    if rest is not None:
        given["nulls"] = rest
    return replace(request, nulls=rest, drop=nulls, of_tables=given)


def resolve(table: Table, request: Request, unread: bool = False) -> Table:
    """Return the table with all values that count as missing as nulls, without the rows that are left out.

    With `unread`, the columns have types and no memory.

    Raises
    ------
    UnsupportedConversionError
        The nulls of a column are not known, or it is in the memory of a device.
    """
    if request.drop is not None and not unread:
        table = _dropped(table, request)
    if any(_decides(nulls) for nulls in (request.drop, request.nulls)):
        table = replace(table, missing_warnings=())
    option = request.nulls
    if option is None or not any(column.missing is not None for column in table.columns):
        return table
    columns = [
        column.missing() if counts_missing(column, option, label) and column.missing is not None else column
        for label, column in zip(table.labels, table.columns, strict=True)
    ]
    return replace(table, columns=columns, obj=None)


def counts_missing(column: Column, nulls: object, label: Hashable) -> bool:
    """Whether values of a column, such as NaN of pandas, count as nulls with the option ``nulls=``.

    NaN stays NaN with ``nulls="nan"``, and without ``nulls=``.
    """
    if nulls is None or column.missing is None:
        return False
    return parse(nulls, label).mode in _COUNTING


def _decides(nulls: object) -> bool:
    """Whether ``nulls=`` says for each column that a value which counts as missing is a null."""
    return not isinstance(nulls, Mapping) and parse(nulls, None).mode in _COUNTING


def _dropped(table: Table, request: Request) -> Table:
    """Return the table without the rows that have a null in a column of ``nulls="drop"``."""
    by_label = isinstance(request.drop, Mapping)
    first_index = len(table.columns) - table.index
    places = {
        place
        for place, label in enumerate(table.labels)
        if parse(request.drop, label).drops and (by_label or place < first_index)
    }
    chosen = replace(
        table,
        labels=[table.labels[place] for place in sorted(places)],
        columns=[table.columns[place] for place in sorted(places)],
        index=0,
    )
    keep = np.ones(table.length, np.bool_)
    map_columns(chosen, lambda label, path, column: _leave_out_nulls(keep, column))
    if keep.all():
        return table
    rows = Rows(keep)
    columns = map_columns(table, lambda label, path, column: _kept(column, rows))
    for place, column in enumerate(columns.values()):
        if place in places:
            _without_nulls(column)
    options = table.options
    if (labels := options.get("index")) is not None:
        own = labels.take(rows.places) if hasattr(labels, "take") else list(compress(labels, rows.keep))
        options = {**options, "index": own}
    return replace(table, columns=list(columns.values()), length=rows.count, options=options, obj=None)


def _leave_out_nulls(keep: Array, column: Column) -> None:
    """Set False in `keep` for each row that is null."""
    if column.missing is not None:
        column = column.missing()
    if isinstance(column, ObjectColumn) and column.field is None:  # arrays, for example
        column = column.dense()
    if isinstance(column, (RefusedColumn, UnreadColumn)):
        column.arrow_reasons()  # raises: its nulls are not known
    if isinstance(column, ArrowColumn) and any(map(_has_logical_nulls, column.chunks)):
        nulls: Array = np.asarray(column.arrow().is_null())
    elif column.null_count:
        nulls = placement.fetch(column.mask())
    else:
        return
    np.greater(keep, nulls, out=keep)  # keep and not nulls


def _has_logical_nulls(chunk: arrow_c.Memory) -> bool:
    """Whether a row can be null although the bitmap of the chunk does not say so."""
    kind = chunk.field.kind
    if kind == "dictionary":
        return chunk.dictionary is not None and memory.null_count(chunk.dictionary) > 0
    return kind in _LOGICAL


def _kept(column: Column, rows: Rows) -> Column:
    """Return a column of the rows that remain, which are copied when they are read."""
    part: Column
    device = column.source.view.device if isinstance(column, TensorColumn) else column.device
    if not device.is_host:
        why = f"it is on {device}, and rows are left out on the host"
        fixes = [Fix(action="drop-nulls", effect="leaves them out")]
        raise UnsupportedConversionError("", why, code="other-device", fixes=fixes)
    if isinstance(column, (RefusedColumn, UnreadColumn)):
        part = copy.copy(column)
        part.length = rows.count
    elif isinstance(column, ObjectColumn):
        assert column.refusal is not None
        part = ObjectColumn(column.name, rows.count, partial(_objects, column, rows), column.refusal)
    elif isinstance(column, TensorColumn) and (column.field is None or column.field.kind != "bool"):
        part = _tensor(column, rows)
    else:
        part = KeptColumn(column, rows)
    part.name, part.dims = column.name, column.dims
    part.refusal = column.refusal
    part.reasons = (*column.reasons, DROPPED)
    if (missing := column.missing) is not None:
        part.missing = lambda: _kept(missing(), rows)
    if column.of_rows is not None:
        column.of_rows(part, rows.places)
    return part


def _objects(column: ObjectColumn, rows: Rows) -> Array:
    return rows.of(column.objects())


def _tensor(column: TensorColumn, rows: Rows) -> Column:
    source, field = column.source, column.field
    shape = (rows.count, *source.view.shape[1:])
    strides = contiguous_strides(shape, source.view.dtype.itemsize)
    view = replace(source.view, ptr=0, shape=shape, strides=strides, readonly=False, owner=None)
    part = Source(
        source.name, view, lambda: rows.of(source.host()), source.protocol, source.reasons, obj=view
    )
    part.refusal = source.refusal
    if isinstance(column, PaddedColumn):
        return PaddedColumn(part, field)
    categories = None
    if field is not None and field.kind == "dictionary":  # a copy, as all memory of a column with reasons
        words = column.dictionary()
        categories = _kept(words, Rows(np.ones(words.length, np.bool_)))
    nulls = column.nulls
    marks = None if nulls is None else Marks(lambda: rows.of(nulls), lambda marked: marked, _COMPUTED)
    return TensorColumn(part, field, marks, categories)


def _without_nulls(column: Column) -> None:
    """Set that a column has no nulls, without reading it."""
    column.missing = None
    if isinstance(column, TensorColumn):
        column._mask = column.nulls = None
        column.null_count = 0
    elif isinstance(column, KeptColumn):
        column.nullable = False


class KeptColumn(ArrowColumn):
    """The rows of a column that remain, in Arrow's memory; its numbers are read when the plan runs."""

    #: Whether rows that remain can be null.
    nullable = True

    def __init__(self, column: Column, rows: Rows) -> None:
        assert column.field is not None
        self._column, self._rows, self._bytes = column, rows, column.nbytes
        super().__init__(column.name, column.field, self._read_rows, rows.count, device=column.device)

    @cached_property
    def _array(self) -> ArrowArray:
        array = _filtered(self._column.arrow(), self._rows, self.nullable)
        if not self.nullable and self.field.kind == "dictionary":
            array = hub().module().chunked_array(map(_without_null_words, array.chunks), array.type)
        shares = any(part.dictionary is not None or part.kind in _SHARING for part in self.field.walk())
        return hub().copied(array) if shares else array

    def _read_rows(self) -> list[arrow_c.Memory]:
        return [arrow_c.read_array(chunk) for chunk in getattr(self._array, "chunks", [self._array])]

    def arrow(self) -> ArrowArray:
        return self._array

    def arrow_reasons(self) -> list[Reason]:
        return list(dict.fromkeys([*self._column.arrow_reasons(), *self.reasons]))

    @property
    def null_count(self) -> int:
        return super().null_count if self.nullable else 0

    @property
    def nbytes(self) -> int:
        width = self.field.width
        # Of text and lists, without reading them: each row as many bytes as before.
        return width * self.length if width else self._bytes * self.length // max(self._column.length, 1)

    def _blocks(self, dtype: DType, shape: tuple[int, ...], buffer: int) -> Source:
        if buffer != 1 or self.field.kind == "list_view":
            return super()._blocks(dtype, shape, buffer)
        read = super()._blocks
        return self._source(dtype, (self.length, *shape), [], lambda: read(dtype, shape, buffer).host())


def _without_null_words(chunk: ArrowArray) -> ArrowArray:
    """Return a dictionary array without the nulls among its words, to which no row refers."""
    words, kind = chunk.dictionary, chunk.type
    if not words.null_count:
        return chunk
    valid = np.asarray(words.is_valid())
    codes = hub().module().array(np.cumsum(valid) - valid).take(chunk.indices).cast(kind.index_type)
    return type(chunk).from_arrays(codes, hub().take(words, np.flatnonzero(valid)), ordered=kind.ordered)


def _filtered(array: ArrowArray, rows: Rows, nullable: bool) -> ArrowArray:
    pa, kind = hub().module(), array.type
    chunks = list(getattr(array, "chunks", [array]))
    if pa.types.is_primitive(kind) and kind.bit_width >= 8 and not nullable:
        # Arrow's filter takes 3 times as long, also on columns whose nulls are all left out.
        parts = [_numbers(chunk) for chunk in chunks] or [np.empty(0, f"V{kind.bit_width // 8}")]
        values = rows.of(np.concatenate(parts) if len(parts) > 1 else parts[0])
        return pa.Array.from_buffers(kind, rows.count, [None, pa.py_buffer(values)], null_count=0)
    taken = hub().take(array, rows.places)
    return taken if hasattr(taken, "chunks") else pa.chunked_array([taken])


def _numbers(chunk: ArrowArray) -> Array:
    width = chunk.type.bit_width // 8
    start, values = chunk.offset * width, chunk.buffers()[1]
    if not len(chunk):
        return np.empty(0, f"V{width}")
    return np.frombuffer(values, np.uint8)[start : start + len(chunk) * width].view(f"V{width}")
