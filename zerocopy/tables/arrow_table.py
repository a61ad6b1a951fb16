"""Tables and columns of objects that have the Arrow PyCapsule interface and no framework file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from zerocopy import registry
from zerocopy.device import HOST
from zerocopy.errors import UnsupportedConversionError
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Source, type_name
from zerocopy.tables.arrow_column import ArrowColumn, Typed
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import as_tensor


def describe(obj: Any, for_table: bool = False) -> Table:
    """Describe an object that exports an Arrow stream or array.

    Parameters
    ----------
    obj : object
        With ``__arrow_c_stream__``, ``__arrow_c_device_array__`` or ``__arrow_c_array__``.
    for_table : bool
        Whether the target is a table framework: pyarrow then reads the stream.

    Raises
    ------
    UnsupportedConversionError
        The producer raised, or its structs are invalid.
    """
    if hasattr(type(obj), "__arrow_c_stream__"):
        return _stream(obj, for_table)
    return table_of_chunks(obj, [_chunk(obj)])


def as_array(obj: Any) -> Source:
    """Describe an object that exports an Arrow array of numbers without nulls as one array.

    Raises
    ------
    ZeroCopyError
        The type is not one of tensors, or there are nulls.
    """
    chunk = _chunk(obj)
    name = type_name(obj)
    return as_tensor(ArrowColumn(name, chunk.field, lambda: [chunk], chunk.length, device=chunk.device))


def _chunk(obj: Any) -> arrow_c.Memory:
    on_device = hasattr(type(obj), "__arrow_c_device_array__")
    return arrow_c.read_device_array(obj) if on_device else arrow_c.read_array(obj)


def _stream(obj: Any, for_table: bool) -> Table:
    """Describe a stream by its schema: many streams can be read only once."""
    name, field = type_name(obj), arrow_c.read_field(obj)

    def read() -> Table:
        if for_table:
            hub: Any = _hub()
            whole: Table = hub.table(hub.read_all(obj))
            return replace(whole, name=name)
        schema, batches = arrow_c.read_stream(obj)
        return table_of_chunks(obj, list(batches), schema)

    single = field is not None and (field.kind != "struct" or bool(field.extension))
    parts = () if field is None else (field,) if single else field.children
    columns = [Typed(name, part) for part in parts]
    labels = [part.name for part in parts]
    return Table(name, labels, columns, 0, single=single, read=read, once=True, obj=obj)


def table_of_chunks(obj: Any, chunks: Sequence[arrow_c.Memory], schema: Field | None = None) -> Table:
    """Return Arrow memory as a table, or as one column unless its type is a struct.

    Raises
    ------
    UnsupportedConversionError
        A row of a struct is null as a whole.
    """
    name, field = type_name(obj), schema if schema is not None else chunks[0].field
    whole = ArrowColumn(
        name,
        field,
        lambda: chunks,
        sum(chunk.length for chunk in chunks),
        lambda: _hub().read_all(obj),
        device=chunks[0].device if chunks else HOST,
    )
    if field.kind != "struct" or field.extension:
        return Table(name, [field.name], [whole], whole.length, single=True, obj=obj)
    if whole.null_count:
        raise UnsupportedConversionError(
            "",
            f"{whole.null_count:,} of its rows are null, and a table has no null rows",
            "drop them first",
            code="nulls",
        )
    columns = [_child(whole, i, obj) for i in range(len(field.children))]
    labels = [child.name for child in field.children]
    return Table(name, labels, columns, whole.length, metadata=field.metadata, obj=obj)


def _child(whole: ArrowColumn, index: int, obj: Any) -> Column:
    column = whole.child(index)
    assert isinstance(column, ArrowColumn)
    column.name = whole.name
    column._arrow = lambda: _hub().read_all(obj).column(index)
    return column


def _hub() -> Any:
    hub = registry.by_name("pyarrow")
    hub.module()
    return hub
