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
from zerocopy.errors import LossyConversionError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Array, Framework, Source
from zerocopy.protocols import arrow_c
from zerocopy.protocols.array_interface import address, aligned_copy
from zerocopy.protocols.arrow_schema import NUMBERS, Field
from zerocopy.tables.arrow_column import ArrowColumn, Typed
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import Decoder, Leaf
from zerocopy.tables.fixed_shape import shape_of
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
_CAST = "cast it first, x.cast(pl.Int64) or x.cast(pl.Decimal(38, 0)), or leave it out with columns=[...]"
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

        return {"readonly": plain, "ndarray": plain}

    # -- target ---------------------------------------------------------------

    def column_reasons(self, column: Column) -> list[Reason]:
        if isinstance(column, _SeriesColumn | _Objects):
            return []  # a series is taken as it is
        if _direct(column) is not None:
            return _ndarray_reasons(column)
        reasons = dict.fromkeys(column.arrow_reasons())
        if column.field is not None:
            reasons |= dict.fromkeys(_reasons(column.field))
        elif column.source.view.dtype.name == "bool":  # type: ignore[attr-defined]
            reasons[_BITS] = None
        if not reasons and isinstance(column, ArrowColumn):
            reasons |= dict.fromkeys(_places(column))
        return list(reasons)

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        """Return what does not survive; refuse a table that no frame can be.

        It is here that a plan asks about the table as a whole.
        """
        labels = [str(label) for label in table.labels]
        twice = [label for label in dict.fromkeys(labels) if labels.count(label) > 1]
        if twice and not table.single:
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
                said += [whose + change for change in _changes(column)]
        return tuple(said)

    def from_table(self, table: Table) -> Any:
        pl = self.module()
        found = [_series(pl, str(n), c) for n, c in zip(table.labels, table.columns, strict=True)]
        if self.form == "Series":
            return found[0]
        return pl.DataFrame(found) if found else pl.DataFrame(height=table.length)

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
        codes = any(f.dictionary and not any(map(_is_enum, f.metadata)) for f in _walk(field))
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
        if any(f.kind == "unknown" for f in _walk(self.field)):
            raise UnsupportedConversionError("", f"is {self.series.dtype}, which Arrow has not", _CAST)
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


def _is_enum(key: bytes) -> bool:
    return key.startswith(b"_PL_ENUM")


def _walk(field: Field) -> Iterator[Field]:
    yield field
    for child in field.children:
        yield from _walk(child)


# -- ndarrays as series ---------------------------------------------------------

_BITS = Reason("polars packs booleans into bits", "pass them as uint8, which it aliases: x.view('uint8')")


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


def _ndarray_reasons(column: Any) -> list[Reason]:
    source, view = column.source, column.source.view
    if source.refusal is not None:
        raise UnsupportedConversionError("", source.refusal.why, source.refusal.remedy)
    if view.dtype.name not in _NUMBERS:
        raise UnsupportedConversionError(
            "", f"is {view.dtype.name}, which polars lacks", "cast it to a type that both have"
        )
    reasons = [*column.reasons, *source.reasons, *(_reasons(column.field) if column.field else ())]
    if not view.device.is_host:
        reasons.append(Reason(f"it is on {view.device} and polars' memory is the host's", ""))
    if view.dtype.name == "bool":
        reasons.append(_BITS)
    elif not view.c_contiguous:
        # Two dimensions of one name are an Array column: pl.DataFrame of a C-ordered matrix copies.
        reasons.append(Reason("polars takes memory without gaps only", "make it contiguous at its source"))
    elif not view.is_aligned(view.dtype.itemsize):
        reasons.append(_UNALIGNED)
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

_UNALIGNED = Reason(
    "the memory is not aligned to its item size, and polars copies it", "copy it at its source"
)
_VIEWS = Reason(
    "polars has views where Arrow has offsets", "keep it as {0}_view in Arrow: x.cast('{0}_view')"
)
_OFFSETS = Reason("polars has offsets of 64 bits in its lists", "keep them as large_list in Arrow")
_CATEGORIES = Reason(
    "polars gives a dictionary codes of its own", "cast it to string_view in Arrow, if text will do"
)
_SLICED = Reason("polars cannot read a slice of fixed-size lists that has nulls", "slice it in polars")
_MILLISECONDS = Reason("polars has no seconds: they become milliseconds", "cast it to ms in Arrow")
_NANOSECONDS = Reason("polars counts times in nanoseconds", "cast it to time64('ns') in Arrow")
_WIDE = Reason("polars has decimals of 128 bits only", "cast it to decimal128 in Arrow")
_DECODED = Reason("polars has dictionaries of text only: it is decoded", "decode it in Arrow")
#: What polars cannot hold: on most of these it panics, which no ``except Exception`` catches.
_LACKS = {
    "interval": "cast it to duration in Arrow",
    "union": "make a struct of it, a field for each type",
    "run_end_encoded": "decode it first: pyarrow.compute.run_end_decode(x)",
    # Not x.cast: pyarrow 26 makes other lists of list views, without an error.
    "list_view": "make lists of it: pyarrow.array(x.to_pylist(), pyarrow.large_list(x.type.value_type))",
    "unknown": _CAST,
}


def _lacks(field: Field, remedy: str, what: str = "") -> UnsupportedConversionError:
    return UnsupportedConversionError("", f"is {field}{what}, which polars lacks", remedy)


def _reasons(field: Field, nested: bool = False) -> Iterator[Reason]:
    """Yield why polars copies a type that comes in; raise what it cannot hold."""
    kind = field.kind
    if field.extension == "arrow.bool8":
        yield _BITS
        return
    if field.extension == "arrow.fixed_shape_tensor" and not nested and shape_of(field)[1]:
        raise _lacks(field, "store them in the order of their dimensions first", " with permuted dimensions")
    if kind in _LACKS:
        raise _lacks(field, _LACKS[kind])
    if kind in ("string", "binary", "fixed_binary"):
        yield replace(_VIEWS, remedy=_VIEWS.remedy.format("string" if kind == "string" else "binary"))
    elif kind in ("list", "map") and not field.wide:
        yield _OFFSETS
    elif kind == "fixed_list" and not field.list_size:
        raise _lacks(field, "leave it out with columns=[...]: it has no values")
    elif kind == "struct":
        names = [child.name for child in field.children]
        if len(set(names)) != len(names):
            raise _lacks(field, "rename its fields", " with two fields of one name")
    elif kind in ("timestamp", "duration"):
        if field.timezone and _zone(field.timezone) is None:
            raise _lacks(field, "cast it to a zone of the time zone database", f" in {field.timezone!r}")
        if field.unit == "s":
            yield _MILLISECONDS
    elif kind == "time" and field.unit != "ns":
        yield _NANOSECONDS
    elif kind == "decimal":
        if field.width > 16:
            raise _lacks(field, "cast it to decimal128 in Arrow, where its precision of 38 will do")
        if field.scale < 0:
            raise _lacks(field, "cast it to one whose scale is not negative", " with a negative scale")
        if field.width < 16:
            yield _WIDE
    elif field.dictionary is not None:
        text = field.dictionary.kind in ("string", "string_view")
        inner = list(_reasons(field.dictionary))
        if nested and not text and field.dictionary.kind != "number":
            raise _lacks(field, "decode it first", " inside another type")
        yield _CATEGORIES if text else _DECODED
        yield from () if text else inner
    for child in field.children:
        yield from _reasons(child, True)


@cache
def _zone(name: str) -> str | None:
    """Return what polars calls a time zone; None if it knows none of that name."""
    import polars as pl

    try:
        made: Any = pl.Series([], dtype=pl.Int64).cast(pl.Datetime("us", name)).dtype
    except pl.exceptions.ComputeError:
        return None
    return str(made.time_zone)


def _places(column: ArrowColumn) -> Iterator[Reason]:
    """Yield why polars copies memory that lies where it does not take it."""
    if column.field.children:
        for chunk in column.chunks:
            yield from _misplaced(chunk)
        return
    array = column.arrow()  # an alias; to ask it takes a tenth of the time of exporting it
    size = _alignment(column.field)
    for part in getattr(array, "chunks", [array]) if size > 1 else ():
        values = part.buffers()[1]
        if values is not None and values.address % size:
            yield _UNALIGNED


def _misplaced(chunk: arrow_c.Memory) -> Iterator[Reason]:
    field = chunk.field
    if field.kind == "fixed_list" and chunk.nulls and chunk.buffers[0]:
        # "validity mask length must be equal to the number of values divided by size"
        whole = not chunk.offset and chunk.children[0].length == chunk.length * field.list_size
        yield from () if whole else (_SLICED,)
    size = _alignment(field)
    if size > 1 and chunk.buffers[1] % size:
        yield _UNALIGNED
    for child in chunk.children:
        yield from _misplaced(child)


def _alignment(field: Field) -> int:
    """Return what the addresses of a type's values must be multiples of, as Rust has it; 0 for any."""
    return 8 if field.kind == "list" else 4 if field.kind.endswith("_view") else field.width


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
    if field is None or field.children or any(True for _ in _reasons(field)):
        array = _adapted(hub, pa, name, array)
    own = {k: v for k, v in (field.metadata if field else {}).items() if k.startswith(b"_PL_")}
    nested = bool(field and field.children and any(f.dictionary for f in _walk(field)))
    # Inside other types, and a table's columns are inside one, polars loses the rows after an
    # empty chunk of dictionaries, and panics on a dictionary without values.
    rows = pa.chunked_array([c for c in array.chunks if len(c)], array.type) if own or nested else array
    hollow = (own or nested) and any(_hollow(arrow_c.read_array(chunk)) for chunk in rows.chunks)
    if nested and hollow:
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
        held = pa.Table.from_arrays([pa.chunked_array([], array.type) if hollow else rows], schema=schema)
        made = pl.DataFrame(_Stream(held)).to_series(0)
        return pl.Series(_Stream(rows)).alias(name).cast(made.dtype) if hollow else made
    except pl.exceptions.PanicException as error:  # no Exception: it would pass by everybody
        raise UnsupportedConversionError("", f"polars panicked: {error}", "please report it") from error


def _hollow(memory: arrow_c.Memory) -> bool:
    """Whether a dictionary in an array has no values."""
    inner = memory.dictionary
    return (inner is not None and not inner.length) or any(map(_hollow, memory.children))


def _adapted(hub: Any, pa: Any, name: str, array: Any) -> Any:
    """Return an array with the values in types that polars reads right, itself if it does so already."""
    kind = array.type
    if isinstance(kind, pa.FixedShapeTensorType):
        shape = kind.shape
        parts = [_nested(pa, chunk.storage, shape) for chunk in array.chunks]
        return _adapted(hub, pa, name, pa.chunked_array(parts, _lists(pa, kind.value_type, shape)))
    if pa.types.is_dictionary(kind) and not _is_text(pa, kind.value_type):
        parts = [chunk.dictionary.take(chunk.indices) for chunk in array.chunks]
        return _adapted(hub, pa, name, pa.chunked_array(parts, kind.value_type))
    wanted = _wanted(pa, kind)
    if wanted != kind:
        try:
            # One by one: the cast of a chunked array may join them.
            array = pa.chunked_array([chunk.cast(wanted) for chunk in array.chunks], wanted)
            array.validate()  # lists of nulls come out too short (pyarrow 26)
        except pa.ArrowException as error:  # polars would let values overflow
            raise LossyConversionError(
                "", f"column {name!r} cannot become {wanted}: {error}", "cast it in Arrow first"
            ) from error
    if any(reason is _SLICED for chunk in array.chunks for reason in _misplaced(arrow_c.read_array(chunk))):
        array = hub.copied(array)
    return array


def _wanted(pa: Any, kind: Any) -> Any:
    """Return the type to cast to before polars sees it."""
    types = pa.types
    if isinstance(kind, pa.Bool8Type):
        return pa.bool_()
    if types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    if types.is_duration(kind) and kind.unit == "s":
        return pa.duration("ms")
    if types.is_time32(kind) or (types.is_time64(kind) and kind.unit == "us"):
        return pa.time64("ns")
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        # Inside other types polars keeps 4 or 8 bytes where it counts 16: wrong numbers, and
        # it reads past the end.
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_map(kind):
        return pa.map_(_inner(pa, kind.key_field), _inner(pa, kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_inner(pa, kind.value_field), kind.list_size)
    if types.is_large_list(kind) or types.is_list(kind):
        made = pa.large_list if types.is_large_list(kind) else pa.list_
        return made(_inner(pa, kind.value_field))
    return pa.struct([_inner(pa, field) for field in kind]) if types.is_struct(kind) else kind


def _inner(pa: Any, field: Any) -> Any:
    return field.with_type(_wanted(pa, field.type))


def _is_text(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _lists(pa: Any, kind: Any, shape: Any) -> Any:
    for size in reversed(shape):
        kind = pa.list_(kind, size)
    return kind


def _nested(pa: Any, lists: Any, shape: Any) -> Any:
    """Return flat lists as lists of lists of a shape, over the same elements."""
    array, kind = lists.values, lists.type.value_type
    for size in reversed(shape[1:]):
        kind = pa.list_(kind, size)
        array = pa.Array.from_buffers(kind, len(array) // size, [None], 0, children=[array])
    kind = pa.list_(kind, shape[0])
    nulls = lists.buffers()[0]
    return pa.Array.from_buffers(kind, len(lists), [nulls], -1, lists.offset, children=[array])


def _changes(column: Column) -> Iterator[str]:
    """Yield what of a column polars does not keep."""
    field, source = column.field, _direct(column)
    if source is not None and not source.view.readonly and not _ndarray_reasons(column):
        yield "writing to the source changes what polars takes never to change (copy=True takes a snapshot)"
    if field is None:
        return
    if not field.nullable:
        yield "polars has no columns that forbid nulls"
    lost = [k.decode(errors="replace") for k in field.metadata if not k.startswith((b"ARROW:ext", b"_PL_"))]
    if lost:
        yield f"its metadata ({', '.join(lost)}) do not survive: polars has no place for them"
    if field.extension == "arrow.fixed_shape_tensor":
        yield f"{field} becomes Array of shape {shape_of(field)[0]}"
    for part in _walk(field):
        becomes = _becomes(part)
        if becomes:
            yield f"{part} becomes {becomes}"


def _becomes(field: Field) -> str:
    zone = _zone(field.timezone) if field.timezone else ""
    if field.extension == "arrow.bool8":
        return "Boolean"
    if field.kind in ("fixed_binary", "date", "time"):
        same = field.format in ("tdD", "ttn")
        return (
            "" if same else {"fixed_binary": "Binary", "time": "Time", "date": "Datetime('ms')"}[field.kind]
        )
    if field.kind in ("timestamp", "duration") and (field.unit == "s" or zone != field.timezone):
        kind = "Datetime" if field.kind == "timestamp" else "Duration"
        unit = "ms" if field.unit == "s" else field.unit
        return f"{kind}({unit!r}, {zone!r})" if zone else f"{kind}({unit!r})"
    if field.kind == "decimal" and field.width < 16:
        return "a decimal of 128 bits"
    if field.dictionary is not None and not any(map(_is_enum, field.metadata)):
        text = field.dictionary.kind in ("string", "string_view")
        ordered = ", whose order is lost" if field.ordered else ""
        return f"Categorical{ordered}" if text else f"{field.dictionary}"
    return ""


FRAMEWORK = Polars()
