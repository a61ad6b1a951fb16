"""Stubs of CuPy and ``numba.cuda`` over host memory, for tests without a GPU.

The stubs have the functions that zerocopy calls, with the limits of CuPy and Numba: an exporter
without float8, kernels that fail on misaligned memory, asynchronous copies to the host. tests/gpu
checks that CuPy and Numba behave in this way.
"""

from __future__ import annotations

import ctypes
import math
import sys
import types
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from zerocopy import registry
from zerocopy._engine import routes
from zerocopy.device import CUDA
from zerocopy.dtype import from_numpy, to_numpy
from zerocopy.protocols import cuda_driver, dlpack

KNOWN = ("bfloat16",)  # besides NumPy's dtypes, those of CuPy 14's DLPack support


class Machine:
    """Devices: the current one, the owners of addresses, and a log of calls on streams."""

    count = 2

    def __init__(self):
        self.current, self.owners, self.log = 0, [], []

    def allocate(self, nbytes, device=None):
        memory = np.zeros(nbytes + 256, np.uint8)
        start = -memory.ctypes.data % 256
        block = memory[start : start + nbytes]
        self.owners.append((block.ctypes.data, max(nbytes, 1), self.current if device is None else device))
        return block

    def ordinal(self, ptr):
        # The newest first: malloc reuses freed addresses.
        return next((d for p, n, d in reversed(self.owners) if p <= ptr < p + n), None)

    def order(self, first, then, device):
        self.log += [("record", first), ("wait", then)]

    @contextmanager
    def on(self, index):
        before, self.current = self.current, index
        try:
            yield
        finally:
            self.current = before


def over(ptr, shape, dtype, strides, keeps):
    """Return an ndarray over an address."""
    dtype = np.dtype(dtype)
    standard = from_numpy(dtype)
    storage = standard.storage if standard is not None else dtype
    view = SimpleNamespace(
        __array_interface__={
            "shape": tuple(shape),
            "strides": tuple(strides),
            "typestr": storage.str,
            "data": (ptr, False),
            "version": 3,
        },
        keeps=keeps,
    )
    array = np.asarray(view) if ptr and 0 not in shape else np.empty(shape, storage)
    return array.view(dtype) if storage != dtype else array


def capsule_of(array, device, versioned):
    """Return NumPy's capsule of an array, marked as on a device."""
    dtype = from_numpy(array.dtype)
    plain = array.view(dtype.storage) if not dtype.in_numpy else array
    capsule = plain.__dlpack__(max_version=(1, 0)) if versioned else plain.__dlpack__()
    if not dtype.in_numpy:
        dlpack.retype(capsule, dtype)
    tensor, _ = dlpack._tensor(capsule)
    tensor.device_type, tensor.device_id = CUDA, device
    return capsule


def forget():
    """Remove the test's classes from the registry and the routes."""
    registry._by_type.clear()
    registry._by_lasting_type.clear()
    routes.clear()


def install(monkeypatch) -> Machine:
    """Install both stubs for one test."""
    machine = Machine()
    cupy, numba = cupy_over(machine), numba_over(machine)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.setitem(sys.modules, "numba.cuda", numba.cuda)
    monkeypatch.setitem(sys.modules, "numba.cuda.cudadrv.devicearray", numba.cuda.devicearray)
    monkeypatch.setattr(cuda_driver, "missing", lambda: None)
    monkeypatch.setattr(cuda_driver, "is_started", lambda: True)
    monkeypatch.setattr(cuda_driver, "order", machine.order)
    monkeypatch.setattr(cuda_driver, "count", lambda: machine.count)
    monkeypatch.setattr(cuda_driver, "ordinal", machine.ordinal)
    return machine


# -- CuPy ---------------------------------------------------------------------


def cupy_over(machine: Machine) -> types.ModuleType:
    """Return the module ``cupy``."""
    cupy = types.ModuleType("cupy")

    class Stream:
        def __init__(self, ptr):
            self.ptr = ptr

        def record(self):
            machine.log.append(("record", self.ptr))
            return self.ptr

        def synchronize(self):
            machine.log.append(("synchronize", self.ptr))

        def wait_event(self, event):
            machine.log.append(("wait", self.ptr, event))

        def __enter__(self):
            self._before, streams[machine.current] = streams[machine.current], self

        def __exit__(self, *error):
            streams[machine.current] = self._before

        @classmethod
        def from_external(cls, obj):
            return cls(obj.__cuda_stream__()[1])

    Stream.null, Stream.ptds = Stream(0), Stream(2)
    streams = {0: Stream.null, 1: Stream.null}

    class Device:
        def __init__(self, id):
            self.id = id

        def __enter__(self):
            self._context = machine.on(self.id)
            self._context.__enter__()

        def __exit__(self, *error):
            self._context.__exit__(*error)

    class UnownedMemory:
        def __init__(self, ptr, size, owner, device_id):
            self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id

    class MemoryPointer:
        def __init__(self, mem, offset):
            assert mem.ptr != 0 or offset == 0
            self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id

        def copy_from_device_async(self, src, size, stream):
            machine.log.append(("copy", src.device_id, self.device_id, stream.ptr))
            ctypes.memmove(self.ptr, src.ptr, size)

    class ndarray:
        def __init__(self, shape, dtype=float, memptr=None, strides=None):
            self.shape, self.dtype = (shape,) if isinstance(shape, int) else tuple(shape), np.dtype(dtype)
            self.size, self.ndim = math.prod(self.shape), len(self.shape)
            if memptr is None:
                nbytes = self.size * self.dtype.itemsize
                block = machine.allocate(nbytes)
                memptr = MemoryPointer(UnownedMemory(block.ctypes.data, nbytes, block, machine.current), 0)
            self.strides = tuple(np.empty(self.shape, self.dtype).strides if strides is None else strides)
            self.data = memptr
            self._host = over(memptr.ptr, self.shape, self.dtype, self.strides, memptr)

        @property
        def flags(self):
            return self._host.flags

        @property
        def device(self):
            return Device(self.data.device_id)

        def view(self, dtype):
            host = self._host.view(dtype)
            return ndarray(host.shape, dtype, self.data, host.strides)

        def reshape(self, shape):
            assert self._host.flags.c_contiguous
            return ndarray(shape, self.dtype, self.data)

        def copy(self, order="C"):
            assert order == "C"
            # A kernel: it runs on the array's device, supports few dtypes, and faults on misaligned memory.
            assert machine.current == self.data.device_id
            itemsize = self.dtype.itemsize
            if self.size and any(n % itemsize for n in (self.data.ptr, *self.strides)):
                raise RuntimeError("cudaErrorMisalignedAddress")
            assert from_numpy(self.dtype).in_numpy or self._host.flags.c_contiguous
            machine.log.append(("kernel", streams[machine.current].ptr))
            fresh = ndarray(self.shape, self.dtype)
            fresh._host[...] = self._host
            return fresh

        def get(self):
            plain = self if self._host.flags.c_contiguous else self.copy("C")
            machine.log.append(("get", streams[machine.current].ptr))
            return plain._host.copy()

        def __getitem__(self, key):
            host = self._host[key]
            offset = host.__array_interface__["data"][0] - self.data.mem.ptr
            return ndarray(host.shape, self.dtype, MemoryPointer(self.data.mem, offset), host.strides)

        def __setitem__(self, key, value):
            # A kernel of the array's device.
            assert machine.current == self.data.device_id
            self._host[key] = value._host

        @property
        def T(self):
            return ndarray(self.shape[::-1], self.dtype, self.data, self.strides[::-1])

        @property
        def __cuda_array_interface__(self):
            return {
                "shape": self.shape,
                "strides": None if self._host.flags.c_contiguous else self.strides,
                "typestr": self.dtype.str,
                "data": (self.data.ptr if self.size else 0, False),
                "stream": streams[machine.current].ptr or 1,
                "version": 3,
            }

        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            assert stream != 0
            standard = from_numpy(self.dtype)
            if not standard.in_numpy and standard.name not in KNOWN:
                raise BufferError("dtype is not supported for dlpack export")
            machine.log.append(("export", stream))
            return capsule_of(self._host, self.data.device_id, max_version is not None)

        def __dlpack_device__(self):
            return CUDA, self.data.device_id

    ndarray.__module__ = "cupy"

    def from_dlpack(capsule):
        view = dlpack.read(capsule)
        if not view.dtype.in_numpy and view.dtype.name not in KNOWN:
            raise SystemError("CuPy 13 would crash the process")
        memory = UnownedMemory(view.ptr, 0, capsule, view.device.id)
        return ndarray(view.shape, to_numpy(view.dtype), MemoryPointer(memory, 0), view.strides)

    def array(host, order, blocking=False):
        assert order == "C"
        assert blocking or type(host.base) is bytearray  # page-locked memory is read after the call
        machine.log.append(("array", machine.current, streams[machine.current].ptr))
        fresh = ndarray(host.shape, host.dtype)
        fresh._host[...] = host
        return fresh

    cupy.ndarray, cupy.from_dlpack, cupy.array = ndarray, from_dlpack, array
    cupy.empty = ndarray
    cupy.cuda = SimpleNamespace(
        Device=Device,
        Stream=Stream,
        UnownedMemory=UnownedMemory,
        MemoryPointer=MemoryPointer,
        get_current_stream=lambda: streams[machine.current],
        is_available=lambda: True,
        runtime=SimpleNamespace(
            is_hip=False,
            CUDARuntimeError=RuntimeError,
            getDeviceCount=lambda: machine.count,
            getDevice=lambda: machine.current,
        ),
    )
    return cupy


# -- Numba --------------------------------------------------------------------


def numba_over(machine: Machine) -> types.ModuleType:
    """Return the module ``numba`` with ``numba.cuda``."""
    numba, cuda = types.ModuleType("numba"), types.ModuleType("numba.cuda")

    class Stream:
        def __init__(self, handle):
            self.handle = ctypes.c_void_p(handle)

        def synchronize(self):
            machine.log.append(("synchronize", self.handle.value))

    class DeviceNDArray:
        def __init__(self, host, stream=0, keeps=None):
            self._host, self.stream, self._keeps = host, stream, keeps
            self.shape, self.strides, self.dtype = host.shape, host.strides, host.dtype
            index = machine.ordinal(host.__array_interface__["data"][0])
            device = SimpleNamespace(id=machine.current if index is None else index)
            self.gpu_data = SimpleNamespace(context=SimpleNamespace(device=device))

        @property
        def __cuda_array_interface__(self):
            walked = [i for i, s in enumerate(self.strides) if s != 0 and self.shape[i] > 1]
            core = np.empty([self.shape[i] for i in walked], self.dtype)
            row_major = core.strides == tuple(self.strides[i] for i in walked)
            return {
                "shape": self.shape,
                "strides": None if row_major else self.strides,  # as Numba does: see numba.py
                "typestr": self.dtype.str,
                "data": (self._host.__array_interface__["data"][0] if self._host.size else 0, False),
                "stream": None if self.stream == 0 else (self.stream.handle.value or 0),
                "version": 3,
            }

        def view(self, dtype):
            return DeviceNDArray(self._host.view(dtype), self.stream, self)

        def __getitem__(self, key):
            return DeviceNDArray(self._host[key], self.stream, self)

        @property
        def T(self):
            return DeviceNDArray(self._host.T, self.stream, self)

        def copy_to_host(self, stream=0):
            if any(s < 0 for s in self.strides):
                raise NotImplementedError("D->H copy not implemented for negative strides")
            machine.log.append(("copy_to_host", stream and stream.handle.value))
            return self._host.copy()

        def copy_to_device(self, other, stream=0):
            if isinstance(other, np.ndarray):  # between host and device
                assert other.flags.forc
                machine.log.append(("copy_to_device", machine.current, stream and stream.handle.value))
                self._host[...] = other
                return
            assert self._host.flags.c_contiguous
            assert other._host.flags.c_contiguous
            self._host[...] = other._host

        def setitem(self, key, other, stream=0):
            assert from_numpy(other.dtype).in_numpy, "Numba compiles no kernel for it"
            assert all(n % other.dtype.itemsize == 0 for n in other.strides), "misaligned address"
            self._host[key] = other._host

    DeviceNDArray.__module__ = "numba.cuda.cudadrv.devicearray"

    def from_cuda_array_interface(entry, owner, sync):
        assert sync is False
        strides = entry["strides"] or np.empty(entry["shape"], entry["typestr"]).strides
        host = over(entry["data"][0], entry["shape"], entry["typestr"], strides, owner)
        return DeviceNDArray(host, Stream(entry["stream"]) if entry["stream"] else 0, owner)

    def as_cuda_array(obj, sync):
        return from_cuda_array_interface(obj.__cuda_array_interface__, obj, sync)

    def device_array(shape, dtype, stream=0):
        size = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
        return DeviceNDArray(machine.allocate(size).view(dtype).reshape(shape), stream)

    def device_array_like(host, stream=0):
        fresh = device_array(host.shape, host.dtype, stream)
        if host.flags.c_contiguous:
            return fresh
        return DeviceNDArray(fresh._host.reshape(host.shape[::-1]).T, stream)

    def to_device(host, stream=0):
        if not host.flags.forc:
            raise ValueError("Array contains non-contiguous buffer")
        machine.log.append(("to_device", machine.current, stream and stream.handle.value))
        fresh = device_array(host.shape, host.dtype, stream)
        fresh._host[...] = host
        return fresh

    cuda.as_cuda_array, cuda.device_array, cuda.to_device = as_cuda_array, device_array, to_device
    cuda.device_array_like, cuda.from_cuda_array_interface = device_array_like, from_cuda_array_interface
    cuda.external_stream = Stream
    cuda.legacy_default_stream = lambda: Stream(1)
    cuda.per_thread_default_stream = lambda: Stream(2)
    cuda.gpus = _Devices(machine)
    cuda.get_current_device = lambda: SimpleNamespace(id=machine.current)
    cuda.cuda_error = lambda: None
    cuda.devicearray = SimpleNamespace(
        DeviceNDArray=DeviceNDArray, is_cuda_ndarray=lambda x: isinstance(x, DeviceNDArray)
    )
    numba.cuda = cuda
    return numba


class _Devices:
    def __init__(self, machine):
        self._machine = machine

    def __getitem__(self, index):
        return self._machine.on(index)

    def __len__(self):
        return self._machine.count
