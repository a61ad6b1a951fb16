"""The fast path of CUDA memory without a GPU: what it exports and imports, and what it refuses.

A stand-in for CuPy uses host memory; torch's importer and exporter run with stand-ins for its streams.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.cuda_producers import POINTER, SpeaksCAI, SpeaksDLPack

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import routes
from zerocopy._engine.planner import Call, make_plan
from zerocopy.device import Device
from zerocopy.dtype import by_name, to_numpy
from zerocopy.framework import Framework, Source
from zerocopy.protocols import dlpack


@pytest.fixture
def cupy(machine):
    import cupy

    return cupy


def on_gpu(values: np.ndarray) -> object:
    return zc.convert(values, to="cupy")


def export(x: object) -> tuple:
    return registry.by_name("cupy").fast_exporters(type(x))["cuda"](x)


# -- CuPy exports --------------------------------------------------------------------------


def test_cupy_exports_on_the_stream_of_the_importer(machine) -> None:
    x = on_gpu(sample("f4"))
    machine.log.clear()
    index, export_capsule = export(x)
    assert (index, machine.log) == (0, [])
    view = zc.view(SimpleCapsule(export_capsule(9)))
    assert machine.log == [("export", 9)]
    assert (view.ptr, view.shape, view.dtype.name) == (x.data.ptr, x.shape, "float32")


class SimpleCapsule:
    """A producer that exports a given capsule."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **options):
        return self._capsule

    def __dlpack_device__(self):
        return 2, 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_cupy_fast_path_refuses_foreign_types(cupy, dtype: str) -> None:
    """CuPy cannot export float8 and crashes importing it; the slow path passes unsigned integers."""
    x = on_gpu(sample(to_numpy(by_name(dtype)), (4, 6)))
    with pytest.raises(BufferError):
        export(x)


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x[:, ::2],
        lambda x: x[::-1],
        lambda x: x[:1, :1][::-1, ::-1],  # one element: the negative strides are never used
        lambda x: x.T,
    ],
)
def test_cupy_fast_path_refuses_some_layouts(cupy, cut) -> None:
    with pytest.raises(BufferError):
        export(cut(on_gpu(sample("f4", (4, 6)))))


def test_cupy_fast_path_refuses_misaligned_memory(cupy) -> None:
    octets = on_gpu(np.zeros(41, "u1"))
    with pytest.raises(BufferError):
        export(octets[1:].view("f4"))


def test_cupy_fast_path_refuses_other_devices(machine) -> None:
    x = zc.convert(sample("f4"), to="cupy", device="cuda:1")
    with pytest.raises(BufferError):
        export(x)
    with machine.on(1):
        assert export(x)[0] == 1


def test_subclasses_of_cupy_arrays_have_no_fast_path(cupy) -> None:
    class Units(cupy.ndarray):
        pass

    assert registry.by_name("cupy").fast_exporters(Units) == {}


# -- CuPy imports -------------------------------------------------------------------------


class ExportedArray:
    """An array of a framework whose only exporter is for CUDA."""

    def __init__(self, values: np.ndarray, index: int = 0):
        self.producer, self.index = SpeaksDLPack(values), index


ExportedArray.__module__ = "cuda_exporter"


class CudaExporter(Framework):
    name = "cuda_exporter"

    def installed(self):
        return True

    def owns(self, cls):
        return cls is ExportedArray

    def source(self, obj):
        view = zc.view(obj.producer)
        return Source("cuda_exporter.ExportedArray", view, view.numpy, "dlpack", producer=obj.producer)

    def fast_exporters(self, cls):
        def on_device(obj):
            return obj.index, lambda stream: obj.producer.__dlpack__(stream=stream)

        return {"cuda": on_device}


@pytest.fixture
def exporter_framework():
    zc.register(CudaExporter())


def test_cupy_imports_on_its_current_stream(machine, exporter_framework, cupy) -> None:
    x = ExportedArray(sample("f4"))
    planned = make_plan(Call(x, "cupy", {})).run()
    zc.convert(x, to="cupy")
    route = routes.routes_of("cupy", {})[ExportedArray]
    for current, stream in ((cupy.cuda.Stream.null, 1), (cupy.cuda.Stream(5), 5), (cupy.cuda.Stream.ptds, 2)):
        with current:
            result = route(x)
        assert x.producer.streams[-1] == stream
        assert (result.data.ptr, result.shape, result.strides, result.dtype) == (
            planned.data.ptr,
            planned.shape,
            planned.strides,
            planned.dtype,
        )


def test_cupy_imports_only_on_its_current_device(machine, exporter_framework) -> None:
    zc.convert(ExportedArray(sample("f4")), to="cupy")
    with pytest.raises(BufferError):
        routes.routes_of("cupy", {})[ExportedArray](ExportedArray(sample("f4"), index=1))


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "f2", "f4", "f8", "c16", "q", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("layout", ["C", "F", "strided", "reversed", "0-d", "empty", "read-only"])
def test_host_arrays_reach_cupy_equally_on_both_paths(machine, dtype: str, layout: str) -> None:
    numpy_dtype = to_numpy(by_name(dtype)) if len(dtype) > 3 else np.dtype(dtype)
    values = {
        "C": lambda x: x,
        "F": lambda x: np.array(x, order="F"),
        "strided": lambda x: x[::2, ::3],
        "reversed": lambda x: x[::-1],
        "0-d": lambda x: x[:1, :1].reshape(()),
        "empty": lambda x: x[:0],
        "read-only": lambda x: x,
    }[layout](sample(numpy_dtype, (4, 6)))
    values.flags.writeable = layout != "read-only"
    planned = make_plan(Call(values, "cupy", {})).run()
    for _ in range(2):  # the second conversion takes the fast path
        machine.log.clear()
        fast = zc.convert(values, to="cupy")
        assert ("array", 0, 0) in machine.log
        assert (fast.dtype, fast.shape, fast.strides) == (planned.dtype, planned.shape, planned.strides)
        assert bits(zc.convert(fast, to="numpy")) == bits(values)
        assert not zc.shares_memory(fast, values)


@pytest.mark.parametrize(
    "values",
    [np.zeros(3, ">f4"), np.zeros(3, "M8[s]"), np.array(["a"]), np.array([None])],
    ids=["swapped", "dates", "text", "objects"],
)
def test_host_arrays_that_cupy_cannot_take_need_the_slow_path(cupy, values: np.ndarray) -> None:
    zc.convert(np.zeros(3), to="cupy")
    with pytest.raises(BufferError):
        routes.routes_of("cupy", {})[np.ndarray](values)
    if values.dtype.kind == "f":
        assert zc.convert(values, to="cupy").dtype == np.dtype("f4")
    else:
        with pytest.raises(zc.ZeroCopyError):
            zc.convert(values, to="cupy")


# -- torch --------------------------------------------------------------------------------


class Streams:
    """A stand-in for ``torch.cuda`` with a current device and stream."""

    def __init__(self, handle: int = 0, device: int = 0):
        self.handle, self.index = handle, device

    def device(self, index):
        return nullcontext()

    def default_stream(self, index):
        return "default"

    def ExternalStream(self, handle, device):
        return handle

    def current_stream(self, index):
        return SimpleNamespace(cuda_stream=self.handle)

    def current_device(self):
        return self.index


class Tensor(SimpleNamespace):
    """The attributes of a CUDA tensor that the exporter reads."""

    def __init__(self, values, **attributes):
        import torch

        plain = torch.from_numpy(values)
        known = {"is_cuda": True, "requires_grad": False, "dtype": plain.dtype} | attributes
        super().__init__(plain=plain, streams=[], recorded=[], **known)

    @property
    def data(self):
        return self

    def is_neg(self):
        return self.plain.is_neg()

    is_conj = is_neg

    def dim(self):
        return self.plain.dim()

    def data_ptr(self):
        return self.plain.data_ptr() + getattr(self, "off", 0)

    def element_size(self):
        return self.plain.element_size()

    @property
    def shape(self):
        return self.plain.shape

    def stride(self):
        return self.plain.stride()

    def storage_offset(self):
        return self.plain.storage_offset()

    def numel(self):
        return self.plain.numel()

    def untyped_storage(self):
        return self.plain.untyped_storage()

    def get_device(self):
        return 0

    def __dlpack__(self, *, stream):
        self.streams.append(stream)
        return self.plain.__dlpack__()

    def record_stream(self, stream):
        self.recorded.append(stream)


def _exporter(cuda: Streams, unordered: list):
    torch = pytest.importorskip("torch")
    from zerocopy._frameworks.torch.exchange import cuda_exporter

    def to_capsule(tensor):
        unordered.append(tensor)
        return torch.utils.dlpack.to_dlpack(tensor.plain)

    names = SimpleNamespace(cuda=cuda, autograd=torch.autograd)
    return cuda_exporter(names, to_capsule, frozenset({torch.float32}))


@pytest.mark.parametrize(
    ("current", "stream", "is_unordered"), [(0, 1, True), (7, 7, True), (0, 7, False), (7, 1, False)]
)
def test_torch_exporter_orders_streams_that_differ(current: int, stream: int, is_unordered: bool) -> None:
    unordered: list = []
    tensor = Tensor(sample("f4"))
    index, export_capsule = _exporter(Streams(current), unordered)(tensor)
    export_capsule(stream)
    assert index == 0
    assert (bool(unordered), tensor.streams) == (is_unordered, [] if is_unordered else [stream])
    assert tensor.recorded == ([] if is_unordered else ["default" if stream == 1 else stream])


@pytest.mark.parametrize(
    "attributes",
    [{"is_cuda": False}, {"requires_grad": True}, {"off": 1}, {"dtype": "torch.bfloat16"}],
    ids=["host", "grad", "misaligned", "foreign"],
)
def test_torch_fast_path_refuses_special_tensors(attributes: dict) -> None:
    with pytest.raises(BufferError):
        _exporter(Streams(), [])(Tensor(sample("f4"), **attributes))


def test_torch_imports_on_its_current_stream_and_device() -> None:
    torch = pytest.importorskip("torch")
    from zerocopy._frameworks.torch import cuda_importer

    values, streams = sample("f4"), []

    def export_capsule(stream):
        streams.append(stream)
        return values.__dlpack__()

    for handle, stream in ((0, 1), (7, 7)):
        take = cuda_importer(SimpleNamespace(cuda=Streams(handle)), torch.utils.dlpack.from_dlpack)
        result = take((0, export_capsule))
        assert result.data_ptr() == values.ctypes.data
        assert streams.pop() == stream
    with pytest.raises(BufferError):
        cuda_importer(SimpleNamespace(cuda=Streams()), None)((1, export_capsule))
    assert not streams


def test_torch_without_cuda_has_no_cuda_form() -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this build has CUDA")
    framework = registry.by_name("torch")
    assert "cuda" not in framework.fast_importers()
    assert "cuda" not in framework.fast_exporters(torch.Tensor)


# -- streams that JAX does not accept --------------------------------------------------------


class JaxArray:
    """Records the arguments of JAX's exporter, which passes stream -1 to the driver and crashes."""

    def __init__(self, kind: int):
        self.kind, self.calls = kind, []

    def __dlpack__(self, *, stream=None, **options):
        assert stream != -1
        self.calls.append((stream, options))

    def __dlpack_device__(self):
        return self.kind, 0


@pytest.mark.parametrize(
    ("kind", "stream", "exported"), [(2, -1, 1), (2, 7, 7), (2, 1, 1), (10, -1, 0), (10, 9, 9), (3, -1, 1)]
)
def test_jax_exporter_never_gets_stream_minus_one(kind: int, stream: int, exported: int) -> None:
    pytest.importorskip("jax")
    from zerocopy._frameworks.jax.capsules import OnDevice

    x = JaxArray(kind)
    OnDevice(x).__dlpack__(stream=stream, max_version=(1, 0))
    assert x.calls == [(exported, {"max_version": (1, 0)})]
    assert OnDevice(x).__dlpack_device__() == (kind, 0)


@pytest.mark.parametrize("message", ["UNIMPLEMENTED: WaitUntilBufferReadyOnStream", "INTERNAL: failed"])
def test_jax_without_streams_waits_on_the_host(message: str) -> None:
    """XLA's TFRT client does not implement the order of streams."""
    pytest.importorskip("jax")
    from zerocopy._frameworks.jax.capsules import OnDevice

    class WithoutStreams(JaxArray):
        def __dlpack__(self, *, stream=None, **options):
            super().__dlpack__(stream=stream, **options)
            if stream is not None:
                raise RuntimeError(message)

    x = WithoutStreams(2)
    if message.startswith("INTERNAL"):
        with pytest.raises(RuntimeError, match="failed"):
            OnDevice(x).__dlpack__(stream=7)
    else:
        OnDevice(x).__dlpack__(stream=7)
        assert [stream for stream, _ in x.calls] == [7, None]


# -- managed memory -----------------------------------------------------------------------


class Managed(SpeaksDLPack):
    """Memory that CuPy declares as DLPack's managed device."""

    def __init__(self):
        super().__init__(sample("f4"), device=(13, 0))


def test_managed_memory_is_device_memory_for_jax() -> None:
    """JAX and torch have no managed device."""
    pytest.importorskip("jax")
    from zerocopy._frameworks.jax.capsules import as_cuda

    producer = as_cuda(Managed())
    assert producer.__dlpack_device__() == (2, 0)
    assert str(zc.view(producer).device) == "cuda:0"
    assert zc.view(producer).ptr == zc.view(SimpleCapsule(producer.__dlpack__(stream=1))).ptr


def test_capsules_of_other_devices_are_unchanged() -> None:
    for kind in (1, 2, 10):
        capsule = SpeaksDLPack(sample("f4"), device=(kind, 3)).__dlpack__()
        assert dlpack.read(dlpack.as_cuda(capsule)).device == Device(kind, 3)


# -- no fast path -------------------------------------------------------------------------


def test_producers_without_a_framework_have_no_fast_path(cupy) -> None:
    """Their type does not determine their protocol or device, so each object is described."""
    for bare in (SpeaksDLPack(sample("f4")), SpeaksCAI(data=(POINTER, False), shape=(3,))):
        zc.view(bare)
        assert routes.find_parts(bare, "cupy", {}) is None


def test_jax_host_arrays_have_no_cuda_form() -> None:
    jax = pytest.importorskip("jax")
    from zerocopy._frameworks.jax.capsules import on_device

    with pytest.raises(BufferError):
        on_device(jax.numpy.zeros(3))
