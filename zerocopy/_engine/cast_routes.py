"""Routes of ``layout="matrix"`` with ``dtype=``: columns that are arrays, cast into one matrix by the core.

A plan describes each column first: 1,150 us for 16 columns of 50 rows, where NumPy's casts take 12 us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from zerocopy import registry
from zerocopy._native import core
from zerocopy.dtype import DType
from zerocopy.framework import Framework
from zerocopy.request import MATRIX_ORDERS, MatrixOrder
from zerocopy.source import Array
from zerocopy.tables.hub import new_memory

Route = Callable[[object], object]
#: A label and its column.
Pair = tuple[object, object]
#: Options that these routes accept with any value.
_OPTIONS = frozenset(("layout", "dtype", "columns"))


def parse(dtype: object) -> DType:
    """Return the type that ``dtype=`` names."""
    from zerocopy.casting.option import parse_dtype  # here, because most calls cast nothing

    return parse_dtype(dtype)


def requests_cast_matrix(target: Framework, options: Mapping[str, object]) -> bool:
    """Whether the options request a matrix that these routes make."""
    is_cast = options.get("layout") in MATRIX_ORDERS and "dtype" in options
    if core is None or not is_cast or not options.keys() <= _OPTIONS:
        return False
    return target.kind == "tensor" and "cpu" in target.device_kinds and _storage(options["dtype"]) is not None


def _storage(dtype: object) -> np.dtype[np.generic] | None:
    """Return the type of the matrix in memory; None for a type that the core does not cast to."""
    if isinstance(dtype, Mapping) or not (known := parse(dtype)).in_numpy:
        return None
    return known.storage if known.storage.kind in "iuf" and known.storage != np.float16 else None


def make_route(
    to: object,
    options: Mapping[str, object],
    exporter: Callable[..., list[Pair]],
    index: object,
    by_kept_route: Callable[..., Route],
) -> Route:
    """Return a route of tables. ``exporter(table, index)`` returns the labels and columns of a table.

    `by_kept_route` is the function of `zerocopy._engine.routes`.
    """
    storage, by_columns, labels = (
        _storage(options["dtype"]),
        options["layout"] is MatrixOrder.F,
        options.get("columns"),
    )
    to_numpy, deliver = by_kept_route("numpy", {}), by_kept_route(to, {})
    chosen = None if labels is None else tuple(labels)  # type: ignore[arg-type, var-annotated]

    def route(table: object) -> object:
        pairs = exporter(table, index)
        pairs = selected(pairs, [label for label, _ in pairs] if chosen is None else chosen)
        return deliver(cast([_array(x, to_numpy) for _, x in pairs], storage, by_columns))

    return route


def selected(columns: list[Pair], labels: Sequence[object]) -> list[Pair]:
    """Return the columns with these labels; the keys of the result are the table's own labels."""
    places = {column[0]: column for column in columns}
    if len(places) != len(columns):
        raise ValueError("duplicate column names: the slow path decides")
    return [places[label] for label in labels]


def _array(x: object, to_numpy: Route) -> Array:
    if type(x) is not np.ndarray:
        if registry.by_type(type(x)) is None:
            raise ValueError("not an array: the slow path describes the column")
        x = to_numpy(x)
        if type(x) is not np.ndarray:
            raise ValueError("a subclass, whose values may be masked: the slow path decides")
    return x


def cast(columns: Sequence[Array], storage: np.dtype[np.generic] | None, by_columns: bool) -> Array:
    """Return columns as one matrix of another type; raise ValueError if the slow path must decide.

    Raises
    ------
    ValueError
        All columns have the type already, so the slow path may alias them; or there are no rows; or a
        number does not fit.
    """
    assert storage is not None
    if not len(columns) or all(column.dtype == storage for column in columns):
        raise ValueError("nothing to cast: the slow path decides")
    shape = (len(columns[0]), len(columns))
    if not shape[0]:
        raise ValueError("no rows: the slow path decides")
    out = new_memory(shape[::-1], storage).T if by_columns else new_memory(shape, storage)
    if not core.cast_columns(out, columns):
        raise ValueError("a number does not fit: the error of the slow path names it")
    return out


def casting_exporter(
    matrix: Callable[..., Array], dtype: object, order: str, nulls: object
) -> Callable[..., Array]:
    """Return an exporter that casts its matrices to the order "C" or "F"; an empty `order` keeps theirs.

    It writes `nulls` in place of NaN, unless `nulls` is None.
    """
    if (storage := _storage(dtype)) is None:
        return matrix

    def export(table: object) -> Array:
        array = matrix(table)
        if not order and array.flags.f_contiguous:  # one column of all numbers is cast in 0.9 of the time
            out = cast([array.T.reshape(-1)], storage, False).reshape(array.T.shape).T
        else:
            out = cast([*array.T], storage, order == "F")
        if nulls is not None and (missing := np.isnan(out)).any():  # a cast to integers refuses NaN
            _fill(out, missing, nulls)
        return out

    return export


def filling_exporter(matrix: Callable[..., Array], order: str, nulls: object) -> Callable[..., Array]:
    """Return an exporter that copies matrices with NaN, and writes `nulls` in its place."""

    def export(table: object) -> Array:
        array = matrix(table)
        if array.dtype.kind not in "fc" or not (missing := np.isnan(array)).any():
            return array
        shape = array.shape
        out = new_memory(shape[::-1], array.dtype).T if order == "F" else new_memory(shape, array.dtype)
        out[...] = array
        _fill(out, missing, nulls)
        return out

    return export


def _fill(out: Array, missing: Array, value: object) -> None:
    from zerocopy.tables.nulls import fits  # conversions between arrays need no tables

    if not fits(value, out.dtype):
        raise ValueError("the dtype cannot hold nulls=: the slow path refuses it")
    out[missing] = value


def in_order(matrix: Callable[..., Array], order: str) -> Callable[..., Array]:
    """Return an exporter of matrices that raises for those in another memory order than "C" or "F"."""

    def export(table: object) -> Array:
        array = matrix(table)
        flags = array.flags
        if not (flags.aligned and (flags.c_contiguous if order == "C" else flags.f_contiguous)):
            raise ValueError("stored in another order: the slow path copies it")
        return array

    return export
