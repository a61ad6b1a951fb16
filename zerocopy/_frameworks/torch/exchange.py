"""Tensors as producers and consumers: their streams, and exporters and importers in Python by form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy.device import CUDA, LEGACY_DEFAULT_STREAM, NO_SYNC_STREAM, PER_THREAD_DEFAULT_STREAM, Device
from zerocopy.dtype import DType, by_name
from zerocopy.protocols import dlpack

#: Integers by their size in bytes: torch exports them in every version, and `float8` since a recent one.
_SAME_SIZE = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


class OnDevice:
    """Exports a tensor through torch's exporter, for any stream, in any version of DLPack.

    The caching allocator gives freed memory to the stream that allocated it, while another stream may still
    read it: a stream that is not the current one is recorded (``torch.Tensor.record_stream``).
    """

    __slots__ = ("_foreign", "_index", "_tensor", "_torch")

    def __init__(self, torch: Any, tensor: Any, foreign: DType | None = None) -> None:
        # `foreign` is the dtype if torch may refuse it.
        self._torch, self._tensor, self._foreign = torch, tensor, foreign
        self._index: int = tensor.get_device()

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        torch, tensor, index = self._torch, self._tensor, self._index
        # torch's exporter refuses the per-thread default stream (BufferError).
        per_thread = stream == PER_THREAD_DEFAULT_STREAM
        ordered = LEGACY_DEFAULT_STREAM if per_thread else stream
        foreign = self._foreign
        plain = tensor if foreign is None else tensor.view(getattr(torch, _SAME_SIZE[foreign.itemsize]))
        with torch.cuda.device(index):  # it refuses tensors of another device than the current one
            capsule = plain.__dlpack__(stream=ordered, **options)
        if per_thread:
            from zerocopy.protocols import cuda_driver

            cuda_driver.order(LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, index)
        consumer = LEGACY_DEFAULT_STREAM if stream is None else stream
        current = torch.cuda.current_stream(index).cuda_stream or LEGACY_DEFAULT_STREAM
        if consumer not in (current, NO_SYNC_STREAM):
            tensor.record_stream(stream_of(torch, consumer, index))
        return capsule if foreign is None else dlpack.retype(capsule, foreign)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._tensor.__dlpack_device__()
        return int(kind), int(index)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface: dict[str, Any] = self._tensor.__cuda_array_interface__
        return interface


def producer_of(torch: Any, tensor: Any, device: Device, dtype: DType) -> Any:
    """Return the producer of a tensor: the tensor itself, unless it is on a CUDA device."""
    foreign = dtype if _is_foreign(dtype) else None
    return OnDevice(torch, tensor, foreign) if device.type == CUDA else tensor


def imported(torch: Any, capsule: Any, dtype: DType) -> Any:
    """Return a tensor over a capsule's memory."""
    if not _is_foreign(dtype):
        return torch.utils.dlpack.from_dlpack(capsule)
    plain = torch.utils.dlpack.from_dlpack(dlpack.retype(capsule, by_name(_SAME_SIZE[dtype.itemsize])))
    return plain.view(getattr(torch, dtype.name))


def _is_foreign(dtype: DType) -> bool:
    """Whether some versions of torch refuse a dtype through DLPack."""
    return not dtype.in_numpy and dtype.name != "bfloat16" and dtype.itemsize in _SAME_SIZE


def stream_of(torch: Any, stream: int, index: int) -> Any:
    """Return torch's object for a stream with DLPack's number."""
    if stream == LEGACY_DEFAULT_STREAM:
        return torch.cuda.default_stream(index)
    return torch.cuda.ExternalStream(stream, device=index)


def is_cut(tensor: Any) -> bool:
    """Whether elements lie behind the end of the storage, which ``untyped_storage().resize_`` can cut."""
    if tensor.is_contiguous():
        last = tensor.numel() - 1
    else:
        last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    end = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return bool(tensor.numel() and end > tensor.untyped_storage().nbytes())


def aligned(torch: Any, tensor: Any) -> Any:
    """Return a tensor that torch can copy: the tensor itself, or an aligned copy of misaligned memory.

    torch reads complex128 with instructions that require 16-byte alignment (pytorch#190043: SIGSEGV).
    """
    if tensor.dtype is not torch.complex128 or not tensor.is_cpu or tensor.data_ptr() % 16 == 0:
        return tensor
    if tensor.is_conj():
        return aligned(torch, tensor.conj()).conj()
    return torch.view_as_complex(torch.view_as_real(tensor).clone(memory_format=torch.contiguous_format))


def has_tangent(torch: Any, tensor: Any) -> bool:
    """Whether a tensor has a tangent of forward-mode AD, inside ``torch.autograd.forward_ad.dual_level``."""
    forward = torch.autograd.forward_ad
    return forward._current_level >= 0 and forward.unpack_dual(tensor).tangent is not None


def on_stream(torch: Any, tensor: Any, stream: int) -> Any:
    """Export plain memory of a device; the stream waits for the work on torch's current stream."""
    # torch's capsule holds a tensor, whose memory an assignment to the caller's `tensor.data` would free.
    return OnDevice(torch, tensor.data).__dlpack__(stream=stream)


def fast_exporters(torch: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the fast exporters of ``torch.Tensor``."""
    # In C++, Tensor.numpy refuses gradients, lazy bits and other devices. Its result holds an alias
    # of the tensor and makes the storage non-resizable.
    to_ndarray = torch.Tensor.numpy

    def as_ndarray(tensor: Any) -> Any:
        if is_cut(tensor) or has_tangent(torch, tensor):
            raise BufferError("its storage was cut, or it has a tangent")
        return to_ndarray(tensor)

    return {"ndarray": as_ndarray}
