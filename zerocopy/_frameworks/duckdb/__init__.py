"""DuckDB: relations. The result of a query is a copy; the memory that a relation scans is aliased.

A relation is a query that has not run. It is described by its types, and runs when it is
converted. In the other direction, ``duckdb.from_arrow`` reads Arrow memory in place, each
time that a query on the relation runs, and keeps that memory alive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from zerocopy._frameworks.duckdb.leaves import leaves, numbers
from zerocopy.dtype import DType, by_name
from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Source
from zerocopy.tables.arrow_column import UnreadColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.fixed_shape import nested_lists
from zerocopy.tables.hub import hub
from zerocopy.tables.labels import text_warnings
from zerocopy.tables.summary import combine_errors

COPIES = Reason(
    "DuckDB copies its results",
    "convert the object that the relation reads instead of the relation",
    code="exporter-copies",
)

_LIVE = (
    "DuckDB reads the memory each time that a query on the relation runs: writing to the source "
    "changes what later queries return (copy=True takes a snapshot)"
)
_TENSOR = {b"ARROW:extension:name": b"arrow.fixed_shape_tensor"}

#: DuckDB's types as Arrow's formats, with its default settings (``DuckDBPyType.id``).
_FORMATS: dict[str, str] = dict(
    re.findall(
        r"(\w+)=(\S+)",
        "null=n boolean=b tinyint=c smallint=s integer=i bigint=l utinyint=C usmallint=S uinteger=I "
        "ubigint=L float=f double=g hugeint=d:38,0 varchar=u uuid=u blob=z date=tdD time=ttu time_ns=ttn "
        "timestamp=tsu: timestamp_s=tss: timestamp_ms=tsm: timestamp_ns=tsn: timestamptz_ns=tsn:UTC "
        "interval=tin list=+l struct=+s bignum=z geometry=z variant=+s",
    )
)
_FORMATS["timestamp with time zone"] = "tsu:UTC"
_INTEGERS = ("tinyint", "smallint", "integer", "bigint")
#: The standard names of DuckDB's types that ``dtype=`` takes.
_NUMBERS = {"boolean": "bool", "float": "float32", "double": "float64"}
_NUMBERS |= {f"{u}{n}": f"{u}int{8 << i}" for u in ("", "u") for i, n in enumerate(_INTEGERS)}
_EXTENSIONS = {"bignum": "arrow.opaque", "geometry": "geoarrow.wkb", "variant": "arrow.parquet.variant"}

#: Types that DuckDB exports as another type without an error: why, and an explicit cast.
_CHANGED = {
    "uhugeint": ("Arrow has no integers of 128 bits and DuckDB lets them overflow", ("DOUBLE", "VARCHAR")),
    "time with time zone": ("DuckDB drops its offset from UTC", ("VARCHAR", "TIME")),
    "bit": ("DuckDB exports an encoding of its own as plain bytes", ("VARCHAR", "BLOB")),
}
_NESTED = ("list", "array", "struct", "map", "union")


class DuckDB(Framework):
    """``DuckDBPyRelation``, which is a table. Each result is on its own connection.

    The connection is a cursor of the default connection: ``duckdb.sql("select * from x")`` finds
    the relation by its Python name, and two threads never use one connection, which DuckDB
    refuses. Join relations of several connections in SQL.
    """

    name = "duckdb"
    types = ("DuckDBPyRelation",)
    kind = "table"
    # Older versions fail the tests, and some give wrong values.
    min_version = "2.0"
    root_modules = ("duckdb", "_duckdb")
    distribution = "duckdb"
    actions: Mapping[str, Fix] = {
        "column": Fix('"{name}"'),
        "replace": Fix("{x}.project('* REPLACE ({value} AS \"{name}\")')"),
        "cast:float64": Fix("CAST({x} AS DOUBLE)"),
        "cast:float32": Fix("CAST({x} AS FLOAT)"),
        "seconds": Fix("epoch({x})"),
        "fill-nulls": Fix("coalesce({x}, 0)"),
    }
    mutable = False
    loading_hook = "zerocopy._frameworks.duckdb.loading:DuckDBLoading"

    def owns(self, cls: type) -> bool:
        duckdb = self.module()
        return issubclass(cls, (duckdb.DuckDBPyRelation, duckdb.DuckDBPyConnection))

    def is_native(self, obj: Any) -> bool:
        return isinstance(obj, self.module().DuckDBPyRelation)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        name = _name(obj)
        if not self.is_native(obj):
            raise _no_result(name)
        why = "a relation is a table and not one array"
        fixes = [Fix('zc.convert({x}, "numpy")', "gives a dict of arrays")]
        raise UnsupportedConversionError(f"convert({name})", why, code="not-an-array", fixes=fixes)

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        name = _name(obj)
        if not self.is_native(obj):
            raise _no_result(name)
        try:
            labels, types = obj.columns, obj.types
        except self.module().Error as error:
            why = f"the relation cannot be used any more: {error}"
            asked = f"convert({name})"
            raise UnsupportedConversionError(asked, why, "create it again", code="framework-error") from error
        refuse((label, _changed(kind)) for label, kind in zip(labels, types, strict=True))
        columns = [UnreadColumn(name, _field_of(kind), (COPIES,)) for kind in types]
        return Table(name, labels, columns, 0, read=lambda: self._read(obj, name), obj=obj)

    def _read(self, relation: Any, name: str) -> Table:
        """Run the query, and refuse values that DuckDB exports incorrectly."""
        try:
            # Not a reader: a connection has one open result, and refuses the next query until it is
            # drained. Not torch() or similar: nulls become 0 (hazard 2).
            result = relation.to_arrow_table()
        except self.module().Error as error:
            asked = f"convert({name})"
            why = f"the query failed: {error}"
            remedy = "fix the query; if the connection is busy, use con.cursor() for one of the two"
            raise UnsupportedConversionError(asked, why, remedy, code="framework-error") from error
        try:
            refuse((n, wrong(c)) for n, c in zip(result.column_names, result.columns, strict=True))
        except ZeroCopyError as error:
            raise error.with_context(asked=f"convert({name})") from error.__cause__
        table: Table = hub().table(result)
        for column in table.columns:
            column.reasons = (COPIES,)
        return replace(table, name=name, obj=None)

    def parse_dtype(self, spec: Any) -> DType | None:
        name = _NUMBERS.get(str(spec).lower())
        return None if name is None else by_name(name)

    # -- target ---------------------------------------------------------------

    def column_reasons(self, column: Column) -> list[Reason]:
        reasons = column.arrow_reasons()  # refuses types that Arrow lacks
        field = _field(column)
        for part in field.walk():
            for lacks, remedy, cast in _LACKING:
                if lacks(part):
                    effect = "rounds to floats" if cast == "cast:float64" else ""
                    fixes = [Fix(action=cast, effect=effect)] if cast and part is field else []
                    why = f"it {'is' if part is field else 'has inside it'} {part}, which DuckDB lacks"
                    remedy = "" if fixes else remedy
                    raise UnsupportedConversionError("", why, remedy, code="missing-dtype", fixes=fixes)
        nanoseconds = column.length and any(part.format in ("tDn", "tin") for part in field.walk())
        # DuckDB truncates durations to microseconds without an error.
        if nanoseconds and (count := sum(map(_below_us, leaves(column.arrow(), hub().module())))):
            why = f"it has {count:,} durations with fractions of a microsecond, which DuckDB's intervals lack"
            remedy = "round them: x.cast(pyarrow.duration('us'), safe=False)"
            raise LossyConversionError("", why, remedy, code="time-unit")
        return reasons

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        _check_names(table)
        warnings = []
        for label, column in zip(table.labels, table.columns, strict=True):
            changes = dict.fromkeys(text for part in _field(column).walk() for text in _changes(part))
            warnings += [f"column {label!r}: {text}" for text in changes]
        if table.metadata:
            warnings.append("DuckDB has no metadata: the schema's is lost")
        if table.index:
            warnings.append(f"DuckDB has no index: it becomes {table.index} ordinary columns")
        return (*warnings, *text_warnings("DuckDB", table.labels))

    def alias_warnings(self, table: Table) -> tuple[str, ...]:
        return (_LIVE,)

    def from_table(self, table: Table) -> Any:
        duckdb = self.module()
        _check_names(table)
        arrow = hub().from_table(table)
        pa = hub().module()
        # DuckDB would read the storage of tensors, which is flat lists without the shape.
        tensors = [isinstance(kind, pa.FixedShapeTensorType) for kind in arrow.schema.types]
        if any(tensors):
            both = zip(arrow.columns, tensors, strict=True)
            columns = [nested_lists(column, pa) if tensor else column for column, tensor in both]
            fields = [f.with_type(c.type) for f, c in zip(arrow.schema, columns, strict=True)]
            arrow = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        # A cursor per relation, because a connection refuses a second thread.
        return duckdb.from_arrow(arrow, connection=duckdb.default_connection().cursor())

    def from_column(self, table: Table) -> Any:
        return self.from_table(replace(table, labels=[str(table.labels[0]) or "column_0"]))


def _name(obj: Any) -> str:
    return f"duckdb.{type(obj).__qualname__}"


def _no_result(name: str) -> UnsupportedConversionError:
    # execute() returns the connection, whose result may already be read in part.
    why = "a connection is not a table, and execute() returns the connection"
    remedy = "pass a relation: con.sql(query)"
    return UnsupportedConversionError(f"convert({name})", why, remedy, code="not-an-array")


def refuse(errors: Iterable[tuple[Hashable, ZeroCopyError | None]]) -> None:
    if refused := {label: error for label, error in errors if error is not None}:
        raise combine_errors(refused)


# -- DuckDB's types -------------------------------------------------------------


def _children(kind: Any) -> list[tuple[str, Any]]:
    # An array's children include its size, which is not a type; types without children raise.
    return [(n, t) for n, t in kind.children if hasattr(t, "id")] if kind.id in _NESTED else []


def _field_of(kind: Any, name: str = "") -> Field:
    """Return the Arrow type of a column, for the plan before the query runs."""
    of, inner = kind.id, tuple(_field_of(child, label) for label, child in _children(kind))
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


def _changed(kind: Any) -> ZeroCopyError | None:
    """Return the error for a type that DuckDB exports as another type, or None."""
    if kind.id in _CHANGED:
        why, casts = _CHANGED[kind.id]
        fixes = [Fix(f"CAST({{x}} AS {name})") for name in casts]
        return LossyConversionError("", f"it is {kind}: {why}", code="missing-dtype", fixes=fixes)
    inner = next((error for _, child in _children(kind) if (error := _changed(child))), None)
    if inner is not None:  # the whole column is cast
        inner.fixes = (Fix("CAST({x} AS VARCHAR)"),)
    return inner


# -- values that DuckDB exports or imports incorrectly --------------------------


def _below_us(leaf: Any) -> int:
    """Count durations with fractions of a microsecond."""
    import numpy as np

    if str(leaf.type) == "duration[ns]":
        return int(np.count_nonzero(numbers(leaf, np.int64) % 1000))
    if str(leaf.type) == "month_day_nano_interval":
        parts = np.dtype([("months", "i4"), ("days", "i4"), ("nanoseconds", "i8")])
        return int(np.count_nonzero(numbers(leaf, parts)["nanoseconds"] % 1000))
    return 0


def _infinite(leaf: Any) -> int:
    """Count infinite dates, which DuckDB exports as the greatest integer, a valid date."""
    import numpy as np

    date = str(leaf.type) == "date32[day]"
    if not date and not str(leaf.type).startswith("timestamp"):
        return 0
    values = numbers(leaf, np.int32 if date else np.int64)
    most = np.iinfo(values.dtype).max
    return int(np.count_nonzero((values == most) | (values == -most)))


def _too_wide(leaf: Any) -> bool:
    """Whether integers of 128 bits do not fit in the 38 digits of the decimals that DuckDB exports."""
    try:
        if str(leaf.type) == "decimal128(38, 0)":
            leaf.validate(full=True)
    except ValueError:  # pyarrow.ArrowInvalid
        return True
    return False


def wrong(column: Any) -> ZeroCopyError | None:
    """Return the error for a column of a result whose values are not those of the query, or None."""
    arrays = list(leaves(column, hub().module()))
    if count := sum(map(_infinite, arrays)):
        why = f"it has {count:,} infinite dates, which Arrow lacks"
        fix = Fix("CASE WHEN isfinite({x}) THEN {x} END", "makes them null")
    elif any(map(_too_wide, arrays)):
        why = "it has integers of more than 38 digits, which DuckDB's decimals for Arrow cannot hold"
        fix = Fix("CAST({x} AS DOUBLE)")
    elif any(map(_below_us, arrays)):
        # DuckDB multiplies its microseconds by 1000: a value that is not a multiple of 1000 overflowed.
        # (125 overflows are not detected: intervals of 73,000 years and multiples of it.)
        why = "it has intervals past 292 years of hours, which overflow Arrow's nanoseconds"
        fix = Fix("epoch({x})", "gives seconds")
    else:
        return None
    return LossyConversionError("", why, code="out-of-range", fixes=[fix])


# -- Arrow's types --------------------------------------------------------------


def _field(column: Column) -> Field:
    """Return a column's Arrow type; for a tensor the type that the hub chooses."""
    if column.field is not None:
        return column.field
    view = column.values(by_name("uint8")).view
    inner = Field.of(view.dtype.name)
    flat = Field(f"+w:{prod(view.shape[1:])}", children=(inner,), metadata=_TENSOR)
    return inner if view.ndim == 1 else flat


#: Types that DuckDB refuses or for which it raises an internal error, each with a remedy.
_LACKING: list[tuple[Callable[[Field], bool], str, str]] = [
    (lambda f: f.format == "e", "cast it to float32, which holds all of its values", "cast:float32"),
    (lambda f: f.kind == "decimal" and f.width == 32, "cast it to a narrower decimal", "cast:float64"),
    (lambda f: f.kind == "decimal" and f.scale < 0, "cast it to a scale of 0 or more", "cast:float64"),
    (lambda f: f.format.startswith("+ud"), "convert it to a sparse union", ""),
    (lambda f: f.kind == "unknown", "cast it to one of Arrow's types", "cast:int64"),
]

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


def _changes(field: Field) -> Iterator[str]:
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


def _check_names(table: Table) -> None:
    """Refuse names that DuckDB would change silently.

    These are names that differ only in the case of ASCII letters, empty names, and names with a
    NUL, which ends a name in Arrow's schema.
    """
    if not table.columns:
        why = "it has no columns, and a table of DuckDB has at least one"
        raise UnsupportedConversionError("", why, code="no-columns")
    seen: dict[bytes, str] = {}
    for label in map(str, table.labels):
        if (not label and not table.single) or "\0" in label:
            why = f"a column is called {label!r}, which DuckDB would change"
            raise UnsupportedConversionError("", why, "rename it", code="column-name")
        same = label.encode(errors="surrogatepass").lower()  # bytes: ASCII letters only, as in DuckDB
        if same in seen:
            why = f"DuckDB does not distinguish the names {seen[same]!r} and {label!r}, and would rename one"
            raise UnsupportedConversionError("", why, "rename one of them", code="duplicate-names")
        seen[same] = label


FRAMEWORK = DuckDB()
