"""Columns of any framework as values of pandas: aliased if possible, cast if pandas cannot use their type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.pandas import metadata as meta
from zerocopy._frameworks.pandas.columns import LEVEL, LEVELS, NAT, RANGE, masked_type, nat_reasons
from zerocopy.dtype import by_name
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.source import Array, Source
from zerocopy.tables import placement
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import refused_by
from zerocopy.tables.hub import hub
from zerocopy.tables.nulls import DROPPED
from zerocopy.tables.placement import in_one_allocation
from zerocopy.tables.tensor_column import TensorColumn
from zerocopy.tables.to_tables import Copied

#: Arrow types that pandas 3 accepts and cannot use: ``take`` has no kernel for them, or
#: ``ArrowDtype.type``, which printing needs, raises NotImplementedError.
UNUSABLE = {
    "string_view": ("pandas cannot select rows of views: they become large_string", "cast:large_string"),
    "binary_view": ("pandas cannot select rows of views: they become large_binary", "cast:large_binary"),
    "list_view": ("pandas cannot print views of lists: they become lists", ""),
    "run_end_encoded": ("pandas cannot select rows of runs: they are decoded", "decode-runs"),
}
BOOL = by_name("bool")
BITS = Reason("pandas cannot use bool8 with nulls: it becomes bits", "fill them first", code="packed-bits")
TO_LEVEL = Reason(
    "a MultiIndex stores codes: pandas computes them from a level's values",
    code="computed-index",
    fixes=[Fix(options={"index": False}, effect="keeps columns")],
)
UNPRINTABLE = ("union", "interval")


def reasons_against(column: Column) -> list[Reason]:
    """Return why pandas copies a column; refuse a type that it cannot hold."""
    if series_getter(column) is not None:
        return [reason for reason in (RANGE, LEVEL, LEVELS, DROPPED) if reason in column.reasons]
    source = column.source
    if source is not None and in_numpy(column, source):
        return [*column.reasons, *host_reasons(source), *nat_reasons(column)]
    if source is not None and column.field is None and not source.view.dtype.in_numpy:
        why = f"it is {source.view.dtype}, which pandas lacks"
        raise obstacles.refuse_column(why, fixes=obstacles.pairs(source.view.dtype))
    reasons = column.arrow_reasons()
    if is_bool8(column) and column.length:
        # pandas can neither filter nor sum the extension type; NumPy's bool has the same bytes.
        return [*reasons, BITS] if column.null_count else list(column.values(BOOL).reasons)
    why, action = UNUSABLE.get(kind_of(column), ("", ""))
    fixes = [Fix(action=action)] if action else []
    return [*reasons, Reason(why, code="unusable-type", fixes=fixes)] if why and column.length else reasons


def series_getter(column: Column) -> Any:
    """Return the function that returns a column of pandas as a series; None for other columns."""
    return getattr(column, "of_pandas", None)


def in_numpy(column: Column, source: Source) -> bool:
    """Whether a tensor becomes a column in NumPy's memory, not in Arrow's."""
    field, view = column.field, source.view
    if view.ndim != 1:
        return False
    if field is None:
        bare = getattr(column, "nulls", None) is None
        return view.dtype.in_numpy and (bare or masked_type(view.dtype.name) is not None)
    # Not with a time zone: pandas has no constructor for it that aliases NumPy's memory.
    return field.kind in ("timestamp", "duration") and not field.timezone


def host_reasons(source: Source) -> list[Reason]:
    """Return why pandas copies a tensor in NumPy's memory."""
    view = source.view
    if source.refusal is not None:
        raise refused_by(source.refusal)
    reasons = list(source.reasons)
    if not view.device.is_host:
        source.check_copy()
        reasons.append(Reason(f"it is on {view.device}, and pandas uses host memory", code="other-device"))
    elif not view.is_aligned(view.dtype.itemsize) or view.has_fractional_strides:
        # pandas' kernels load whole elements and do not promise to accept misaligned ones.
        why = "the memory is not aligned to its item size"
        reasons.append(Reason(why, code="misaligned", fixes=[obstacles.COPIED]))
    return reasons


def index_of_rows(column: Column) -> Any:
    """Return the index of a column of pandas from which rows were dropped; None for other columns."""
    index = getattr(column, "index_of_rows", None)
    return None if index is None else index()


def values_of(pd: Any, column: Column, index: Any) -> Any:
    """Return a column as an argument of ``pandas.DataFrame``: a copy if it has `column_reasons`."""
    if series_getter(column) is not None:
        series = series_getter(column)()
        # Pass a series, not its array, so that pandas' copy-on-write counts the shared block.
        series = _copied(pd, series) if isinstance(column, Copied) else series.copy(deep=False)
        return series if index is None or series.index is index else series.set_axis(index)
    source = column.source
    if source is None or not in_numpy(column, source):
        return _arrow_values(pd, column)
    array = placement.fetch(source)
    nulls: Array | None = getattr(column, "nulls", None)
    field = column.field
    if reasons_against(column) and not source.reasons and source.view.device.is_host:
        array = aligned_copy(array)
    if field is not None:
        if nulls is not None and nat_reasons(column):
            array[nulls] = NAT
        return array.view(f"{'M' if field.kind == 'timestamp' else 'm'}8[{field.unit}]")
    if nulls is None:
        return array
    kind = getattr(pd.arrays, str(masked_type(source.view.dtype.name)))
    return kind(array, nulls.copy() if isinstance(column, Copied) else nulls, copy=False)


def _copied(pd: Any, series: Any) -> Any:
    """Return a copy of a series; ``copy(deep=True)`` does not copy Arrow's memory."""
    if not isinstance(series.array, pd.arrays.ArrowExtensionArray):
        return series.copy(deep=True)
    chunked = hub().copied(hub().module().chunked_array(series))
    return pd.Series(pd.array(chunked, dtype=series.dtype), index=series.index, name=series.name, copy=False)


def _arrow_values(pd: Any, column: Column) -> Any:
    bool8 = is_bool8(column)
    if bool8 and not column.null_count:
        return column.values(BOOL).host()
    chunked = column.arrow()
    if bool8:
        chunked = chunked.cast(hub().module().bool_())
    if not hasattr(chunked, "chunks"):
        chunked = hub().module().chunked_array([chunked])
    if kind_of(column) in UNUSABLE:
        # Copy again, because a cast of lists may alias some buffers and the plan reports a copy.
        pa = hub().module()
        chunks = [_usable(pa, chunk) for chunk in chunked.chunks]
        chunked = hub().copied(pa.chunked_array(chunks, _usable_type(pa, chunked.type)))
    return pd.arrays.ArrowExtensionArray(chunked)


def is_bool8(column: Column) -> bool:
    """Whether a column is Arrow's extension type for booleans in bytes."""
    return column.field is not None and column.field.extension == "arrow.bool8"


def kind_of(column: Column) -> str:
    """Return the kind of a column's type; for a dictionary of views, the kind of its values."""
    field = column.field
    if field is None or field.extension:
        return ""
    inner = field.dictionary.kind if field.dictionary is not None else ""
    return inner if inner in ("string_view", "binary_view") else field.kind


def usable(chunked: Any) -> Any:
    """Return a column of plain values as pandas can use it: a copy of views, and other columns unchanged."""
    pa = hub().module()
    if chunked.type != pa.string_view():
        return chunked
    return hub().cast_views(chunked, pa.large_string())


def _usable_type(pa: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_run_end_encoded(kind):
        return _usable_type(pa, kind.value_type)
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _usable_type(pa, kind.value_type), kind.ordered)
    if types.is_large_list_view(kind) or types.is_list_view(kind):
        return (pa.large_list if types.is_large_list_view(kind) else pa.list_)(kind.value_field)
    return {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind, kind)


def _usable(pa: Any, array: Any) -> Any:
    """Return the same values in a type that pandas can work with."""
    import pyarrow.compute as pc

    target = _usable_type(pa, array.type)
    if pa.types.is_run_end_encoded(array.type):
        return _decoded(pa, pc, array)
    if target == array.type:
        return array
    if pa.types.is_dictionary(target):
        words = _usable(pa, array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, words, ordered=target.ordered, safe=False)
    if pa.types.is_list(target) or pa.types.is_large_list(target):
        return _lists(pa, pc, array, target)
    return hub().cast_views(array, target)


def _decoded(pa: Any, pc: Any, runs: Any) -> Any:
    """Return the value of each row of runs, in a type that pandas can work with."""
    first, count = runs.find_physical_offset(), runs.find_physical_length()
    values, ends = _usable(pa, runs.values.slice(first, count)), runs.run_ends.slice(first, count)
    # pyarrow cannot decode runs of these types (24 not of lists): decode positions, and select the values.
    by_position = pa.types.is_dictionary(values.type) or pa.types.is_nested(values.type)
    by_position = by_position or isinstance(values.type, pa.BaseExtensionType)
    coded = pa.RunEndEncodedArray.from_arrays(ends, pa.array(np.arange(count)) if by_position else values)
    rows = pc.run_end_decode(coded.slice(runs.offset, len(runs)))
    return hub().take(values, rows.to_numpy()) if by_position else rows


def _lists(pa: Any, pc: Any, views: Any, target: Any) -> Any:
    # A cast would be wrong: it keeps the offsets and ignores the sizes, so one offset is missing
    # and lists out of order have other values (apache/arrow#50994).
    sizes = pc.list_value_length(views).fill_null(0)
    ends = pc.cumulative_sum(sizes)
    offsets = pa.concat_arrays([pa.array([0], sizes.type), ends])
    kind = pa.LargeListArray if pa.types.is_large_list(target) else pa.ListArray
    hidden = views.is_null() if views.null_count else None
    return kind.from_arrays(offsets, hub().items(views), type=target, mask=hidden)


def block_of(columns: list[Column]) -> Array | None:
    """Return the matrix whose columns these are; None if they are not columns of one matrix."""
    if len(columns) < 2 or not all(type(c) is TensorColumn and c.field is None for c in columns):
        return None
    views = [c.source.view for c in columns if isinstance(c, TensorColumn)]
    first, second = views[:2]
    step = second.ptr - first.ptr
    for place, view in enumerate(views):
        is_alike = (view.shape, view.strides, view.dtype) == (first.shape, first.strides, first.dtype)
        if not is_alike or view.ptr != first.ptr + place * step:
            return None
    if first.ndim != 1 or any(reasons_against(column) for column in columns):
        return None
    if any(column.nulls is not None for column in columns if isinstance(column, TensorColumn)):
        return None
    whole = replace(first, shape=(*first.shape, len(views)), strides=(*first.strides, step))
    return whole.numpy() if in_one_allocation(whole, first) else None


def places_of(table: Table, levels: list[str]) -> list[int]:
    """Return the positions of the columns that are levels of the index."""
    # The last column of a name, since the index follows the columns.
    last = {str(label): i for i, label in enumerate(table.labels)}
    return [last[name] for name in levels if name in last]


def index_from(pd: Any, table: Table, metadata: meta.IndexMetadata | None) -> tuple[list[int], Any]:
    """Return the positions of the index's columns, and the index: the default one without metadata.

    If the caller passes labels, they are the index, and no columns belong to it.
    """
    if (labels := row_labels(pd, table)) is not None:
        return [], labels
    entries = metadata.index if metadata is not None else []
    places = places_of(table, [entry for entry in entries if isinstance(entry, str)])
    if metadata is None or not places:
        ranges = [meta.range_of(entry) for entry in entries if isinstance(entry, dict)]
        if len(ranges) == len(entries) == 1 and len(ranges[0]) == table.length:
            return [], pd.RangeIndex(ranges[0], name=entries[0].get("name"))
        own = index_of_rows(table.columns[0]) if table.columns else None
        return [], pd.RangeIndex(table.length) if own is None else own
    names = [metadata.level_name(pd, str(table.labels[i])) for i in places]
    arrays = [_index_values(pd, table.columns[i]) for i in places]
    if len(arrays) > 1:
        return places, pd.MultiIndex.from_arrays(arrays, names=names)
    return places, pd.Index(arrays[0], name=names[0], copy=False)


def row_labels(pd: Any, table: Table) -> Any:
    """Return the option ``index=`` as an index; None without it."""
    labels = table.options.get("index")
    if labels is None or isinstance(labels, pd.Index):
        return labels
    try:
        # pandas takes tensors of PyTorch as scalars.
        return pd.Index(np.asarray(labels) if hasattr(type(labels), "__dlpack__") else labels)
    except (TypeError, ValueError, RuntimeError) as error:
        why = f"pandas cannot make an index from index=: {error}"
        fixes = [Fix(options={"index": None}, effect="gives the default index")]
        raise UnsupportedConversionError("", why, code="option-value", fixes=fixes) from error


def _index_values(pd: Any, column: Column) -> Any:
    """Return the values of an index: numbers, dates and text in pandas' own types if they alias."""
    values = values_of(pd, column, None)
    if series_getter(column) is not None:
        return values.array
    if isinstance(values, np.ndarray):
        return pd.array(values, dtype="Float32") if values.dtype == "f2" else values
    chunked: Any = values.__arrow_array__()
    kind = kind_of(column)
    if kind in ("string", "string_view") and chunked.type == "large_string":
        return pd.array(chunked, dtype="str")
    if kind not in ("number", "timestamp", "duration") or chunked.num_chunks != 1 or chunked.null_count:
        return values
    (chunk,) = chunked.chunks
    if kind == "number":
        array = chunk.to_numpy(zero_copy_only=True)
        return values if array.dtype == "f2" else array
    return chunk.to_pandas(zero_copy_only=True).array
