"""The fast path: a route converts objects of one type to one target, with fixed options.

A source's file offers exporters and a target's file importers, by the form in which memory passes between
them (:data:`zerocopy.source.FORMS`); the two are independent. After the first conversion of a type, `keep`
composes its route and stores it: in the table of the compiled core, which has routes for the options in
`OPTIONS` too, or without the core in `TABLE`. If a route raises anything, the slow path
(:mod:`zerocopy._engine.planner`) starts again.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from zerocopy import registry
from zerocopy._engine import recording
from zerocopy._engine.compiled_routes import (
    Parts,
    Route,
    compile_route,
    declare_dtypes,
    effective_options,
    find_parts,
    is_fill,
    is_routable,
)
from zerocopy._engine.target import resolve
from zerocopy._native import core
from zerocopy.device import HOST
from zerocopy.errors import UnsupportedConversionError
from zerocopy.framework import identity
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.tables.hub import NAME as HUB, hub

Routes = Mapping[type, Route]

# -- the tables -------------------------------------------------------------------------

#: ``TABLE[to][type(obj)](obj)``: the routes without the compiled core, for calls without options. Two nested
#: dictionaries: building and hashing a pair as the key of one took 18 ns of 150.
TABLE: dict[Any, dict[type, Route]] = {}
#: The routes of `TABLE`, while conversions are recorded.
_bypassed: dict[Any, dict[type, Route]] = {}

#: The options that the core's table holds. The others depend on the object, or need the whole plan.
OPTIONS = frozenset(
    ("copy", "writable", "device", "dtype", "layout", "columns", "lists", "index", "names", "nulls")
)

#: The routes for options that no table holds.
NO_ROUTES: Routes = MappingProxyType({})

#: See `set_slow_path`.
_slow_path: Callable[[Any, Any, Mapping[str, Any]], Any]

#: Counts how often all routes were dropped. A route that was composed meanwhile is dropped too.
_generation = 0


def _refuse(obj: Any) -> Any:
    raise LookupError("no route: the slow path converts the object")


#: Stored for a type, target and options without a route, so that slow calls do not try to compose one again.
NO_ROUTE: Route = _refuse if core is None else core.CallRoute(None)


def _drop_at_exit() -> None:
    with suppress(MemoryError):  # a new, empty table needs memory, which may be exhausted
        _drop()


if core is not None:
    # At the exit of the interpreter: frameworks report objects that routes still hold as leaked.
    atexit.register(core.clear_values)
    atexit.register(_drop_at_exit)
    core.set_error_test(is_error)


def routes_of(to: Any, options: Mapping[str, Any]) -> Routes:
    """Return the routes to a target by type, with the options of a call: they change with the table."""
    try:
        if core is None:
            return NO_ROUTES if options else TABLE.setdefault(to, {})
        if not options.keys() <= OPTIONS:
            return NO_ROUTES
        if any(type(options.get(name, ())) not in (list, tuple) for name in ("columns", "names")):
            return NO_ROUTES
        if type(options.get("index", True)) is not bool:
            return NO_ROUTES  # it is the labels of rows, which differ between calls
        if "nulls" in options and not is_fill(options["nulls"]):
            return NO_ROUTES
        routes: Routes = core.Routes(to, **options)
        return routes
    except (LookupError, TypeError) as error:
        if not is_error(error):
            raise
        return NO_ROUTES  # the target or an option, such as a dict, cannot be hashed


def clear() -> None:
    """Drop all routes."""
    global _generation
    _generation += 1
    _drop()


def _drop() -> None:
    if core is not None:
        core.clear_routes()
    for table in (TABLE, _bypassed):
        for routes in table.copy().values():
            routes.clear()


registry.on_change(clear)


def set_slow_path(convert: Callable[[Any, Any, Mapping[str, Any]], Any]) -> None:
    """Set the function that converts without routes, in a module that imports this one."""
    global _slow_path
    _slow_path = convert


def record_to(counters: Any, explain: Any = None, resolve_fixes: Any = None) -> None:
    """Record the conversions from now on to `counters`, or none of them if it is None.

    While they are recorded, no conversion has a route: only the slow path counts, and its plan has the bytes.
    """
    global _generation
    recording.set_counters(counters, explain, resolve_fixes)
    is_recorded = counters is not None
    if core is not None:
        core.bypass_routes(is_recorded)
        return
    _generation += 1  # drops a route that another thread stores meanwhile
    full, empty = (TABLE, _bypassed) if is_recorded else (_bypassed, TABLE)
    for to, routes in full.copy().items():  # converters hold these dicts
        empty.setdefault(to, {}).update(routes)
        routes.clear()


# -- keeping a route --------------------------------------------------------------------


def keep(obj: Any, to: Any, options: Mapping[str, Any]) -> Route | None:
    """Compose the route for objects of this type, if there is a fast one, and keep and return it.

    The route depends on the type alone, never on the object (law 3).
    """
    # leaves= is for containers, and for their items without a route.
    given = {name: value for name, value in options.items() if value is not None and name != "leaves"}
    before, routes = _generation, routes_of(to, given)
    if routes is NO_ROUTES or recording.counters is not None:
        return None
    known = routes.get(type(obj))
    if known is not None:  # only this object needed the slow path
        if core is not None:
            declare_dtypes()  # the conversion may have imported ml_dtypes
        return None if known is NO_ROUTE else known
    try:
        if type(obj) is dict:
            route = _table_route_of(obj, to, given)
            return None if route is None else store(route, dict, to, given, before)
        parts = find_parts(obj, to, given)
        if parts is None:
            return None  # not remembered: a framework can own the type later
        effective = effective_options(parts, given)
        if "names" in effective:
            is_array = parts.source is not None and parts.source.kind == "tensor"
            route = _table_route_of(obj, to, effective) if is_array else None
        else:
            route = compose(parts, to, effective, given)
        if core is not None:
            route = compile_route(parts, effective, route)
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
    stored = store(NO_ROUTE if route is None else route, type(obj), to, given, before)
    return None if route is None else stored


def _table_route_of(obj: Any, to: Any, options: Mapping[str, Any]) -> Route | None:
    """Return the route of dicts of arrays, or of matrices with ``names=``, to a table framework; or None."""
    if not options.keys() <= {"names"}:
        return None
    from zerocopy._engine import table_routes  # conversions between arrays need no tables

    def routes(name: str) -> Any:
        return table_routes.Routes(name, routes_of(name, {}), lambda x, to: _kept_route(x, to, {}))

    if type(obj) is dict:
        return None if options else table_routes.make_route(to, routes)
    return table_routes.make_matrix_route(to, options["names"], routes)


def keep_tree(cls: type, to: Any, options: Mapping[str, Any]) -> None:
    """Keep a compiled route for containers of this type, whose leaves have their own routes."""
    if core is not None and cls in (dict, list, tuple) and options.keys() <= {"copy", "writable"}:
        store(core.TreeRoute(to, **options), cls, to, options, _generation)


def generation() -> int:
    """Return how often routes were dropped; to be read before a route is composed."""
    return _generation


def store(route: Any, cls: type, to: Any, options: Mapping[str, Any], before: int) -> Route:
    """Store a route unless there is one, and return it; `before` is the `generation` before that."""
    if recording.counters is not None:
        return route  # type: ignore[no-any-return]  # not used until the recorder stops
    # One atomic store of a complete route: other threads see all of it or nothing (P7).
    if core is None:
        TABLE[to].setdefault(cls, route)
    else:
        if not isinstance(route, core.Route):
            route = core.CallRoute(route)
        core.set_route(to, cls, route, **options)
    if before != _generation:
        _drop()  # a recorder or a framework came while this route was composed
    stored: Route = route
    return stored


def by_new_route(obj: Any, to: Any) -> Any:
    """Convert the first object of a type by its route, without a plan; NotImplemented if it has none.

    Making and running a plan takes ten times as long as the routes of a table's columns.
    """
    try:
        cls = type(obj)
        source = registry.by_type(cls)
        if source is None or source.runs_queries or routes_of(to, {}).get(cls) is not None:
            return NotImplemented
        exporters = source.fast_exporters(cls)
        if not (source.tables and "columns" in exporters) and (
            exporters.get("native") is None
            or (registry.find(to) or resolve(to)).fast_importers().get("native") is None
        ):
            return NotImplemented
        route = keep(obj, to, {})
        return NotImplemented if route is None else route(obj)
    except BaseException as error:
        if not is_error(error):
            raise
        return NotImplemented  # the slow path converts the object, or raises an error with the reason


# -- routes of Python functions ---------------------------------------------------------


def compose(parts: Parts, to: Any, options: Mapping[str, Any], given: Mapping[str, Any]) -> Route | None:
    """Return the route of Python functions for the `effective_options` of those given; or None."""
    source, target = parts.source, parts.target
    aliases = options.get("copy") is not True
    if parts.owned and aliases and options.keys() <= {"copy"}:
        return identity
    if "handle" in parts.exporters:
        return None if options else _opening_route(parts, to)
    if "columns" in parts.exporters and target.kind == "tensor":
        return _columns_route(parts, to, options, given.get("index"))
    between_tables = target.tables and source is not None and source.tables
    if _is_only_for_hub(parts) and options.keys() <= {"layout", "columns"}:
        return _hub_route(parts, to, options)
    if not options:
        return _table_route(parts) if between_tables else _plain_route(parts, host_only=False)
    if between_tables or not options.keys() <= {"copy", "device"} or not is_routable(target, options):
        return None
    if parts.owned:
        return None if aliases else _own_copy_route(parts)
    # A route aliases or raises, so it serves copy=False too, unless its importer copies.
    return _plain_route(parts, True) if aliases and (target.aliases_host or "copy" not in options) else None


def _plain_route(parts: Parts, host_only: bool) -> Route | None:
    for form, importer in parts.importers.items():
        if form in parts.exporters and not (host_only and form == "cuda"):
            return _chain(parts.exporters[form], importer)
    return None


def _chain(exporter: Route, importer: Route) -> Route:
    if exporter is identity:
        return importer
    if importer is identity:
        return exporter

    def route(obj: Any) -> Any:
        return importer(exporter(obj))

    return route


def _own_copy_route(parts: Parts) -> Route | None:
    """Return the route of ``copy=True`` for the target's own objects, other than ndarrays."""
    check, target = parts.exporters.get("ndarray"), parts.target
    if check is None or parts.ndarrays or target.kind != "tensor" or not target.can_copy_to_device:
        return None
    copy_to_device = target.copy_to_device

    def route(obj: Any) -> Any:
        # The exporter is called only to check that the object is plain memory on the host.
        if not check(obj).size:
            raise ValueError("no elements: the slow path returns the object itself")
        return copy_to_device(obj, HOST, None)

    return route


def _opening_route(parts: Parts, to: Any) -> Route:
    """Return the route of a handle: that of the object that it locates, after it was opened."""
    open_handle: Any = parts.exporters["handle"]
    target, routes = parts.target.name, routes_of(to, {})

    def open_and_convert(handle: Any) -> Any:
        opened = open_handle(handle, target)
        return (routes.get(type(opened)) or _kept_route(opened, to, {}))(opened)

    return open_and_convert


def _is_only_for_hub(parts: Parts) -> bool:
    """Whether the hub's object replaces the source: a query must run once, and others have no array."""
    source = parts.source
    if source is None or "hub" not in parts.exporters or source.name == HUB:
        return False
    return source.runs_queries or not (parts.target.tables or "ndarray" in parts.exporters)


def _hub_route(parts: Parts, to: Any, options: Mapping[str, Any]) -> Route:
    """Return the route of an object that exports an object of the hub, which has a route to each target."""
    exporter, routes, is_query = parts.exporters["hub"], routes_of(to, options), parts.source.runs_queries  # type: ignore[union-attr]
    target, to_hub = hub(), hub().fast_importers()["hub"]

    def route(obj: Any) -> Any:
        exported = to_hub(exporter(obj, target))
        try:
            return (routes.get(type(exported)) or _kept_route(exported, to, options))(exported)
        except BaseException as error:
            if not (is_query and is_error(error)):
                raise
            return _slow_path(exported, to, options)  # the query must not run again

    return route


def _columns_route(parts: Parts, to: Any, options: Mapping[str, Any], index: bool | None) -> Route | None:
    """Return the route of a table whose columns have routes of their own, with the other options."""
    exporter = parts.exporters["columns"]
    labels = options.get("columns")
    inner = {name: value for name, value in options.items() if name != "columns"}
    if options and not is_routable(parts.target, inner):
        return None
    chosen, routes = None if labels is None else tuple(labels), routes_of(to, inner)

    def route(table: Any) -> Any:
        columns = exporter(table, index)
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


def _kept_route(obj: Any, to: Any, options: Mapping[str, Any]) -> Route:
    route = keep(obj, to, options)
    if route is None:
        raise ValueError("an object without a route: the slow path decides")
    return route


def _table_route(parts: Parts) -> Route:
    """Return the route between two table frameworks: through the hub, or as planned, but without the plan.

    In the benchmark `grid`, ten columns take 20 to 250 us through the hub, and 250 to 1,000 as planned.
    """
    source, target = parts.source, parts.target
    assert source is not None
    is_through_hub = "hub" in parts.exporters and "hub" in parts.importers

    def as_planned(obj: Any) -> Any:
        table = source.table(obj)
        if table is None or table.read is not None:
            raise ValueError("not a table, or not read yet: the slow path handles it")
        if not (target.has_dimensions or table.has_rows):
            raise ValueError("variables with other dimensions: the slow path refuses them")
        for column in table.columns:
            target.column_reasons(column)  # raises if the target cannot hold the column
        target.table_reasons(table)
        return target.from_column(table) if table.single else target.from_table(table)

    def through_hub(obj: Any) -> Any:
        try:
            return parts.importers["hub"](parts.exporters["hub"](obj, target))
        except ValueError as error:  # a column has nulls or several chunks, or is of another type
            if not is_error(error):
                raise
        return as_planned(obj)

    return through_hub if is_through_hub else as_planned
