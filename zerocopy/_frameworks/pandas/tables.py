"""Data frames as tables: their columns, described when they are read, their row labels and pandas' metadata.

This module does not import pandas: callers pass the module as `pd`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import NoneType
from typing import Any

import numpy as np

from zerocopy._frameworks.pandas import metadata as meta
from zerocopy._frameworks.pandas.columns import LEVEL, column_of, index_column, levels_of
from zerocopy.tables.column import Column, Table
from zerocopy.tables.layouts import LazyColumns, layout_of
from zerocopy.tables.tensor_column import TensorColumn


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
    labels, arrays, levels = frame.columns.tolist(), list(column_arrays(pd, frame)), []
    count = len(arrays)
    if index or (index is None and not is_default(frame.index, pd.RangeIndex)):
        levels = levels_of(frame.index)
        taken = set(map(str, labels))
        for place, level in enumerate(levels):
            unnamed = level.name is None or str(level.name) in taken
            labels.append(meta.generated_name(place, taken) if unnamed else level.name)
            taken.add(str(labels[-1]))
    reasons = (LEVEL,) if len(levels) > 1 else ()

    def describe(place: int) -> Column:
        if place >= count:
            return index_column(pd, levels[place - count], reasons)
        return column_of(pd, arrays[place], partial(_nth, frame, place))

    described = [layout_of(values) for values in arrays]
    columns = LazyColumns(
        [None if each is None else each[0] for each in described] + [None] * len(levels),
        [0 if each is None else each[1] for each in described] + [0] * len(levels),
        describe,
    )
    has_nan = any(values.dtype.kind == "f" and each for values, each in zip(arrays, described, strict=True))
    has_nan = has_nan or any(map(_may_hold_nan, map(columns.__getitem__, columns.without_layout())))
    return Table(
        name,
        labels,
        columns,
        len(frame),
        index=len(levels),
        metadata=metadata_of(pd, frame, [values.dtype for values in arrays], labels, levels, index),
        warnings=(NAN,) if has_nan else (),
        obj=frame,
    )


def _may_hold_nan(column: Column) -> bool:
    """Whether a column holds floats, in which NaN is a value."""
    if not isinstance(column, TensorColumn) or "float" not in column.source.view.dtype.name:
        return False
    return column.nulls is None


def _nth(frame: Any, place: int) -> Any:
    return frame.iloc[:, place]


def column_arrays(pd: Any, frame: Any) -> Iterator[Any]:
    """Yield each column's ndarray or extension array, with a private method of pandas 3 if there is one."""
    # Ten columns take 6 us, and 85 us through one series each.
    if pd.__version__.startswith("3.") and hasattr(frame, "_iter_column_arrays"):
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
    if not {type(dtype).__module__ for dtype in dtypes} <= {"numpy.dtypes"}:
        return _written_metadata(pd, frame, dtypes, labels, levels, index)
    rows = len(frame) if index is None else None
    key = tuple(labels), tuple(dtypes), columns.name, columns.dtype, rows
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
