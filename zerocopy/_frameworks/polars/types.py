"""Arrow types in polars: those that it copies, changes or lacks, and arrays that it reads correctly.

Tested type by type with polars 2.1.0 and pyarrow 26, which callers pass as ``pl`` and ``pa``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import Field
from zerocopy.tables import memory
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import Column
from zerocopy.tables.content import DAY, outside, outside_in
from zerocopy.tables.hub import hub
from zerocopy.tables.lists import nested_lists, shape_of

BITS = obstacles.packed_bits("polars")
UNALIGNED = Reason(
    "the memory is not aligned to its item size, and polars copies it",
    code="misaligned",
    fixes=[obstacles.COPIED],
)
_VIEWS = Reason("polars stores text as views, and Arrow's type has offsets", code="view-layout")
_OFFSETS = Reason("polars' lists have 64-bit offsets", "keep them as large_list in Arrow", code="other-type")
_CATEGORIES = Reason(
    "polars replaces the codes of a dictionary",
    "cast it to string_view in Arrow, if text is enough",
    code="dictionary-codes",
)
_SLICED = Reason(
    "polars cannot read a slice of fixed-size lists that has nulls", "slice it in polars", code="sliced-lists"
)
SHIFTED = Reason(
    "it has only bitmaps of nulls, which begin inside a byte, and polars shifts them for each export",
    code="misaligned",
    fixes=[Fix('zc.convert({x}, "pyarrow", copy=True)', "copies them once")],
)
_MOST_SECONDS = (2**63 - 1) // 1000
_MILLISECONDS = Reason(
    "polars has no seconds: they become milliseconds", "cast it to ms in Arrow", code="time-unit"
)
_NANOSECONDS = Reason(
    "polars counts times in nanoseconds", "cast it to time64('ns') in Arrow", code="time-unit"
)
_WIDE = Reason("polars has decimals of 128 bits only", "cast it to decimal128 in Arrow", code="other-type")
_DECODED = Reason(
    "polars has dictionaries of text only: it is decoded", "decode it in Arrow", code="dictionary-encoding"
)
CAST = "cast it first, or leave it out"
CASTS = [Fix(action="cast:int64", effect="if the values fit")]
#: Kinds that polars lacks: for most it panics, which ``except Exception`` does not catch.
_LACKS = {
    "interval": "make a struct of its months, days and nanoseconds",
    "union": "convert it to a struct with one field per type",
    "run_end_encoded": "decode it first: pyarrow.compute.run_end_decode(x)",
    # Not x.cast: pyarrow 26 turns list views into wrong lists, without an error.
    "list_view": "convert it to lists: pyarrow.array(x.to_pylist(), pyarrow.large_list(x.type.value_type))",
    "unknown": CAST,
}


_ACTIONS = {
    "list_view": "lists",
    "interval": "seconds split-interval",
    "union": "objects",
    "run_end_encoded": "decode-runs",
    "unknown": "cast:int64",
}


def is_enum(key: bytes) -> bool:
    """Whether a key of a field's metadata marks an Enum."""
    return key.startswith(b"_PL_ENUM")


_lacks = partial(obstacles.refuse_type, "polars")


def reasons_against(pl: Any, field: Field, nested: bool = False, objects: bool = False) -> Iterator[Reason]:
    """Yield why polars copies a type; refuse one that it cannot hold."""
    kind = field.kind
    if field.extension == "arrow.bool8":
        yield BITS
        return
    if field.extension == "arrow.fixed_shape_tensor" and not nested and shape_of(field)[1]:
        raise _lacks(field, "store them in the order of their dimensions first", " with permuted dimensions")
    if field.extension == "arrow.opaque" and kind == "dictionary":  # pyarrow exports it without its words
        raise _lacks(field, "leave it out with columns=[...], or convert its storage: x.storage")
    if kind in _LACKS:
        raise _lacks(field, _LACKS[kind], action="" if nested else _ACTIONS.get(kind, ""))
    if kind in ("string", "binary", "fixed_binary"):
        kinds = ("string_view", "str") if kind == "string" else ("binary_view", "large_binary")
        effect = "leaves only views to copy" if objects else "stores it as views, for this conversion only"
        yield replace(_VIEWS, fixes=[] if nested else [Fix(action=f"cast:{kinds[objects]}", effect=effect)])
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
            zone = f", {field.timezone!r}" if field.timezone else ""
            action = f"milliseconds:pyarrow.{kind}('ms'{zone})"
            yield (
                _MILLISECONDS
                if nested
                else replace(_MILLISECONDS, fixes=[Fix(action=action, effect="casts it once")])
            )
    elif kind == "time" and field.unit != "ns":
        yield _NANOSECONDS
    elif kind == "decimal":
        if field.width > 16:
            raise _lacks(field, "cast it to decimal128", action="" if nested else "cast:float64")
        if field.scale < 0:
            raise _lacks(field, "cast it to a decimal with a scale of 0 or more", " with a negative scale")
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
    """Return polars' name for a time zone; None if it does not know the zone."""
    try:
        dtype: Any = pl.Series([], dtype=pl.Int64).cast(pl.Datetime("us", name)).dtype
    except pl.exceptions.ComputeError:
        return None
    return str(dtype.time_zone)


def memory_reasons(column: ArrowColumn) -> Iterator[Reason]:
    """Yield why polars copies a column whose type it would alias: its addresses or offsets."""
    if column.field.children or column.field.kind == "struct":
        for chunk in column.chunks:
            yield from _misplaced(chunk)
            yield from (SHIFTED,) if _has_bitmaps_alone(chunk) else ()
        return
    array = column.arrow()  # an alias, obtained ten times as fast as an export
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


def is_adapted(chunk: arrow_c.Memory) -> bool:
    """Whether a chunk is one that polars cannot read, or has bitmaps that it shifts: `adapted` copies it."""
    return _has_bitmaps_alone(chunk) or any(reason is _SLICED for reason in _misplaced(chunk))


def is_bare(field: Field) -> bool:
    """Whether bitmaps of nulls may be the only memory that an export of polars aliases."""
    inner = all(map(is_bare, field.children)) or field.kind == "map"  # whose offsets it computes
    return field.kind in (*memory.BARE, "map", "null") and not field.dictionary and inner


def _has_bitmaps_alone(chunk: arrow_c.Memory) -> bool:
    """Whether an array has only bitmaps of nulls, which polars would shift for each export."""
    import polars as pl

    if not is_bare(chunk.field) or any(part.kind == "map" for part in chunk.field.walk()):
        return False
    return any(True for _ in memory.extents(chunk)) and partial_bytes(pl, chunk, (0, chunk.length)) == (0, 0)


def _alignment(field: Field) -> int:
    """Return the alignment of a type's values in Rust, in bytes; 0 for any."""
    return 8 if field.kind == "list" else 4 if field.kind.endswith("_view") else field.width


def is_shifted(series: Any, field: Field) -> bool:
    """Whether each export of a series has new memory alone: bitmaps of nulls, and offsets of maps."""
    if field.kind == "null" or not is_bare(field) or not len(series):
        return False
    exports = [list(arrow_c.read_stream(series)[1]) for _ in range(2)]  # both alive, so that addresses differ
    first, second = ({extent for chunk in chunks for extent in memory.extents(chunk)} for chunks in exports)
    return bool(first) and not first & second


def bitmaps(series: Any) -> Iterator[tuple[int, int]]:
    """Yield the bitmaps of nulls of a series and of its fields, as booleans alias them, without a shift."""
    if series.dtype.is_nested() and series.has_nulls():
        for chunk in arrow_c.read_stream(series.is_not_null())[1]:
            yield from memory.extents(chunk)
    for field in getattr(series.dtype, "fields", ()):
        yield from bitmaps(series.struct.field(field.name))


def codes_of(field: Field, chunk: arrow_c.Memory) -> Iterator[tuple[int, int]]:
    """Yield the memory of a Categorical's codes, which an export does not alias."""
    if field.dictionary is not None:
        yield from memory.extents(chunk, nulls=False)
    for inner, child in zip(field.children, chunk.children, strict=True):
        yield from codes_of(inner, child)


#: The longest text that a view holds itself ("Variable-size Binary View Layout"), and the size of a view.
_INLINE, _VIEW = 12, 16
#: Rows that are searched for long text at once: most columns have one among their first rows.
_BLOCK = 1 << 12


def partial_bytes(
    pl: Any, chunk: arrow_c.Memory, rows: tuple[int, int] | None = None, hidden: bool = False
) -> tuple[int, int] | None:
    """Return the bytes that polars aliases of an array that it copies in part, and its new bytes.

    None if it depends on a cast of nested types. New are the 64-bit offsets of lists, and the views of text,
    whose bytes polars keeps from the first value on that is longer than a view holds. Of an array inside
    lists, `rows` are the first row that they use, and their number; polars reads all of it. With `hidden`,
    rows of types around it are null, whose items polars may drop.
    """
    field, kind = chunk.field, chunk.field.kind
    if field.extension or field.dictionary is not None:
        return None
    first, count = rows or (0, chunk.length)
    if not count:
        return None if is_cast(pl, field) else (0, 0)
    used = memory.slice_rows(chunk, first, count)
    size = sum(high - low for low, high in memory.extents(used))
    aliased, copied = (count + 7) // 8 if not hidden and _keeps_bitmap(chunk, used) else 0, 0
    parts: list[tuple[arrow_c.Memory, tuple[int, int]]] = []
    if kind in ("string", "binary"):
        offsets = memory.offsets(used)
        text = max(0, int(offsets[-1]) - max(int(offsets[0]), _first_long(chunk)))
        return aliased + (0 if hidden else text), _VIEW * count
    if kind in ("list", "map"):
        offsets_size = 8 * (count + 1)
        aliased, copied = (aliased + offsets_size, 0) if field.wide else (aliased, offsets_size)
        low, high = memory.used(used)
        start, stop = memory.used(chunk) if kind == "map" else (0, chunk.children[0].length)
        own = [memory.slice_rows(chunk.children[0], start, stop - start)]  # polars cuts out the items of maps
        parts = [(own[0], (low - start, high - low))]
        if kind == "map" and (hidden or _hides_items(chunk)):
            parts, copied = [], copied + size
    elif kind == "struct":
        own = [memory.slice_rows(child, chunk.offset, chunk.length) for child in chunk.children]
        parts = [(child, (first, count)) for child in own]
    elif kind == "fixed_list":
        width = field.list_size
        own = [memory.slice_rows(chunk.children[0], chunk.offset * width, chunk.length * width)]
        parts = [(own[0], (first * width, count * width))]
    elif any(True for _ in reasons_against(pl, field, nested=True)):
        return None if rows is not None or kind == "fixed_binary" else (0, size)
    else:
        return size, 0
    hidden = hidden or memory.null_count(chunk) > 0
    for part, inside in parts:
        known = partial_bytes(pl, part, inside, hidden)
        if known is None:
            return None
        aliased, copied = aliased + known[0], copied + known[1]
    return None if rows is None and not aliased and _may_keep_more(chunk) else (aliased, copied)


def _may_keep_more(chunk: arrow_c.Memory) -> bool:
    """Whether polars may keep a bitmap that it shifts for exports, or drop the items of nulls and of maps."""
    if chunk.field.kind == "map" or (chunk.children and memory.null_count(chunk) > 0):
        return True
    return any(map(_may_keep_more, chunk.children))


def is_cast(pl: Any, field: Field) -> bool:
    """Whether pyarrow casts a type before polars reads it, which keeps parts of the memory."""
    reasons = [reason for reason in reasons_against(pl, field, nested=True) if reason != _OFFSETS]
    return any(reason.code != "view-layout" for reason in reasons)


def _keeps_bitmap(chunk: arrow_c.Memory, used: arrow_c.Memory) -> bool:
    """Whether an export of polars has the bitmap of an array, and not one that it shifts."""
    is_bare = chunk.field.kind in memory.BARE
    is_shifted = chunk.offset % 8 if is_bare else chunk.offset
    return not is_shifted and memory.null_count(chunk) > 0 and (not is_bare or memory.null_count(used) > 0)


def _hides_items(maps: arrow_c.Memory) -> bool:
    """Whether null rows have items, which polars drops."""
    return bool((np.diff(memory.offsets(maps))[~memory.valid(maps)] > 0).any())


def _first_long(text: arrow_c.Memory) -> int:
    """Return the offset of the first long value; the last offset without one."""
    offsets = memory.offsets(text)
    valid = memory.valid(text) if memory.null_count(text) else None
    for row in range(0, text.length, _BLOCK):
        block = offsets[row : row + _BLOCK + 1]
        is_long = block[1:] - block[:-1] > _INLINE
        if valid is not None:
            is_long &= valid[row : row + _BLOCK]
        if is_long.any():
            return int(block[is_long.argmax()])
    return int(offsets[-1])


def hollow(array: arrow_c.Memory) -> bool:
    """Whether an array contains a dictionary without values."""
    inner = array.dictionary
    return (inner is not None and not inner.length) or any(map(hollow, array.children))


def hollow_error() -> UnsupportedConversionError:
    """Return the error for a dictionary without values inside another type, on which polars panics."""
    why = "it has a dictionary without values inside another type"
    remedy = "decode it in Arrow: x.cast(...) to a type without dictionaries"
    return UnsupportedConversionError("", why, remedy, code="dictionary-encoding")


def check_dictionaries(column: ArrowColumn) -> None:
    """Refuse rows whose dictionary, inside another type, has no values."""
    nested = column.field.children and any(part.dictionary for part in column.field.walk())
    if column.length and nested and any(chunk.length and hollow(chunk) for chunk in column.chunks):
        raise hollow_error()


def check_range(column: Column) -> None:
    """Refuse seconds that milliseconds cannot hold, and times outside the day, which polars makes null."""
    if count := outside(column, _bounds):
        assert column.field is not None
        raise obstacles.refuse_range(count, column.field, "polars")


def _bounds(field: Field) -> tuple[int, int] | None:
    if field.kind == "time":
        return 0, DAY[field.unit] - 1
    is_seconds = field.kind in ("timestamp", "duration") and field.unit == "s"
    return (-_MOST_SECONDS, _MOST_SECONDS) if is_seconds else None


def adapted(pa: Any, name: str, array: Any) -> Any:
    """Return an array in types that polars reads correctly: itself if it has them already."""
    kind = array.type
    # Chunks without rows are left out of plans too: such a slice of fixed-size lists would copy the others.
    array = pa.chunked_array([chunk for chunk in array.chunks if len(chunk)] or array.chunks[:1], kind)
    if isinstance(kind, pa.FixedShapeTensorType):
        return adapted(pa, name, nested_lists(array, pa))
    if pa.types.is_dictionary(kind) and not _is_text(pa, kind.value_type):
        parts = [hub().decoded(chunk) for chunk in array.chunks]
        return adapted(pa, name, pa.chunked_array(parts, hub().without_views(kind.value_type)))
    wanted = _wanted(pa, kind)
    if wanted != kind:
        try:
            # One chunk at a time: the cast of a chunked array may join them.
            array = pa.chunked_array([_cast(pa, chunk, wanted) for chunk in array.chunks], wanted)
            array.validate()  # lists of nulls come out too short (pyarrow 26)
        except pa.ArrowException as error:  # values overflow in polars' own cast
            why = f"column {name!r} cannot become {wanted}: {error}"
            raise LossyConversionError("", why, "cast it in Arrow first", code="out-of-range") from error
    if any(is_adapted(arrow_c.read_array(chunk)) for chunk in array.chunks):
        array = hub().copied(array)
    return array


def _cast(pa: Any, chunk: Any, wanted: Any) -> Any:
    try:
        return chunk.cast(wanted)
    except pa.ArrowInvalid:
        if outside_in(chunk, _bounds):
            raise
        return chunk.cast(wanted, safe=False)  # only values in rows that are null overflow


def _wanted(pa: Any, kind: Any) -> Any:
    """Return the type to which an array is cast before polars reads it."""
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
        # In nested types polars reads 16 bytes from elements of 4 or 8: wrong numbers, and
        # reads past the end.
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_fixed_size_binary(kind) and not kind.byte_width:
        return pa.large_binary()  # polars: "FixedSizeBinaryArray expects a positive size"
    return hub().with_fields(kind, lambda field: field.with_type(_wanted(pa, field.type)))


def _is_text(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _becomes(pl: Any, field: Field) -> str:
    """Return the polars type that replaces an Arrow type; an empty string if it does not change."""
    zone = zone_of(pl, field.timezone) if field.timezone else ""
    if field.extension == "arrow.bool8":
        return "Boolean"
    if field.kind in ("fixed_binary", "date", "time"):
        if field.format in ("tdD", "ttn"):
            return ""
        return {"fixed_binary": "Binary", "time": "Time", "date": "Datetime('ms')"}[field.kind]
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
    """Yield the parts of a column's type that are lost or replaced."""
    if not field.nullable:
        yield "polars has no columns that forbid nulls"
    lost = [k.decode(errors="replace") for k in field.metadata if not k.startswith((b"ARROW:ext", b"_PL_"))]
    if lost:
        yield f"its metadata ({', '.join(lost)}) is lost: polars has no metadata"
    if field.extension == "arrow.fixed_shape_tensor":
        yield f"{field} becomes Array of shape {shape_of(field)[0]}"
    for part in field.walk():
        if other := _becomes(pl, part):
            yield f"{part} becomes {other}"
