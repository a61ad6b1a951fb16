"""cuda.core's ``StridedMemoryView``: the address, layout and owner of memory on the host or a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._native import core
from zerocopy.device import LEGACY_DEFAULT_STREAM, NO_SYNC_STREAM, Device
from zerocopy.dtype import NATIVE_NAMES, DType, from_numpy
from zerocopy.errors import DeviceError, Fix, FrameworkNotInstalledError, Reason
from zerocopy.framework import Framework
from zerocopy.protocols import cuda_array_interface, dlpack
from zerocopy.protocols.array_interface import tidy_strides
from zerocopy.protocols.exporter_errors import check_layout
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides

_NAME = "cuda.core.StridedMemoryView"
_COPY = Fix('zc.convert({x}, "cupy")', "copies it to the device first", options={"device": None})
#: dtype_dlpack_to_numpy (cuda/core/_memoryview.pyx); bfloat16 needs ml_dtypes.
_NAMES = (*NATIVE_NAMES, "bfloat16")


class CudaCore(Framework):
    """``cuda.core.utils.StridedMemoryView``; it allocates no memory, so it copies none to a device."""

    name = "cuda.core"
    aliases = ("cuda", "cuda_core", "cuda-core", "cuda-python")
    types = ("utils.StridedMemoryView",)
    root_modules = ("cuda",)
    classes = ("cuda.core._memoryview.StridedMemoryView",)
    distribution = "cuda-core"
    install_hint = "pip install cuda-core cuda-bindings"
    min_version = "1.0"
    device_kinds = ("cpu", "cuda")
    marks_readonly = True

    def module(self) -> ModuleType:
        if not dlpack.NUMPY_TAKES_VERSIONED:
            why = f"NumPy {np.__version__} cannot mark the memory that it exports as read-only"
            raise FrameworkNotInstalledError(f"to={self.name!r}", why, "pip install 'numpy>=2.1'")
        return super().module()

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        if obj.exporting_obj is None:
            why, remedy = "it views no memory", "create it with StridedMemoryView.from_dlpack"
            raise obstacles.refuse_source(_NAME, Reason(why, remedy, code="no-memory"))
        dtype, shape = _dtype(obj), obj.shape
        # Strides count elements; None means row-major.
        strides = contiguous_strides(shape, dtype.itemsize)
        if obj.strides is not None:
            strides = tuple(step * dtype.itemsize for step in obj.strides)
        check_layout(f"convert({_NAME})", obj.ptr, shape, strides, dtype.itemsize)
        device = Device(*map(int, obj.__dlpack_device__()))
        view = StridedView(obj.ptr, shape, strides, dtype, device, bool(obj.readonly), obj)
        # A view has no stream: the producer's work was ordered when the view was made.
        return Source(_NAME, view, view.numpy, "dlpack", producer=None if device.is_host else obj)

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        if cls is not self._view:
            return {}

        def ndarray(view: Any) -> Any:
            if view.is_device_accessible or not view.ptr:
                raise BufferError("NumPy imports managed memory too, and for NULL it allocates memory")
            return np.from_dlpack(view)

        forms: dict[str, Any] = {"ndarray": ndarray}
        if core is not None:
            api = vars(cls).get("__dlpack_c_exchange_api__")
            forms["native"] = core.ProducerExporter(api, dlpack.MAX_VERSION)
        return forms

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self.check_view(view, _NAMES, obstacles.pairs)
        return obstacles.element_reasons(view)  # kernels fault on misaligned memory

    def device_copy_reasons(self, view: StridedView) -> list[Reason]:
        reasons = self.copy_reasons(view)
        if view.device.is_host:
            keeps = Fix(options={"device": None}, effect="views it on the host")
            raise DeviceError(
                "",
                "cuda.core views memory and copies none to a device",
                code="other-device",
                fixes=[_COPY, keeps],
            )
        return reasons

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        exporter: Any = tidy_strides(array)
        if not dtype.in_numpy:
            exporter = dlpack.Handover(dlpack.retype(dlpack.request(exporter), dtype))
        return self._view.from_dlpack(exporter, NO_SYNC_STREAM)

    def from_device(self, source: Source, stream: int | None) -> Any:
        # cuda.core has no current stream. Views are ordered on the caller's, or the legacy default stream.
        consumer = LEGACY_DEFAULT_STREAM if stream is None else stream
        view, producer = source.view, source.producer
        if view.dtype.in_numpy and not hasattr(type(producer), "__dlpack__"):
            _, ready = cuda_array_interface.read(producer, view.device.id)
            memory = cuda_array_interface.Handover(view, ready, producer)
            memory.__cuda_array_interface__["data"] = (view.ptr, view.readonly)
            return self._view.from_cuda_array_interface(memory, consumer)
        capsule = dlpack.request(registry.dlpack_producer(source), stream=consumer)
        tensor = dlpack.tensor_of(capsule)
        if tensor.byte_offset:  # from_dlpack ignores it (NVIDIA/cuda-python#2592)
            tensor.data, tensor.byte_offset = tensor.data + tensor.byte_offset, 0
        device = Device(tensor.device_type, tensor.device_id)
        return self._view.from_dlpack(dlpack.Handover(capsule, device), NO_SYNC_STREAM)

    @property
    def _view(self) -> Any:
        return self.module().utils.StridedMemoryView


def _dtype(obj: Any) -> DType:
    """Return the type of a view's elements; refuse types that cuda.core or zerocopy lacks."""
    try:
        declared, why = obj.dtype, ""
    except (TypeError, NotImplementedError) as error:  # float8, vectors; bfloat16 without ml_dtypes
        declared, why = None, f"cuda.core does not name its dtype: {error}"
    dtype = None if declared is None else from_numpy(declared)
    if dtype is None:
        why = why or f"its dtype is {declared}, which has no counterpart in other frameworks"
        fix = "view its bytes in the producer, or pass dtype= to StridedMemoryView.from_buffer"
        raise obstacles.refuse_source(_NAME, Reason(why, fix, code="missing-dtype"))
    return dtype


FRAMEWORK = CudaCore()
