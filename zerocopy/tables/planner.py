"""Plans for tables and columns: the counterpart of :mod:`zerocopy._engine.planner` for tensors."""

from __future__ import annotations

from dataclasses import replace

from zerocopy.errors import UnsupportedConversionError
from zerocopy.plan import Plan
from zerocopy.tables import pandas_metadata, to_tables, to_tensors
from zerocopy.tables.column import Table
from zerocopy.tables.refusals import each, required
from zerocopy.tables.request import Request
from zerocopy.tables.selection import select
from zerocopy.tables.summary import run


def make(table: Table, request: Request) -> Plan:
    """Return the plan of a table or a column.

    Raises
    ------
    ZeroCopyError
        What ``convert`` raises; the lead of the message is the caller's to fill in.
    """
    if table.read is not None:
        return _unread(table, request)
    if isinstance(request.options.nulls, dict) and not table.single:
        select(table, list(request.options.nulls))  # a name that no column has is a mistake
    chosen = select(table, request.options.columns)
    if request.options.index is False:
        chosen = replace(chosen, metadata=pandas_metadata.selected(chosen.metadata, ()))
    if _keeps_columns(request):
        return to_tables.plan(chosen, request)
    return to_tensors.plan(chosen, request)


def _keeps_columns(request: Request) -> bool:
    """Whether the result is a table; ``layout=`` asks for tensors, where the framework has any."""
    layout, target = request.options.layout, request.target
    if layout not in (None, "columns") and target.kind == "table":
        raise UnsupportedConversionError(
            "", f"layout={layout!r} is for tensors, and {target.name} has tables alone", "leave it out"
        )
    return target.tables and (layout is None or target.kind == "table")


def _unread(table: Table, request: Request) -> Plan:
    """Plan what is known only once it is read: its types are, how it lies is not."""
    if request.copy is False and any(column.reasons for column in table.columns):
        raise required({"": list(table.columns[0].reasons)})
    read = table.read
    assert read is not None
    typed = select(table, request.options.columns) if table.columns else table
    # What no reading can mend is refused before a query runs or a stream is used up.
    if _keeps_columns(request):
        each(typed, lambda label, path, column: request.target.column_reasons(column))
    else:
        to_tensors.planned(typed, to_tensors.decode(typed, request), replace(request, copy=None))
    how = "it can be read once, and is used up" if table.once else "reading runs it"
    reasons = {reason: None for column in table.columns for reason in column.reasons}
    # A stream that is to be read by somebody else has not been asked for its columns.
    columns = f" of {len(table.columns)} columns" if table.columns else ""
    return Plan(
        f"{table.name}{columns}",
        request.target.name,
        steps=("read it", "convert what was read"),
        reasons=tuple(reasons),
        warnings=(f"how much is copied is known when it has been read ({how})",),
        unread=True,
        run=lambda: run(make(read(), request)),
    )
