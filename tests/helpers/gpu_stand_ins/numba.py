"""``numba.cuda``: the stub of ``cuda_stubs``, plus the functions that the GPU tests call.

Copies have finished when their call returns, and managed, mapped and pinned arrays are ordinary host
arrays. Nothing is compiled, so kernels, NVVM, launches and deferred deallocation are not simulated.
"""

from __future__ import annotations

import types
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

from helpers import cuda_stubs
from helpers.gpu_stand_ins.memory import HANDLES, Devices

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY (cuda.h, CUresult)


class CudaAPIError(Exception):
    """Numba's exception for driver errors."""

    def __init__(self, code: int):
        super().__init__(f"[{code}] error of the driver")
        self.code = code


def modules(devices: Devices) -> dict[str, object]:
    """Return ``numba`` and those of its modules that are imported, by name."""
    numba = cuda_stubs.numba_over(devices)
    cuda = numba.cuda
    _arrays(cuda)
    _streams(cuda)
    _memory(cuda, devices)
    return {
        "numba": numba,
        "numba.cuda": cuda,
        "numba.cuda.cudadrv.devicearray": cuda.devicearray,
        "numba.cuda.cudadrv.driver": SimpleNamespace(CudaAPIError=CudaAPIError),
    }


def _arrays(cuda: types.ModuleType) -> None:
    array = cuda.devicearray.DeviceNDArray

    def bind(self, stream=0):
        return array(self._host, stream, self)

    def to_device(values, stream=0):
        if isinstance(values, array):
            return values
        # Of a broadcast array, Numba transfers one element of each repeated dimension
        # (numba.core, array_core).
        one_of_each = [slice(0, 1) if n == 0 else slice(None) for n in values.strides]
        core = values[(*one_of_each, ...)]
        fresh = cuda.device_array_like(core, stream)
        fresh.copy_to_device(core, stream)
        if core.shape == values.shape:
            return fresh
        return array(np.broadcast_to(fresh._host, values.shape), stream, fresh)

    array.bind = bind
    array.__setitem__ = array.setitem
    array.size = property(lambda self: self._host.size)
    array.ndim = property(lambda self: self._host.ndim)
    cuda.to_device = to_device


def _streams(cuda: types.ModuleType) -> None:
    cuda.stream = lambda: cuda.external_stream(next(HANDLES))
    cuda.default_stream = lambda: cuda.external_stream(0)
    cuda.is_available = lambda: True
    cuda.synchronize = lambda: None
    cuda.defer_cleanup = nullcontext


def _memory(cuda: types.ModuleType, devices: Devices) -> None:
    plain = cuda.device_array

    def device_array(shape, dtype, stream=0):
        try:
            return plain(shape, dtype, stream)
        except MemoryError as error:
            raise CudaAPIError(_OUT_OF_MEMORY) from error

    pending = SimpleNamespace(clear=lambda: None)
    context = SimpleNamespace(
        get_memory_info=lambda: SimpleNamespace(free=devices.free),
        memory_manager=SimpleNamespace(deallocations=pending),
    )
    cuda.device_array = device_array
    cuda.managed_array = cuda.mapped_array = cuda.pinned_array = np.zeros
    cuda.current_context = lambda: context
