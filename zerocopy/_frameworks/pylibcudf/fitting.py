"""Columns of others for libcudf: which fit, what is copied of them, and how one of its own is made."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from zerocopy import registry
from zerocopy._frameworks.pylibcudf import memory as libcudf
from zerocopy.device import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Device
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.protocols import cuda_array_interface, cuda_driver, dlpack
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Source
from zerocopy.strided_view import StridedView
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.tensor_column import TensorColumn

#: Kinds of Arrow types that cuDF has no column for, and what to do about them.
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
#: What is cast on its way from the host, and cannot be on the device.
_NOT_ALIASED = ("fixed_list", "string_view", "dictionary")


def stream() -> int:
    """Return the stream that cuDF works on; pylibcudf reads this variable when it is imported."""
    per_thread = os.environ.get("CUDF_PER_THREAD_STREAM") == "1"
    return PER_THREAD_DEFAULT_STREAM if per_thread else LEGACY_DEFAULT_STREAM


def current_device() -> int:
    """Return the index of the current device: cuDF needs CuPy, which can tell."""
    if cuda_driver.missing() is not None:
        return 0
    return int(import_module("cupy").cuda.runtime.getDevice())


# -- whether they fit ---------------------------------------------------------------


def _here(device: Device) -> None:
    if device.id != current_device():
        raise UnsupportedConversionError(
            "",
            f"is on {device}, and cuDF works on the current device, cuda:{current_device()}",
            f"make that one current first: cupy.cuda.Device({device.id}).use()",
        )


def tensor_reasons(column: TensorColumn) -> list[Reason]:
    """Return why a tensor on the device is copied; raise what libcudf cannot hold."""
    source, view = column.source, column.source.view
    if source.refusal is not None:
        raise UnsupportedConversionError("", source.refusal.why, source.refusal.remedy)
    check_tensor(view)
    _here(view.device)
    reasons = list(source.reasons)
    if not view.c_contiguous:
        reasons.append(Reason("cuDF takes memory without gaps only", "make it contiguous at its source"))
    if not view.is_aligned(view.dtype.itemsize):
        reasons.append(Reason("the memory is not aligned to its item size", "copy it at its source"))
    return reasons


def check_tensor(view: StridedView) -> None:
    """Refuse a tensor that is no column, and values that cuDF lacks."""
    if view.ndim != 1:
        raise UnsupportedConversionError(
            "",
            f"is a tensor of shape {view.shape}, and cuDF's columns are flat",
            "pass its columns one by one",
        )
    name = view.dtype.name
    if name != "bool" and name.upper() not in libcudf.FORMATS:
        raise UnsupportedConversionError("", f"is {name}, which cuDF lacks", "cast it in its own framework")


def device_copy_reasons(column: ArrowColumn) -> list[Reason]:
    """Return why Arrow memory on the device is copied; raise what libcudf cannot hold."""
    check(column.field)
    _here(column.device)
    parts = _below(column.field)
    lost = [p for p in parts if p.kind in _NOT_ALIASED or p.format == "+L" or p.timezone]
    if lost:
        raise UnsupportedConversionError(
            "",
            f"is {column.field}, and of {lost[0]} no alias on the GPU makes a column of cuDF",
            "bring it to the host first",
        )
    bits = any(part.kind == "bool" for part in parts)
    why = Reason("Arrow packs booleans into bits, and cuDF has a byte each", "")
    return [*column.reasons, *([why] if bits else ())]


def _below(field: Field) -> list[Field]:
    return [field, *(part for child in field.children for part in _below(child))]


def check(field: Field) -> None:
    """Refuse what cuDF has no column for, and what is not brought into a shape that it has."""
    for part in _below(field):
        if part.dictionary is not None:
            check(part.dictionary)
        remedy = _LACKS.get(part.kind)
        if part.format == "e" or (part.kind == "decimal" and part.width > 16):
            remedy = "cast it in Arrow: x.cast('float64')"
        if part.extension == "arrow.fixed_shape_tensor":
            remedy = "pass its columns one by one: cuDF's are flat"
        if remedy is not None:
            raise UnsupportedConversionError("", f"is {field}, which cuDF lacks", remedy)


# -- how they are made --------------------------------------------------------------


def of_tensor(plc: Any, source: Source) -> Any:
    """Return a column over a tensor's memory, which is finished for cuDF's stream."""
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
    held = source.producer
    if hasattr(type(held), "__dlpack__"):
        # The capsule is held unconsumed, and its own destructor runs its deleter.
        held = (dlpack.request(held, stream=stream()), held)
    else:
        order(cuda_array_interface.read(held, view.device.id)[1], view.device)
    # No stream: cuDF does not look at it. No mask: older ones do not look at that either.
    lent = cuda_array_interface.Handover(view, None, held)
    return plc.Column.from_cuda_array_interface(lent)


def order(first: int | None, device: Device) -> None:
    """Have cuDF's stream wait for another's work."""
    if first not in (None, stream()):
        cuda_driver.order(first, stream(), device.id)  # type: ignore[arg-type]


def storable(pa: Any, kind: Any) -> Any:
    """Return the type that cuDF holds the values of an Arrow type in."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.bool_() if kind.extension_name == "arrow.bool8" else storable(pa, kind.storage_type)
    if kind == pa.string_view():
        return pa.large_string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(storable(pa, kind.value_type)))
    if pa.types.is_dictionary(kind):
        # libcudf takes codes with a sign only; of a dictionary none reaches the last bit.
        codes = kind.index_type
        if pa.types.is_unsigned_integer(codes):
            codes = {8: pa.int16(), 16: pa.int32(), 32: pa.int32(), 64: pa.int64()}[codes.bit_width]
        return pa.dictionary(codes, storable(pa, kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(storable(pa, field.type)) for field in kind])
    return kind
