"""Routes of dicts and matrices to tables: each column by its own route, then one call of the target.

A plan describes each column first: ten columns into pandas took 1,005 us, and pandas alone takes 113 us. The
compiled core makes one Arrow array of the columns: in the benchmark `grid`, ten ndarrays become a frame of
polars in 16 us, and in 53 by polars' own call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._engine.target import resolve
from zerocopy._native import core
from zerocopy.dtype import native_numbers
from zerocopy.framework import Framework, identity
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Array
from zerocopy.tables.hub import NAME as HUB, hub

Route = Callable[[Any], Any]
#: Makes a table of names and columns.
Build = Callable[[list[str], Any], Any]
#: The units of dates that polars and Arrow have.
_UNITS = frozenset((unit, 1) for unit in ("ms", "us", "ns"))
#: Converts an array to the framework of a name, by the route of its type; raises if the type has none.
Convert = Callable[[Any, str], Any]


class Routes:
    """The routes of arrays to one framework, by type."""

    def __init__(self, name: str, by_type: Mapping[type, Route], keep: Callable[[Any, str], Route]) -> None:
        self.name, self.by_type, self.keep = name, by_type, keep
        self.known: dict[type, Route] = {}

    def of(self, x: Any) -> Route:
        """Return the route of an array; raise for another object, and for a type without a route."""
        source = registry.by_type(type(x))
        if source is None or source.kind != "tensor":
            raise ValueError("not an array: the slow path describes the column")
        self.known[type(x)] = route = self.by_type.get(type(x)) or self.keep(x, self.name)
        return route

    def convert(self, x: Any) -> Any:
        """Convert an array."""
        return (self.known.get(type(x)) or self.of(x))(x)


def make_route(to: Any, routes: Callable[[str], Routes]) -> Route | None:
    """Return the route of dicts of arrays to a target, or None if it has no such tables.

    Parameters
    ----------
    to : object
        The target, as `convert` takes it.
    routes : callable
        ``routes(name)`` returns the routes to a framework.
    """
    target = registry.find(to) or resolve(to)
    if not target.tables:
        return None
    importers = target.fast_importers()
    columns_of = routes("numpy")
    build: Any = importers.get("arrays") or _through_plain(target)
    if build is None:
        return None
    takes_dates = "arrow_chunks" in importers and "arrays" not in importers

    def route(columns: dict[Any, Any]) -> Any:
        if not columns or not all(type(name) is str and name and "\0" not in name for name in columns):
            raise ValueError("names that need a check")
        known, names = columns_of.known, list(columns)
        try:
            return build(names, [(known.get(type(x)) or columns_of.of(x))(x) for x in columns.values()])
        except BaseException as error:
            if not (takes_dates and is_error(error) and any(map(_are_dates, columns.values()))):
                raise
        convert, make = routes(HUB).convert, hub().module().Table.from_arrays  # refuses different lengths
        arrays = [(_dates if _are_dates(x) else convert)(x) for x in columns.values()]
        return importers["arrow"](make(arrays, names=names))

    return route


def _are_dates(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype.kind == "M"


def _dates(x: Array) -> Any:
    """Return NumPy's dates as an array of the hub, which aliases them; raise if its type would be another."""
    if np.datetime_data(x.dtype) not in _UNITS or x.ndim != 1 or not x.dtype.isnative:
        raise ValueError("a unit that Arrow lacks, or other dimensions: the slow path decides")
    if not (x.size and x.flags.c_contiguous and x.flags.aligned):
        raise ValueError("gaps between dates, or none: the slow path decides")
    return hub().module().array(x)  # NaT is null


def make_matrix_route(to: Any, names: Sequence[str], routes: Callable[[str], Routes]) -> Route | None:
    """Return the route of matrices with ``names=`` to a target, or None; `routes` is that of `make_route`."""
    target = registry.find(to) or resolve(to)
    labels = list(names)
    are_plain = all(type(name) is str and name and "\0" not in name for name in labels)
    if not (target.tables and labels and are_plain) or len({*labels}) != len(labels):
        return None  # without labels, only a slow path keeps the number of rows
    by_block: Any = target.fast_importers().get("matrix")
    build = by_block or _through_plain(target)
    numbers, arrays = native_numbers(), routes("numpy")
    if build is None:
        return None

    def route(x: Any) -> Any:
        array = arrays.convert(x)
        if array.ndim != 2 or array.shape[1] != len(labels) or not array.shape[0]:
            raise ValueError("another shape: the slow path decides")
        if array.dtype.num not in numbers or array.dtype.kind not in "iuf" or not array.dtype.isnative:
            raise ValueError("not plain numbers: the slow path decides")
        if not (array.flags.forc and array.flags.aligned):
            raise ValueError("gaps between elements: the slow path decides")
        # The transposition of contiguous columns is an alias.
        return build(array, labels) if by_block else build(labels, np.ascontiguousarray(array.T))

    return route


def _through_plain(target: Framework) -> Build | None:
    """Return a function that makes a table of names and ndarrays, or of the rows of a matrix; or None."""
    importers, hub_is_used = target.fast_importers(), False
    importer = importers.get("plain")
    if importer is None:
        importer, hub_is_used = importers.get("arrow"), True
    if importer is None or core is None or (hub_is_used and not registry.is_imported(HUB)):
        return None
    make, to_hub = core.plain_table, hub().fast_importers()["plain"] if hub_is_used else identity

    def build(names: list[str], columns: Any) -> Any:
        return importer(to_hub(make(names, columns)))

    return build
