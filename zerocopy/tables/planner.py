"""Plans for tables and columns: the counterpart of :mod:`zerocopy._engine.planner` for tensors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from itertools import takewhile

from zerocopy import registry
from zerocopy.casting.option import DTypeOption
from zerocopy.errors import UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.plan import Plan
from zerocopy.source import Source
from zerocopy.tables import to_tables, to_tensors
from zerocopy.tables.casting import cast_columns
from zerocopy.tables.column import Table
from zerocopy.tables.decode import decode
from zerocopy.tables.options import DEFAULTS, Options, Request
from zerocopy.tables.summary import copy_required, map_columns, run
from zerocopy.tables.tensor_table import table_of_tensor


def request(
    target: Framework,
    options: Options | None,
    copy: bool | None,
    writable: bool | None,
    plan_array: Callable[[Source, bool | None], Plan],
    cast: DTypeOption | None,
) -> Request:
    """Return the request of a call; without options for tables, with the default ones."""
    return Request(target, DEFAULTS if options is None else options, copy, writable, plan_array, cast)


def make(description: Source | Table, request: Request) -> Plan:
    """Return the plan of a table, a column or an array.

    Raises
    ------
    ZeroCopyError
        As ``convert`` raises; the caller sets the first part of the message.
    """
    table = _as_table(description, request)
    if table.read is not None:
        return _unread(table, request)
    if isinstance(request.options.nulls, dict) and not table.single:
        select(table, list(request.options.nulls))  # refuses a name that no column has
    chosen = select(table, request.options.columns)
    if request.options.index is False:
        chosen = replace(chosen, metadata=_metadata_of(chosen.metadata, ()))
    keeps_columns = _keeps_columns(request)
    if request.cast is not None:
        chosen = cast_columns(chosen, request, keeps_columns)
    if keeps_columns:
        return to_tables.plan(chosen, request)
    return to_tensors.plan(chosen, request)


def _as_table(description: Source | Table, request: Request) -> Table:
    """Return an array as a table; refuse ``names=`` for a table, and options for tables without one."""
    names, target = request.options.names, request.target
    if isinstance(description, Table):
        if names is not None:
            why = "names= labels a tensor's columns, and a table's columns have names"
            raise UnsupportedConversionError("", why, "rename them in the source", code="option-value")
        return description
    if names is None and target.kind != "table":
        passed = ", ".join(f"{name}=" for name in request.options.explicit)
        why = f"{passed} applies to tables only, and the object is a tensor"
        raise UnsupportedConversionError("", why, "leave it out", code="option-value")
    if not target.tables:
        why = f"{target.name} has no names for columns"
        raise UnsupportedConversionError("", why, "leave names out", code="option-value")
    return table_of_tensor(description, names)


def _keeps_columns(request: Request) -> bool:
    """Whether the result is a table; ``layout=`` requests tensors if the framework has them."""
    layout, target = request.options.layout, request.target
    if layout not in (None, "columns") and target.kind == "table":
        why = f"layout={layout!r} applies to tensors, and {target.name} has tables only"
        raise UnsupportedConversionError("", why, "leave layout out", code="option-value")
    return target.tables and (layout is None or target.kind == "table")


def _unread(table: Table, request: Request) -> Plan:
    """Plan a stream or a query, whose types are known before it is read, but not its memory."""
    if request.copy is False and any(column.reasons for column in table.columns):
        raise copy_required({"": list(table.columns[0].reasons)})
    read = table.read
    assert read is not None
    chosen = select(table, request.options.columns) if table.columns else table
    # Refuse by type before a query runs or a stream is used up; there are no values to check yet.
    if request.cast is not None:
        chosen = cast_columns(chosen, request, _keeps_columns(request), unread=True)
    if _keeps_columns(request):
        map_columns(chosen, lambda label, path, column: request.target.column_reasons(column))
    else:
        to_tensors.plan_leaves(chosen, decode(chosen, request), replace(request, copy=None))
    consequence = "it can be read once, and is used up" if table.once else "reading runs it"
    reasons = {reason: None for column in table.columns for reason in column.reasons}
    # The schema of a stream that the hub reads is not known here.
    columns = f" of {len(table.columns)} columns" if table.columns else ""
    return Plan(
        f"{table.name}{columns}",
        request.target.name,
        steps=("read it", "convert the result"),
        reasons=tuple(reasons),
        warnings=(f"the copied bytes are known only after reading ({consequence})",),
        unread=True,
        run=lambda: run(make(read(), request)),
    )


# -- columns= -------------------------------------------------------------------


def select(table: Table, labels: Iterable[Hashable] | None) -> Table:
    """Return the table with the columns of those labels, in that order; all for None.

    Raises
    ------
    UnsupportedConversionError
        No column has one of the labels, or several columns have it.
    """
    if labels is None:
        return table
    if table.single:
        why = "columns= selects from a table, and the object is one column"
        raise UnsupportedConversionError("", why, "leave columns out", code="option-value")
    positions = [_position(list(table.labels), label) for label in labels]
    first = len(table.labels) - table.index
    kept = [table.labels[i] for i in positions]
    return replace(
        table,
        labels=kept,
        columns=[table.columns[i] for i in positions],
        metadata=_metadata_of(table.metadata, [str(label) for label in kept]),
        obj=None,
        # Row labels are the last columns. Those that are still last after the selection remain so.
        index=len(list(takewhile(lambda i: i >= first, reversed(positions)))),
    )


def _position(labels: list[Hashable], label: Hashable) -> int:
    """Return the position of the one column with a label."""
    count = labels.count(label)
    if count == 1:
        return labels.index(label)
    if count:
        why = f"{count} columns of the table are called {label!r}"
        remedy = f"rename them, or choose from {labels}"
        raise UnsupportedConversionError("", why, remedy, code="duplicate-names")
    import difflib

    near = difflib.get_close_matches(str(label), [x for x in labels if isinstance(x, str)], n=3)
    why = f"no column of the table is called {label!r}"
    remedy = f"did you mean {' or '.join(map(repr, near))}?" if near else f"choose from {labels}"
    raise UnsupportedConversionError("", why, remedy, code="unknown-name")


def _metadata_of(metadata: dict[bytes, bytes], labels: list[str] | tuple[()]) -> dict[bytes, bytes]:
    """Return a schema's metadata for the columns that are kept: each framework adapts its own entry."""
    for key in metadata:
        owner = registry.by_metadata_key(key)
        if owner is not None:
            metadata = owner.select_metadata(metadata, labels)
    return metadata
