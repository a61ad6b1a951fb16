"""Relations over Arrow tables, with the columns of an earlier table that has the same schema.

``duckdb.from_arrow`` asks DuckDB's binder for the names and types of each table. The private constructor
takes known columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from secrets import token_hex
from typing import Any

from zerocopy._frameworks._private import Private
from zerocopy._frameworks.duckdb.types import PLAIN
from zerocopy.tables.hub import hub

_MAKER = Private(
    "duckdb",
    "2.0",
    "_relation.Registered, _seam.register_source, DuckDBPyRelation._make",
    "table of one column: 114 / 689 us, of ten: 117 / 851 us",
)
#: The number of schemas whose columns are kept.
_SCHEMAS = 8
#: The names and the types of a relation's columns.
Columns = tuple[list[str], list[Any]]


def relation_maker(duckdb: Any, check_names: Callable[[list[str]], None]) -> Callable[[Any], Any]:
    """Return a function that makes a relation of a ``pyarrow.Table`` on a cursor of the default connection.

    ``check_names`` is called once for each schema that is not kept. It raises the error for names that DuckDB
    changes.
    """
    # Replaced as a whole: other threads iterate over it.
    kept: tuple[tuple[Any, Columns | None], ...] = ()

    def relation(arrow: Any) -> Any:
        nonlocal kept
        schema, connection = arrow.schema, duckdb.default_connection().cursor()
        for known, columns in kept:
            if schema.equals(known, check_metadata=True):
                if columns is not None:
                    return private_maker(duckdb)(connection, arrow, columns)
                return duckdb.from_arrow(arrow, connection=connection)
        check_names(schema.names)
        made = duckdb.from_arrow(arrow, connection=connection)
        names, types = made.columns, made.types
        # Other types may belong to the database of the connection.
        is_reusable = all(kind.id in PLAIN for kind in types) and private_maker(duckdb) is not None
        kept = ((schema, (names, types) if is_reusable else None), *kept[: _SCHEMAS - 1])
        return made

    return relation


@cache
def private_maker(duckdb: Any) -> Any:
    """Return ``make(connection, arrow, columns)``, or None if the version is unknown or relations differ."""

    def private() -> Any:
        from duckdb._relation import Registered
        from duckdb._seam import register_source

        make_relation = duckdb.DuckDBPyRelation._make

        def make(connection: Any, arrow: Any, columns: Columns) -> Any:
            handle = register_source(connection, arrow)
            named = {"alias": f"arrow_object_{token_hex(8)}", "handles": (handle,)}
            names, types = columns
            return make_relation(connection, Registered(handle.name), schema=([*names], [*types]), **named)

        return make

    def agrees(make: Any) -> bool:
        arrow = hub().module().table({"x": [1, None]})
        public = duckdb.from_arrow(arrow, connection=duckdb.default_connection().cursor())
        made = make(duckdb.default_connection().cursor(), arrow, (public.columns, public.types))
        return _parts(made) == _parts(public)

    return _MAKER.choose(private, agrees, None)


def _parts(relation: Any) -> dict[str, Any]:
    """Return the attributes of a relation; for those that each relation has of its own, their types."""
    parts = {name: getattr(relation, name, None) for name in type(relation).__slots__ if name[:2] != "__"}
    for name in ("_alias", "_con", "_step"):
        parts[name] = type(parts[name])
    parts["_handles"] = [type(handle) for handle in parts["_handles"] or ()]
    return parts
