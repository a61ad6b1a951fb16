"""The fast path from a type to a framework: composed once, then kept in a table.

A source's file offers exporters and a target's file importers, by the form in which
memory passes between them (:data:`zerocopy.source.FORMS`); the two are independent.
`convert` in Python looks the composed function up in `TABLE`, or in the table of the call's options.
The compiled `convert` has a table of its own (:mod:`zerocopy._engine.native_routes`), whose routes call
the composed function if they fail. If that raises anything, the slow path
(:mod:`zerocopy._engine.planner`) starts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerocopy import registry
from zerocopy._engine import native_routes, recording
from zerocopy._engine.option_routes import Parts, Route, is_routable, option_route
from zerocopy._engine.options import HELD
from zerocopy._engine.target import resolve
from zerocopy._native import core
from zerocopy.errors import UnsupportedConversionError
from zerocopy.framework import Framework, identity
from zerocopy.protocols.exporter_errors import is_error

Routes = dict[Any, dict[type, Route]]

#: ``TABLE[to][type(obj)](obj)``, for calls without options. Two nested dictionaries: building and
#: hashing a pair as the key of one took 18 ns of 150.
TABLE: Routes = {}

#: ``OPTION_TABLES[option_key(options)]`` is such a table for calls with options.
OPTION_TABLES: dict[tuple[Any, ...], Routes] = {}

#: The same for compiled routes, which a converter of ``plan_for`` calls.
COMPILED_TABLES: dict[tuple[Any, ...], Routes] = {}

#: The limit of tables, because the labels in ``columns=`` can differ in each call.
MAX_OPTION_TABLES = 1024


def clear() -> None:
    """Drop all routes."""
    for table in (TABLE, *OPTION_TABLES.copy().values(), *COMPILED_TABLES.copy().values()):
        # The inner tables too: a plan of `plan_for` holds one.
        for routes in table.copy().values():
            routes.clear()
        table.clear()
    OPTION_TABLES.clear()
    COMPILED_TABLES.clear()
    native_routes.clear()


registry.on_change(clear)


def record_to(counters: Any, explain: Any) -> None:
    """Record the conversions from now on to `counters`, or none of them if it is None; drop all routes."""
    recording.set_counters(counters, explain)
    clear()


def option_key(options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key of a call's options: name, type and value of each, in the order of the call.

    The types are part of it, because ``True == 1 == 1.0``: ``copy=1`` is an error and ``copy=True`` is
    not. The key of a list or tuple has its current items and their types. Keys with other mutable values,
    such as dicts, cannot be hashed: such calls take the slow path.
    """
    key: tuple[Any, ...] = ()
    for name, value in options.items():
        cls = type(value)
        if cls is list or cls is tuple:
            key += (name, (cls, *map(type, value)), tuple(value))
        else:
            key += (name, cls, value)
    return key


def routes_of(to: Any, options: Mapping[str, Any]) -> dict[type, Route]:
    """Return the routes to a target by type, with the options of a call; created if there are none.

    Raises
    ------
    TypeError
        The target or an option cannot be hashed, or an option is one of `HELD`.
    """
    if not options:
        return TABLE.setdefault(to, {})
    if not HELD.isdisjoint(options):
        raise TypeError(f"no routes are kept for the options {sorted(HELD)}")
    key = option_key(options)
    table = OPTION_TABLES.get(key)
    if table is None:
        if len(OPTION_TABLES) >= MAX_OPTION_TABLES:
            clear()
        table = OPTION_TABLES.setdefault(key, {})
    return table.setdefault(to, {})


def fastest_routes_of(to: Any, options: Mapping[str, Any]) -> dict[type, Route]:
    """Return the compiled routes, or those of `routes_of` without the compiled core; raises as it does."""
    routes = routes_of(to, options)
    return routes if core is None else COMPILED_TABLES.setdefault(option_key(options), {}).setdefault(to, {})


def keep(obj: Any, to: Any, options: Mapping[str, Any]) -> Route | None:
    """Compose the route for objects of this type, if there is a fast one, and keep and return it.

    The route depends on the type alone, never on the object (law 3).
    """
    try:
        routes = routes_of(to, options)
    except TypeError as error:
        if not is_error(error):
            raise
        return None  # a mapping or another value that cannot be hashed
    if core is None and recording.counters is not None:
        return None  # without the core, only the slow path counts conversions
    kept = routes.get(type(obj))  # one lookup: another thread can drop the routes in between
    if kept is not None:  # the route exists: only this object needed the slow path
        if core is not None:
            native_routes.declare_dtypes()  # the conversion may have imported ml_dtypes
        return kept
    compiled, generation = None, recording.generation
    try:
        given = {name: value for name, value in options.items() if value is not None}
        parts = find_parts(obj, to)
        if "layout" in given and parts is not None and _ignores_layout(parts, given["layout"]):
            del given["layout"]
        route = None if parts is None else compose(parts, to, given)
        if parts is not None and core is not None:
            compiled = native_routes.keep(parts, type(obj), to, given, route)
    except BaseException as error:
        if not is_error(error):
            raise
        if isinstance(error, MemoryError) or registry.out_of_memory(error) is not None:
            # The conversion has succeeded; a framework lacked memory for an object that it makes
            # once per route. The next conversion tries again.
            return None
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__}, to={to!r})",
            f"composing its fast path raised {type(error).__name__}: {error}",
            "fix fast_exporters() or fast_importers() in the file of one of the two frameworks",
            code="fast-path-raised",
        ) from error
    if compiled is not None and not options.keys() <= native_routes.OPTIONS:
        route = compiled  # the compiled table does not have these options
    elif route is not None and (active := recording.counters) is not None:
        route = recording.recorded(active, route, type(obj), to, given)
    if route is not None:
        # One atomic store of a complete route: other threads see all of it or nothing (P7).
        routes[type(obj)] = route
    if compiled is not None:
        fastest_routes_of(to, options)[type(obj)] = compiled
    if generation != recording.generation:
        clear()  # a recorder was set or removed while this route was composed
    return route if compiled is None else compiled


def _ignores_layout(parts: Parts, layout: str) -> bool:
    """Whether the route never treats objects of the type as tables, so that ``layout=`` has no effect."""
    if layout == "records" or parts.target.tables or (parts.owned and parts.target.has_records):
        return False
    return parts.native_table is None and not parts.exporters.keys() & {"columns", "handle"}


def by_new_route(obj: Any, to: Any) -> Any:
    """Convert the first object of a type by its route, without a plan; NotImplemented if it has none.

    Making and running a plan takes ten times as long as the routes of a table's columns.
    """
    try:
        cls = type(obj)
        source = registry.by_type(cls)
        if source is None or cls in TABLE.get(to, ()):
            return NotImplemented
        exporters = source.fast_exporters(cls)
        if not (source.tables and "columns" in exporters) and not (
            "native" in exporters and "native" in (registry.find(to) or resolve(to)).fast_importers()
        ):
            return NotImplemented
        route = keep(obj, to, {})
        return NotImplemented if route is None else route(obj)
    except BaseException as error:
        if not is_error(error):
            raise
        return NotImplemented  # the slow path converts the object, or raises an error with the reason


def find_parts(obj: Any, to: Any) -> Parts | None:
    """Return the parts of a route for objects of this type; None if no route is possible."""
    target, source = registry.find(to) or resolve(to), registry.by_type(type(obj))
    if source is None:
        return None
    cls = type(obj)
    owned = target.owns(cls)
    if owned and not target.is_native(obj):
        return None
    exporters, importers = source.fast_exporters(cls), target.fast_importers()
    native = exporters.pop("native", None), importers.pop("native", None), exporters.pop("native_table", None)
    return Parts(source, target, exporters, importers, owned, *native)


def compose(parts: Parts, to: Any, options: Mapping[str, Any]) -> Route | None:
    """Return the route of Python functions for these options, none of them None; or None."""
    if parts.owned and not options:
        return identity
    if "handle" in parts.exporters:
        return _opening_route(parts, to, options)
    if "columns" in parts.exporters and parts.target.kind == "tensor":
        return _columns_route(parts, to, options)
    if not options and parts.target.tables and parts.source.tables:
        exporter, importer = parts.exporters.get("arrow"), parts.importers.get("arrow")
        return _table_route(parts.source, parts.target, exporter, importer)
    plain = _plain_route(parts, host_only=bool(options))
    return option_route(parts, options, plain) if options else plain


def _plain_route(parts: Parts, host_only: bool) -> Route | None:
    for form, importer in parts.importers.items():
        if form in parts.exporters and not (host_only and form == "cuda"):
            exporter = parts.exporters[form]
            if (active := recording.counters) is not None:
                # Only these importers copy host memory.
                on_host = "cpu" in parts.target.device_kinds and parts.target.aliases_host
                copies = form != "cuda" and not on_host
                exporter = recording.measured(active, form, exporter, copies)
            return _chain(exporter, importer)
    return None


def _opening_route(parts: Parts, to: Any, options: Mapping[str, Any]) -> Route:
    """Return the route of a handle: that of the object that it locates, after it was opened."""
    open_handle: Any = parts.exporters["handle"]
    target = parts.target.name

    def open_and_convert(handle: Any) -> Any:
        opened = open_handle(handle, target)
        cls = type(opened)
        route = fastest_routes_of(to, options).get(cls) or routes_of(to, options).get(cls)
        return (route or _kept_route(opened, to, options))(opened)

    active = recording.counters
    return open_and_convert if active is None else recording.measured_opening(active, open_and_convert)


def _columns_route(parts: Parts, to: Any, options: Mapping[str, Any]) -> Route | None:
    """Return the route of a table whose columns have routes of their own, with the other options."""
    exporter, labels = parts.exporters["columns"], options.get("columns")
    inner = {name: value for name, value in options.items() if name not in ("columns", "leaves")}
    if options and not is_routable(parts.target, inner):
        return None
    if not (labels is None or type(labels) in (list, tuple)):
        return None
    chosen = None if labels is None else tuple(labels)

    def route(table: Any) -> Any:
        routes = TABLE[to] if not inner else routes_of(to, inner)
        columns = exporter(table)
        if any(name != name for name, _ in columns):
            raise ValueError("a label is NaN, which differs from itself: the slow path compares it")
        if chosen is not None:
            columns = _selected(columns, chosen)
        arrays = {name: (routes.get(type(x)) or _kept_route(x, to, inner))(x) for name, x in columns}
        if len(arrays) != len(columns):
            raise ValueError("duplicate column names, which the slow path refuses")
        return arrays

    return route


def _selected(columns: list[tuple[Any, Any]], labels: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Return the columns with these labels; the keys of the result are the table's own labels."""
    places = {column[0]: column for column in columns}
    if len(places) != len(columns):
        raise ValueError("duplicate column names: the slow path decides")
    return [places[label] for label in labels]


def _table_route(
    source: Framework, target: Framework, exporter: Route | None, importer: Route | None
) -> Route:
    """Return the route between two table frameworks: the planned conversion, without the plan."""

    def route(obj: Any) -> Any:
        table = source.table(obj)
        if table is None or table.read is not None:
            raise ValueError("not a table, or not read yet: the slow path handles it")
        if not (target.has_dimensions or table.has_rows):
            raise ValueError("variables with other dimensions: the slow path refuses them")
        for column in table.columns:
            target.column_reasons(column)  # raises if the target cannot hold the column
        target.table_reasons(table)
        return target.from_column(table) if table.single else target.from_table(table)

    active = recording.counters
    whole = route if active is None else recording.measured_table(active, source, target, route)
    if exporter is None or importer is None:
        return whole
    export = exporter if active is None else recording.measured(active, "arrow", exporter)

    def arrow_route(obj: Any) -> Any:
        try:
            return importer(export(obj))
        except ValueError as error:
            if not is_error(error):
                raise
            return whole(obj)  # a column has nulls, several chunks, or is not numeric

    return arrow_route


def _kept_route(column: Any, to: Any, options: Mapping[str, Any]) -> Route:
    route = keep(column, to, options)
    if route is None:
        raise ValueError("an object without a route: the slow path decides")
    return route


def _chain(exporter: Route, importer: Route) -> Route:
    if exporter is identity:
        return importer
    if importer is identity:
        return exporter

    def route(obj: Any) -> Any:
        return importer(exporter(obj))

    return route
