"""Data frames as tables: their columns, described when they are read, their row labels and pandas' metadata.

This module does not import pandas: callers pass the module as `pd`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import NoneType
from typing import Any

import numpy as np

from zerocopy._frameworks._private import Private
from zerocopy._frameworks.pandas import metadata as meta
from zerocopy._frameworks.pandas.columns import BLOCKS, LEVEL, column_of, index_column, levels_of
from zerocopy.device import HOST
from zerocopy.dtype import from_numpy
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Column, Table
from zerocopy.tables.hub import hub
from zerocopy.tables.layouts import LazyColumns, layout_of
from zerocopy.tables.tensor_column import TensorColumn

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
    labels, arrays, levels = labels_of(frame.columns), FrameArrays(pd, frame), list[Any]()
    count = len(labels)
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
        return column_of(pd, arrays.at(place), partial(_nth, frame, place))

    columns = LazyColumns(
        arrays.layouts + [None] * len(levels), arrays.addresses + [0] * len(levels), describe, arrays.view_of
    )
    has_nan = arrays.has_floats or any(map(_may_hold_nan, map(columns.__getitem__, columns.without_layout())))
    return Table(
        name,
        labels,
        columns,
        len(frame),
        index=len(levels),
        metadata=metadata_of(pd, frame, arrays.dtypes, labels, levels, index),
        missing_warnings=(NAN,) if has_nan else (),
        obj=frame,
    )


def view_of(pd: Any, series: Any) -> StridedView | None:
    """Return the memory of a series of plain numbers, read-only as all of pandas'; None for others."""
    values = series.array
    if type(values) is not pd.arrays.NumpyExtensionArray:
        return None
    array = values.to_numpy(copy=False)
    described = layout_of(array)
    dtype = None if described is None or array.ndim != 1 else from_numpy(array.dtype)
    if described is None or dtype is None:
        return None
    return StridedView(described[1], array.shape, array.strides, dtype, HOST, True, array)


def labels_of(index: Any) -> list[Any]:
    """Return an index as a list; ten labels in Arrow's memory take 1.7 us, and 5.8 with ``tolist()``."""
    if index.nlevels == 1 and type(index.array).__name__ == "ArrowStringArray":
        chunked = index.array.__arrow_array__()
        if not chunked.null_count:  # pandas has another object for a missing label
            texts: list[Any] = chunked.to_pylist()
            return texts
    labels: list[Any] = index.tolist()
    return labels


class FrameArrays:
    """The arrays of a frame's columns with their layouts, which columns of one block share."""

    def __init__(self, pd: Any, frame: Any) -> None:
        count = frame.shape[1]
        self.layouts: list[Any] = [None] * count
        self.addresses = [0] * count
        self.dtypes: list[Any] = [None] * count
        self.has_floats = False
        self._homes: list[Any] = [None] * count
        self._of_hub: LazyColumns | None = None
        in_arrow: list[int] = []
        for places, arrays, block in blocks_of(pd, frame):
            self._add(places, arrays, block)
            in_arrow += places if type(block).__name__ == "ArrowExtensionArray" else []
        if in_arrow:
            self._add_arrow(in_arrow)

    def _add_arrow(self, places: list[int]) -> None:
        """Add the layouts of columns in Arrow's memory, as the hub describes a table of them."""
        names = [str(i) for i in range(len(places))]
        arrays = [self.at(place).__arrow_array__() for place in places]
        columns = hub().table(hub().module().Table.from_arrays(arrays, names=names)).columns
        if isinstance(columns, LazyColumns):
            self._of_hub, self._in_hub = columns, {place: i for i, place in enumerate(places)}
            for i, place in enumerate(places):
                layout = columns.layouts[i]
                self.layouts[place] = None if layout is None else ("arrow", layout)
                self.addresses[place] = columns.addresses[i]

    def _add(self, places: list[int], arrays: Callable[[int], Any], block: Any) -> None:
        first = arrays(0)
        described = layout_of(first)
        for row, place in enumerate(places):
            self._homes[place] = (arrays, row)
            self.dtypes[place] = first.dtype
        if described is None:
            return
        layout, start = described
        self.has_floats = self.has_floats or first.dtype.kind == "f"
        step = block.strides[0] if len(places) > 1 else 0
        for row, place in enumerate(places):
            self.layouts[place] = layout
            self.addresses[place] = start + row * step

    def at(self, place: int) -> Any:
        """Return the array of a column: an ndarray or an extension array."""
        arrays, row = self._homes[place]
        return arrays(row)

    def view_of(self, place: int) -> StridedView | None:
        """Return the memory of a column with a layout, read-only as that of all of pandas' columns."""
        if self._of_hub is not None and place in self._in_hub:
            return self._of_hub.view_of(self._in_hub[place])
        array = self.at(place)
        dtype = from_numpy(array.dtype)
        assert dtype is not None
        return StridedView(self.addresses[place], array.shape, array.strides, dtype, HOST, True, array)


def blocks_of(pd: Any, frame: Any) -> Iterator[tuple[list[int], Callable[[int], Any], Any]]:
    """Yield for each block the places of its columns, a function that returns their arrays, and its values.

    With private attributes of pandas 3 if it has them: the array of each column takes 1.2 us.
    """
    blocks = getattr(getattr(frame, "_mgr", None), "blocks", None) if BLOCKS() else None
    if blocks is None:
        yield from one_column_each(pd, frame)
        return
    for block in blocks:
        places = block.mgr_locs.as_array.tolist()
        if places:
            yield places, block.iget, block.values


def one_column_each(pd: Any, frame: Any) -> Iterator[tuple[list[int], Callable[[int], Any], Any]]:
    """Yield each column as `blocks_of` yields a block."""
    for place, array in enumerate(column_arrays(pd, frame)):
        yield [place], [array].__getitem__, array


def _may_hold_nan(column: Column) -> bool:
    """Whether a column holds floats, in which NaN is a value."""
    if not isinstance(column, TensorColumn) or "float" not in column.source.view.dtype.name:
        return False
    return column.nulls is None


def _nth(frame: Any, place: int) -> Any:
    return frame.iloc[:, place]


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
