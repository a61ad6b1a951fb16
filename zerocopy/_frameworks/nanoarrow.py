"""nanoarrow: arrays and streams that hold Arrow memory for exchange.

Arrays are read through the C data interface, never through ``child()``, which loses the
offset of a sliced struct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks._private import Private
from zerocopy._native import core
from zerocopy.errors import DeviceError, Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import Field
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Source
from zerocopy.tables.arrow_table import table_of_chunks, unread_table
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import as_one_tensor
from zerocopy.tables.hub import hub
from zerocopy.tables.labels import text_warnings

_SCHEMA = Private("nanoarrow", "0.7 to 0.9", "Schema._c_schema", "the schema of 300 columns: 6 / 40 us")
_HOST = 1  # ARROW_DEVICE_CPU
_VIEWS = ("string_view", "binary_view")
_ASK_FOR_STREAM = 'pass to="nanoarrow.ArrayStream", which exports it unchanged'


def _kind(obj: Any) -> str:
    return "column" if _field(obj, _name(obj)).is_series else "table"


class Nanoarrow(Framework):
    """``nanoarrow.Array``, an array of structs for a table; ``nanoarrow.ArrayStream``, which is read once."""

    name = "nanoarrow"
    kinds: Mapping[str, Any] = dict.fromkeys(("Array", "ArrayStream", "CArray"), _kind)
    actions: Mapping[str, Fix] = {
        "cast": Fix("pyarrow.chunked_array({x}).cast('{type}')"),
        "cast:bool8": Fix("pyarrow.chunked_array({x}).cast(pyarrow.bool8())"),
        "milliseconds": Fix("pyarrow.chunked_array({x}).cast({type})"),
        "bytes": Fix("zc.convert({x}, \"numpy\").view('uint8')"),
        "lists": Fix(
            "pyarrow.array(pyarrow.chunked_array({x}).to_pylist(), "
            "pyarrow.large_list(pyarrow.chunked_array({x}).type.value_type))"
        ),
        "objects": Fix("{x}.to_pylist()"),
        "split-interval": Fix(
            "pyarrow.array([v and dict(zip(('months', 'days', 'nanoseconds'), v)) "
            "for v in pyarrow.chunked_array({x}).to_pylist()])",
            "gives months, days and nanoseconds",
        ),
        "truncate:us": Fix("pyarrow.chunked_array({x}).cast('duration[us]', safe=False)"),
        "combine-chunks": Fix("pyarrow.chunked_array({x}).combine_chunks()"),
    }
    aliases = ("na",)
    kind = "table"
    root_modules = ("nanoarrow",)
    distribution = "nanoarrow"
    min_version = "0.7"  # older versions cannot read decimal32 and decimal64
    mutable = False
    packs_booleans = True
    reads_views = False
    forms = ("Array", "ArrayStream")

    def owns(self, cls: type) -> bool:
        # Its low-level streams and buffers are read by their protocols.
        na = self.module()
        return issubclass(cls, (na.Array, na.ArrayStream)) or _is_c_array(cls)

    def is_native(self, obj: Any) -> bool:
        return not _is_c_array(type(obj)) and super().is_native(obj)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        name = _name(obj)
        table = self.table(obj)
        assert table is not None
        if table.read is not None:
            why = "a stream becomes an array when it is read, which is possible once"
            fixes = [Fix("{x}.read_all()", "reads it")]
            raise UnsupportedConversionError(f"convert({name})", why, code="unread", fixes=fixes)
        return as_one_tensor(table)

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        name = _name(obj)
        if isinstance(obj, self.module().ArrayStream):
            return self._stream(obj, name)
        field = _field(obj, name)
        device = obj if _is_c_array(type(obj)) else obj.device
        if device.device_type_id != _HOST:
            why = f"it is on {device.device_type}"
            raise DeviceError(f"convert({name})", why, "copy it to the host first", code="other-device")
        if any(part.kind in _VIEWS for part in field.walk()):
            # nanoarrow 0.9 loses the sizes of the blocks of text: exporting or reading such an array
            # aborts the process. Its streams are not affected.
            why = f"it is {field}, and nanoarrow aborts the process when it exports views from an array"
            remedy = "create a nanoarrow.ArrayStream of the original data, or cast it to large_string first"
            raise UnsupportedConversionError(f"convert({name})", why, remedy, code="framework-crash")
        if _is_c_array(type(obj)):
            chunks = [arrow_c.read_array(obj)]
        else:
            field, batches = arrow_c.read_stream(obj)  # its array exporter refuses several chunks
            chunks = list(batches)

        @cache
        def arrow() -> Any:
            # As arrays, since pyarrow refuses batches of a struct with an offset.
            pa = hub().module()
            return pa.array(obj) if _is_c_array(type(obj)) else pa.chunked_array(obj)

        return table_of_chunks(obj, chunks, field, name, arrow)

    def _stream(self, obj: Any, name: str) -> Table:
        """Describe a stream by its type, since reading it would use it up."""
        field = _field(obj, name)

        def read() -> Table:
            if any(part.kind in _VIEWS for part in field.walk()):
                table: Table | None = hub().table(hub().read_all(obj))
            else:
                try:
                    array = obj.read_all()
                except Exception as error:
                    if not is_error(error):
                        raise
                    asked = f"convert({name})"
                    why = f"reading the stream failed: {error}"
                    remedy = "create a new stream: its producer failed, or it was read before"
                    raise UnsupportedConversionError(asked, why, remedy, code="framework-error") from error
                table = self.table(array)
            assert table is not None
            return replace(table, name=name, obj=None)

        return unread_table(obj, name, field, read)

    def fast_exporters(self, cls: type) -> dict[str, Callable[..., Any]]:
        if core is None or cls is not self.module().Array:
            return {}
        pa, types, key_of = hub().module(), hub().plain_types, _schema_key()
        last: tuple[bytes, Any] | None = None

        def check(obj: Any) -> Any:
            """Return the schema of a table, or the field of a column, of plain values in one chunk."""
            nonlocal last
            # The schema is read before the data: nanoarrow aborts the process when it exports some types.
            key, known = key_of(obj), last
            if key is None or obj.n_chunks != 1:
                raise ValueError("other types, or several chunks: the slow path decides")
            if known is None or known[0] != key:
                schema = pa.schema(obj.schema) if obj.n_children else pa.field(obj.schema)
                if obj.n_children and ("" in schema.names or len({*schema.names}) != len(schema.names)):
                    raise ValueError("names that need a check: the slow path decides")
                last = known = (key, schema)
            return known[1]

        def exported(obj: Any, target: Any) -> tuple[str | None, Any, Any]:
            if not len(obj):
                raise ValueError("no rows: the slow path decides")
            schema = check(obj)
            if not obj.n_children:
                if schema.name or schema.type not in types:
                    raise ValueError("a name, or another type: the slow path decides")
                return "", obj, None
            if obj.offset or obj.buffer(0).size_bytes:  # consumers lose the offset and nulls of a struct
                raise ValueError("part of a struct, or one with nulls: the slow path decides")
            return None, obj, schema

        def check_table(obj: Any) -> Any:
            return check(obj) if obj.n_children else False

        table = core.TableExporter(cls.__arrow_c_array__, check=check_table)
        return {"hub": exported, "native_table": table}

    # -- target ---------------------------------------------------------------

    def fast_importers(self) -> dict[str, Callable[..., Any]]:
        if self.form is not None:
            return {}
        from nanoarrow.c_array import allocate_c_array

        na, arrow = self.module(), hub().fast_importers()
        stored, exported = na.Array, na.c_array
        pa = hub().module()
        array, flat = arrow["ndarray"], pa.Array

        def wrap(one: Any) -> Any:
            # na.Array(x) makes a stream of the array first: 26 us for ten columns instead of 6.
            return stored(exported(one))

        def ndarray(source: Any) -> Any:
            values = array(source)
            if not isinstance(values, flat):
                raise ValueError("more than one dimension: the slow path decides")
            return wrap(values)

        views, large = pa.string_view(), pa.large_string()
        last: tuple[Any, Any] | None = None  # the last schema without views, of pyarrow and of nanoarrow

        def of_hub(named: tuple[str | None, Any, Any]) -> Any:
            nonlocal last
            name, arrow, schema = named
            if name is not None:
                return wrap(hub().cast_views(arrow, large) if arrow.type == views else arrow)
            if schema is None and not isinstance(arrow, pa.Table | pa.RecordBatch):
                return stored(arrow)  # the result of a query
            schema, known = schema or arrow.schema, last
            if known is None or not schema.equals(known[0], True):
                if views in schema.types:
                    return stored(_table_without_views(arrow))
                last = known = (schema, na.c_schema(schema))
            batches = arrow.to_batches() if isinstance(arrow, pa.Table) else [arrow]
            if len(batches) != 1 or (core is None and not isinstance(batches[0], pa.RecordBatch)):
                return stored(arrow)
            # The kept schema is not exported again: 300 columns take 130 us instead of 220.
            array = allocate_c_array(known[1])
            if isinstance(batches[0], pa.RecordBatch):
                batches[0]._export_to_c(array._addr())
            else:
                core.read_single_array(arrow.__arrow_c_stream__()).move_to(array._addr())
            return stored(array)

        return {"ndarray": ndarray, "hub": of_hub}

    def column_reasons(self, column: Column) -> list[Reason]:
        reasons = column.arrow_reasons()
        if column.field is not None and any(
            p.kind == "fixed_binary" and not p.width for p in column.field.walk()
        ):
            why, remedy = f"it is {column.field}, which nanoarrow cannot describe", "cast it to binary first"
            raise UnsupportedConversionError("", why, remedy, code="missing-dtype")
        if column.field is None or self.form == "ArrayStream":
            return reasons
        for kind in dict.fromkeys(part.kind for part in column.field.walk() if part.kind in _VIEWS):
            if not _castable(column.field):
                why = f"it is {column.field}, and nanoarrow aborts the process when it exports a {kind}"
                raise UnsupportedConversionError("", why, _ASK_FOR_STREAM, code="framework-crash")
            if column.length:
                why = f"nanoarrow aborts the process when it exports a {kind}: it is cast to a large_ type"
                reasons.append(Reason(why, _ASK_FOR_STREAM, code="framework-crash"))
        return reasons

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        warnings = []
        for label, column in zip(table.labels, table.columns, strict=True):
            parts = [] if column.field is None else list(column.field.walk())
            subject = f"column {label!r}" if not table.single else "the column"
            if hidden := [part for part in parts if _cannot_show(part)]:
                warnings.append(
                    f"{subject}: nanoarrow exports {hidden[0]} and cannot show it (to_pylist raises)"
                )
            if self.form != "ArrayStream" and any(part.kind in _VIEWS for part in parts):
                warnings.append(f"{subject}: views become large_string or large_binary")
        if self.form == "ArrayStream":
            warnings.append("a stream can be read once")
        return (*warnings, *(() if table.single else text_warnings("nanoarrow", table.labels)))

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        obstacles.check_nul(table.labels, "nanoarrow")
        if not table.single:
            obstacles.check_utf8(table.labels, "nanoarrow")
        return super().table_reasons(table)

    def from_table(self, table: Table) -> Any:
        arrow = hub().from_table(table)
        if self.form != "ArrayStream":
            arrow = _table_without_views(arrow)
        return self._wrap(arrow)

    def from_column(self, table: Table) -> Any:
        array = hub().from_column(table)
        if self.form == "ArrayStream":
            # nanoarrow would export a plain array, and crash if it has views; it reads a stream.
            array = array if hasattr(array, "chunks") else hub().module().chunked_array([array])
        else:
            array = hub().cast_views(array, hub().without_views(array.type))
        return self._wrap(array)

    def _wrap(self, arrow: Any) -> Any:
        na = self.module()
        return na.ArrayStream(arrow) if self.form == "ArrayStream" else na.Array(arrow)


def _name(obj: Any) -> str:
    return f"nanoarrow.{type(obj).__qualname__}"


def _is_c_array(cls: type) -> bool:
    """Whether `cls` is the class of ``nanoarrow.c_array``'s results, which has no public name."""
    return cls.__module__ == "nanoarrow._array" and cls.__qualname__ == "CArray"


def _field(obj: Any, name: str) -> Field:
    try:
        field = arrow_c.read_field(obj.schema)
    except (RuntimeError, ValueError) as error:
        why = f"its type cannot be read: {error}"
        remedy = "create a new array: this one was released"
        raise UnsupportedConversionError(f"convert({name})", why, remedy, code="consumed") from error
    assert field is not None
    return field


@cache
def _schema_key() -> Callable[[Any], bytes | None]:
    """Return a function of an array: it returns the key of its schema, or None if that is not plain."""
    import nanoarrow as na

    plain = core.plain_schema_key

    def private(obj: Any) -> bytes | None:
        schema = obj.schema._c_schema  # it owns the address
        return plain(schema._addr())  # type: ignore[no-any-return]

    def public(obj: Any) -> bytes | None:
        return plain(obj.schema.__arrow_c_schema__())  # type: ignore[no-any-return]

    def agrees(key_of: Callable[[Any], bytes | None]) -> bool:
        return key_of(na.Array([1], na.int32())) == public(na.Array([1], na.int32()))

    return _SCHEMA.choose(lambda: private, agrees, public)


# -- views, and types that nanoarrow cannot show --------------------------------


def _castable(field: Field) -> bool:
    """Whether pyarrow can cast the views in a type to the large types."""
    inside = list(field.walk())
    if not any(part.kind in _VIEWS for part in inside):
        return True
    if field.extension or field.kind in ("list_view", "run_end_encoded", "union"):
        return False
    return all(_castable(part) for part in inside[1:])


def _table_without_views(arrow: Any) -> Any:
    """Return a ``pyarrow.Table`` whose columns of views are cast to the large types."""
    kinds = [hub().without_views(kind) for kind in arrow.schema.types]
    if kinds == arrow.schema.types:
        return arrow
    # All at once, because set_column copies the list of columns each time.
    fields = [field.with_type(kind) for field, kind in zip(arrow.schema, kinds, strict=True)]
    arrays = [hub().cast_views(array, kind) for array, kind in zip(arrow.columns, kinds, strict=True)]
    return type(arrow).from_arrays(
        arrays, schema=hub().module().schema(fields, metadata=arrow.schema.metadata)
    )


def _cannot_show(field: Field) -> bool:
    narrow = field.kind == "decimal" and field.width < 16
    return narrow or field.kind in ("list_view", "map", "run_end_encoded")


FRAMEWORK = Nanoarrow()
