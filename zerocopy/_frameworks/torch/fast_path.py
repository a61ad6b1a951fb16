"""Fast exporters and importers of tensors, by form (see :data:`zerocopy.source.FORMS`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.framework import version_numbers
from zerocopy.protocols import dlpack

MAX_NDIM = 64  # of torch's DLPack and NumPy bridges


def fast_exporters(torch: Any, native: frozenset[Any]) -> dict[str, Callable[[Any], Any]]:
    """Return the fast exporters of ``torch.Tensor``; `native` holds the dtypes that NumPy has too."""
    to_capsule = torch.utils.dlpack.to_dlpack

    # A build without an accelerator has no tensors with memory elsewhere.
    host_only = torch.version.cuda is None and not torch.accelerator.is_available()

    # to_dlpack is the bare C++ function, 1.5 us faster than __dlpack__, whose checks are
    # therefore repeated here (hazard 11), at 40 to 70 ns each. The device check is last because
    # host-only builds skip it. C++ refuses sparse and meta tensors.
    def plain(tensor: Any) -> Any:
        if tensor.requires_grad or tensor.is_neg() or tensor.is_conj() or tensor.dim() > MAX_NDIM:
            raise BufferError("not plain memory")
        if not (host_only or tensor.is_cpu):
            raise BufferError("not on the host")
        return to_capsule(tensor)

    def aligned(tensor: Any) -> Any:
        if tensor.data_ptr() % 64:
            raise BufferError("not aligned")
        if tensor.requires_grad or tensor.is_neg() or tensor.is_conj() or tensor.dim() > MAX_NDIM:
            raise BufferError("not plain memory")
        if not (host_only or tensor.is_cpu):
            raise BufferError("not on the host")
        return to_capsule(tensor)

    # In C++, Tensor.numpy refuses gradients, lazy bits and other devices.
    forms = {"ndarray": torch.Tensor.numpy, "capsule": plain, "aligned": aligned}
    return forms if torch.version.cuda is None else forms | {"cuda": cuda_exporter(torch, to_capsule, native)}


def fast_importers(torch: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the fast importers of torch."""
    from_capsule, from_numpy = capsule_importer(torch), torch.from_numpy
    forms: dict[str, Callable[[Any], Any]] = {"capsule": from_capsule}
    if torch.version.cuda is not None:
        # Decided by the build: asking the driver for devices would break CUDA in forked children.
        forms["cuda"] = cuda_importer(torch, from_capsule)
    if not dlpack.NUMPY_DELETER_IS_SAFE:
        return forms

    def ndarray(array: Any) -> Any:
        # For writable, aligned, native, row-major memory the capsule is 15% faster than
        # from_numpy. Negative strides would abort the capsule importer; from_numpy refuses them.
        flags = array.flags
        if flags.carray:
            return from_capsule(array.__dlpack__())
        if flags.behaved:
            return from_numpy(array)
        raise BufferError("read-only or misaligned")

    def versioned(capsule: Any) -> Any:
        tensor = from_capsule(capsule)
        # Checked after the import: the tensor's address takes 90 ns, most producers' more.
        if tensor.data_ptr() % tensor.element_size():
            raise BufferError("misaligned")
        return tensor

    return forms | {"versioned": versioned, "ndarray": ndarray}


def capsule_importer(torch: Any) -> Callable[[Any], Any]:
    """Return torch's capsule importer: the C++ function where it is known to be the same.

    ``torch.utils.dlpack.from_dlpack`` first looks for ``__dlpack__``, which costs 140 ns of a
    budget of 150 (torch 2.13). The private name has not changed since torch 1.10; test_routes
    compares both.
    """
    private = getattr(torch._C, "_from_dlpack", None)
    if (2, 9) <= version_numbers(torch.__version__) < (3,) and private is not None:
        return private  # type: ignore[no-any-return]
    return torch.utils.dlpack.from_dlpack  # type: ignore[no-any-return]


def cuda_exporter(
    torch: Any, to_capsule: Callable[[Any], Any], native: frozenset[Any]
) -> Callable[[Any], tuple[int, Callable[[int], Any]]]:
    """Return the exporter of the form ``cuda``; `to_capsule` neither checks nor orders anything."""
    current_stream = torch.cuda.current_stream

    def on_device(tensor: Any) -> tuple[int, Callable[[int], Any]]:
        if not tensor.is_cuda or tensor.requires_grad or tensor.is_neg() or tensor.is_conj():
            raise BufferError("not on a device, or not plain memory")
        if tensor.dtype not in native or tensor.dim() > MAX_NDIM:
            raise BufferError("a dtype or more dimensions than other frameworks take")
        if tensor.data_ptr() % tensor.element_size():
            raise BufferError("misaligned")
        index = tensor.get_device()

        def ask(stream: int) -> Any:
            # On the same stream there is nothing to order: skip torch's exporter, which creates
            # a stream object to compare them and repeats the checks above.
            if stream == (current_stream(index).cuda_stream or LEGACY_DEFAULT_STREAM):
                return to_capsule(tensor)
            return tensor.__dlpack__(stream=stream)

        return index, ask

    return on_device


def cuda_importer(torch: Any, from_capsule: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the importer of the form ``cuda``; `from_capsule` is torch's."""
    current_stream, current_device = torch.cuda.current_stream, torch.cuda.current_device

    def from_device(memory: Any) -> Any:
        index, ask = memory
        # The number of a default stream means that of the producer's current device.
        if index != current_device():
            raise BufferError("not on the current device")
        return from_capsule(ask(current_stream(index).cuda_stream or LEGACY_DEFAULT_STREAM))

    return from_device
