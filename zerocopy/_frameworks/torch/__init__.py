"""PyTorch tensors, on the host and on CUDA devices."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.torch import exchange, native
from zerocopy._frameworks.torch.exchange import imported, on_stream, producer_of, stream_of
from zerocopy.device import CUDA, CUDA_HOST, HOST, LEGACY_DEFAULT_STREAM, NO_SYNC_STREAM, ROCM, Device
from zerocopy.dtype import NATIVE_NAMES, DType, by_name
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework, refuse_dtype
from zerocopy.protocols import dlpack
from zerocopy.protocols.array_interface import tidy_strides, writable_alias
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView

# Besides NATIVE_NAMES; not every version of torch has all of them.
_FOREIGN = (
    "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2", "complex32",
)  # fmt: skip
GRAD = Reason(
    "it requires grad, and no other framework keeps the graph",
    code="requires-grad",
    fixes=[Fix("{x}.detach()", "aliases it without the graph", sample="{x}.detach()")],
)
_TANGENT = Reason(
    "it has a tangent of forward-mode AD, which no other framework keeps",
    code="requires-grad",
    fixes=[Fix("{x}.detach()", "aliases it without the tangent", sample="{x}.detach()")],
)
# FSDP frees the storage of tensors that it keeps; torch reads and writes to the old memory nevertheless.
_CUT = Reason(
    "its storage was resized or freed, and does not hold all of its elements",
    "resize the storage back, or convert the tensor before its storage is freed",
    code="no-memory",
)
_CONJUGATED = Reason(
    "the tensor is lazily conjugated",
    code="lazy-view",
    fixes=[Fix("{x}.resolve_conj()", "computes its values")],
)
_NEGATED = Reason(
    "the tensor is lazily negated",
    code="lazy-view",
    fixes=[Fix("{x}.resolve_neg()", "computes its values")],
)


def _kind(tensor: Any) -> str:
    if tensor.is_nested:
        return "ragged"
    layout = tensor.layout
    return "array" if layout is sys.modules["torch"].strided or "sparse" not in str(layout) else "sparse"


class Torch(Framework):
    """``torch.Tensor``, parameters and other subclasses that hold plain memory."""

    name = "torch"
    aliases = ("pytorch",)
    types = ("Tensor",)
    kinds: Mapping[str, Any] = {"Tensor": _kind}
    root_modules = ("torch",)
    distribution = "torch"
    device_kinds = ("cpu", "cuda")
    slow_reads = "gaps"
    can_copy_to_device = True
    can_export_dlpack = True
    can_cast = True
    actions: Mapping[str, Fix] = {
        "contiguous": Fix("{x}.contiguous()"),
        "copy": Fix("{x}.clone(memory_format=torch.contiguous_format)"),
        "cast": Fix("{x}.to(torch.{type})"),
        "pairs": Fix("torch.view_as_real({x}.resolve_conj())"),
        "bytes": Fix("{x}.view(torch.uint8)"),
        "flatten": Fix("{x}.reshape(-1)"),
        "canonical": Fix("{x}.to_dense().to_sparse_csr()"),
        "canonical-coo": Fix("{x}.coalesce()"),
        "to-csr": Fix("{x}.to_sparse_coo().to_sparse_csr()"),
        "to-coo": Fix("{x}.to_sparse_coo().coalesce()"),
    }

    def _import(self) -> ModuleType:
        from zerocopy.tables.result import Encoded, Masked, Together

        torch = super()._import()
        # Torch documents this mapping in `default_collate`, for types of samples that torch does not know.
        collate = sys.modules.get("torch.utils.data._utils.collate")
        for cls in (Encoded, Masked, Together):
            getattr(collate, "default_collate_fn_map", {}).setdefault(cls, _collate)
        return torch

    def owns(self, cls: type) -> bool:
        return issubclass(cls, self.module().Tensor)

    # -- source ---------------------------------------------------------------

    def allocation(self, obj: Any, address: int) -> tuple[int, int]:
        storage = obj.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()

    def source(self, obj: Any) -> Source:
        torch = self.module()
        name = f"torch.{type(obj).__name__}"
        obstacles.check_source(name, _refusal(torch, obj))
        dtype = dtypes(torch).get(obj.dtype)
        if dtype is None:
            shown = _text_of(obj.dtype, torch.dtype)
            raise obstacles.refuse_source_dtype(name, shown, "cast it first: x.to(torch.float32)")
        # An alias that only zerocopy holds: `obj.data = ...` and `obj.set_()` do not change its memory.
        tensor = obj.data
        reasons = []
        # Both bits are lazy: the memory does not hold the tensor's values. to_dlpack (for the
        # negative bit also __dlpack__) ignores the bits: z.conj().imag would have the wrong sign.
        if obj.is_conj():
            reasons.append(_CONJUGATED)
        if obj.is_neg():
            reasons.append(_NEGATED)
        device = _device(torch, obj)
        strides = tuple(s * dtype.itemsize for s in obj.stride())
        view = StridedView(
            obj.data_ptr(), tuple(obj.shape), strides, dtype, device, readonly=False, owner=tensor
        )

        def host() -> Array:
            plain = exchange.aligned(torch, tensor).resolve_conj().resolve_neg() if reasons else tensor
            return _as_ndarray(torch, plain, dtype)

        def to_host(stream: int | None) -> Array:
            # .cpu() waits for the copy. It runs on the current stream of the tensor's device,
            # which orders it after the tensor's own work.
            with torch.cuda.device(obj.device):
                return _as_ndarray(torch, obj.resolve_conj().resolve_neg().cpu(), dtype)

        def contiguous() -> Any:
            plain = exchange.aligned(torch, obj).resolve_conj().resolve_neg()
            return plain.clone(memory_format=torch.contiguous_format)

        return Source(
            name,
            view,
            host,
            "dlpack",
            reasons,
            GRAD if obj.requires_grad else _TANGENT if exchange.has_tangent(torch, obj) else None,
            to_host=to_host,
            producer=producer_of(torch, tensor, device, dtype),
            contiguous=contiguous,
        )

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        torch = self.module()
        if cls is not torch.Tensor:
            return {}
        exporter = native.exporter(torch, partial(on_stream, torch))
        return exchange.fast_exporters(torch) | {"native": exporter, "host_copy": self.host_copier(cls)}

    def host_copier(self, cls: type) -> Callable[[Any], Array | None] | None:
        torch = self.module()
        to_ndarray = torch.Tensor.numpy
        if cls is not torch.Tensor or torch.version.cuda is None:
            return None

        def copy_to_host(tensor: Any) -> Array | None:
            if not tensor.is_cuda:
                return None
            if tensor.requires_grad or tensor.is_neg() or tensor.is_conj():
                raise BufferError("not plain memory")
            if exchange.is_cut(tensor) or exchange.has_tangent(torch, tensor):
                raise BufferError("its storage was cut, or it has a tangent")
            array: Array = to_ndarray(tensor, force=True)  # on the tensor's stream; waits for the copy
            return array

        return copy_to_host

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self.check_view(view)
        if view.dtype not in dtypes(self.module()).values():
            raise refuse_dtype("torch", view.dtype)
        reasons = []
        if view.has_negative_strides:
            # torch's DLPack import throws inside a noexcept function, which aborts the process
            # (pytorch/pytorch#188023).
            why = "torch does not support negative strides"
            reasons.append(Reason(why, code="negative-strides", fixes=[obstacles.CONTIGUOUS]))
        return reasons + obstacles.element_reasons(view)

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        torch = self.module()
        # A writable alias, because from_numpy warns about read-only memory once per process. The
        # plan has this warning for every conversion.
        # from_numpy refuses NumPy's second type of a width (ulonglong), which the view replaces by the first.
        plain = tidy_strides(writable_alias(array)).view(dtype.storage)
        tensor = torch.from_numpy(plain)
        return tensor if dtype.in_numpy else tensor.view(getattr(torch, dtype.name))

    def from_device(self, source: Source, stream: int | None) -> Any:
        torch = self.module()
        where = source.view.device
        self.check_device(where)
        index = where.id
        current = torch.cuda.current_stream(index).cuda_stream or LEGACY_DEFAULT_STREAM
        consumer = current if stream is None else stream
        if hasattr(type(source.producer), "__dlpack__"):
            # The producer orders its work before the consumer's stream (DLPack Python
            # specification). torch's exporter requires that its device is current.
            with torch.cuda.device(index):
                # Legacy: torch before 2.9 takes no versioned capsule, and CuPy before 13.4 gives none.
                capsule = dlpack.as_cuda(dlpack.request_on_device(source.producer, consumer))
                return imported(torch, capsule, source.view.dtype)
        with torch.cuda.device(index):
            from zerocopy.protocols import cuda_array_interface

            _, producer = cuda_array_interface.read(source.producer, index)
            if producer is not None and consumer not in (NO_SYNC_STREAM, producer):
                # as_tensor ignores the interface's stream.
                _stream(torch, consumer, where).wait_stream(_stream(torch, producer, where))
            plain = cuda_array_interface.Handover(source.view, None, source.producer)
            tensor = torch.as_tensor(plain, device=f"cuda:{index}")
        dtype = source.view.dtype
        return tensor if dtype.in_numpy else tensor.view(getattr(torch, dtype.name))

    def fill(self, obj: Any) -> Callable[[Any], Any]:
        torch = self.module()
        if obj._is_zerotensor() or (obj.is_inference() and not torch.is_inference_mode_enabled()):
            raise UnsupportedConversionError("", "torch forbids writes to it", code="read-only")
        if exchange.is_cut(obj):  # copy_ writes to it nevertheless: SIGSEGV
            raise UnsupportedConversionError("", _CUT.why, _CUT.remedy, code=_CUT.code)

        if exchange.aligned(torch, obj) is not obj:  # copy_ would end the process
            raise UnsupportedConversionError(
                "",
                "its memory is not aligned to its item size",
                "pass a tensor that torch allocated",
                code="misaligned",
            )

        def write(value: Any) -> None:
            # Not through the memory: autograd counts the versions of tensors that it has saved.
            obj.copy_(exchange.aligned(torch, value.detach()))

        return write

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        torch = self.module()
        if device.is_host:
            plain = exchange.aligned(torch, obj)
            return obj.to("cpu", copy=True) if plain is obj else plain
        there = _stream(torch, stream, device)
        if obj.is_cuda:
            # The tensor's own work is on its device's current stream. record_stream keeps the
            # allocator from reusing its block before the copy has read it.
            there.wait_stream(torch.cuda.current_stream(obj.device))
            obj.record_stream(there)
        with torch.cuda.device(device.id), torch.cuda.stream(there):
            return obj.to(f"cuda:{device.id}", copy=True)

    def cast(self, obj: Any, dtype: DType) -> tuple[Any, bool]:
        from zerocopy.casting.values import fits  # most calls cast nothing

        torch = self.module()
        plain = exchange.aligned(torch, obj.detach()).resolve_conj().resolve_neg()
        if plain.is_complex() and not dtype.name.startswith("complex"):
            plain = plain.real  # torch warns that it drops the imaginary part, which is checked here
        with torch.cuda.device(obj.device):
            # Of another type, so this is a copy; it is row-major, as all copies on a device.
            result = plain.to(getattr(torch, dtype.name), memory_format=torch.contiguous_format)
            return result, fits(torch, obj, result, dtypes(torch)[obj.dtype], dtype)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        torch = self.module()
        importer = native.importer(torch, dtypes(torch).values())
        forms = {"ndarray": self._import_ndarray, "native": importer, "device_copy": self.device_copier}
        if torch.version.cuda is not None:
            # Decided by the build, because a call of the driver would break CUDA in forked children.
            forms["native_device"] = importer
        return forms

    def device_copier(self, device: Device | None) -> Callable[[Array], Any] | None:
        if device is None or device.type != CUDA:
            return None
        from_numpy, where = self.module().from_numpy, f"cuda:{device.id}"

        def copy_ndarray(array: Array) -> Any:
            if not array.flags.writeable:
                raise BufferError("from_numpy warns about read-only memory")
            return from_numpy(array).to(where)  # waits for the copy, also from page-locked memory

        return copy_ndarray

    # -- devices --------------------------------------------------------------

    def parse_device(self, spec: Any) -> Device:
        torch = self.module()
        if isinstance(spec, torch.device):
            if spec.type == "cuda":
                index = torch.cuda.current_device() if spec.index is None else spec.index
                return Device(CUDA, index)
            spec = str(spec)
        return super().parse_device(spec)

    def check_device(self, device: Device) -> None:
        if device.is_host:
            return
        super().check_device(device)
        torch = self.module()
        built = torch.version.cuda is not None
        why = "torch sees no CUDA device" if built else "this build of torch does not support CUDA"
        remedy = "check the driver with nvidia-smi" if built else "install a CUDA build: see pytorch.org"
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        obstacles.check_index("torch", device, count, why, remedy)

    def is_out_of_memory(self, error: Exception) -> bool:
        # On the host it is a plain RuntimeError, known by its text alone (c10/core/impl/alloc_cpu.cpp).
        return isinstance(error, self.module().cuda.OutOfMemoryError) or (
            isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)
        )

    def devices(self) -> list[str]:
        torch = self.module()
        if torch.version.cuda is None and torch.version.hip is None:
            return ["cpu"]
        return ["cpu", *obstacles.cuda_devices(torch.cuda.device_count)]


def _text_of(value: Any, cls: type) -> str:
    """Return the text of a property that a subclass can override.

    That of a method includes its tensor, which torch formats without end; its frames then keep functorch
    off (``torch._C._DisableFuncTorch``) until they are freed.
    """
    return str(value if isinstance(value, cls) else type(value))


def _refusal(torch: Any, obj: Any) -> Reason | None:
    """Return why no block of memory holds a tensor's values; None if one does."""
    if obj.is_nested and obj.layout is not torch.strided:
        # contiguous() copies rows with gaps, which cannot be padded, and returns others as they are.
        pad = Fix("torch.nested.to_padded_tensor({x}.contiguous(), 0)", "pads its rows")
        split = Fix("[{x}.contiguous().values(), {x}.contiguous().offsets()]", "converts its parts")
        return Reason("it is ragged", code="not-an-array", fixes=[pad, split])
    if obj.layout is not torch.strided:
        coo = obj.layout is torch.sparse_coo
        pair = "[{x}.coalesce().indices(), {x}.coalesce().values()]"
        parts = [Fix(pair, "converts its parts")] if coo else []
        return Reason(
            f"it is sparse ({_text_of(obj.layout, torch.layout)})",
            code="sparse",
            fixes=[Fix("{x}.to_dense()", "makes it dense"), *parts],
        )
    if obj.is_quantized:
        fixes = [Fix("{x}.dequantize()", "gives floats"), Fix("{x}.int_repr()", "gives its integers")]
        return Reason("it is quantized", code="quantized", fixes=fixes)
    if obj.is_nested:
        fix = Fix("{x}.unbind()", "converts its components")
        return Reason("it is a nested tensor", code="not-an-array", fixes=[fix])
    if not obj.is_cpu and obj.device.type == "meta":
        return Reason(
            "it is on the meta device and has no memory", "create it on a real device", code="no-memory"
        )
    # A subclass with __torch_dispatch__ (DTensor, fake, functional and wrapper tensors) may have
    # no memory; its data_ptr() would point elsewhere.
    if type(obj).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return Reason(
            f"{type(obj).__qualname__} overrides what its memory means",
            "unwrap it: x.full_tensor(), x.to_local(), or the method of its class",
            code="no-memory",
        )
    if torch._C._functorch.is_functorch_wrapped_tensor(obj):
        return Reason(
            "it is traced by torch.func and has no memory",
            "convert it outside vmap and grad, or use zc.bridge(function, to='torch')",
            code="traced",
        )
    return _CUT if not obj._is_zerotensor() and exchange.is_cut(obj) else None


@functools.cache
def dtypes(torch: Any) -> dict[Any, DType]:
    """Return the dtypes that this torch has, with their standard names.

    Built completely before it is cached: another thread must not see half a table (P7).
    """
    names = [*NATIVE_NAMES, *_FOREIGN]
    return {getattr(torch, n): by_name(n) for n in names if hasattr(torch, n)}


def _as_ndarray(torch: Any, tensor: Any, dtype: DType) -> Array:
    """Return host memory in ``dtype.storage``; an alias of a plain tensor."""
    plain = tensor if dtype.in_numpy else tensor.view(getattr(torch, dtype.storage.name))
    array: Array = plain.numpy()
    return array


def _device(torch: Any, tensor: Any) -> Device:
    if tensor.is_cpu:
        # is_pinned() of a lazy tensor copies it. is_pinned() of the storage does not, but takes 4 us
        # instead of 0.1.
        lazy = tensor.is_conj() or tensor.is_neg()
        owner = tensor.untyped_storage() if lazy else tensor
        return Device(CUDA_HOST, 0) if owner.is_pinned() else HOST
    device = tensor.device
    if device.type == "cuda":
        return Device(ROCM if torch.version.hip is not None else CUDA, device.index)
    kind, index = tensor.__dlpack_device__()
    return Device(int(kind), int(index))


def _stream(torch: Any, stream: int | None, device: Device) -> Any:
    if stream is None or stream == NO_SYNC_STREAM:
        return torch.cuda.current_stream(device.id)
    return stream_of(torch, stream, device.id)


def _collate(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """Return the samples of masked or encoded columns as one, as ``default_collate`` calls it."""
    from torch.utils.data._utils.collate import collate

    from zerocopy.tables.result import stack_results

    return stack_results(batch, functools.partial(collate, collate_fn_map=collate_fn_map))


FRAMEWORK = Torch()
