"""Variables, arrays and datasets of xarray as arrays and tables, and the labels that a target loses.

A variable is described by the framework of the array that it holds. Variables are columns, and a dimension's
coordinate is the index: pandas' description of a data frame with that index gives the index's columns and
the schema's metadata, so that an index of xarray becomes that of pandas, and comes back from an Arrow
schema. This module does not import xarray: it compares the names of the classes of its objects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.dtype import from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.protocols import array_method, producer
from zerocopy.source import Source
from zerocopy.tables.arrow_column import UnreadColumn
from zerocopy.tables.column import RefusedColumn, Table
from zerocopy.tables.decode import as_tensor
from zerocopy.tables.labels import listed
from zerocopy.tables.tensor_column import TensorColumn, table_of_tensor

_COMPUTE = (Fix("{x}.compute()", "reads the values once, and aliases them"),)
_LAZY = Reason(
    "its values are not in memory: xarray reads or computes them", code="array-method", fixes=_COMPUTE
)
_LEVEL = Reason("a MultiIndex stores codes: pandas computes a level's values", code="computed-index")
_INDEX = Reason(
    "pandas' index has another type than its coordinate, whose values xarray computes", code="computed-index"
)


def held(variable: Any) -> tuple[Any, Reason | None]:
    """Return the array in memory that a variable holds, and why its values are computed.

    The array is None if the values are read from a file, or are lazy. Nothing is read.
    """
    # The public `data` reads a file, and no public attribute tells whether it would.
    data = getattr(variable, "_data", None)
    cls = type(data)
    if cls.__module__.partition(".")[0] == "xarray":
        return _inside(data, cls.__name__, variable)
    if data is None or getattr(data, "chunks", None) is not None or hasattr(cls, "__dask_graph__"):
        chunks = getattr(variable, "chunks", None) or ()
        count = int(np.prod([len(sizes) for sizes in chunks]))
        why = f"its values are lazy, in {count:,} chunk{'s' if count != 1 else ''}, and computed for each use"
        return None, replace(_LAZY, why=why) if chunks else _LAZY
    return data, None


def _inside(data: Any, name: str, variable: Any) -> tuple[Any, Reason | None]:
    """Return the result of `held` for xarray's own classes of arrays."""
    inner: Any = getattr(data, "array", None)
    if name == "PandasExtensionArray":
        return inner, None
    if name in ("PandasIndexingAdapter", "PandasMultiIndexingAdapter"):
        level = getattr(data, "level", None)
        if level is not None:
            # By position, because pandas takes an integer for a position if no level has that name.
            return inner.set_names([None] * inner.nlevels).get_level_values(inner.names.index(level)), _LEVEL
        stored, shown = inner.dtype, variable.dtype
        numbers = getattr(shown, "kind", "O") in "biufcmM"
        return (None, _INDEX) if numbers and stored != shown else (inner, None)
    # A file whose values have been read once, and are cached.
    if name == "MemoryCachedArray" and type(inner).__name__ == "NumpyIndexingAdapter":
        cached = getattr(inner, "array", None)
        return (cached, None) if isinstance(cached, np.ndarray) else (None, _LAZY)
    return None, _LAZY


def describe(variable: Any, name: str) -> Source | Table:
    """Describe a variable as the framework of the array that it holds describes that array."""
    array, why = held(variable)
    if array is None:
        assert why is not None
        return _lazy(variable, name, why)
    try:
        described = _described(array.view() if type(array) is np.ndarray else array)
    except ZeroCopyError as error:
        # The fixes are expressions over the array that the variable holds.
        error.fixes = tuple(fix.of("{x}.data") for fix in error.fixes)
        error.with_context(asked=f"convert({name})", remedy="; or ".join(map(str, error.fixes)) or None)
        raise
    if isinstance(described, Table):
        reasons = () if why is None else (why,)
        for column in described.columns:
            column.reasons = (*reasons, *column.reasons)
        return replace(described, name=name)
    return replace(described, name=name, reasons=[*([] if why is None else [why]), *described.reasons])


def _described(array: Any) -> Source | Table:
    owner = registry.by_type(type(array))
    if owner is None:
        source = producer.describe(array)
        return producer.describe_buffer(array) if source is None else source
    table = owner.table(array)
    if table is not None:
        return table
    source = owner.source(array)
    source.framework, source.obj = owner, array
    return source


def _unread(variables: Iterable[Any]) -> tuple[Reason, ...]:
    """Return why variables that are not numbers must be read: their values decide the result."""
    reasons: dict[Any, None] = {}
    for variable in variables:
        array, why = held(variable)
        dtype = getattr(variable, "dtype", None)
        is_numeric = isinstance(dtype, np.dtype) and from_numpy(dtype.newbyteorder("=")) is not None
        if array is None and not is_numeric and why is not _INDEX:
            reasons[why] = None
    return tuple(reasons)


def _lazy(variable: Any, name: str, why: Reason) -> Source:
    dtype = getattr(variable, "dtype", None)
    if not isinstance(dtype, np.dtype) or from_numpy(dtype.newbyteorder("=")) is None:
        text = f"it is {dtype}, and {why.why.removeprefix('it is ')}"
        raise UnsupportedConversionError(f"convert({name})", text, code=why.code, fixes=_COMPUTE)
    return replace(array_method.describe(variable), name=name, reasons=(why,))


# -- variables as columns -----------------------------------------------------------


def column_of(variable: Any, name: str, dims: tuple[Hashable, ...] | None = None) -> Any:
    """Return a variable as a column of a table; one that no other framework has becomes a `RefusedColumn`."""
    column: Any
    try:
        described = describe(variable, name)
        if isinstance(described, Source):
            described.obj = variable
            column = TensorColumn(described)
        elif described.single:
            column = described.columns[0]
        else:
            why, remedy = "it has several columns itself", "convert it alone, or leave it out"
            raise UnsupportedConversionError("", why, remedy, code="not-a-column")
    except ZeroCopyError as error:
        column = RefusedColumn(name, _count(variable), error, int(getattr(variable, "nbytes", 0)))
    # xarray as a target uses the variable itself, without a loss.
    column.of_xarray, column.dims = variable, dims
    hold(column, variable)
    return column


def hold(column: Any, variable: Any) -> None:
    """Set `column.held` to the array of a variable, for columns of objects and text, and refused ones."""
    array, why = held(variable)
    if why is None and (column.reasons or type(column) is RefusedColumn) and type(array) is np.ndarray:
        column.held = array.view()


def _count(variable: Any) -> int:
    return int(variable.shape[0]) if variable.ndim else 1


def as_source(described: Source | Table, name: str) -> Source:
    """Return a description as one array."""
    if isinstance(described, Source):
        return described
    if not described.single:
        why, remedy = "it has several columns", "convert it to a dict of columns"
        raise UnsupportedConversionError(f"convert({name})", why, remedy, code="not-an-array")
    return replace(as_tensor(described.columns[0]), name=name)


def dataset_table(dataset: Any, name: str, index: bool | None) -> Table:
    """Describe a dataset: a table of rows along its one dimension, or else variables of any dimensions."""
    table = _dataset_table(dataset, name, index)
    variables = [getattr(column, "of_xarray", None) for column in table.columns]
    reasons = _unread(variable for variable in variables if variable is not None)
    if not reasons:
        return table

    def read() -> Table:
        return _dataset_table(dataset.compute(), name, index)

    return replace(table, read=read, read_reasons=reasons, obj=dataset)


def _dataset_table(dataset: Any, name: str, index: bool | None) -> Table:
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
    return replace(
        table,
        name=name,
        labels=[*labels, *table.labels[len(columns) :]],
        columns=kept,
        length=length,
        missing_warnings=(),
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
    if reasons := _unread([variable]):
        return _unread_array(obj, variable, name, reasons, index)
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


def _unread_array(
    obj: Any, variable: Any, name: str, reasons: tuple[Reason, ...], index: bool | None
) -> Table:
    """Describe an array that xarray has not read; only the types of dates and durations are known."""

    def read() -> Table:
        table = array_table(obj.compute(), name, index)
        assert table is not None  # tensors lack its type
        return table

    columns: list[Any] = []
    if variable.dtype.kind in "mM" and variable.ndim == 1 and not index:
        known = _described(np.empty(0, variable.dtype))
        assert isinstance(known, Table)
        field = known.columns[0].field
        columns = [] if field is None else [UnreadColumn(name, field)]
    is_table = index and variable is not obj and variable.ndim in (1, 2)
    labels = [""] * len(columns)
    return Table(name, labels, columns, 0, not is_table, read=read, read_reasons=reasons, obj=obj)


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


def label_warnings(
    obj: Any, target: Framework, options: Mapping[str, Any], is_dataset: bool
) -> tuple[str, ...]:
    """Return one warning for all labels that a conversion of `obj` loses; none if it loses none."""
    keeps_columns = target.tables and options.get("layout") is None
    lost = _of_dataset(obj, keeps_columns, options) if is_dataset else _of_array(obj, keeps_columns, options)
    parts = [f"{kind} {listed(names)}" for kind, names in lost.items() if names]
    verb = "is" if [kind for kind, names in lost.items() if names] == ["the name"] else "are"
    return (
        (f"{target.name} has no place for labels of xarray: {'; '.join(parts)} {verb} lost",) if parts else ()
    )


def _of_array(obj: Any, keeps_columns: bool, options: Mapping[str, Any]) -> dict[str, list[Hashable]]:
    dims = _named(obj.dims)
    lost: dict[str, list[Hashable]] = {"the name": [], "the dimensions": dims}
    coords, name = list(getattr(obj, "coords", ())), getattr(obj, "name", None)
    indexed = bool(options.get("index")) and obj.ndim in (1, 2) and bool(coords)
    if name is not None and not (keeps_columns and obj.ndim == 1) and not (indexed and obj.ndim == 1):
        lost["the name"] = [name]
    kept: set[Hashable] = set()
    if indexed:
        kept |= _index_of(obj, obj.dims[0])
    if keeps_columns and coords and options.get("names") is None and column_names(obj) is not None:
        kept.add(obj.dims[1])
    lost["the dimensions"] = [dim for dim in dims if dim not in kept]
    lost["the coordinates"] = [label for label in coords if label not in kept]
    lost["the attributes"] = list(obj.attrs)
    return lost


def _index_of(obj: Any, dim: Hashable) -> set[Hashable]:
    return {dim, *obj.xindexes.get_all_coords(dim)} if dim in obj.xindexes else set()


def _of_dataset(obj: Any, keeps_columns: bool, options: Mapping[str, Any]) -> dict[str, list[Hashable]]:
    data_dims = {obj.variables[label].dims for label in obj.data_vars}
    rows: tuple[Hashable, ...] = next(iter(data_dims)) if len(data_dims) == 1 else ()
    index = options.get("index")
    kept: set[Hashable] = set()
    if len(rows) == 1 and index is not False:
        kept = {label for label in obj.coords if obj.variables[label].dims == rows}
    elif index:
        kept = {*obj.coords}
    chosen = options.get("columns")
    names = [label for label in obj.data_vars if chosen is None or label in chosen]
    schema = attributes(obj.attrs) if keeps_columns else {}
    return {
        "the dimensions": [] if len(rows) == 1 and rows[0] in kept else _named(obj.dims),
        "the coordinates": [label for label in obj.coords if label not in kept],
        "the attributes": [key for key in obj.attrs if key not in schema],
        "the attributes of": [label for label in (*names, *kept) if obj.variables[label].attrs],
    }


def _named(dims: Iterable[Hashable]) -> list[Hashable]:
    return [dim for dim in dims if not (isinstance(dim, str) and dim.startswith("dim_"))]


def lost_labels(table: Table) -> tuple[str, ...]:
    """Return the losses of a table in a dataset, as warnings."""
    kept = (b"pandas",)
    metadata = [key.decode(errors="replace") for key in table.metadata if key not in kept]
    lost = [f"xarray has no metadata of a schema: {', '.join(metadata)} is lost"] if metadata else []
    labelled = [
        label
        for label, column in zip(table.labels, table.columns, strict=True)
        if column.source is not None and hasattr(column.source.obj, "coords")
    ]
    if labelled and type(table.obj) is dict:
        lost.append(
            f"the dimensions and coordinates of {listed(labelled)} are lost: xarray.Dataset(x) keeps them"
        )
    for label, column in zip(table.labels, table.columns, strict=True):
        days = column.field is not None and column.field.kind == "date"
        if days and column.source is not None:
            lost.append(f"column {label!r}: {column.field} becomes datetime64, which has times of day too")
    return tuple(lost)
