"""CUDA memory without a GPU: who is asked for what, on which stream, and what is refused.

The producers here say that their memory is on a device. It is NumPy's, and nothing
reads through their pointers: tests/gpu does that, on a GPU.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.cuda_producers import POINTER, FakeGPU, OldDLPack, SpeaksCAI, SpeaksDLPack

import zerocopy as zc
from zerocopy import registry
from zerocopy.device import CPU, CUDA, CUDA_MANAGED, Device, parse_stream
from zerocopy.protocols import cuda_array_interface, cuda_driver

NO_DRIVER = cuda_driver.missing() is not None


@pytest.fixture
def fake():
    """The fake framework, registered for one test, and alone on its devices."""
    registry.frameworks()
    known, roots = dict(registry._known), {k: list(v) for k, v in registry._by_root.items()}
    for framework in list(registry._known.values()):
        if framework.can_copy_to_device:
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
            if stream == 7:
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
    fake.can_relay = lambda view: not fake.device_copy_reasons(view)
    assert registry.relay(zc.view(SpeaksDLPack(sample("f4")))) is fake
    with pytest.raises(zc.DeviceError, match="does not accept its layout"):
        registry.relay(backwards)


def test_a_carrier_without_its_device_is_passed_over(fake) -> None:
    class Broken(FakeGPU):
        name = "abroken"

        def check_device(self, device):
            raise zc.DeviceError("", "no device answers", "")

    zc.register(Broken())
    assert registry.relay(zc.view(SpeaksDLPack(sample("f4")))) is fake


def test_the_lender_of_an_exporter(fake) -> None:
    """JAX imports DLPack alone: memory with the CUDA Array Interface alone needs an exporter lent."""

    class NoExporter(FakeGPU):
        name = "aaa"
        can_export_dlpack = False

    zc.register(NoExporter())
    view = zc.view(SpeaksCAI(sample("f4")))
    assert registry.relay(view, dlpack=True) is fake
    fake.can_export_dlpack = False
    with pytest.raises(zc.DeviceError, match="can export this memory"):
        registry.relay(view, dlpack=True)


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
    monkeypatch.setattr(cuda_driver, "driver", lambda: driver)
    assert says in cuda_driver.missing().why
    assert cuda_driver.missing().remedy
    assert cuda_driver.count() == 0
    assert driver is not None or cuda_driver.ordinal(POINTER) is None


def test_a_driver_that_answers(monkeypatch) -> None:
    monkeypatch.setattr(cuda_driver, "driver", lambda: FakeDriver())
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
