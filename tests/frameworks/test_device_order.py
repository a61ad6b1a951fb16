"""Device memory of torch, and into TensorFlow: the order of streams, and memory that is reused."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.cuda_producers import POINTER, OldDLPack, SpeaksCAI, SpeaksDLPack, capsule_on
from helpers.versions import needs_versioned_capsules

import zerocopy as zc
from zerocopy import registry
from zerocopy.device import CUDA_MANAGED
from zerocopy.dtype import by_name
from zerocopy.framework import Framework, Source
from zerocopy.protocols import cuda_driver, dlpack


class Tensor:
    """The methods of a CUDA tensor that its producer calls; it refuses what torch's exporter refuses."""

    def __init__(self, log: list, values: np.ndarray, index: int = 0):
        self.log, self.values, self.index = log, values, index

    def __dlpack__(self, *, stream=-1, max_version=None):
        if stream == 2:
            raise BufferError("per-thread default stream is not supported.")
        self.log.append(("export", stream, max_version))
        return capsule_on(self.values, (2, self.index), versioned=max_version is not None)

    def __dlpack_device__(self):
        return 2, self.index

    def get_device(self):
        return self.index

    def view(self, dtype):
        return Tensor(self.log, self.values.view(dtype), self.index)

    def record_stream(self, stream):
        self.log.append(("record_stream", stream))


def torch_over(log: list, current: int = 0) -> SimpleNamespace:
    @contextmanager
    def device(index):
        log.append(("device", index))
        yield

    cuda = SimpleNamespace(
        device=device,
        current_stream=lambda index: SimpleNamespace(cuda_stream=current),
        default_stream=lambda index: "default",
        ExternalStream=lambda handle, device: handle,
    )
    return SimpleNamespace(cuda=cuda, uint8="u1", int16="i2", int32="i4", int64="i8")


@pytest.fixture
def order(monkeypatch) -> list:
    calls: list = []
    monkeypatch.setattr(cuda_driver, "order", lambda *streams: calls.append(("order", *streams)))
    return calls


# -- torch as a source -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("current", "stream", "recorded"),
    [
        (0, 1, None),
        (7, 7, None),
        (0, -1, None),
        (0, 9, 9),
        (7, 1, "default"),
        (7, None, "default"),
        (0, None, None),
    ],
)
def test_the_allocator_knows_streams_that_read_a_tensor(order, current: int, stream, recorded) -> None:
    """Otherwise torch gives the freed memory to its own stream, while a kernel of the consumer reads it."""
    from zerocopy._frameworks.torch.exchange import OnDevice

    log: list = []
    OnDevice(torch_over(log, current), Tensor(log, sample("f4"), 1)).__dlpack__(stream=stream)
    assert log[:2] == [("device", 1), ("export", stream, None)]
    assert log[2:] == ([] if recorded is None else [("record_stream", recorded)])
    assert not order


def test_the_per_thread_default_stream_waits_for_the_legacy_one(order) -> None:
    from zerocopy._frameworks.torch.exchange import OnDevice

    log: list = []
    tensor = Tensor(log, sample("f4"), 1)
    with pytest.raises(BufferError):
        tensor.__dlpack__(stream=2)  # the hazard
    OnDevice(torch_over(log), tensor).__dlpack__(stream=2, max_version=(1, 0))
    assert log[1:] == [("export", 1, (1, 0)), ("record_stream", 2)]
    assert order == [("order", 1, 2, 1)]


@pytest.mark.parametrize(("name", "size"), [("float8_e4m3fn", 1), ("complex32", 4)])
def test_types_that_torch_may_refuse_are_exported_as_integers(order, name: str, size: int) -> None:
    from zerocopy._frameworks.torch.exchange import producer_of
    from zerocopy.device import CUDA, Device

    log: list = []
    tensor = Tensor(log, np.zeros(8, f"u{size}"))
    producer = producer_of(torch_over(log), tensor, Device(CUDA, 0), by_name(name))
    view = dlpack.read(producer.__dlpack__(stream=1))
    assert (view.dtype.name, view.ptr) == (name, tensor.values.ctypes.data)


def test_types_that_torch_may_refuse_are_imported_as_integers() -> None:
    torch = pytest.importorskip("torch")
    from zerocopy._frameworks.torch.exchange import imported

    dtype, values = by_name("float8_e5m2"), np.arange(8, dtype="u1")
    tensor = imported(torch, dlpack.retype(values.__dlpack__(), dtype), dtype)
    assert (tensor.dtype, tensor.data_ptr()) == (torch.float8_e5m2, values.ctypes.data)


# -- capsules of several versions ------------------------------------------------------------


class VersionedAlone(SpeaksDLPack):
    """Cannot mark its memory as read-only in a legacy capsule."""

    def __dlpack__(self, *, stream=None, max_version=None):
        if max_version is None:
            raise BufferError("read-only memory needs a versioned capsule")
        return super().__dlpack__(stream=stream, max_version=max_version)


@pytest.mark.parametrize(
    ("producer", "name"),
    [
        *((SpeaksDLPack, dlpack.LEGACY), (OldDLPack, dlpack.LEGACY)),
        pytest.param(VersionedAlone, dlpack.VERSIONED, marks=needs_versioned_capsules),
    ],
)
def test_device_memory_is_requested_as_a_legacy_capsule(producer, name: bytes) -> None:
    """torch before 2.9 takes no versioned capsule, and CuPy before 13.4 exports none."""
    capsule = dlpack.request_on_device(producer(sample("f4")), 7)
    assert dlpack.name_of(capsule) == name


def test_other_errors_of_a_producer_are_not_repeated() -> None:
    class Fails(SpeaksDLPack):
        calls = 0

        def __dlpack__(self, **options):
            Fails.calls += 1
            raise ValueError("no memory")

    with pytest.raises(zc.UnsupportedConversionError, match="no memory"):
        dlpack.request_on_device(Fails(sample("f4")), 7)
    assert Fails.calls == 1


# -- TensorFlow as a target --------------------------------------------------------------------


@pytest.fixture
def tensorflow(monkeypatch):
    """TensorFlow with one GPU: its importer and the driver log their calls."""
    tf = pytest.importorskip("tensorflow")
    framework, log = registry.by_name("tensorflow"), []

    @contextmanager
    def on_device(index):
        log.append(("device", index))
        yield

    def finish_stream(stream, device):
        log.append(("finish", stream, device))

    def from_dlpack(capsule):
        log.append(("import", dlpack.read(capsule).device))
        return capsule

    monkeypatch.setattr(type(framework), "check_device", lambda self, device: None)
    monkeypatch.setattr(cuda_driver, "on_device", on_device)
    monkeypatch.setattr(cuda_driver, "finish_stream", finish_stream)
    monkeypatch.setattr(tf.experimental.dlpack, "from_dlpack", from_dlpack)
    return SimpleNamespace(framework=framework, log=log)


def source_of(producer) -> Source:
    return Source("producer", zc.view(producer), lambda: None, "dlpack", producer=producer)


@pytest.mark.parametrize(("stream", "ready"), [(None, 1), (9, 9), (2, 2), (-1, None)])
def test_the_host_waits_before_tensorflow_reads(tensorflow, stream, ready) -> None:
    """TensorFlow's streams wait for no other stream."""
    producer = SpeaksDLPack(sample("f4", (64,)), (2, 1))
    tensorflow.framework.from_device(source_of(producer), stream)
    assert producer.streams[-1] == (1 if stream is None else stream)
    steps = [entry[0] for entry in tensorflow.log]
    assert steps == (["device", "finish", "import"] if ready else ["device", "import"])
    assert tensorflow.log[0] == ("device", 1)
    assert ready is None or tensorflow.log[1] == ("finish", ready, 1)


def test_managed_memory_is_device_memory_for_tensorflow(tensorflow) -> None:
    tensorflow.framework.from_device(source_of(SpeaksDLPack(sample("f4"), (CUDA_MANAGED, 0))), None)
    assert str(tensorflow.log[-1][1]) == "cuda:0"


def test_a_relay_exports_memory_that_has_only_the_interface(tensorflow, monkeypatch) -> None:
    exported = SpeaksDLPack(sample("f4"))

    class Relay(Framework):
        name = "relay"

        def from_device(self, source, stream):
            return source.producer

        def source(self, obj):
            return source_of(exported)

    def relay(view, *, dlpack):
        assert dlpack
        return Relay()

    monkeypatch.setattr(registry, "relay", relay)
    bare = SpeaksCAI(data=(POINTER, False), shape=(3,))
    tensorflow.framework.from_device(source_of(bare), None)
    assert [entry[0] for entry in tensorflow.log] == ["device", "finish", "import"]


@pytest.mark.parametrize("offset", [4, 16, 32])
def test_misaligned_device_memory_is_copied_for_tensorflow(offset: int) -> None:
    """TensorFlow ends the process for it: CHECK(IsAligned())."""
    framework = registry.by_name("tensorflow")
    pytest.importorskip("tensorflow")
    view = zc.view(SpeaksCAI(data=(POINTER + offset, False), shape=(3,)))
    assert [reason.code for reason in framework.device_copy_reasons(view)] == ["misaligned"]
    aligned = zc.view(SpeaksCAI(data=(POINTER, False), shape=(3,)))
    assert framework.device_copy_reasons(aligned) == []
