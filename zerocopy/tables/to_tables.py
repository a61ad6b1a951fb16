"""From columns to a framework that has tables: it says of each column whether it aliases it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zerocopy.dtype import DType
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.plan import Plan
from zerocopy.source import Source
from zerocopy.tables.column import Column, Table
from zerocopy.tables.refusals import each, required
from zerocopy.tables.request import Request
from zerocopy.tables.summary import paths, total


def plan(table: Table, request: Request) -> Plan:
    """Return the plan of a table or a column for a framework that has tables."""
    target, options = request.target, request.options
    for name in ("nulls", "encode"):
        if getattr(options, name) is not None:
            raise UnsupportedConversionError(
                "",
                f"{name}= is for tensors, and {target.name} has nulls and types of its own",
                "leave it out",
            )
    found = each(table, lambda label, path, column: target.column_reasons(column))
    for path, why in zip(paths(table), target.table_reasons(table), strict=True):
        found[path] = [*found[path], *why]
    reasons = {label: list(why) for label, why in found.items()}
    if request.writable and target.mutable:
        for label, column in zip(paths(table), table.columns, strict=True):
            if not reasons[label] and target.guards_writes(column):
                reasons[label].append(
                    Reason("writable=True was asked and the column's memory is immutable", "leave it out")
                )
    if request.copy is False and any(reasons.values()):
        raise required(reasons)
    copied = {label: bool(why) or request.copy is True for label, why in reasons.items()}
    asked = table
    if request.copy is True or request.writable:
        columns = [
            # Whole even where the target has reasons of its own: it may copy a part (offsets, codes).
            Copied(column) if copied[label] and (request.copy is True or not found[label]) else column
            for label, column in zip(paths(table), table.columns, strict=True)
        ]
        table = replace(table, columns=columns, obj=None)
    leaves = {
        label: _leaf(label, column, target, reasons[label], copied[label])
        for label, column in zip(paths(table), table.columns, strict=True)
    }
    run = (lambda: target.from_column(table)) if table.single else (lambda: target.from_table(table))
    # Of the columns as they came: one that is copied has no memory to look at yet.
    warnings = target.table_warnings(asked)
    if not all(copied.values()):
        warnings += target.alias_warnings(asked)
    return total(table, target, leaves, run, warnings)


class Copied(Column):
    """A column whose memory is copied before anybody gets it."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.name, self.field, self.length = column.name, column.field, column.length
        self.reasons = (*column.reasons, Reason("a copy was asked for", ""))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._column, name)

    @property
    def nbytes(self) -> int:
        return self._column.nbytes

    @property
    def null_count(self) -> int:
        return self._column.null_count

    @property
    def source(self) -> Source | None:
        """The tensor behind the column, if there is one, copied."""
        source: Source | None = getattr(self._column, "source", None)
        if source is None:
            return None
        kept = source
        return replace(kept, host=lambda: kept.host().copy())

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        kept = self._column.values(dtype, shape)
        return replace(kept, host=lambda: kept.host().copy())

    def mask(self) -> Source:
        return self._column.mask()

    def arrow(self) -> Any:
        from zerocopy import registry

        return registry.by_name("pyarrow").copied(self._column.arrow())  # type: ignore[attr-defined]


def _leaf(label: str, column: Column, target: Framework, reasons: list[Reason], copied: bool) -> Plan:
    size = column.nbytes if column.length else 0  # without rows there may be an offset
    return Plan(
        f"{label} {column.field or ''}".rstrip(),
        target.name,
        zero_copy=bool(size) and not copied,
        copied_bytes=size if copied else 0,
        protocol="arrow",
        reasons=tuple(reasons) or ((Reason("copy=True was asked", ""),) if copied else ()),
    )
