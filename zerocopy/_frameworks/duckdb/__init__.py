"""DuckDB: relations. The result of a query is a copy; the memory that a relation scans is aliased.

A relation is a query that has not run. It is described by its types, and runs when it is
converted. In the other direction, ``duckdb.from_arrow`` reads Arrow memory in place, each
time that a query on the relation runs, and keeps that memory alive.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.duckdb.relations import relation_maker
from zerocopy._frameworks.duckdb.types import (
    LACKING,
    LARGE_NULLS,
    NUMBERS,
    PLAIN,
    bounds,
    changed,
    changes,
    decode_reasons,
    decoded,
    field_of,
    field_type,
    has_large_nulls,
)
from zerocopy._native import core
from zerocopy.dtype import DType, by_name
from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.source import Array, Source, type_name
from zerocopy.tables import content
from zerocopy.tables.arrow_column import UnreadColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.hub import NAME as HUB, hub
from zerocopy.tables.labels import RENAME, combine_errors, text_warnings
from zerocopy.tables.lists import nested_lists

COPIES = Reason(
    "DuckDB copies its results",
    "convert the object that the relation reads instead of the relation",
    code="exporter-copies",
)

_LIVE = (
    "DuckDB reads the memory each time that a query on the relation runs: writing to the source "
    "changes what later queries return (copy=True takes a snapshot)"
)


class DuckDB(Framework):
    """``DuckDBPyRelation``, which is a table. Each result is on a cursor of its own.

    The cursor belongs to the default connection or to the option ``connection=``, whose queries find the
    relation by its Python name. DuckDB refuses a connection that two threads use at once, so relations
    do not share one. A connection to another database cannot read the relation.
    """

    name = "duckdb"
    types = ("DuckDBPyRelation",)
    kind = "table"
    kinds: Mapping[str, Any] = {"DuckDBPyConnection": None}
    # Older versions fail the tests, and some give wrong values.
    min_version = "2.0"
    root_modules = ("duckdb", "_duckdb")
    distribution = "duckdb"
    actions: Mapping[str, Fix] = {
        "column": Fix('"{name}"'),
        "replace": Fix("{x}.project('* REPLACE ({value} AS \"{name}\")')"),
        "cast:float64": Fix("CAST({x} AS DOUBLE)"),
        "cast:float32": Fix("CAST({x} AS FLOAT)"),
        "seconds": Fix("epoch({x})", "gives seconds"),
        "fill-nulls": Fix("coalesce({x}, {type})"),
        "rename-columns": Fix(
            "zc.convert({x}, 'pyarrow')"
            ".rename_columns([f'{{name}}_{{i}}' for i, name in enumerate({x}.columns)])",
            "numbers the names",
        ),
    }
    mutable = False
    packs_booleans = True
    keeps_metadata = False
    runs_queries = True
    options = ("connection",)

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
        refuse(
            (label, changed(kind)) for label, kind in zip(labels, types, strict=True) if kind.id not in PLAIN
        )
        columns = [UnreadColumn(name, field_of(kind), (COPIES,)) for kind in types]
        return Table(name, labels, columns, 0, read=lambda: self._read(obj, name), obj=obj)

    def _read(self, relation: Any, name: str) -> Table:
        """Run the query, and refuse values that DuckDB exports incorrectly."""
        try:
            # Not a reader: a connection has one open result, and refuses the next query until it is
            # drained. Not torch() or similar: nulls become 0 (docs/hazards/duckdb.md).
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

    def fast_exporters(self, cls: type) -> dict[str, Callable[..., Any]]:
        if cls is not self.module().DuckDBPyRelation:
            return {}

        def result(relation: Any, target: Any) -> tuple[None, Any, None]:
            # Types whose values need no check, so that a query does not run twice.
            if not {kind.id for kind in relation.types} <= PLAIN:
                raise ValueError("types that need a check: the slow path decides")
            if target is hub() or core is None:
                return None, relation.to_arrow_table(), None
            names, rows = relation.columns, _Rows(relation.__arrow_c_stream__())
            # Settings of the connection can change types, for example text to views.
            is_plain = core.plain_schema_key(rows.stream) is not None and len({*names}) == len(names)
            return None, rows if is_plain else hub().module().table(rows), None

        def arrays(relation: Any, types: list[Any]) -> dict[str, Array]:
            # In a third of the time of reading an Arrow table into new arrays.
            names = relation.columns
            if not {kind.id for kind in types} <= NUMBERS.keys() or len({*names}) != len(names):
                raise ValueError("other types, or duplicate names: the slow path decides")
            arrays: dict[str, Array] = relation.fetchnumpy()
            if {*map(type, arrays.values())} != {np.ndarray}:
                raise ValueError("nulls, which the slow path refuses")
            return arrays

        def matrix(relation: Any) -> Array:
            types = relation.types
            if not types or types.count(types[0]) != len(types):
                raise ValueError("columns of several types: the slow path decides")
            made: Array = core.stack(arrays(relation, types[:1]).values())
            return made

        def columns(relation: Any, index: object = None) -> list[tuple[str, Array]]:
            return [*arrays(relation, relation.types).items()]

        forms: dict[str, Callable[..., Any]] = {"hub": result, "columns": columns}
        return forms if core is None else forms | {"matrix": matrix}

    def parse_dtype(self, spec: Any) -> DType | None:
        name = NUMBERS.get(str(spec).lower())
        return None if name is None else by_name(name)

    # -- target ---------------------------------------------------------------

    def fast_importers(self) -> dict[str, Callable[..., Any]]:
        if not registry.is_imported(HUB):
            return {}
        pa, array_of = hub().module(), hub().fast_importers().get("ndarray")
        plain = hub().plain_types | {pa.string_view()}  # polars' text is views

        def check_schema(schema: Any) -> None:
            check_names(schema.names)
            if not plain.issuperset(schema.types):
                raise ValueError("float16, or dates, whose range the slow path checks")

        relation_of = relation_maker(self.module(), check_schema)

        def of_hub(named: tuple[str | None, Any, Any]) -> Any:
            name, arrow, schema = named
            if name is None:
                return relation_of(hub().as_table(arrow, schema))
            return relation_of(pa.Table.from_arrays([hub().as_array(arrow)], names=[name or "column_0"]))

        def ndarray(source: Any) -> Any:
            values = array_of(source)
            if not isinstance(values, pa.Array) or not len(values) or values.type == "halffloat":
                raise ValueError("another shape or type: the slow path decides")
            return of_hub(("", values, None))

        return {"hub": of_hub} | ({} if array_of is None else {"ndarray": ndarray})

    def column_reasons(self, column: Column) -> list[Reason]:
        reasons = column.arrow_reasons()  # refuses types that Arrow lacks
        field = field_type(column)
        for part in field.walk():
            for lacks, remedy, cast in LACKING:
                if lacks(part):
                    effect = "rounds to floats" if cast == "cast:float64" else ""
                    fixes = [Fix(action=cast, effect=effect)] if cast and part is field else []
                    why = f"it {'is' if part is field else 'has inside it'} {part}, which DuckDB lacks"
                    remedy = "" if fixes else remedy
                    raise UnsupportedConversionError("", why, remedy, code="missing-dtype", fixes=fixes)
        reasons += decode_reasons(field)
        scaled = any(part.kind == "duration" and part.unit in ("s", "ms") for part in field.walk())
        if column.length and scaled and has_large_nulls(column.arrow(), hub().module()):
            reasons.append(LARGE_NULLS)
        nanoseconds = column.length and any(part.format in ("tDn", "tin") for part in field.walk())
        # DuckDB truncates durations to microseconds without an error.
        if nanoseconds and (count := sum(map(_below_us, content.leaves(column.arrow(), hub().module())))):
            why = f"it has {count:,} durations with fractions of a microsecond, which DuckDB's intervals lack"
            fix = Fix(action="truncate:us", effect="drops the fractions")
            fix = Fix(action="split-interval") if field.kind == "interval" else fix  # Arrow cannot cast it
            fixes = [fix] if not field.children else []
            remedy = "" if fixes else "drop the fractions, or leave the column out with columns=[...]"
            raise LossyConversionError("", why, remedy, code="time-unit", fixes=fixes)
        if count := content.outside(column, bounds):
            raise obstacles.refuse_range(count, field, "DuckDB")
        return reasons

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        obstacles.check_utf8(table.labels, "DuckDB")
        _check_names(table)
        if table.options:
            self._cursor(table)  # refuses an object that is not an open connection
        return super().table_reasons(table)

    def _cursor(self, table: Table) -> Any:
        """Return a cursor of the option ``connection=``, or of the default connection."""
        duckdb = self.module()
        connection = table.options.get("connection")
        if connection is None:
            return duckdb.default_connection().cursor()
        fixes = [Fix(options={"connection": None}, effect="uses the default connection")]
        if not isinstance(connection, duckdb.DuckDBPyConnection):
            why = f"connection= is {type_name(connection)}, which is not a connection of DuckDB"
            raise UnsupportedConversionError("", why, code="option-value", fixes=fixes)
        try:
            return connection.cursor()
        except duckdb.Error as error:
            why = f"connection= cannot be used: {error}"
            raise UnsupportedConversionError("", why, code="option-value", fixes=fixes) from error

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        warnings = []
        for label, column in zip(table.labels, table.columns, strict=True):
            texts = dict.fromkeys(text for part in field_type(column).walk() for text in changes(part))
            warnings += [f"column {label!r}: {text}" for text in texts]
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
        columns = [
            nested_lists(column, pa)
            if isinstance(column.type, pa.FixedShapeTensorType)
            else decoded(column, pa)
            for column in arrow.columns
        ]
        if columns != arrow.columns:
            fields = [f.with_type(c.type) for f, c in zip(arrow.schema, columns, strict=True)]
            arrow = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        # A cursor per relation, because a connection refuses a second thread.
        return duckdb.from_arrow(arrow, connection=self._cursor(table))

    def from_column(self, table: Table) -> Any:
        return self.from_table(replace(table, labels=[str(table.labels[0]) or "column_0"]))


class _Rows:
    """The stream of a query that has begun to run."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.stream


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


# -- values that DuckDB exports or imports incorrectly --------------------------


def _below_us(leaf: Any) -> int:
    """Count durations with fractions of a microsecond."""
    if str(leaf.type) == "duration[ns]":
        return content.count(leaf, np.dtype(np.int64), lambda values: values % 1000 != 0)
    if str(leaf.type) == "month_day_nano_interval":
        parts = np.dtype([("months", "i4"), ("days", "i4"), ("nanoseconds", "i8")])
        return content.count(leaf, parts, lambda values: values["nanoseconds"] % 1000 != 0)
    return 0


def _infinite(leaf: Any) -> int:
    """Count infinite dates, which DuckDB exports as the greatest integer, a valid date."""
    date = str(leaf.type) == "date32[day]"
    if not date and not str(leaf.type).startswith("timestamp"):
        return 0
    dtype = np.dtype("i4" if date else "i8")
    most = 2 ** (8 * dtype.itemsize - 1) - 1
    return content.count(leaf, dtype, lambda values: (values == most) | (values == -most))


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
    arrays = list(content.leaves(column, hub().module()))
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


def _check_names(table: Table) -> None:
    """Refuse names that DuckDB would change silently.

    These are names that differ only in the case of ASCII letters, empty names, and names with a
    NUL, which ends a name in Arrow's schema.
    """
    if not table.columns:
        why = "it has no columns, and a table of DuckDB has at least one"
        raise UnsupportedConversionError("", why, code="no-columns")
    check_names(table.labels, table.single)


def check_names(labels: Iterable[Any], single: bool = False) -> None:
    seen: dict[bytes, str] = {}
    for label in map(str, labels):
        if (not label and not single) or "\0" in label:
            why = f"a column is called {label!r}, which DuckDB would change"
            raise UnsupportedConversionError("", why, "rename it", code="column-name")
        same = label.encode(errors="surrogatepass").lower()  # bytes: ASCII letters only, as in DuckDB
        if same in seen:
            why = f"DuckDB does not distinguish the names {seen[same]!r} and {label!r}, and would rename one"
            raise UnsupportedConversionError("", why, code="duplicate-names", fixes=[RENAME])
        seen[same] = label


FRAMEWORK = DuckDB()
