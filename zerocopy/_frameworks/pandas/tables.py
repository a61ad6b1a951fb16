"""Data frames as tables: columns, each described when it is first read, row labels and pandas' metadata.

This module does not import pandas: callers pass the module as `pd`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import NoneType
from typing import Any

import numpy as np

from zerocopy._frameworks._private import Private
from zerocopy._frameworks.pandas import metadata as meta
from zerocopy._frameworks.pandas.columns import LEVEL, column_of, index_column, levels_of
from zerocopy.tables.column import Column, Columns, Table

_COLUMNS = Private("pandas", "3", "_iter_column_arrays", "ten columns: 20 / 320 us")


def is_default(index: Any, default: Any) -> bool:
    """Whether an index is the one that pandas creates by default; `default` is ``RangeIndex``."""
    return type(index) is default and index.name is None and index.start == 0 and index.step == 1


#: A warning for every frame with floats, because a search for NaN would read all values.
NAN = (
    "NaN in a column of NumPy's floats stays NaN: nulls= masks or fills it in tensors, and "
    "x.convert_dtypes() turns it into nulls"
)


def frame_table(pd: Any, frame: Any, index: bool | None, name: str) -> Table:
    """Describe a data frame: its columns, followed by its index unless that is left out."""
    labels, arrays, levels = frame.columns.tolist(), list(column_arrays(pd, frame)), list[Any]()
    if index or (index is None and not is_default(frame.index, pd.RangeIndex)):
        levels = levels_of(frame.index)
        taken = set(map(str, labels))
        for place, level in enumerate(levels):
            unnamed = level.name is None or str(level.name) in taken
            labels.append(meta.generated_name(place, taken) if unnamed else level.name)
            taken.add(str(labels[-1]))
    column_at, reasons = frame.iloc.__getitem__, (LEVEL,) if len(levels) > 1 else ()

    def described(place: int) -> Column:
        if place < len(arrays):
            return column_of(pd, arrays[place], partial(column_at, (slice(None), place)))
        return index_column(pd, levels[place - len(arrays)], reasons)

    return Table(
        name,
        labels,
        Columns(range(len(labels)), described),
        len(frame),
        index=len(levels),
        metadata=metadata_of(pd, frame, [array.dtype for array in arrays], labels, levels, index),
        missing_warnings=(NAN,) if any(_may_hold_nan(pd, each) for each in [*arrays, *levels]) else (),
        obj=frame,
    )


def _may_hold_nan(pd: Any, values: Any) -> bool:
    """Whether an array of pandas holds NumPy's floats, in which NaN is a value."""
    dtype = values.dtype
    if type(values) is pd.arrays.NumpyExtensionArray:
        dtype = dtype.numpy_dtype
    return isinstance(dtype, np.dtype) and dtype.kind == "f"


def column_arrays(pd: Any, frame: Any) -> Iterator[Any]:
    """Yield each column's ndarray or extension array, with a private method of pandas 3 if there is one."""
    if _COLUMNS() and hasattr(frame, "_iter_column_arrays"):
        return iter(frame._iter_column_arrays())
    return column_arrays_by_series(frame)


def column_arrays_by_series(frame: Any) -> Iterator[Any]:
    """Yield each column's array, with the public API."""
    return (series.array for _, series in frame.items())


#: The metadata of frames by what it depends on: writing that of ten columns takes 26 us, and a key 1 us.
_written: dict[Any, dict[bytes, bytes]] = {}
_MOST = 64


def metadata_of(
    pd: Any, frame: Any, dtypes: list[Any], labels: list[Any], levels: list[Any], index: bool | None
) -> dict[bytes, bytes]:
    """Return the metadata of a frame; `labels` are those of its columns, followed by those of `levels`."""
    columns = frame.columns
    plain = not (levels or frame.attrs) and columns.nlevels == 1 and type(columns.name) in (str, NoneType)
    # Other labels can be equal and have another type; other dtypes can be equal and have another name.
    if not plain or not {*map(type, labels)} <= {str}:
        return _written_metadata(pd, frame, dtypes, labels, levels, index)
    kinds = {*map(type, dtypes)}
    if not {kind.__module__ for kind in kinds - {pd.ArrowDtype}} <= {"numpy.dtypes"}:
        return _written_metadata(pd, frame, dtypes, labels, levels, index)
    known = tuple(dtypes)
    if pd.ArrowDtype in kinds:
        known = tuple([(x.pyarrow_dtype,) if type(x) is pd.ArrowDtype else x for x in dtypes])
    rows = len(frame) if index is None else None
    own = columns.dtype
    if type(own) is pd.StringDtype:  # whose hash takes 1.5 us
        own = (own.storage, own.na_value is pd.NA)
    key = tuple(labels), known, columns.name, own, rows
    written = _written.get(key)
    if written is None:
        written = _written_metadata(pd, frame, dtypes, labels, levels, index)
        if len(_written) >= _MOST:
            _written.clear()
        _written[key] = written
    return written.copy()


def _written_metadata(
    pd: Any, frame: Any, dtypes: list[Any], labels: list[Any], levels: list[Any], index: bool | None
) -> dict[bytes, bytes]:
    own = frame.columns.dtype
    mixed = isinstance(own, np.dtype) and own.kind == "O"
    entries = [
        meta.column_entry(label, str(label), meta.type_entry(pd, dtype), mixed)
        for label, dtype in zip(labels, dtypes, strict=False)
    ]
    names = [str(label) for label in labels[len(dtypes) :]]
    for level, name in zip(levels, names, strict=True):
        entries.append(meta.column_entry(level.name, name, meta.type_entry(pd, level.dtype)))
    ranges = [] if levels or index is not None else [meta.range_entry(0, len(frame), 1)]
    described = [meta.label_entry(pd, level) for level in levels_of(frame.columns)]
    return meta.write(entries, names or ranges, described, frame.attrs, pd.__version__)
