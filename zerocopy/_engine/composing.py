"""Composes routes: their parts, routes of Python functions, and compiled routes, which may call those.

Both are an exporter of the source and an importer of the target; those of a compiled route are C objects.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from zerocopy import registry
from zerocopy._engine import cast_routes
from zerocopy._engine.target import may_be_compound, resolve
from zerocopy._native import core
from zerocopy.device import HOST, Device
from zerocopy.dtype import ALL
from zerocopy.errors import ZeroCopyError
from zerocopy.framework import Framework, identity
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.protocols.producer import compiled_exporter
from zerocopy.request import MATRIX_ORDERS, MatrixOrder
from zerocopy.source import Array
from zerocopy.tables.hub import NAME as HUB, hub

Route = Callable[[Any], Any]
#: Exporters or importers by form.
Functions = dict[str, Callable[..., Any]]

#: ``ml_dtypes``, or None if it was not imported when NumPy's dtypes were declared; False before that.
_declared: object = False


class Parts(NamedTuple):
    """The parts of a route: the frameworks, and their functions by form."""

    source: Framework | None  # None: a type without a framework file
    target: Framework
    exporters: Functions
    importers: Functions
    owned: bool  # whether the objects belong to the target
    native_exporter: object = None  # of the compiled core
    native_importer: object = None
    native_table: object = None  # exporter of tables
    native_column: object = None  # exporter of columns
    may_be_ragged: bool = False  # whether such a column becomes a ragged array without lists=
    exports_index: bool = True  # whether index=False changes the exporters
    device_importer: object = None  # of the compiled core, for memory on CUDA devices
    device_copier: Callable[[Device | None], Route | None] | None = None  # copies from the host to a device
    copy_to_host: Route | None = None  # copies objects on a device to the host

    @property
    def nan_is_null(self) -> bool:
        """Whether ``nulls=`` applies to NaN in the source's floats."""
        return self.source is not None and self.source.nan_is_null

    @property
    def ndarrays(self) -> bool:
        """Whether the target's own objects are ndarrays."""
        return self.exporters.get("ndarray") is identity is self.importers.get("ndarray")


def find_parts(obj: object, to: object, options: Mapping[str, object]) -> Parts | None:
    """Return the parts of a route for objects of this type and options; None if no route is possible."""
    target, cls = registry.find(to) or resolve(to), type(obj)
    source = registry.by_type(cls)
    if source is None:
        exporter, importers = compiled_exporter(obj), target.fast_importers()
        on_host, on_device = importers.get("native"), importers.get("native_device")
        if exporter is None or (on_host is None and on_device is None):
            return None
        return Parts(None, target, {}, {}, False, exporter, on_host, device_importer=on_device)
    owned = target.owns(cls)
    if owned and not target.is_native(obj):
        return None
    exporters, importers = source.fast_exporters(cls), target.fast_importers()
    if source.runs_queries:
        exporters = _of_queries(exporters, target, options)
    native = exporters.pop("native", None), importers.pop("native", None)
    on_devices = importers.pop("native_device", None), importers.pop("device_copy", None)
    to_host = exporters.pop("host_copy", None)
    exports_index = target.kind != "tensor" or not {"columns", "native_table"} & exporters.keys()
    tables = exporters.pop("native_table", None), exporters.pop("native_column", None)
    flags = tables != (None, None) and may_be_compound(cls, target), exports_index
    return Parts(source, target, exporters, importers, owned, *native, *tables, *flags, *on_devices, to_host)


def _of_queries(exporters: Functions, target: Framework, options: Mapping[str, object]) -> Functions:
    """Return the exporters of queries, whose results are new memory, for a target and options."""
    if options.get("copy") is not None:
        return {}  # copy=False refuses them
    # NumPy's arrays are writable, as torch's are; the hub's are aligned, as JAX and TensorFlow require.
    without = "hub" if target.kind == "tensor" and target.mutable else "columns"
    is_row_major = options.get("layout") in ("matrix", MatrixOrder.C)
    return {
        form: exporter
        for form, exporter in exporters.items()
        if form != without and (form != "matrix" or is_row_major)
    }


def effective_options(parts: Parts, options: dict[str, object]) -> dict[str, Any]:
    """Return the options without those that change nothing for objects of the type.

    These are ``layout=`` if the route treats none of them as a table, ``lists="dense"`` by default, and
    ``index=False`` if the parts export tables without labels of rows.
    """
    if options.get("index") is False and not parts.exports_index:
        options = {name: value for name, value in options.items() if name != "index"}
    layout, target = options.get("layout"), parts.target
    arrow = parts.native_table or parts.native_column
    if options.get("lists") == "dense" and arrow is not None and not parts.may_be_ragged:
        options = {name: value for name, value in options.items() if name != "lists"}
    if layout in (None, "records") or target.tables or (parts.owned and target.has_records):
        return options
    if parts.native_table is not None or parts.exporters.keys() & {"columns", "handle", "hub"}:
        return options
    return {name: value for name, value in options.items() if name != "layout"}


def is_routable(target: Framework, options: Mapping[str, object]) -> bool:
    """Whether a route to host memory can hold these options, none of them None."""
    if not options.keys() <= {"copy", "writable", "device", "dtype"} or "cpu" not in target.device_kinds:
        return False  # a route to a framework without arrays on the host transfers them
    if "device" in options:
        try:
            device = target.parse_device(options["device"])
            target.check_device(device)
        except ZeroCopyError:
            return False  # the target cannot use it
        if not device.is_host:
            return False
    dtype = options.get("dtype")
    return dtype is None or (not isinstance(dtype, Mapping) and cast_routes.parse(dtype).in_numpy)


# -- routes of Python functions ---------------------------------------------------------


def compose_route(
    parts: Parts, to: Any, options: Mapping[str, Any], index: bool | None, by_kept_route: Callable[..., Route]
) -> Route | None:
    """Return the route of Python functions for `effective_options`, or None; `index` is the call's option."""
    source, target = parts.source, parts.target
    aliases = options.get("copy") is not True
    if parts.owned and aliases and options.keys() <= {"copy"}:
        return identity
    if "handle" in parts.exporters:
        return None if options else _opening_route(parts, by_kept_route(to, {}))
    if options.get("layout") == "records" and target.has_records and "columns" in parts.exporters:
        from zerocopy.tables import records

        export = None if source is not None and source.name == HUB else parts.exporters.get("hub")
        return records.make_route(export, target, options, by_kept_route("numpy", {}))
    if "nulls" in options and parts.nan_is_null and "hub" in parts.exporters and target.kind == "tensor":
        fills = options.get("layout", "columns"), options["nulls"] != "nan"
        return _hub_route(parts, by_kept_route(to, options), None, *fills)
    by_columns = "columns" in parts.exporters and parts.native_table is None
    if by_columns and "dtype" in options and cast_routes.requests_cast_matrix(target, options):
        return cast_routes.make_route(to, options, parts.exporters["columns"], index, by_kept_route)
    if "columns" in parts.exporters and target.kind == "tensor":
        inner = {name: value for name, value in options.items() if name != "columns"}
        if options and not is_routable(target, inner):
            return None
        convert = by_kept_route(to, inner, or_slowly=source is not None and source.runs_queries)
        return _columns_route(parts, options.get("columns"), index, convert)
    between_tables = target.tables and source is not None and source.tables
    if _is_only_for_hub(parts) and options.keys() <= {"layout", "columns"}:
        assert source is not None
        importer = parts.importers.get("hub") if between_tables and not options else None
        return _hub_route(parts, by_kept_route(to, options, or_slowly=source.runs_queries), importer)
    if not options:
        if between_tables:
            return _table_route(parts)
        if parts.native_exporter and parts.exporters.get("ndarray") is not identity and target.tables:
            # The compiled route to NumPy: 1 us instead of 6 for TensorFlow.
            parts.exporters["ndarray"] = by_kept_route("numpy", {"copy": False})
        route = _plain_route(parts) if "cuda" in target.device_kinds else _host_route(parts)
        if route is not None and target.tables and parts.exporters.get("ndarray") is identity:
            return _array_route(parts, route)
        return route or _device_route(parts, None)
    if between_tables:
        return None
    if options.keys() == {"device"} and type(options["device"]) is str and not parts.owned:
        # A string names the same device in each call; an object may name the current one.
        device = target.parse_device(options["device"])
        return _host_route(parts) if device.is_host else _device_route(parts, device)
    if not options.keys() <= {"copy", "device"} or not is_routable(target, options):
        return None
    if parts.owned:
        return None if aliases else _own_copy_route(parts)
    # A route aliases or raises, so it serves copy=False too, unless its importer copies.
    return _plain_route(parts) if aliases and (target.aliases_host or "copy" not in options) else None


def _plain_route(parts: Parts) -> Route | None:
    for form, importer in parts.importers.items():
        if form in parts.exporters:
            return _chain(parts.exporters[form], importer)
    return None


def _host_route(parts: Parts) -> Route | None:
    """Return the route to the host: it copies objects on a device, and passes others to the plain route."""
    plain, copy_to_host, importer = _plain_route(parts), parts.copy_to_host, parts.importers.get("ndarray")
    if copy_to_host is None or importer is None:
        return plain

    def route(obj: object) -> object:
        array = copy_to_host(obj)
        if array is not None:
            return importer(array)
        if plain is None:
            raise ValueError("not on a device")
        return plain(obj)

    return route


def _device_route(parts: Parts, device: Device | None) -> Route | None:
    """Return the route of host memory to a device."""
    exporter, device_copier = parts.exporters.get("ndarray"), parts.device_copier
    copy_ndarray = None if exporter is None or device_copier is None else device_copier(device)
    return None if exporter is None or copy_ndarray is None else _chain(exporter, copy_ndarray)


def _chain(exporter: Route, importer: Route) -> Route:
    if exporter is identity:
        return importer
    if importer is identity:
        return exporter

    def route(obj: object) -> object:
        return importer(exporter(obj))

    return route


def _own_copy_route(parts: Parts) -> Route | None:
    """Return the route of ``copy=True`` for the target's own objects, other than ndarrays."""
    check, target = parts.exporters.get("ndarray"), parts.target
    if check is None or parts.ndarrays or target.kind != "tensor" or not target.can_copy_to_device:
        return None
    copy_to_device = target.copy_to_device

    def route(obj: object) -> object:
        # The exporter is called only to check that the object is plain memory on the host.
        if not check(obj).size:
            raise ValueError("no elements: the slow path returns the object itself")
        return copy_to_device(obj, HOST, None)

    return route


def _opening_route(parts: Parts, convert: Route) -> Route:
    """Return the route of a handle: that of the object that it locates, after it was opened."""
    open_handle, target = parts.exporters["handle"], parts.target.name
    return lambda handle: convert(open_handle(handle, target))


def _is_only_for_hub(parts: Parts) -> bool:
    """Whether the hub's object replaces the source: a query must run once, and others have no array."""
    source = parts.source
    if source is None or "hub" not in parts.exporters or source.name == HUB:
        return False
    return source.runs_queries or not (parts.target.tables or "ndarray" in parts.exporters)


def _hub_route(parts: Parts, convert: Route, importer: Route | None, *fills: object) -> Route:
    """Return the route of an object that exports an object of the hub, which has a route to each target.

    If the exported object is not a table of the hub, another table framework's `importer` reads it directly.
    With nulls=, the exporter also takes `fills`: the layout, and whether NaN is null (not for nulls="nan").
    """
    exporter, to_hub = parts.exporters["hub"], hub().fast_importers()["hub"]
    target, table_type = parts.target if importer else hub(), hub().module().Table

    def route(obj: object) -> object:
        exported = exporter(obj, target, *fills)
        if importer is None or isinstance(exported[1], table_type):
            return convert(to_hub(exported))
        return importer(exported)

    return route


def _columns_route(parts: Parts, labels: Any, index: bool | None, convert: Route) -> Route:
    """Return the route of a table whose columns have routes of their own."""
    exporter, chosen = parts.exporters["columns"], None if labels is None else tuple(labels)

    def route(table: object) -> dict[object, object]:
        columns = exporter(table, index)
        if any(name != name for name, _ in columns):
            raise ValueError("a label is NaN, which differs from itself: the slow path compares it")
        if chosen is not None:
            columns = cast_routes.selected(columns, chosen)
        arrays = {name: convert(x) for name, x in columns}
        if len(arrays) != len(columns):
            raise ValueError("duplicate column names, which the slow path refuses")
        return arrays

    return route


def _table_route(parts: Parts) -> Route:
    """Return the route between two table frameworks: through the hub, or as planned, but without the plan.

    In the benchmark `grid`, ten columns take 20 to 250 us through the hub, and 250 to 1,000 as planned.
    """
    as_planned = _planned_route(parts)
    if "hub" not in parts.exporters or "hub" not in parts.importers:
        return as_planned
    target, exporter, importer = parts.target, parts.exporters["hub"], parts.importers["hub"]

    def through_hub(obj: object) -> object:
        try:
            return importer(exporter(obj, target))
        except ValueError as error:  # a column has nulls or several chunks, or is of another type
            if not is_error(error):
                raise
        return as_planned(obj)

    return through_hub


def _planned_route(parts: Parts) -> Route:
    source, target = parts.source, parts.target
    assert source is not None

    def as_planned(obj: object) -> object:
        table = source.table(obj)
        if table is None or table.read is not None:
            raise ValueError("not a table, or not read yet: the slow path handles it")
        if not (target.has_dimensions or table.has_rows):
            raise ValueError("variables with other dimensions: the slow path refuses them")
        for column in table.columns:
            target.column_reasons(column)  # raises if the target cannot hold the column
        target.table_reasons(table)
        return target.from_column(table) if table.single else target.from_table(table)

    return as_planned


def _array_route(parts: Parts, plain: Route) -> Route:
    """Return the route of NumPy's arrays to tables; text, dates, objects and records are not plain."""
    of_nonnumeric, as_planned = parts.importers.get("nonnumeric"), _planned_route(parts)

    def route(array: Array) -> object:
        if array.dtype.kind not in "mMSUOT" and array.dtype.names is None:
            return plain(array)
        made = None if of_nonnumeric is None else of_nonnumeric(array)
        return as_planned(array) if made is None else made

    return route


# -- compiled routes ---------------------------------------------------------------------


def compile_route(parts: Parts, options: Mapping[str, Any], route: Route | None) -> Any:
    """Return a compiled route with the fallback `route`, or None if `route` is None too."""
    declare_dtypes()
    if route is identity:
        return core.IdentityRoute()
    if parts.native_table is not None and parts.target.kind == "tensor":
        if options.get("layout") in MATRIX_ORDERS and "dtype" not in options and "matrix" in parts.exporters:
            route = _compile_matrix(parts, options, None)  # aliases the tables that the core does not copy
        compiled = _compile_table(parts, options, route)
    elif "matrix" in parts.exporters and options.get("layout") in MATRIX_ORDERS:
        compiled = _compile_matrix(parts, options, route)
    else:
        # A series of polars, of numbers or of lists: the first route refuses lists and nulls.
        route = _compile_column(parts, options, route) or route
        is_plain = not options or is_routable(parts.target, options)
        compiled = _compile_memory(parts, options, route) if is_plain else None
    if compiled is None and route is not None:
        return route if isinstance(route, core.Route) else core.CallRoute(route)
    return compiled


def _compile_memory(parts: Parts, options: Mapping[str, object], route: Route | None) -> object:
    """Return a compiled route from an array to an array, or None."""
    exporter, importer, target = parts.native_exporter, parts.native_importer, parts.target
    # The core copies and marks objects of the target itself if they are ndarrays.
    foreign = parts.owned and not parts.ndarrays
    if foreign and (options.get("copy") is True or target.tables or not target.can_copy_to_device):
        return None
    if (exporter is None or foreign) and "ndarray" in parts.exporters:
        exporter = core.ArrayExporter(parts.exporters["ndarray"])
    if exporter is None or (importer is None and parts.device_importer is None):
        return None
    # Of the options that a route can hold, device= requests host memory; the others keep the device.
    others = {"owned": parts.owned, "only_unchanged": foreign, "device_importer": parts.device_importer}
    if "device" in options:
        del others["device_importer"]
    return core.MemoryRoute(exporter, importer, **_delivery(parts, options, route), **others)


def _compile_table(parts: Parts, options: Mapping[str, Any], route: Route | None) -> object:
    """Return a compiled route from a table to a dict of its columns, or to a matrix of them; or None."""
    labels, layout = options.get("columns"), options.get("layout")
    own_options = {"columns", "layout", "nulls"} | (
        {"lists"} if options.get("lists") == "pad" else set[str]()
    )
    others = {name: value for name, value in options.items() if name not in own_options}
    # The compiled routes take different texts, at least one.
    has_labels = labels is None or (
        0 < len(labels) == len({*labels}) and all(type(label) is str for label in labels)
    )
    # A fallback in Python exists for dicts of columns without nulls= and lists=, not for matrices.
    has_fallback = route is not None or "nulls" in options or "lists" in options
    fits = has_labels and (has_fallback if layout is None else layout in MATRIX_ORDERS)
    if not fits or parts.native_importer is None or not is_routable(parts.target, others):
        return None
    columns = None if labels is None else tuple(labels)
    kind = core.TableRoute if layout is None else core.MatrixRoute
    own = {"columns": columns, "nulls": options.get("nulls"), "by_columns": layout is MatrixOrder.F}
    own["pads"] = "lists" in own_options
    return kind(parts.native_table, parts.native_importer, **_delivery(parts, others, route), **own)


def _compile_matrix(parts: Parts, options: Mapping[str, object], route: Route | None) -> Any:
    """Return a compiled route from a table whose values lie in one matrix, or None."""
    others = {name: value for name, value in options.items() if name not in ("layout", "nulls")}
    order, target, nulls = MATRIX_ORDERS[options["layout"]], parts.target, options.get("nulls")
    if parts.native_importer is None or target.kind != "tensor" or not is_routable(target, others):
        return None
    if nulls is not None and not parts.nan_is_null:
        return None
    nulls = None if nulls == "nan" else nulls
    matrix = parts.exporters["matrix"]
    if "dtype" in others and others.get("copy") is not False:
        matrix = cast_routes.casting_exporter(matrix, others["dtype"], order, nulls)
        if matrix is not parts.exporters["matrix"]:
            others.pop("copy", None)  # it casts into new memory, or raises
    if nulls is not None and matrix is parts.exporters["matrix"]:
        if "dtype" in others or others.get("copy") is False:
            return None
        matrix = cast_routes.filling_exporter(matrix, order, nulls)
    if order == "F":  # the core copies to row-major memory only; the slow path copies by column
        if others.get("copy"):
            return None
        others["copy"] = False
    exporter = core.ArrayExporter(cast_routes.in_order(matrix, order) if order else matrix)
    return core.MemoryRoute(exporter, parts.native_importer, **_delivery(parts, others, route))


def _compile_column(parts: Parts, options: Mapping[str, object], fallback: Route | None) -> Any:
    """Return a compiled route from a column of numbers, or of lists of one length or padded; or None."""
    if parts.native_column is None or parts.native_importer is None or parts.target.kind != "tensor":
        return None
    lists, nulls = options.get("lists"), options.get("nulls")
    # With nulls=, no column becomes a ragged array.
    is_dense = lists == "dense" or (lists is None and not (parts.may_be_ragged and nulls is None))
    others = {name: value for name, value in options.items() if name not in ("lists", "nulls")}
    if not ((is_dense or lists == "pad") and is_routable(parts.target, others)):
        return None
    own = _delivery(parts, others, fallback) | {"nulls": nulls, "pads": lists == "pad"}
    return core.MatrixRoute(parts.native_column, parts.native_importer, single=True, **own)


def _delivery(parts: Parts, options: Mapping[str, object], route: Route | None) -> dict[str, object]:
    """Return the arguments of a compiled route that come from the target and the options."""
    dtype = cast_routes.parse(options["dtype"]) if "dtype" in options else None
    return {
        "mutable": parts.target.mutable,
        "marks_readonly": parts.target.marks_readonly,
        "fallback": route,
        "copy": options.get("copy"),
        "writable": options.get("writable"),
        "dtype": None if dtype is None else (dtype.code, dtype.bits),
    }


def declare_dtypes() -> None:
    """Declare NumPy's dtypes to the core, and those of ``ml_dtypes`` once that is imported."""
    global _declared
    # The import waits for a thread that has begun it.
    module = None if sys.modules.get("ml_dtypes") is None else import_module("ml_dtypes")
    if module is _declared:
        return
    core.set_copy_function(aligned_copy)
    for dtype in ALL:
        if dtype.in_numpy:
            numpy_dtype = dtype.storage
        elif dtype.bits >= 8 and dtype.lanes == 1 and hasattr(module, dtype.name):
            numpy_dtype = np.dtype(getattr(module, dtype.name))
        else:
            continue
        core.set_dtype(numpy_dtype, dtype.code, dtype.bits)
        if dtype.name in ("int64", "uint64"):
            # NumPy has two 64-bit integers, long and long long.
            for char in "lLqQ":
                if np.dtype(char) == numpy_dtype:
                    core.set_dtype(np.dtype(char), dtype.code, dtype.bits)
    _declared = module
