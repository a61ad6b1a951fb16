"""CUDA memory without a GPU: who is asked for what, on which stream, and what is refused.

The producers here say that their memory is on a device. It is NumPy's, and nothing
reads through their pointers: tests/gpu does that, on a GPU.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import types
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from conftest import sample

import zerocopy as zc
from zerocopy import registry
from zerocopy._frameworks.cupy import CuPy
from zerocopy._frameworks.numba import Numba
from zerocopy._view import describe
from zerocopy.device import CPU, CUDA, CUDA_MANAGED, HOST, Device, parse_stream
from zerocopy.dtype import ALL, SUBBYTE_NAMES, by_name, to_numpy
from zerocopy.framework import Framework, Source
from zerocopy.protocols import cuda_array_interface, cuda_driver, dlpack
from zerocopy.strided import StridedView

NO_DRIVER = cuda_driver.missing() is not None
POINTER = 0x7F00_0000_0000


# -- producers ----------------------------------------------------------------


def capsule_on(array, device=(CUDA, 0), dtype=None, versioned=True):
    """Return NumPy's capsule of host memory, saying that it is on a device."""
    try:
        capsule = array.__dlpack__(max_version=(1, 0)) if versioned else array.__dlpack__()
    except TypeError:  # NumPy before 2.1 has legacy capsules only
        capsule = array.__dlpack__()
    if dtype is not None and not dtype.in_numpy:
        dlpack.retype(capsule, dtype)
    tensor, _ = dlpack._tensor(capsule)
    tensor.device_type, tensor.device_id = device
    return capsule


class SpeaksDLPack:
    """Has the two dunders, and remembers how it was asked."""

    def __init__(self, array, device=(CUDA, 0), dtype=None, versioned=True, says=None):
        self.array, self.device_, self.dtype_, self.versioned = array, device, dtype, versioned
        self.says = says or device
        self.streams: list[int | None] = []

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        return capsule_on(self.array, self.device_, self.dtype_, self.versioned and max_version is not None)

    def __dlpack_device__(self):
        return self.says


class OldDLPack(SpeaksDLPack):
    """From before DLPack 1.0: it knows no ``max_version``."""

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return capsule_on(self.array, self.device_, self.dtype_, versioned=False)


class SpeaksCAI:
    """Has the CUDA Array Interface and nothing else."""

    def __init__(self, array=None, **entries):
        self.array = array
        self.entries = {
            "shape": () if array is None else array.shape,
            "typestr": "<f4" if array is None else array.dtype.str,
            "data": (POINTER if array is None else array.ctypes.data, False),
            "strides": None if array is None or array.flags.c_contiguous else array.strides,
            "version": 3,
            "stream": None,
        } | entries

    @property
    def __cuda_array_interface__(self):
        return dict(self.entries)


# -- a framework that lives on fake GPUs --------------------------------------


class FakeArray:
    """What the fake framework's arrays are: a description, and who keeps the memory."""

    def __init__(self, view, keeps=None):
        self.view, self.keeps = view, keeps


FakeArray.__module__ = "fakegpu"


class FakeGPU(Framework):
    """Two devices, a current stream of 7, no negative strides; it writes down what it is asked."""

    name = "fakegpu"
    roots = ("fakegpu",)
    device_kinds = ("cuda",)
    moves = True
    lends_dlpack = True

    def __init__(self):
        self.log: list[tuple] = []

    def module(self):
        return types.ModuleType("fakegpu")

    def installed(self):
        return True

    def owns(self, cls):
        return issubclass(cls, FakeArray)

    def source(self, obj):
        def to_host(stream):
            self.log.append(("to_host", stream))
            return np.arange(obj.view.size, dtype=obj.view.dtype.storage).reshape(obj.view.shape)

        def contiguous():
            self.log.append(("contiguous", str(obj.view.device)))
            return self._fresh(obj.view, obj.view.device)

        def no_host():
            raise AssertionError("device memory was asked for as host memory")

        return Source(
            "fakegpu.Array",
            obj.view,
            no_host,
            "dlpack",
            to_host=to_host,
            producer=obj,
            contiguous=contiguous,
        )

    def _fresh(self, view, device):
        array = np.empty(view.shape, view.dtype.storage)
        return FakeArray(
            StridedView(array.ctypes.data, array.shape, array.strides, view.dtype, device, False, array),
            array,
        )

    def reasons(self, view):
        return [zc.Reason("no negative strides here", "flip it")] if view.has_negative_strides else []

    def carries(self, view):
        return True

    def from_host(self, array, dtype, device, stream):
        self.log.append(("from_host", str(device), stream, array.flags.c_contiguous))
        view = StridedView(0, array.shape, array.strides, dtype, device, False, array)
        return self._fresh(view, device)

    def from_device(self, source, stream):
        consumer = 7 if stream is None else stream
        producer = source.producer
        if hasattr(type(producer), "__dlpack__"):
            keeps = dlpack.request(producer, stream=consumer)
            ready = "ordered by the producer"
        else:
            _, ready = cuda_array_interface.read(producer)
            keeps = producer
        self.log.append(("from_device", consumer, ready))
        return FakeArray(source.view, keeps)

    def move(self, obj, device, stream):
        self.log.append(("move", str(obj.view.device), str(device), stream))
        return self._fresh(obj.view, device)

    def check_device(self, device):
        super().check_device(device)
        if device.id > 1:
            raise zc.DeviceError("", "there are 2 devices", "name one of them")


@pytest.fixture
def fake():
    """The fake framework, registered for one test, and alone on its devices."""
    registry.frameworks()
    known, roots = dict(registry._known), {k: list(v) for k, v in registry._by_root.items()}
    for framework in list(registry._known.values()):
        if framework.moves:
            registry._known.pop(framework.name)  # no other carrier
    framework = FakeGPU()
    zc.register(framework)
    yield framework
    with registry._lock:
        for now, before in ((registry._known, known), (registry._by_root, roots)):
            now.clear()
            now.update(before)
        registry._by_type.clear()
    for forget in registry._listeners:
        forget()


# -- describing ---------------------------------------------------------------


@pytest.mark.parametrize("producer", [SpeaksDLPack, OldDLPack])
@pytest.mark.parametrize("make", [lambda a: a, lambda a: a.T, lambda a: a[::2], lambda a: a[:, ::-1]])
def test_view_of_a_dlpack_producer(producer, make) -> None:
    array = make(sample("f4", (4, 6)))
    obj = producer(array, (CUDA, 1))
    view = zc.view(obj)
    assert (view.ptr, view.shape, view.strides) == (array.ctypes.data, array.shape, array.strides)
    assert str(view.device) == "cuda:1"
    assert view.dtype.name == "float32"
    assert obj.streams == [-1], "describing needs no synchronisation"


def test_view_of_managed_memory() -> None:
    view = zc.view(SpeaksDLPack(sample("f4"), (CUDA_MANAGED, 0)))
    assert view.device.kind == "cuda"
    assert not view.device.is_host


@pytest.mark.parametrize("version", [2, 3])
def test_view_of_the_cuda_array_interface(version: int) -> None:
    array = sample("c8", (3, 4))
    view = zc.view(SpeaksCAI(array, version=version, data=(array.ctypes.data, True)))
    assert (view.ptr, view.shape, view.strides) == (array.ctypes.data, (3, 4), (32, 8))
    assert view.dtype.name == "complex64"
    assert view.readonly
    assert zc.view(SpeaksCAI(array.T, version=version)).strides == (8, 32)
    with pytest.raises(AttributeError):
        view.__array_interface__  # noqa: B018 - NumPy must not see device memory


def test_zero_size_has_the_pointer_0() -> None:
    view = zc.view(SpeaksCAI(shape=(0, 3), data=(0, False)))
    assert (view.size, view.ptr, view.bounds) == (0, 0, (0, 0))
    assert not zc.shares_memory(view, view)


@pytest.mark.parametrize(
    ("entries", "error", "says"),
    [
        ({"version": 1}, zc.UnsupportedConversionError, "version 1"),
        ({"mask": object()}, zc.LossyConversionError, "mask"),
        ({"stream": 0}, zc.UnsupportedConversionError, "stream is 0"),
        ({"typestr": "<V2"}, zc.UnsupportedConversionError, "<V2"),
        ({"typestr": ">f4"}, zc.UnsupportedConversionError, ">f4"),
        ({"data": (0, False), "shape": (3,)}, zc.UnsupportedConversionError, "pointer is 0"),
        ({"data": None}, zc.UnsupportedConversionError, "could not be read"),
        ({"shape": ("a",)}, zc.UnsupportedConversionError, "could not be read"),
    ],
)
def test_a_malformed_interface_is_refused(entries, error, says: str) -> None:
    obj = SpeaksCAI(sample("f4"), **entries)
    with pytest.raises(error, match=says):
        zc.view(obj)
    assert not zc.explain(obj, "numpy").possible


def test_stream_0_of_version_2_is_nothing_said() -> None:
    """Version 2 has no stream: its consumers wait for the legacy default one."""
    _, ready = cuda_array_interface.read(SpeaksCAI(sample("f4"), version=2, stream=0))
    assert ready == 1


def test_the_driver_says_whose_the_pointer_is(monkeypatch) -> None:
    monkeypatch.setattr(cuda_driver, "ordinal", lambda ptr: 3)
    assert str(zc.view(SpeaksCAI(sample("f4"))).device) == "cuda:3"
    monkeypatch.setattr(cuda_driver, "ordinal", lambda ptr: None)
    obj = SpeaksCAI(sample("f4"))
    obj.device = "cuda:1"
    assert str(zc.view(obj).device) == "cuda:1"


# -- shares_memory ------------------------------------------------------------


def test_shares_memory_on_devices() -> None:
    array = sample("f4", (8, 8))
    whole = SpeaksDLPack(array)
    assert zc.shares_memory(whole, SpeaksCAI(array))
    assert zc.shares_memory(whole, SpeaksDLPack(array[2:4]))
    assert not zc.shares_memory(SpeaksDLPack(array[:4]), SpeaksCAI(array[4:]))
    assert not zc.shares_memory(SpeaksDLPack(array[:, ::2]), SpeaksDLPack(array[:, 1::2]))
    assert not zc.shares_memory(whole, SpeaksDLPack(array, (CUDA, 1))), "another device's address space"
    assert not zc.shares_memory(whole, array), "the host's"


# -- errors of exporters ------------------------------------------------------


def test_a_lying_device() -> None:
    with pytest.raises(zc.DeviceError, match=r"cuda:0.*cuda:1"):
        zc.view(SpeaksDLPack(sample("f4"), (CUDA, 1), says=(CUDA, 0)))


def test_a_host_capsule_of_a_device_producer() -> None:
    with pytest.raises(zc.DeviceError, match=r"cuda:0.*cpu"):
        zc.view(SpeaksDLPack(sample("f4"), (CPU, 0), says=(CUDA, 0)))


@pytest.mark.parametrize("where", ["__dlpack__", "__dlpack_device__"])
def test_an_exporter_that_raises(where: str) -> None:
    def refuse(self, **options):
        raise RuntimeError("no export today")

    cls = type("Raises", (SpeaksDLPack,), {where: refuse})
    obj = cls(sample("f4"))
    with pytest.raises(zc.UnsupportedConversionError, match="no export today") as caught:
        zc.convert(obj, to="numpy")
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert not zc.explain(obj, "numpy").possible


@pytest.mark.parametrize("name", ["__cuda_array_interface__", "__array_interface__"])
def test_an_interface_that_raises(name: str) -> None:
    """hasattr() lets everything but AttributeError through."""

    def refuse(self):
        raise RuntimeError("it requires grad")

    obj = type("Raises", (), {name: property(refuse)})()
    with pytest.raises(zc.UnsupportedConversionError, match="it requires grad"):
        zc.convert(obj, to="numpy")
    assert not zc.explain(obj, "numpy").possible


def test_an_exporter_that_raises_when_it_is_asked_with_a_stream(fake) -> None:
    class Raises(SpeaksDLPack):
        def __dlpack__(self, *, stream=None, max_version=None):
            if stream != -1:
                raise BufferError(f"no stream {stream}")
            return super().__dlpack__(stream=stream, max_version=max_version)

    with pytest.raises(zc.UnsupportedConversionError, match="no stream 7"):
        zc.convert(Raises(sample("f4")), to="fakegpu")


# -- routing ------------------------------------------------------------------


@pytest.mark.parametrize("producer", [SpeaksDLPack, OldDLPack, SpeaksCAI])
def test_the_same_device_aliases(fake, producer) -> None:
    array = sample("f4", (4, 6))
    obj = producer(array)
    plan = zc.explain(obj, "fakegpu")
    assert plan.zero_copy
    assert plan.copied_bytes == 0
    assert plan.protocol == ("cuda-array-interface" if producer is SpeaksCAI else "dlpack")
    assert "fakegpu on cuda:0: zero-copy" in str(plan)
    result = zc.convert(obj, to="fakegpu")
    assert zc.view(result).ptr == array.ctypes.data
    assert zc.shares_memory(obj, result)
    assert zc.shares_memory(obj, zc.convert(obj, to="fakegpu", copy=False))


def test_the_device_is_kept(fake) -> None:
    result = zc.convert(SpeaksDLPack(sample("f4"), (CUDA, 1)), to="fakegpu")
    assert str(zc.view(result).device) == "cuda:1"


@pytest.mark.parametrize(("given", "asked"), [(None, 7), (1, 1), (2, 2), (5, 5), (-1, -1)])
def test_the_producer_is_asked_with_the_consumers_stream(fake, given, asked: int) -> None:
    obj = SpeaksDLPack(sample("f4"))
    zc.convert(obj, to="fakegpu", stream=given)
    assert obj.streams[-1] == asked
    assert all(s == -1 for s in obj.streams[:-1])
    zc.convert(SpeaksCAI(sample("f4"), stream=9), to="fakegpu", stream=given)
    assert fake.log[-1] == ("from_device", asked, 9)


@pytest.mark.parametrize("stream", [0, -2, True, "1", object(), 1.5, SimpleNamespace(ptr=None)])
def test_what_is_no_stream_is_refused(fake, stream) -> None:
    obj = SpeaksDLPack(sample("f4"))
    with pytest.raises(zc.DeviceError, match="stream"):
        zc.convert(obj, to="fakegpu", stream=stream)
    assert set(obj.streams) <= {-1}, "no more was asked than what the message tells of the producer"


class _CUstream:
    """CUDA Python's handle: no ``value``, and ``int()`` takes it."""

    def __init__(self, handle):
        self.handle = handle

    def __int__(self):
        return self.handle


class _Protocol:
    def __init__(self, version, handle):
        self.pair = version, handle

    def __cuda_stream__(self):
        return self.pair


class _EarlyProtocol(_Protocol):
    @property
    def __cuda_stream__(self):
        return self.pair


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (SimpleNamespace(cuda_stream=0), 1),  # torch's default stream
        (SimpleNamespace(cuda_stream=7), 7),
        (SimpleNamespace(ptr=0), 1),  # CuPy's
        (SimpleNamespace(ptr=2), 2),
        (SimpleNamespace(handle=ctypes.c_void_p(0)), 1),  # Numba's: the value is None
        (SimpleNamespace(handle=ctypes.c_void_p(2)), 2),
        (SimpleNamespace(handle=ctypes.c_void_p(9)), 9),
        (SimpleNamespace(handle=_CUstream(0)), 1),  # Numba's with CUDA Python
        (SimpleNamespace(handle=_CUstream(9)), 9),
        (_Protocol(0, 0), 1),
        (_Protocol(0, 9), 9),
        (_EarlyProtocol(0, 9), 9),
        (np.int64(5), 5),
    ],
)
def test_streams_of_frameworks(stream, handle: int) -> None:
    found = parse_stream(stream)
    assert found == handle
    assert type(found) is int


def test_a_later_stream_protocol_is_refused() -> None:
    with pytest.raises(zc.DeviceError, match="version 1"):
        parse_stream(_Protocol(1, 9))


def test_copy_true_on_a_device(fake) -> None:
    """A producer that can only be aliased is copied by a framework that is lent to it."""
    obj = SpeaksDLPack(sample("f4"))
    plan = zc.explain(obj, "fakegpu", copy=True)
    assert not plan.zero_copy
    assert plan.copied_bytes == 48
    assert "copy on cuda:0" in str(plan)
    result = zc.convert(obj, to="fakegpu", copy=True)
    assert not zc.shares_memory(obj, result)
    assert ("contiguous", "cuda:0") in fake.log


def test_a_layout_that_the_target_lacks_is_copied_on_the_device(fake) -> None:
    obj = SpeaksDLPack(sample("f4")[::-1])
    plan = zc.explain(obj, "fakegpu")
    assert not plan.zero_copy
    assert "no negative strides here" in str(plan)
    assert not zc.shares_memory(obj, zc.convert(obj, to="fakegpu"))
    with pytest.raises(zc.CopyRequiredError, match="no negative strides here"):
        zc.convert(obj, to="fakegpu", copy=False)


def test_to_the_host_is_a_copy_on_the_stream(fake) -> None:
    x = zc.convert(SpeaksDLPack(sample("f4", (2, 3))), to="fakegpu")
    plan = zc.explain(x, "numpy")
    assert not plan.zero_copy
    assert plan.copied_bytes == 24
    assert "from cuda:0 to the host" in str(plan)
    back = zc.convert(x, to="numpy", stream=5)
    assert fake.log[-1] == ("to_host", 5)
    assert back.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(zc.CopyRequiredError, match="cuda:0"):
        zc.convert(x, to="numpy", copy=False)


def test_a_bare_producer_is_fetched_by_a_framework_that_is_lent(fake) -> None:
    for obj in (SpeaksDLPack(sample("f4", (2, 3))), SpeaksCAI(sample("f4", (2, 3)))):
        fake.log.clear()
        back = zc.convert(obj, to="numpy")
        assert [entry[0] for entry in fake.log] == ["from_device", "to_host"]
        assert back.shape == (2, 3)


@pytest.mark.parametrize("device", [None, "cuda", "cuda:1", (2, 1), Device(CUDA, 1)])
def test_from_the_host_is_a_transfer(fake, device) -> None:
    x = sample("f4", (4, 6)).T
    plan = zc.explain(x, "fakegpu", device=device)
    where = "cuda:0" if device in (None, "cuda") else "cuda:1"
    assert not plan.zero_copy
    assert plan.copied_bytes == x.nbytes
    assert f"from the host to {where}" in str(plan)
    zc.convert(x, to="fakegpu", device=device, stream=5)
    assert fake.log[-1] == ("from_host", where, 5, True)


def test_from_one_device_to_another(fake) -> None:
    obj = SpeaksDLPack(sample("f4"))
    plan = zc.explain(obj, "fakegpu", device="cuda:1")
    assert "from cuda:0 to cuda:1" in str(plan)
    result = zc.convert(obj, to="fakegpu", device="cuda:1", stream=5)
    assert str(zc.view(result).device) == "cuda:1"
    assert obj.streams[-1] == 7, "the stream is one of cuda:1; on cuda:0 it is the current one"
    assert fake.log[-1] == ("move", "cuda:0", "cuda:1", 5)


def test_from_one_device_to_another_what_the_target_cannot_alias(fake) -> None:
    """Before it is moved the memory is aliased: so a layout that the target lacks is copied first."""
    obj = SpeaksDLPack(sample("f4")[::-1])
    result = zc.convert(obj, to="fakegpu", device="cuda:1")
    assert [entry[0] for entry in fake.log] == ["from_device", "contiguous", "move"]
    assert not zc.view(result).has_negative_strides


def test_an_own_array(fake) -> None:
    x = zc.convert(SpeaksDLPack(sample("f4")), to="fakegpu")
    assert zc.convert(x, to="fakegpu") is x
    assert zc.convert(x, to="fakegpu", device="cuda:0") is x
    assert zc.convert(x, to="fakegpu", writable=True) is x
    fake.log.clear()
    copied = zc.convert(x, to="fakegpu", copy=True, stream=5)
    assert not zc.shares_memory(x, copied)
    moved = zc.convert(x, to="fakegpu", device="cuda:1")
    assert str(zc.view(moved).device) == "cuda:1"
    assert fake.log == [("move", "cuda:0", "cuda:0", 5), ("move", "cuda:0", "cuda:1", None)]


def test_zero_size_copies_nothing(fake) -> None:
    obj = SpeaksCAI(shape=(0, 3), data=(0, False))
    plan = zc.explain(obj, "fakegpu")
    assert (plan.zero_copy, plan.copied_bytes) == (False, 0)
    assert zc.view(zc.convert(obj, to="fakegpu", copy=False)).shape == (0, 3)


def test_a_device_that_is_not_there(fake) -> None:
    for device in ("cuda:2", "cpu", "rocm"):
        plan = zc.explain(SpeaksDLPack(sample("f4")), "fakegpu", device=device)
        assert isinstance(plan.error, zc.DeviceError), device


def test_immutable_device_memory(fake) -> None:
    array = sample("f4")
    obj = SpeaksCAI(array, data=(array.ctypes.data, True))
    plan = zc.explain(obj, "fakegpu")
    assert plan.zero_copy
    assert "cannot mark its alias read-only" in plan.warnings[0]
    assert not zc.explain(obj, "fakegpu", writable=True).zero_copy


# -- who is lent --------------------------------------------------------------


def test_the_carrier_takes_the_layout(fake) -> None:
    """torch aborts the process over negative strides, so it is not lent to memory that has them."""
    backwards = zc.view(SpeaksDLPack(sample("f4")[::-1]))
    fake.carries = lambda view: not fake.device_reasons(view)
    assert registry.carrier(zc.view(SpeaksDLPack(sample("f4")))) is fake
    with pytest.raises(zc.DeviceError, match="does not take its layout"):
        registry.carrier(backwards)


def test_a_carrier_without_its_device_is_passed_over(fake) -> None:
    class Broken(FakeGPU):
        name = "abroken"

        def check_device(self, device):
            raise zc.DeviceError("", "no device answers", "")

    zc.register(Broken())
    assert registry.carrier(zc.view(SpeaksDLPack(sample("f4")))) is fake


def test_the_lender_of_an_exporter(fake) -> None:
    """JAX imports DLPack alone: memory with the CUDA Array Interface alone needs an exporter lent."""

    class NoExporter(FakeGPU):
        name = "aaa"
        lends_dlpack = False

    zc.register(NoExporter())
    view = zc.view(SpeaksCAI(sample("f4")))
    assert registry.carrier(view, dlpack=True) is fake
    fake.lends_dlpack = False
    with pytest.raises(zc.DeviceError, match="can export this memory"):
        registry.carrier(view, dlpack=True)


# -- the driver ---------------------------------------------------------------


class FakeDriver:
    """As much of libcuda as is asked."""

    def __init__(self, init=0, devices=2, owner=1):
        self.init, self.devices, self.owner = init, devices, owner

    def cuInit(self, flags):
        return self.init

    def cuDeviceGetCount(self, out):
        out._obj.value = self.devices
        return 0

    def cuGetErrorName(self, code, out):
        out._obj.value = b"CUDA_ERROR_NO_DEVICE"
        return 0

    def cuPointerGetAttribute(self, out, attribute, ptr):
        assert attribute == 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, cuda.h
        assert ptr.value == POINTER
        out._obj.value = self.owner
        return 0 if self.owner is not None else 1


@pytest.mark.parametrize(
    ("driver", "says"),
    [
        (None, "no NVIDIA driver is installed"),
        (FakeDriver(init=100), "CUDA_ERROR_NO_DEVICE"),
        (FakeDriver(devices=0), "shows no device"),
    ],
)
def test_what_is_missing_is_said(monkeypatch, driver, says: str) -> None:
    monkeypatch.setattr(cuda_driver, "_library", lambda: driver)
    assert says in cuda_driver.missing().why
    assert cuda_driver.missing().remedy
    assert cuda_driver.count() == 0
    assert driver is not None or cuda_driver.ordinal(POINTER) is None


def test_a_driver_that_answers(monkeypatch) -> None:
    monkeypatch.setattr(cuda_driver, "_library", lambda: FakeDriver())
    assert cuda_driver.missing() is None
    assert cuda_driver.count() == 2
    assert cuda_driver.ordinal(POINTER) == 1
    assert cuda_driver.ordinal(0) is None


@pytest.mark.skipif(not NO_DRIVER, reason="there is a driver")
@pytest.mark.parametrize("target", ["cupy", "numba", "torch", "jax"])
def test_without_a_driver(target: str) -> None:
    if not zc.frameworks()[target].installed:
        pytest.skip(f"{target} is not installed")
    for x in (sample("f4"), SpeaksDLPack(sample("f4"))):
        plan = zc.explain(x, target, device="cuda")
        assert isinstance(plan.error, zc.DeviceError), plan
        assert plan.error.remedy
        with pytest.raises(zc.DeviceError, match=r"CUDA|driver|cuda"):
            zc.convert(x, to=target, device="cuda")


@pytest.mark.skipif(not NO_DRIVER, reason="there is a driver")
@pytest.mark.parametrize("target", ["cupy", "numba"])
def test_naming_a_gpu_framework_asks_for_the_transfer(target: str) -> None:
    if not zc.frameworks()[target].installed:
        pytest.skip(f"{target} is not installed")
    with pytest.raises(zc.DeviceError, match=r"no NVIDIA driver|does not answer|no device"):
        zc.convert(sample("f4"), to=target)


@pytest.mark.parametrize(("target", "wheel"), [("cupy", "cupy-cuda12x"), ("numba", "numba-cuda")])
def test_not_installed_names_the_wheels(run_python, target: str, wheel: str) -> None:
    done = run_python(
        f"""
        import sys
        sys.modules[{target!r}] = None
        import numpy as np, zerocopy as zc
        try: zc.convert(np.ones(3), to={target!r})
        except zc.FrameworkNotInstalledError as error: print(error)
        """
    )
    assert f"pip install {'cupy-cuda13x' if target == 'cupy' else ''}" in done.stdout, done.stderr
    assert wheel in done.stdout


# -- CuPy's own importers over fake pointers ----------------------------------


class FakeStream:
    """A stream that writes down its events."""

    log: ClassVar[list[tuple]] = []

    def __init__(self, ptr):
        self.ptr = ptr

    def record(self):
        self.log.append(("record", self.ptr))
        return self.ptr

    def wait_event(self, event):
        self.log.append(("wait", self.ptr, event))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    @classmethod
    def from_external(cls, obj):
        version, handle = obj.__cuda_stream__()
        assert version == 0
        return cls(handle)


FakeStream.null, FakeStream.ptds = FakeStream(0), FakeStream(2)


@pytest.fixture
def cupy(monkeypatch):
    """CuPy with what needs a driver replaced: contexts, streams; importers and arrays are its own."""
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    import cupy

    monkeypatch.setattr(FakeStream, "log", [])
    cuda = SimpleNamespace(
        Device=lambda index: nullcontext(),
        Stream=FakeStream,
        get_current_stream=lambda: FakeStream(7),
        UnownedMemory=cupy.cuda.UnownedMemory,
        MemoryPointer=cupy.cuda.MemoryPointer,
        runtime=SimpleNamespace(is_hip=False),
    )
    stub = SimpleNamespace(cuda=cuda, from_dlpack=cupy.from_dlpack, ndarray=cupy.ndarray)
    monkeypatch.setattr(CuPy, "module", lambda self: stub)
    monkeypatch.setattr(CuPy, "check_device", Framework.check_device)
    monkeypatch.setattr(CuPy, "parse_device", Framework.parse_device)
    return stub


HELD = [t.name for t in ALL if to_numpy(t) is not None and t.name not in SUBBYTE_NAMES]


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("producer", [SpeaksDLPack, OldDLPack])
def test_cupy_imports_every_type(cupy, name: str, producer) -> None:
    dtype = by_name(name)
    array = np.zeros((4, 6), dtype.storage)[1:, ::2]
    obj = producer(array, dtype=dtype)
    plan = zc.explain(obj, "cupy")
    result = zc.convert(obj, to="cupy")
    assert isinstance(result, cupy.ndarray)
    assert result.dtype == to_numpy(dtype)
    view = zc.view(result)
    assert (view.ptr, view.shape, view.strides) == (array.ctypes.data, array.shape, array.strides)
    assert view.dtype is dtype
    assert [asked for asked in obj.streams if asked != -1] == [7]
    assert plan.zero_copy == zc.shares_memory(obj, result) is True


@pytest.mark.parametrize("name", sorted({*SUBBYTE_NAMES, "float4_e2m1fn_x2"}))
def test_cupy_refuses_by_name(cupy, name: str) -> None:
    obj = SpeaksDLPack(np.zeros(4, by_name(name).storage), dtype=by_name(name))
    if by_name(name).itemsize * 8 != by_name(name).bits * by_name(name).lanes:
        # No capsule of NumPy's has such bits: as a description, then.
        with pytest.raises(zc.UnsupportedConversionError, match=f"cupy has no {name}"):
            CuPy().reasons(StridedView(POINTER, (4,), (1,), by_name(name), Device(CUDA, 0), False, None))
        return
    with pytest.raises(zc.UnsupportedConversionError, match=f"cupy has no {name}"):
        zc.convert(obj, to="cupy")


@pytest.mark.parametrize("stream", [None, 9])
def test_cupy_orders_after_an_interfaces_stream(cupy, stream) -> None:
    obj = SpeaksCAI(sample("f4"), stream=5)
    zc.convert(obj, to="cupy", stream=stream)
    assert FakeStream.log == [("record", 5), ("wait", stream or 7, 5)]


@pytest.mark.parametrize(("ready", "stream"), [(None, None), (7, None), (9, 9), (5, -1)])
def test_cupy_orders_nothing_where_there_is_nothing_to_order(cupy, ready, stream) -> None:
    zc.convert(SpeaksCAI(sample("f4"), stream=ready), to="cupy", stream=stream)
    assert FakeStream.log == []


@pytest.mark.parametrize(
    "make", [lambda a: a, lambda a: a.T, lambda a: a[::-1], lambda a: a[1:, ::-2], lambda a: a[:0]]
)
def test_cupy_aliases_any_strides_of_an_interface(cupy, make) -> None:
    array = make(sample("f4", (4, 6)))
    obj = SpeaksCAI(array)
    if array.size == 0:
        obj.entries["data"] = (0, False)
    result = zc.convert(obj, to="cupy", copy=False)
    view = zc.view(result)
    assert (view.shape, view.strides) == (array.shape, zc.view(obj).strides)
    if array.size:
        assert view.ptr == array.ctypes.data
        assert zc.explain(obj, "cupy").zero_copy
        assert zc.shares_memory(obj, result)


@pytest.mark.parametrize("producer", [SpeaksDLPack, SpeaksCAI])
def test_cupy_keeps_the_memory_and_lets_it_go(cupy, producer) -> None:
    class Owner(np.ndarray):
        pass

    obj = producer(sample("f4").view(Owner))
    alive = weakref.ref(obj.array)
    result = zc.convert(obj, to="cupy")
    del obj
    gc.collect()
    assert alive() is not None
    del result
    gc.collect()
    assert alive() is None


def test_misaligned_memory_is_never_read_by_a_kernel(cupy) -> None:
    record = np.zeros(5, np.dtype([("a", "u1"), ("b", "f4")]))["b"]
    plan = zc.explain(SpeaksCAI(record), "cupy")
    assert not plan.zero_copy
    assert "not aligned" in plan.reasons[0].why


def test_cupy_exports_what_cupy_does_not_know(cupy) -> None:
    """Of float8 the capsule is CuPy's own, of unsigned integers, with its true type written in."""
    dtype = by_name("float8_e4m3fn")
    if to_numpy(dtype) is None:
        pytest.skip("ml_dtypes is not installed")
    array = np.zeros(4, "u1")
    x = zc.convert(SpeaksDLPack(array, dtype=dtype), to="cupy")
    producer = describe(x).producer
    asked = {}

    class Plain:
        def __dlpack__(self, **options):
            asked.update(options)
            return capsule_on(array)

        def __dlpack_device__(self):
            return CUDA, 0

    assert producer._plain.dtype == np.uint8
    producer._plain = Plain()
    assert dlpack.read(dlpack.request(producer, stream=9), producer).dtype is dtype
    assert asked == {"stream": 9, "max_version": dlpack.MAX_VERSION}


# -- Numba's importer over fake pointers --------------------------------------


class FakeEvent:
    def __init__(self, log):
        self.log = log

    def record(self, stream):
        self.log.append(("record", stream))

    def wait(self, stream):
        self.log.append(("wait", stream))


class FakeDeviceArray:
    """As much of DeviceNDArray as is read; made by the stub's as_cuda_array."""

    def __init__(self, owner):
        interface = owner.__cuda_array_interface__
        self.owner, self.__cuda_array_interface__ = owner, interface
        self.shape, self.strides = interface["shape"], interface["strides"]
        self.dtype, self.stream = np.dtype(interface["typestr"]), interface["stream"] or 0

    def view(self, dtype):
        self.dtype = np.dtype(dtype)
        return self


@pytest.fixture
def numba(monkeypatch):
    """Numba with all of ``numba.cuda`` replaced by what it is asked."""
    log: list[tuple] = []

    def as_cuda_array(obj, sync):
        assert sync is False, "the host must wait for nothing"
        return FakeDeviceArray(obj)

    cuda = SimpleNamespace(
        log=log,
        gpus=[nullcontext(), nullcontext()],
        as_cuda_array=as_cuda_array,
        event=lambda timing: FakeEvent(log),
        legacy_default_stream=lambda: 1,
        per_thread_default_stream=lambda: 2,
        external_stream=lambda handle: handle,
    )
    module = "zerocopy._frameworks.numba."
    monkeypatch.setattr(Numba, "module", lambda self: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(Numba, "check_device", Framework.check_device)
    monkeypatch.setattr(module + "_simulated", lambda: False)
    monkeypatch.setattr(module + "_array_class", lambda: FakeDeviceArray)
    monkeypatch.setattr(FakeDeviceArray, "__module__", "numba")
    monkeypatch.setattr(cuda_driver, "ordinal", lambda ptr: 0)
    return cuda


@pytest.mark.parametrize("name", HELD)
def test_numba_imports_every_type_of_dlpack(numba, name: str) -> None:
    """Numba speaks no DLPack: the capsule is held, and described to it by the other protocol."""
    dtype = by_name(name)
    array = np.zeros((4, 6), dtype.storage)[1:, ::2]
    obj = SpeaksDLPack(array, dtype=dtype)
    result = zc.convert(obj, to="numba")
    assert result.dtype == to_numpy(dtype)
    interface = result.__cuda_array_interface__
    assert interface["data"] == (array.ctypes.data, False)
    assert (result.shape, result.strides) == (array.shape, array.strides)
    assert np.dtype(interface["typestr"]) == dtype.storage
    assert result.stream == 0
    assert obj.streams[-1] == 1, "Numba has no current stream: its work is on the legacy default one"
    assert zc.explain(obj, "numba").zero_copy == zc.shares_memory(obj, result) is True


def test_numba_holds_the_capsule(numba) -> None:
    class Owner(np.ndarray):
        pass

    obj = SpeaksDLPack(sample("f4").view(Owner))
    alive = weakref.ref(obj.array)
    result = zc.convert(obj, to="numba")
    del obj
    gc.collect()
    assert alive() is not None
    del result
    gc.collect()
    assert alive() is None


def test_numba_orders_by_events(numba) -> None:
    zc.convert(SpeaksCAI(sample("f4"), stream=5), to="numba")
    assert numba.log == [("record", 5), ("wait", 1)]
    numba.log.clear()
    result = zc.convert(SpeaksCAI(sample("f4"), stream=5), to="numba", stream=9)
    assert numba.log == [("record", 5), ("wait", 9)]
    assert result.stream == 9, "an array made for a stream is bound to it"
    numba.log.clear()
    zc.convert(SpeaksCAI(sample("f4"), stream=5), to="numba", stream=-1)
    assert numba.log == []


def test_numba_per_thread_default_stream(numba, monkeypatch) -> None:
    monkeypatch.setenv("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", "1")
    obj = SpeaksDLPack(sample("f4"))
    zc.convert(obj, to="numba")
    assert obj.streams[-1] == 2


def test_numba_never_passes_negative_strides_on(numba) -> None:
    obj = SpeaksCAI(sample("f4")[::-1])
    assert not zc.explain(obj, "numba").zero_copy
    with pytest.raises(zc.CopyRequiredError, match="backwards"):
        zc.convert(obj, to="numba", copy=False)


def _numba_array(shape, strides, dtype="f4", stream=0, ptr=POINTER):
    """Return what Numba's array says of itself, its interface with the gaps that it has."""
    view = StridedView(ptr, shape, strides, by_name("float32"), Device(CUDA, 0), False, None)
    array = FakeDeviceArray(cuda_array_interface.Handover(view, None, None))
    array.__cuda_array_interface__ |= {"strides": None}
    array.stream = stream
    return array


def test_numba_broadcast_arrays_keep_their_strides(numba) -> None:
    """Numba's own interface says "row-major" of a broadcast array, and consumers read past its end."""
    x = _numba_array((3, 5), (0, 4))
    assert zc.view(x).strides == (0, 4)
    again, _ = cuda_array_interface.read(describe(x).producer)
    assert again.strides == (0, 4)


@pytest.mark.parametrize(
    ("stream", "ready"),
    [
        (0, 1),  # bound to none: kernels without a stream run on the default one
        (SimpleNamespace(handle=ctypes.c_void_p(0)), 1),
        (SimpleNamespace(handle=ctypes.c_void_p(9)), 9),
    ],
)
def test_numba_says_which_stream_to_wait_for(numba, stream, ready: int) -> None:
    x = _numba_array((3,), (4,), stream=stream)
    assert cuda_array_interface.read(describe(x).producer)[1] == ready


def test_numba_zero_size(numba, monkeypatch) -> None:
    monkeypatch.setattr(cuda_driver, "ordinal", lambda ptr: None)
    numba.get_current_device = lambda: SimpleNamespace(id=1)
    view = zc.view(_numba_array((0, 5), (20, 4), ptr=0))
    assert str(view.device) == "cuda:1"
    assert view.size == 0


def test_the_simulator_cannot_reach_device_memory(numba, monkeypatch) -> None:
    monkeypatch.setattr("zerocopy._frameworks.numba._simulated", lambda: True)
    with pytest.raises(zc.DeviceError, match="simulator"):
        zc.convert(SpeaksDLPack(sample("f4")), to="numba")


def test_host_is_still_the_host() -> None:
    assert zc.view(sample("f4")).device is HOST
