"""polars: frames and series, each column in Arrow chunks of its own, which polars never writes to.

A column goes out and comes in alone, by its own stream: that keeps its chunks and its
addresses. Whole frames do neither. ``DataFrame.__arrow_c_stream__`` and
``Series.to_arrow`` rechunk the source in place, ``pl.DataFrame(table)`` rechunks what it
takes, and a frame read from one stream has wrong decimals (all seen in polars 2.1.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from zerocopy import registry
from zerocopy._frameworks.polars.types import (
    BITS,
    CAST,
    UNALIGNED,
    adapted,
    changes,
    hollow,
    is_enum,
    places,
    reasons_against,
    walk,
)
from zerocopy.errors import Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Array, Framework, Source
from zerocopy.protocols import arrow_c
from zerocopy.protocols.array_interface import address, aligned_copy
from zerocopy.protocols.arrow_schema import NUMBERS, Field
from zerocopy.tables.arrow_column import ArrowColumn, Typed
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import Decoder, Leaf
from zerocopy.tables.nulls import Nulls

#: Types without parameters as polars exports them, by the lower-case name of the dtype. The
#: others are asked of the stream, which takes longer. Of those that name themselves Arrow has none.
_FORMATS = {name: code for code, name in NUMBERS.items()}
_FORMATS |= {"null": "n", "boolean": "b", "string": "vu", "binary": "vz", "date": "tdD", "time": "ttn"}
_FORMATS |= {"int128": "Int128", "uint128": "UInt128"}
_NUMBERS = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "bool"),
)
_FIXED = ("number", "bool", "date", "time", "timestamp", "duration", "decimal", "dictionary")
_CODES = Reason(
    "polars makes the codes of a Categorical anew for each export", "cast it: x.cast(pl.Enum([...]))"
)
_HELD = "make numbers or text of the objects first, or leave it out with columns=[...]"


class Polars(Framework):
    """``polars.DataFrame`` for tables, ``polars.Series`` for one column.

    ``to="polars.DataFrame"`` and ``"polars.Series"`` name a form.
    """

    name = "polars"
    kind = "table"
    roots = ("polars",)
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
            return Table("polars.Series", [obj.name], [_column(obj)], len(obj), single=True, obj=obj)
        columns = [_column(series) for series in obj.get_columns()]
        return Table("polars.DataFrame", obj.columns, columns, obj.height, obj=obj)

    def source(self, obj: Any) -> Source:
        table = self.table(obj)
        asked = f"convert({table.name})"
        if not table.single:
            raise UnsupportedConversionError(
                asked, "a frame is not one array", "pick a column, or convert it to a dict of them"
            )
        try:
            tree = Decoder(Nulls()).decode(table.columns[0])
        except ZeroCopyError as error:
            error.asked, error.why = asked, f"it {error.why}"
            raise
        assert isinstance(tree, Leaf)
        return replace(tree.source, framework=self, obj=obj)

    def exports(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        pl = self.module()
        if cls is pl.DataFrame:
            return {"columns": lambda frame: [(series.name, series) for series in frame.get_columns()]}
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
        if isinstance(column, _SeriesColumn | _Objects):
            return []  # a series is taken as it is
        if _direct(column) is not None:
            return _ndarray_reasons(pl, column)
        reasons = dict.fromkeys(column.arrow_reasons())
        if column.field is not None:
            reasons |= dict.fromkeys(reasons_against(pl, column.field))
        elif column.source.view.dtype.name == "bool":  # type: ignore[attr-defined]
            reasons[BITS] = None
        if not reasons and isinstance(column, ArrowColumn):
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

    def alias_warnings(self, table: Table) -> tuple[str, ...]:
        pl = self.module()
        for column in table.columns:
            source = _direct(column)
            if source is not None and not source.view.readonly and not _ndarray_reasons(pl, column):
                return (
                    "polars takes its memory never to change: writing to the source would change "
                    "the result (copy=True takes a snapshot)",
                )
        return ()

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
            if not isinstance(column, _SeriesColumn | _Objects):
                whose = "it: " if table.single else f"column {label!r}: "
                said += [whose + change for change in _changes(pl, column)]
        return tuple(said)

    def from_table(self, table: Table) -> Any:
        pl = self.module()
        self.table_reasons(table)  # on the fast way nobody has asked yet
        labels = [str(label) for label in table.labels]
        found = [_series(pl, n, c) for n, c in zip(labels, table.columns, strict=True)]
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
        return _series(self.module(), name, table.columns[0])

    def imports(self) -> dict[str, Callable[[Any], Any]]:
        if self.form == "DataFrame" or not _aliases_ndarrays():
            return {}
        series = self.module().Series

        def flat(array: Any) -> Any:
            if array.ndim != 1 or array.dtype.kind not in "iuf" or not array.dtype.isnative:
                raise ValueError("for the careful way")
            if array.itemsize > 8 or not (array.flags.c_contiguous and array.flags.aligned):
                raise ValueError("for the careful way")
            return series(array)

        return {"ndarray": flat}


# -- series as columns ----------------------------------------------------------


class _SeriesColumn(ArrowColumn):
    """A series: polars takes it as it is, others by its stream, chunk by chunk."""

    def __init__(self, series: Any, field: Field) -> None:
        self.series = series
        codes = any(f.dictionary and not any(map(is_enum, f.metadata)) for f in walk(field))
        super().__init__(
            "polars.Series",
            field,
            lambda: list(arrow_c.read_stream(series)[1]),
            len(series),
            # Series.to_arrow would rechunk it in place.
            lambda: registry.by_name("pyarrow").module().chunked_array(series),
            [_CODES] if codes else [],
            series.estimated_size if field.kind in _FIXED else None,
        )

    def arrow_reasons(self) -> list[Reason]:
        if any(f.kind == "unknown" for f in walk(self.field)):
            raise UnsupportedConversionError("", f"is {self.series.dtype}, which Arrow has not", CAST)
        return list(self.reasons)

    def arrow(self) -> Any:
        self.arrow_reasons()
        return super().arrow()

    def _in_chunks(self) -> Reason:
        return Reason(f"it lies in {len(self.chunks)} chunks", "join them once, in polars: x.rechunk()")


class _Objects(Typed):
    """A series of Python objects: nobody else may have it, since what polars exports are pointers."""

    def __init__(self, series: Any) -> None:
        super().__init__("polars.Series", Field("Object"))
        self.length, self.series = len(series), series

    null_count = nbytes = 0  # type: ignore[assignment]

    def arrow_reasons(self) -> list[Reason]:
        raise UnsupportedConversionError("", f"is {self.series.dtype}, whose values are Python's", _HELD)


def _column(series: Any) -> Column:
    dtype = series.dtype
    if _has_objects(dtype):
        return _Objects(series)
    code = _FORMATS.get(type(dtype).__name__.lower())
    return _SeriesColumn(series, Field(code, series.name) if code else arrow_c.read_stream(series)[0])


def _has_objects(dtype: Any) -> bool:
    inner = [getattr(dtype, "inner", None), *(f.dtype for f in getattr(dtype, "fields", ()))]
    return type(dtype).__name__ == "Object" or any(_has_objects(d) for d in inner if d is not None)


# -- ndarrays as series ---------------------------------------------------------


@cache
def _aliases_ndarrays() -> bool:
    """Whether ``pl.Series(ndarray)`` aliases, as 2.1 does: documented nowhere, so it is tried."""
    import numpy as np
    import polars as pl

    given = np.arange(4)
    return address(pl.Series(given).to_numpy()) == address(given)


def _direct(column: Column) -> Any:
    """Return the source of a column that needs no pyarrow to become a series, or None."""
    source, field = getattr(column, "source", None), column.field
    if source is None or not _aliases_ndarrays() or column.null_count:
        return None
    if field is not None and (field.extension or _stands_for(field) is None):
        return None
    return source


def _stands_for(field: Field) -> Any:
    """Return the dtype that 64-bit or 32-bit integers are cast to, in place; None if it takes more."""
    import polars as pl

    if field.kind == "timestamp" and field.unit != "s":
        return pl.Datetime(field.unit, field.timezone or None)  # type: ignore[arg-type]
    if field.kind == "duration" and field.unit != "s":
        return pl.Duration(field.unit)  # type: ignore[arg-type]
    return pl.Date if field.format == "tdD" else pl.Time if field.format == "ttn" else None


def _ndarray_reasons(pl: Any, column: Any) -> list[Reason]:
    source, view = column.source, column.source.view
    if source.refusal is not None:
        raise UnsupportedConversionError("", source.refusal.why, source.refusal.remedy)
    if view.dtype.name not in _NUMBERS:
        raise UnsupportedConversionError(
            "", f"is {view.dtype.name}, which polars lacks", "cast it to a type that both have"
        )
    reasons = [*column.reasons, *source.reasons, *(reasons_against(pl, column.field) if column.field else ())]
    if not view.device.is_host:
        reasons.append(Reason(f"it is on {view.device} and polars' memory is the host's", ""))
    if view.dtype.name == "bool":
        reasons.append(BITS)
    elif not view.c_contiguous:
        # Two dimensions of one name are an Array column: pl.DataFrame of a C-ordered matrix copies.
        reasons.append(Reason("polars takes memory without gaps only", "make it contiguous at its source"))
    elif not view.is_aligned(view.dtype.itemsize):
        reasons.append(UNALIGNED)
    return reasons


def _from_ndarray(pl: Any, name: str, source: Source, field: Field | None) -> Any:
    on_host = source.view.device.is_host
    array = source.host() if on_host or source.to_host is None else source.to_host(None)
    if not array.flags.c_contiguous or not array.flags.aligned:
        array = aligned_copy(array)
    series = pl.Series(name, array)
    # pl.Series(datetimes) copies; integers that are cast stay where they are.
    return series if field is None else series.cast(_stands_for(field))


# -- Arrow arrays as series -----------------------------------------------------


class _Stream:
    """Nothing but a stream: of objects that it knows better polars takes other ways."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._array.__arrow_c_stream__(requested_schema)


def _series(pl: Any, name: str, column: Column) -> Any:
    if isinstance(column, _SeriesColumn | _Objects):
        return column.series.alias(name)
    source = _direct(column)
    if source is not None:
        return _from_ndarray(pl, name, source, column.field)
    hub: Any = registry.by_name("pyarrow")
    pa = hub.module()
    array, field = column.arrow(), column.field
    array = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
    if field is None or field.children or any(True for _ in reasons_against(pl, field)):
        array = adapted(hub, pa, name, array)
    own = {k: v for k, v in (field.metadata if field else {}).items() if k.startswith(b"_PL_")}
    nested = bool(field and field.children and any(f.dictionary for f in walk(field)))
    # Inside other types, and a table's columns are inside one, polars loses the rows after an
    # empty chunk of dictionaries, and panics on a dictionary without values.
    rows = pa.chunked_array([c for c in array.chunks if len(c)], array.type) if own or nested else array
    empty = (own or nested) and any(hollow(arrow_c.read_array(chunk)) for chunk in rows.chunks)
    if nested and empty:
        raise UnsupportedConversionError(
            "",
            f"column {name!r} has a dictionary without values inside another type",
            "decode it, or put its chunks together: x.combine_chunks()",
        )
    try:
        if not own:
            return pl.Series(_Stream(rows)).alias(name)
        # A field's metadata, which make an Enum, travel in a table alone.
        schema = pa.schema([pa.field(name, array.type, metadata=own)])
        held = pa.Table.from_arrays([pa.chunked_array([], array.type) if empty else rows], schema=schema)
        made = pl.DataFrame(_Stream(held)).to_series(0)
        return pl.Series(_Stream(rows)).alias(name).cast(made.dtype) if empty else made
    except pl.exceptions.PanicException as error:  # no Exception: it would pass by everybody
        raise UnsupportedConversionError("", f"polars panicked: {error}", "please report it") from error


def _changes(pl: Any, column: Column) -> Iterator[str]:
    """Yield what of a column polars does not keep."""
    if column.field is not None:
        yield from changes(pl, column.field)


FRAMEWORK = Polars()
