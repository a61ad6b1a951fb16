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
from zerocopy._engine.composing import (
    Parts,
    Route,
    compile_route,
    compose_route,
    declare_dtypes,
    effective_options,
    find_parts,
)
from zerocopy._engine.target import resolve
from zerocopy._native import core
from zerocopy.errors import UnsupportedConversionError
from zerocopy.framework import identity
from zerocopy.plan import Plan
from zerocopy.protocols.exporter_errors import is_error

Routes = Mapping[type, Route]

# -- the tables -------------------------------------------------------------------------

#: ``TABLE[to][type(obj)](obj)``: the routes without the compiled core, for calls without options. Two nested
#: dictionaries: building and hashing a pair as the key of one took 18 ns of 150.
TABLE: dict[object, dict[type, Route]] = {}
#: The routes of `TABLE`, while conversions are recorded.
_bypassed: dict[object, dict[type, Route]] = {}

#: The options that the core's table holds. The others depend on the object, or need the whole plan.
OPTIONS = frozenset(
    ("copy", "writable", "device", "dtype", "layout", "columns", "lists", "index", "names", "nulls")
)

#: The routes for options that no table holds.
NO_ROUTES: Routes = MappingProxyType({})

#: See `set_slow_path`.
_slow_path: Callable[[object, object, Mapping[str, object]], object]

#: Counts how often all routes were dropped. A route that was composed meanwhile is dropped too.
_generation = 0


def _refuse(obj: object) -> object:
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


def routes_of(to: object, options: Mapping[str, object]) -> Routes:
    """Return the routes to a target by type, with the options of a call: they change with the table."""
    try:
        if core is None:
            return NO_ROUTES if options else TABLE.setdefault(to, {})
        if not options.keys() <= OPTIONS:
            return NO_ROUTES
        if not {type(options.get("columns", ())), type(options.get("names", ()))} <= {list, tuple}:
            return NO_ROUTES
        if type(options.get("index", True)) is not bool:
            return NO_ROUTES  # it is the labels of rows, which differ between calls
        if "nulls" in options and not _is_fill(options["nulls"]):
            return NO_ROUTES
        routes: Routes = core.Routes(to, **options)
        return routes
    except (LookupError, TypeError) as error:
        if not is_error(error):
            raise
        return NO_ROUTES  # the target or an option, such as a dict, cannot be hashed


def _is_fill(nulls: object) -> bool:
    """Whether compiled routes take a value of ``nulls=``: None, ``"nan"``, a float, or an int of 53 bits."""
    if type(nulls) is int:
        return abs(nulls) <= 1 << 53
    return nulls is None or type(nulls) is float or (type(nulls) is str and nulls == "nan")


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


def set_slow_path(convert: Callable[[object, object, Mapping[str, object]], object]) -> None:
    """Set the function that converts without routes, in a module that imports this one."""
    global _slow_path
    _slow_path = convert


def record_to(counters: recording.Counters | None, *functions: Callable[..., Plan]) -> None:
    """Record the conversions from now on to `counters`, or none of them if it is None.

    While they are recorded, no conversion has a route: only the slow path counts, and its plan has the bytes.
    """
    global _generation
    is_recorded = counters is not None
    recording.counters, recording.functions = counters, functions
    if core is not None:
        core.bypass_routes(is_recorded)
        return
    _generation += 1  # drops a route that another thread stores meanwhile
    full, empty = (TABLE, _bypassed) if is_recorded else (_bypassed, TABLE)
    for to, routes in full.copy().items():  # converters hold these dicts
        empty.setdefault(to, {}).update(routes)
        routes.clear()


# -- keeping a route --------------------------------------------------------------------


def keep(obj: object, to: object, options: Mapping[str, Any], parts: Parts | None = None) -> Route | None:
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
        parts = parts or find_parts(obj, to, given)
        if parts is None:
            return None  # not remembered: a framework can own the type later
        effective = effective_options(parts, given)
        if "names" in effective:
            is_array = parts.source is not None and parts.source.kind == "tensor"
            route = _table_route_of(obj, to, effective) if is_array else None
        else:
            route = compose_route(parts, to, effective, given.get("index"), by_kept_route)
            if route is identity and effective != given:
                route = None  # with any other option the plan reads the object, and may refuse it
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


def _table_route_of(obj: object, to: object, options: Mapping[str, Any]) -> Route | None:
    """Return the route of dicts of arrays, or of matrices with ``names=``, which are tables; or None."""
    from zerocopy._engine import cast_routes, table_routes  # conversions between arrays need no tables

    if type(obj) is dict and cast_routes.requests_cast_matrix(registry.find(to) or resolve(to), options):
        return cast_routes.make_route(to, options, lambda table, _: [*table.items()], None, by_kept_route)
    if not options.keys() <= {"names"}:
        return None
    if type(obj) is dict:
        return None if options else table_routes.make_route(to, by_kept_route)
    return table_routes.make_matrix_route(to, options["names"], by_kept_route)


def by_kept_route(to: object, options: Mapping[str, object], or_slowly: bool = False) -> Route:
    """Return a function that converts objects by the routes of their types, which it keeps.

    It raises for a type without a route; with `or_slowly`, the slow path then converts the object.
    """
    routes = routes_of(to, options)

    def convert(obj: object) -> object:
        route = routes.get(type(obj)) or keep(obj, to, options)
        if route is None:
            raise ValueError("an object without a route: the slow path decides")
        return route(obj)

    def convert_anyway(obj: object) -> object:
        try:
            return convert(obj)
        except BaseException as error:
            if not is_error(error):
                raise
            return _slow_path(obj, to, options)

    return convert_anyway if or_slowly else convert


def keep_tree(cls: type, to: object, options: Mapping[str, object]) -> None:
    """Keep a compiled route for containers of this type, whose leaves have their own routes."""
    if core is not None and cls in (dict, list, tuple) and options.keys() <= {"copy", "writable"}:
        store(core.TreeRoute(to, **options), cls, to, options, _generation)


def generation() -> int:
    """Return how often routes were dropped; to be read before a route is composed."""
    return _generation


def store(route: Route, cls: type, to: object, options: Mapping[str, object], before: int) -> Route:
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


def by_new_route(obj: object, to: object) -> object:
    """Convert the first object of a type by its route, without a plan; NotImplemented if it has none.

    Making and running a plan takes ten times as long as the routes of a table's columns.
    """
    try:
        cls = type(obj)
        if registry.find(to) is None:
            resolve(to)  # an unknown target raises, and so has no entry in the table
        source = registry.by_type(cls)
        if source is None or source.runs_queries:
            return NotImplemented
        if routes_of(to, {}).get(cls) is not None or (parts := find_parts(obj, to, {})) is None:
            return NotImplemented
        has_columns = source.tables and "columns" in parts.exporters
        if not has_columns and None in (parts.native_exporter, parts.native_importer):
            return NotImplemented
        route = keep(obj, to, {}, parts)
        return NotImplemented if route is None else route(obj)
    except BaseException as error:
        if not is_error(error):
            raise
        return NotImplemented  # the slow path converts the object, or raises an error with the reason
