"""Data frames as tables, and frames and series of plain columns, with pandas' private constructors.

A frame has columns, each described when it is first read, row labels and pandas' metadata. The constructors
that pandas itself uses neither validate nor align columns, so they get columns that are known to be valid.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cache, lru_cache, partial
from itertools import pairwise
from types import NoneType
from typing import Any

import numpy as np

from zerocopy._frameworks._private import Private
from zerocopy._frameworks.pandas import metadata as meta
from zerocopy._frameworks.pandas.columns import (
    ARROW,
    LEVEL,
    MASKED,
    column_of,
    in_arrow,
    index_column,
    levels_of,
    one_block,
)
from zerocopy.dtype import native_numbers
from zerocopy.protocols.array_interface import address
from zerocopy.source import Array
from zerocopy.tables.column import Column, Columns, Table
from zerocopy.tables.hub import hub

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
        missing_warnings=(NAN,) if _may_hold_nan(pd, [*arrays, *levels]) else (),
        obj=frame,
        by_columns=partial(_is_by_columns, frame),
    )


def _is_by_columns(frame: Any) -> bool:
    block = one_block(frame)
    return block is not None and block.flags.c_contiguous


def _may_hold_nan(pd: Any, arrays: list[Any]) -> bool:
    """Whether an array of pandas holds NumPy's floats, in which NaN is a value."""
    for values in arrays:
        is_wrapped = type(values) is pd.arrays.NumpyExtensionArray
        dtype = values.dtype.numpy_dtype if is_wrapped else values.dtype
        if isinstance(dtype, np.dtype) and dtype.kind == "f":
            return True
    return False


def column_arrays(pd: Any, frame: Any) -> Iterator[Any]:
    """Yield each column's ndarray or extension array, with a private method of pandas 3 if there is one."""
    if _COLUMNS() and hasattr(frame, "_iter_column_arrays"):
        return iter(frame._iter_column_arrays())
    return column_arrays_by_series(frame)


def column_arrays_by_series(frame: Any) -> Iterator[Any]:
    """Yield each column's array, with the public API."""
    return (series.array for _, series in frame.items())


#: The metadata of frames by types, labels and index: writing that of ten columns takes 26 us, and a key 1 us.
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


_FRAMES = Private(
    "pandas",
    "3",
    "DataFrame._from_mgr, core.internals.managers.create_block_manager_from_column_arrays",
    "ten columns: 36 / 197 us",
)
_SERIES = Private(
    "pandas",
    "3",
    "Series._from_mgr, Series._name, core.internals.managers.SingleBlockManager",
    "5.6 / 15.6 us",
)

Build = Callable[[tuple[str, ...], list[Any]], Any]


def public_frame(pd: Any) -> Build:
    """Return a function that makes a frame of labels and arrays with the public call."""
    return lambda labels, arrays: pd.DataFrame(dict(zip(labels, arrays, strict=True)), copy=False)


def private_frame(pd: Any) -> Build:
    """Return such a function with the constructor of pandas 3, which neither copies nor validates.

    Raises
    ------
    ImportError, AttributeError
        This pandas does not have it.
    """
    from pandas.core.internals.managers import create_block_manager_from_column_arrays as manager_of

    wrap, default, index_of = pd.DataFrame._from_mgr, pd.RangeIndex, labels_index(pd)

    def build(labels: tuple[str, ...], arrays: list[Any]) -> Any:
        axes = [index_of(labels), default(len(arrays[0]))]
        manager = manager_of(arrays, axes, False, [None] * len(arrays))
        return wrap(manager, manager.axes)

    return build


def labels_index(pd: Any) -> Callable[[tuple[str, ...]], Any]:
    """Return a function that returns labels as a new index over cached memory: ten take 25 us otherwise."""
    kept = lru_cache(maxsize=64)(lambda labels: pd.Index(list(labels)))
    # A view, because setting the name of a frame's index of labels changes the object.
    return lambda labels: kept(labels).view()


@cache
def frame_builder() -> Build:
    """Return the function of `private_frame` if it makes equal frames; else that of `public_frame`."""
    import pandas as pd

    public, array = public_frame(pd), np.arange(2.0)

    def agrees(build: Build) -> bool:
        made, expected = build(("a", "b"), [array, array]), public(("a", "b"), [array, array])
        same = made.equals(expected) and made.columns.dtype == expected.columns.dtype
        return same and np.shares_memory(made["a"].to_numpy(), array)

    return _FRAMES.choose(lambda: private_frame(pd), agrees, public)


def public_series(pd: Any) -> Callable[..., Any]:
    """Return a function that makes a series of an array and a name with the public call."""

    def build(array: Any, name: str | None = None) -> Any:
        return pd.Series(array, name=name, copy=False)

    return build


def private_series(pd: Any) -> Callable[..., Any]:
    """Return such a function with the constructor of pandas 3, which neither copies nor validates.

    Raises
    ------
    ImportError, AttributeError
        This pandas does not have it.
    """
    from pandas.core.internals.managers import SingleBlockManager

    manager_of, wrap, default = SingleBlockManager.from_array, pd.Series._from_mgr, pd.RangeIndex.from_range
    store = object.__setattr__

    def build(array: Any, name: str | None = None) -> Any:
        manager = manager_of(array, default(range(len(array))))
        series = wrap(manager, manager.axes)
        store(series, "_name", name)  # series.name = name takes 1 us
        return series

    return build


@cache
def series_builder() -> Callable[..., Any]:
    """Return the function of `private_series` if it makes equal series; else that of `public_series`."""
    import pandas as pd

    public, array = public_series(pd), np.arange(2.0)

    def agrees(build: Callable[..., Any]) -> bool:
        made, expected = build(array, "a"), public(array, "a")
        same = made.equals(expected) and made.name == "a" and build(array).name is None
        return same and np.shares_memory(made.to_numpy(), array)

    return _SERIES.choose(lambda: private_series(pd), agrees, public)


def _column_exporter() -> Callable[..., Any]:
    """Return a function from an array of plain values of pandas to Arrow's; it raises for other arrays.

    With `may_have_nulls`, pandas' numbers with a mask are plain values; with `nan_is_null`, NaN of NumPy's
    floats is null.
    """
    numbers, array_of, arrow = native_numbers(), hub().fast_importers()["ndarray"], hub().module().array

    def column(values: Any, may_have_nulls: bool = False, nan_is_null: bool = False) -> Any:
        if may_have_nulls and type(values).__name__ in MASKED:
            if values.isna().any():
                return values.__arrow_array__()
            values, nan_is_null = values.to_numpy(values.dtype.numpy_dtype, copy=False), False
        if type(values) is np.ndarray:
            plain = values.dtype.kind in "iuf" and values.dtype.num in numbers and values.dtype.isnative
            if not plain or values.ndim != 1:
                raise ValueError("not plain numbers: use the slow path")
            if nan_is_null and values.dtype.kind == "f" and (mask := np.isnan(values)).any():
                return arrow(values, mask=mask)
            return array_of(values)
        if type(values).__name__ not in ARROW:
            raise ValueError("an extension array: use the slow path")
        return values.__arrow_array__()

    return column


def _plain_name(series: Any) -> str:
    """Return the name of a series; raise for one that needs a check."""
    name = series.name
    if name is not None and (type(name) is not str or "\0" in name):
        raise ValueError("a name that needs a check: use the slow path")
    return name or ""


@cache
def series_exporter(pd: Any) -> Callable[..., tuple[str, Any, None]]:
    """Return the exporter ``hub`` of series of plain values."""
    column, plain = _column_exporter(), hub().fast_exporters(hub().module().ChunkedArray)["hub"]

    def exported(
        series: Any, target: Any, layout: str = "", nan_is_null: bool = False
    ) -> tuple[str, Any, None]:
        values = one_block(series)
        array = column(series.array if values is None else values, bool(layout), nan_is_null)
        return "" if layout else _plain_name(series), plain(array, target)[1], None

    return exported


@cache
def frame_exporter(pd: Any) -> Callable[..., tuple[None, Any, None]]:
    """Return the exporter ``hub`` of frames of plain columns, with metadata for targets that keep it."""
    pa, column, types = hub().module(), _column_exporter(), hub().plain_types
    check, make = hub().fast_exporters(pa.Table)["hub"], pa.Table.from_arrays

    def exported(
        frame: Any, target: Any, layout: str = "", nan_is_null: bool = False
    ) -> tuple[None, Any, None]:
        if not is_default(frame.index, pd.RangeIndex) or frame.attrs:
            raise ValueError("labels of rows, or attributes: use the slow path")
        labels, arrays = frame.columns.tolist(), list(column_arrays(pd, frame))
        if not (labels and len(frame)) or {*map(type, labels)} != {str}:
            raise ValueError("no values, or labels that are not text: use the slow path")
        if "" in labels or "\0" in "".join(labels) or len({*labels}) != len(labels):
            raise ValueError("labels that need a check: use the slow path")
        columns = [column(values, bool(layout), nan_is_null) for values in arrays]
        if layout not in ("", "columns") and may_be_one_matrix([x for x in arrays if type(x) is np.ndarray]):
            raise ValueError("they may be columns of one matrix: the slow path decides")
        table = make(columns, names=labels)
        if layout:
            return None, table, None
        if not all(type(values) is np.ndarray for values in arrays):
            check(table, target)  # chunks too: 10 us
        elif not types.issuperset(table.schema.types):
            raise ValueError("float16: the slow path decides")
        if target.keeps_metadata:
            metadata = metadata_of(pd, frame, [values.dtype for values in arrays], labels, [], None)
            table = table.replace_schema_metadata(metadata)
        return None, table, None

    return exported


def plain_array(array: Array) -> bool:
    """Whether an array of one dimension is plain numbers that a frame can alias."""
    plain = array.dtype.kind in "iuf" and array.dtype.isbuiltin == 1 and array.dtype.num in native_numbers()
    return (
        type(array) is np.ndarray and array.ndim == 1 and plain and array.flags.forc and array.flags.aligned
    )


def may_be_one_matrix(arrays: list[Array]) -> bool:
    """Whether arrays of one length may lie in one allocation, at the distance of columns."""
    if len(arrays) < 2:
        return False
    first, second = arrays[:2]
    distance = address(second) - address(first)
    if first.base is None or second.base is None or abs(distance) > 2 * first.nbytes:
        return False
    if first.base is not second.base and all(
        type(x) is np.ndarray and x.flags.owndata for x in (first.base, second.base)
    ):
        return False
    # Separate allocations can be neighbours, but hardly all of them.
    return {address(b) - address(a) for a, b in pairwise(arrays)} == {distance}


def labelled_columns(pd: Any, frame: Any) -> list[tuple[Hashable, Any]]:
    """Return labels and columns of a frame: numbers as ndarrays, others as series, which take 12 us each."""
    numbers, labels, arrow = native_numbers(), frame.columns.tolist(), pd.arrays.ArrowExtensionArray
    block = one_block(frame)
    if block is not None and block.dtype.num in numbers and block.dtype.isnative:
        block = block.view()
        block.flags.writeable = False  # guards copy-on-write, as in `plain`
        return list(zip(labels, block, strict=True))
    columns = list[tuple[Hashable, Any]]()
    for place, (label, values) in enumerate(zip(labels, column_arrays(pd, frame), strict=True)):
        if type(values) is np.ndarray and values.dtype.num in numbers and values.dtype.isnative:
            values = values.view()
            values.flags.writeable = False
        else:
            try:
                values = in_arrow(values) if type(values) is arrow else frame.iloc[:, place]
            except TypeError:
                values = frame.iloc[:, place]
        columns.append((label, values))
    return columns
