"""libcudf's columns as Arrow memory, and Arrow memory as libcudf's columns.

The layout is Arrow's ("libcudf Developer Guide", columns) with three differences: a boolean is one
byte, `data` and `null_mask` do not include the column's offset, and a string column's `data` holds
the characters and its child the offsets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import Device
from zerocopy.dtype import by_name
from zerocopy.protocols import cuda_array_interface
from zerocopy.protocols.arrow_c import Memory
from zerocopy.protocols.arrow_schema import Field
from zerocopy.strided_view import StridedView
from zerocopy.tables import memory

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
    """Return the address of a column's buffer."""
    if span is None:
        return 0
    address = span.ptr if hasattr(span, "ptr") else span.__cuda_array_interface__["data"][0]
    return int(address or 0)


def any_address(col: Any) -> int:
    """Return any address in a column's memory; 0 if it has no memory."""
    address = _address(col.data()) or _address(col.null_mask())
    return address or next((a for i in range(col.num_children()) if (a := any_address(col.child(i)))), 0)


def read(col: Any, dtype: Any, owner: Any, device: Device, stream: int) -> Memory:
    """Describe a column and its children."""
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
        field = Field.of("bool")
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
