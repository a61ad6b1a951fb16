"""The fast way of tensors on CUDA devices: the form ``cuda`` of :data:`zerocopy.source.FORMS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy.device import LEGACY_DEFAULT_STREAM

MAX_NDIM = 64  # what torch's DLPack and NumPy bridges take


def exporter(
    torch: Any, to_capsule: Callable[[Any], Any], native: frozenset[Any]
) -> Callable[[Any], tuple[int, Callable[[int], Any]]]:
    """Return the fast exporter of tensors on CUDA devices.

    Parameters
    ----------
    torch : module
    to_capsule : callable
        The bare C++ function, which checks and orders nothing.
    native : frozenset of torch.dtype
        Those that every framework takes.
    """
    current_stream = torch.cuda.current_stream

    def on_device(tensor: Any) -> tuple[int, Callable[[int], Any]]:
        if not tensor.is_cuda or tensor.requires_grad or tensor.is_neg() or tensor.is_conj():
            raise BufferError("not on a device, or not plain memory")
        if tensor.dtype not in native or tensor.dim() > MAX_NDIM:
            raise BufferError("a type or more dimensions than others take")
        if tensor.data_ptr() % tensor.element_size():
            raise BufferError("misaligned")
        index = tensor.get_device()

        def ask(stream: int) -> Any:
            # Its own exporter makes a stream object to find that it is the same one, and
            # goes through the checks above a second time.
            if stream == (current_stream(index).cuda_stream or LEGACY_DEFAULT_STREAM):
                return to_capsule(tensor)
            return tensor.__dlpack__(stream=stream)

        return index, ask

    return on_device


def importer(torch: Any, from_capsule: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the fast importer of memory on CUDA devices; `from_capsule` is torch's."""
    current_stream, current_device = torch.cuda.current_stream, torch.cuda.current_device

    def from_device(memory: Any) -> Any:
        index, ask = memory
        # The number of a default stream means the one of the producer's current device.
        if index != current_device():
            raise BufferError("not on the current device")
        return from_capsule(ask(current_stream(index).cuda_stream or LEGACY_DEFAULT_STREAM))

    return from_device
