"""Tables and columns as a header (Arrow's schema and the nodes of its arrays) and frames of their rows."""

from __future__ import annotations

import struct
from array import array as numbers
from functools import lru_cache
from typing import Any

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy._engine.explain import explain
from zerocopy.describe import describe
from zerocopy.errors import UnsupportedConversionError, ZeroCopyError
from zerocopy.frames.arrays import array_frame
from zerocopy.frames.arrow import ArrowReader, Writer
from zerocopy.frames.header import TABLE, Reader, invalid, start, text
from zerocopy.frames.hook import FramesHook
from zerocopy.framework import Framework, hook_of
from zerocopy.protocols.exporter_errors import ignored_errors
from zerocopy.source import Array, type_name
from zerocopy.tables.hub import hub

#: Forms of the hub's objects, in a header.
_WHOLE_TABLE, _BATCH, _CHUNKED, _ARRAY = range(4)
_MAX_COLUMNS = 1 << 24


def split_table(obj: Any, framework: Framework | None) -> tuple[bytes, list[Array], int]:
    """Return the header, the frames and the copied bytes of a table or a column."""
    pa = hub().module()
    if isinstance(obj, pa.Tensor):
        return array_frame(obj.to_numpy(), "pyarrow.Tensor")
    hook = hook_of(framework, FramesHook)
    flat, note = hook.flatten(obj)
    arrow, copied = _as_arrow(pa, flat, framework)
    if framework is None or framework.name == hub().name:
        target = ""
    else:
        target = framework.name if hook.restores_tables else _form(pa, obj, arrow, framework)
    form, schema, rows, columns = _columns(pa, arrow)
    if form >= _CHUNKED and target:
        schema = _schema_of_column(pa, obj, schema)
    writer = Writer()
    counts = []
    for column in columns:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        counts.append(len(chunks))
        for chunk in chunks:
            writer.write(chunk)
    encoded = schema.serialize().to_pybytes()
    if writer.has_extensions:
        _check_extensions(pa, schema, encoded)
    parts = (
        start(TABLE),
        text(target),
        text(note),
        struct.pack("<BQII", form, rows, len(encoded), len(counts)),
        encoded,
        struct.pack(f"<{len(counts)}I", *counts),
        struct.pack(f"<{len(writer.nodes)}Q", *writer.nodes),
    )
    return b"".join(parts), writer.frames, copied + writer.copied_bytes


def _check_extensions(pa: Any, schema: Any, encoded: bytes) -> None:
    """Refuse extension types that a reader would replace by their storage."""
    if not pa.ipc.read_schema(pa.py_buffer(encoded)).equals(schema):
        raise UnsupportedConversionError(
            "",
            "an extension type is not registered, so it would come back as its storage",
            "pyarrow.register_extension_type(...) in both processes",
            code="extension-type",
        )


def _as_arrow(pa: Any, obj: Any, framework: Framework | None) -> tuple[Any, int]:
    """Return an object as one of the hub's, and the bytes that this copied."""
    if framework is None:
        stream = hasattr(type(obj), "__arrow_c_stream__")
        return hub().read_all(obj) if stream else convert(obj, hub().name), 0
    if isinstance(obj, pa.RecordBatchReader):
        raise _unread(type_name(obj))
    if framework.name == hub().name:
        return obj, 0
    export = None if hook_of(framework, FramesHook).restores_tables else _fast_exporter(framework, type(obj))  # type: ignore[arg-type]
    if export is not None:
        with ignored_errors():  # it raises for tables other than plain numbers
            return hub().as_table(*export(obj, hub())[1:]), 0
    plan = explain(obj, hub().name)  # it describes the object once, where convert() may do so twice
    if plan.unread:
        raise _unread(plan.source, *[reason.remedy for reason in plan.reasons if reason.fixes])
    if plan.error is not None:
        raise plan.error
    assert plan.run is not None
    return plan.run(), plan.copied_bytes


@lru_cache(maxsize=64)
def _fast_exporter(framework: Framework, cls: type) -> Any:
    """Return the exporter of tables of plain numbers, which needs no plan: 100 us instead of 260."""
    exporters = framework.fast_exporters(cls)
    return exporters.get("hub") if "columns" in exporters and not framework.runs_queries else None


def _unread(name: str, *remedies: str) -> UnsupportedConversionError:
    why = f"a {name} is a query or a stream, which has memory only after it has been read"
    remedy = ": ".join(["read it first", *remedies[:1]])
    return UnsupportedConversionError("", why, remedy, code="unread")


def _form(pa: Any, obj: Any, arrow: Any, framework: Framework) -> str:
    """Return the argument ``to`` that restores an object's type; its fast path has no form."""
    if isinstance(arrow, pa.Table):
        return framework.name
    for cls in type(obj).__mro__:
        if framework.variant(cls.__name__) is not None:
            return f"{framework.name}.{cls.__name__}"
    return framework.name


def _schema_of_column(pa: Any, obj: Any, schema: Any) -> Any:
    """Return the schema of a column with its name, and the metadata that other types need (polars' Enum)."""
    described: Any = describe(obj)
    metadata = convert(obj, f"{hub().name}.Table").schema.field(0).metadata
    return pa.schema([schema.field(0).with_name(str(described.labels[0])).with_metadata(metadata)])


def _columns(pa: Any, arrow: Any) -> tuple[int, Any, int, list[Any]]:
    """Return the form, the schema, the rows and the columns of one of the hub's objects."""
    if isinstance(arrow, (pa.Table, pa.RecordBatch)):
        form = _WHOLE_TABLE if isinstance(arrow, pa.Table) else _BATCH
        return form, arrow.schema, arrow.num_rows, arrow.columns
    if isinstance(arrow, pa.Scalar):
        why = "a pyarrow scalar is not an array"
        raise UnsupportedConversionError("", why, "make an array of it", code="not-an-array")
    form = _CHUNKED if isinstance(arrow, pa.ChunkedArray) else _ARRAY
    return form, pa.schema([pa.field("", arrow.type)]), len(arrow), [arrow]


def needs_own_framework(header: bytes) -> bool:
    """Whether only the framework of a table's header, which is installed, can hold all properties in it.

    Such properties are the name of a column, and the types and flags in a note of the framework's hook.
    """
    fields = Reader(header)
    target, note = fields.text(), fields.text()
    form, _, size, _ = fields.unpack("<BQII")
    pa = hub().module()
    try:
        named = form >= _CHUNKED and _schema_of(pa, fields.take(size)).names != [""]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise invalid(f"the header has no schema: {error}") from error
    return bool(target and (note or named) and registry.by_name(target).installed())


def build_table(header: bytes, frames: Any, to: Any) -> Any:
    """Return the table or column of a header over its frames, in its framework or in `to`."""
    pa = hub().module()
    try:
        return _built(pa, header, frames, to)
    except (ZeroCopyError, MemoryError):
        raise
    except Exception as error:
        raise invalid(f"the header does not agree with the frames: {error}") from error


def _built(pa: Any, header: bytes, frames: Any, to: Any) -> Any:
    target, note, field, arrow = _read(pa, header, frames)
    if to is not None and to not in (target, target.partition(".")[0]):
        return convert(arrow, to)
    if not target:
        return arrow
    hook = hook_of(registry.by_name(target), FramesHook)
    if hook.restores_tables:
        return hook.restore(arrow, note)
    if field is not None and (field.name or field.metadata):
        arrow = pa.Table.from_arrays([arrow], schema=pa.schema([field]))
    result = convert(arrow, target)
    return hook.finish(result, note) if note else result


def _read(pa: Any, header: bytes, frames: Any) -> tuple[str, str, Any, Any]:
    """Return the target and the note in a header, the field of a column, and the hub's object."""
    fields = Reader(header)
    target, note = fields.text(), fields.text()
    form, rows, size, width = fields.unpack("<BQII")
    schema = _schema_of(pa, fields.take(size))
    if width != len(schema) or width > _MAX_COLUMNS or (form >= _CHUNKED and width != 1):
        raise invalid(f"the schema has {len(schema)} columns, and the header describes {width}")
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
    own = schema.field(0) if form in (_CHUNKED, _ARRAY) else None
    return target, note, own, _assembled(pa, form, schema, rows, columns)


def _schema_of(pa: Any, encoded: Any) -> Any:
    """Return the schema in a header; pyarrow raises here, not in its caller, if a name is not UTF-8."""
    schema = pa.ipc.read_schema(pa.py_buffer(encoded))
    _ = schema.names
    return schema


def _assembled(pa: Any, form: int, schema: Any, rows: int, columns: list[Any]) -> Any:
    """Return one of the hub's objects; all lengths must agree."""
    if any(len(column) != rows for column in columns):
        raise invalid(f"a column does not have {rows:,} rows")
    if form in (_WHOLE_TABLE, _BATCH):
        cls = pa.Table if form == _WHOLE_TABLE else pa.RecordBatch
        if columns:
            return cls.from_arrays(columns, schema=schema)
        # from_arrays([]) would lose the number of rows.
        rows_only = pa.schema([pa.field("rows", pa.null())], metadata=schema.metadata)
        return cls.from_arrays([pa.nulls(rows)], schema=rows_only).select([])
    if form not in (_CHUNKED, _ARRAY):
        raise invalid(f"the form {form} does not exist")
    return columns[0]
