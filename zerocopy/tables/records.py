"""``layout="records"``: a table as one structured array, a row a record."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy.device import HOST
from zerocopy.dtype import by_name, to_numpy
from zerocopy.errors import LossyConversionError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.layout.soa_to_aos import soa_to_aos
from zerocopy.plan import Plan
from zerocopy.protocols.array_interface import address
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables import nulls
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import Decoder, Leaf
from zerocopy.tables.nulls import Nulls
from zerocopy.tables.refusals import together
from zerocopy.tables.request import Request

_BYTE = by_name("uint8")
_WRITTEN = Reason("columns are written into rows", 'layout="columns" gives each column as it is')
_KINDS = ("number", "bool", "date", "timestamp", "duration", "fixed_list", "fixed_binary", "struct")
_EXTENSIONS = ("", "arrow.bool8", "arrow.fixed_shape_tensor")

#: What makes a field's column.
_Made = Callable[[], Array]


def plan(table: Table, request: Request) -> Plan:
    """Return the plan of a table as a structured array.

    Raises
    ------
    ZeroCopyError
        Records have no such fields, or what ``convert`` raises for a tensor.
    """
    if request.target.name != "numpy":
        raise UnsupportedConversionError(
            "",
            f"{request.target.name} has no structured arrays",
            'convert it to "numpy", or leave layout out for a dict of columns',
        )
    own = table.obj
    if isinstance(own, np.ndarray) and own.dtype.names is not None and request.options.columns is None:
        for name in ("nulls", "encode"):
            if getattr(request.options, name) is not None:
                raise UnsupportedConversionError(
                    "", f"{name}= is for columns, and these are records", "leave it out"
                )
        return as_it_is(table, request)
    dtype, columns = _fields(table, request)

    def host() -> Array:
        if not dtype.itemsize:  # no columns, which say nothing of the rows
            return np.zeros(table.length, dtype)
        return soa_to_aos(_made(columns), dtype)

    # The planner knows types of elements; records are rows of bytes to it.
    shape = (table.length, dtype.itemsize)
    view = StridedView(0, shape, contiguous_strides(shape, 1), _BYTE, HOST, False, table)

    def rows() -> Array:
        records = host()
        return records.view(np.uint8).reshape(shape) if records.nbytes else np.empty(shape, np.uint8)

    plan = request.between(Source(table.name, view, rows, "arrow-c", [_WRITTEN], obj=view), request.copy)
    run = plan.run
    assert run is not None
    seen = (lambda: _rows(run(), dtype)) if table.length and dtype.itemsize else host
    return replace(
        plan, source=f"{table.name} {table.shape}", steps=("write the columns into rows",), run=seen
    )


def _rows(raw: Array, dtype: np.dtype[Any]) -> Array:
    return raw.view(dtype)[:, 0]


def as_it_is(table: Table, request: Request) -> Plan:
    """Return the plan of NumPy's own array that is no tensor: itself, or a copy of it."""
    array: Array = table.obj
    shape, strides = (len(array), array.itemsize), (*array.strides, 1)
    view = StridedView(address(array), shape, strides, _BYTE, HOST, not array.flags.writeable, array)
    # As bytes, since the planner knows types of elements; all it does here is to decide.
    plan = request.between(Source(table.name, view, lambda: array, "buffer", obj=view), request.copy)

    def run() -> Array:
        given = array if not plan.reasons else array.copy()
        if request.writable is False and given.flags.writeable:
            given = given.view()
            given.flags.writeable = False
        return given

    return replace(plan, source=f"{table.name} {table.shape}", steps=(), run=run)


# -- fields -----------------------------------------------------------------------


def _fields(table: Table, request: Request) -> tuple[np.dtype[Any], dict[str, Any]]:
    if request.options.encode:
        raise UnsupportedConversionError(
            "",
            "encode=True sets units and categories beside numbers, and a record has no place for them",
            "leave it out",
        )
    names = _unique([str(label) for label in table.labels])
    formats: list[Any] = []
    columns: dict[str, Any] = {}
    refused: dict[Hashable, ZeroCopyError] = {}
    for name, label, column in zip(names, table.labels, table.columns, strict=True):
        policy = nulls.parse(request.options.nulls, label)
        try:
            kind, columns[name] = _field(column, policy)
            formats.append(kind)
        except ZeroCopyError as error:
            refused[label] = error
    if refused:
        raise together(refused)
    return _record(names, formats), columns


def _unique(names: list[str]) -> list[str]:
    twice = list(dict.fromkeys(name for name in names if names.count(name) > 1))
    if twice:
        raise UnsupportedConversionError(
            "",
            f"several columns are called {', '.join(map(repr, twice))}, and a record has each field once",
            "rename them, or pick some with columns=[...]",
        )
    return names


def _record(names: list[str], formats: list[Any]) -> np.dtype[Any]:
    return np.dtype({"names": names, "formats": formats}) if names else np.dtype([])


def _field(column: Column, policy: Nulls) -> tuple[Any, _Made | dict[str, Any]]:
    """Return a field's format, and what makes its column.

    Raises
    ------
    ZeroCopyError
        Records have no such field; the reason begins with what follows a column's name.
    """
    field = column.field
    if policy.how == "mask":
        raise LossyConversionError(
            "",
            "would have a mask beside it, and a record has no place for one",
            'nulls="nan" or a value such as nulls=0 fills nulls; layout="columns" gives masks',
        )
    if field is not None and (
        field.kind not in _KINDS or field.extension not in _EXTENSIONS or field.timezone
    ):
        zone = ", and NumPy's dates have no time zone" if field.timezone else ", which records have not"
        raise UnsupportedConversionError(
            "", f"is {field}{zone}", "cast it first, or leave it out with columns=[...]"
        )
    if field is not None and field.kind == "struct":
        policy.refuse(column)
        parts = [_field(column.child(i), policy) for i in range(len(field.children))]
        inner = _unique([child.name for child in field.children])
        return _record(inner, [part[0] for part in parts]), {
            name: part[1] for name, part in zip(inner, parts, strict=True)
        }
    if field is not None and field.kind == "fixed_binary":
        policy.refuse(column)
        said = field.metadata.get(b"zerocopy:numpy", b"").decode()
        kind = np.dtype(said if said == f"S{field.width}" else f"V{field.width}")
        source = column.values(_BYTE, (field.width,))
        if not field.width:
            return kind, lambda: np.zeros(column.length, kind)
        return kind, lambda: np.ascontiguousarray(_fetched(source)).view(kind)[:, 0]
    if field is not None and field.kind == "fixed_list" and not _of_numbers(column):
        return _sub_array(column, field.list_size, policy)
    leaf = Decoder(policy, temporal=True).decode(column)
    assert isinstance(leaf, Leaf)
    return _plain(leaf)


def _of_numbers(column: Column) -> bool:
    """Whether lists of one length, of such lists and so on, are of numbers in the end."""
    field = column.field
    assert field is not None
    return _of_numbers(column.child()) if field.kind == "fixed_list" else field.kind in ("number", "bool")


def _sub_array(column: Column, size: int, policy: Nulls) -> tuple[Any, _Made | dict[str, Any]]:
    policy.refuse(column)
    kind, made = _field(column.child(), policy)
    base, shape = kind if isinstance(kind, tuple) else (kind, ())
    return (base, (size, *shape)), _in_lists(made, column.length, size)


def _in_lists(made: _Made | dict[str, Any], rows: int, size: int) -> Any:
    if isinstance(made, dict):
        return {name: _in_lists(part, rows, size) for name, part in made.items()}

    def lists() -> Array:
        flat = made()
        return flat.reshape(rows, size, *flat.shape[1:])

    return lists


def _plain(leaf: Leaf) -> tuple[Any, _Made]:
    view = leaf.source.view
    if leaf.source.refusal is not None:
        raise UnsupportedConversionError("", leaf.source.refusal.why, leaf.source.refusal.remedy)
    found = np.dtype(leaf.temporal) if leaf.temporal else to_numpy(view.dtype)
    if found is None:
        raise UnsupportedConversionError(
            "", f"is {view.dtype}, which NumPy has not", "pip install ml_dtypes, which adds it to NumPy"
        )
    dtype = found
    return (dtype, view.shape[1:]), lambda: _fetched(leaf.source).view(dtype)


def _fetched(source: Source) -> Array:
    if source.view.device.is_host:
        return source.host()
    if source.to_host is None:
        raise UnsupportedConversionError("", f"is on {source.view.device}", "bring it to the host first")
    return source.to_host(None)


def _made(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: _made(made) if isinstance(made, dict) else made() for name, made in columns.items()}
