"""The fast way from a type to a framework, composed once and kept.

A source's file offers exporters and a target's file importers, by the form in
which memory passes between them (:data:`zerocopy.framework.FORMS`); neither
knows the other. What they make together is a plain function, in a table that
:func:`zerocopy.convert` looks into first. Whatever it raises, the careful way
(:mod:`zerocopy._engine.planner`) decides again from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy import registry
from zerocopy.errors import UnsupportedConversionError
from zerocopy.framework import Framework, as_it_is

Route = Callable[[Any], Any]

#: ``TABLE[to][type(obj)](obj)``. Two small dictionaries and not one keyed by
#: pairs: building and hashing the pair cost 18 ns of the 150 that there are.
TABLE: dict[Any, dict[type, Route]] = {}

registry.on_change(TABLE.clear)


def keep(obj: Any, to: Any) -> None:
    """Compose the route for objects of this type, if there is a fast one, and keep it.

    What is kept depends on the type alone, never on this one object (law 3).
    """
    if type(obj) in TABLE.get(to, ()):
        return  # kept already: this one object had to go the careful way
    try:
        route = compose(obj, to)
    except Exception as error:
        if isinstance(error, MemoryError) or registry.out_of_memory(error) is not None:
            # The conversion is done, by the careful way, and is not lost for this: a device may
            # have no room for what a framework makes once. The next one tries again.
            return
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__}, to={to!r})",
            f"composing its fast way raised {type(error).__name__}: {error}",
            "mend fast_exporters() or fast_importers() in the file of one of the two frameworks",
        ) from error
    if route is not None:
        # Made whole before it is stored, and stored by one atomic operation: no
        # other thread sees half a route (P7).
        TABLE.setdefault(to, {})[type(obj)] = route


def compose(obj: Any, to: Any) -> Route | None:
    """Return the fast route for objects of this type, or None."""
    target, source = registry.by_name(to), registry.by_type(type(obj))
    if source is None:
        return None
    if target.owns(type(obj)):
        return _itself if target.is_native(obj) else None
    if target.tables and source.tables:
        direct = source.fast_exporters(type(obj)).get("arrow"), target.fast_importers().get("arrow")
        return _tables(source, target, *direct)
    exports = source.fast_exporters(type(obj))
    if "columns" in exports and target.kind == "tensor":
        return _columns(exports["columns"], to)
    for form, importer in target.fast_importers().items():
        if form in exports:
            return _chain(exports[form], importer)
    return None


def _itself(obj: Any) -> Any:
    return obj


def _columns(exporter: Route, to: Any) -> Route:
    """Return the route of a table whose columns have routes of their own."""

    def route(table: Any) -> Any:
        routes = TABLE[to]
        columns = exporter(table)
        found = {name: (routes.get(type(x)) or _route_of(x, to))(x) for name, x in columns}
        if len(found) != len(columns):
            raise ValueError("two columns of one name: for the careful way, which refuses them")
        return found

    return route


def _tables(source: Framework, target: Framework, exporter: Route | None, importer: Route | None) -> Route:
    """Return the route from one table framework to another: as planned, and without the plan."""

    def route(obj: Any) -> Any:
        table = source.table(obj)
        if table is None or table.read is not None:
            raise ValueError("no table, or one to be read first: for the careful way")
        for column in table.columns:
            target.column_reasons(column)  # refuses what the target cannot hold
        target.table_reasons(table)
        return target.from_column(table) if table.single else target.from_table(table)

    if exporter is None or importer is None:
        return route

    def plainly(obj: Any) -> Any:
        try:
            return importer(exporter(obj))
        except ValueError:
            return route(obj)  # no plain numbers in one chunk a column

    return plainly


def _route_of(column: Any, to: Any) -> Route:
    keep(column, to)
    return TABLE[to][type(column)]


def _chain(exporter: Route, importer: Route) -> Route:
    if exporter is as_it_is:
        return importer
    if importer is as_it_is:
        return exporter

    def route(obj: Any) -> Any:
        return importer(exporter(obj))

    return route
