"""Conversions to frameworks that have tables: the target decides which columns it can alias."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from zerocopy.device import HOST
from zerocopy.dtype import DType
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.plan import Plan
from zerocopy.protocols.array_interface import address, aligned_empty
from zerocopy.protocols.arrow_c import read_array
from zerocopy.protocols.arrow_schema import Field, read_schema
from zerocopy.request import Request
from zerocopy.source import Source
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import ArrowArray, Column, Table
from zerocopy.tables.hub import hub
from zerocopy.tables.labels import combine_plans, copy_required, map_columns, paths
from zerocopy.tables.lists import variable_lists
from zerocopy.tables.tensor_column import TensorColumn

_COPY_TRUE = Reason("copy=True was requested", code="copy-requested")
_IMMUTABLE = Reason(
    "writable=True was requested and the column's memory is immutable",
    code="writable-requested",
    fixes=[Fix(options={"writable": None}, effect="aliases")],
)


def plan(table: Table, request: Request) -> Plan:
    """Return the plan of a table or a column for a framework that has tables."""
    target = request.target
    for name in ("nulls", "encode", "lists"):
        if getattr(request, name) not in (None, "variable"):
            why = f"{name}= applies to tensors, and {target.name} has nulls and types of its own"
            raise UnsupportedConversionError("", why, code="option-value", fixes=[Fix(options={name: None})])
    if request.lists == "variable":
        table = replace(table, columns=[_variable(column) for column in table.columns], obj=None)
    own = map_columns(table, lambda label, path, column: tuple(target.column_reasons(column))).values()
    by_type = [(*why, *more) for why, more in zip(own, target.table_reasons(table), strict=True)]
    reasons = by_type
    if request.writable and target.mutable:
        reasons = [
            (_IMMUTABLE,) if not why and target.guards_writes(column) else why
            for why, column in zip(by_type, table.columns, strict=True)
        ]
    if request.copy is False and any(reasons):
        raise copy_required(dict(zip(paths(table), reasons, strict=True)), table)
    copied = [bool(why) or request.copy is True for why in reasons]
    original = table
    if request.copy is True or request.writable:
        columns = [
            # Copy all of it even if the target has reasons: it may copy only offsets or codes.
            Copied(column) if copies and (request.copy is True or not why) else column
            for copies, why, column in zip(copied, by_type, table.columns, strict=True)
        ]
        table = replace(table, columns=columns, obj=None)
    run = (lambda: target.from_column(table)) if table.single else (lambda: target.from_table(table))
    if not request.for_explain:
        return Plan(f"{table.name} {table.shape}", target.name, run=run)
    leaves = {
        path: _leaf(path, column, target, why, copies)
        for path, column, why, copies in zip(paths(table), table.columns, reasons, copied, strict=True)
    }
    # From the original columns, because a column that is copied has no memory to inspect yet.
    warnings = target.table_warnings(original)
    if not all(copied):
        warnings += target.alias_warnings(original)
    return combine_plans(table, target, leaves, run, warnings)


def _variable(column: Column) -> Column:
    """Return a tensor of several dimensions as a column of lists with offsets; another column unchanged."""
    if not isinstance(column, TensorColumn) or column.field is not None or column.source.view.ndim < 2:
        return column

    view, pa = column.source.view, hub().module()
    is_wide = view.size > np.iinfo(np.int32).max

    @cache
    def arrow() -> ArrowArray:
        return variable_lists(column.arrow(), pa, is_wide)

    # The type is that of one row, so that a plan does not copy the others.
    row = aligned_empty((1, *view.shape[1:]), view.dtype.storage)
    one = replace(view, ptr=address(row), shape=row.shape, strides=row.strides, device=HOST, owner=row)
    first = TensorColumn(Source(column.name, one, lambda: row, obj=row))
    field = read_schema(variable_lists(first.arrow(), pa, is_wide).type.__arrow_c_schema__())
    reasons = column.arrow_reasons()
    return ArrowColumn(column.name, field, lambda: [read_array(arrow())], column.length, arrow, reasons)


def sizes(column: Column, target: Framework, copied: bool) -> tuple[int, int, bool]:
    """Return the bytes of a column that are aliased and copied, and whether a copy is or may be partial."""
    field = column.field
    may_alias = field is not None and not column.reasons and not isinstance(column, Copied)
    if not column.length:  # without rows there may still be an offset, and categories
        return 0, 0, may_alias and field is not None and any(part.dictionary for part in field.walk())
    if not copied:
        held = column.held  # pandas' objects, whose type in Arrow can have no bytes
        return column.nbytes or (0 if held is None else held.nbytes), 0, False
    if hasattr(column, "objects") and field is not None:  # an array is made, of which parts are copied
        return 0, column.nbytes + (target.partial_bytes(column) or (0, 0))[1], False
    if not may_alias or field is None or field.kind in ("number", "bool"):
        return 0, column.nbytes, False
    known = target.partial_bytes(column)
    if known is None or not known[1]:  # no new bytes: text in lists that are all empty
        return 0, column.nbytes, True
    return *known, known[0] > 0


class Copied(Column):
    """A column whose memory is copied before a framework takes it."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.name: str = column.name
        self.field: Field | None = column.field
        self.length: int = column.length
        self.reasons: tuple[Reason, ...] = (*column.reasons, _COPY_TRUE)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._column, name)

    @property
    def nbytes(self) -> int:
        return self._column.nbytes

    @property
    def null_count(self) -> int:
        return self._column.null_count

    @property
    def source(self) -> Source | None:  # type: ignore[override]
        """A copy of the tensor that holds the values; None for a column without one."""
        source = self._column.source
        return None if source is None else _copied(source)

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        return _copied(self._column.values(dtype, shape))

    def mask(self) -> Source:
        return self._column.mask()

    def arrow(self) -> ArrowArray:
        return hub().copied(self._column.arrow())


def _copied(source: Source) -> Source:
    return replace(source, host=lambda: source.host().copy())


def _leaf(path: str, column: Column, target: Framework, reasons: tuple[Reason, ...], copied: bool) -> Plan:
    aliased_bytes, copied_bytes, partial = sizes(column, target, copied)
    view = None if column.source is None else column.source.view
    own = "" if view is None else f"{view.dtype.name} {view.shape if view.ndim > 1 else ''}"
    return Plan(
        f"{path} {column.field or own}".rstrip(),
        target.name,
        zero_copy=bool(aliased_bytes) and not copied,
        copied_bytes=copied_bytes,
        aliased_bytes=aliased_bytes,
        protocol="arrow",
        reasons=reasons or ((_COPY_TRUE,) if copied else ()),
        partial=partial,
    )
