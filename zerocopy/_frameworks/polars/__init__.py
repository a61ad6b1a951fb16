"""polars: frames and series, with each column in its own Arrow chunks, which polars never writes to.

Each column is exchanged through its own stream, which keeps its chunks and addresses. Whole
frames do not: ``DataFrame.__arrow_c_stream__`` and ``Series.to_arrow`` rechunk the source in
place, ``pl.DataFrame(table)`` rechunks its argument, and a frame read from one stream has
wrong decimals (all in polars 2.1.0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks._private import Private
from zerocopy._frameworks.polars.series import (
    OWN,
    ArrayExport,
    Stream,
    aliases_ndarrays,
    check_exports,
    column_of,
    columns_of,
    direct,
    frame_calls,
    ndarray_reasons,
    numbers_of,
    plain_frame,
    plain_series,
    series_of,
    times_of,
)
from zerocopy._frameworks.polars.types import (
    changes,
    check_dictionaries,
    check_range,
    is_adapted,
    is_cast,
    memory_reasons,
    partial_bytes,
    reasons_against,
)
from zerocopy._native import core
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.source import Array, Source
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import Column, Columns, Table
from zerocopy.tables.decode import as_one_tensor
from zerocopy.tables.hub import hub
from zerocopy.tables.labels import text_warnings


class Polars(Framework):
    """``polars.DataFrame`` for tables, ``polars.Series`` for one column.

    ``to="polars.DataFrame"`` and ``"polars.Series"`` name a form.
    """

    name = "polars"
    aliases = ("pl",)
    kind = "table"
    kinds: Mapping[str, Any] = {"Series": "column"}
    # Older versions fail the tests, and some give wrong values.
    min_version = "2.0"
    root_modules = ("polars",)
    distribution = "polars"
    mutable = False  # polars copies before it writes
    keeps_metadata = False
    forms = ("DataFrame", "Series")
    actions: Mapping[str, Fix] = {
        "column": Fix("{x}[{label}]"),
        "replace": Fix("{x}.with_columns({value}.alias({label}))"),
        "cast:float64": Fix("{x}.cast(polars.Float64)"),
        "cast:float32": Fix("{x}.cast(polars.Float32)"),
        "cast:int64": Fix("{x}.cast(polars.Int64)"),
        "cast:bool8": Fix("{x}.cast(polars.UInt8)"),
        "objects": Fix("{x}.to_list()"),
        "truncate:us": Fix("{x}.cast(polars.Duration('us'))"),
        "fill-nulls": Fix("{x}.fill_null({type})"),
        "drop-nulls": Fix("{x}.drop_nulls()"),
        "join-lists": Fix("{x}.explode()"),
        "combine-chunks": Fix("{x}.rechunk()"),
    }

    def owns(self, cls: type) -> bool:
        pl = self.module()
        return issubclass(cls, (pl.DataFrame, pl.Series, pl.LazyFrame))

    def is_native(self, obj: Any) -> bool:
        return not isinstance(obj, self.module().LazyFrame) and super().is_native(obj)

    # -- source ---------------------------------------------------------------

    def table(self, obj: Any, index: bool | None = None) -> Table:
        pl = self.module()
        if isinstance(obj, pl.LazyFrame):
            why = "a LazyFrame is a query that has not run"
            fixes = [Fix("{x}.collect()", "runs it")]
            raise UnsupportedConversionError("convert(polars.LazyFrame)", why, code="unread", fixes=fixes)
        if isinstance(obj, pl.Series):
            return Table("polars.Series", [obj.name], [column_of(obj)], len(obj), single=True, obj=obj)
        columns = Columns(columns_of(obj), column_of)
        return Table("polars.DataFrame", obj.columns, columns, obj.height, obj=obj)

    def source(self, obj: Any) -> Source:
        return as_one_tensor(self.table(obj))

    def fast_exporters(self, cls: type) -> dict[str, Callable[..., Any]]:
        pl = self.module()
        if cls is pl.DataFrame:
            forms: dict[str, Any] = {
                "columns": lambda frame, index: [(series.name, series) for series in columns_of(frame)],
                "hub": plain_frame(pl),
            }
            return forms | ({} if core is None else {"native_table": _frame_exporter()})
        if cls is not pl.Series:
            return {}

        numbers = numbers_of()

        def plain(series: Any) -> Array:
            array = numbers(series)
            if array is None:
                raise ValueError("not numbers in one chunk: use the slow path")
            return array

        forms = {"ndarray": plain, "hub": plain_series(pl)}
        if core is not None:
            forms["native"] = core.ArrayExporter(numbers)
            export = pl.DataFrame.__arrow_c_stream__
            exporter = core.TableExporter(lambda series: export(series.to_frame()), check=_check_chunk)
            forms["native_column"] = exporter
        return forms

    # -- target ---------------------------------------------------------------

    def column_reasons(self, column: Column) -> list[Reason]:
        pl = self.module()
        if isinstance(column, OWN):
            return []  # polars' own series
        check_range(column)
        if direct(column) is not None:
            return ndarray_reasons(pl, column)
        reasons = dict.fromkeys(column.arrow_reasons())
        if column.field is not None:
            reasons |= dict.fromkeys(reasons_against(pl, column.field, False, hasattr(column, "objects")))
        if isinstance(column, ArrowColumn):
            check_dictionaries(column)
        if not reasons and isinstance(column, ArrowColumn) and column.length:
            reasons |= dict.fromkeys(memory_reasons(column))
        return list(reasons)

    def partial_bytes(self, column: Column) -> tuple[int, int] | None:
        if not isinstance(column, ArrowColumn):
            return None
        if any(map(is_adapted, column.chunks)):
            return None if is_cast(self.module(), column.field) else (0, column.nbytes)
        known = [partial_bytes(self.module(), chunk) for chunk in column.chunks if chunk.length]
        aliased = sum(each[0] for each in known if each)
        if None in known and not aliased:
            return None
        return aliased, sum(each[1] for each in known if each)

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        """Return no reasons; refuse labels that a frame cannot have."""
        labels = [str(label) for label in table.labels]
        obstacles.check_unique(labels, "polars")
        obstacles.check_utf8(labels, "polars")
        if self.form == "Series" and len(labels) != 1:
            why = f"a table of {len(labels)} columns is not one polars.Series"
            fixes = [Fix(options={"columns": labels[:1]}, effect="picks one"), Fix(to="polars.DataFrame")]
            raise UnsupportedConversionError("", why, code="several-columns", fixes=fixes)
        return super().table_reasons(table)

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        pl = self.module()
        labels = [str(label) for label in table.labels]
        warnings = []
        if table.metadata:
            keys = ", ".join(repr(key.decode(errors="replace")) for key in table.metadata)
            warnings.append(f"the schema's metadata ({keys}) is lost: polars has no metadata")
        if table.index:
            warnings.append(
                f"the index becomes columns ({', '.join(labels[-table.index :])}): polars has none"
            )
        warnings += text_warnings("polars", table.labels)
        for label, column in zip(labels, table.columns, strict=True):
            if not isinstance(column, OWN) and column.field is not None:
                subject = "it: " if table.single else f"column {label!r}: "
                warnings += [subject + change for change in changes(pl, column.field)]
                if column.field.extension and (name := hub().unregistered_extension(column)):
                    warnings.append(f"{subject}its extension type {name} is lost: polars gets its storage")
        return tuple(warnings)

    def from_table(self, table: Table) -> Any:
        pl = self.module()
        self.table_reasons(table)  # the fast path has not called it
        labels = [str(label) for label in table.labels]
        series = {name: series_of(pl, name, c) for name, c in zip(labels, table.columns, strict=True)}
        if self.form == "Series":
            return series[labels[0]]
        # A dict, since polars renames a series without a name in a list.
        return pl.DataFrame(series) if series else pl.DataFrame(height=table.length)

    def from_column(self, table: Table) -> Any:
        name = str(table.labels[0])
        if self.form == "DataFrame":
            return self.from_table(replace(table, labels=[name or "column_0"]))
        return series_of(self.module(), name, table.columns[0])

    def labelled(self, result: Any, obj: Any) -> Any:
        series = self.module().Series
        if isinstance(obj, series) and isinstance(result, series) and result.shape == obj.shape:
            return result.alias(obj.name)
        return result

    def fast_importers(self) -> dict[str, Callable[..., Any]]:
        if self.form == "DataFrame" or not aliases_ndarrays():
            return {}
        pl = self.module()

        def flat(array: Any, name: str = "") -> Any:
            dtype = array.dtype
            # Some types of ml_dtypes, such as float8_e5m2, have NumPy's kind "f": polars would
            # make a Series of objects.
            if array.ndim != 1 or dtype.kind not in "iuf" or dtype.isbuiltin != 1 or not dtype.isnative:
                raise ValueError("not plain numbers: use the slow path")
            if array.itemsize > 8 or not (array.flags.c_contiguous and array.flags.aligned):
                raise ValueError("needs a copy: use the slow path")
            return pl.Series(name, array)

        def of_nonnumeric(array: Array) -> Any:
            if array.ndim != 1 or not (array.size and array.flags.c_contiguous):
                return None
            if array.dtype != "M8[D]":
                return times_of(pl, array)
            days = array.view("i8")
            # NaT does not fit; polars would replace other dates outside 32 bits by nulls.
            fits = days.max() < 2**31 and days.min() >= -(2**31)
            return pl.Series(array) if fits else None

        if self.form == "Series":  # a whole table is not one series
            return {"ndarray": flat, "nonnumeric": of_nonnumeric}

        def of_hub(named: tuple[str | None, Any, Any]) -> Any:
            name, arrow, _ = named
            if type(arrow).__module__ == "pyarrow.lib":
                if hasattr(arrow, "to_batches") and len(batches := arrow.to_batches()) == 1:
                    arrow = batches[0]
                arrow = ArrayExport(arrow) if hasattr(arrow, "__arrow_c_array__") else Stream(arrow)
            if name is None:
                return pl.DataFrame(arrow)
            series = pl.Series(arrow)  # loses its argument name=
            return series.alias(name) if name else series

        def of_columns(pairs: list[tuple[str, Array]]) -> Any:
            return pl.DataFrame([flat(array, name) for name, array in pairs])

        return {"ndarray": flat, "hub": of_hub, "columns": of_columns, "nonnumeric": of_nonnumeric}


@cache
def _frame_exporter() -> Any:
    """Return the compiled exporter of frames; None without the compiled core."""
    import polars as pl

    if core is None:
        return None
    return core.TableExporter(
        pl.DataFrame.__arrow_c_stream__,
        check=_check_frame,
        matrix=_small_matrix(pl),
        extent=lambda frame: None,  # unknown, so the core copies, as the plan says
    )


#: Larger frames are exported: from 4 MiB on, the slow path fills the matrix in several threads.
_MOST_VALUES = 1 << 19
#: In version 2.0, the view of a column that does not hold numbers panics.
_VIEWS = Private("polars", "2.1 to 2", "DataFrame._df", "300 columns of 100 rows: 118 / 384 us")


def _small_matrix(pl: Any) -> Callable[[Any], Any] | None:
    """Return a function that copies a frame of numbers to a row-major array; None for other versions."""

    # to_numpy makes NaN of nulls; its order="fortran" waits for polars' threads, which a forked child lacks.
    def matrix(frame: Any) -> Any:
        width = frame.width
        if width < 2 or not 0 < frame.height * width <= _MOST_VALUES:
            return None
        columns = frame._df.get_columns()
        kind = type(columns[0])
        if any(map(kind.has_nulls, columns)):  # the view has undefined values in their places
            return None
        # `stack` refuses None (the view of text, or of several chunks), and arrays of several types.
        return core.stack(map(kind.to_numpy_view, columns))

    def agrees(matrix: Callable[[Any], Any] | None) -> bool:
        sample = matrix(pl.DataFrame({"a": [1.5, 2.5], "b": [3.5, 4.5]}))  # type: ignore[misc]
        return bool(sample.tolist() == [[1.5, 3.5], [2.5, 4.5]])

    return _VIEWS.choose(lambda: matrix, agrees, None)


def _check_chunk(series: Any) -> None:
    if series.n_chunks() != 1:
        raise ValueError("several chunks: the slow path decides")
    check_exports([series.name], [series.dtype], lambda place: series)


def _check_frame(frame: Any) -> None:
    """Raise for a frame that the export of a stream would change."""
    if frame_calls()[0](frame):
        raise ValueError("the export of a stream would join the chunks, also those of the frame")
    check_exports(frame.columns, frame.dtypes, frame.to_series)


FRAMEWORK = Polars()
