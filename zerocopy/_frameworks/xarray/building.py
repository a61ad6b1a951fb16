"""Tables of other frameworks as datasets: numbers as NumPy's arrays, other types as extension arrays.

This module does not import xarray: callers pass the module as `xr`.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._frameworks._obstacles import pairs
from zerocopy._frameworks.xarray.tables import held
from zerocopy.dtype import to_numpy
from zerocopy.errors import Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import refuse_ndim
from zerocopy.source import Array
from zerocopy.strided_view import MAX_NDIM
from zerocopy.tables import placement
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import Decoder, TensorLeaf, refused_by
from zerocopy.tables.hub import hub
from zerocopy.tables.nulls import Nulls
from zerocopy.tables.result import Masked
from zerocopy.tables.to_tables import Copied

_NUMBERS = Decoder(Nulls(), datetimes=True)
_MASKED = Decoder(Nulls("mask"), datetimes=True)
_FILLED = Decoder(Nulls("nan"), datetimes=True)
_KINDS = ("number", "bool", "date", "timestamp", "duration")
#: pandas types that xarray stores unchanged. xarray converts or refuses text and dates with a time zone.
_EXTENSIONS = ("ArrowDtype", "CategoricalDtype", "PeriodDtype", "IntervalDtype", "BooleanDtype")
_SECONDS = Reason("xarray's dates have no unit of days: they become seconds", code="time-unit")


def pandas() -> Any:
    """Return the framework of pandas, which xarray requires."""
    return registry.by_name("pandas")


def reasons_against(column: Column) -> list[Reason]:
    """Return why a dataset copies a column; refuse a type that it cannot hold."""
    leaf = _leaf(column)
    if leaf is None:
        direct = _extension(column)
        if direct is not None:
            reasons: list[Reason] = pandas().column_reasons(column)
            return reasons
        return column.arrow_reasons() if _of_pandas(column) else pandas().column_reasons(column)
    source = leaf.source
    if source.refusal is not None:
        raise refused_by(source.refusal)
    if to_numpy(source.view.dtype) is None:
        why = f"it is {source.view.dtype}, which NumPy lacks"
        raise UnsupportedConversionError("", why, code="missing-dtype", fixes=pairs(source.view.dtype))
    if source.view.ndim > MAX_NDIM:
        raise refuse_ndim("xarray", source.view, MAX_NDIM)
    # A column of Arrow without rows can have no chunk.
    reasons = [reason for reason in source.reasons if column.length or reason.code != "chunks"]
    if not source.view.device.is_host:
        source.check_copy()
        why = f"it is on {source.view.device}, and xarray's own arrays use host memory"
        reasons.append(Reason(why, code="other-device"))
    if leaf.datetime_dtype.endswith("[D]") and not reasons:
        reasons.append(_SECONDS)
    return reasons


def _leaf(column: Column) -> TensorLeaf | None:
    """Return a column of numbers or dates as one array; None for types and nulls that NumPy lacks."""
    field = column.field
    if field is not None and (field.kind not in _KINDS or field.extension not in ("", "arrow.bool8")):
        return None  # lists of one length stay one column, which other tables have too
    if field is not None and field.kind == "date" and column.source is None:
        return None  # pandas aliases Arrow's days, which NumPy has only in 64 bits
    try:
        tree = _NUMBERS.decode(column)
    except ZeroCopyError:
        if field is None or field.kind not in ("date", "timestamp", "duration") or field.timezone:
            return None
        # NaT marks the nulls of NumPy's dates.
        days = field.kind == "date"
        if column.source is None or not (days or not pandas().column_reasons(column)):
            return None
        tree = (_FILLED if days else _MASKED).decode(column)
        tree = tree.values if isinstance(tree, Masked) else tree
    return tree if isinstance(tree, TensorLeaf) else None


def guards_writes(column: Column) -> bool:
    """Whether a write to an alias of a column fails, or bypasses pandas' copy-on-write."""
    leaf = _leaf(column)
    if leaf is not None:
        return leaf.source.view.readonly
    # A write to an ArrowExtensionArray makes new memory; a write to another one changes its series too.
    series = _extension(column)
    return series is not None and type(series().dtype).__name__ != "ArrowDtype"


def _of_pandas(column: Column) -> Any:
    return getattr(column, "of_pandas", None)


def _extension(column: Column) -> Any:
    """Return pandas' own array of a column if xarray can hold it, else None."""
    series = _of_pandas(column)
    if series is None:
        return None
    dtype = series().dtype
    masked = hasattr(dtype, "numpy_dtype") and type(dtype).__name__ != "NumpyEADtype"
    return series if masked or type(dtype).__name__ in _EXTENSIONS else None


def through_pandas(table: Table) -> Table:
    """Return the columns that become extension arrays of pandas, without the schema's metadata."""
    places = [place for place, column in enumerate(table.columns) if _leaf(column) is None]
    labels = [table.labels[place] for place in places]
    columns = [table.columns[place] for place in places]
    return replace(table, labels=labels, columns=columns, index=0, metadata={})


def values_of(column: Column) -> Any:
    """Return a column as an argument of ``xarray.Variable``: a copy if it has `reasons_against`."""
    leaf = _leaf(column)
    if leaf is not None:
        array: Array = placement.fetch(leaf.source)
        extended = None if leaf.source.view.dtype.in_numpy else to_numpy(leaf.source.view.dtype)
        array = array if extended is None else array.view(extended)
        if leaf.datetime_dtype:
            array = array.view(leaf.datetime_dtype)
            unit, _ = np.datetime_data(array.dtype)
            array = array.astype(f"{array.dtype.kind}8[s]") if unit == "D" else array
        return array
    if _of_pandas(column) and _extension(column) is None:
        chunked = column.arrow()
        if not hasattr(chunked, "chunks"):
            chunked = hub().module().chunked_array([chunked])
        return pandas().module().arrays.ArrowExtensionArray(chunked)
    table = Table(column.name, [""], [column], column.length, single=True)
    return pandas().from_column(table).array


def index_places(table: Table) -> list[int]:
    """Return the positions of the columns that are row labels."""
    if table.index:
        return list(range(len(table.columns) - table.index, len(table.columns)))
    try:
        levels = json.loads(table.metadata.get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        return []  # not JSON of pandas
    last = {label: place for place, label in enumerate(table.labels)}
    return [last[level] for level in levels if isinstance(level, str) and level in last]


def dataset(xr: Any, table: Table) -> Any:
    """Return a table as a dataset with one dimension, whose coordinate is the table's index."""
    places = index_places(table)
    kept = [place for place in range(len(table.columns)) if place not in places]
    labels = [table.labels[place] for place in kept]
    coords, dim, attrs = _coords(xr, table, places, labels)
    data = {}
    for label, place in zip(labels, kept, strict=True):
        values = values_of(table.columns[place])
        more = (f"{label}_dim_{axis}" for axis in range(1, values.ndim))
        data[label] = variable(xr, (dim, *more), values)
    return xr.Dataset(data, coords=coords, attrs=attrs)


def variable(xr: Any, dims: Sequence[Hashable], values: Any) -> Any:
    # Without `fastpath`, xarray copies dates in read-only memory (pydata/xarray#8843) and imports Dask
    # and sparse. With it, it does not wrap extension arrays.
    return xr.Variable(dims, values, fastpath=isinstance(values, np.ndarray))


def array(xr: Any, values: Any, name: Hashable = None) -> Any:
    """Return values as an array, whose dimensions have xarray's default names."""
    dims = tuple([f"dim_{axis}" for axis in range(values.ndim)])
    return xr.DataArray(variable(xr, dims, values), name=name)


def _coords(xr: Any, table: Table, places: list[int], labels: list[Any]) -> tuple[Any, Hashable, Any]:
    """Return the coordinates of the rows, the name of their dimension, and the table's attributes."""
    dim: Hashable = next(name for number in count() if (name := f"dim_{number}") not in labels)
    if not table.metadata and not places:
        return {}, dim, {}
    rows = [_as_planned(table.columns[place]) for place in places]
    names = [table.labels[place] for place in places]
    frame = pandas().from_table(
        replace(table, labels=names, columns=rows, index=len(rows), single=False, obj=None)
    )
    index, attrs = frame.index, dict(frame.attrs)
    if not places:
        return {}, dim, attrs
    if index.nlevels > 1:
        taken, fresh = {*labels, dim}, list[str]()
        for own, label in zip(index.names, names, strict=True):
            fresh.append(str(label) if own is None or str(own) in taken else str(own))
            taken.add(fresh[-1])
        return xr.Coordinates.from_pandas_multiindex(index.rename(fresh), dim), dim, attrs
    # xarray takes names of dimensions that are not text for sequences of names.
    if index.name is not None and not {index.name, str(index.name)} & {*labels}:
        dim = str(index.name)
    return {dim: index.rename(dim)}, dim, attrs


def _as_planned(column: Column) -> Column:
    """Return numbers or dates that the plan copies as a copy: pandas' index would alias some, as of >i4."""
    copies = _leaf(column) is not None and not isinstance(column, Copied) and reasons_against(column)
    return Copied(column) if copies else column


# -- xarray's own objects ------------------------------------------------------------


def own_reasons(column: Column) -> list[Reason]:
    """Return the reasons of the column alone: xarray aliases its own variables, also those of objects."""
    return [] if column.held is not None else list(column.reasons)


def own_values(column: Column) -> Any:
    """Return a variable of xarray, copied and read if a copy was requested; None for a changed column."""
    own = getattr(column, "of_xarray", None)
    if own is None:
        return None
    return without_shared_arrow(own.copy(deep=True).load()) if isinstance(column, Copied) else own


def like_dataset(xr: Any, template: Any, table: Table) -> Any:
    """Return variables with the names, dimensions, coordinates and attributes of a dataset."""
    pairs = [*zip(table.labels, table.columns, strict=True)]
    coords = [column for label, column in pairs if label not in template.data_vars]
    copied = any(isinstance(column, Copied) for column in coords or table.columns)
    result = template.coords.to_dataset().copy(deep=copied)
    result = without_shared_arrow(result) if copied else result
    for label, column in pairs:
        if label not in template.data_vars:
            continue  # a coordinate, which the result has
        old = template.variables[label]
        own = own_values(column)
        result[label] = own if own is not None else old.copy(deep=False, data=values_of(column))
    result.attrs, result.encoding = dict(template.attrs), dict(template.encoding)
    return result


def like_column(template: Any, column: Column) -> Any:
    """Return a column with the name, dimensions, coordinates and attributes of an array or variable."""
    if getattr(column, "of_xarray", None) is None:
        return like_array(template, values_of(column))
    return without_shared_arrow(template.copy(deep=True).load()) if isinstance(column, Copied) else template


def like_array(template: Any, values: Any) -> Any:
    """Return values with the name, dimensions, coordinates and attributes of an array or variable."""
    inner = getattr(getattr(template, "variable", template), "_data", None)
    alias = (
        isinstance(inner, np.ndarray)
        and isinstance(values, np.ndarray)
        and np.may_share_memory(inner, values)
    )
    result = template.copy(deep=not alias, data=values)
    return result if alias else without_shared_arrow(result)


def without_shared_arrow(copied: Any) -> Any:
    """Return a deep copy that shares no memory of Arrow's: pandas' copies of such arrays are aliases."""
    coords: Any = getattr(copied, "coords", {})
    new: dict[Hashable, Any] = {}
    for name, variable in getattr(coords, "variables", {}).items():
        if getattr(getattr(coords.xindexes.get(name), "index", None), "nlevels", 1) == 1:
            values = _copied_arrow(variable)
            new |= {} if values is None else {name: variable.copy(deep=False, data=values)}
    result = copied.assign_coords(new) if new else copied
    if getattr(copied, "name", None) in new:
        return result.coords[copied.name]  # a coordinate as an array is the variable of its own index
    own = getattr(result, "variable", None if hasattr(result, "data_vars") else result)
    values = None if own is None else _copied_arrow(own)
    return result if values is None else result.copy(deep=False, data=values)


def _copied_arrow(variable: Any) -> Any:
    """Return a copy of the array in Arrow's memory that a variable holds; None for other variables."""
    import pandas as pd  # xarray's own, of any version

    stored, _ = held(variable)
    array = getattr(stored, "array", stored)
    if not isinstance(array, pd.arrays.ArrowExtensionArray):
        return None
    copied = pd.array(hub().copied(array.__arrow_array__()), dtype=array.dtype)
    return copied if stored is array else pd.Index(copied, name=stored.name)
