"""The fast exporters and importers of tensors in Python, by form (see :data:`zerocopy.source.FORMS`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy._frameworks.torch.producer import OnDevice
from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.protocols import dlpack


def fast_exporters(torch: Any, native: frozenset[Any]) -> dict[str, Callable[[Any], Any]]:
    """Return the fast exporters of ``torch.Tensor``; `native` holds the dtypes that NumPy has too."""
    to_capsule = torch.utils.dlpack.to_dlpack
    # In C++, Tensor.numpy refuses gradients, lazy bits and other devices. Its result holds an alias
    # of the tensor and makes the storage non-resizable. torch's own capsule does neither.
    as_ndarray = torch.Tensor.numpy

    def foreign(tensor: Any) -> Any:
        # to_dlpack is the bare C++ function, 1.5 us faster than __dlpack__, whose checks are
        # therefore repeated here, at 40 to 70 ns each.
        if tensor.requires_grad or tensor.is_neg() or tensor.is_conj() or tensor.dim() > MAX_NDIM:
            raise BufferError("not plain memory")
        if not tensor.is_cpu:
            raise BufferError("not on the host")
        if tensor.untyped_storage().resizable():
            as_ndarray(tensor.view(same_width[tensor.element_size()]))
        return to_capsule(tensor.data)

    # The test of the dtype takes 90 ns; the TypeError of Tensor.numpy would take 10 us.
    def plain(tensor: Any) -> Any:
        return as_ndarray(tensor).__dlpack__() if tensor.dtype in native else foreign(tensor)

    def aligned(tensor: Any) -> Any:
        if tensor.data_ptr() % 64:
            raise BufferError("not aligned")
        return as_ndarray(tensor).__dlpack__() if tensor.dtype in native else foreign(tensor)

    same_width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    forms = {"ndarray": as_ndarray}
    if dlpack.NUMPY_DELETER_IS_SAFE:
        forms |= {"capsule": plain, "aligned": aligned}
    return forms if torch.version.cuda is None else forms | {"cuda": cuda_exporter(torch, to_capsule, native)}


MAX_NDIM = 64  # of torch's DLPack and NumPy bridges


def cuda_exporter(
    torch: Any, to_capsule: Callable[[Any], Any], native: frozenset[Any]
) -> Callable[[Any], tuple[int, Callable[[int], Any]]]:
    """Return the exporter of the form ``cuda``; `to_capsule` neither checks nor orders anything."""
    current_stream = torch.cuda.current_stream

    def on_device(tensor: Any) -> tuple[int, Callable[[int], Any]]:
        if not tensor.is_cuda or tensor.requires_grad or tensor.is_neg() or tensor.is_conj():
            raise BufferError("not on a device, or not plain memory")
        if tensor.dtype not in native or tensor.dim() > MAX_NDIM:
            raise BufferError("a dtype or number of dimensions that other frameworks lack")
        if tensor.data_ptr() % tensor.element_size():
            raise BufferError("misaligned")
        index = tensor.get_device()
        # torch's capsule holds the tensor, and `tensor.data = ...` would free the memory.
        tensor = tensor.data

        def export(stream: int) -> Any:
            # On the same stream there is nothing to order: skip torch's exporter, which creates
            # a stream object to compare them and repeats the checks above.
            if stream == (current_stream(index).cuda_stream or LEGACY_DEFAULT_STREAM):
                return to_capsule(tensor)
            return OnDevice(torch, tensor).__dlpack__(stream=stream)

        return index, export

    return on_device


def cuda_importer(torch: Any, from_capsule: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the importer of the form ``cuda``; `from_capsule` is torch's."""
    current_stream, current_device = torch.cuda.current_stream, torch.cuda.current_device

    def from_device(memory: Any) -> Any:
        index, export = memory
        # The producer reads the number of a default stream as a stream of its current device.
        if index != current_device():
            raise BufferError("not on the current device")
        return from_capsule(export(current_stream(index).cuda_stream or LEGACY_DEFAULT_STREAM))

    return from_device
