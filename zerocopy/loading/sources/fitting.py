"""Sources with the columns and types that the caller passed in ``columns=`` and ``schema=``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any

from zerocopy.errors import LossyConversionError, UnsupportedConversionError
from zerocopy.loading.dataset import Dataset, Stream, derived
from zerocopy.protocols.exporter_errors import is_error


def choose(columns: Sequence[Hashable] | None, names: Sequence[Hashable]) -> list[Hashable]:
    """Return the columns to read, in their order."""
    chosen = list(names if columns is None else columns)
    for name in chosen:
        count = list(names).count(name)
        if count == 1:
            continue
        if count:
            why, fix = f"{count} columns are called {name!r}", "rename them"
            raise UnsupportedConversionError("loader(...)", why, fix, code="duplicate-names")
        near = get_close_matches(str(name), [str(each) for each in names], 3)
        why = f"the source has no column {name!r}"
        why += f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        listed = ", ".join(map(repr, names[:20])) + ", ..." * (len(names) > 20)
        raise UnsupportedConversionError(
            f"loader(columns={chosen!r})", why, f"choose from {listed}", code="unknown-name"
        )
    return chosen


def as_schema(schema: Any) -> Any:
    """Return the option ``schema=`` as a ``pyarrow.Schema``."""
    import pyarrow as pa

    if isinstance(schema, pa.Schema):
        return schema
    if not isinstance(schema, Mapping):
        why = "it must be a pyarrow.Schema, or a dict of the types of all columns"
        raise UnsupportedConversionError(f"loader(schema={schema!r})", why, 'pass schema={"x": "float64"}')
    try:
        return pa.schema([(name, _as_type(kind)) for name, kind in schema.items()])
    except (pa.ArrowException, TypeError, ValueError) as error:
        if not is_error(error):
            raise
        why, fix = str(error), 'pass the names of Arrow types, such as schema={"x": "float64"}'
        raise UnsupportedConversionError(f"loader(schema={schema!r})", why, fix) from error


def _as_type(kind: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    if isinstance(kind, (pa.DataType, str)):
        return kind if isinstance(kind, pa.DataType) else pa.type_for_alias(kind)
    return pa.from_numpy_dtype(np.dtype(kind))


def fit(schema: Any, table: Any, place: str, constants: Mapping[str, Any] | None = None) -> Any:
    """Return the columns of `schema`: cast, and with nulls, or a constant, for those that are missing.

    `place` names the rows in the message of a value that does not fit its type.
    """
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    names, columns = table.column_names, []
    for field in schema:
        if names.count(field.name) > 1:
            choose([field.name], names)
        if field.name in names:
            column = table.column(field.name)
        elif constants and field.name in constants:
            column = pa.repeat(pa.scalar(constants[field.name], field.type), table.num_rows)
        else:
            column = pa.nulls(table.num_rows, field.type)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            why = f"column {field.name!r} is {column.type}, which cannot be cast to {field.type}: {error}"
            fix = "pass a type that holds all values in schema="
            raise LossyConversionError(f"reading {place}", why, fix, code="lossy-cast") from error
    return pa.Table.from_arrays(columns, schema=schema) if columns else table.select([])


def fitted(source: Dataset | Stream, columns: Sequence[Hashable] | None, schema: Any) -> Dataset | Stream:
    """Return a source with the columns that the caller asks for; one without a schema is unchanged."""
    if source.schema is None or (columns is None and schema is None):
        return source
    target = source.schema if schema is None else as_schema(schema)
    if columns is not None:
        target = type_of(target, choose(columns, target.names))
    else:
        choose(None, target.names)
    return source if target.equals(source.schema) else derived(source, target, partial(fit, target))


def type_of(schema: Any, names: Sequence[Hashable]) -> Any:
    """Return the schema of some columns, in the order of `names`."""
    import pyarrow as pa

    return pa.schema([schema.field(name) for name in names])
