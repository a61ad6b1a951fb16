"""Datasets and arrays of xarray as tables: variables are columns, a dimension's coordinate is the index.

pandas' own description of a data frame with that index gives the index's columns and the schema's
metadata, so that an index of xarray becomes that of pandas, and comes back from an Arrow schema.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._frameworks.xarray.variables import as_source, column_of, describe, hold
from zerocopy.errors import Fix, UnsupportedConversionError
from zerocopy.source import Source
from zerocopy.tables.column import RefusedColumn, Table
from zerocopy.tables.tensor_table import table_of_tensor


def dataset_table(dataset: Any, name: str, index: bool | None) -> Table:
    """Describe a dataset: a table of rows along its one dimension, or else variables of any dimensions."""
    dims = {variable.dims for variable in _data_variables(dataset).values()}
    if not dims and len(dataset.sizes) == 1:
        dims = {tuple(dataset.sizes)}
    if len(dims) == 1 and len(next(iter(dims))) == 1:
        return _rows(dataset, name, next(iter(dims))[0], index)
    return _grid(dataset, name, index) if dims else Table(name, [], [], 0, obj=dataset)


def _data_variables(dataset: Any) -> dict[Hashable, Any]:
    return {label: dataset.variables[label] for label in dataset.data_vars}


def _rows(dataset: Any, name: str, dim: Hashable, index: bool | None) -> Table:
    """Describe variables along one dimension: data, then other coordinates, then the index."""
    data = _data_variables(dataset)
    indexed = dataset.xindexes.get(dim)
    taken = set() if indexed is None else {*dataset.xindexes.get_all_coords(dim)}
    others = {
        label: variable
        for label, variable in dataset.variables.items()
        if index is not False and label not in data and label not in taken and variable.dims == (dim,)
    }
    labels, variables = [*data, *others], [*data.values(), *others.values()]
    columns = [column_of(variable, name, (dim,)) for variable in variables]
    table = with_index(dataset, name, labels, columns, dim, index)
    table.index += len(others)
    return table


def _grid(dataset: Any, name: str, index: bool | None) -> Table:
    """Describe variables of several dimensions: arrays by name, which are not a table."""
    data = _data_variables(dataset)
    coords = {label: dataset.variables[label] for label in dataset.coords} if index else {}
    columns = [column_of(variable, name, variable.dims) for variable in (*data.values(), *coords.values())]
    length = columns[0].length if columns else 0
    return Table(name, [*data, *coords], columns, length, index=len(coords), obj=dataset)


def with_index(
    obj: Any, name: str, labels: Sequence[Hashable], columns: Sequence[Any], dim: Hashable, index: bool | None
) -> Table:
    """Return a table whose row labels are the coordinate of a dimension, as in a pandas data frame."""
    framework = registry.by_name("pandas")
    pd: Any = framework.module()
    length = int(obj.sizes[dim])
    labelled = obj.xindexes.get(dim) is not None
    rows = obj.indexes[dim] if labelled and dim in obj.indexes else pd.RangeIndex(length)
    # Data frames of this shape take no memory: only their index and metadata are used.
    empty = {place: np.broadcast_to(np.int8(0), (length,)) for place in range(len(labels))}
    frame = pd.DataFrame(empty, index=rows, copy=False)
    frame.columns = pd.Index(_objects(labels), dtype=object, tupleize_cols=False)
    frame.attrs = attributes(obj.attrs)
    table = framework.table(frame, index)
    assert table is not None
    kept = [*columns, *table.columns[len(columns) :]]
    for column in kept[len(columns) :]:
        column.dims = (dim,) if columns and columns[0].dims is not None else None
    warnings = tuple(text for text in table.warnings if "NaN" not in text)
    return replace(
        table,
        name=name,
        labels=[*labels, *table.labels[len(columns) :]],
        columns=kept,
        length=length,
        warnings=warnings,
        obj=obj,
    )


def _objects(labels: Sequence[Hashable]) -> Any:
    values = np.empty(len(labels), object)
    values[:] = labels if labels else []
    return values


def attributes(attrs: Any) -> dict[Any, Any]:
    """Return the attributes that a schema's metadata keeps: text, numbers, and lists of them."""
    plain = (str, int, float, bool, type(None))
    kept = {}
    for key, value in attrs.items():
        items = value if isinstance(value, list) else [value]
        if type(key) is str and all(type(item) in plain for item in items):
            kept[key] = value
    return kept


def array_table(obj: Any, name: str, index: bool | None) -> Table | None:
    """Describe an array or variable whose values tensors lack, or one with its index; None for numbers."""
    variable = getattr(obj, "variable", obj)
    data = getattr(variable, "_data", None)
    if not index and type(data) is np.ndarray and data.dtype.kind in "biufc":
        return None
    if index and variable is not obj and variable.ndim in (1, 2):
        return _indexed_array(obj, variable, name)
    label = getattr(obj, "name", None)
    try:
        described = describe(variable, name)
    except UnsupportedConversionError as error:
        if type(data) is not np.ndarray:
            raise
        # Only NumPy has dates of two dimensions.
        rows = len(data) if data.ndim else 1
        column: Any = RefusedColumn(name, rows, error, data.nbytes)
        column.of_xarray = variable
        labels = ["" if label is None else label]
        return Table(name, labels, [column], rows, single=True, obj=data, row_labels=row_labels(obj))
    if isinstance(described, Source):
        return None
    if described.single:
        own: Any = described.columns[0]
        own.of_xarray = variable
        hold(own, variable)
        described.row_labels = row_labels(obj)
        described.labels = ["" if label is None else label]
    return described


def _indexed_array(obj: Any, variable: Any, name: str) -> Table:
    """Describe an array of one or two dimensions with the coordinate of the first one."""
    dim = variable.dims[0]
    if variable.ndim == 1:
        label = "column_0" if obj.name is None else obj.name
        column = column_of(variable, name)
        column.of_xarray = None  # a dataset is made of it
        columns: Sequence[Any] = [column]
        labels: Sequence[Hashable] = [label]
    else:
        source = array_source(obj, name)
        source.obj = obj
        table = table_of_tensor(source, None)
        labels, columns = table.labels, table.columns
    return with_index(obj, name, labels, columns, dim, True)


def array_source(obj: Any, name: str) -> Source:
    """Describe an array or variable as one array, with the names of its columns."""
    variable = getattr(obj, "variable", obj)
    source = as_source(describe(variable, name), name)
    if variable is obj:
        return source
    return replace(source, column_names=lambda: _labels(obj), row_labels=row_labels(obj))


def row_labels(obj: Any) -> Callable[[], Any] | None:
    """Return a function that returns the index of an array's first dimension; None if it has none."""
    if getattr(obj, "variable", obj) is obj or not obj.ndim or obj.xindexes.get(obj.dims[0]) is None:
        return None
    return lambda: obj.indexes.get(obj.dims[0], ())


def _labels(obj: Any) -> list[Any] | None:
    """Return the names of the columns of an array: its own, or the text along its second dimension."""
    if obj.ndim == 1:
        return None if obj.name is None else [obj.name]
    return column_names(obj)


def column_names(obj: Any) -> list[str] | None:
    """Return the text along the second of two dimensions; None if it does not name columns."""
    if obj.ndim != 2 or obj.dims[1] not in obj.indexes:
        return None
    names = obj.indexes[obj.dims[1]].tolist()
    text = all(type(label) is str for label in names)
    return names if text and names and len({*names}) == len(names) else None


def refuse_dataset(name: str) -> UnsupportedConversionError:
    """Return the error for a dataset where one array is required."""
    return UnsupportedConversionError(
        f"convert({name})",
        "a dataset is not one array",
        code="not-an-array",
        fixes=[Fix("{x}.to_dataarray()", "makes one array of its variables")],
    )
