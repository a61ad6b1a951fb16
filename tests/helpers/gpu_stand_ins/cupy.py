"""CuPy: the stub of ``cuda_stubs``, plus the functions that the GPU tests call.

Kernels have finished when their call returns, and managed memory differs from other memory only in
its DLPack device type. The kernels that CuPy compiles, the memory that its pools keep and its
synchronisation are not simulated.
"""

from __future__ import annotations

import types
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from helpers import cuda_stubs
from helpers.gpu_stand_ins.memory import HANDLES, TOTAL, Devices
from zerocopy.device import CUDA_MANAGED
from zerocopy.protocols import dlpack


def module(devices: Devices) -> types.ModuleType:
    """Return the module ``cupy``."""
    cupy = cuda_stubs.cupy_over(devices)
    _arrays(cupy)
    _streams(cupy)
    _allocators(cupy, devices)
    return cupy


def pinned() -> types.ModuleType:
    """Return the module ``cupyx``; page-locked memory is plain host memory."""
    cupyx = types.ModuleType("cupyx")
    cupyx.zeros_pinned = np.zeros
    return cupyx


def sparse() -> dict[str, types.ModuleType]:
    """Return the modules of sparse matrices; the matrices only hold their arrays, as CuPy's do."""
    scipy, sparse = (types.ModuleType(name) for name in ("cupyx.scipy", "cupyx.scipy.sparse"))
    scipy.sparse = sparse

    class Matrix:
        has_canonical_format = True

        def __init__(self, arrays, shape):
            self.shape = shape
            self.data, *indices = arrays if self.format != "coo" else (arrays[0], *arrays[1])
            names = ("row", "col") if self.format == "coo" else ("indices", "indptr")
            for name, array in zip(names, indices, strict=True):
                assert array.dtype == "int32", "CuPy would cast them"
                setattr(self, name, array)

        def toarray(self):
            raise NotImplementedError

    for form in ("csr", "csc", "coo"):
        members = {"format": form, "__module__": f"cupyx.scipy.sparse._{form}"}
        setattr(sparse, f"{form}_matrix", type(f"{form}_matrix", (Matrix,), members))
    return {"cupyx.scipy": scipy, "cupyx.scipy.sparse": sparse}


def _arrays(cupy: types.ModuleType) -> None:
    ndarray = cupy.ndarray

    def setitem(self, key, values):
        self._host[key] = values._host if isinstance(values, ndarray) else values

    def copyto(destination, source):
        destination[...] = source

    def broadcast_to(array, shape):
        strides = np.broadcast_to(array._host, shape).strides
        return ndarray(shape, array.dtype, array.data, strides)

    def astype(self, dtype, order="K"):
        fresh = ndarray(self.shape, dtype)
        with np.errstate(all="ignore"):
            fresh._host[...] = self._host.astype(dtype)
        return fresh

    def on_host(function):
        # The results of comparisons are read on the host next.
        return lambda *arrays: function(*(x._host if isinstance(x, ndarray) else x for x in arrays))

    for name in ("__ge__", "__lt__", "__eq__"):
        setattr(ndarray, name, on_host(getattr(np.ndarray, name)))
    for name in ("isfinite", "isnan", "trunc"):
        setattr(cupy, name, on_host(getattr(np, name)))
    ndarray.min, ndarray.max = on_host(np.min), on_host(np.max)
    ndarray.__hash__ = object.__hash__
    ndarray.astype = astype
    ndarray.__setitem__ = setitem
    cupy.copyto, cupy.broadcast_to = copyto, broadcast_to
    cupy.zeros = ndarray  # fresh memory of `Devices` is zero
    cupy.asnumpy = ndarray.get
    cupy.is_available = lambda: True


def _streams(cupy: types.ModuleType) -> None:
    stream = cupy.cuda.Stream

    def make(self, ptr=None, non_blocking=False):
        self.ptr = next(HANDLES) if ptr is None else ptr

    stream.__init__ = make
    stream.synchronize = lambda self: None


def _allocators(cupy: types.ModuleType, devices: Devices) -> None:
    ndarray, plain_array = cupy.ndarray, cupy.array
    export, device_of = ndarray.__dlpack__, ndarray.__dlpack_device__
    malloc_managed = object()
    allocators = [None]

    @contextmanager
    def using_allocator(allocator):
        allocators.append(allocator)
        try:
            yield
        finally:
            allocators.pop()

    def array(values, order="C", blocking=True):
        fresh = plain_array(np.asarray(values), order, blocking)
        fresh.data.mem.managed = allocators[-1] is malloc_managed
        return fresh

    def managed(self):
        return getattr(self.data.mem, "managed", False)

    def to_dlpack(self, **options):
        capsule = export(self, **options)
        if managed(self):  # as CuPy 14 reports; torch and JAX refuse it
            tensor, _ = dlpack._tensor(capsule)
            tensor.device_type = CUDA_MANAGED
        return capsule

    def dlpack_device(self):
        kind, index = device_of(self)
        return (CUDA_MANAGED if managed(self) else kind), index

    ndarray.__dlpack__, ndarray.__dlpack_device__ = to_dlpack, dlpack_device
    cupy.array = array
    cupy.cuda.malloc_managed, cupy.cuda.using_allocator = malloc_managed, using_allocator
    pool = SimpleNamespace(used_bytes=lambda: devices.used, free_all_blocks=lambda: None)
    cupy.get_default_memory_pool = lambda: pool
    cupy.cuda.runtime.memGetInfo = lambda: (devices.free, TOTAL)
