"""Relations over tables of Arrow, made with the columns of the table before if that had the same schema.

``duckdb.from_arrow`` asks DuckDB's binder for the names and types of each table, which takes most of its
time. The private constructor takes columns that are known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from secrets import token_hex
from typing import Any

from zerocopy._frameworks._private import Private
from zerocopy.tables.hub import hub

_MAKER = Private(
    "duckdb",
    "2.0",
    "_relation.Registered, _seam.register_source, DuckDBPyRelation._make",
    "table of one column: 114 / 689 us, of ten: 117 / 851 us",
)
#: The names and the types of a relation's columns.
Columns = tuple[list[str], list[Any]]
Maker = Callable[[Any, Any, Columns], Any]


def relation_maker(duckdb: Any, check_schema: Callable[[Any], None]) -> Callable[[Any], Any]:
    """Return a function that makes a relation of a ``pyarrow.Table`` on a cursor of the default connection.

    ``check_schema`` raises for a schema that DuckDB cannot read unchanged. It is called if the schema is not
    that of the table before. Types that it accepts belong to no database, so each cursor can use them.
    """
    # Replaced as a whole, because threads share it.
    last: tuple[Any, Columns] | None = None

    def relation(table: Any) -> Any:
        nonlocal last
        # A cursor for each relation, because a connection refuses a second thread.
        known, schema, cursor = last, table.schema, duckdb.default_connection().cursor()
        if known is not None and schema.equals(known[0], check_metadata=True):
            return _maker(duckdb)(cursor, table, known[1])
        check_schema(schema)
        made = duckdb.from_arrow(table, connection=cursor)
        last = schema, (made.columns, made.types)
        return made

    return relation


@cache
def _maker(duckdb: Any) -> Maker:
    """Return ``make(cursor, table, columns)``; it asks the binder if DuckDB's private names are others."""

    def public(cursor: Any, table: Any, _: Columns) -> Any:
        return duckdb.from_arrow(table, connection=cursor)

    fallback: Maker = public
    return _MAKER.choose(lambda: _private_maker(duckdb), lambda make: _agrees(duckdb, make), fallback)


def _private_maker(duckdb: Any) -> Maker:
    from duckdb._relation import Registered
    from duckdb._seam import register_source

    make_relation = duckdb.DuckDBPyRelation._make

    def make(cursor: Any, table: Any, columns: Columns) -> Any:
        handle = register_source(cursor, table)
        named = {"alias": f"arrow_object_{token_hex(8)}", "handles": (handle,)}
        names, types = columns
        return make_relation(cursor, Registered(handle.name), schema=([*names], [*types]), **named)

    return make


def _agrees(duckdb: Any, make: Maker) -> bool:
    """Whether a relation of the private constructor has the same attributes as one of ``from_arrow``."""
    table = hub().module().table({"x": [1, None]})
    public = duckdb.from_arrow(table, connection=duckdb.default_connection().cursor())
    made = make(duckdb.default_connection().cursor(), table, (public.columns, public.types))
    return _attributes(made) == _attributes(public)


def _attributes(relation: Any) -> dict[str, Any]:
    """Return the attributes of a relation; for those that each relation has of its own, their types."""
    values = {name: getattr(relation, name, None) for name in type(relation).__slots__ if name[:2] != "__"}
    own = {name: type(values[name]) for name in ("_alias", "_con", "_step")}
    return values | own | {"_handles": [type(handle) for handle in values["_handles"] or ()]}
