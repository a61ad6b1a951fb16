"""PyTorch tensors, on the host and on CUDA devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zerocopy._frameworks.torch.on_device import MAX_NDIM as _MAX_NDIM, exporter, importer
from zerocopy.device import (
    CUDA,
    CUDA_HOST,
    HOST,
    LEGACY_DEFAULT_STREAM,
    NO_SYNC_STREAM,
    ROCM,
    Device,
)
from zerocopy.dtype import NATIVE_NAMES, DType, by_name
from zerocopy.errors import DeviceError, Reason, UnsupportedConversionError
from zerocopy.framework import Array, Framework, Source, refuse_dtype, refuse_ndim
from zerocopy.protocols import cuda_array_interface, dlpack
from zerocopy.protocols.array_interface import tidy_strides, writable_alias
from zerocopy.strided_view import StridedView

if TYPE_CHECKING:
    from zerocopy.pool.hook import PoolHook

# torch calls these by other names, or has them under names that mean more.
_FOREIGN = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
    "complex32",
)
_GRAD = Reason(
    "it requires grad, and no other framework would keep the graph",
    "pass x.detach(): an alias without the graph",
)


class Torch(Framework):
    """``torch.Tensor``, parameters and other subclasses that hold plain memory."""

    name = "torch"
    root_modules = ("torch",)
    distribution = "torch"
    device_kinds = ("cpu", "cuda")
    can_copy_to_device = True
    can_export_dlpack = True

    def pool_hook(self) -> PoolHook:
        from zerocopy._frameworks.torch.pool import TorchHook

        return TorchHook()

    def owns(self, cls: type) -> bool:
        return issubclass(cls, self.module().Tensor)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        torch = self.module()
        name = f"torch.{type(obj).__name__}"
        refusal = _refusal(torch, obj)
        if refusal is not None:
            raise UnsupportedConversionError(f"convert({name})", refusal.why, refusal.remedy)
        dtype = _dtypes(torch).get(obj.dtype)
        if dtype is None:
            raise UnsupportedConversionError(
                f"convert({name})", f"{obj.dtype} has no counterpart elsewhere", "cast it first: x.to(dtype)"
            )
        tensor = obj.detach() if obj.requires_grad else obj
        reasons = []
        # Both bits are lazy: the memory holds other values than the tensor. to_dlpack
        # and, for the negative bit, __dlpack__ export that memory as it is: through
        # them z.conj().imag has its signs flipped, and nobody is told.
        if obj.is_conj():
            reasons.append(Reason("the tensor is lazily conjugated", "x.resolve_conj() makes it real memory"))
        if obj.is_neg():
            reasons.append(Reason("the tensor is lazily negated", "x.resolve_neg() makes it real memory"))
        device = _device(obj)
        strides = tuple(s * dtype.itemsize for s in obj.stride())
        view = StridedView(
            obj.data_ptr(), tuple(obj.shape), strides, dtype, device, readonly=False, owner=obj
        )

        def host() -> Array:
            plain = tensor.resolve_conj().resolve_neg() if reasons else tensor
            return _as_ndarray(torch, plain, dtype)

        def to_host(stream: int | None) -> Array:
            # .cpu() waits for the copy, and runs on the current stream of the
            # tensor's device, where the tensor's own work is ordered.
            with torch.cuda.device(obj.device):
                return _as_ndarray(torch, obj.resolve_conj().resolve_neg().cpu(), dtype)

        return Source(
            name,
            view,
            host,
            "dlpack",
            reasons,
            _GRAD if obj.requires_grad else None,
            to_host=to_host,
            producer=obj,
            contiguous=lambda: obj.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format),
        )

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        torch = self.module()
        if cls is not torch.Tensor:
            return {}
        to_capsule = torch.utils.dlpack.to_dlpack

        # A build that knows no accelerator has no tensors elsewhere with memory.
        host_only = torch.version.cuda is None and not torch.accelerator.is_available()

        # to_dlpack is the bare C++ function, 1.5 us faster than __dlpack__, which holds
        # the checks: so they are made here (hazard 11). Each costs 40 to 70 ns, which
        # is why the last one is left out where it cannot fail. Sparse and meta tensors
        # are refused in C++.
        def plain(tensor: Any) -> Any:
            if tensor.requires_grad or tensor.is_neg() or tensor.is_conj() or tensor.dim() > _MAX_NDIM:
                raise BufferError("not plain memory")
            if not (host_only or tensor.is_cpu):
                raise BufferError("not on the host")
            return to_capsule(tensor)

        def aligned(tensor: Any) -> Any:
            if tensor.data_ptr() % 64 or tensor.dim() > _MAX_NDIM:
                raise BufferError("not aligned, or more dimensions than others take")
            if tensor.requires_grad or tensor.is_neg() or tensor.is_conj():
                raise BufferError("not plain memory")
            if not (host_only or tensor.is_cpu):
                raise BufferError("not on the host")
            return to_capsule(tensor)

        # Tensor.numpy refuses gradients, lazy bits and other devices in C++.
        forms = {
            "ndarray": cls.numpy,  # type: ignore[attr-defined]
            "capsule": plain,
            "aligned": aligned,
        }
        if torch.version.cuda is None:
            return forms
        native = frozenset(t for t, dtype in _dtypes(torch).items() if dtype.in_numpy)
        return forms | {"cuda": exporter(torch, to_capsule, native)}

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        if view.ndim > _MAX_NDIM:
            raise refuse_ndim("torch", view, _MAX_NDIM)
        if view.dtype not in _dtypes(self.module()).values():
            raise refuse_dtype("torch", view.dtype)
        reasons = []
        if view.has_negative_strides:
            # torch's DLPack import throws through a noexcept function, which ends the
            # process (pytorch/pytorch#188023).
            reasons.append(
                Reason("torch has no negative strides", "pass numpy.ascontiguousarray(x), or flip in torch")
            )
        if view.has_fractional_strides:
            reasons.append(
                Reason(
                    "a stride is no multiple of the item size (a field of a packed record)",
                    "align the record: numpy.dtype(..., align=True)",
                )
            )
        if not view.is_aligned(view.dtype.itemsize):
            reasons.append(Reason("the memory is not aligned to its item size", "copy it once at its source"))
        return reasons

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        torch = self.module()
        # A writable alias: from_numpy warns about read-only memory, once a process
        # and at whoever comes first; our plan says it, each time.
        plain = tidy_strides(writable_alias(array))
        if dtype.in_numpy:
            tensor = torch.from_numpy(plain)
        else:
            tensor = torch.from_numpy(plain).view(_torch_dtype(torch, dtype))
        return tensor if device.is_host else self.copy_to_device(tensor, device, stream)

    def from_device(self, source: Source, stream: int | None) -> Any:
        torch = self.module()
        where = source.view.device
        self.check_device(where)
        index = where.id
        current = torch.cuda.current_stream(index).cuda_stream or LEGACY_DEFAULT_STREAM
        consumer = current if stream is None else stream
        if hasattr(type(source.producer), "__dlpack__"):
            # The producer orders its work before the consumer's stream (DLPack
            # Python specification); on its own device, as torch's exporter demands.
            with torch.cuda.device(index):
                capsule = dlpack.request(source.producer, stream=consumer)
                return torch.utils.dlpack.from_dlpack(dlpack.as_cuda(capsule))
        with torch.cuda.device(index):
            _, producer = cuda_array_interface.read(source.producer, index)
            if producer is not None and consumer not in (NO_SYNC_STREAM, producer):
                # as_tensor does not look at the interface's stream.
                _stream(torch, consumer, where).wait_stream(_stream(torch, producer, where))
            plain = cuda_array_interface.Handover(source.view, None, source.producer)
            tensor = torch.as_tensor(plain, device=f"cuda:{index}")
        dtype = source.view.dtype
        return tensor if dtype.in_numpy else tensor.view(_torch_dtype(torch, dtype))

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        torch = self.module()
        if device.is_host:
            return obj.to("cpu", copy=True)
        there = _stream(torch, stream, device)
        if obj.is_cuda:
            # The tensor's own work is on its device's current stream; and its block must
            # not be given to another tensor before the copy has read it.
            there.wait_stream(torch.cuda.current_stream(obj.device))
            obj.record_stream(there)
        with torch.cuda.device(device.id), torch.cuda.stream(there):
            return obj.to(f"cuda:{device.id}", copy=True)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        torch = self.module()
        from_capsule = _from_capsule(torch)
        from_numpy = torch.from_numpy
        forms: dict[str, Callable[[Any], Any]] = {"capsule": from_capsule}
        if torch.version.cuda is not None:
            # Asked of the build: whether there is a device is asked of the driver, after which
            # no child of a fork could use it.
            forms["cuda"] = importer(torch, from_capsule)
        if not dlpack.NUMPY_DELETER_IS_SAFE:
            return forms

        def ndarray(array: Any) -> Any:
            # Writable, aligned, native and row-major in one look: for such memory the
            # capsule is 15 % faster than from_numpy. Negative strides never get to
            # the capsule, which would abort (see `reasons`); from_numpy refuses them.
            flags = array.flags
            if flags.carray:
                return from_capsule(array.__dlpack__())
            if flags.behaved:
                return from_numpy(array)
            raise BufferError("read-only or misaligned")

        def versioned(capsule: Any) -> Any:
            tensor = from_capsule(capsule)
            # Looked at afterwards: the tensor says it in 90 ns, most producers in more.
            if tensor.data_ptr() % tensor.element_size():
                raise BufferError("misaligned")
            return tensor

        return forms | {"versioned": versioned, "ndarray": ndarray}

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
        super().check_device(device)
        if device.is_host:
            return
        torch = self.module()
        if not torch.cuda.is_available():
            built = torch.version.cuda is not None
            raise DeviceError(
                f"to='torch', device={str(device)!r}",
                "torch sees no CUDA device" if built else "this build of torch has no CUDA",
                "check the driver with nvidia-smi" if built else "install a CUDA build: see pytorch.org",
            )
        if device.id >= torch.cuda.device_count():
            raise DeviceError(
                f"to='torch', device={str(device)!r}",
                f"torch sees {torch.cuda.device_count()} CUDA devices",
                "name one of them",
            )

    def is_out_of_memory(self, error: Exception) -> bool:
        # A RuntimeError both, of the device and of the host (c10/core/impl/alloc_cpu.cpp).
        return isinstance(error, self.module().cuda.OutOfMemoryError) or (
            isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)
        )

    def devices(self) -> list[str]:
        cuda = self.module().cuda
        count = cuda.device_count() if cuda.is_available() else 0
        return ["cpu", *(f"cuda:{i}" for i in range(count))]


def _refusal(torch: Any, obj: Any) -> Reason | None:
    """Return why a tensor has no block of memory with its values, if so."""
    if obj.layout is not torch.strided:
        return Reason(f"it is sparse ({obj.layout})", "x.to_dense(), or convert its indices and values")
    if obj.is_quantized:
        return Reason("it is quantized", "x.dequantize(), or x.int_repr() for the integers")
    if obj.is_nested:
        return Reason("it is a nested tensor", "convert the parts: x.unbind()")
    if obj.device.type == "meta":
        return Reason("it is on the meta device and has no memory", "make it with real memory")
    # A subclass with __torch_dispatch__ (DTensor, fake, functional and wrapper
    # tensors) need not have memory of its own: data_ptr() would be a lie.
    if type(obj).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return Reason(
            f"{type(obj).__qualname__} overrides what its memory means",
            "unwrap it: x.full_tensor(), x.to_local(), or the class's own way",
        )
    if torch._C._functorch.is_functorch_wrapped_tensor(obj):
        return Reason("it is traced by torch.func and has no memory", "convert outside of vmap or grad")
    return None


@functools.cache
def _dtypes(torch: Any) -> dict[Any, DType]:
    """Return torch's types and their standard names, as far as this version has them.

    Made whole before anybody sees it: a table filled in place would be half full to
    another thread (P7).
    """
    names = [*NATIVE_NAMES, *_FOREIGN]
    return {getattr(torch, n): by_name(n) for n in names if hasattr(torch, n)}


def _torch_dtype(torch: Any, dtype: DType) -> Any:
    return getattr(torch, dtype.name)


def _as_ndarray(torch: Any, tensor: Any, dtype: DType) -> Array:
    """Return host memory in ``dtype.storage``; an alias of a plain tensor."""
    if dtype.in_numpy:
        array: Array = tensor.numpy()
    else:
        array = tensor.view(getattr(torch, dtype.storage.name)).numpy()
    return array


def _device(tensor: Any) -> Device:
    device = tensor.device
    if device.type == "cpu":
        # A lazy tensor is made whole to be asked, which is a copy that nobody knows of; its storage
        # is not, and takes 4 us, where a plain tensor answers in 0.1.
        lazy = tensor.is_conj() or tensor.is_neg()
        asked = tensor.untyped_storage() if lazy else tensor
        return Device(CUDA_HOST, 0) if asked.is_pinned() else HOST
    if device.type == "cuda":
        hip = device.type == "cuda" and _is_rocm()
        return Device(ROCM if hip else CUDA, device.index)
    kind, index = tensor.__dlpack_device__()
    return Device(int(kind), int(index))


def _is_rocm() -> bool:
    import torch

    return torch.version.hip is not None


def _stream(torch: Any, stream: int | None, device: Device) -> Any:
    if stream is None or stream == -1:
        return torch.cuda.current_stream(device.id)
    if stream == LEGACY_DEFAULT_STREAM:
        return torch.cuda.default_stream(device.id)
    return torch.cuda.ExternalStream(stream, device=device.id)


def _from_capsule(torch: Any) -> Callable[[Any], Any]:
    """Return torch's capsule importer: the C++ function where it is known to be the same.

    ``torch.utils.dlpack.from_dlpack`` looks for ``__dlpack__`` before it takes a
    capsule, which costs 140 ns of a budget of 150 (torch 2.13). The private name has
    been the same since torch 1.10; test_routes compares both.
    """
    version = tuple(int(n) for n in torch.__version__.split(".")[:2])
    private = getattr(torch._C, "_from_dlpack", None)
    if (2, 9) <= version < (3, 0) and private is not None:
        return private  # type: ignore[no-any-return]
    return torch.utils.dlpack.from_dlpack  # type: ignore[no-any-return]


FRAMEWORK = Torch()
