"""From columns to tensors: each is decoded into leaves, and each leaf is planned like any tensor."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from zerocopy.dtype import by_name
from zerocopy.errors import UnsupportedConversionError, ZeroCopyError
from zerocopy.plan import Plan
from zerocopy.strided_view import StridedView
from zerocopy.tables import nulls
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import Decoder, Leaf
from zerocopy.tables.refusals import each
from zerocopy.tables.request import Request
from zerocopy.tables.result import rebuild
from zerocopy.tables.summary import run, total


def plan(table: Table, request: Request) -> Plan:
    """Return the plan of a table or a column for a framework that has tensors."""
    options, target = request.options, request.target
    if not options.said and target.owns(type(table.obj)) and target.is_native(table.obj):
        # Dates, text and records of NumPy's are no tensors, and NumPy's all the same.
        from zerocopy.tables import records

        return records.as_it_is(table, request)
    layout = options.layout or "columns"
    table = _in_place(table, request, layout)
    if layout != "columns" and table.single:
        raise UnsupportedConversionError("", f"layout={layout!r} is for tables, and this is one column", "")
    if layout == "records":
        from zerocopy.tables import records

        return records.plan(table, request)
    if layout.startswith("matrix"):
        from zerocopy.tables import matrix

        return matrix.plan(table, request)
    if not table.single:
        _unique(table)
    trees = decode(table, request)
    plans, steps = planned(table, trees, request)
    if table.single and isinstance(trees[""], Leaf):
        return replace(plans[""], run=steps[""])

    def result() -> Any:
        made = [rebuild(step, lambda act, _: act()) for step in steps.values()]
        return made[0] if table.single else dict(zip(table.labels, made, strict=True))

    beware: tuple[str, ...] = ()
    if table.index and options.index is None and options.columns is None:
        held = ", ".join(map(repr, table.labels[-table.index :]))
        beware = (f"the index comes as {held}: index=False leaves it out",)
    return total(table, target, plans, result, beware)


def _in_place(table: Table, request: Request, layout: str) -> Table:
    """Take fields of records where they lie, if the target can and nothing is gained by columns.

    A strided view of each field is no copy, and each pass over one reads all records. So
    several fields become columns, once, unless copies are refused; one field has nothing to be
    transposed with, and all fields together may be a matrix as they are.
    """
    columns = [column.in_place for column in table.columns if column.in_place is not None]
    if len(columns) < len(table.columns) or not columns or request.copy is True or layout == "records":
        return table
    if layout == "columns" and request.copy is None and len(columns) > 1:
        return table
    views = [column.values(by_name("uint8")).view for column in columns]
    if layout != "columns":
        views = _one_matrix(views)
    if not views or any(request.target.copy_reasons(view) for view in views):
        return table
    return replace(table, columns=columns)


def _one_matrix(views: list[StridedView]) -> list[StridedView]:
    """Return the matrix whose columns fields are, if they are numbers of one type at equal distances."""
    steps = {b.ptr - a.ptr for a, b in pairwise(views)} or {views[0].dtype.itemsize}
    if len({view.dtype for view in views}) > 1 or len(steps) > 1 or any(view.ndim != 1 for view in views):
        return []
    first = views[0]
    return [replace(first, shape=(*first.shape, len(views)), strides=(*first.strides, steps.pop()))]


def planned(table: Table, trees: dict[str, Any], request: Request) -> tuple[dict[str, Plan], dict[str, Any]]:
    """Return each leaf's plan by its path, and each column's tree with what makes its leaves."""
    plans: dict[str, Plan] = {}

    def leaf_step(leaf: Leaf, path: str) -> Callable[[], Any]:
        try:
            made = request.between(leaf.source, None if leaf.made else request.copy)
        except ZeroCopyError as error:
            _, _, inner = path.rpartition("]")
            part = ".".join(name for name in inner.split(".") if name not in ("", "values"))
            if part:  # the offsets of a text's categories, say
                error.why = f"its {part}: {error.why}"
            raise
        plans[path] = made if not leaf.made else replace(made, zero_copy=False, copied_bytes=0)

        def act() -> Any:
            result = run(made)
            return result.view(leaf.temporal) if leaf.temporal else result

        return act

    steps = each(table, lambda label, path, column: rebuild(trees[path], leaf_step, path))
    return plans, steps


def decode(table: Table, request: Request) -> dict[str, Any]:
    """Return each column's tree by its path; one error for all columns that have none."""
    options, target = request.options, request.target

    def tree(label: Hashable, path: str, column: Column) -> Any:
        policy = nulls.parse(options.nulls, label)
        return Decoder(policy, bool(options.encode), target.has_datetime64).decode(column)

    return each(table, tree)


def _unique(table: Table) -> None:
    """Refuse duplicate labels where they are to be the keys of a dict."""
    labels = list(table.labels)
    twice = list(dict.fromkeys(str(label) for label in labels if labels.count(label) > 1))
    if len({*labels}) != len(labels):
        raise UnsupportedConversionError(
            "",
            f"several columns are called {', '.join(map(repr, twice))}, and a dict has each key once",
            "rename them, or pass the columns one by one",
        )
