"""The fast way of memory on CUDA devices, without one: what it passes on, and what it leaves alone.

CuPy's stand-in is in host memory; torch's importer and exporter run with stand-ins for its streams.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.cuda_producers import POINTER, SpeaksCAI, SpeaksDLPack
from helpers.cuda_stubs import forget, install

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import routes
from zerocopy._engine.planner import Call, make_plan
from zerocopy.device import Device
from zerocopy.dtype import by_name, to_numpy
from zerocopy.framework import Framework, Source
from zerocopy.protocols import dlpack


@pytest.fixture
def machine(monkeypatch):
    yield install(monkeypatch)
    forget()


@pytest.fixture
def cupy(machine):
    import cupy

    return cupy


def on_gpu(values: np.ndarray) -> object:
    return zc.convert(values, to="cupy")


def export(x: object) -> tuple:
    return registry.by_name("cupy").fast_exporters(type(x))["cuda"](x)


# -- CuPy hands out -----------------------------------------------------------------------


def test_cupy_is_asked_with_the_stream_of_who_takes(machine) -> None:
    x = on_gpu(sample("f4"))
    machine.log.clear()
    index, ask = export(x)
    assert (index, machine.log) == (0, [])
    view = zc.view(SimpleCapsule(ask(9)))
    assert machine.log == [("export", 9)]
    assert (view.ptr, view.shape, view.dtype.name) == (x.data.ptr, x.shape, "float32")


class SimpleCapsule:
    """A producer of one capsule."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **options):
        return self._capsule

    def __dlpack_device__(self):
        return 2, 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_cupy_leaves_foreign_types_to_the_careful_way(cupy, dtype: str) -> None:
    """CuPy's exporter knows no float8 and its importer dies of it: they are retyped there."""
    x = on_gpu(sample(to_numpy(by_name(dtype)), (4, 6)))
    with pytest.raises(BufferError):
        export(x)


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x[:, ::2],
        lambda x: x[::-1],
        lambda x: x[:1, :1][::-1, ::-1],  # one element, and what steps back is never walked
        lambda x: x.T,
    ],
)
def test_cupy_leaves_layouts_to_the_careful_way(cupy, cut) -> None:
    with pytest.raises(BufferError):
        export(cut(on_gpu(sample("f4", (4, 6)))))


def test_cupy_leaves_misaligned_memory_to_the_careful_way(cupy) -> None:
    octets = on_gpu(np.zeros(41, "u1"))
    with pytest.raises(BufferError):
        export(octets[1:].view("f4"))


def test_cupy_leaves_other_devices_to_the_careful_way(machine) -> None:
    x = zc.convert(sample("f4"), to="cupy", device="cuda:1")
    with pytest.raises(BufferError):
        export(x)
    with machine.on(1):
        assert export(x)[0] == 1


def test_subclasses_of_cupys_arrays_have_no_fast_way(cupy) -> None:
    class Units(cupy.ndarray):
        pass

    assert registry.by_name("cupy").fast_exporters(Units) == {}


# -- CuPy takes ---------------------------------------------------------------------------


class Lent:
    """An array of a framework that only has the fast form, and of which all is known."""

    def __init__(self, values: np.ndarray, index: int = 0):
        self.producer, self.index = SpeaksDLPack(values), index


Lent.__module__ = "lends_cuda"


class LendsCuda(Framework):
    name = "lends_cuda"

    def installed(self):
        return True

    def owns(self, cls):
        return cls is Lent

    def source(self, obj):
        view = zc.view(obj.producer)
        return Source("lends_cuda.Lent", view, view.numpy, "dlpack", producer=obj.producer)

    def fast_exporters(self, cls):
        def on_device(obj):
            return obj.index, lambda stream: obj.producer.__dlpack__(stream=stream)

        return {"cuda": on_device}


@pytest.fixture
def lends():
    zc.register(LendsCuda())
    yield
    registry._known.pop("lends_cuda")
    registry._by_root.pop("lends_cuda")
    forget()


def test_cupy_takes_on_its_current_stream(machine, lends, cupy) -> None:
    x = Lent(sample("f4"))
    planned = make_plan(Call(x, "cupy", {})).run()
    zc.convert(x, to="cupy")
    route = routes.TABLE["cupy"][Lent]
    for on, asked in ((cupy.cuda.Stream.null, 1), (cupy.cuda.Stream(5), 5), (cupy.cuda.Stream.ptds, 2)):
        with on:
            result = route(x)
        assert x.producer.streams[-1] == asked
        assert (result.data.ptr, result.shape, result.strides, result.dtype) == (
            planned.data.ptr,
            planned.shape,
            planned.strides,
            planned.dtype,
        )


def test_cupy_takes_on_its_current_device_alone(machine, lends) -> None:
    zc.convert(Lent(sample("f4")), to="cupy")
    with pytest.raises(BufferError):
        routes.TABLE["cupy"][Lent](Lent(sample("f4"), index=1))


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "f2", "f4", "f8", "c16", "q", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("layout", ["C", "F", "strided", "reversed", "0-d", "empty", "read-only"])
def test_host_arrays_are_transferred_as_carefully(machine, dtype: str, layout: str) -> None:
    wanted = to_numpy(by_name(dtype)) if len(dtype) > 3 else np.dtype(dtype)
    values = {
        "C": lambda x: x,
        "F": lambda x: np.array(x, order="F"),
        "strided": lambda x: x[::2, ::3],
        "reversed": lambda x: x[::-1],
        "0-d": lambda x: x[:1, :1].reshape(()),
        "empty": lambda x: x[:0],
        "read-only": lambda x: x,
    }[layout](sample(wanted, (4, 6)))
    values.flags.writeable = layout != "read-only"
    planned = make_plan(Call(values, "cupy", {})).run()
    for _ in range(2):  # the second time by the table
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
def test_host_arrays_that_need_care_go_the_careful_way(cupy, values: np.ndarray) -> None:
    zc.convert(np.zeros(3), to="cupy")
    with pytest.raises(BufferError):
        routes.TABLE["cupy"][np.ndarray](values)
    if values.dtype.kind == "f":
        assert zc.convert(values, to="cupy").dtype == np.dtype("f4")
    else:
        with pytest.raises(zc.ZeroCopyError):
            zc.convert(values, to="cupy")


# -- torch --------------------------------------------------------------------------------


class Streams:
    """In the place of ``torch.cuda``: its current device and stream."""

    def __init__(self, handle: int = 0, device: int = 0):
        self.handle, self.device = handle, device

    def current_stream(self, index):
        return SimpleNamespace(cuda_stream=self.handle)

    def current_device(self):
        return self.device


class Tensor(SimpleNamespace):
    """What the exporter asks of a tensor on a device."""

    def __init__(self, values, **more):
        import torch

        plain = torch.from_numpy(values)
        said = {"is_cuda": True, "requires_grad": False, "dtype": plain.dtype} | more
        super().__init__(plain=plain, streams=[], **said)

    def is_neg(self):
        return self.plain.is_neg()

    is_conj = is_neg

    def dim(self):
        return self.plain.dim()

    def data_ptr(self):
        return self.plain.data_ptr() + getattr(self, "off", 0)

    def element_size(self):
        return self.plain.element_size()

    def get_device(self):
        return 0

    def __dlpack__(self, *, stream):
        self.streams.append(stream)
        return self.plain.__dlpack__()


def _exporter(cuda: Streams, bare: list):
    torch = pytest.importorskip("torch")
    from zerocopy._frameworks.torch.device_fast_path import cuda_exporter

    def to_capsule(tensor):
        bare.append(tensor)
        return torch.utils.dlpack.to_dlpack(tensor.plain)

    return cuda_exporter(SimpleNamespace(cuda=cuda), to_capsule, frozenset({torch.float32}))


@pytest.mark.parametrize(
    ("own", "stream", "is_bare"), [(0, 1, True), (7, 7, True), (0, 7, False), (7, 1, False)]
)
def test_torch_orders_by_its_own_exporter_where_streams_differ(own: int, stream: int, is_bare: bool) -> None:
    bare: list = []
    tensor = Tensor(sample("f4"))
    index, ask = _exporter(Streams(own), bare)(tensor)
    ask(stream)
    assert index == 0
    assert (bool(bare), tensor.streams) == (is_bare, [] if is_bare else [stream])


@pytest.mark.parametrize(
    "more",
    [{"is_cuda": False}, {"requires_grad": True}, {"off": 1}, {"dtype": "torch.bfloat16"}],
    ids=["host", "grad", "misaligned", "foreign"],
)
def test_torch_leaves_to_the_careful_way(more: dict) -> None:
    with pytest.raises(BufferError):
        _exporter(Streams(), [])(Tensor(sample("f4"), **more))


def test_torch_takes_on_its_current_stream_and_device() -> None:
    torch = pytest.importorskip("torch")
    from zerocopy._frameworks.torch.device_fast_path import cuda_importer

    values, asked = sample("f4"), []

    def ask(stream):
        asked.append(stream)
        return values.__dlpack__()

    for handle, stream in ((0, 1), (7, 7)):
        take = cuda_importer(SimpleNamespace(cuda=Streams(handle)), torch.utils.dlpack.from_dlpack)
        result = take((0, ask))
        assert result.data_ptr() == values.ctypes.data
        assert asked.pop() == stream
    with pytest.raises(BufferError):
        cuda_importer(SimpleNamespace(cuda=Streams()), None)((1, ask))
    assert not asked


def test_builds_without_cuda_offer_no_form_for_it() -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this build has CUDA")
    framework = registry.by_name("torch")
    assert "cuda" not in framework.fast_importers()
    assert "cuda" not in framework.fast_exporters(torch.Tensor)


# -- who is asked with which stream -------------------------------------------------------


class JaxArray:
    """What JAX's exporter is asked: it gives -1 to the driver, and the process is gone."""

    def __init__(self, kind: int):
        self.kind, self.asked = kind, []

    def __dlpack__(self, *, stream=None, **options):
        assert stream != -1
        self.asked.append((stream, options))

    def __dlpack_device__(self):
        return self.kind, 0


@pytest.mark.parametrize(
    ("kind", "given", "asked"), [(2, -1, 1), (2, 7, 7), (2, 1, 1), (10, -1, 0), (10, 9, 9), (3, -1, 1)]
)
def test_jax_is_never_asked_with_minus_one(kind: int, given: int, asked: int) -> None:
    pytest.importorskip("jax")
    from zerocopy._frameworks.jax.capsules import OnDevice

    x = JaxArray(kind)
    OnDevice(x).__dlpack__(stream=given, max_version=(1, 0))
    assert x.asked == [(asked, {"max_version": (1, 0)})]
    assert OnDevice(x).__dlpack_device__() == (kind, 0)


# -- managed memory -----------------------------------------------------------------------


class Managed(SpeaksDLPack):
    """CuPy says "managed" of such memory, as DLPack has it."""

    def __init__(self):
        super().__init__(sample("f4"), device=(13, 0))


def test_jax_is_given_managed_memory_as_its_devices() -> None:
    """JAX and torch know no such device."""
    pytest.importorskip("jax")
    from zerocopy._frameworks.jax.capsules import AsCuda

    producer = AsCuda(Managed())
    assert producer.__dlpack_device__() == (2, 0)
    assert str(zc.view(producer).device) == "cuda:0"
    assert zc.view(producer).ptr == zc.view(SimpleCapsule(producer.__dlpack__(stream=1))).ptr


def test_a_capsule_of_a_device_is_left_as_it_is() -> None:
    for kind in (1, 2, 10):
        capsule = SpeaksDLPack(sample("f4"), device=(kind, 3)).__dlpack__()
        assert dlpack.read(dlpack.as_cuda(capsule)).device == Device(kind, 3)


# -- what has no fast way -----------------------------------------------------------------


def test_bare_producers_have_none(cupy) -> None:
    """They are known by protocol alone: each is read anew."""
    for bare in (SpeaksDLPack(sample("f4")), SpeaksCAI(data=(POINTER, False), shape=(3,))):
        zc.view(bare)
        assert routes.compose(bare, "cupy") is None


# -- running out of memory ----------------------------------------------------------------


@pytest.mark.parametrize(("lazy", "to"), [(False, "torch"), (True, "torch"), (True, "numpy"), (True, "jax")])
def test_torchs_own_error_for_memory_is_pythons(lazy: bool, to: str) -> None:
    """Whether the copy runs out of memory or, of lazy bits, what is made on the way to it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip(to)
    huge = torch.ones(1, dtype=torch.complex64).expand(1 << 50)
    huge = huge.conj() if lazy else huge
    assert zc.explain(huge, to=to, copy=True).possible
    with pytest.raises(
        MemoryError,
        match=rf"convert\(torch.Tensor.*, to='{to}', copy=True\): torch could not allocate memory",
    ):
        zc.convert(huge, to=to, copy=True)


def test_an_error_while_an_object_is_described_is_in_the_one_vocabulary(monkeypatch) -> None:
    torch = pytest.importorskip("torch")
    framework = type(registry.by_name("torch"))
    for error, kind in ((RuntimeError("DefaultCPUAllocator: no"), MemoryError), (OSError("no"), TypeError)):

        def source(self, obj, error=error):
            raise error

        monkeypatch.setattr(framework, "source", source)
        with pytest.raises(kind) as caught:
            zc.convert(torch.zeros(3), to="numpy", copy=True)
        assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [MemoryError("no room"), RuntimeError("DefaultCPUAllocator: no room")])
def test_what_has_no_room_to_be_composed_loses_no_result(monkeypatch, error: Exception) -> None:
    """A device may have no room for what a framework makes once: the array is there."""
    pytest.importorskip("torch")

    def fast_exporters(self, cls):
        raise error

    monkeypatch.setattr(type(registry.by_name("numpy")), "fast_exporters", fast_exporters)
    routes.TABLE.clear()
    x = sample("f4")
    for _ in range(2):
        assert zc.shares_memory(x, zc.convert(x, to="torch"))
    assert np.ndarray not in routes.TABLE.get("torch", {})


def test_a_fast_way_that_cannot_be_composed_is_told(monkeypatch) -> None:
    """A mistake in a framework's file is in the one vocabulary too (P9)."""
    pytest.importorskip("torch")

    def fast_exporters(self, cls):
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(type(registry.by_name("numpy")), "fast_exporters", fast_exporters)
    routes.TABLE.clear()
    with pytest.raises(zc.UnsupportedConversionError, match="raised ZeroDivisionError") as caught:
        zc.convert(sample("f4"), to="torch")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_which_errors_say_that_memory_ran_out() -> None:
    torch = pytest.importorskip("torch")
    framework = registry.by_name("torch")
    assert framework.is_out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory"))
    assert not framework.is_out_of_memory(RuntimeError("CUDA error: an illegal memory access"))
    pytest.importorskip("jax")
    framework = registry.by_name("jax")
    assert framework.is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 4 bytes."))
    assert not framework.is_out_of_memory(RuntimeError("INTERNAL: RESOURCE"))
    assert not registry.by_name("numba").is_out_of_memory(OSError(2, "no such file"))


def test_jax_offers_no_host_memory_as_a_devices() -> None:
    jax = pytest.importorskip("jax")
    from zerocopy._frameworks.jax.capsules import on_device

    with pytest.raises(BufferError):
        on_device(jax.numpy.zeros(3))
