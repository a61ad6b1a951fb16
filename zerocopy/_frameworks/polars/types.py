"""Arrow types as polars has them: which it copies, changes or lacks, and arrays that it reads right.

Found out with polars 2.1.0 and pyarrow 26, type by type; ``pl`` and ``pa`` are those two, passed in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from zerocopy.errors import LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import Field
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.fixed_shape import shape_of

BITS = Reason("polars packs booleans into bits", "pass them as uint8, which it aliases: x.view('uint8')")
UNALIGNED = Reason(
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
CAST = "cast it first, x.cast(pl.Int64) or x.cast(pl.Decimal(38, 0)), or leave it out with columns=[...]"
#: What polars cannot hold: on most of these it panics, which no ``except Exception`` catches.
_LACKS = {
    "interval": "cast it to duration in Arrow",
    "union": "make a struct of it, a field for each type",
    "run_end_encoded": "decode it first: pyarrow.compute.run_end_decode(x)",
    # Not x.cast: pyarrow 26 makes other lists of list views, without an error.
    "list_view": "make lists of it: pyarrow.array(x.to_pylist(), pyarrow.large_list(x.type.value_type))",
    "unknown": CAST,
}


def is_enum(key: bytes) -> bool:
    return key.startswith(b"_PL_ENUM")


def walk(field: Field) -> Iterator[Field]:
    yield field
    for child in field.children:
        yield from walk(child)


def _lacks(field: Field, remedy: str, what: str = "") -> UnsupportedConversionError:
    return UnsupportedConversionError("", f"is {field}{what}, which polars lacks", remedy)


def reasons_against(pl: Any, field: Field, nested: bool = False) -> Iterator[Reason]:
    """Yield why polars copies a type that comes in; raise what it cannot hold."""
    kind = field.kind
    if field.extension == "arrow.bool8":
        yield BITS
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
        if field.timezone and zone_of(pl, field.timezone) is None:
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
        inner = list(reasons_against(pl, field.dictionary))
        if nested and not text and field.dictionary.kind != "number":
            raise _lacks(field, "decode it first", " inside another type")
        yield _CATEGORIES if text else _DECODED
        yield from () if text else inner
    for child in field.children:
        yield from reasons_against(pl, child, True)


@cache
def zone_of(pl: Any, name: str) -> str | None:
    """Return what polars calls a time zone; None if it knows none of that name."""
    try:
        made: Any = pl.Series([], dtype=pl.Int64).cast(pl.Datetime("us", name)).dtype
    except pl.exceptions.ComputeError:
        return None
    return str(made.time_zone)


def places(column: ArrowColumn) -> Iterator[Reason]:
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
            yield UNALIGNED


def _misplaced(chunk: arrow_c.Memory) -> Iterator[Reason]:
    field = chunk.field
    if field.kind == "fixed_list" and chunk.nulls and chunk.buffers[0]:
        # "validity mask length must be equal to the number of values divided by size"
        whole = not chunk.offset and chunk.children[0].length == chunk.length * field.list_size
        yield from () if whole else (_SLICED,)
    size = _alignment(field)
    if size > 1 and chunk.buffers[1] % size:
        yield UNALIGNED
    for child in chunk.children:
        yield from _misplaced(child)


def _alignment(field: Field) -> int:
    """Return what the addresses of a type's values must be multiples of, as Rust has it; 0 for any."""
    return 8 if field.kind == "list" else 4 if field.kind.endswith("_view") else field.width


def hollow(memory: arrow_c.Memory) -> bool:
    """Whether a dictionary in an array has no values."""
    inner = memory.dictionary
    return (inner is not None and not inner.length) or any(map(hollow, memory.children))


def adapted(hub: Any, pa: Any, name: str, array: Any) -> Any:
    """Return an array with the values in types that polars reads right, itself if it does so already."""
    kind = array.type
    if isinstance(kind, pa.FixedShapeTensorType):
        shape = kind.shape
        parts = [_nested(pa, chunk.storage, shape) for chunk in array.chunks]
        return adapted(hub, pa, name, pa.chunked_array(parts, _lists(pa, kind.value_type, shape)))
    if pa.types.is_dictionary(kind) and not _is_text(pa, kind.value_type):
        parts = [chunk.dictionary.take(chunk.indices) for chunk in array.chunks]
        return adapted(hub, pa, name, pa.chunked_array(parts, kind.value_type))
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


def becomes(pl: Any, field: Field) -> str:
    """Return what polars makes of a type that it changes, or nothing."""
    zone = zone_of(pl, field.timezone) if field.timezone else ""
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
    if field.dictionary is not None and not any(map(is_enum, field.metadata)):
        text = field.dictionary.kind in ("string", "string_view")
        ordered = ", whose order is lost" if field.ordered else ""
        return f"Categorical{ordered}" if text else f"{field.dictionary}"
    return ""


def changes(pl: Any, field: Field) -> Iterator[str]:
    """Yield what of a column's type does not survive."""
    if not field.nullable:
        yield "polars has no columns that forbid nulls"
    lost = [k.decode(errors="replace") for k in field.metadata if not k.startswith((b"ARROW:ext", b"_PL_"))]
    if lost:
        yield f"its metadata ({', '.join(lost)}) do not survive: polars has no place for them"
    if field.extension == "arrow.fixed_shape_tensor":
        yield f"{field} becomes Array of shape {shape_of(field)[0]}"
    for part in walk(field):
        other = becomes(pl, part)
        if other:
            yield f"{part} becomes {other}"
