"""Views, streams and errors of producers that declare CUDA memory, without a GPU.

The memory is NumPy's, and no test reads it through the producer's pointer; tests/gpu does, on a GPU.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.cuda_producers import OldDLPack, SpeaksCAI, SpeaksDLPack

import zerocopy as zc
from zerocopy.device import CPU, CUDA, CUDA_MANAGED, parse_stream
from zerocopy.protocols import cuda_array_interface, cuda_driver


@pytest.mark.parametrize("producer", [SpeaksDLPack, OldDLPack])
@pytest.mark.parametrize("make", [lambda a: a, lambda a: a.T, lambda a: a[::2], lambda a: a[:, ::-1]])
def test_view_describes_a_dlpack_producer(producer, make) -> None:
    array = make(sample("f4", (4, 6)))
    obj = producer(array, (CUDA, 1))
    view = zc.view(obj)
    assert (view.ptr, view.shape, view.strides) == (array.ctypes.data, array.shape, array.strides)
    assert str(view.device) == "cuda:1"
    assert view.dtype.name == "float32"
    assert obj.streams == [-1], "a description needs no synchronisation"


def test_view_describes_managed_memory() -> None:
    view = zc.view(SpeaksDLPack(sample("f4"), (CUDA_MANAGED, 0)))
    assert view.device.kind == "cuda"
    assert not view.device.is_host


@pytest.mark.parametrize("version", [2, 3])
def test_view_describes_the_cuda_array_interface(version: int) -> None:
    array = sample("c8", (3, 4))
    view = zc.view(SpeaksCAI(array, version=version, data=(array.ctypes.data, True)))
    assert (view.ptr, view.shape, view.strides) == (array.ctypes.data, (3, 4), (32, 8))
    assert view.dtype.name == "complex64"
    assert view.readonly
    assert zc.view(SpeaksCAI(array.T, version=version)).strides == (8, 32)
    with pytest.raises(AttributeError):
        view.__array_interface__  # noqa: B018 - NumPy must not see device memory


def test_zero_size_view_has_pointer_0() -> None:
    view = zc.view(SpeaksCAI(shape=(0, 3), data=(0, False)))
    assert (view.size, view.ptr, view.bounds) == (0, 0, (0, 0))
    assert not zc.shares_memory(view, view)


@pytest.mark.parametrize(
    ("entries", "error", "message"),
    [
        ({"version": 1}, zc.UnsupportedConversionError, "version 1"),
        ({"mask": object()}, zc.LossyConversionError, "mask"),
        ({"stream": 0}, zc.UnsupportedConversionError, "stream is 0"),
        ({"typestr": "<V2"}, zc.UnsupportedConversionError, "<V2"),
        ({"typestr": ">f4"}, zc.UnsupportedConversionError, ">f4"),
        ({"data": (0, False), "shape": (3,)}, zc.UnsupportedConversionError, "pointer is NULL"),
        ({"data": None}, zc.UnsupportedConversionError, "could not be read"),
        ({"shape": ("a",)}, zc.UnsupportedConversionError, "could not be read"),
    ],
)
def test_malformed_interface_is_refused(entries, error, message: str) -> None:
    obj = SpeaksCAI(sample("f4"), **entries)
    with pytest.raises(error, match=message):
        zc.view(obj)
    assert not zc.explain(obj, "numpy").possible


def test_version_2_of_the_interface_has_no_stream() -> None:
    """Version 2 has no stream entry; its consumers wait for the legacy default stream."""
    _, ready = cuda_array_interface.read(SpeaksCAI(sample("f4"), version=2, stream=0))
    assert ready == 1


def test_driver_gives_the_device_of_a_pointer(monkeypatch) -> None:
    monkeypatch.setattr(cuda_driver, "ordinal", lambda ptr: 3)
    assert str(zc.view(SpeaksCAI(sample("f4"))).device) == "cuda:3"
    monkeypatch.setattr(cuda_driver, "ordinal", lambda ptr: None)
    obj = SpeaksCAI(sample("f4"))
    obj.device = "cuda:1"
    assert str(zc.view(obj).device) == "cuda:1"


def test_shares_memory_on_devices() -> None:
    array = sample("f4", (8, 8))
    producer = SpeaksDLPack(array)
    assert zc.shares_memory(producer, SpeaksCAI(array))
    assert zc.shares_memory(producer, SpeaksDLPack(array[2:4]))
    assert not zc.shares_memory(SpeaksDLPack(array[:4]), SpeaksCAI(array[4:]))
    assert not zc.shares_memory(SpeaksDLPack(array[:, ::2]), SpeaksDLPack(array[:, 1::2]))
    assert not zc.shares_memory(producer, SpeaksDLPack(array, (CUDA, 1))), "separate address spaces"
    assert not zc.shares_memory(producer, array), "separate address spaces"


def test_capsule_on_another_device_is_refused() -> None:
    with pytest.raises(zc.DeviceError, match=r"cuda:0.*cuda:1"):
        zc.view(SpeaksDLPack(sample("f4"), (CUDA, 1), says=(CUDA, 0)))


def test_host_capsule_of_a_device_producer_is_refused() -> None:
    with pytest.raises(zc.DeviceError, match=r"cuda:0.*cpu"):
        zc.view(SpeaksDLPack(sample("f4"), (CPU, 0), says=(CUDA, 0)))


@pytest.mark.parametrize("where", ["__dlpack__", "__dlpack_device__"])
def test_error_of_an_exporter_is_the_cause(where: str) -> None:
    def refuse(self, **options):
        raise RuntimeError("export failed")

    cls = type("Raises", (SpeaksDLPack,), {where: refuse})
    obj = cls(sample("f4"))
    with pytest.raises(zc.UnsupportedConversionError, match="export failed") as caught:
        zc.convert(obj, to="numpy")
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert not zc.explain(obj, "numpy").possible


@pytest.mark.parametrize("name", ["__cuda_array_interface__", "__array_interface__"])
def test_error_of_an_interface_property_is_reported(name: str) -> None:
    """hasattr() suppresses AttributeError only."""

    def refuse(self):
        raise RuntimeError("it requires grad")

    obj = type("Raises", (), {name: property(refuse)})()
    with pytest.raises(zc.UnsupportedConversionError, match="it requires grad"):
        zc.convert(obj, to="numpy")
    assert not zc.explain(obj, "numpy").possible


class _CUstream:
    """CUDA Python's stream handle: it has no ``value``, and ``int()`` accepts it."""

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
        (SimpleNamespace(ptr=0), 1),  # CuPy
        (SimpleNamespace(ptr=2), 2),
        (SimpleNamespace(handle=ctypes.c_void_p(0)), 1),  # Numba: the value is None
        (SimpleNamespace(handle=ctypes.c_void_p(2)), 2),
        (SimpleNamespace(handle=ctypes.c_void_p(9)), 9),
        (SimpleNamespace(handle=_CUstream(0)), 1),  # Numba with CUDA Python
        (SimpleNamespace(handle=_CUstream(9)), 9),
        (_Protocol(0, 0), 1),
        (_Protocol(0, 9), 9),
        (_EarlyProtocol(0, 9), 9),
        (np.int64(5), 5),
    ],
)
def test_stream_objects_are_parsed(stream, handle: int) -> None:
    number = parse_stream(stream)
    assert number == handle
    assert type(number) is int


def test_unknown_version_of_cuda_stream_is_refused() -> None:
    with pytest.raises(zc.DeviceError, match="version 1"):
        parse_stream(_Protocol(1, 9))
