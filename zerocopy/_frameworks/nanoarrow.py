"""nanoarrow: arrays and streams that hand Arrow memory on, and do nothing else with it.

Its arrays are read through the C data interface, never through ``child()``, which forgets
the offset of a sliced struct.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from zerocopy import registry
from zerocopy.errors import DeviceError, Reason, UnsupportedConversionError
from zerocopy.framework import Framework, Source
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import Field
from zerocopy.tables.arrow_column import ArrowColumn, Typed
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import as_tensor

_HOST = 1  # ARROW_DEVICE_CPU
_VIEWS = ("string_view", "binary_view")


class Nanoarrow(Framework):
    """``nanoarrow.Array``; of a table, one of structs. ``to="nanoarrow.ArrayStream"`` is read once."""

    name = "nanoarrow"
    kind = "table"
    root_modules = ("nanoarrow",)
    distribution = "nanoarrow"
    mutable = False

    def __init__(self, form: str | None = None) -> None:
        self.form = form

    def variant(self, form: str) -> Framework | None:
        return Nanoarrow(form) if form in ("Array", "ArrayStream") else None

    def owns(self, cls: type) -> bool:
        # Streams and buffers of its lower level are known by the protocols that they speak.
        na = self.module()
        return issubclass(cls, (na.Array, na.ArrayStream)) or _is_c_array(cls)

    def is_native(self, obj: Any) -> bool:
        na = self.module()
        return isinstance(obj, getattr(na, self.form) if self.form else (na.Array, na.ArrayStream))

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        name = _name(obj)
        table = self.table(obj)
        assert table is not None
        if table.read is not None:
            raise UnsupportedConversionError(
                f"convert({name})", "a stream can be read once, and then it is an array", "pass x.read_all()"
            )
        if not table.single:
            raise UnsupportedConversionError(
                f"convert({name})", "an array of structs is a table and not one array", "pick a column of it"
            )
        return as_tensor(table.columns[0])

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        name = _name(obj)
        if isinstance(obj, self.module().ArrayStream):
            return self._stream(obj, name)
        field = _field(obj, name)
        device = obj if _is_c_array(type(obj)) else obj.device
        if device.device_type_id != _HOST:
            raise DeviceError(
                f"convert({name})", f"it is on {device.device_type}", "bring it to the host first"
            )
        if any(part.kind in _VIEWS for part in _parts(field)):
            # nanoarrow 0.9 loses the sizes of the blocks of text: exporting such an array, or
            # looking at it, ends the process. Its streams pass on what they are given.
            raise UnsupportedConversionError(
                f"convert({name})",
                f"it is {field}, and nanoarrow ends the process when it hands on views from an array",
                "make a nanoarrow.ArrayStream of its source instead, or cast that to large_string first",
            )
        if _is_c_array(type(obj)):
            chunks = [arrow_c.read_array(obj)]
        else:
            field, batches = arrow_c.read_stream(obj)  # its array exporter refuses several chunks
            chunks = list(batches)
        return _described(obj, name, field, chunks)

    def _stream(self, obj: Any, name: str) -> Table:
        """Describe a stream by its type: looking at more would use it up."""
        field = _field(obj, name)
        parts = (field,) if _is_column(field) else field.children

        def read() -> Table:
            if any(part.kind in _VIEWS for part in _parts(field)):
                hub = _hub()
                table: Table | None = hub.table(hub.read_all(obj))
            else:
                try:
                    array = obj.read_all()
                except Exception as error:
                    raise UnsupportedConversionError(
                        f"convert({name})",
                        f"reading the stream failed: {error}",
                        "make a new one: what it is fed with failed, or it was read before",
                    ) from error
                table = self.table(array)
            assert table is not None
            return replace(table, name=name, obj=None)

        columns = [Typed(name, part) for part in parts]
        labels = [part.name for part in parts]
        return Table(name, labels, columns, 0, _is_column(field), read=read, once=True, obj=obj)

    # -- target ---------------------------------------------------------------

    def column_reasons(self, column: Column) -> list[Reason]:
        reasons = column.arrow_reasons()
        if column.field is None or self.form == "ArrayStream":
            return reasons
        for kind in dict.fromkeys(part.kind for part in _parts(column.field) if part.kind in _VIEWS):
            if not _castable(column.field):
                raise UnsupportedConversionError(
                    "",
                    f"is {column.field}, and nanoarrow ends the process when it hands on a {kind}",
                    'ask for "nanoarrow.ArrayStream", which passes it on untouched',
                )
            if not column.length:
                continue  # it is cast, and there is nothing to copy
            reasons.append(
                Reason(
                    f"nanoarrow ends the process when it hands on a {kind}: it is cast to a large_ type",
                    'ask for "nanoarrow.ArrayStream", which passes it on untouched',
                )
            )
        return reasons

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        said = []
        for label, column in zip(table.labels, table.columns, strict=True):
            parts = [] if column.field is None else list(_parts(column.field))
            where = f"column {label!r}" if not table.single else "the column"
            if blind := [part for part in parts if _cannot_show(part)]:
                said.append(f"{where}: nanoarrow hands on {blind[0]} and cannot show it (to_pylist raises)")
            if self.form != "ArrayStream" and any(part.kind in _VIEWS for part in parts):
                said.append(f"{where}: views come as large_string or large_binary")
        if self.form == "ArrayStream":
            said.append("a stream can be read once")
        return tuple(said)

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        if cut := [label for label in table.labels if "\0" in str(label)]:
            raise UnsupportedConversionError(
                "", f"the name {cut[0]!r} has a NUL in it, at which nanoarrow would cut it", "rename it"
            )
        return super().table_reasons(table)

    def from_table(self, table: Table) -> Any:
        made = _hub().from_table(table)
        if self.form != "ArrayStream":
            for i, array in enumerate(made.columns):
                kind = _without_views(array.type)
                if kind != array.type:
                    made = made.set_column(i, made.schema.field(i).with_type(kind), array.cast(kind))
        return self._made(made)

    def from_column(self, table: Table) -> Any:
        array = _hub().from_column(table)
        if self.form != "ArrayStream":
            kind = _without_views(array.type)
            array = array if kind == array.type else array.cast(kind)
        return self._made(array)

    def _made(self, arrow: Any) -> Any:
        na = self.module()
        return na.ArrayStream(arrow) if self.form == "ArrayStream" else na.Array(arrow)


def _hub() -> Any:
    hub = registry.by_name("pyarrow")
    hub.module()
    return hub


def _name(obj: Any) -> str:
    return f"nanoarrow.{type(obj).__qualname__}"


def _is_c_array(cls: type) -> bool:
    """Whether it is what ``nanoarrow.c_array`` returns: the class has no public name."""
    return cls.__module__ == "nanoarrow._array" and cls.__qualname__ == "CArray"


def _field(obj: Any, name: str) -> Field:
    try:
        field = arrow_c.read_field(obj.schema)
    except (RuntimeError, ValueError) as error:
        raise UnsupportedConversionError(
            f"convert({name})", f"it has no type: {error}", "make a new one: this one was released"
        ) from error
    assert field is not None
    return field


def _parts(field: Field) -> Iterator[Field]:
    """Yield a type and all types inside it."""
    yield field
    for child in field.children:
        yield from _parts(child)
    if field.dictionary is not None:
        yield from _parts(field.dictionary)


def _is_column(field: Field) -> bool:
    return field.kind != "struct" or bool(field.extension)


def _described(obj: Any, name: str, field: Field, chunks: list[arrow_c.Memory]) -> Table:
    """Return an array's columns: one, or those of an array of structs."""

    @cache
    def arrow() -> Any:
        # Not as batches: pyarrow takes none of a struct with an offset, and arrays it does.
        pa = _hub().module()
        return pa.array(obj) if _is_c_array(type(obj)) else pa.chunked_array(obj)

    whole = ArrowColumn(name, field, lambda: chunks, sum(chunk.length for chunk in chunks), arrow)
    if _is_column(field):
        return Table(name, [field.name], [whole], whole.length, single=True, obj=obj)
    if whole.null_count:
        raise UnsupportedConversionError(
            f"convert({name})",
            f"{whole.null_count:,} of its rows are null, and a table has no null rows",
            "leave them out first",
        )

    def nth(i: int) -> Any:
        pa, structs = _hub().module(), arrow()
        if not isinstance(structs, pa.ChunkedArray):
            return structs.field(i)
        return pa.chunked_array([chunk.field(i) for chunk in structs.chunks], structs.type.field(i).type)

    columns: list[Column] = [_part(whole, i, nth) for i in range(len(field.children))]
    labels = [child.name for child in field.children]
    return Table(name, labels, columns, whole.length, metadata=field.metadata, obj=obj)


def _part(whole: ArrowColumn, i: int, nth: Any) -> ArrowColumn:
    part = whole.child(i)
    assert isinstance(part, ArrowColumn)
    return ArrowColumn(whole.name, part.field, lambda: part.chunks, part.length, lambda: nth(i))


# -- views, and what nanoarrow cannot show --------------------------------------


def _castable(field: Field) -> bool:
    """Whether pyarrow casts the views in a type to the large types."""
    inside = list(_parts(field))
    if not any(part.kind in _VIEWS for part in inside):
        return True
    if field.extension or field.kind in ("list_view", "run_end_encoded", "union"):
        return False
    return all(_castable(part) for part in inside[1:])


def _without_views(kind: Any) -> Any:
    """Return a pyarrow type with the large types in place of views."""
    pa = _hub().module()
    types = pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return pa.large_string() if types.is_string_view(kind) else pa.large_binary()
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_views(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pa.struct([_field_without(kind.field(i)) for i in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_field_without(kind.key_field), _field_without(kind.item_field), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(_field_without(kind.value_field), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_field_without(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_field_without(kind.value_field))
    return kind


def _field_without(field: Any) -> Any:
    return field.with_type(_without_views(field.type))


def _cannot_show(field: Field) -> bool:
    narrow = field.kind == "decimal" and field.width < 16
    return narrow or field.kind in ("list_view", "map", "run_end_encoded")


FRAMEWORK = Nanoarrow()
