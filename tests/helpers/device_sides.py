"""Stand-ins for each framework's side of a compiled route on a device, over host memory.

torch's tensors are real tensors of the host, whose C exchange API declares them as memory of ``cuda:0``
and has a current stream. CuPy and ``numba.cuda`` are those of ``cuda_stubs``. JAX and objects without a
framework file are small classes. `counted` counts calls of frameworks' Python functions, and
``machine.log`` has what orders streams.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from helpers import cuda_stubs
from helpers.cuda_producers import SpeaksCAI, capsule_on
from zerocopy._engine.composing import declare_dtypes
from zerocopy._native import core
from zerocopy.device import CPU, CUDA
from zerocopy.dtype import NATIVE_NAMES
from zerocopy.protocols import dlpack
from zerocopy.protocols.producer import compiled_exporter

SOURCES = ("torch", "cupy", "jax", "numba", "interface", "dlpack")
TARGETS = ("torch", "cupy", "jax", "numba")
#: JAX's private stream, on which it reads what it imports.
JAX_STREAM = 77

_FUNCTION = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_NAME = ctypes.c_char_p(b"dlpack_exchange_api")


class ExchangeAPI:
    """torch's table of C functions, for tensors of the host that stand for tensors on a device."""

    def __init__(self, torch: Any) -> None:
        self.stream, self.device = 0, 0
        address = _get_pointer(torch.Tensor.__dlpack_c_exchange_api__, _NAME)
        words = (ctypes.c_uint64 * 7).from_address(address)
        export, import_, describe = (_FUNCTION(word) for word in words[3:6])

        def from_object(obj: int, out: int) -> int:
            status = export(obj, out)
            managed = ctypes.c_uint64.from_address(out).value
            tensor = dlpack.DLManagedTensorVersioned.from_address(managed).dl_tensor
            tensor.device_type, tensor.device_id = CUDA, self.device
            return int(status)

        def to_object(managed: int, out: int) -> int:
            tensor = dlpack.DLManagedTensorVersioned.from_address(managed).dl_tensor
            tensor.device_type, tensor.device_id = CPU, 0
            return int(import_(managed, out))

        def to_tensor(obj: int, out: int) -> int:
            status = describe(obj, out)
            tensor = dlpack.DLTensor.from_address(out)
            tensor.device_type, tensor.device_id = CUDA, self.device
            return int(status)

        def current(_type: int, _index: int, out: int) -> int:
            ctypes.c_void_p.from_address(out).value = self.stream
            return 0

        functions = (from_object, to_object, to_tensor)
        self._functions = (*map(_FUNCTION, functions), _STREAM(current))  # keeps them alive
        pointers = [ctypes.cast(f, ctypes.c_void_p).value for f in self._functions]
        self._table = (ctypes.c_uint64 * 7)(*words[:3], *pointers)
        self._table[1] = 0  # no older table
        self.capsule = _new_capsule(ctypes.addressof(self._table), _NAME, None)


class JaxArray:
    """An array on a device, whose exporter makes the consumer's stream wait for it."""

    def __init__(self, values: np.ndarray, machine: Any) -> None:
        self.values, self.machine, self.device = values, machine, CUDA

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        self.machine.log.append(("export", stream))
        return capsule_on(self.values, (self.device, 0), versioned=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class DLPackArray(JaxArray):
    """An object without a framework file."""


class Sides:
    """The exporters and importers of all frameworks, and objects for them."""

    def __init__(self, monkeypatch: Any, torch: Any, jax: Any, devices: int = 1) -> None:
        self.machine = machine = cuda_stubs.install(monkeypatch)
        machine.count = devices
        self.torch, self.api = torch, ExchangeAPI(torch)
        self._patch_torch(monkeypatch)
        self._patch_jax(monkeypatch, jax)
        import cupy
        import numba

        self.cupy, self.numba = cupy, numba

    def _patch_torch(self, monkeypatch: Any) -> None:
        from zerocopy._frameworks import torch as framework
        from zerocopy._frameworks.torch import native

        layout = native.find_layout(self.torch)
        assert layout is not None
        layout["keys"] = (1, layout["keys"][0])  # no tensor is on the host
        monkeypatch.setattr(native, "_api", lambda torch: self.api.capsule)
        monkeypatch.setattr(native, "find_layout", lambda torch: layout)
        monkeypatch.setattr(self.torch.version, "cuda", "13.0")

        def on_stream(torch: Any, tensor: Any, stream: int) -> Any:
            self.machine.log += [("record", self.api.stream or 1), ("wait", stream)]
            capsule = tensor.__dlpack__()
            described = dlpack.tensor_of(capsule)
            described.device_type, described.device_id = CUDA, self.api.device
            return capsule

        monkeypatch.setattr(framework, "on_stream", on_stream)

    def _patch_jax(self, monkeypatch: Any, jax: Any) -> None:
        from zerocopy._frameworks.jax import capsules

        def bare(capsule: Any, device: Any, stream: int) -> Any:
            assert (device.local_hardware_id, stream) == (0, JAX_STREAM)
            return dlpack.read(capsule)

        monkeypatch.setattr(capsules, "_bare_import", lambda: bare)
        device = SimpleNamespace(local_hardware_id=0, get_stream_for_external_ready_events=self._jax_stream)
        self.jax = SimpleNamespace(config=jax.config, local_devices=lambda backend=None: [device])

    def _jax_stream(self) -> int:
        return JAX_STREAM

    def make(self, name: str, values: np.ndarray) -> Any:
        """Return an object of a source over memory of device 0, which aliases `values`."""
        nbytes = values.nbytes
        self.machine.owners.append((values.ctypes.data, nbytes, 0))
        if name == "torch":
            return self.torch.from_numpy(values)
        if name == "cupy":
            memory = self.cupy.cuda.UnownedMemory(values.ctypes.data, nbytes, values, 0)
            return self.cupy.ndarray(
                values.shape, values.dtype, self.cupy.cuda.MemoryPointer(memory, 0), values.strides
            )
        if name == "numba":
            return self.numba.cuda.devicearray.DeviceNDArray(values)
        kinds = {"jax": JaxArray, "dlpack": DLPackArray}
        return kinds[name](values, self.machine) if name in kinds else SpeaksCAI(values, stream=1)

    def exporter(self, name: str, obj: Any) -> Any:
        from zerocopy import registry
        from zerocopy._frameworks.jax import capsules

        if name == "jax":
            return capsules.device_exporter(self.jax)
        if name in ("interface", "dlpack"):
            return compiled_exporter(obj)
        return registry.by_name(name).fast_exporters(type(obj))["native"]

    def importer(self, name: str) -> Any:
        from zerocopy import registry
        from zerocopy._frameworks.jax import capsules

        if name == "jax":
            return capsules.device_importer(self.jax, NATIVE_NAMES, 16)
        return registry.by_name(name).fast_importers()["native_device"]

    def route(self, source: str, target: str, obj: Any, **options: Any) -> Any:
        """Return the compiled route of a pair, without a fallback."""
        declare_dtypes()
        return core.MemoryRoute(
            self.exporter(source, obj), None, True, False, device_importer=self.importer(target), **options
        )

    def pointer(self, name: str, result: Any) -> int:
        """Return the address of a target's object."""
        if name == "torch":
            return int(result.data_ptr())
        if name == "cupy":
            return int(result.data.ptr)
        return int(result.ptr if name == "jax" else result.__cuda_array_interface__["data"][0])

    def values(self, name: str, result: Any) -> np.ndarray:
        """Return an ndarray over the memory of a target's object."""
        if name == "torch":
            array: np.ndarray = result.numpy()
            return array
        if name != "jax":
            return np.asarray(result._host)
        return cuda_stubs.over(result.ptr, result.shape, result.dtype.storage, result.strides, result)

    def set_stream(self, name: str, stream: int, obj: Any = None) -> None:
        """Make a stream the current one of a framework, or that of an object's pending work."""
        if name == "torch":
            self.api.stream = stream
        elif name == "cupy":
            self.cupy.cuda.Stream(stream).__enter__()
        elif name == "numba":
            obj.stream = self.numba.cuda.external_stream(stream) if stream else 0
        elif name == "interface":
            obj.entries["stream"] = stream or 1


@contextmanager
def counted() -> Iterator[Any]:
    """Count calls of the stand-ins' functions from elsewhere: of frameworks' Python, and of the driver."""
    files = ("cuda_stubs.py", "device_sides.py", "cuda_producers.py")
    counts = SimpleNamespace(framework=[], driver=[])
    others = {
        "from_object",
        "to_object",
        "to_tensor",
        "current",
        "counted",
    }  # C functions of torch, and this function

    def profile(frame: Any, event: str, _arg: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.endswith(files) or code.co_name in others:
            return
        caller = frame.f_back.f_code.co_filename
        if not caller.endswith(files):
            kind = counts.driver if code.co_name in ("order", "ordinal") else counts.framework
            kind.append(code.co_name)

    sys.setprofile(profile)
    try:
        yield counts
    finally:
        sys.setprofile(None)
