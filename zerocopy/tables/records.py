"""``layout="records"``: a table as one structured array, with one record per row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from zerocopy import handover
from zerocopy._native import core
from zerocopy.device import HOST
from zerocopy.dtype import by_name, to_numpy
from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.layout.fixed_text import fixed_text
from zerocopy.layout.schema import LAYOUTS
from zerocopy.layout.soa_to_aos import check_types, soa_to_aos
from zerocopy.plan import Plan
from zerocopy.protocols.array_interface import address
from zerocopy.protocols.arrow_schema import Field
from zerocopy.request import Request
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables import nulls, placement
from zerocopy.tables.column import ArrowArray, Column, Table
from zerocopy.tables.decode import Decoder, TensorLeaf, refused_by
from zerocopy.tables.hub import hub
from zerocopy.tables.labels import RENAME, combine_errors, duplicates, listed, text_warnings
from zerocopy.tables.nulls import NO_MASK, Nulls
from zerocopy.tables.options import is_encoded
from zerocopy.tables.placement import in_one_allocation
from zerocopy.tables.tensor_column import padded, padded_dtype, refuse_unpadded

_BYTE = by_name("uint8")
_WRITTEN = Reason(
    "columns are written into rows",
    code="row-layout",
    fixes=[Fix(options={"layout": "columns"}, effect="gives each column on its own")],
)
_KINDS = ("number", "bool", "date", "timestamp", "duration", "fixed_list", "fixed_binary", "struct")
_EXTENSIONS = ("", "arrow.bool8", "arrow.fixed_shape_tensor")

#: The types of offsets, by classes of text; empty for those that are cast.
_OFFSETS = {"StringArray": "i4", "BinaryArray": "i4", "LargeStringArray": "i8", "LargeBinaryArray": "i8"}
_OFFSETS |= dict.fromkeys(("StringViewArray", "BinaryViewArray", "FixedSizeBinaryArray"), "")
_LISTS = ("ListArray", "LargeListArray", "ListViewArray", "LargeListViewArray")

#: A function that returns a field's values.
_Load = Callable[[], Array]
#: A field's format and loader, and its source if its memory could be part of existing records.
_Described = tuple[Any, "_Load | dict[str, Any]", Source | None]


def plan(table: Table, request: Request) -> Plan:
    """Return the plan of a table as a structured array."""
    if not request.target.has_records:
        why = f"{request.target.name} has no structured arrays"
        fixes = [Fix(options={"layout": None}, effect="gives a dict of columns")]
        raise UnsupportedConversionError("", why, code="option-value", fixes=fixes)
    own = table.obj
    if isinstance(own, np.ndarray) and own.dtype.names is not None and request.columns is None:
        for name in ("nulls", "encode"):
            if getattr(request, name) is not None:
                why = f"{name}= applies to columns, and the result is records"
                fixes = [Fix(options={name: None})]
                raise UnsupportedConversionError("", why, code="option-value", fixes=fixes)
        return unchanged(table, request)
    packed, columns, sources = _fields(table, request)
    dtype = packed
    if (record := None if request.cast is None else request.cast.record) is not None:
        _check_names(packed, record)
        check_types(packed, record)
        dtype = record

    def host() -> Array:
        if not dtype.itemsize:  # without columns soa_to_aos does not know the number of rows
            return np.zeros(table.length, dtype)
        return soa_to_aos(_loaded(columns), dtype, copy=True)

    # The columns are records of `packed` alone: other offsets, byte orders and types have other bytes.
    source = _existing(table, dtype, sources) if dtype == packed else None
    steps: tuple[str, ...] = ()
    if source is None:
        steps = ("write the columns into rows",)
        # The planner has no record type: it sees rows of bytes.
        shape = (table.length, dtype.itemsize)
        view = StridedView(0, shape, contiguous_strides(shape, 1), _BYTE, HOST, False, table)

        def rows() -> Array:
            records = host()
            return records.view(np.uint8).reshape(shape) if records.nbytes else np.empty(shape, np.uint8)

        source = Source(table.name, view, rows, "arrow-c", [_WRITTEN], obj=view)
    plan = handover.plan(source, request)
    run = plan.run
    assert run is not None
    records = (lambda: run().view(dtype)[:, 0]) if table.length and dtype.itemsize else host
    warnings = (*plan.warnings, *text_warnings(request.target.name, table.labels))
    whole = replace(plan, source=f"{table.name} {table.shape}", steps=steps or plan.steps)
    return replace(whole, warnings=warnings, run=records)


def make_route(
    export: Callable[..., tuple[object, ...]] | None,
    target: Framework,
    options: Mapping[str, object],
    to_numpy: Callable[[object], Array],
) -> Callable[[object], Array] | None:
    """Return the route of tables to records with text; None for other options.

    `export` is the exporter ``hub`` of the table, None for a table of the hub; `to_numpy` converts columns by
    their routes. A plan takes 200 us.
    """
    columns_of = hub().fast_exporters(hub().module().Table)["columns"]
    if core is None or "dtype" not in options or not options.keys() <= {"layout", "dtype", "columns"}:
        return None
    dtype = np.dtype(options["dtype"])  # type: ignore[call-overload]
    chosen: Sequence[str] | None = options.get("columns")  # type: ignore[assignment]
    texts = {name: dtype[name].newbyteorder("=") for name in dtype.names or () if dtype[name].kind in "SU"}
    if not texts:
        return None  # without text, the records may be an alias

    def read(name: str, column: ArrowArray) -> Array:
        if name not in texts:
            if type(column).__name__ in _LISTS:
                raise ValueError("lists of any length: the slow path refuses them")
            return to_numpy(column)
        if type(column).__name__ not in _OFFSETS or column.null_count:
            raise ValueError("no text, or nulls: the slow path decides")
        text = _rows_of_text(column, texts[name])
        if text is None:
            raise ValueError("a text does not fit: the error of the slow path names it")
        return text

    def route(table: object) -> Array:
        pairs = columns_of(table if export is None else export(table, target)[1])
        columns = dict(pairs)
        if len(columns) != len(pairs) or {*(chosen or columns)} != {*dtype.names}:
            raise ValueError("other names: the slow path refuses them")
        arrays = {name: read(name, columns[name]) for name in dtype.names}
        joined: Array | None = core.join_columns(arrays, dtype, LAYOUTS)
        return soa_to_aos(arrays, dtype, copy=True) if joined is None else joined

    return route


def _check_names(dtype: np.dtype[np.generic], record: np.dtype[np.generic]) -> None:
    names, fields = dtype.names or (), record.names or ()
    if {*names} != {*fields}:
        why = f"dtype= has the fields {', '.join(map(repr, fields))}, and the columns are {listed(names)}"
        fixes = [Fix(options={"dtype": None}, effect="gives the fields the columns' types")]
        raise UnsupportedConversionError("", why, code="unknown-name", fixes=fixes)


def _existing(table: Table, dtype: np.dtype[np.generic], sources: list[Source | None]) -> Source | None:
    """Return the rows of bytes whose fields the columns are already, or None.

    One contiguous column is such records, and so are neighbouring columns of one row-major array. The
    fields have no padding, so each byte of a row belongs to a column.
    """
    kept = [source for source in sources if source is not None and not source.reasons]
    if len(kept) < len(sources) or not kept or not table.length or not dtype.itemsize:
        return None
    views = [source.view for source in kept]
    if not all(view.device.is_host for view in views):
        return None
    first, stride = views[0], views[0].strides[0]
    if table.length == 1:
        stride = dtype.itemsize
    if stride < dtype.itemsize:
        return None
    offset = 0
    for view in views:
        row = replace(view, shape=view.shape[1:], strides=view.strides[1:])
        if view.ptr != first.ptr + offset or not row.c_contiguous:
            return None
        if table.length > 1 and view.strides[0] != stride:
            return None
        offset += row.nbytes
    readonly = any(view.readonly for view in views)
    owner = tuple(view.owner for view in views)
    shape = (table.length, dtype.itemsize)
    rows = StridedView(first.ptr, shape, (stride, 1), _BYTE, HOST, readonly, owner)
    if len(views) > 1 and not in_one_allocation(rows, first):
        return None

    def host() -> Array:
        # Called although only addresses are needed: it waits for the producer's work.
        arrays = tuple(source.host() for source in kept)
        return replace(rows, owner=(owner, arrays)).numpy()

    return Source(table.name, rows, host, kept[0].protocol, obj=rows)


def unchanged(table: Table, request: Request) -> Plan:
    """Return the plan of the target's own array that is not a tensor: itself, or a copy of it."""
    array: Array = table.obj
    shape, strides = (len(array), array.itemsize), (*array.strides, 1)
    view = StridedView(address(array), shape, strides, _BYTE, HOST, not array.flags.writeable, array)
    # As rows of bytes, because the planner has no type for records; it only decides about a copy.
    plan = handover.plan(Source(table.name, view, lambda: array, "buffer", obj=view), request)

    def run() -> Array:
        result = array if not plan.reasons else array.copy()
        if request.writable is False and result.flags.writeable:
            result = result.view()
            result.flags.writeable = False
        return result

    return replace(plan, source=f"{table.name} {table.shape}", steps=(), run=run)


# -- fields -----------------------------------------------------------------------


def _fields(
    table: Table, request: Request
) -> tuple[np.dtype[np.generic], dict[str, Any], list[Source | None]]:
    """Return the records' dtype, each field's loader, and each field's source."""
    if is_encoded(request):
        why = "encode= adds units and categories to numbers, and a record cannot hold them"
        fixes = [Fix(options={"encode": None})]
        raise UnsupportedConversionError("", why, code="option-value", fixes=fixes)
    names = _unique([str(label) for label in table.labels])
    record = None if request.cast is None else request.cast.record
    formats: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    sources: list[Source | None] = []
    refused: dict[Hashable, ZeroCopyError] = {}
    for name, label, column in zip(names, table.labels, table.columns, strict=True):
        policy = nulls.parse(request.nulls, label)
        try:
            wanted = record[name] if record is not None and name in (record.names or ()) else None
            kind, columns[name], source = _text(column, wanted, policy) or _field(column, policy)
            formats[name] = kind
            sources.append(source)
        except ZeroCopyError as error:
            refused[label] = error
    if refused:
        _offer_bytes(table, names, formats, refused)
        raise combine_errors(refused)
    return _record(names, [*formats.values()]), columns, sources


def _offer_bytes(
    table: Table, names: list[str], formats: dict[str, Any], refused: dict[Hashable, ZeroCopyError]
) -> None:
    """Add to refusals of text alone the fix by a type of records that holds the longest values."""
    wide, options = {}, dict[str, Any]()
    for name, label, column in zip(names, table.labels, table.columns, strict=True):
        if label in refused:
            if column.field is None or column.field.kind not in ("string", "string_view"):
                return
            if column.is_unread:
                return
            pa, lengths = hub().module(), hub().compute().binary_length
            longest = hub().compute().max(lengths(hub().cast_views(column.arrow(), pa.large_binary())))
            wide[name] = f"S{longest.as_py() or 1}"
            options |= {"nulls": "drop"} if column.null_count else {}
    kinds = {name: kind if isinstance(kind, tuple) else (kind, ()) for name, kind in formats.items()}
    if any(kind.names for kind, _ in kinds.values()):
        return  # a record within a record has no literal
    fields = {name: (kind.str, *([shape] if shape else [])) for name, (kind, shape) in kinds.items()}
    options["dtype"] = [(name, *(fields.get(name) or [wide[name]])) for name in names]
    effect = "gives bytes of the longest text" + ", and leaves rows with nulls out" * ("nulls" in options)
    for label, error in refused.items():
        fixes = [Fix(options=options, effect=effect), *error.fixes]
        refused[label] = type(error)("", error.why, code=error.code, fixes=fixes)


def _unique(names: list[str]) -> list[str]:
    if twice := duplicates(names):
        why = f"several columns are called {listed(twice)}, and a record has each field once"
        raise UnsupportedConversionError("", why, code="duplicate-names", fixes=[RENAME])
    return names


def _record(names: list[str], formats: list[Any]) -> np.dtype[np.generic]:
    return np.dtype({"names": names, "formats": formats}) if names else np.dtype([])


def _field(column: Column, policy: Nulls) -> _Described:
    """Return a field's format, the function that returns its values, and its source if it is one array.

    Types that records lack are refused.
    """
    field = column.field
    if policy.mode == "mask":
        why = "it would have a mask, and a record cannot hold one"
        raise LossyConversionError("", why, code="nulls", fixes=NO_MASK)
    if field is not None and (
        (field.kind not in _KINDS and padded_dtype(field) is None)
        or field.extension not in _EXTENSIONS
        or field.timezone
    ):
        lack = ", and NumPy's datetime64 has no time zone" if field.timezone else ", which records lack"
        floats = [Fix(action="cast:float64", effect="gives floats")] if field.kind == "decimal" else []
        fixes = [*floats, Fix(options={"layout": "columns"}, effect="gives a dict of columns")]
        raise UnsupportedConversionError("", f"it is {field}{lack}", code="no-record-type", fixes=fixes)
    if field is not None and field.kind == "struct":
        policy.refuse(column)
        parts = [_field(column.child(i), policy) for i in range(len(field.children))]
        inner = _unique([child.name for child in field.children])
        loads = {name: part[1] for name, part in zip(inner, parts, strict=True)}
        return _record(inner, [part[0] for part in parts]), loads, None
    if field is not None and field.kind in ("fixed_binary", "binary"):
        return _bytes(column, field, policy)
    if field is not None and field.kind == "fixed_list" and not _of_numbers(column):
        return _sub_array(column, field.list_size, policy)
    leaf = Decoder(policy, datetimes=True).decode(column)
    assert isinstance(leaf, TensorLeaf)
    return _plain(leaf)


def _text(column: Column, wanted: np.dtype[np.generic] | None, policy: Nulls) -> _Described | None:
    """Return text as the field of ``S`` or ``U`` that the caller wants; None for other columns and fields."""
    kinds = ("string", "binary", "string_view", "binary_view", "fixed_binary")
    if wanted is None or wanted.kind not in "SU" or column.field is None or column.field.kind not in kinds:
        return None
    native = wanted.newbyteorder("=")
    if not column.length:  # a column that has not been read has a type, but no values
        return native, lambda: np.empty(0, native), None
    array = column.arrow()
    if array.null_count:
        policy.refuse(column)
    values = None if array.null_count else _rows_of_text(array, native)
    if values is None:  # or raise, with the first value that does not fit
        values = fixed_text(array.to_pylist(), native, "it")
    return native, lambda: values, None


def _rows_of_text(array: ArrowArray, dtype: np.dtype[np.generic]) -> Array | None:
    """Return text or bytes as ``S`` or ``U``; None without the core, or if a value does not fit."""
    if core is None or not dtype.itemsize:
        return None
    pa = hub().module()
    whole = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    kind = _OFFSETS.get(type(whole).__name__, "")
    if not kind:
        whole, kind = hub().cast_views(whole, pa.large_binary()), "i8"
    _, offsets, data = whole.buffers()
    ends = np.frombuffer(offsets, kind, len(whole) + 1, whole.offset * int(kind[1]))
    text = np.frombuffer(b"" if data is None else data, np.uint8)
    out = np.empty(len(whole), dtype)
    return out if core.write_texts(out, text, ends) else None


def _bytes(column: Column, field: Field, policy: Nulls) -> _Described:
    policy.refuse(column)
    dtype = padded_dtype(field)
    if field.kind == "binary":
        assert dtype is not None
        refuse_unpadded(column, dtype)
        return dtype, partial(padded, column, dtype), None
    kind = np.dtype(f"V{field.width}") if dtype is None else dtype
    source = column.values(_BYTE, (field.width,))
    if not field.width:
        return kind, lambda: np.zeros(column.length, kind), None
    source.check_copy()
    return kind, lambda: np.ascontiguousarray(placement.fetch(source)).view(kind)[:, 0], source


def _of_numbers(column: Column) -> bool:
    field = column.field
    assert field is not None
    return _of_numbers(column.child()) if field.kind == "fixed_list" else field.kind in ("number", "bool")


def _sub_array(column: Column, size: int, policy: Nulls) -> _Described:
    policy.refuse(column)
    kind, load, _ = _field(column.child(), policy)
    base, shape = kind if isinstance(kind, tuple) else (kind, ())
    return (base, (size, *shape)), _in_lists(load, column.length, size), None


def _in_lists(load: _Load | dict[str, Any], rows: int, size: int) -> Any:
    if isinstance(load, dict):
        return {name: _in_lists(part, rows, size) for name, part in load.items()}

    def lists() -> Array:
        flat = load()
        return flat.reshape(rows, size, *flat.shape[1:])

    return lists


def _plain(leaf: TensorLeaf) -> _Described:
    view = leaf.source.view
    if leaf.source.refusal is not None:
        raise refused_by(leaf.source.refusal)
    dtype = np.dtype(leaf.datetime_dtype) if leaf.datetime_dtype else to_numpy(view.dtype)
    if dtype is None:
        why = f"it is {view.dtype}, which NumPy lacks"
        remedy = "pip install ml_dtypes, which adds it to NumPy"
        raise UnsupportedConversionError("", why, remedy, code="missing-dtype")
    leaf.source.check_copy()
    return (dtype, view.shape[1:]), lambda: placement.fetch(leaf.source).view(dtype), leaf.source


def _loaded(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: _loaded(load) if isinstance(load, dict) else load() for name, load in columns.items()}
