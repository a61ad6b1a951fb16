"""Series as columns, and columns as series, with a guard for each known bug of polars' importers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks._private import Private
from zerocopy._frameworks.polars.types import (
    BITS,
    CAST,
    CASTS,
    SHIFTED,
    UNALIGNED,
    adapted,
    bitmaps,
    codes_of,
    hollow,
    hollow_error,
    is_enum,
    is_shifted,
    reasons_against,
)
from zerocopy.dtype import REAL_NAMES
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.framework import refuse_ndim
from zerocopy.protocols import arrow_c
from zerocopy.protocols.array_interface import address, aligned_copy
from zerocopy.protocols.arrow_schema import NUMBERS, Field
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Array, Source
from zerocopy.strided_view import MAX_NDIM
from zerocopy.tables import placement
from zerocopy.tables.arrow_column import FLAT, ArrowColumn, UnreadColumn
from zerocopy.tables.column import Column, RefusedColumn
from zerocopy.tables.decode import refused_by
from zerocopy.tables.hub import hub

#: The Arrow formats of polars' types without parameters, by lower-case name; other types are read
#: from the stream, which takes longer. Arrow lacks the types whose format is their name.
_FORMATS = {name: code for code, name in NUMBERS.items()}
_FORMATS |= {"null": "n", "boolean": "b", "string": "vu", "binary": "vz", "date": "tdD", "time": "ttn"}
_FORMATS |= {"int128": "Int128", "uint128": "UInt128"}
_FIXED = (*FLAT, "dictionary")
_CODES = Reason(
    "polars computes the codes of a Categorical for each export",
    "cast it: x.cast(pl.Enum([...]))",
    code="dictionary-codes",
)
_COLUMNS = Private("polars", "2", "DataFrame._df, Series._s", "the chunks of 300 columns: 36 / 200 us")
_OBJECTS = "convert the objects to numbers or text first, or leave it out with columns=[...]"


# -- series as columns ----------------------------------------------------------


def columns_of(frame: Any) -> list[Any]:
    """Return the series of a frame, whose memory the frame keeps."""
    # get_columns() writes a column of one repeated value (pl.lit) again in each call; to_series()
    # writes it once, into the frame (docs/hazards/polars.md, "Scalar columns").
    return [frame.to_series(position) for position in range(frame.width)]


class SeriesColumn(ArrowColumn):
    """A series: polars returns it unchanged, other targets read its stream, chunk by chunk."""

    def __init__(self, series: Any, field: Field) -> None:
        self.series = series
        codes = any(f.dictionary and not any(map(is_enum, f.metadata)) for f in field.walk())
        # polars exports each chunk with its own codes and categories, so export a copy with one chunk.
        whole = series.rechunk(in_place=False) if codes and series.n_chunks() > 1 else series
        super().__init__(
            "polars.Series",
            field,
            lambda: _memory(whole, field),
            len(series),
            # Not Series.to_arrow, which rechunks the series in place.
            lambda: hub().module().chunked_array(series),
            [_CODES] if codes else [SHIFTED] if is_shifted(series, field) else [],
            series.estimated_size if field.kind in _FIXED else None,
        )
        if field.kind in FLAT and len([*filter(None, series.chunk_lengths())]) > 1:
            self.is_joined, self.chunk_count, self._null_count = True, series.n_chunks(), series.null_count()

    def arrow_reasons(self) -> list[Reason]:
        if any(f.kind == "unknown" for f in self.field.walk()):
            why = f"it is {self.series.dtype}, which Arrow lacks"
            raise UnsupportedConversionError("", why, CAST, code="missing-dtype", fixes=CASTS)
        return list(self.reasons)

    def arrow(self) -> Any:
        self.arrow_reasons()
        return super().arrow()

    def extents(self) -> Iterator[tuple[int, int]]:
        if any(part.dictionary for part in self.field.walk()):
            # The codes, without the categories, which belong to the type.
            return column_of(self.series.to_physical()).extents()
        return super().extents()

    def own_extents(self) -> Iterator[tuple[int, int]]:
        if SHIFTED in self.reasons:
            return bitmaps(self.series)
        chunks = arrow_c.read_stream(self.series.to_physical())[1]
        return (extent for chunk in chunks for extent in codes_of(self.field, chunk))


def _memory(series: Any, field: Field) -> list[arrow_c.Memory]:
    """Return the memory of a series, chunk by chunk; that of plain numbers without its stream (2 / 25 us)."""
    array = numbers_of()(series) if field.kind == "number" and len(series) else None
    if array is None:
        return list(arrow_c.read_stream(series)[1])
    return [arrow_c.Memory(field, len(array), 0, 0, (0, address(array)), (), None, array)]


class Objects(UnreadColumn):
    """A series of Python objects, which polars exports as pointers, so other targets refuse it."""

    def __init__(self, series: Any) -> None:
        super().__init__("polars.Series", Field("Object"))
        self.length, self.series = len(series), series

    null_count = nbytes = 0  # type: ignore[assignment]

    def arrow_reasons(self) -> list[Reason]:
        why = f"it is {self.series.dtype}, whose values are Python objects"
        raise UnsupportedConversionError("", why, _OBJECTS, code="python-objects")


def column_of(series: Any) -> Column:
    dtype = series.dtype
    code = _FORMATS.get(type(dtype).__name__.lower())
    if code is None:
        if _has_objects(dtype):
            return Objects(series)
        if (error := unexportable(series)) is not None:
            return RefusedColumn("polars.Series", len(series), error)
    if "\0" in series.name:
        series = series.alias("")
    return SeriesColumn(series, arrow_c.read_stream(series)[0] if code is None else Field(code, series.name))


def has_nul(dtype: Any) -> bool:
    """Whether a name within a type has a NUL, at which C ends it: polars 2.1 aborts when it exports one."""
    names = [f.name for f in getattr(dtype, "fields", ())]
    return any("\0" in name for name in names) or any(map(has_nul, _inner(dtype)))


def unexportable(series: Any) -> UnsupportedConversionError | None:
    """Return the error for a series whose export aborts the process; None for others."""
    dtype = series.dtype
    if has_nul(dtype):
        why = f"it is {dtype!r}, with a NUL in a name"
        return UnsupportedConversionError("", why, "rename its fields", code="nul-in-name")
    if type(dtype) not in _nested_kinds() or not _has_decimals(dtype):
        return None
    # Small decimals that polars read as wide ones (docs/hazards/polars.md): to_arrow panics, a stream aborts.
    try:
        for chunk in series.get_chunks():
            chunk.slice(0, 0).to_arrow()
    except BaseException as error:
        if not is_error(error):
            raise
        why = f"it is {dtype!r}, with small decimals that polars read as 128 bits: its values are wrong"
        remedy = "import the Arrow data with zerocopy.convert(x, to='polars'), which casts the decimals"
        return UnsupportedConversionError("", why, remedy, code="framework-error")
    return None


def check_exports(names: list[str], dtypes: list[Any], column: Callable[[int], Any]) -> None:
    """Raise if the export of a column aborts the process (see `unexportable`); `column` takes a position."""
    nested = _nested_kinds()
    if "\0" in "".join(names) or any(
        unexportable(column(place)) for place, dtype in enumerate(dtypes) if type(dtype) in nested
    ):
        raise ValueError("polars aborts the process when it exports it: the slow path refuses it")


def _inner(dtype: Any) -> list[Any]:
    inner = getattr(dtype, "inner", None)
    return [*([] if inner is None else [inner]), *(f.dtype for f in getattr(dtype, "fields", ()))]


def _has_decimals(dtype: Any) -> bool:
    return type(dtype).__name__ == "Decimal" or any(map(_has_decimals, _inner(dtype)))


@cache
def _nested_kinds() -> frozenset[Any]:
    import polars as pl

    return frozenset((pl.List, pl.Array, pl.Struct))


def _has_objects(dtype: Any) -> bool:
    return type(dtype).__name__ == "Object" or any(map(_has_objects, _inner(dtype)))


# -- ndarrays as series ---------------------------------------------------------


@cache
def aliases_ndarrays() -> bool:
    """Whether ``pl.Series(ndarray)`` aliases, as in polars 2.1; it is not documented, so test it."""
    import numpy as np
    import polars as pl

    array = np.arange(4)
    return address(pl.Series(array).to_numpy()) == address(array)


def direct(column: Column) -> Any:
    """Return the source of a column that becomes a series without pyarrow, or None."""
    source, field = column.source, column.field
    if source is None or not aliases_ndarrays() or column.null_count:
        return None
    if field is not None and (field.extension or _dtype_for(field) is None):
        return None
    return source


def _dtype_for(field: Field) -> Any:
    """Return the dtype to which polars casts integers without a copy; None if the cast copies."""
    import polars as pl

    if field.kind == "timestamp" and field.unit != "s":
        return pl.Datetime(field.unit, field.timezone or None)  # type: ignore[arg-type]
    if field.kind == "duration" and field.unit != "s":
        return pl.Duration(field.unit)  # type: ignore[arg-type]
    return pl.Date if field.format == "tdD" else pl.Time if field.format == "ttn" else None


def ndarray_reasons(pl: Any, column: Any) -> list[Reason]:
    """Return why polars copies a tensor; refuse a type that it lacks."""
    source, view = column.source, column.source.view
    if source.refusal is not None:
        raise refused_by(source.refusal)
    if view.dtype.name not in REAL_NAMES:
        why = f"it is {view.dtype.name}, which polars lacks"
        raise UnsupportedConversionError("", why, code="missing-dtype", fixes=obstacles.pairs(view.dtype))
    if view.ndim > MAX_NDIM:
        raise refuse_ndim("polars", view, MAX_NDIM)
    source.check_copy()
    reasons = [*column.reasons, *source.reasons, *(reasons_against(pl, column.field) if column.field else ())]
    if not view.device.is_host:
        reasons.append(Reason(f"it is on {view.device}, and polars uses host memory", code="other-device"))
    if view.dtype.name == "bool":
        reasons.append(BITS)
    elif not view.c_contiguous:
        # Two dimensions of one name are an Array column: pl.DataFrame of a C-ordered matrix copies.
        why = "polars requires contiguous memory"
        reasons.append(Reason(why, code="not-contiguous", fixes=[obstacles.CONTIGUOUS]))
    elif not view.is_aligned(view.dtype.itemsize):
        reasons.append(UNALIGNED)
    return reasons


def _from_ndarray(pl: Any, name: str, source: Source, field: Field | None) -> Any:
    array = placement.fetch(source)
    if not array.flags.c_contiguous or not array.flags.aligned:
        array = aligned_copy(array)
    series = pl.Series(name, array)
    # pl.Series(datetimes) copies; a cast of integers does not.
    return series if field is None else series.cast(_dtype_for(field))


#: Milliseconds in each unit of NumPy that polars lacks.
_MILLISECONDS = {"s": 1000, "m": 60_000, "h": 3_600_000}


def times_of(pl: Any, array: Array) -> Any:
    """Return dates or durations in units that polars lacks, in milliseconds; None if the plan decides."""
    unit, count = np.datetime_data(array.dtype) if array.dtype.kind in "mM" else ("", 0)
    if count != 1 or unit not in _MILLISECONDS or not (array.dtype.isnative and array.flags.aligned):
        return None
    numbers, factor = array.view(np.int64), _MILLISECONDS[unit]
    most = np.iinfo(np.int64).max // factor
    if not -most < numbers.min() <= numbers.max() < most:  # NaT, or too large
        return None
    return pl.Series(numbers * factor).cast((pl.Datetime if array.dtype.kind == "M" else pl.Duration)("ms"))


OWN = (SeriesColumn, Objects)


@cache
def frame_calls() -> tuple[Callable[[Any], bool], Callable[[Any], list[Any]]]:
    """Return two functions of frames: whether a column has several chunks or none; the columns as arrays."""
    import polars as pl

    def private() -> Any:
        count = type(pl.Series()._s).n_chunks

        def has_chunks(frame: Any) -> bool:
            width: int = frame.width
            return [*map(count, map(frame._df.to_series, range(width)))].count(1) != width

        def arrays(frame: Any) -> list[Any]:
            return [frame._df.to_series(place).to_arrow(False) for place in range(frame.width)]

        return has_chunks, arrays

    def agrees(calls: Any) -> bool:
        has_chunks, _ = calls  # if `to_arrow` has changed, it raises, and the slow path decides
        whole = pl.Series("a", [1, 2])
        parts = pl.concat([whole[:1], whole[1:]], rechunk=False)
        return not has_chunks(pl.DataFrame([whole])) and bool(has_chunks(pl.DataFrame([parts])))

    public = (
        lambda frame: any(series.n_chunks() != 1 for series in columns_of(frame)),
        lambda frame: [series.to_arrow() for series in columns_of(frame)],
    )
    return _COLUMNS.choose(private, agrees, public)


def plain_frame(pl: Any) -> Callable[[Any, Any], tuple[None, Any, Any]]:
    """Return the exporter ``hub`` of frames of plain columns and dates, of one chunk.

    It keeps the schema of the last frame, which the next one with equal names and types shares.
    """
    times = {(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC")}
    kinds: set[Any] = plain_kinds(pl) | times | {pl.Boolean, pl.Date}
    (has_chunks, arrays), datetime = frame_calls(), pl.Datetime
    last: Any = None

    def exported(frame: Any, target: Any) -> tuple[None, Any, Any]:
        nonlocal last
        if not frame.height or has_chunks(frame):
            raise ValueError("no rows, or chunks, which a stream would join: use the slow path")
        frame = frame.clone()  # shallow: another thread may change the caller's columns
        names, known = frame.columns, last
        types = [(t.time_unit, t.time_zone) if type(t) is datetime else type(t) for t in frame.dtypes]
        if known is None or names != known[0] or types != known[1]:
            if not names or "" in names or "\0" in "".join(names):
                raise ValueError("no columns, or a name that Arrow would change: use the slow path")
            if not kinds.issuperset(types):
                raise ValueError("other types: use the slow path")
            last = known = (names, types, hub().module().table(frame.clear()).schema)
        if target.reads_views or pl.String not in types:
            return None, frame, known[2]
        # Not DataFrame.to_arrow, which waits for polars' threads: a forked child lacks them.
        return None, hub().module().RecordBatch.from_arrays(arrays(frame), names), None

    return exported


def plain_series(pl: Any) -> Callable[[Any, Any], tuple[str, Any, None]]:
    """Return the exporter ``hub`` of series of plain values in one chunk.

    polars copies 1,000 texts in 9 us for targets that do not read views, and a cast of pyarrow in 15.
    """
    kinds, text = plain_kinds(pl), pl.String

    def exported(series: Any, target: Any) -> tuple[str, Any, None]:
        name, kind = series.name, type(series.dtype)
        if kind not in kinds or series.n_chunks() != 1 or not len(series) or "\0" in name:
            raise ValueError("chunks, or other types: use the slow path")
        if kind is text and not target.reads_views:
            return name, series.to_arrow(), None
        return name, hub().module().chunked_array(series).chunk(0), None

    return exported


@cache
def numbers_of() -> Callable[[Any], Array | None]:
    """Return a function from a series of numbers in one chunk to a read-only ndarray, and None from others.

    ``Series.to_numpy`` raises an exception for text and nulls, which takes 4 us.
    """
    import polars as pl

    numbers = plain_kinds(pl) - {pl.String}

    def array_of(series: Any) -> Array | None:
        if type(series.dtype) not in numbers or series.null_count() or series.n_chunks() != 1:
            return None
        return series.to_numpy(allow_copy=False) if len(series) else None  # type: ignore[no-any-return]

    return array_of


def plain_kinds(pl: Any) -> set[Any]:
    """Return the types of numbers and text."""
    kinds = {getattr(pl, f"{sign}Int{n}") for sign in ("", "U") for n in (8, 16, 32, 64)}
    return kinds | {pl.Float32, pl.Float64, pl.String}


class ArrayExport:
    """A wrapper that exports only an array, because polars imports pyarrow's types by other means."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._array.__arrow_c_array__(requested_schema)


class Stream:
    """As `ArrayExport`, for a stream."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._array.__arrow_c_stream__(requested_schema)


def series_of(pl: Any, name: str, column: Column) -> Any:
    if isinstance(column, OWN):
        return column.series.alias(name)
    if column.field is not None and column.field.kind == "unknown" and hasattr(column, "series"):
        # Python objects are not copied: the new series refers to the same ones.
        return pl.Series(name, column.series.to_list(), dtype=column.series.dtype)
    source = direct(column)
    if source is not None:
        return _from_ndarray(pl, name, source, column.field)
    pa = hub().module()
    array, field = column.arrow(), column.field
    array = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
    if (
        field is None
        or field.children
        or field.kind == "struct"
        or any(True for _ in reasons_against(pl, field))
    ):
        array = adapted(pa, name, array)
    enum_metadata = {k: v for k, v in (field.metadata if field else {}).items() if k.startswith(b"_PL_")}
    nested = bool(field and field.children and any(f.dictionary for f in field.walk()))
    # In a nested type, and in a table, polars loses the rows after an empty chunk of
    # dictionaries, and panics on a dictionary without values.
    rows = (
        pa.chunked_array([c for c in array.chunks if len(c)], array.type)
        if enum_metadata or nested
        else array
    )
    empty = (enum_metadata or nested) and any(hollow(arrow_c.read_array(chunk)) for chunk in rows.chunks)
    if nested and empty:  # of a column whose memory column_reasons could not check
        raise hollow_error()
    try:
        if not enum_metadata:
            # One chunk at a time: polars loses the rows after a chunk whose nested dictionaries have no rows.
            whole = not nested or rows.num_chunks < 2
            parts = [
                pl.Series(Stream(c))
                for c in ([rows] if whole else ([pa.chunked_array([chunk]) for chunk in rows.chunks]))
            ]
            return (parts[0] if whole else pl.concat(parts, rechunk=False)).alias(name)
        # Export a table, because an array has no field metadata, which marks an Enum.
        schema = pa.schema([pa.field(name, array.type, metadata=enum_metadata)])
        table = pa.Table.from_arrays([pa.chunked_array([], array.type) if empty else rows], schema=schema)
        series = pl.DataFrame(Stream(table)).to_series(0)
        return pl.Series(Stream(rows)).alias(name).cast(series.dtype) if empty else series
    except pl.exceptions.PanicException as error:  # it does not derive from Exception
        raise UnsupportedConversionError(
            "", f"polars panicked: {error}", "please report it", code="framework-error"
        ) from error
