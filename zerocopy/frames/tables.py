"""Tables and columns as frames: Arrow's schema, numbers, and the buffers that hold the shown rows."""

from __future__ import annotations

import struct
from array import array as numbers
from typing import Any

from zerocopy._engine.convert import convert
from zerocopy._engine.explain import explain
from zerocopy.describe import describe
from zerocopy.errors import CopyRequiredError, UnsupportedConversionError, ZeroCopyError
from zerocopy.frames.arrow_reader import ArrowReader
from zerocopy.frames.arrow_writer import Writer
from zerocopy.frames.header import TABLE, Reader, invalid, start, text
from zerocopy.framework import Framework
from zerocopy.source import Array
from zerocopy.tables.hub import hub

#: Forms of the hub's objects, in a header.
_WHOLE_TABLE, _BATCH, _CHUNKED, _ARRAY = range(4)
_MAX_COLUMNS = 1 << 24


def split_table(obj: Any, framework: Framework | None) -> tuple[bytes, list[Array], int]:
    """Return the header, the frames and the copied bytes of a table or a column."""
    pa = hub().module()
    arrow, copied = _as_arrow(obj, framework)
    if isinstance(arrow, pa.Tensor):
        from zerocopy.frames.arrays import array_frame

        return array_frame(arrow.to_numpy(), "pyarrow.Tensor")
    target = "" if framework is None or framework.name == hub().name else _form(obj, framework)
    form, schema, rows, columns = _columns(pa, arrow, _label(obj) if target else "")
    writer = Writer()
    counts = []
    for column in columns:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        counts.append(len(chunks))
        for chunk in chunks:
            writer.write(chunk)
    encoded = schema.serialize().to_pybytes()
    parts = (
        start(TABLE),
        text(target),
        struct.pack("<BQII", form, rows, len(encoded), len(counts)),
        encoded,
        struct.pack(f"<{len(counts)}I", *counts),
        struct.pack(f"<{len(writer.nodes)}Q", *writer.nodes),
    )
    return b"".join(parts), writer.frames, copied + writer.copied_bytes


def _as_arrow(obj: Any, framework: Framework | None) -> tuple[Any, int]:
    """Return an object as one of the hub's, and the bytes that this copied."""
    if framework is not None:
        if framework.name == hub().name:
            _check_read(obj)
            return obj, 0
        _check_read(obj)
        single = getattr(describe(obj), "single", False)
        to = f"{hub().name}.ChunkedArray" if single else f"{hub().name}.Table"
        try:
            return convert(obj, to, copy=False), 0
        except CopyRequiredError:
            return convert(obj, to), explain(obj, to).copied_bytes
    if hasattr(type(obj), "__arrow_c_stream__"):
        return hub().read_all(obj), 0
    return convert(obj, hub().name), 0


def _check_read(obj: Any) -> None:
    described = describe(obj)
    if getattr(described, "read", None) is not None:
        raise UnsupportedConversionError(
            "",
            f"a {described.name} is a query or a stream, which has memory only after it has been read",
            "read it first",
            code="unread",
        )


def _form(obj: Any, framework: Framework) -> str:
    """Return the argument ``to`` that restores an object's type."""
    for cls in type(obj).__mro__:
        if framework.variant(cls.__name__) is not None:
            return f"{framework.name}.{cls.__name__}"
    return framework.name


def _label(obj: Any) -> str:
    """Return the name of a column, or an empty text for a column without one and for a table."""
    described: Any = describe(obj)
    return str(described.labels[0]) if getattr(described, "single", False) else ""


def _columns(pa: Any, arrow: Any, label: str) -> tuple[int, Any, int, list[Any]]:
    """Return the form, the schema, the rows and the columns of one of the hub's objects."""
    if isinstance(arrow, (pa.Table, pa.RecordBatch)):
        form = _WHOLE_TABLE if isinstance(arrow, pa.Table) else _BATCH
        return form, arrow.schema, arrow.num_rows, arrow.columns
    if isinstance(arrow, pa.Scalar):
        why = "a pyarrow scalar is not an array"
        raise UnsupportedConversionError("", why, "make an array of it", code="not-an-array")
    form = _CHUNKED if isinstance(arrow, pa.ChunkedArray) else _ARRAY
    return form, pa.schema([pa.field(label, arrow.type)]), len(arrow), [arrow]


def is_named_column(header: bytes) -> bool:
    """Whether the object of a table's header is a column with a name, which the hub's columns lack."""
    fields = Reader(header)
    fields.text()
    form, _, size, _ = fields.unpack("<BQII")
    pa = hub().module()
    return form >= _CHUNKED and pa.ipc.read_schema(pa.py_buffer(fields.take(size))).names != [""]


def build_table(header: bytes, frames: Any, to: Any) -> Any:
    """Return the table or column of a header over its frames, in its framework or in `to`."""
    pa = hub().module()
    try:
        target, label, arrow = _read(pa, header, frames)
    except ZeroCopyError:
        raise
    except (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError, NotImplementedError) as error:
        raise invalid(f"the header does not agree with the frames: {error}") from error
    if to is None and not target:
        return arrow
    return convert(arrow if label == "" else pa.Table.from_arrays([arrow], [label]), to or target)


def _read(pa: Any, header: bytes, frames: Any) -> tuple[str, str, Any]:
    """Return the target in a header, the name of a column (empty for tables), and the hub's object."""
    fields = Reader(header)
    target = fields.text()
    form, rows, size, width = fields.unpack("<BQII")
    schema = pa.ipc.read_schema(pa.py_buffer(fields.take(size)))
    if width != len(schema) or width > _MAX_COLUMNS or (form >= _CHUNKED and width != 1):
        raise invalid(f"the schema has {len(schema)} columns, and the header says {width}")
    counts = fields.unpack(f"<{width}I")
    nodes = numbers("Q", fields.rest(8))
    reader = ArrowReader(nodes, frames)
    columns: list[Any] = []
    for field, count in zip(schema, counts, strict=True):
        if count > len(nodes):
            raise invalid(f"a column has {count} chunks, and there are {len(nodes)} numbers")
        chunks = [reader.read(field.type) for _ in range(count)]
        one = form in (_BATCH, _ARRAY)
        if one and count != 1:
            raise invalid(f"a column has {count} chunks")
        columns.append(chunks[0] if one else pa.chunked_array(chunks, field.type))
    reader.end()
    label = schema.names[0] if form in (_CHUNKED, _ARRAY) else ""
    return target, label, _assembled(pa, form, schema, rows, columns)


def _assembled(pa: Any, form: int, schema: Any, rows: int, columns: list[Any]) -> Any:
    """Return one of the hub's objects; all lengths must agree."""
    if any(len(column) != rows for column in columns):
        raise invalid(f"a column does not have {rows:,} rows")
    if form == _WHOLE_TABLE:
        if columns:
            return pa.Table.from_arrays(columns, schema=schema)
        rows_only = pa.Table.from_arrays([pa.nulls(rows)], names=["rows"])
        return rows_only.select([]).replace_schema_metadata(schema.metadata)
    if form == _BATCH:
        if columns:
            return pa.RecordBatch.from_arrays(columns, schema=schema)
        rows_only = pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["rows"])
        return rows_only.select([]).replace_schema_metadata(schema.metadata)
    if form not in (_CHUNKED, _ARRAY):
        raise invalid(f"the form {form} does not exist")
    return columns[0]
