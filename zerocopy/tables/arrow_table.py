"""Tables and columns of objects that have the Arrow PyCapsule interface and no framework file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from zerocopy.device import HOST
from zerocopy.errors import Fix, UnsupportedConversionError
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import Field
from zerocopy.protocols.exporter_errors import malformed
from zerocopy.source import Source, type_name
from zerocopy.tables.arrow_column import ArrowColumn, UnreadColumn
from zerocopy.tables.column import ArrowArray, Column, Table
from zerocopy.tables.decode import as_tensor
from zerocopy.tables.hub import hub


def describe(obj: object, for_table: bool = False) -> Table:
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
    chunk = _chunk(obj)
    if for_table:
        _check_type(chunk.field)
        _check_offsets(chunk)
    return table_of_chunks(obj, [chunk], arrow=lambda: hub().read_all(chunk.owner))


def _check_type(field: Field | None) -> None:
    """Refuse types that Arrow's C++ library, which reads tables, does not import.

    It imports neither children whose names are NULL, nor extension types with other metadata than theirs.
    """
    if field is None:
        return
    if not all(part.named for child in field.children for part in child.walk()):
        raise malformed("", "a child of its schema has no name: it is NULL")
    hub().check_type(field)


def _check_offsets(chunk: arrow_c.Memory) -> None:
    """Refuse arrays without rows whose offsets are NULL: Arrow's C++ library does not import them."""
    has_offsets = chunk.field.kind in ("string", "binary", "list", "map")
    if has_offsets and not chunk.length and not chunk.buffers[1]:
        raise malformed("", f"the {chunk.field} array has no rows, and its offsets are NULL, not one element")
    for part in (*chunk.children, *((chunk.dictionary,) if chunk.dictionary is not None else ())):
        _check_offsets(part)


def as_array(obj: object) -> Source:
    """Describe an object that exports an Arrow array of numbers without nulls as one array.

    Raises
    ------
    ZeroCopyError
        The type is not one of tensors, or there are nulls.
    """
    chunk = _chunk(obj)
    name = type_name(obj)
    return as_tensor(ArrowColumn(name, chunk.field, lambda: [chunk], chunk.length, device=chunk.device))


def _chunk(obj: object) -> arrow_c.Memory:
    on_device = hasattr(type(obj), "__arrow_c_device_array__")
    return arrow_c.read_device_array(obj) if on_device else arrow_c.read_array(obj)


def _stream(obj: object, for_table: bool) -> Table:
    """Describe a stream by its schema: many streams can be requested and read only once."""
    name, field = type_name(obj), arrow_c.read_field(obj)
    if for_table:
        _check_type(field)
    return unread_table(obj, name, field, lambda: _open(obj, name, for_table))


def _open(obj: object, name: str, for_table: bool) -> Table:
    """Request a stream, and return it with its types before a batch is read."""
    stream = arrow_c.Stream(obj)
    if for_table:
        _check_type(stream.field)

    def read() -> Table:
        if for_table:
            whole: Table = hub().table(hub().read_all(stream))
            return replace(whole, name=name)
        # Tensors need no array of the hub.
        return table_of_chunks(obj, list(stream.batches()), stream.field, name)

    return unread_table(obj, name, stream.field, read)


def unread_table(obj: object, name: str, field: Field | None, read: Callable[[], Table]) -> Table:
    """Return a stream that is read once as a table, or as one column unless its type is a struct."""
    single = field is not None and field.is_series
    parts = () if field is None else (field,) if single else field.children
    columns = [UnreadColumn(name, part) for part in parts]
    labels = [part.name for part in parts]
    return Table(name, labels, columns, 0, single=single, read=read, once=True, obj=obj)


def table_of_chunks(
    obj: object,
    chunks: Sequence[arrow_c.Memory],
    schema: Field | None = None,
    name: str = "",
    arrow: Callable[[], ArrowArray] | None = None,
) -> Table:
    """Return Arrow memory as a table, or as one column unless its type is a struct.

    `arrow` returns the same memory as an array or a table of the hub.

    Raises
    ------
    UnsupportedConversionError
        A row of a struct is null as a whole.
    """
    name, field = name or type_name(obj), schema if schema is not None else chunks[0].field
    arrow = arrow or (lambda: hub().read_all(obj))
    device = chunks[0].device if chunks else HOST
    whole = ArrowColumn(name, field, lambda: chunks, sum(c.length for c in chunks), arrow, device=device)
    if field.is_series:
        return Table(name, [field.name], [whole], whole.length, single=True, obj=obj)
    if whole.null_count:
        why = f"{whole.null_count:,} of its rows are null, and a table has no null rows"
        read = "chunked_array" if hasattr(type(obj), "__arrow_c_stream__") else "array"
        source = f"pyarrow.Table.from_struct_array(pyarrow.{read}({{x}}).drop_null())"
        fixes = [Fix(source, "drops them")]
        raise UnsupportedConversionError("", why, code="nulls", fixes=fixes)
    columns = [_child(whole, i) for i in range(len(field.children))]
    labels = [child.name for child in field.children]
    return Table(name, labels, columns, whole.length, metadata=field.metadata, obj=obj)


def _child(whole: ArrowColumn, index: int) -> Column:
    column = whole.child(index)
    assert isinstance(column, ArrowColumn)
    column.name = whole.name
    column._arrow = lambda: _arrow_child(whole.arrow(), index)
    return column


def _arrow_child(whole: ArrowArray, index: int) -> ArrowArray:
    if hasattr(whole, "column"):
        return whole.column(index)
    if not hasattr(whole, "chunks"):
        return whole.field(index)
    kind = whole.type.field(index).type
    return hub().module().chunked_array([chunk.field(index) for chunk in whole.chunks], kind)
