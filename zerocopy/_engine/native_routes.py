"""Compiled routes: an exporter and an importer in C, in the table that the compiled ``convert`` reads.

The table is keyed by the addresses of the target, the type and the options. If a route fails, it calls the
route in Python, its fallback; if that fails or there is none, the slow path converts the object.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Mapping
from typing import Any

from zerocopy._engine import recording
from zerocopy._engine.option_routes import Parts, Route, is_routable
from zerocopy._native import core
from zerocopy.casting.parse import parse_dtype
from zerocopy.dtype import ALL, to_numpy
from zerocopy.framework import identity
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.protocols.exporter_errors import is_error

#: Options that the keys of the compiled table have.
OPTIONS = frozenset(("copy", "writable", "device", "dtype"))
#: The limit of routes with a device or a dtype, because callers can pass new objects in each call.
MAX_OBJECT_KEYS = 256

_IN_NUMPY = tuple(dtype for dtype in ALL if dtype.in_numpy)
_declared: set[str] = set()
_object_keys = 0


def keep(parts: Parts, cls: type, to: Any, options: Mapping[str, Any], route: Route | None) -> Any:
    """Keep and return a compiled route for objects of this type, or None.

    `route` is its fallback. No value in `options` is None.
    """
    global _object_keys
    compiled = _compose(parts, options, route)
    if compiled is not None and (active := recording.counters) is not None:
        compiled = recording.recorded(active, compiled, cls, to, options)
    if compiled is None or not options.keys() <= OPTIONS:
        return compiled
    if options.keys() & {"device", "dtype"}:
        if _object_keys >= MAX_OBJECT_KEYS:
            return compiled
        _object_keys += 1
    core.set_route(to, cls, compiled, **{name: _interned(value) for name, value in options.items()})
    return compiled


def keep_tree(cls: type, to: Any, options: Mapping[str, Any]) -> None:
    """Keep a compiled route for containers of this type, whose leaves have their own routes."""
    if cls in (dict, list, tuple) and options.keys() <= {"copy", "writable"}:
        route, generation = core.TreeRoute(to, **options), recording.generation
        if (active := recording.counters) is not None:
            route = recording.recorded(active, route, cls, to, options)
        core.set_route(to, cls, route, **options)
        if generation != recording.generation:
            clear()  # a recorder was set or removed while this route was composed


def clear() -> None:
    """Drop all compiled routes."""
    global _object_keys
    if core is not None:
        core.clear_routes()
    _object_keys = 0


if core is not None:
    # At the exit of the interpreter: frameworks report objects that routes still hold as leaked.
    atexit.register(clear)
    core.set_error_test(is_error)


def declare_dtypes() -> None:
    """Declare NumPy's dtypes to the core, and those of ``ml_dtypes`` once that is imported."""
    import numpy as np

    known = ALL if "ml_dtypes" in sys.modules else _IN_NUMPY
    if len(_declared) == len(known):
        return
    core.set_copy_function(aligned_copy)
    for dtype in known:
        if dtype.name in _declared:
            continue
        _declared.add(dtype.name)
        numpy_dtype = to_numpy(dtype) if dtype.bits >= 8 and dtype.lanes == 1 else None
        if numpy_dtype is None:
            continue
        core.set_dtype(numpy_dtype, dtype.code, dtype.bits)
        if dtype.name in ("int64", "uint64"):
            # NumPy has two 64-bit integers, long and long long.
            for char in "lLqQ":
                if np.dtype(char) == numpy_dtype:
                    core.set_dtype(np.dtype(char), dtype.code, dtype.bits)


def _compose(parts: Parts, options: Mapping[str, Any], route: Route | None) -> Any:
    """Return a compiled route, or None if `route` is None too."""
    declare_dtypes()
    if route is identity:
        return core.IdentityRoute()
    if not options.keys() <= OPTIONS | {"columns", "layout"}:
        return None
    if parts.native_table is not None and parts.target.kind == "tensor":
        return _compose_table(parts, options, route)
    exporter, importer = parts.native_exporter, parts.native_importer
    if exporter is None and "ndarray" in parts.exporters:
        exporter = core.ArrayExporter(parts.exporters["ndarray"])
    # The core returns, copies and marks objects of the target itself if they are ndarrays.
    elsewhere = parts.owned and parts.exporters.get("ndarray") is not identity
    if exporter is None or importer is None or elsewhere or not is_routable(parts.target, options):
        return None if route is None or not options.keys() <= OPTIONS else core.CallRoute(route)
    return core.MemoryRoute(exporter, importer, **_delivery(parts, options, route), owned=parts.owned)


def _compose_table(parts: Parts, options: Mapping[str, Any], route: Route | None) -> Any:
    """Return a compiled route from a table to a dict of its columns, or to a matrix of them."""
    labels, layout = options.get("columns"), options.get("layout")
    others = {name: value for name, value in options.items() if name in OPTIONS}
    has_labels = labels is None or _are_labels(labels)
    # A fallback in Python exists for dicts of columns only, not for matrices.
    fits = has_labels and (route is not None if layout is None else layout in ("matrix", "matrix:C"))
    if not fits or parts.native_importer is None or not is_routable(parts.target, others):
        return None if route is None or not options.keys() <= OPTIONS else core.CallRoute(route)
    columns = None if labels is None else tuple(labels)
    kind = core.TableRoute if layout is None else core.MatrixRoute
    arguments = _delivery(parts, others, route)
    return kind(parts.native_table, parts.native_importer, **arguments, columns=columns)


def _are_labels(labels: Any) -> bool:
    """Whether the compiled routes take these labels of columns: different texts, at least one."""
    if type(labels) not in (list, tuple) or not all(type(label) is str for label in labels):
        return False
    return 0 < len(labels) == len({*labels})


def _delivery(parts: Parts, options: Mapping[str, Any], route: Route | None) -> dict[str, Any]:
    """Return the arguments of a compiled route that come from the target and the options."""
    dtype = parse_dtype(options["dtype"]) if "dtype" in options else None
    return {
        "mutable": parts.target.mutable,
        "marks_readonly": parts.target.marks_readonly,
        "fallback": route,
        "copy": options.get("copy"),
        "writable": options.get("writable"),
        "dtype": None if dtype is None else (dtype.code, dtype.bits),
    }


def _interned(value: Any) -> Any:
    return sys.intern(value) if type(value) is str else value
