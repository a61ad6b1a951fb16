"""The memory of a variable: the array that it holds, through that array's own framework.

This module does not import xarray: it compares the names of the classes of its objects.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.dtype import from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols import array_method, producer
from zerocopy.source import Source
from zerocopy.tables.column import RefusedColumn, Table
from zerocopy.tables.decode import as_tensor
from zerocopy.tables.tensor_column import TensorColumn

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
    """Return what `held` returns for xarray's own classes of arrays."""
    inner: Any = getattr(data, "array", None)
    if name == "PandasExtensionArray":
        return inner, None
    if name in ("PandasIndexingAdapter", "PandasMultiIndexingAdapter"):
        level = getattr(data, "level", None)
        if level is not None:
            return inner.get_level_values(level), _LEVEL
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
        described = _described(array)
    except ZeroCopyError as error:
        # The fixes are expressions over the array that the variable holds.
        error.fixes = tuple(replace(fix, source=fix.source.replace("{x}", "{x}.data")) for fix in error.fixes)
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
        column = RefusedColumn(name, _rows(variable), error, int(getattr(variable, "nbytes", 0)))
    # xarray as a target uses the variable itself, without a loss.
    column.of_xarray, column.dims = variable, dims
    hold(column, variable)
    return column


def hold(column: Any, variable: Any) -> None:
    """Let a column of objects or text have the array that a variable holds."""
    array, why = held(variable)
    if why is None and column.reasons and type(array) is np.ndarray:
        column.held = array


def _rows(variable: Any) -> int:
    return int(variable.shape[0]) if variable.ndim else 1


def as_source(described: Source | Table, name: str) -> Source:
    """Return a description as one array."""
    if isinstance(described, Source):
        return described
    if not described.single:
        why, remedy = "it has several columns", "convert it to a dict of columns"
        raise UnsupportedConversionError(f"convert({name})", why, remedy, code="not-an-array")
    return replace(as_tensor(described.columns[0]), name=name)
