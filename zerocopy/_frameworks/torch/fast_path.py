"""The fast exporters of tensors in Python, by form (see :data:`zerocopy.source.FORMS`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy._frameworks.torch.device_fast_path import MAX_NDIM, cuda_exporter
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
