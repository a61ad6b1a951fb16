"""pandas: data frames, series and indexes, over NumPy's memory or Arrow's.

A column of NumPy's goes out as NumPy's and comes in as NumPy's; one of Arrow's stays
Arrow's. The index travels as the last columns, with pandas' own metadata beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._frameworks.pandas.columns import (
    LEVEL,
    NAT,
    RANGE,
    column_of,
    frame_table,
    index_column,
    is_default,
    masked_type,
    nat_reasons,
    plain,
    versioned,
)
from zerocopy.dtype import from_numpy
from zerocopy.errors import Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Array, Framework, Source
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.tables import pandas_metadata as meta
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import Decoder, Leaf
from zerocopy.tables.nulls import Nulls
from zerocopy.tables.tensor_column import TensorColumn
from zerocopy.tables.to_tables import Copied

#: Arrow types that pandas 3 takes and cannot use: ``take`` has no kernel for them, or
#: ``ArrowDtype.type``, which printing asks for, raises NotImplementedError.
_UNUSABLE = {
    "string_view": ("pandas cannot select rows of views: they become large_string", "x.cast('large_string')"),
    "binary_view": ("pandas cannot select rows of views: they become large_binary", "x.cast('large_binary')"),
    "list_view": ("pandas cannot print views of lists: they become lists", "cast it to a list in Arrow"),
    "run_end_encoded": (
        "pandas cannot select rows of runs: they are written out",
        "pyarrow.compute.run_end_decode(x) does it in Arrow",
    ),
}
_TO_LEVEL = Reason(
    "a MultiIndex keeps codes, which are made of a level's values", "index=False keeps columns"
)
_UNPRINTABLE = ("union", "interval")


class Pandas(Framework):
    """``pandas.DataFrame`` and ``pandas.Series``; an index goes out as a series does."""

    name = "pandas"
    kind = "table"
    roots = ("pandas",)
    distribution = "pandas"
    marks_readonly = True

    def owns(self, cls: type) -> bool:
        pd = self.module()
        return issubclass(cls, (pd.DataFrame, pd.Series, pd.Index, pd.api.extensions.ExtensionArray))

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        name = f"pandas.{type(obj).__name__}"
        table = self.table(obj, False)
        if not table.single:
            raise UnsupportedConversionError(
                f"convert({name})", "a table is not one array", "pick a column, or convert to a dict of them"
            )
        try:
            tree = Decoder(Nulls()).decode(table.columns[0])
        except ZeroCopyError as error:
            error.asked, error.why = f"convert({name})", f"it {error.why}"
            raise
        assert isinstance(tree, Leaf)
        return replace(tree.source, name=name)

    def table(self, obj: Any, index: bool | None = None) -> Table:
        pd = self.module()
        name = f"pandas.{type(obj).__name__}"
        if isinstance(obj, pd.DataFrame):
            return frame_table(pd, obj, index, name)
        if isinstance(obj, pd.MultiIndex):
            return frame_table(pd, obj.to_frame(index=False), False, name)
        if isinstance(obj, pd.Series) and index:
            label = "column_0" if obj.name is None else obj.name
            return replace(frame_table(pd, obj.to_frame(label), True, name), obj=obj)
        if isinstance(obj, pd.Index):
            column = index_column(pd, obj)
        elif isinstance(obj, pd.Series):
            column = column_of(pd, obj.array, lambda: obj)
        else:
            column = column_of(pd, obj, lambda: pd.Series(obj, copy=False))
        label = getattr(obj, "name", None)
        return Table(name, ["" if label is None else label], [column], len(obj), single=True, obj=obj)

    def exports(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        pd = self.module()
        if cls is pd.Series:
            return {"versioned": versioned, "readonly": plain, "ndarray": plain}
        if cls is pd.DataFrame:
            default = pd.RangeIndex

            def columns(frame: Any) -> list[tuple[Hashable, Any]]:
                if not is_default(frame.index, default):
                    raise ValueError("an index that travels: for the careful way")
                return list(frame.items())

            return {"columns": columns}
        return {}

    def imports(self) -> dict[str, Callable[[Any], Any]]:
        pd = self.module()

        def ndarray(array: Array) -> Any:
            if from_numpy(array.dtype) is None or not array.flags.aligned or array.dtype.isbuiltin != 1:
                raise ValueError("no plain numbers: for the careful way")
            if array.ndim == 1:
                return pd.Series(array, copy=False)
            height, width = array.shape
            labels = pd.Index([f"column_{i}" for i in range(width)] if width else pd.RangeIndex(0))
            return pd.DataFrame(array, index=pd.RangeIndex(height), columns=labels, copy=False)

        return {"ndarray": ndarray}

    # -- target ---------------------------------------------------------------

    def column_reasons(self, column: Column) -> list[Reason]:
        if _own(column) is not None:
            return [reason for reason in (RANGE, LEVEL) if reason in column.reasons]
        source: Source | None = getattr(column, "source", None)
        if source is not None and _in_numpy(column, source):
            return [*column.reasons, *_host_reasons(source), *nat_reasons(column)]
        if source is not None and column.field is None and not source.view.dtype.in_numpy:
            raise UnsupportedConversionError(
                "",
                f"is {source.view.dtype}, which pandas lacks",
                "cast it to float32 in the source framework",
            )
        reasons = column.arrow_reasons()
        why, remedy = _UNUSABLE.get(_kind(column), ("", ""))
        return [*reasons, Reason(why, remedy)] if why and column.length else reasons

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        said = meta.read(table.metadata)
        levels = [] if said is None else [one for one in said.index if isinstance(one, str)]
        places = _places(table, levels)
        return [
            [_TO_LEVEL] if len(places) > 1 and i in places and LEVEL not in column.reasons else []
            for i, column in enumerate(table.columns)
        ]

    def locks(self, column: Column) -> bool:
        # Arrow's memory is written to by nobody: pandas makes a new array for each change.
        # A series of its own is guarded by copy-on-write.
        source: Source | None = getattr(column, "source", None)
        if _own(column) is not None or source is None:
            return False
        return source.view.readonly and _in_numpy(column, source)

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        found = []
        lost = [key.decode(errors="replace") for key in table.metadata if key != meta.KEY]
        if lost:
            found.append(f"pandas has no metadata of a schema: {', '.join(lost)} is lost")
        named = [
            str(label)
            for label, column in zip(table.labels, table.columns, strict=True)
            if column.field is not None
            and any(not key.startswith(b"ARROW:extension") for key in column.field.metadata)
        ]
        if named:
            found.append(f"pandas has no metadata of columns: that of {', '.join(named)} is lost")
        for label, column in zip(table.labels, table.columns, strict=True):
            if column.field is not None and column.field.kind in _UNPRINTABLE and _own(column) is None:
                found.append(f"pandas cannot print column {label!r}, which is {column.field}")
            if _kind(column) in _UNUSABLE and _own(column) is None:
                found.append(f"column {label!r}: {_UNUSABLE[_kind(column)][0]}")
        return tuple(found)

    def alias_warnings(self, table: Table) -> tuple[str, ...]:
        if not any(self._unguarded(column) for column in table.columns):
            return ()
        # Memory that is aliased from outside escapes copy-on-write: pandas counts its own
        # blocks alone.
        return (
            "pandas' copy-on-write does not see memory of others: writing to the result in place "
            "changes the source, and the other way round (copy=True takes a snapshot)",
        )

    def _unguarded(self, column: Column) -> bool:
        if _own(column) is not None or not isinstance(column, TensorColumn):
            return False
        return not column.source.view.readonly and not self.column_reasons(column)

    def from_table(self, table: Table) -> Any:
        pd = self.module()
        said = meta.read(table.metadata)
        places, index = _index(pd, table, said)
        kept = [i for i in range(len(table.columns)) if i not in places]
        block = _block([table.columns[i] for i in kept])
        if block is not None:
            frame = pd.DataFrame(block, index=index, copy=False)
        else:
            labels = [table.labels[i] for i in kept]
            values = [_values(pd, table.columns[i], index) for i in kept]
            if said is None and all(type(label) is str for label in labels) and len({*labels}) == len(labels):
                # As pandas would make them, and once: an index of labels takes 15 us.
                return pd.DataFrame(dict(zip(labels, values, strict=True)), index=index, copy=False)
            frame = pd.DataFrame(dict(enumerate(values)), index=index, copy=False)
        frame.columns = meta.index_of(pd, [table.labels[i] for i in kept], said)
        if said is not None and said.attributes:
            frame.attrs.update(said.attributes)
        return frame

    def from_column(self, table: Table) -> Any:
        pd = self.module()
        (column,), (label,) = table.columns, table.labels
        name = None if isinstance(label, str) and label == "" else label
        values = _values(pd, column, None)
        return pd.Series(values, name=name, copy=False)


# -- columns as pandas' objects -------------------------------------------------


def _own(column: Column) -> Any:
    """Return the function that returns the series that a column is, if it is pandas' own."""
    return getattr(column, "of_pandas", None)


def _in_numpy(column: Column, source: Source) -> bool:
    """Whether a tensor becomes a column of NumPy's; if not, it goes by way of Arrow."""
    field, view = column.field, source.view
    if view.ndim != 1:
        return False
    if field is None:
        bare = getattr(column, "nulls", None) is None
        return view.dtype.in_numpy and (bare or masked_type(view.dtype.name) is not None)
    # Only a time zone would be copied: pandas has no way in for it that aliases.
    return field.kind in ("timestamp", "duration") and not field.timezone


def _host_reasons(source: Source) -> list[Reason]:
    view = source.view
    if source.refusal is not None:
        raise UnsupportedConversionError("", source.refusal.why, source.refusal.remedy)
    reasons = list(source.reasons)
    if not view.device.is_host:
        reasons.append(Reason(f"it is on {view.device} and pandas' memory is the host's", ""))
    elif not view.is_aligned(view.dtype.itemsize) or view.has_fractional_strides:
        # pandas' kernels load whole elements, and nowhere promise to take misaligned ones.
        reasons.append(Reason("the memory is not aligned to its item size", "copy it at its source"))
    return reasons


def _values(pd: Any, column: Column, index: Any) -> Any:
    """Return what a column of a data frame is made of, with its own memory where it has `column_reasons`."""
    if _own(column) is not None:
        own = _own(column)()
        # A series and not its array: pandas then knows that two frames look at it, and
        # writing to one of them leaves the other as it is.
        own = _copied(pd, own) if isinstance(column, Copied) else own.copy(deep=False)
        return own if index is None or own.index is index else own.set_axis(index)
    source: Source | None = getattr(column, "source", None)
    if source is None or not _in_numpy(column, source):
        return _arrow_values(pd, column)
    array = source.host() if source.to_host is None or source.view.device.is_host else source.to_host(None)
    nulls: Array | None = getattr(column, "nulls", None)
    field = column.field
    if FRAMEWORK.column_reasons(column) and not source.reasons and source.view.device.is_host:
        array = aligned_copy(array)
    if field is not None:
        if nulls is not None and nat_reasons(column):
            array[nulls] = NAT
        return array.view(f"{'M' if field.kind == 'timestamp' else 'm'}8[{field.unit}]")
    if nulls is None:
        return array
    kind = getattr(pd.arrays, str(masked_type(source.view.dtype.name)))
    return kind(array, nulls.copy() if isinstance(column, Copied) else nulls, copy=False)


def _copied(pd: Any, own: Any) -> Any:
    """Return a series in memory of its own.

    ``copy(deep=True)`` of one in Arrow's memory does not copy it: it is never written to.
    """
    if not isinstance(own.array, pd.arrays.ArrowExtensionArray):
        return own.copy(deep=True)
    hub: Any = registry.by_name("pyarrow")
    chunked = hub.copied(hub.module().chunked_array(own))
    return pd.Series(pd.array(chunked, dtype=own.dtype), index=own.index, name=own.name, copy=False)


def _arrow_values(pd: Any, column: Column) -> Any:
    chunked = column.arrow()
    if not hasattr(chunked, "chunks"):
        chunked = registry.by_name("pyarrow").module().chunked_array([chunked])
    if _kind(column) in _UNUSABLE:
        hub: Any = registry.by_name("pyarrow")
        # Copied once more, since a cast of lists may keep what it can: the plan said a copy.
        chunked = hub.copied(_usable(hub.module(), _kind(column), chunked))
    return pd.arrays.ArrowExtensionArray(chunked)


def _kind(column: Column) -> str:
    return column.field.kind if column.field is not None and not column.field.extension else ""


def _usable(pa: Any, kind: str, chunked: Any) -> Any:
    """Return the same values in a type that pandas can work with."""
    import pyarrow.compute as pc

    if kind == "run_end_encoded":
        chunks = [pc.run_end_decode(chunk) for chunk in chunked.chunks]
        return pa.chunked_array(chunks, chunked.type.value_type)
    if kind == "list_view":
        wide = pa.types.is_large_list_view(chunked.type)
        to = (pa.large_list if wide else pa.list_)(chunked.type.value_field)
        return pa.chunked_array([_lists(pa, pc, chunk, to) for chunk in chunked.chunks], to)
    return chunked.cast(pa.large_string() if kind == "string_view" else pa.large_binary())


def _lists(pa: Any, pc: Any, views: Any, to: Any) -> Any:
    """Return list views as lists."""
    # Not by a cast: it takes the offsets over and forgets the sizes, so that one offset is
    # missing and lists out of order are wrong (apache/arrow#50976, first comments).
    sizes = pc.list_value_length(views).fill_null(0)
    ends = pc.cumulative_sum(sizes)
    offsets = pa.concat_arrays([pa.array([0], sizes.type), ends])
    kind = pa.LargeListArray if pa.types.is_large_list(to) else pa.ListArray
    hidden = views.is_null() if views.null_count else None
    return kind.from_arrays(offsets, views.flatten(), type=to, mask=hidden)


def _block(columns: list[Column]) -> Array | None:
    """Return the columns of one matrix as that matrix; None for others."""
    if len(columns) < 2 or not all(type(c) is TensorColumn and c.field is None for c in columns):
        return None
    found = [c.source for c in columns if isinstance(c, TensorColumn)]
    first, second = found[0].view, found[1].view
    step = second.ptr - first.ptr
    for place, source in enumerate(found):
        view = source.view
        if (
            view.owner is not first.owner
            or view.ptr != first.ptr + place * step
            or (view.shape, view.strides, view.dtype) != (first.shape, first.strides, first.dtype)
        ):
            return None
    if first.ndim != 1 or any(FRAMEWORK.column_reasons(column) for column in columns):
        return None
    if any(column.nulls is not None for column in columns if isinstance(column, TensorColumn)):
        return None
    whole = replace(first, shape=(*first.shape, len(found)), strides=(*first.strides, step))
    return whole.numpy()


def _places(table: Table, levels: list[str]) -> list[int]:
    """Return which columns are those levels of an index, where they are there."""
    # The last of a name: the index comes behind the columns.
    last = {str(label): i for i, label in enumerate(table.labels)}
    return [last[name] for name in levels if name in last]


def _index(pd: Any, table: Table, said: meta.Said | None) -> tuple[list[int], Any]:
    """Return which columns are the index, and the index: the default one where none is said."""
    described = said.index if said is not None else []
    levels = [one for one in described if isinstance(one, str)]
    places = _places(table, levels)
    if said is None or not places:
        spans = [meta.range_of(one) for one in described if isinstance(one, dict)]
        if len(spans) == len(described) == 1 and len(spans[0]) == table.length:
            return [], pd.RangeIndex(spans[0], name=described[0].get("name"))
        return [], pd.RangeIndex(table.length)
    names = [said.level_name(str(table.labels[i])) for i in places]
    arrays = [_index_values(pd, table.columns[i]) for i in places]
    if len(arrays) > 1:
        return places, pd.MultiIndex.from_arrays(arrays, names=names)
    return places, pd.Index(arrays[0], name=names[0], copy=False)


def _index_values(pd: Any, column: Column) -> Any:
    """Return what an index is made of: numbers, dates and text in pandas' own types where they alias."""
    values = _values(pd, column, None)
    if _own(column) is not None:
        return values.array
    if isinstance(values, np.ndarray):
        return pd.array(values, dtype="Float32") if values.dtype == "f2" else values
    chunked: Any = values.__arrow_array__()
    kind = _kind(column)
    if kind in ("string", "string_view") and chunked.type == "large_string":
        return pd.array(chunked, dtype="str")
    if kind not in ("number", "timestamp", "duration") or chunked.num_chunks != 1 or chunked.null_count:
        return values
    (chunk,) = chunked.chunks
    if kind == "number":
        array = chunk.to_numpy(zero_copy_only=True)
        return values if array.dtype == "f2" else array
    return chunk.to_pandas(zero_copy_only=True).array


FRAMEWORK = Pandas()
