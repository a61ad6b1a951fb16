"""The fast path from a type to a framework: composed once, then kept in a table.

A source's file offers exporters and a target's file importers, by the form in which
memory passes between them (:data:`zerocopy.source.FORMS`); the two are independent.
`convert` looks the composed function up in `TABLE` first. If it raises anything, the
slow path (:mod:`zerocopy._engine.planner`) starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy import registry
from zerocopy._engine.target import resolve
from zerocopy.errors import UnsupportedConversionError
from zerocopy.framework import Framework, identity
from zerocopy.protocols.exporter_errors import is_error

Route = Callable[[Any], Any]

#: ``TABLE[to][type(obj)](obj)``. Two nested dictionaries: building and hashing a pair as the
#: key of one took 18 ns of 150.
TABLE: dict[Any, dict[type, Route]] = {}

registry.on_change(TABLE.clear)


def keep(obj: Any, to: Any) -> None:
    """Compose the route for objects of this type, if there is a fast one, and keep it.

    The route depends on the type alone, never on the object (law 3).
    """
    if type(obj) in TABLE.get(to, ()):
        return  # the route exists: only this object needed the slow path
    try:
        route = compose(obj, to)
    except Exception as error:
        if isinstance(error, MemoryError) or registry.out_of_memory(error) is not None:
            # The conversion has succeeded; a framework lacked memory for an object that it makes
            # once per route. The next conversion tries again.
            return
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__}, to={to!r})",
            f"composing its fast path raised {type(error).__name__}: {error}",
            "fix fast_exporters() or fast_importers() in the file of one of the two frameworks",
            code="fast-path-raised",
        ) from error
    if route is not None:
        # One atomic store of a complete route: other threads see all of it or nothing (P7).
        TABLE.setdefault(to, {})[type(obj)] = route


def by_columns(obj: Any, to: Any) -> Any:
    """Convert the first table of a type by the routes of its columns; NotImplemented if it has none.

    A plan, which the slow path makes, takes ten times as long as these for each column.
    """
    try:
        source = registry.by_type(type(obj))
        if source is None or not source.tables or type(obj) in TABLE.get(to, ()):
            return NotImplemented
        if "columns" not in source.fast_exporters(type(obj)):
            return NotImplemented
        keep(obj, to)
        return TABLE[to][type(obj)](obj)
    except BaseException as error:
        if not is_error(error):
            raise
        return NotImplemented  # the slow path converts the object, or says why it cannot


def compose(obj: Any, to: Any) -> Route | None:
    """Return the fast route for objects of this type, or None."""
    target, source = registry.find(to) or resolve(to), registry.by_type(type(obj))
    if source is None:
        return None
    if target.owns(type(obj)):
        return identity if target.is_native(obj) else None
    exporters = source.fast_exporters(type(obj))
    importers = target.fast_importers()
    if target.tables and source.tables:
        return _table_route(source, target, exporters.get("arrow"), importers.get("arrow"))
    if "columns" in exporters and target.kind == "tensor":
        return _columns_route(exporters["columns"], to)
    for form, importer in importers.items():
        if form in exporters:
            return _chain(exporters[form], importer)
    return None


def _columns_route(exporter: Route, to: Any) -> Route:
    """Return the route of a table whose columns have routes of their own."""

    def route(table: Any) -> Any:
        routes = TABLE[to]
        columns = exporter(table)
        arrays = {name: (routes.get(type(x)) or _kept_route(x, to))(x) for name, x in columns}
        if len(arrays) != len(columns):
            raise ValueError("duplicate column names, which the slow path refuses")
        return arrays

    return route


def _table_route(
    source: Framework, target: Framework, exporter: Route | None, importer: Route | None
) -> Route:
    """Return the route between two table frameworks: the planned conversion, without the plan."""

    def route(obj: Any) -> Any:
        table = source.table(obj)
        if table is None or table.read is not None:
            raise ValueError("not a table, or not read yet: the slow path handles it")
        for column in table.columns:
            target.column_reasons(column)  # raises if the target cannot hold the column
        target.table_reasons(table)
        return target.from_column(table) if table.single else target.from_table(table)

    if exporter is None or importer is None:
        return route

    def arrow_route(obj: Any) -> Any:
        try:
            return importer(exporter(obj))
        except ValueError:
            return route(obj)  # a column has nulls, several chunks, or is not numeric

    return arrow_route


def _kept_route(column: Any, to: Any) -> Route:
    keep(column, to)
    return TABLE[to][type(column)]


def _chain(exporter: Route, importer: Route) -> Route:
    if exporter is identity:
        return importer
    if importer is identity:
        return exporter

    def route(obj: Any) -> Any:
        return importer(exporter(obj))

    return route
