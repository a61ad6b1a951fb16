"""libcudf's columns as Arrow memory, and Arrow memory and tensors of other frameworks as its columns.

The layout is Arrow's ("libcudf Developer Guide", columns) with three differences: a boolean is one
byte, `data` and `null_mask` do not include the column's offset, and a string column's `data` holds
the characters and its child the offsets.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from typing import Any

from zerocopy import registry
from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Device
from zerocopy.dtype import by_name
from zerocopy.errors import Reason
from zerocopy.protocols import cuda_array_interface, cuda_driver, dlpack
from zerocopy.protocols.arrow_c import Memory
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Source
from zerocopy.strided_view import StridedView
from zerocopy.tables import memory
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.tensor_column import TensorColumn

#: Arrow's format of each ``pylibcudf.TypeId``, by name, since the numbers changed between versions.
FORMATS = {
    **{f"INT{bits}": Field.of(f"int{bits}").format for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": Field.of(f"uint{bits}").format for bits in (8, 16, 32, 64)},
    **{f"FLOAT{bits}": Field.of(f"float{bits}").format for bits in (32, 64)},
    "TIMESTAMP_DAYS": "tdD",
    **{f"TIMESTAMP_{unit}": f"ts{unit[0].lower()}:" for unit in ("SECONDS", "NANOSECONDS")},
    "TIMESTAMP_MILLISECONDS": "tsm:",
    "TIMESTAMP_MICROSECONDS": "tsu:",
    "DURATION_SECONDS": "tDs",
    "DURATION_MILLISECONDS": "tDm",
    "DURATION_MICROSECONDS": "tDu",
    "DURATION_NANOSECONDS": "tDn",
    "EMPTY": "n",
}
_TYPES = {name: kind for kind, name in FORMATS.items()}
_DIGITS = {"DECIMAL32": 9, "DECIMAL64": 18, "DECIMAL128": 38}


def _address(span: Any) -> int:
    if span is None:
        return 0
    address = span.ptr if hasattr(span, "ptr") else span.__cuda_array_interface__["data"][0]
    return int(address or 0)


def any_address(col: Any) -> int:
    """Return any address in a column's memory; 0 if it has no memory."""
    address = _address(col.data()) or _address(col.null_mask())
    return address or next((a for i in range(col.num_children()) if (a := any_address(col.child(i)))), 0)


def read(col: Any, dtype: Any, owner: Any, device: Device, stream: int) -> Memory:
    kind: str = col.type().id().name
    nulls = col.null_count()
    mask, data = _address(col.null_mask()) if nulls else 0, _address(col.data())
    below: list[Memory] = []
    buffers: tuple[int, ...] = (mask, data)
    dictionary = None
    if kind in ("STRING", "LIST"):
        ends = col.child(0) if col.num_children() else None
        if ends is None and (col.size() or kind == "LIST"):
            raise obstacles.refuse_column(
                "it has no offsets: all its rows are null", "fill them, or leave it out", code="nulls"
            )
        wide = ends is not None and ends.type().id().name == "INT64"
        first = 0 if ends is None else _address(ends.data()) + ends.offset() * (8 if wide else 4)
        if kind == "STRING":
            buffers, field = (mask, first, data), Field("U" if wide else "u")
        else:
            below = [read(col.child(1), getattr(dtype, "element_type", None), owner, device, stream)]
            buffers, field = (mask, first), Field("+l", children=(replace(below[0].field, name="item"),))
    elif kind == "STRUCT":
        unnamed = {f"field_{i}": None for i in range(col.num_children())}
        named = dict(getattr(dtype, "fields", None) or unnamed)
        below = [read(col.child(i), of, owner, device, stream) for i, of in enumerate(named.values())]
        fields = [replace(part.field, name=name) for name, part in zip(named, below, strict=True)]
        buffers, field = (mask,), Field("+s", children=tuple(fields))
    elif kind in _DIGITS:
        digits = getattr(dtype, "precision", _DIGITS[kind])
        field = Field(f"d:{digits},{-col.type().scale()},{kind.removeprefix('DECIMAL')}")
    elif kind == "BOOL8":
        field = Field.of("bool8")
    else:
        zone = getattr(dtype, "tz", None)
        # A type without a format in Arrow keeps its name, for the refusal's message.
        field = Field(FORMATS.get(kind, kind) + (str(zone) if zone is not None else ""))
        buffers = () if kind == "EMPTY" else buffers
    if hasattr(dtype, "categories"):
        # The pylibcudf column has only the codes; the dtype has the categories.
        col_of, _ = dtype.categories.to_pylibcudf()
        dictionary = read(col_of, dtype.categories.dtype, (owner, col_of), device, stream)
        field = replace(field, dictionary=dictionary.field, ordered=bool(dtype.ordered))
    return Memory(
        field,
        col.size(),
        col.offset(),
        nulls,
        buffers,
        tuple(below),
        dictionary,
        owner,
        device,
        stream=stream,
    )


def build(plc: Any, chunk: Memory) -> Any:
    """Return a column over Arrow memory on the device.

    It is built from the buffers, because ``Column.from_arrow`` treats a null count of -1, "not
    counted", as 0 and drops the mask.
    """
    field, kind, rows = chunk.field, chunk.field.kind, chunk.offset + chunk.length
    count = memory.null_count(chunk)

    def span(ptr: int, nbytes: int) -> Any:
        view = StridedView(ptr, (nbytes,), (1,), by_name("uint8"), chunk.device, True, chunk)
        return plc.gpumemoryview(cuda_array_interface.Handover(view, None, chunk)) if ptr and nbytes else None

    def of(name: str, *scale: int) -> Any:
        return plc.DataType(getattr(plc.TypeId, name), *scale)

    mask = span(chunk.buffers[0], (rows + 7) // 8) if count else None
    data, inner = None, []
    if kind in ("string", "list"):
        wide = 8 if field.wide else 4
        ends = span(chunk.buffers[1], (rows + 1) * wide)
        inner = [plc.Column(of(f"INT{wide * 8}"), rows + 1, ends, None, 0, 0, [])] if ends is not None else []
        if kind == "string":
            data, kinds = span(chunk.buffers[2], memory.used(chunk)[1]), of("STRING")
        else:
            inner, kinds = [*inner, build(plc, chunk.children[0])], of("LIST")
    elif kind == "struct":
        inner, kinds = [build(plc, child) for child in chunk.children], of("STRUCT")
    elif kind == "bool":
        unpacked = plc.transform.mask_to_bools(chunk.buffers[1], 0, rows)
        data, kinds = unpacked.data(), of("BOOL8")
    elif kind == "decimal":
        data = span(chunk.buffers[1], rows * field.width)
        kinds = of(f"DECIMAL{field.width * 8}", -field.scale)
    else:
        data, kinds = span(chunk.buffers[1], rows * field.width), of(_TYPES[field.format])
    return plc.Column(kinds, chunk.length, data, mask, count, chunk.offset, inner)


#: Kinds of Arrow types that cuDF lacks, with the remedies.
_LACKS = {
    "time": "cast it to integers in Arrow: x.cast('int64')",
    "interval": "cast it to a duration in Arrow",
    "fixed_binary": "leave it out with columns=[...]",
    "binary": "leave it out with columns=[...], or cast text to string",
    "binary_view": "leave it out with columns=[...], or cast text to string",
    "list_view": "cast it to a list in Arrow",
    "map": "cast it to a list of structs in Arrow",
    "union": "leave it out with columns=[...]",
    "run_end_encoded": "decode it in Arrow: pyarrow.compute.run_end_decode(x)",
    "unknown": "cast it in the source",
}
#: Kinds that are cast on the host, which is not possible on the device.
_NOT_ALIASED = ("fixed_list", "string_view", "dictionary")


def stream() -> int:
    """Return the stream that cuDF uses; pylibcudf reads this variable when it is imported."""
    per_thread = os.environ.get("CUDF_PER_THREAD_STREAM") == "1"
    return PER_THREAD_DEFAULT_STREAM if per_thread else LEGACY_DEFAULT_STREAM


def current_device() -> int:
    """Return the index of the current device, from CuPy, on which cuDF depends."""
    if cuda_driver.missing() is not None:
        return 0
    return int(import_module("cupy").cuda.runtime.getDevice())


# -- reasons and refusals -------------------------------------------------------------


def _check_current(device: Device) -> None:
    if device.id != current_device():
        raise obstacles.refuse_column(
            f"it is on {device}, and cuDF works on the current device, cuda:{current_device()}",
            f"make {device} current first: cupy.cuda.Device({device.id}).use()",
            code="other-device",
        )


def tensor_reasons(column: TensorColumn) -> list[Reason]:
    """Return the reasons to copy a tensor on the device; refuse one that libcudf cannot hold."""
    source, view = column.source, column.source.view
    if source.refusal is not None:
        raise obstacles.refuse_column(source.refusal.why, source.refusal.remedy, code=source.refusal.code)
    check_tensor(view)
    _check_current(view.device)
    reasons = list(source.reasons)
    if not view.c_contiguous:
        reasons.append(obstacles.layout("cuDF", "memory without gaps"))
    if not view.is_aligned(view.dtype.itemsize):
        reasons.append(obstacles.MISALIGNED)
    return reasons


def check_tensor(view: StridedView) -> None:
    """Refuse a tensor that is not 1-dimensional, or has a dtype that cuDF lacks."""
    if view.ndim != 1:
        raise obstacles.refuse_column(
            f"it is a tensor of shape {view.shape}, and cuDF's columns are flat",
            "pass its columns one by one",
            code="too-many-dimensions",
        )
    name = view.dtype.name
    if name != "bool" and name.upper() not in FORMATS:
        raise obstacles.refuse_column(f"it is {name}, which cuDF lacks", "cast it in its own framework")


def device_copy_reasons(column: ArrowColumn) -> list[Reason]:
    """Return the reasons to copy Arrow memory on the device; refuse types that libcudf cannot hold."""
    check(column.field)
    _check_current(column.device)
    parts = list(column.field.walk())
    not_aliased = [p for p in parts if p.kind in _NOT_ALIASED or p.format == "+L" or p.timezone]
    if not_aliased:
        raise obstacles.refuse_column(
            f"it is {column.field}, and cuDF cannot alias {not_aliased[0]} on the GPU",
            "copy it to the host first",
        )
    bits = any(part.kind == "bool" for part in parts)
    why = Reason("Arrow packs booleans into bits, and cuDF has one byte for each", code="packed-bits")
    return [*column.reasons, *([why] if bits else ())]


def check(field: Field) -> None:
    """Refuse types that cuDF lacks and that no cast replaces."""
    for part in field.walk():
        remedy = _LACKS.get(part.kind)
        if part.format == "e" or (part.kind == "decimal" and part.width > 16):
            remedy = "cast it in Arrow: x.cast('float64')"
        if part.extension == "arrow.fixed_shape_tensor":
            remedy = "pass its columns one by one, because cuDF's columns are flat"
        if remedy is not None:
            raise obstacles.refuse_column(f"it is {field}, which cuDF lacks", remedy)


# -- aliases and casts ------------------------------------------------------------------


def alias_tensor(plc: Any, source: Source) -> Any:
    """Return a column over a tensor's memory; cuDF's stream waits for the work on it."""
    view = source.view
    if source.reasons or not view.c_contiguous or not view.is_aligned(view.dtype.itemsize):
        if source.contiguous is None:
            relay = registry.relay(view)
            source = relay.source(relay.from_device(source, None))
        assert source.contiguous is not None
        obj = source.contiguous()
        owner_of = registry.by_type(type(obj))
        assert owner_of is not None
        source = owner_of.source(obj)
        view = source.view
    producer = source.producer
    if hasattr(type(producer), "__dlpack__"):
        # The capsule is held unconsumed; its destructor runs the deleter.
        producer = (dlpack.request(producer, stream=stream()), producer)
    else:
        order(cuda_array_interface.read(producer, view.device.id)[1], view.device)
    # Without a stream and a mask: cuDF ignores the stream, and older versions the mask.
    return plc.Column.from_cuda_array_interface(cuda_array_interface.Handover(view, None, producer))


def order(first: int | None, device: Device) -> None:
    """Make cuDF's stream wait for the work on another stream."""
    if first not in (None, stream()):
        cuda_driver.order(first, stream(), device.id)  # type: ignore[arg-type]


def storage_type(pa: Any, kind: Any) -> Any:
    """Return the type in which cuDF stores the values of an Arrow type."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.bool_() if kind.extension_name == "arrow.bool8" else storage_type(pa, kind.storage_type)
    if kind == pa.string_view():
        return pa.large_string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(storage_type(pa, kind.value_type)))
    if pa.types.is_dictionary(kind):
        # libcudf requires signed codes; a dictionary's codes never need the highest bit.
        codes = kind.index_type
        if pa.types.is_unsigned_integer(codes):
            codes = {8: pa.int16(), 16: pa.int32(), 32: pa.int32(), 64: pa.int64()}[codes.bit_width]
        return pa.dictionary(codes, storage_type(pa, kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(storage_type(pa, field.type)) for field in kind])
    return kind
