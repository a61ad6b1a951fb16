"""Plans for tables and columns: the counterpart of :mod:`zerocopy._engine.planner` for tensors."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any

from zerocopy import registry
from zerocopy.errors import Fix, UnsupportedConversionError, ZeroCopyError
from zerocopy.plan import Plan
from zerocopy.request import Request
from zerocopy.source import Source
from zerocopy.tables import to_tables, to_tensors
from zerocopy.tables.casting import cast_columns
from zerocopy.tables.column import Columns, RefusedColumn, Table
from zerocopy.tables.labels import copy_required, key, listed, positions, run
from zerocopy.tables.options import is_encoded
from zerocopy.tables.tensor_column import table_of_tensor

#: Columns of a 2-D tensor that are more likely the elements of vectors.
_WIDE = 64
#: The feature that a framework lacks if ``Framework.options`` does not have the option.
_LACKING = {"index": "labels of rows", "connection": "connections"}


def make(description: Source | Table, request: Request) -> Plan:
    """Return the plan of a table, a column or an array.

    Raises
    ------
    ZeroCopyError
        As ``convert`` raises; the caller sets the first part of the message.
    """
    labels = None if isinstance(request.index, bool) else request.index
    options = {"index": labels, "connection": request.connection}
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in request.target.options:
            why = f"{request.target.name} has no {_LACKING[name]}"
            raise UnsupportedConversionError("", why, code="option-value", fixes=[Fix(options={name: None})])
    table = _as_table(description, request)
    if given:
        table = replace(table, options=given)
    if request.nulls is not None:
        from zerocopy.tables import rows

        request = rows.split(request)
    if table.read is not None and not _takes_unread(table, request):
        return _unread(table, request)
    return _plan_columns(table, request)


def _plan_columns(table: Table, request: Request, unread: bool = False) -> Plan:
    """Plan a table that has been read; with `unread`, its columns have types and no memory."""
    chosen = select(table, request.columns)
    if request.validate and not unread:
        from zerocopy.tables import content

        content.check(chosen)
    if (labels := table.options.get("index")) is not None and not unread:
        _check_labels(labels, table)
    if request.index is False or labels is not None:
        if request.columns is None and (unnamed := request.target.unnamed_index(chosen.metadata)):
            chosen = _at(chosen, [i for i, label in enumerate(chosen.labels) if str(label) not in unnamed])
        chosen = replace(chosen, metadata=_metadata_of(chosen.metadata, ()))
    keeps_columns = _keeps_columns(request)
    is_table = keeps_columns or request.layout not in (None, "columns")
    if (is_table and not request.target.has_dimensions) or request.drop is not None:
        _check_rows(chosen)
    if not keeps_columns or request.drop is not None:
        _check_keys(table, request)
    by_column = isinstance(request.nulls, Mapping) or isinstance(request.encode, Mapping)
    is_uniform = request.layout in (None, "columns") and not (by_column or request.cast or request.drop)
    if request.is_trial and is_uniform and not (keeps_columns or table.single):
        to_tensors.check_table(chosen, request)
        with suppress(ZeroCopyError):  # the plan of all columns names each that is refused
            return _plan_chosen(chosen.distinct(), request, keeps_columns, unread)
    return _plan_chosen(chosen, request, keeps_columns, unread)


def _plan_chosen(chosen: Table, request: Request, keeps_columns: bool, unread: bool) -> Plan:
    """Plan the columns that ``columns=`` has selected, after checks of the options."""
    if request.drop is not None or (request.nulls is not None and not keeps_columns):
        from zerocopy.tables import rows

        chosen = rows.resolve(chosen, request, unread)
    if is_encoded(request) and not keeps_columns:
        from zerocopy.tables import encoding

        chosen = encoding.encode_columns(chosen, request, unread)
    elif not keeps_columns and not _is_unchanged(chosen, request):
        chosen = chosen.dense(request.lists in ("pad", "ragged"))
    if request.cast is not None:
        chosen = cast_columns(chosen, request, keeps_columns, unread)
    if keeps_columns:
        return to_tables.plan(chosen, request)
    return to_tensors.plan(chosen, request)


def _is_unchanged(table: Table, request: Request) -> bool:
    """Whether `convert` returns an array of objects itself."""
    target = request.target
    is_own = target.has_records and target.owns(type(table.obj)) and target.is_native(table.obj)
    return is_own and request.cast is None and not request.of_tables


def _check_keys(table: Table, request: Request) -> None:
    """Refuse keys of the dicts of ``nulls=`` and ``encode=`` that no column has as its label."""
    for name in ("nulls", "encode"):
        given = getattr(request, name) if name == "encode" or request.drop is None else request.drop
        if not isinstance(given, Mapping):
            continue
        places = positions(table.labels)
        if not (unknown := [x for x in given if key(x) not in places]):
            continue
        if table.single:
            label = table.labels[0]
            column = "has no name" if label == "" else f"is called {label!r}"
            right = {label: given[unknown[-1]]} if len(given) == 1 else {}
        else:
            column = f"is one of {listed(list(table.labels))}"
            right = {x: value for x, value in given.items() if key(x) in places}
            right = {near[0]: given[x] for x in unknown if (near := _near(x, table.labels))} | right
        why = f"{name}= has the key {listed(unknown)}, and the column {column}"
        fixes = [Fix(options={name: right or (True if name == "encode" else None)})]
        raise UnsupportedConversionError("", why, code="unknown-name", fixes=fixes)


def _check_labels(labels: Any, table: Table) -> None:
    if len(labels) != table.length:
        why = f"index= has length {len(labels):,}, but the object has {table.length:,} rows"
        fixes = [Fix(options={"index": None}, effect="gives the default index")]
        raise UnsupportedConversionError("", why, code="different-lengths", fixes=fixes)


def _as_table(description: Source | Table, request: Request) -> Table:
    """Return an array as a table; refuse ``names=`` for a table, and options for tables without one."""
    names, target = request.names, request.target
    if isinstance(description, Table):
        if names is not None:
            why = "names= labels a tensor's columns, and a table's columns have names"
            fixes = [Fix(options={"names": None})]
            raise UnsupportedConversionError("", why, code="option-value", fixes=fixes)
        return description
    if names is None and target.kind != "table":
        passed = ", ".join(f"{name}=" for name in request.of_tables)
        why = f"{passed} applies to tables only, and the object is a tensor"
        fixes = [Fix(options=dict.fromkeys(request.of_tables))]
        raise UnsupportedConversionError("", why, code="option-value", fixes=fixes)
    if not target.tables:
        why = f"{target.name} has no names for columns"
        fixes = [Fix(options=dict.fromkeys(request.of_tables))]
        raise UnsupportedConversionError("", why, code="option-value", fixes=fixes)
    table = table_of_tensor(description, names)
    if len(table.columns) > _WIDE:
        call = f'zc.convert({{"emb": x}}, "{target.name}")'
        table.warnings = (f"it has {len(table.columns):,} columns; {call} makes one column of its rows",)
    return table


def _keeps_columns(request: Request) -> bool:
    """Whether the result is a table; ``layout=`` requests tensors if the framework has them."""
    layout, target = request.layout, request.target
    if layout not in (None, "columns") and target.kind == "table":
        why = f"layout={layout!r} applies to tensors, and {target.name} has tables only"
        fixes = [Fix(options={"layout": None})]
        raise UnsupportedConversionError("", why, code="option-value", fixes=fixes)
    if target.kind == "column":  # nulls=, encode=, layout= and dtype= request tensors
        return request.cast is None and not request.of_tables.keys() - {"columns", "index"}
    return target.tables and (layout is None or target.kind == "table")


def _check_rows(table: Table) -> None:
    """Refuse variables that are not columns of one table: other dimensions, or several."""
    if table.has_rows:
        return
    by_dims: dict[tuple[Hashable, ...], list[Hashable]] = {}
    for label, column in zip(table.labels, table.columns, strict=True):
        if column.dims is not None:
            by_dims.setdefault(column.dims, []).append(label)
    each = "; ".join(f"{listed(labels)} has {dims}" for dims, labels in by_dims.items())
    flat = [labels for dims, labels in by_dims.items() if len(dims) == 1]
    fixes = [Fix(options={"columns": max(flat, key=len)})] if flat else []
    fixes.append(Fix('zc.convert({x}, "numpy")', "gives a dict of arrays", {"columns": None}))
    why = f"the columns of a table have one dimension and the same rows, and these dimensions differ: {each}"
    raise UnsupportedConversionError("", why, code="different-lengths", fixes=fixes)


def _takes_unread(table: Table, request: Request) -> bool:
    """Whether the target owns the unread table, and keeps its columns unread."""
    is_kept = table.read_reasons and table.columns and not table.single
    return bool(is_kept) and request.target.owns(type(table.obj))


def _unread(table: Table, request: Request) -> Plan:
    """Plan a stream or a query, whose types are known before it is read, but not its memory."""
    if any(isinstance(column, RefusedColumn) for column in table.columns):  # their types are not known yet
        table = replace(table, labels=[], columns=[], index=0)
    of_columns = [reason for column in table.columns for reason in column.reasons]
    reasons = tuple(dict.fromkeys((*table.read_reasons, *of_columns)))
    if request.copy is False and reasons:
        raise copy_required({"": list(reasons)})
    consequence = "it can be read once, and is used up" if table.once else "reading runs it"
    warnings: tuple[str, ...] = (f"the copied bytes are known only after reading ({consequence})",)
    if table.columns:  # refuse by type before a query runs or a stream is used up
        warnings += _plan_columns(replace(table, read=None, obj=None), request, unread=True).warnings
    # The schema of a stream without __arrow_c_schema__ is not known here.
    columns = f" of {len(table.columns)} columns" if table.columns else ""
    return Plan(
        f"{table.name}{columns}",
        request.target.name,
        steps=("read it", "convert the result"),
        reasons=reasons,
        warnings=warnings,
        unread=True,
        run=lambda: _read(table, request),
    )


def _read(table: Table, request: Request) -> object:
    """Read a stream or run a query, and convert the result; an error names a stream that can be read once."""
    assert table.read is not None
    whole = None
    try:
        whole = table.read()
        plan = make(whole, request)
        if whole.read is None:
            return run(plan)
    except ZeroCopyError as error:
        if table.once and not error.preface:  # an exporter's own conversion has it already
            action = "read" if whole is not None and whole.read is None else "requested"
            why = f"{error.why}; the stream has been {action}, which many streams allow once"
            error.preface = "open the stream again, then: "
            error.with_context(why=why, remedy=f"{error.preface}{error.remedy}")
        raise
    return run(plan)  # the stream is open, and its types are known


# -- columns= -------------------------------------------------------------------


def select(table: Table, labels: Iterable[Hashable] | None) -> Table:
    """Return the table with the columns of those labels, in that order; all for None.

    Raises
    ------
    UnsupportedConversionError
        No column has one of the labels, or several columns have it.
    """
    if labels is None:
        return replace(table, columns=table.columns.all()) if isinstance(table.columns, Columns) else table
    if table.single:
        why = "columns= selects from a table, and the object is one column"
        fixes = [Fix(options={"columns": None})]
        raise UnsupportedConversionError("", why, code="option-value", fixes=fixes)
    labels = list(labels)
    places = positions(table.labels)
    return _at(table, [_position(table.labels, places, label, labels) for label in labels])


def _at(table: Table, chosen: list[int]) -> Table:
    """Return the table with the columns at those positions."""
    first = len(table.labels) - table.index
    kept, columns = [table.labels[i] for i in chosen], [table.columns[i] for i in chosen]
    return replace(
        table,
        labels=kept,
        columns=columns,
        length=columns[0].length if columns else table.length,  # variables of xarray can differ in length
        metadata=_metadata_of(table.metadata, [str(label) for label in kept]),
        obj=None,
        # Row labels are the last columns. Those that are still last after the selection remain so.
        index=len(list(takewhile(lambda i: i >= first, reversed(chosen)))),
    )


def _position(
    labels: Sequence[Hashable],
    places: dict[Hashable, list[int]],
    label: Hashable,
    wanted: Sequence[Hashable],
) -> int:
    """Return the position of the one column with a label."""
    here = places.get(key(label), [])
    if len(here) == 1:
        return here[0]
    if here:
        why = f"{len(here)} columns of the table are called {label!r}"
        remedy = f"rename them, or choose from {listed(labels)}"
        raise UnsupportedConversionError("", why, remedy, code="duplicate-names")
    near = _near(label, labels)
    why = f"no column of the table is called {label!r}"
    why += f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    named = (
        [near[0] if x == label else x for x in wanted] if near else [x for x in wanted if key(x) in places]
    )
    fixes = [Fix(options={"columns": named})] if named and len({*named}) == len(named) else []
    fixes.append(Fix(options={"columns": None}, effect="takes all columns"))
    remedy = "" if near else f"choose from {listed(labels)}"
    raise UnsupportedConversionError("", why, remedy, code="unknown-name", fixes=fixes)


def _near(label: Hashable, labels: Sequence[Hashable]) -> list[str]:
    """Return the labels that resemble one that no column has, the most similar first."""
    import difflib

    return difflib.get_close_matches(str(label), [x for x in labels if isinstance(x, str)], n=3)


def _metadata_of(metadata: dict[bytes, bytes], labels: list[str] | tuple[()]) -> dict[bytes, bytes]:
    """Return a schema's metadata for the columns that are kept: each framework adapts its own entry."""
    for entry in metadata:
        owner = registry.by_metadata_key(entry)
        if owner is not None:
            metadata = owner.select_metadata(metadata, labels)
    return metadata
