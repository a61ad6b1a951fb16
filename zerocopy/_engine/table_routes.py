"""Routes of dicts and matrices to tables: each column by its own route, then one call of the target.

A plan describes each column first: ten columns into pandas took 1,005 us, and pandas alone takes 113 us.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._engine.target import resolve
from zerocopy.dtype import native_numbers
from zerocopy.framework import Framework
from zerocopy.source import Array
from zerocopy.tables.hub import NAME as HUB, hub

Route = Callable[[Any], Any]
#: Makes a table of pairs of a name and an array.
Build = Callable[[list[tuple[str, Any]]], object]
#: The units of dates that polars and Arrow have.
_UNITS = frozenset((unit, 1) for unit in ("ms", "us", "ns"))


def _of_arrays(convert: Route) -> Route:
    """Return a function that converts arrays as `convert` does, and raises for other objects."""
    known = set[type]()

    def convert_array(x: object) -> object:
        if type(x) not in known:
            source = registry.by_type(type(x))
            if source is None or source.kind != "tensor":
                raise ValueError("not an array: the slow path describes the column")
            known.add(type(x))
        return convert(x)

    return convert_array


def make_route(to: object, by_kept_route: Callable[..., Route]) -> Route | None:
    """Return the route of dicts of arrays to a target, or None if it has no such tables.

    Parameters
    ----------
    to : object
        The target, as `convert` takes it.
    by_kept_route : callable
        `zerocopy._engine.routes.by_kept_route`.
    """
    build = _builder(registry.find(to) or resolve(to), by_kept_route)
    if build is None:
        return None

    def route(columns: dict[Any, object]) -> object:
        if not columns or not all(type(name) is str and name and "\0" not in name for name in columns):
            raise ValueError("names that need a check")
        return build([*columns.items()])

    return route


def _builder(target: Framework, by_kept_route: Callable[..., Route]) -> Build | None:
    """Return a function that makes a table of the target, of arrays of any framework; None if it has none."""
    importers = target.fast_importers() if target.tables else {}
    for form, importer in importers.items():  # the cheapest first
        if form == "hub" and registry.is_imported(HUB):
            return _through_hub(importer, _of_arrays(by_kept_route(HUB, {})))
        if form == "columns":
            to_numpy = _of_arrays(by_kept_route("numpy", {}))
            return lambda pairs: importer([(name, to_numpy(x)) for name, x in pairs])
    return None


def _through_hub(importer: Route, to_hub: Route) -> Build:
    make = hub().module().RecordBatch.from_arrays  # refuses different lengths

    def build(pairs: list[tuple[str, Any]]) -> object:
        arrays = [(_dates if _are_dates(x) else to_hub)(x) for _, x in pairs]
        if not len(arrays[0]):
            raise ValueError("no rows: the slow path decides")
        return importer((None, make(arrays, names=[name for name, _ in pairs]), None))

    return build


def _are_dates(x: object) -> bool:
    return type(x) is np.ndarray and x.dtype.kind == "M"


def _dates(x: Array) -> Any:
    """Return NumPy's dates as an array of the hub, which aliases them; raise if its type would be another."""
    if np.datetime_data(x.dtype) not in _UNITS or x.ndim != 1 or not x.dtype.isnative:
        raise ValueError("a unit that Arrow lacks, or other dimensions: the slow path decides")
    if not (x.size and x.flags.c_contiguous and x.flags.aligned):
        raise ValueError("gaps between dates, or none: the slow path decides")
    return hub().module().array(x)  # NaT is null


def make_matrix_route(to: object, names: Sequence[str], by_kept_route: Callable[..., Route]) -> Route | None:
    """Return the route of matrices with ``names=`` to a target, or None."""
    target = registry.find(to) or resolve(to)
    labels = list(names)
    are_plain = all(type(name) is str and name and "\0" not in name for name in labels)
    if not (target.tables and labels and are_plain) or len({*labels}) != len(labels):
        return None  # without labels, only a slow path keeps the number of rows
    by_block: Any = target.fast_importers().get("matrix")
    build = None if by_block else _builder(target, by_kept_route)
    numbers, to_numpy = native_numbers(), _of_arrays(by_kept_route("numpy", {}))
    if by_block is build:
        return None

    def route(x: object) -> object:
        array = to_numpy(x)
        if array.ndim != 2 or array.shape[1] != len(labels) or not array.shape[0]:
            raise ValueError("another shape: the slow path decides")
        if array.dtype.num not in numbers or array.dtype.kind not in "iuf" or not array.dtype.isnative:
            raise ValueError("not plain numbers: the slow path decides")
        if not (array.flags.forc and array.flags.aligned):
            raise ValueError("gaps between elements: the slow path decides")
        if build is None:
            return by_block(array, labels)
        # The transposition of contiguous columns is an alias.
        return build([*zip(labels, np.ascontiguousarray(array.T), strict=True)])

    return route
