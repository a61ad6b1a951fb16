"""polars: frames and series, each column in Arrow chunks of its own, which polars never writes to.

A column goes out and comes in alone, by its own stream: that keeps its chunks and its
addresses. Whole frames do neither. ``DataFrame.__arrow_c_stream__`` and
``Series.to_arrow`` rechunk the source in place, ``pl.DataFrame(table)`` rechunks what it
takes, and a frame read from one stream has wrong decimals (all seen in polars 2.1.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from zerocopy._frameworks.polars.series import (
    OWN,
    aliases_ndarrays,
    column_of,
    direct,
    ndarray_reasons,
    plain_table,
    series_of,
)
from zerocopy._frameworks.polars.types import BITS, changes, places, reasons_against
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.framework import Array, Framework, Source
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import as_tensor


class Polars(Framework):
    """``polars.DataFrame`` for tables, ``polars.Series`` for one column.

    ``to="polars.DataFrame"`` and ``"polars.Series"`` name a form.
    """

    name = "polars"
    kind = "table"
    # Older ones were tried: they fail, and some give wrong values.
    min_version = "2.0"
    root_modules = ("polars",)
    distribution = "polars"
    mutable = False  # it copies before it writes, whoever owns the memory

    def __init__(self, form: str | None = None) -> None:
        self.form = form

    def variant(self, form: str) -> Framework | None:
        return Polars(form) if form in ("DataFrame", "Series") else None

    def owns(self, cls: type) -> bool:
        pl = self.module()
        return issubclass(cls, (pl.DataFrame, pl.Series, pl.LazyFrame))

    def is_native(self, obj: Any) -> bool:
        pl = self.module()
        forms = (pl.DataFrame, pl.Series) if self.form is None else (getattr(pl, self.form),)
        return isinstance(obj, forms)

    # -- source ---------------------------------------------------------------

    def table(self, obj: Any, index: bool | None = None) -> Table:
        pl = self.module()
        if isinstance(obj, pl.LazyFrame):
            raise UnsupportedConversionError(
                "convert(polars.LazyFrame)",
                "a LazyFrame is a query that has not run",
                "run it first: x.collect()",
            )
        if isinstance(obj, pl.Series):
            return Table("polars.Series", [obj.name], [column_of(obj)], len(obj), single=True, obj=obj)
        columns = [column_of(series) for series in obj.get_columns()]
        return Table("polars.DataFrame", obj.columns, columns, obj.height, obj=obj)

    def source(self, obj: Any) -> Source:
        table = self.table(obj)
        asked = f"convert({table.name})"
        if not table.single:
            raise UnsupportedConversionError(
                asked, "a frame is not one array", "pick a column, or convert it to a dict of them"
            )
        return as_tensor(table.columns[0])

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        pl = self.module()
        if cls is pl.DataFrame:
            return {
                "columns": lambda frame: [(series.name, series) for series in frame.get_columns()],
                "arrow": plain_table(pl),
            }
        if cls is not pl.Series:
            return {}

        def plain(series: Any) -> Array:
            array: Array = series.to_numpy(allow_copy=False)
            # Dates lose their time zone on this way, and arrays without rows are writable.
            if array.dtype.kind not in "iuf" or array.flags.writeable:
                raise ValueError("for the careful way")
            return array

        def versioned(series: Any) -> Any:
            return plain(series).__dlpack__(max_version=(1, 0))  # NumPy's, which says that it is read-only

        return {"versioned": versioned, "readonly": plain, "ndarray": plain}

    # -- target ---------------------------------------------------------------

    def column_reasons(self, column: Column) -> list[Reason]:
        pl = self.module()
        if isinstance(column, OWN):
            return []  # a series is taken as it is
        if direct(column) is not None:
            return ndarray_reasons(pl, column)
        reasons = dict.fromkeys(column.arrow_reasons())
        if column.field is not None:
            reasons |= dict.fromkeys(reasons_against(pl, column.field))
        elif column.source.view.dtype.name == "bool":  # type: ignore[attr-defined]
            reasons[BITS] = None
        if not reasons and isinstance(column, ArrowColumn) and column.length:
            reasons |= dict.fromkeys(places(column))
        return list(reasons)

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        """Return no reasons; refuse a table that no frame can be."""
        labels = [str(label) for label in table.labels]
        if len(set(labels)) != len(labels):
            twice = [label for label in dict.fromkeys(labels) if labels.count(label) > 1]
            raise UnsupportedConversionError(
                "",
                f"several columns are called {', '.join(map(repr, twice))}, and polars takes each name once",
                "rename them in the source",
            )
        if self.form == "Series" and len(labels) != 1:
            raise UnsupportedConversionError(
                "",
                f"a table of {len(labels)} columns is not one polars.Series",
                "pick one, columns=['x'], or ask for \"polars.DataFrame\"",
            )
        return super().table_reasons(table)

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        pl = self.module()
        labels = [str(label) for label in table.labels]
        said = []
        if table.metadata:
            keys = ", ".join(repr(key.decode(errors="replace")) for key in table.metadata)
            said.append(f"the schema's metadata ({keys}) does not survive: polars has no place for it")
        if table.index:
            said.append(f"the index becomes columns ({', '.join(labels[-table.index :])}): polars has none")
        if any(not isinstance(label, str) for label in table.labels):
            said.append("labels that are no strings become strings: polars has no others")
        for label, column in zip(labels, table.columns, strict=True):
            if not isinstance(column, OWN):
                whose = "it: " if table.single else f"column {label!r}: "
                said += [whose + change for change in _changes(pl, column)]
        return tuple(said)

    def from_table(self, table: Table) -> Any:
        pl = self.module()
        self.table_reasons(table)  # on the fast way nobody has asked yet
        labels = [str(label) for label in table.labels]
        found = [series_of(pl, n, c) for n, c in zip(labels, table.columns, strict=True)]
        if self.form == "Series":
            return found[0]
        # A dict: of a list, polars gives a series without a name one of its own.
        return (
            pl.DataFrame(dict(zip(labels, found, strict=True)))
            if found
            else pl.DataFrame(height=table.length)
        )

    def from_column(self, table: Table) -> Any:
        name = str(table.labels[0])
        if self.form == "DataFrame":
            return self.from_table(replace(table, labels=[name or "column_0"]))
        return series_of(self.module(), name, table.columns[0])

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        if self.form == "DataFrame" or not aliases_ndarrays():
            return {}
        series = self.module().Series

        def flat(array: Any) -> Any:
            if array.ndim != 1 or array.dtype.kind not in "iuf" or not array.dtype.isnative:
                raise ValueError("for the careful way")
            # ml_dtypes gives some of its types, such as float8_e5m2, NumPy's kind "f": of
            # those polars would make a Series of objects.
            if array.dtype.isbuiltin != 1:
                raise ValueError("for the careful way")
            if array.itemsize > 8 or not (array.flags.c_contiguous and array.flags.aligned):
                raise ValueError("for the careful way")
            return series(array)

        # One call instead of one a column, which is 50 us a table of ten. It would put
        # columns in different chunks together: of this form each has one alone.
        return {"ndarray": flat, "arrow": self.module().from_arrow}


def _changes(pl: Any, column: Column) -> Iterator[str]:
    """Yield what of a column polars does not keep."""
    if column.field is not None:
        yield from changes(pl, column.field)


FRAMEWORK = Polars()
