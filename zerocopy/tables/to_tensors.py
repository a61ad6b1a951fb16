"""Conversions of columns to tensors: a column is decoded into leaves, each planned as a tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from zerocopy import handover
from zerocopy.dtype import by_name
from zerocopy.errors import Fix, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.plan import Plan
from zerocopy.request import MATRIX_ORDERS, MatrixOrder, Request
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Table
from zerocopy.tables.decode import TensorLeaf, Tree, decode
from zerocopy.tables.labels import RENAME, combine_plans, duplicates, listed, map_columns
from zerocopy.tables.result import Masked, rebuild


def plan(table: Table, request: Request) -> Plan:
    """Return the plan of a table or a column for a framework that has tensors."""
    target = request.target
    native = target.has_records and target.owns(type(table.obj)) and target.is_native(table.obj)
    if native and not request.of_tables:
        # NumPy's dates, text and records: not tensors, but the target's own objects.
        from zerocopy.tables import records

        return records.unchanged(table, request)
    layout = request.layout or "columns"
    if table.single and layout == "records":
        raise UnsupportedConversionError(
            "",
            "layout='records' applies to tables only, and the object is one column",
            code="option-value",
            fixes=[Fix(options={"layout": None})],
        )
    layout = "columns" if table.single else layout  # a column is a vector, and a table a matrix
    table = _in_place(table, request, layout)
    if layout == "records":
        from zerocopy.tables import records

        return records.plan(table, request)
    if layout in MATRIX_ORDERS:
        from zerocopy.tables import matrix

        return matrix.plan(table, request)
    if not table.single:
        check_table(table, request)
    trees = decode(table, request)
    plans, steps = plan_leaves(table, trees, request)
    if table.single and isinstance(trees[""], TensorLeaf):
        return plans[""]

    def result() -> object:
        columns = [rebuild(step, lambda act, _: act()) for step in steps.values()]
        return columns[0] if table.single else dict(zip(table.labels, columns, strict=True))

    if not request.for_explain:
        return Plan(f"{table.name} {table.shape}", target.name, run=result)
    warnings: tuple[str, ...] = ()
    if table.index and request.index is None and request.columns is None:
        labels = ", ".join(map(repr, table.labels[-table.index :]))
        warnings = (f"the index is converted too, as {labels}: index=False leaves it out",)
    return combine_plans(table, target, plans, result, warnings)


def _in_place(table: Table, request: Request, layout: str | MatrixOrder) -> Table:
    """Use strided views of record fields if the target takes them and contiguous columns gain nothing.

    Reading one strided field reads all records. Several fields are therefore copied once to
    contiguous columns, unless ``copy=False``; one field, or a matrix of all fields, is not copied.
    """
    columns = [column.in_place for column in table.columns if column.in_place is not None]
    if len(columns) < len(table.columns) or not columns or request.copy is True or layout == "records":
        return table
    if layout == "columns" and request.copy is None and len(columns) > 1:
        return table
    views = [column.values(by_name("uint8")).view for column in columns]
    if layout != "columns":
        views = _one_matrix(views)
    try:
        if not views or any(request.target.copy_reasons(view) for view in views):
            return table
    except ZeroCopyError:
        return table  # the plans of the columns raise it, with their labels
    return replace(table, columns=columns)


def _one_matrix(views: list[StridedView]) -> list[StridedView]:
    steps = {b.ptr - a.ptr for a, b in pairwise(views)} or {views[0].dtype.itemsize}
    if len({view.dtype for view in views}) > 1 or len(steps) > 1 or any(view.ndim != 1 for view in views):
        return []
    first = views[0]
    return [replace(first, shape=(*first.shape, len(views)), strides=(*first.strides, steps.pop()))]


def plan_leaves(
    table: Table, trees: Mapping[str, Tree], request: Request
) -> tuple[dict[str, Plan], dict[str, Any]]:
    """Return each leaf's plan by its path, and each column's tree with functions that make its leaves."""
    plans: dict[str, Plan] = {}

    def leaf_step(tree: Tree, leaf: TensorLeaf, path: str) -> Callable[[], object]:
        try:
            plan = handover.plan(leaf.source, replace(request, copy=None) if leaf.constant else request)
        except ZeroCopyError as error:
            _, _, inner = path.rpartition("]")
            part = ".".join(name for name in inner.split(".") if name not in ("", "values"))
            if part:  # such as the offsets of a text's categories
                error.with_context(why=f"its {part}: {error.why}")
            if leaf is not (tree.values if isinstance(tree, Masked) else tree):
                _keep_fixes_of_a_part(error, leaf, bool(part))
            raise
        if leaf.constant:
            nbytes = leaf.source.view.nbytes
            plan = replace(plan, zero_copy=False, copied_bytes=0, aliased_bytes=0, new_bytes=nbytes)
        if leaf.step:
            plan = replace(plan, steps=(leaf.step, *plan.steps))
        make, dtype = plan.run, leaf.datetime_dtype
        assert make is not None
        run = make if not dtype else lambda: make().view(dtype)
        plans[path] = plan if run is make else replace(plan, run=run)
        return run

    steps = map_columns(
        table, lambda label, path, column: rebuild(trees[path], partial(leaf_step, trees[path]), path)
    )
    return plans, steps


def _keep_fixes_of_a_part(error: ZeroCopyError, leaf: TensorLeaf, inner: bool) -> None:
    """Drop fixes by dtype=, which casts whole columns, and for an `inner` part those of the object."""

    def kept(reason: Reason) -> Reason:
        own = inner and reason not in leaf.source.reasons
        fixes = [
            fix
            for fix in reason.fixes
            if "dtype" not in fix.options and not (own and (fix.source != "{x}" or fix.action))
        ]
        is_prose = reason.remedy != "; or ".join(map(str, reason.fixes))
        remedy = reason.remedy if is_prose and not own else ""
        return Reason(reason.why, remedy, code=reason.code, fixes=fixes)

    reason = kept(error.reason)
    error.fixes = tuple(reason.fixes)
    error.with_context(remedy=reason.remedy)
    error.obstacles = [(label, kept(reason)) for label, reason in error.obstacles]


def check_table(table: Table, request: Request) -> None:
    """Refuse duplicate labels, which a dict cannot have as keys."""
    if twice := duplicates(table.labels):
        names = listed([str(label) for label in twice])
        why = f"several columns are called {names}, and a dict has each key once"
        raise UnsupportedConversionError("", why, code="duplicate-names", fixes=[RENAME])
