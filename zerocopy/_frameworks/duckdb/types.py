"""DuckDB's types and Arrow's: Arrow types of relations, missing types, and properties that are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from zerocopy.dtype import by_name
from zerocopy.errors import Fix, LossyConversionError, Reason, ZeroCopyError
from zerocopy.protocols.arrow_schema import Field, read_schema
from zerocopy.tables import content
from zerocopy.tables.column import Column
from zerocopy.tables.hub import hub

_TENSOR = {b"ARROW:extension:name": b"arrow.fixed_shape_tensor"}

#: DuckDB's types as Arrow's formats, with its default settings (``DuckDBPyType.id``).
_FORMATS = {
    "null": "n",
    "boolean": "b",
    "float": "f",
    "double": "g",
    "hugeint": "d:38,0",
    "varchar": "u",
    "tinyint": "c",
    "smallint": "s",
    "integer": "i",
    "bigint": "l",
    "utinyint": "C",
    "usmallint": "S",
    "uinteger": "I",
    "ubigint": "L",
    "uuid": "u",
    "blob": "z",
    "date": "tdD",
    "time": "ttu",
    "time_ns": "ttn",
    "interval": "tin",
    "timestamp": "tsu:",
    "timestamp_s": "tss:",
    "timestamp_ms": "tsm:",
    "timestamp_ns": "tsn:",
    "timestamptz_ns": "tsn:UTC",
    "timestamp with time zone": "tsu:UTC",
    "list": "+l",
    "struct": "+s",
    "bignum": "z",
    "geometry": "z",
    "variant": "+s",
}
_INTEGERS = ("tinyint", "smallint", "integer", "bigint")
#: The standard names of DuckDB's types that ``dtype=`` takes.
NUMBERS = {"boolean": "bool", "float": "float32", "double": "float64"}
NUMBERS |= {f"{u}{n}": f"{u}int{8 << i}" for u in ("", "u") for i, n in enumerate(_INTEGERS)}
#: Types whose values DuckDB exports correctly, all of them.
PLAIN = frozenset((*NUMBERS, "varchar"))
_EXTENSIONS = {"bignum": "arrow.opaque", "geometry": "geoarrow.wkb", "variant": "arrow.parquet.variant"}

#: Types that DuckDB exports as another type without an error: why, and an explicit cast.
_CHANGED = {
    "uhugeint": ("Arrow has no integers of 128 bits and DuckDB lets them overflow", ("DOUBLE", "VARCHAR")),
    "time with time zone": ("DuckDB drops its offset from UTC", ("VARCHAR", "TIME")),
    "bit": ("DuckDB exports an encoding of its own as plain bytes", ("VARCHAR", "BLOB")),
}
_NESTED = ("list", "array", "struct", "map", "union")


# -- DuckDB's types -------------------------------------------------------------


def _children(kind: Any) -> list[tuple[str, Any]]:
    # An array's children include its size, which is not a type; types without children raise.
    return [(n, t) for n, t in kind.children if hasattr(t, "id")] if kind.id in _NESTED else []


def field_of(kind: Any, name: str = "") -> Field:
    """Return the Arrow type of a column, for the plan before the query runs."""
    if kind.id in PLAIN:
        return Field(_FORMATS[kind.id], name)
    of, inner = kind.id, tuple(field_of(child, label) for label, child in _children(kind))
    if of == "decimal":
        size = dict(kind.children)
        return Field(f"d:{size['precision']},{size['scale']}", name)
    if of == "enum":
        return Field("C", name, dictionary=Field("u"))
    if of == "map":
        return Field("+m", name, children=(Field("+s", "entries", children=inner),))
    if of == "union":  # its first child is the tag
        return Field("+us:" + ",".join(map(str, range(len(inner) - 1))), name, children=inner[1:])
    if of == "array":
        return Field(f"+w:{dict(kind.children)['size']}", name, children=inner)
    if of == "variant":
        inner = (Field("z", "metadata"), Field("z", "value"))
    metadata = {b"ARROW:extension:name": _EXTENSIONS[of].encode()} if of in _EXTENSIONS else {}
    return Field(_FORMATS.get(of, of), name, metadata=metadata, children=inner)


def changed(kind: Any) -> ZeroCopyError | None:
    """Return the error for a type that DuckDB exports as another type, or None."""
    if kind.id in _CHANGED:
        why, casts = _CHANGED[kind.id]
        fixes = [Fix(f"CAST({{x}} AS {name})") for name in casts]
        return LossyConversionError("", f"it is {kind}: {why}", code="missing-dtype", fixes=fixes)
    inner = next((error for _, child in _children(kind) if (error := changed(child))), None)
    if inner is not None:  # the whole column is cast
        inner.fixes = (Fix("CAST({x} AS VARCHAR)"),)
    return inner


# -- Arrow's types --------------------------------------------------------------


def field_type(column: Column) -> Field:
    """Return a column's Arrow type; for a tensor the type that the hub chooses."""
    if column.field is not None:
        return column.field
    view = column.values(by_name("uint8")).view
    inner = Field.of(view.dtype.name)
    flat = Field(f"+w:{prod(view.shape[1:])}", children=(inner,), metadata=_TENSOR)
    return inner if view.ndim == 1 else flat


#: Types that DuckDB refuses or for which it raises an internal error, each with a remedy.
LACKING: list[tuple[Callable[[Field], bool], str, str]] = [
    (lambda f: f.format == "e", "cast it to float32, which holds all of its values", "cast:float32"),
    (lambda f: f.kind == "decimal" and f.width == 32, "cast it to a narrower decimal", "cast:float64"),
    (lambda f: f.kind == "decimal" and f.scale < 0, "cast it to a scale of 0 or more", "cast:float64"),
    (lambda f: f.format.startswith("+ud"), "convert it to a sparse union", ""),
    # With null codes, a query fails and invalidates the whole database (DuckDB 2.0).
    (
        lambda f: f.dictionary is not None and f.dictionary.kind == "struct",
        "decode it in Arrow: x.dictionary_decode()",
        "",
    ),
    # DuckDB 2.0 crashes for values that are runs, reads codes for dictionaries, and raises for other nests.
    (
        lambda f: f.kind == "run_end_encoded" and bool(f.children[1].children or f.children[1].dictionary),
        "decode its run-end encoding first",
        "",
    ),
    (lambda f: f.kind == "unknown", "cast it to one of Arrow's types", "cast:int64"),
]
#: DuckDB 2.0 reads the codes, or the memory after them, of categories inside fixed-size lists, at any depth.
_DECODED = Reason(
    "DuckDB misreads categories inside fixed-size lists: they are decoded",
    "decode them in Arrow, or store them in lists with offsets",
    code="dictionary-encoding",
)


def decode_reasons(field: Field) -> list[Reason]:
    """Return why a column's categories are decoded."""
    return [_DECODED] if _is_misread(field) else []


def _is_misread(field: Field, inside: bool = False) -> bool:
    """Whether a type has categories inside a fixed-size list."""
    if inside and field.dictionary is not None:
        return True
    inside = inside or field.kind == "fixed_list"
    return any(_is_misread(part, inside) for part in (*field.children, *filter(None, [field.dictionary])))


def decoded(column: Any, pa: Any) -> Any:
    """Return a chunked array that DuckDB reads correctly: itself, or a copy for the reasons."""
    if has_large_nulls(column, pa):
        # A safe cast would refuse values of null rows that overflow; those of other rows were refused before.
        column = column.cast(_in_microseconds(column.type, pa), safe=False)
    if not _is_misread(read_schema(column.type.__arrow_c_schema__())):
        return column
    chunks = [hub().with_decoded_lists(chunk) for chunk in column.chunks or [pa.nulls(0, column.type)]]
    return pa.chunked_array(chunks)


#: DuckDB 2.0 multiplies the values at nulls too, and a query fails if they overflow, as those of NaT do.
LARGE_NULLS = Reason(
    "DuckDB multiplies durations in seconds and milliseconds, and the values at nulls overflow: "
    "they are cast to microseconds",
    "store them in microseconds",
    code="time-unit",
)


def has_large_nulls(array: Any, pa: Any) -> bool:
    """Whether the values at nulls of durations overflow when DuckDB multiplies them."""
    if _in_microseconds(array.type, pa) == array.type:  # in list views, unions or runs, which have no cast
        return False
    scaled = (leaf for leaf in content.leaves(array, pa) if str(leaf.type) in ("duration[s]", "duration[ms]"))
    return any(leaf.null_count and _overflows(leaf) for leaf in scaled)


def _overflows(leaf: Any) -> bool:
    most = _MOST // _TO_US[leaf.type.unit]
    return bool((abs(content.numbers(leaf, np.dtype("i8")).astype("f8")) > most).any())


def _in_microseconds(kind: Any, pa: Any) -> Any:
    if pa.types.is_dictionary(kind) and pa.types.is_duration(kind.value_type):
        kind = kind.value_type  # DuckDB decodes it too
    if pa.types.is_duration(kind):
        return pa.duration("us") if kind.unit in _TO_US else kind
    return hub().with_fields(kind, lambda field: field.with_type(_in_microseconds(field.type, pa)))


_MOST, _MOST_DAYS = 2**63 - 1, 2**31 - 1
_TO_US = {"s": 10**6, "ms": 1000}


def bounds(field: Field) -> tuple[int, int] | None:
    """Return the least and the greatest integer of a type that DuckDB reads unchanged; None if it reads all.

    DuckDB 2.0 reads dates beyond them as infinite. A query on times, seconds or milliseconds beyond them
    fails, and invalidates the database.
    """
    if field.kind == "time":
        return 0, content.DAY[field.unit]
    if field.kind == "date":
        most = (_MOST_DAYS - 1) * (1 if field.unit == "D" else content.DAY["ms"])
    elif field.kind == "timestamp" or (field.kind == "duration" and field.unit in _TO_US):
        most = _MOST // _TO_US[field.unit] if field.unit in _TO_US else _MOST - 1
    else:
        return None
    return -most, most


_TEXT = "DuckDB has one type of text, and returns it as string"
_BYTES = "DuckDB has one type of bytes, and returns them as binary"
_LISTS = "DuckDB has one type of lists, and returns them as list"
_BECOMES = {
    "dictionary": "categories become plain values, and their order is lost",
    "run_end_encoded": "runs become plain values",
    "duration": "durations become INTERVALs, in microseconds",
    "fixed_binary": _BYTES,
    "string_view": _TEXT,
    "binary_view": _BYTES,
    "list_view": _LISTS,
}
_FORMATS_BECOME = {"U": _TEXT, "Z": _BYTES, "+L": _LISTS, "tdm": "dates come back as date32"} | dict.fromkeys(
    ("tts", "ttm"), "times come back in microseconds"
)
_EXTENSIONS_BECOME = {
    "arrow.uuid": "UUIDs come back as text",
    "arrow.json": "JSON comes back as text",
    "arrow.bool8": "booleans come back as bits",
    "arrow.fixed_shape_tensor": "tensors become lists in physical order, and flat lists inside other lists",
}


def changes(field: Field) -> Iterator[str]:
    """Yield the parts of a type that are lost; the values are kept."""
    if field.extension == _EXTENSIONS["geometry"]:
        if field.metadata.get(b"ARROW:extension:metadata", b"{}") not in (b"", b"{}"):
            yield "the metadata of its geometries, such as their coordinate system, is lost"
    elif field.extension:
        lost = f"{field.extension} is lost: DuckDB returns its storage"
        yield _EXTENSIONS_BECOME.get(field.extension, lost)
    elif field.kind in _BECOMES or field.format in _FORMATS_BECOME:
        yield _BECOMES.get(field.kind) or _FORMATS_BECOME[field.format]
    elif field.timezone:
        yield f"DuckDB keeps the instants and not the zone {field.timezone}: it shows the session's zone"
        if field.unit in ("s", "ms"):
            yield "timestamps with a zone come back in microseconds"
    elif field.kind == "decimal" and field.width < 16:
        yield "decimals come back as decimal128"
