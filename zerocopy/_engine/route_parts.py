"""The parts of a route: two frameworks, and their functions by the form in which they exchange memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from zerocopy import registry
from zerocopy._engine.target import may_be_compound, resolve
from zerocopy.casting.parse import parse_dtype
from zerocopy.errors import ZeroCopyError
from zerocopy.framework import Framework, identity
from zerocopy.protocols.producer import compiled_exporter

Route = Callable[[Any], Any]


class Parts(NamedTuple):
    """The parts of a route: the frameworks, and their functions by form."""

    source: Framework | None  # None: a type without a framework file
    target: Framework
    exporters: dict[str, Route]
    importers: dict[str, Route]
    owned: bool  # whether the objects belong to the target
    native_exporter: Any = None  # of the compiled core
    native_importer: Any = None
    native_table: Any = None  # exporter of tables
    native_lists: Any = None  # exporter of columns of lists
    may_be_ragged: bool = False  # whether such a column becomes a ragged array without lists=

    @property
    def ndarrays(self) -> bool:
        """Whether the target's own objects are ndarrays."""
        return self.exporters.get("ndarray") is identity is self.importers.get("ndarray")


def find_parts(obj: Any, to: Any) -> Parts | None:
    """Return the parts of a route for objects of this type; None if no route is possible."""
    target, cls = registry.find(to) or resolve(to), type(obj)
    source = registry.by_type(cls)
    if source is None:
        native = compiled_exporter(obj), target.fast_importers().get("native")
        return None if None in native else Parts(None, target, {}, {}, False, *native)
    owned = target.owns(cls)
    if owned and not target.is_native(obj):
        return None
    exporters, importers = source.fast_exporters(cls), target.fast_importers()
    native = exporters.pop("native", None), importers.pop("native", None)
    tables = exporters.pop("native_table", None), exporters.pop("native_lists", None)
    may_be_ragged = tables[1] is not None and may_be_compound(cls, target)
    return Parts(source, target, exporters, importers, owned, *native, *tables, may_be_ragged)


def effective_options(parts: Parts, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options without those that change nothing for objects of the type.

    These are ``layout=`` if the route treats none of them as a table, and ``lists="dense"`` by default.
    """
    layout, target = options.get("layout"), parts.target
    arrow = parts.native_table or parts.native_lists
    if options.get("lists") == "dense" and arrow is not None and not parts.may_be_ragged:
        options = {name: value for name, value in options.items() if name != "lists"}
    if layout in (None, "records") or target.tables or (parts.owned and target.has_records):
        return options
    if parts.native_table is not None or parts.exporters.keys() & {"columns", "handle"}:
        return options
    return {name: value for name, value in options.items() if name != "layout"}


def is_routable(target: Framework, options: Mapping[str, Any]) -> bool:
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
    return dtype is None or (not isinstance(dtype, Mapping) and parse_dtype(dtype).in_numpy)
