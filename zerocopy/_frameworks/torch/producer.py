"""A tensor on a CUDA device as a producer: the order of streams, and the reuse of its memory."""

from __future__ import annotations

from typing import Any

from zerocopy.device import CUDA, LEGACY_DEFAULT_STREAM, NO_SYNC_STREAM, PER_THREAD_DEFAULT_STREAM, Device
from zerocopy.dtype import DType, by_name
from zerocopy.protocols import cuda_driver, dlpack

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
