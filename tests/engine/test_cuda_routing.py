"""Conversions of CUDA memory with a fake framework: calls, devices and streams, without a GPU.

The memory is NumPy's, and no test reads it through the producer's pointer; tests/gpu does, on a GPU.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from helpers.arrays import sample
from helpers.cuda_producers import FakeGPU, OldDLPack, SpeaksCAI, SpeaksDLPack
from helpers.frameworks import registry_restored

import zerocopy as zc
from zerocopy import registry
from zerocopy.device import CUDA, Device


@pytest.fixture
def fake() -> FakeGPU:
    """Register the fake GPU framework, and remove the others that can copy on devices."""
    for name in [f.name for f in registry._known.values() if f.can_copy_to_device]:
        registry._known.pop(name)
    framework = FakeGPU()
    zc.register(framework)
    return framework


def test_error_of_an_exporter_with_a_stream_is_reported(fake) -> None:
    class Raises(SpeaksDLPack):
        def __dlpack__(self, *, stream=None, max_version=None):
            if stream == 7:
                raise BufferError(f"no stream {stream}")
            return super().__dlpack__(stream=stream, max_version=max_version)

    with pytest.raises(zc.UnsupportedConversionError, match="no stream 7"):
        zc.convert(Raises(sample("f4")), to="fakegpu")


@pytest.mark.parametrize("producer", [SpeaksDLPack, OldDLPack, SpeaksCAI])
def test_memory_on_the_same_device_is_aliased(fake, producer) -> None:
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


def test_result_stays_on_the_device_of_its_source(fake) -> None:
    result = zc.convert(SpeaksDLPack(sample("f4"), (CUDA, 1)), to="fakegpu")
    assert str(zc.view(result).device) == "cuda:1"


@pytest.mark.parametrize(("stream", "exported"), [(None, 7), (1, 1), (2, 2), (5, 5), (-1, -1)])
def test_producer_gets_the_stream_of_the_consumer(fake, stream, exported: int) -> None:
    obj = SpeaksDLPack(sample("f4"))
    zc.convert(obj, to="fakegpu", stream=stream)
    assert obj.streams[-1] == exported
    assert all(s == -1 for s in obj.streams[:-1])
    zc.convert(SpeaksCAI(sample("f4"), stream=9), to="fakegpu", stream=stream)
    assert fake.log[-1] == ("from_device", exported, 9)


@pytest.mark.parametrize("stream", [0, -2, True, "1", object(), 1.5, SimpleNamespace(ptr=None)])
def test_invalid_streams_are_refused(fake, stream) -> None:
    obj = SpeaksDLPack(sample("f4"))
    with pytest.raises(zc.DeviceError, match="stream"):
        zc.convert(obj, to="fakegpu", stream=stream)
    assert set(obj.streams) <= {-1}, "only the description for the message exported the producer"


def test_copy_true_copies_on_the_device(fake) -> None:
    """A producer without a framework cannot copy; a relay copies for it."""
    obj = SpeaksDLPack(sample("f4"))
    plan = zc.explain(obj, "fakegpu", copy=True)
    assert not plan.zero_copy
    assert plan.copied_bytes == 48
    assert "copy on cuda:0" in str(plan)
    result = zc.convert(obj, to="fakegpu", copy=True)
    assert not zc.shares_memory(obj, result)
    assert ("contiguous", "cuda:0") in fake.log


def test_unsupported_layout_is_copied_on_the_device(fake) -> None:
    obj = SpeaksDLPack(sample("f4")[::-1])
    plan = zc.explain(obj, "fakegpu")
    assert not plan.zero_copy
    assert "no negative strides here" in str(plan)
    assert not zc.shares_memory(obj, zc.convert(obj, to="fakegpu"))
    with pytest.raises(zc.CopyRequiredError, match="no negative strides here"):
        zc.convert(obj, to="fakegpu", copy=False)


def test_device_to_host_is_a_copy_on_the_stream(fake) -> None:
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


def test_producer_without_a_framework_is_copied_through_a_relay(fake) -> None:
    for obj in (SpeaksDLPack(sample("f4", (2, 3))), SpeaksCAI(sample("f4", (2, 3)))):
        fake.log.clear()
        back = zc.convert(obj, to="numpy")
        assert [entry[0] for entry in fake.log] == ["from_device", "to_host"]
        assert back.shape == (2, 3)


@pytest.mark.parametrize("device", [None, "cuda", "cuda:1", (2, 1), Device(CUDA, 1)])
def test_host_to_device_is_a_transfer(fake, device) -> None:
    x = sample("f4", (4, 6)).T
    plan = zc.explain(x, "fakegpu", device=device)
    where = "cuda:0" if device in (None, "cuda") else "cuda:1"
    assert not plan.zero_copy
    assert plan.copied_bytes == x.nbytes
    assert f"from the host to {where}" in str(plan)
    zc.convert(x, to="fakegpu", device=device, stream=5)
    assert fake.log[-1] == ("from_host", where, 5, True)


def test_device_to_device_is_a_copy_on_the_stream(fake) -> None:
    obj = SpeaksDLPack(sample("f4"))
    plan = zc.explain(obj, "fakegpu", device="cuda:1")
    assert "from cuda:0 to cuda:1" in str(plan)
    result = zc.convert(obj, to="fakegpu", device="cuda:1", stream=5)
    assert str(zc.view(result).device) == "cuda:1"
    assert obj.streams[-1] == 7, "stream 5 belongs to cuda:1, so cuda:0 uses its current stream"
    assert fake.log[-1] == ("move", "cuda:0", "cuda:1", 5)


def test_unsupported_layout_is_copied_before_it_changes_device(fake) -> None:
    """The target aliases the memory before it copies to the other device, so it must support the layout."""
    obj = SpeaksDLPack(sample("f4")[::-1])
    result = zc.convert(obj, to="fakegpu", device="cuda:1")
    assert [entry[0] for entry in fake.log] == ["from_device", "contiguous", "move"]
    assert not zc.view(result).has_negative_strides


def test_array_of_the_target_is_returned_copied_or_moved(fake) -> None:
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


def test_unavailable_devices_are_refused(fake) -> None:
    for device in ("cuda:2", "cpu", "rocm"):
        plan = zc.explain(SpeaksDLPack(sample("f4")), "fakegpu", device=device)
        assert isinstance(plan.error, zc.DeviceError), device


def test_alias_of_immutable_device_memory_has_a_warning(fake) -> None:
    array = sample("f4")
    obj = SpeaksCAI(array, data=(array.ctypes.data, True))
    plan = zc.explain(obj, "fakegpu")
    assert plan.zero_copy
    assert "cannot mark its alias read-only" in plan.warnings[0]
    assert not zc.explain(obj, "fakegpu", writable=True).zero_copy


def test_relay_must_accept_the_layout(fake) -> None:
    """torch, for example, aborts the process on negative strides."""
    backwards = zc.view(SpeaksDLPack(sample("f4")[::-1]))
    fake.can_relay = lambda view: not fake.device_copy_reasons(view)
    assert registry.relay(zc.view(SpeaksDLPack(sample("f4")))) is fake
    with pytest.raises(zc.DeviceError, match="does not accept its layout"):
        registry.relay(backwards)


def test_relay_without_its_device_is_skipped(fake) -> None:
    class Broken(FakeGPU):
        name = "abroken"

        def check_device(self, device):
            raise zc.DeviceError("", "no device answers", "")

    zc.register(Broken())
    assert registry.relay(zc.view(SpeaksDLPack(sample("f4")))) is fake


def test_relay_for_dlpack_must_export_dlpack(fake) -> None:
    """JAX imports DLPack only, so memory with only the CUDA Array Interface needs an exporter."""

    class NoExporter(FakeGPU):
        name = "aaa"
        can_export_dlpack = False

    zc.register(NoExporter())
    view = zc.view(SpeaksCAI(sample("f4")))
    assert registry.relay(view, dlpack=True) is fake
    fake.can_export_dlpack = False
    with pytest.raises(zc.DeviceError, match="can export this memory"):
        registry.relay(view, dlpack=True)


TABLE_TARGETS = [
    *("pandas", "polars", "duckdb", "nanoarrow", "pyarrow.Table", "pyarrow.RecordBatch"),
    *("pyarrow.ChunkedArray", "polars.Series", "nanoarrow.ArrayStream"),
]


@pytest.mark.hazard("producers#device-memory-without-a-relay")
@pytest.mark.parametrize("producer", [SpeaksDLPack, OldDLPack, SpeaksCAI])
@pytest.mark.parametrize("to", TABLE_TARGETS)
def test_device_memory_becomes_a_table_through_a_relay(fake, to: str, producer) -> None:
    """A producer with protocols alone has no copy to the host: a framework for the device makes it."""
    pytest.importorskip(to.partition(".")[0])
    flat = sample("f4", (6,))
    cases = [(producer(flat), {}), ({"x": producer(flat)}, {}), (producer(flat), {"names": ["x"]})]
    for x, options in cases:
        if isinstance(x, dict) and to == "pyarrow.ChunkedArray":
            continue
        plan = zc.explain(x, to, **options)
        if not plan.possible:
            with pytest.raises(type(plan.error)):
                zc.convert(x, to, **options)
            continue
        assert not plan.zero_copy
        assert "other-device" in str([r.code for p in [plan, *plan.leaves.values()] for r in p.reasons])
        assert zc.convert(x, to, **options) is not None
        with pytest.raises(zc.CopyRequiredError):
            zc.convert(x, to, copy=False, **options)
    assert ("to_host", None) in fake.log


@pytest.mark.parametrize("producer", [SpeaksDLPack, SpeaksCAI])
@pytest.mark.parametrize("to", [*TABLE_TARGETS, "numpy", "pyarrow", "torch", "jax", "tensorflow"])
def test_explain_knows_that_no_framework_copies_device_memory(to: str, producer) -> None:
    pytest.importorskip(to.partition(".")[0])
    with registry_restored():
        for name in [f.name for f in registry._known.values() if f.can_copy_to_device]:
            if name != to:
                registry._known.pop(name)
        for x in (producer(sample("f4", (6,))), {"x": producer(sample("f4", (6,)))}):
            plan = zc.explain(x, to, device="cpu") if "." not in to else zc.explain(x, to)
            options = {} if "." in to else {"device": "cpu"}
            try:
                zc.convert(x, to, **options)
                converted = True
            except zc.ZeroCopyError as error:
                converted = False
                assert error.code != "target-raised"  # noqa: PT017
            assert plan.possible == converted


def test_a_refusal_imports_no_framework(run_python) -> None:
    """Without a CUDA driver no framework reaches the device, and an import takes up to a minute."""
    pytest.importorskip("torch")
    code = """
import sys
import zerocopy as zc
from zerocopy import registry
from zerocopy.protocols import cuda_driver
cuda_driver.driver = lambda: None
class OnDevice:
    __cuda_array_interface__ = {
        "shape": (3,), "typestr": "<f4", "data": (1 << 32, False), "version": 3
    }
names = [info for info in zc.frameworks()]
before = {name for name in names if name in sys.modules}
for to in ("numpy", "pyarrow"):
    for options in ({}, {"device": "cpu"}, {"copy": True}):
        assert not zc.explain(OnDevice(), to, **options).possible
        try:
            zc.convert(OnDevice(), to, **options)
        except zc.ZeroCopyError as error:
            assert error.code == "no-relay", error
            str(error)
for to in ("numpy", "pyarrow", "pandas"):
    for obj in ([1.0], {"a": [1.0]}, memoryview(b"abc")):
        assert not zc.explain(obj, to, device="cuda").possible
        try:
            zc.convert(obj, to, device="cuda")
        except zc.ZeroCopyError as error:
            str(error)
print(sorted({name for name in names if name in sys.modules} - before - {"numpy", "pyarrow", "pandas"}))
"""
    assert run_python(code).stdout.strip() == "[]"
