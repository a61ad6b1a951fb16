"""Which objects are tables, and the columns of each: of frameworks, protocols, dicts and tensors."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from zerocopy import registry
from zerocopy._view import describe
from zerocopy.device import HOST
from zerocopy.errors import UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.protocols import arrow_c
from zerocopy.source import Array, Source
from zerocopy.tables.arrow_column import ArrowColumn, UnreadColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.options import DEFAULTS, Options
from zerocopy.tables.result import Encoded, Masked
from zerocopy.tables.tensor_column import TensorColumn


def table_of(obj: Any, index: bool | None = None, tables: bool = False) -> Table | None:
    """Return an object as columns, or None for what is a tensor or nothing that is known.

    Raises
    ------
    ZeroCopyError
        It is a table, and what it says of itself is wrong.
    """
    if isinstance(obj, dict):
        return _of_dict(obj)
    framework = registry.by_type(type(obj))
    if framework is not None:
        return framework.table(obj, index)
    return of_protocol(obj, tables)


def described(obj: Any, target: Framework, asked: Options) -> Table | None:
    """Return an object as the table that a conversion needs; None where it is a tensor's affair.

    A tensor is a table where the target has no tensors, or where its columns are named.
    """
    names = asked.names
    table = table_of(obj, asked.index, target.tables)
    if table is not None:
        if names is not None:
            raise UnsupportedConversionError(
                "", "names= is for a tensor's columns, and these have names", "rename them in the source"
            )
        return table
    if names is None and (target.kind != "table"):
        if asked is not DEFAULTS:
            said = ", ".join(f"{name}=" for name in asked.explicit)
            raise UnsupportedConversionError(
                "", f"{said} is for tables, and this is a tensor", "leave it out"
            )
        return None
    if not target.tables:
        raise UnsupportedConversionError("", f"{target.name} has no names for columns", "leave names out")
    return _of_tensor(describe(obj), names)


def of_protocol(obj: Any, tables: bool = False) -> Table | None:
    """Return the columns of an object that speaks the Arrow C data interface.

    Parameters
    ----------
    obj : object
    tables : bool
        Whether they go to a table framework: then pyarrow reads a stream, and not we.

    Raises
    ------
    UnsupportedConversionError
        The exporter raised, or what it gave is wrong.
    """
    cls = type(obj)
    if hasattr(cls, "__dlpack__") or hasattr(cls, "__array_interface__"):
        return None
    if hasattr(cls, "__arrow_c_stream__"):
        return _of_stream(obj, tables)
    if hasattr(cls, "__arrow_c_device_array__"):
        return _of_memory(obj, [arrow_c.read_device_array(obj)])
    if hasattr(cls, "__arrow_c_array__"):
        return _of_memory(obj, [arrow_c.read_array(obj)])
    return None


def _of_stream(obj: Any, tables: bool) -> Table:
    """Describe a stream by its type: it may be one that can be read only once."""
    name, field = _name(obj), arrow_c.read_field(obj)

    def read() -> Table:
        if tables:
            hub: Any = _hub()
            whole: Table = hub.table(hub.read_all(obj))
            return replace(whole, name=name)
        found, batches = arrow_c.read_stream(obj)
        return _of_memory(obj, list(batches), found)

    single = field is not None and (field.kind != "struct" or bool(field.extension))
    parts = () if field is None else (field,) if single else field.children
    columns = [UnreadColumn(name, part) for part in parts]
    labels = [part.name for part in parts]
    return Table(name, labels, columns, 0, single=single, read=read, once=True, obj=obj)


def _of_memory(obj: Any, chunks: list[arrow_c.Memory], of: Any = None) -> Table:
    name, field = _name(obj), of if of is not None else chunks[0].field
    whole = ArrowColumn(
        name,
        field,
        lambda: chunks,
        sum(c.length for c in chunks),
        lambda: _hub().read_all(obj),
        device=chunks[0].device if chunks else HOST,
    )
    if field.kind != "struct" or field.extension:
        return Table(name, [field.name], [whole], whole.length, single=True, obj=obj)
    if whole.null_count:
        raise UnsupportedConversionError(
            "", f"{whole.null_count:,} of its rows are null, and a table has no null rows", "drop them first"
        )
    columns = [_nth_of(whole, i, obj) for i in range(len(field.children))]
    labels = [child.name for child in field.children]
    return Table(name, labels, columns, whole.length, metadata=field.metadata, obj=obj)


def _nth_of(whole: ArrowColumn, i: int, obj: Any) -> Column:
    column = whole.child(i)
    assert isinstance(column, ArrowColumn)
    column.name = whole.name
    column._arrow = lambda: _hub().read_all(obj).column(i)
    return column


def _hub() -> Any:
    hub = registry.by_name("pyarrow")
    hub.module()
    return hub


def _of_dict(columns: dict[Any, Any]) -> Table:
    """Return a dict's values as columns.

    Raises
    ------
    UnsupportedConversionError
        A value is no column, or they differ in length.
    """
    found: list[Column] = []
    for label, value in columns.items():
        try:
            found.append(_column(value))
        except ZeroCopyError as error:
            error.why = f"column {label!r}: {error.why}"
            raise
    lengths = {column.length for column in found}
    if len(lengths) > 1:
        said = ", ".join(f"{label!r} has {c.length:,}" for label, c in zip(columns, found, strict=True))
        raise UnsupportedConversionError(
            "", f"the columns differ in length: {said}", "a table's columns have one length"
        )
    return Table("dict", list(columns), found, lengths.pop() if lengths else 0, obj=columns)


def _column(value: Any) -> Column:
    table = None if isinstance(value, dict) else table_of(value, tables=True)
    if table is not None and table.read is not None:
        # Reading it here would use it up where nothing but an explanation was asked for.
        raise UnsupportedConversionError(
            "", f"a {type(value).__qualname__} is read once, and is no column before that", "read it first"
        )
    if table is not None and table.single:
        return table.columns[0]
    if isinstance(value, Masked) and not isinstance(value.values, Encoded):
        return _masked(value)
    if isinstance(value, (Encoded, Masked)):
        raise UnsupportedConversionError(
            "", "an Encoded is what a column became, and not one", "pass the column that it was made of"
        )
    if table is not None or isinstance(value, (dict, list, tuple)):
        raise UnsupportedConversionError(
            "",
            f"a {type(value).__qualname__} is no column",
            "pass an array: numpy.asarray(x) of numbers, pyarrow.array(x) of anything",
        )
    source = describe(value)
    if source.view.ndim == 0:
        raise UnsupportedConversionError("", "a value without dimensions is no column", "repeat it first")
    return TensorColumn(source)


def _masked(value: Masked) -> Column:
    """Return values with their mask as the column with nulls that they were."""
    source, mask = describe(value.values), describe(value.mask)
    if source.view.ndim != 1 or mask.view.shape != source.view.shape or mask.view.dtype.name != "bool":
        raise UnsupportedConversionError(
            "", f"a mask of {mask.view.dtype} {mask.view.shape} is none for {source.view.shape}", "mend it"
        )

    def nulls() -> Array:
        fetch = mask.to_host
        hidden: Array = mask.host() if mask.view.device.is_host or fetch is None else fetch(None)
        return hidden

    return TensorColumn(source, mask=cache(nulls))


def holds_tables(columns: dict[Any, Any]) -> bool:
    """Whether a dict's values are tables, so that it is a container of them and no table."""
    return any(
        not isinstance(value, dict) and (table := table_of(value)) is not None and not table.single
        for value in columns.values()
    )


def _of_tensor(source: Source, names: Any) -> Table:
    """Return a tensor as a series, or the columns of a 2-D one as a table."""
    view = source.view
    if view.ndim == 1 and names is None:
        return Table(source.name, [""], [TensorColumn(source)], view.shape[0], single=True, obj=source.obj)
    if view.ndim not in (1, 2):
        raise UnsupportedConversionError(
            "",
            f"a tensor of shape {view.shape} is no table",
            'pass {"name": x}, where its rows become a column of tensors' if view.ndim else "repeat it first",
        )
    width = 1 if view.ndim == 1 else view.shape[1]
    labels = [f"column_{i}" for i in range(width)] if names is None else list(names)
    if len(labels) != width:
        raise UnsupportedConversionError(
            "", f"{len(labels)} names for {width} columns", "name each of them, or leave names out"
        )
    if len(set(labels)) != width:
        twice = sorted({str(label) for label in labels if labels.count(label) > 1})
        raise UnsupportedConversionError("", f"several columns are called {', '.join(twice)}", "rename them")
    if view.ndim == 2:
        # Once for all columns: some exporters hand their memory out a single time.
        source = replace(source, host=cache(source.host))
    columns: list[Column] = [
        TensorColumn(_nth(source, i) if view.ndim == 2 else source) for i in range(width)
    ]
    return Table(source.name, labels, columns, view.shape[0], obj=source.obj)


def _nth(source: Source, i: int) -> Source:
    """Return one column of a 2-D tensor on the host."""
    view: Any = source.view
    if not view.device.is_host:
        raise UnsupportedConversionError(
            "", f"its columns lie on {view.device}", "bring it to the host first, or pass a dict of columns"
        )
    one = replace(view, ptr=view.ptr + i * view.strides[1], shape=view.shape[:1], strides=view.strides[:1])

    def host() -> Array:
        found: Array = source.host()[:, i]
        return found

    return replace(source, view=one, host=host, obj=one)


def _name(obj: Any) -> str:
    cls = type(obj)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
