"""Series as columns, and columns as series: where they alias, and what each way guards against."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from zerocopy import registry
from zerocopy._frameworks.polars.types import (
    BITS,
    CAST,
    UNALIGNED,
    adapted,
    hollow,
    is_enum,
    reasons_against,
    walk,
)
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.protocols import arrow_c
from zerocopy.protocols.array_interface import address, aligned_copy
from zerocopy.protocols.arrow_schema import NUMBERS, Field
from zerocopy.source import Source
from zerocopy.tables.arrow_column import ArrowColumn, Typed
from zerocopy.tables.column import Column
from zerocopy.tables.object_column import RefusedColumn

#: Types without parameters as polars exports them, by the lower-case name of the dtype. The
#: others are asked of the stream, which takes longer. Of those that name themselves Arrow has none.
_FORMATS = {name: code for code, name in NUMBERS.items()}
_FORMATS |= {"null": "n", "boolean": "b", "string": "vu", "binary": "vz", "date": "tdD", "time": "ttn"}
_FORMATS |= {"int128": "Int128", "uint128": "UInt128"}
_NAMES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "bool"),
)
_FIXED = ("number", "bool", "date", "time", "timestamp", "duration", "decimal", "dictionary")
_CODES = Reason(
    "polars makes the codes of a Categorical anew for each export", "cast it: x.cast(pl.Enum([...]))"
)
_HELD = "make numbers or text of the objects first, or leave it out with columns=[...]"


# -- series as columns ----------------------------------------------------------


class SeriesColumn(ArrowColumn):
    """A series: polars takes it as it is, others by its stream, chunk by chunk."""

    def __init__(self, series: Any, field: Field) -> None:
        self.series = series
        codes = any(f.dictionary and not any(map(is_enum, f.metadata)) for f in walk(field))
        # Codes are made anew for each chunk, and each has categories of its own: in one
        # chunk, of a series that is not the caller's, they have the same.
        whole = series.rechunk(in_place=False) if codes and series.n_chunks() > 1 else series
        super().__init__(
            "polars.Series",
            field,
            lambda: list(arrow_c.read_stream(whole)[1]),
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


class Objects(Typed):
    """A series of Python objects: nobody else may have it, since what polars exports are pointers."""

    def __init__(self, series: Any) -> None:
        super().__init__("polars.Series", Field("Object"))
        self.length, self.series = len(series), series

    null_count = nbytes = 0  # type: ignore[assignment]

    def arrow_reasons(self) -> list[Reason]:
        raise UnsupportedConversionError("", f"is {self.series.dtype}, whose values are Python's", _HELD)


def column_of(series: Any) -> Column:
    dtype = series.dtype
    if _has_objects(dtype):
        return Objects(series)
    # C has no names with a NUL: polars 2.1 ends the process over them.
    if _has_nul(dtype):
        error = UnsupportedConversionError("", f"is {dtype!r}, with a NUL in a name", "rename its fields")
        return RefusedColumn("polars.Series", len(series), error)
    if "\0" in series.name:
        series = series.alias("")
    code = _FORMATS.get(type(dtype).__name__.lower())
    return SeriesColumn(series, Field(code, series.name) if code else arrow_c.read_stream(series)[0])


def _has_nul(dtype: Any) -> bool:
    inner = [getattr(dtype, "inner", None), *(f.dtype for f in getattr(dtype, "fields", ()))]
    names = [f.name for f in getattr(dtype, "fields", ())]
    return any("\0" in name for name in names) or any(_has_nul(d) for d in inner if d is not None)


def _has_objects(dtype: Any) -> bool:
    inner = [getattr(dtype, "inner", None), *(f.dtype for f in getattr(dtype, "fields", ()))]
    return type(dtype).__name__ == "Object" or any(_has_objects(d) for d in inner if d is not None)


# -- ndarrays as series ---------------------------------------------------------


@cache
def aliases_ndarrays() -> bool:
    """Whether ``pl.Series(ndarray)`` aliases, as 2.1 does: documented nowhere, so it is tried."""
    import numpy as np
    import polars as pl

    given = np.arange(4)
    return address(pl.Series(given).to_numpy()) == address(given)


def direct(column: Column) -> Any:
    """Return the source of a column that needs no pyarrow to become a series, or None."""
    source, field = getattr(column, "source", None), column.field
    if source is None or not aliases_ndarrays() or column.null_count:
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


def ndarray_reasons(pl: Any, column: Any) -> list[Reason]:
    source, view = column.source, column.source.view
    if source.refusal is not None:
        raise UnsupportedConversionError("", source.refusal.why, source.refusal.remedy)
    if view.dtype.name not in _NAMES:
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


OWN = (SeriesColumn, Objects)


def plain_table(pl: Any) -> Callable[[Any], Any]:
    """Return what makes a ``pyarrow.Table`` of a frame of plain numbers, and raises for any other."""
    kinds = frozenset(getattr(pl, f"{sign}Int{n}") for sign in ("", "U") for n in (8, 16, 32, 64))
    kinds |= {pl.Float32, pl.Float64}

    def table(frame: Any) -> Any:
        columns = frame.get_columns()
        names = [series.name for series in columns]
        if not names or "" in names or any("\0" in name for name in names):
            raise ValueError("names to look at")
        if any(type(series.dtype) not in kinds or series.n_chunks() != 1 for series in columns):
            raise ValueError("chunks, or no plain numbers")
        pa = registry.by_name("pyarrow").module()
        return pa.table([pa.chunked_array(series) for series in columns], names=names)

    return table


class _Stream:
    """Nothing but a stream: of objects that it knows better polars takes other ways."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._array.__arrow_c_stream__(requested_schema)


def series_of(pl: Any, name: str, column: Column) -> Any:
    if isinstance(column, OWN):
        return column.series.alias(name)
    source = direct(column)
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
