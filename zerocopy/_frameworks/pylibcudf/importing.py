"""Imports columns of other frameworks into libcudf: refusals, reasons for copies, and aliases."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from zerocopy import registry
from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.pylibcudf import memory as libcudf
from zerocopy.device import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Device
from zerocopy.errors import Reason
from zerocopy.protocols import cuda_array_interface, cuda_driver, dlpack
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Source
from zerocopy.strided_view import StridedView
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.tensor_column import TensorColumn

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
    if name != "bool" and name.upper() not in libcudf.FORMATS:
        raise obstacles.refuse_column(f"it is {name}, which cuDF lacks", "cast it in its own framework")


def device_copy_reasons(column: ArrowColumn) -> list[Reason]:
    """Return the reasons to copy Arrow memory on the device; refuse what libcudf cannot hold."""
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
