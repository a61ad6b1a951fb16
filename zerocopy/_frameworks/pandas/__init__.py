"""pandas: data frames, series and indexes, over NumPy's memory or Arrow's.

In both directions, columns in NumPy's memory stay NumPy's, and columns in Arrow's stay Arrow's.
The index becomes the last columns, which pandas' own metadata describes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.pandas import metadata as meta
from zerocopy._frameworks.pandas.columns import (
    LEVEL,
    LEVELS,
    column_of,
    index_column,
    is_read_only,
    matrix,
    plain,
)
from zerocopy._frameworks.pandas.tables import (
    frame_builder,
    frame_exporter,
    frame_table,
    is_default,
    labelled_columns,
    labels_index,
    may_be_one_matrix,
    plain_array,
    series_builder,
    series_exporter,
)
from zerocopy._frameworks.pandas.values import (
    BOOL,
    TO_LEVEL,
    UNPRINTABLE,
    UNUSABLE,
    block_of,
    in_numpy,
    index_from,
    index_of_rows,
    is_bool8,
    kind_of,
    places_of,
    reasons_against,
    row_labels,
    series_getter,
    usable,
    values_of,
)
from zerocopy.dtype import from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.registry import is_imported
from zerocopy.source import Array, Source
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import as_one_tensor
from zerocopy.tables.hub import NAME as HUB, hub
from zerocopy.tables.tensor_column import TensorColumn


class Pandas(Framework):
    """``pandas.DataFrame`` and ``pandas.Series``; an index is exported like a series.

    ``to="pandas.DataFrame"`` and ``"pandas.Series"`` name a form.
    """

    name = "pandas"
    aliases = ("pd",)
    kind = "table"
    kinds: Mapping[str, Any] = {
        "MultiIndex": "table",
        **dict.fromkeys(("Series", "Index", "ExtensionArray"), "column"),
    }
    # Older versions fail the tests, and some give wrong values.
    min_version = "3.0"
    root_modules = ("pandas",)
    distribution = "pandas"
    marks_readonly = True
    reads_views = False  # it cannot select rows of them
    nan_is_null = True
    options = ("index",)
    forms = ("DataFrame", "Series")
    actions: Mapping[str, Fix] = {
        "column": Fix("{x}[{label}]"),
        "replace": Fix("{x}.assign(**{{{label}: {value}}})"),
        "cast": Fix("{x}.astype('{type}[pyarrow]')"),
        "cast:float64": Fix("{x}.astype('float64')"),
        "cast:bool8": Fix("{x}.astype('boolean')"),
        "cast:str": Fix("{x}.astype('str')"),
        "objects": Fix("{x}.tolist()"),
        "split-interval": Fix(
            "pandas.arrays.ArrowExtensionArray(pyarrow.array([v and dict(zip(('months', 'days', "
            "'nanoseconds'), v)) for v in pyarrow.array({x}).to_pylist()]))",
            "gives months, days and nanoseconds",
        ),
        "milliseconds": Fix("{x}.dt.as_unit('ms')"),
        "truncate:us": Fix("{x}.dt.floor('us')"),
        "fill-nulls": Fix("{x}.fillna({type})"),
        "drop-nulls": Fix("{x}.dropna()"),
        "join-lists": Fix("{x}.explode()"),
        "rename-columns": Fix(
            "{x}.set_axis([f'{{name}}_{{i}}' for i, name in enumerate({x}.columns)], axis=1)",
            "numbers the names",
        ),
    }

    def owns(self, cls: type) -> bool:
        pd = self.module()
        return issubclass(cls, (pd.DataFrame, pd.Series, pd.Index, pd.api.extensions.ExtensionArray))

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        table = self.table(obj, False).dense()
        return replace(as_one_tensor(table), name=table.name)

    def table(self, obj: Any, index: bool | None = None) -> Table:
        pd = self.module()
        name = f"pandas.{type(obj).__name__}"
        if isinstance(obj, pd.DataFrame):
            return frame_table(pd, obj, index, name)
        if isinstance(obj, pd.MultiIndex):
            frame = obj.to_frame(index=False, allow_duplicates=True)
            table = frame_table(pd, frame, False, name)
            for column in table.columns:
                column.reasons = (LEVELS, *column.reasons)
            return table
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

    def labelled(self, result: Any, obj: Any) -> Any:
        if not hasattr(obj, "index") or not hasattr(result, "index") or len(result) != len(obj):
            return result
        if result.ndim < obj.ndim and obj.shape[0] == obj.shape[1]:
            return result  # one value for each row or for each column: the shape does not tell
        labelled = result.set_axis(obj.index)
        if result.shape != obj.shape:
            return labelled
        return labelled.set_axis(obj.columns, axis=1) if labelled.ndim == 2 else labelled.rename(obj.name)

    def fast_exporters(self, cls: type) -> dict[str, Callable[..., Any]]:
        pd = self.module()
        if cls is pd.Series:
            forms: dict[str, Any] = {"ndarray": plain}
            exporter: Any = series_exporter
        elif cls is pd.DataFrame:

            def columns(frame: Any, index: bool | None = None) -> list[tuple[Hashable, Any]]:
                if index is not False and not is_default(frame.index, pd.RangeIndex):
                    raise ValueError("not the default index: use the slow path")
                return labelled_columns(pd, frame)

            forms, exporter = {"columns": columns, "matrix": matrix}, frame_exporter
        else:
            return {}
        # The exporter is made for the first object: routes to tensors do not need it.
        hub_form = {"hub": lambda *args: exporter(pd)(*args)}
        return forms | (hub_form if is_imported(HUB) else {})

    def fast_importers(self) -> dict[str, Callable[..., Any]]:
        if self.form is not None:
            return {}
        from zerocopy.tables.tensor_column import MAX_COLUMNS

        pd, series = self.module(), series_builder()

        def ndarray(array: Array) -> Any:
            if from_numpy(array.dtype) is None or not array.flags.aligned or array.dtype.isbuiltin != 1:
                raise ValueError("not plain numbers: use the slow path")
            array = array.view()  # the caller can change the shape and dtype of the array itself
            if array.ndim == 1:
                return series(array) if array.dtype.kind in "biufc" else pd.Series(array, copy=False)
            height, width = array.shape
            if width > MAX_COLUMNS:
                raise ValueError("too many columns: the slow path refuses them")
            labels = pd.Index([f"column_{i}" for i in range(width)] if width else pd.RangeIndex(0))
            return pd.DataFrame(array, index=pd.RangeIndex(height), columns=labels, copy=False)

        extension, frame_of, index_of = pd.arrays.ArrowExtensionArray, frame_builder(), labels_index(pd)

        def of_hub(named: tuple[str | None, Any, Any]) -> Any:
            name, arrow, schema = named
            if name is not None:
                return series(extension(usable(hub().as_array(arrow))), name or None)
            table = hub().as_table(arrow, schema)
            if table.schema.metadata:
                raise ValueError("metadata may describe an index: use the slow path")
            columns = [extension(usable(column)) for column in table.columns]
            return frame_of(tuple(table.column_names), columns)

        def of_columns(pairs: list[tuple[str, Array]]) -> Any:
            names, columns = map(list, zip(*pairs, strict=True))
            if not all(map(plain_array, columns)) or len({len(array) for array in columns}) != 1:
                raise ValueError("not plain numbers, or a copy is needed: use the slow path")
            if may_be_one_matrix(columns):
                raise ValueError("they may be columns of one matrix, which becomes one block")
            return frame_of(tuple(names), columns)

        def block(array: Array, names: list[str]) -> Any:
            if array.dtype.isbuiltin != 1:
                raise ValueError("not NumPy's own type: use the slow path")
            index = pd.RangeIndex(len(array))
            return pd.DataFrame(array, index=index, columns=index_of(tuple(names)), copy=False)

        return {"ndarray": ndarray, "columns": of_columns, "hub": of_hub, "matrix": block}

    # -- target ---------------------------------------------------------------

    def column_reasons(self, column: Column) -> list[Reason]:
        return reasons_against(column)

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        if self.form == "Series" and len(table.columns) != 1:
            why = f"a series is one column, and the table has {len(table.columns)}"
            raise UnsupportedConversionError(
                "", why, 'pass to="pandas", or pick one with columns=[...]', code="option-value"
            )
        # The name of a series may be any object. Labels that are not all text become objects.
        is_frame = self.form == "DataFrame" or (self.form is None and not table.single)
        is_text = is_frame and all(isinstance(label, str) for label in table.labels)
        if is_text and not isinstance(table.obj, self.module().DataFrame):
            obstacles.check_utf8(table.labels, "pandas")
        row_labels(self.module(), table)  # refuses labels that pandas cannot make an index from
        metadata = meta.read(table.metadata)
        levels = [] if metadata is None else [entry for entry in metadata.index if isinstance(entry, str)]
        places = places_of(table, levels)
        if len(places) < 2:
            return super().table_reasons(table)
        return [
            [TO_LEVEL] if i in places and LEVEL not in column.reasons else []
            for i, column in enumerate(table.columns)
        ]

    def guards_writes(self, column: Column) -> bool:
        # pandas never writes to Arrow's memory, and copy-on-write protects its own series in writable memory.
        source = column.source
        if (series := series_getter(column)) is not None:
            return is_read_only(series())
        if is_bool8(column) and not column.null_count:  # becomes NumPy's bool
            return column.values(BOOL).view.readonly
        return source is not None and source.view.readonly and in_numpy(column, source)

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        warnings = []
        lost = [key.decode(errors="replace") for key in table.metadata if key != meta.KEY]
        if lost:
            warnings.append(f"pandas has no metadata of a schema: {', '.join(lost)} is lost")
        named = [
            str(label)
            for label, column in zip(table.labels, table.columns, strict=True)
            if column.field is not None
            and any(not key.startswith(b"ARROW:extension") for key in column.field.metadata)
        ]
        if named:
            warnings.append(f"pandas has no metadata of columns: that of {', '.join(named)} is lost")
        for label, column in zip(table.labels, table.columns, strict=True):
            if (
                column.field is not None
                and column.field.kind in UNPRINTABLE
                and series_getter(column) is None
            ):
                warnings.append(f"pandas cannot print column {label!r}, which is {column.field}")
            extension = column.field is not None and column.field.extension and series_getter(column) is None
            if extension and (name := hub().unregistered_extension(column)):
                warnings.append(f"column {label!r}: its extension type {name} is lost")
            if kind_of(column) in UNUSABLE and series_getter(column) is None:
                warnings.append(f"column {label!r}: {UNUSABLE[kind_of(column)][0]}")
        metadata = meta.read(table.metadata)
        if metadata is not None and metadata.lost and any(isinstance(x, str) for x in table.labels):
            warnings.append(f"labels of type {', '.join(metadata.lost)} became strings, and stay strings")
        if metadata is not None and any(series_getter(c) is None for c in table.columns):
            warnings.append("Arrow columns become ArrowDtype: the types that pandas had are not restored")
        return tuple(warnings)

    def select_metadata(self, metadata: dict[bytes, bytes], labels: Sequence[str]) -> dict[bytes, bytes]:
        return meta.select(metadata, labels)

    def unnamed_index(self, metadata: dict[bytes, bytes]) -> Collection[str]:
        entry = meta.read(metadata) or meta.IndexMetadata()
        return [name for name, labels in entry.names.items() if labels[-1] is None and name in entry.index]

    def alias_warnings(self, table: Table) -> tuple[str, ...]:
        if not any(self._unguarded(column) for column in table.columns):
            return ()
        # Copy-on-write counts references to pandas' own blocks only.
        return (
            "pandas' copy-on-write does not cover memory of other frameworks: writing to the result in "
            "place changes the source, and vice versa (copy=True takes a snapshot)",
        )

    def _unguarded(self, column: Column) -> bool:
        if series_getter(column) is not None or not isinstance(column, TensorColumn):
            return False
        return not column.source.view.readonly and not self.column_reasons(column)

    def from_table(self, table: Table) -> Any:
        if self.form == "Series":
            return self._series(table)
        pd = self.module()
        metadata = meta.read(table.metadata)
        places, index = index_from(pd, table, metadata)
        kept = [i for i in range(len(table.columns)) if i not in places]
        block = block_of([table.columns[i] for i in kept])
        if block is not None:
            frame = pd.DataFrame(block, index=index, copy=False)
        else:
            labels = [table.labels[i] for i in kept]
            values = [values_of(pd, table.columns[i], index) for i in kept]
            plain = all(type(label) is str for label in labels) and len({*labels}) == len(labels)
            if metadata is None and plain:
                # pandas creates the same index of labels; a second one takes 15 us.
                return pd.DataFrame(dict(zip(labels, values, strict=True)), index=index, copy=False)
            frame = pd.DataFrame(dict(enumerate(values)), index=index, copy=False)
        frame.columns = meta.labels_index(pd, [table.labels[i] for i in kept], metadata)
        if metadata is not None and metadata.attributes:
            frame.attrs.update(metadata.attributes)
        return frame

    def from_column(self, table: Table) -> Any:
        if self.form == "DataFrame":
            labels = ["column_0" if label == "" else label for label in table.labels]
            return self.from_table(replace(table, labels=labels, single=False))
        return self._series(table)

    def _series(self, table: Table) -> Any:
        pd = self.module()
        (column,), (label,) = table.columns, table.labels
        name = None if isinstance(label, str) and label == "" else label
        index = row_labels(pd, table)
        index = index_of_rows(column) if index is None else index
        return pd.Series(values_of(pd, column, index), index=index, name=name, copy=False)


FRAMEWORK = Pandas()
