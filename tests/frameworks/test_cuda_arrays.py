"""CuPy and Numba without a GPU: CuPy's importers with fake pointers, and stubs of both."""

from __future__ import annotations

import gc
import importlib.util
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.cuda_producers import POINTER, OldDLPack, SpeaksCAI, SpeaksDLPack, capsule_on

import zerocopy as zc
from zerocopy._frameworks.cupy import CuPy
from zerocopy.describe import describe_array
from zerocopy.device import CUDA, Device
from zerocopy.dtype import ALL, SUBBYTE_NAMES, by_name, to_numpy
from zerocopy.framework import Framework
from zerocopy.protocols import cuda_array_interface, dlpack
from zerocopy.strided_view import StridedView

# -- CuPy's own importers over fake pointers ----------------------------------


class FakeStream:
    """A stream that logs its events."""

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
    """CuPy without a driver: contexts and streams are replaced, importers and arrays are real."""
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
    assert obj.streams[-1] == 7
    assert plan.zero_copy == zc.shares_memory(obj, result) is True


@pytest.mark.parametrize("name", sorted({*SUBBYTE_NAMES, "float4_e2m1fn_x2"}))
def test_cupy_refuses_by_name(cupy, name: str) -> None:
    obj = SpeaksDLPack(np.zeros(4, by_name(name).storage), dtype=by_name(name))
    if by_name(name).itemsize * 8 != by_name(name).bits * by_name(name).lanes:
        # NumPy cannot export such a capsule, so the test uses a StridedView.
        with pytest.raises(zc.UnsupportedConversionError, match=f"cupy has no {name}"):
            CuPy().copy_reasons(StridedView(POINTER, (4,), (1,), by_name(name), Device(CUDA, 0), False, None))
        return
    with pytest.raises(zc.UnsupportedConversionError, match=f"cupy has no {name}"):
        zc.convert(obj, to="cupy")


@pytest.mark.parametrize("stream", [None, 9])
def test_cupy_waits_for_the_interfaces_stream(cupy, stream) -> None:
    obj = SpeaksCAI(sample("f4"), stream=5)
    zc.convert(obj, to="cupy", stream=stream)
    assert FakeStream.log == [("record", 5), ("wait", stream or 7, 5)]


@pytest.mark.parametrize(("ready", "stream"), [(None, None), (7, None), (9, 9), (5, -1)])
def test_cupy_does_not_wait_for_ready_memory_or_its_own_stream(cupy, ready, stream) -> None:
    zc.convert(SpeaksCAI(sample("f4"), stream=ready), to="cupy", stream=stream)
    assert FakeStream.log == []


@pytest.mark.parametrize(
    "make", [lambda a: a, lambda a: a.T, lambda a: a[::-1], lambda a: a[1:, ::-2], lambda a: a[:0]]
)
def test_cupy_aliases_interfaces_with_any_strides(cupy, make) -> None:
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
def test_cupy_keeps_the_memory_alive_and_releases_it(cupy, producer) -> None:
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


def test_cupy_copies_misaligned_memory(cupy) -> None:
    record = np.zeros(5, np.dtype([("a", "u1"), ("b", "f4")]))["b"]
    plan = zc.explain(SpeaksCAI(record), "cupy")
    assert not plan.zero_copy
    assert "not aligned" in plan.reasons[0].why


def test_cupy_exports_dtypes_that_its_exporter_lacks(cupy) -> None:
    """CuPy exports float8 as unsigned integers; zerocopy writes the true dtype into the capsule."""
    dtype = by_name("float8_e4m3fn")
    if to_numpy(dtype) is None:
        pytest.skip("ml_dtypes is not installed")
    array = np.zeros(4, "u1")
    x = zc.convert(SpeaksDLPack(array, dtype=dtype), to="cupy")
    producer = describe_array(x).producer
    received = {}

    class Plain:
        def __dlpack__(self, **options):
            received.update(options)
            return capsule_on(array)

        def __dlpack_device__(self):
            return CUDA, 0

    assert producer._plain.dtype == np.uint8
    producer._plain = Plain()
    assert dlpack.read(dlpack.request(producer, stream=9), producer).dtype is dtype
    assert received == {"stream": 9, "max_version": dlpack.MAX_VERSION}


# -- both, over host memory that simulates two devices -----------------------

BOTH = ["cupy", "numba"]
LAYOUTS = {
    "whole": lambda a: a,
    "empty": lambda a: a[:0],
    "transposed": lambda a: a.T,
    "column": lambda a: a[:, 1],
    "every other": lambda a: a[::2, ::2],
    "reversed": lambda a: a[::-1],
    "reversed columns": lambda a: a[:, ::-1],
}


def put(name: str, values: np.ndarray, device: int = 0) -> object:
    return zc.convert(values, to=name, device=f"cuda:{device}")


def fetched(x: object) -> np.ndarray:
    return zc.convert(x, to="numpy")


@pytest.mark.parametrize("dtype", HELD)
@pytest.mark.parametrize("name", BOTH)
def test_transfer_to_the_device_and_back_keeps_values(machine, name: str, dtype: str) -> None:
    values = sample(to_numpy(by_name(dtype)), (4, 6))
    x = put(name, values)
    assert x.dtype == values.dtype
    assert zc.view(x).dtype.name == dtype
    back = fetched(x)
    assert back.dtype == values.dtype
    assert bits(back) == bits(values)
    assert not zc.shares_memory(values, back)
    point = values[:1, :1].reshape(())
    assert bits(fetched(put(name, point))) == bits(point)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "complex128", "bool"])
@pytest.mark.parametrize("name", BOTH)
def test_layouts_are_copied_to_the_host_and_on_the_device(
    machine, name: str, dtype: str, layout: str
) -> None:
    values = sample(to_numpy(by_name(dtype)), (4, 6))
    x, expected = LAYOUTS[layout](put(name, values)), LAYOUTS[layout](values)
    assert bits(fetched(x)) == bits(expected)
    copied = zc.convert(x, to=name, copy=True)
    assert not zc.shares_memory(x, copied)
    assert zc.view(copied).c_contiguous
    assert bits(fetched(copied)) == bits(expected)


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "complex128", "bool"])
@pytest.mark.parametrize(("source", "target"), [("cupy", "numba"), ("numba", "cupy")])
def test_layouts_are_kept_between_cupy_and_numba(machine, source, target, dtype, layout, copy) -> None:
    values = sample(to_numpy(by_name(dtype)), (4, 6))
    x, expected = LAYOUTS[layout](put(source, values)), LAYOUTS[layout](values)
    plan = zc.explain(x, target, copy=copy)
    if not plan.possible:
        assert copy is False
        assert "reversed" in layout
        return
    result = zc.convert(x, to=target, copy=copy)
    assert plan.zero_copy == zc.shares_memory(x, result)
    assert not (copy is True and plan.zero_copy)
    if plan.zero_copy:
        assert zc.view(x).ptr == zc.view(result).ptr
    assert bits(fetched(result)) == bits(expected)
    assert result.dtype == values.dtype


@pytest.mark.parametrize("name", BOTH)
def test_broadcast_arrays_keep_their_strides(machine, name: str) -> None:
    """Numba's interface describes a broadcast array as row-major, so consumers would read past its end."""
    row = put(name, sample("f4", (3,)))
    wide = np.lib.stride_tricks.as_strided(row._host, (4, 3), (0, 4))
    x = zc.convert(row, to="numba")
    x._host, x.shape, x.strides = wide, wide.shape, wide.strides
    assert x.__cuda_array_interface__["strides"] is None, "the stub omits the strides, as Numba does"
    assert zc.view(x).strides == (0, 4)
    assert cuda_array_interface.read(describe_array(x).producer)[0].strides == (0, 4)
    result = zc.convert(x, to="cupy")
    assert result.strides == (0, 4)
    assert np.array_equal(fetched(result), wide)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_conversion_to_another_device_copies(machine, name: str, layout: str) -> None:
    values = sample("f4", (4, 6))
    x, expected = LAYOUTS[layout](put(name, values)), LAYOUTS[layout](values)
    for target in BOTH:
        plan = zc.explain(x, target, device="cuda:1")
        moved = zc.convert(x, to=target, device="cuda:1")
        assert not plan.zero_copy
        if expected.size:
            assert str(zc.view(moved).device) == "cuda:1"
        assert bits(fetched(moved)) == bits(expected)
        assert machine.current == 0, "the current device is the caller's"


@pytest.mark.parametrize("target", BOTH)
def test_misaligned_memory_is_copied_without_a_kernel(machine, target: str) -> None:
    record = np.zeros(5, np.dtype([("a", "u1"), ("b", "f4")]))
    record["b"] = [1, 2, 3, 4, 5]
    octets = put("cupy", record.view("u1"))
    field = SpeaksCAI(shape=(5,), strides=(5,), data=(octets.data.ptr + 1, False))
    assert fetched(field).tolist() == [1, 2, 3, 4, 5]
    result = zc.convert(field, to=target)
    assert not zc.shares_memory(field, result)
    assert fetched(result).tolist() == [1, 2, 3, 4, 5]


def test_misaligned_numba_array_is_copied(machine) -> None:
    octets = put("numba", np.arange(41, dtype="u1"))
    x = octets[1:].view("f4")
    copied = zc.convert(x, to="numba", copy=True)
    assert bits(fetched(copied)) == bytes(range(1, 41))
    assert zc.view(copied).is_aligned(4)


# -- streams over stubs ---------------------------------------------------------


def test_cupy_transfers_on_the_given_stream(machine) -> None:
    x = zc.convert(sample("f4"), to="cupy", stream=9)
    assert machine.log == [("array", 0, 9)]
    machine.log.clear()
    zc.convert(x, to="numpy", stream=9)
    # After the work on the array's own stream, which in turn waits for the copy.
    assert machine.log == [("record", 0), ("wait", 9, 0), ("get", 9), ("record", 9), ("wait", 0, 9)]
    machine.log.clear()
    zc.convert(x, to="numpy")
    assert machine.log == [("get", 0)]
    machine.log.clear()
    zc.convert(x, to="cupy", copy=True, stream=1)
    assert machine.log == [("kernel", 0)], "1 is the legacy default stream, which CuPy calls 0"
    machine.log.clear()
    zc.convert(x, to="cupy", copy=True, stream=9)
    assert machine.log == [("record", 0), ("wait", 9, 0), ("kernel", 9), ("record", 9), ("wait", 0, 9)]


def test_cupy_copies_where_it_would_alias_host_memory(machine, monkeypatch) -> None:
    """With CUPY_ENABLE_UMP=1, array() and get() alias memory that both the host and the GPU can read."""
    import cupy

    def over_host(host, order, blocking):
        memory = cupy.cuda.UnownedMemory(host.ctypes.data, host.nbytes, host, machine.current)
        return cupy.ndarray(host.shape, host.dtype, cupy.cuda.MemoryPointer(memory, 0), host.strides)

    monkeypatch.setenv("CUPY_ENABLE_UMP", "1")
    monkeypatch.setattr(cupy, "array", over_host)
    monkeypatch.setattr(cupy.ndarray, "get", lambda self: self._host)
    values = sample("f4", (4, 6))
    for _ in range(2):  # also without a fast path
        x = zc.convert(values, to="cupy")
        assert x.data.ptr != values.ctypes.data
        result = zc.convert(x, to="numpy")
        assert result.ctypes.data != x.data.ptr
        assert np.array_equal(result, values)


def test_cupy_to_another_device_orders_both_ways(machine) -> None:
    x = put("cupy", sample("f4"))
    machine.log.clear()
    zc.convert(x, to="cupy", device="cuda:1", stream=9)
    assert machine.log == [("record", 0), ("wait", 9, 0), ("copy", 0, 1, 9), ("record", 9), ("wait", 0, 9)]


def test_cupy_requests_capsules_with_its_current_stream(machine) -> None:
    import cupy

    x = SpeaksDLPack(sample("f4"))
    with cupy.cuda.Stream(5):
        zc.convert(x, to="cupy")
    assert x.streams[-1] == 5


def test_numba_transfers_on_the_given_stream(machine) -> None:
    x = zc.convert(sample("f4"), to="numba", stream=9)
    # After earlier uses of its memory, which allocators order on the default stream.
    assert machine.log == [("record", 1), ("wait", 9), ("copy_to_device", 0, 9), ("synchronize", 9)]
    assert x.stream.handle.value == 9, "an array created on a stream is bound to it, as in Numba"
    machine.log.clear()
    zc.convert(x, to="numpy")
    assert machine.log == [("copy_to_host", 9), ("synchronize", 9)]
    machine.log.clear()
    zc.convert(x, to="numpy", stream=5)
    assert machine.log == [("record", 9), ("wait", 5), ("copy_to_host", 5), ("synchronize", 5)]
    machine.log.clear()
    assert zc.convert(sample("f4"), to="numba").stream == 0
    assert machine.log == [("to_device", 0, 0)]


def test_numba_copies_on_the_given_stream(machine) -> None:
    x = put("numba", sample("f4"))
    machine.log.clear()
    assert zc.convert(x, to="numba", copy=True, stream=5).stream == 0
    # The copy is bound to no stream, so the default one waits for it.
    assert machine.log == [("record", 1), ("wait", 5), ("record", 5), ("wait", 1)]
    machine.log.clear()
    zc.convert(x, to="numba", copy=True)
    assert machine.log == []


@pytest.mark.parametrize("dtype", HELD)
def test_numba_imports_and_holds_capsules_of_any_dtype(machine, dtype: str) -> None:
    """Numba does not import DLPack: the capsule is held, and passed through the CUDA Array Interface."""

    class Owner(np.ndarray):
        pass

    capsule_dtype = by_name(dtype)
    array = np.zeros((4, 6), capsule_dtype.storage).view(Owner)
    obj = SpeaksDLPack(array[1:, ::2], dtype=capsule_dtype)
    alive, ptr = weakref.ref(array), obj.array.ctypes.data
    del array
    plan, result = zc.explain(obj, "numba"), zc.convert(obj, to="numba")
    assert obj.streams[-1] == 1, "the legacy default stream"
    assert zc.view(result).ptr == ptr
    assert result.dtype == to_numpy(capsule_dtype)
    assert plan.zero_copy == zc.shares_memory(obj, result) is True
    del obj, plan
    gc.collect()
    assert alive() is not None
    del result
    gc.collect()
    assert alive() is None


def test_numba_orders_by_events(machine) -> None:
    obj = SpeaksCAI(sample("f4"), stream=5)
    assert zc.convert(obj, to="numba").stream == 0
    assert machine.log == [("record", 5), ("wait", 1)]
    machine.log.clear()
    assert zc.convert(obj, to="numba", stream=9).stream.handle.value == 9
    assert machine.log == [("record", 5), ("wait", 9)]
    machine.log.clear()
    zc.convert(obj, to="numba", stream=-1)
    assert machine.log == []


@pytest.mark.parametrize(("bound", "ready"), [(0, 1), (None, 1), (2, 2), (9, 9)])
def test_numba_exports_the_stream_of_pending_work(machine, bound, ready: int) -> None:
    """An array without a stream may have pending work: kernels without a stream run on the default one."""
    import numba

    x = put("numba", sample("f4"))
    x.stream = 0 if bound == 0 else numba.cuda.external_stream(bound)
    machine.log.clear()
    zc.convert(x, to="cupy", stream=7)
    assert machine.log == [("record", 0 if ready == 1 else ready), ("wait", 7, 0 if ready == 1 else ready)]


def test_numba_accepts_the_per_thread_default_stream(machine, monkeypatch) -> None:
    monkeypatch.setenv("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", "1")
    obj = SpeaksDLPack(sample("f4"))
    zc.convert(obj, to="numba")
    assert obj.streams[-1] == 2


def test_numba_copies_negative_strides(machine) -> None:
    obj = SpeaksCAI(sample("f4")[::-1])
    assert not zc.explain(obj, "numba").zero_copy
    with pytest.raises(zc.CopyRequiredError, match="negative strides"):
        zc.convert(obj, to="numba", copy=False)
    assert fetched(zc.convert(obj, to="numba")).tolist() == sample("f4")[::-1].tolist()


@pytest.mark.parametrize("name", BOTH)
def test_zero_size_arrays_are_converted(machine, name: str) -> None:
    x = put(name, np.empty((0, 5), "f4"))
    view = zc.view(x)
    assert (view.size, view.shape, str(view.device)) == (0, (0, 5), "cuda:0")
    for target in BOTH:
        assert fetched(zc.convert(x, to=target)).shape == (0, 5)
        assert fetched(zc.convert(x, to=target, copy=True)).shape == (0, 5)


@pytest.mark.parametrize("name", BOTH)
def test_records_and_dates_are_refused_by_name(machine, name: str) -> None:
    x = put(name, np.zeros(4, "i8"))
    for dtype in ("M8[s]", np.dtype([("a", "f4"), ("b", "i4")]), "S8"):
        with pytest.raises(zc.UnsupportedConversionError, match="no counterpart"):
            zc.convert(x.view(dtype), to="numpy")


@pytest.mark.parametrize("name", BOTH)
def test_frameworks_list_their_devices(machine, name: str) -> None:
    assert zc.frameworks()[name].devices == ("cuda:0", "cuda:1")
    with pytest.raises(zc.DeviceError, match="2 CUDA devices"):
        zc.convert(sample("f4"), to=name, device="cuda:2")
    with machine.on(1):
        assert str(zc.view(zc.convert(sample("f4"), to=name)).device) == "cuda:1", "the current device"


def test_cupy_device_objects_are_accepted(machine) -> None:
    import cupy

    assert str(zc.view(zc.convert(sample("f4"), to="cupy", device=cupy.cuda.Device(1))).device) == "cuda:1"


def test_cuda_runtime_error_is_a_device_error(machine, monkeypatch) -> None:
    """A driver too old for CuPy's CUDA: the driver works, and the runtime fails."""
    import cupy

    def refuse():
        raise RuntimeError("cudaErrorInsufficientDriver")

    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", refuse)
    with pytest.raises(zc.DeviceError, match="cudaErrorInsufficientDriver") as caught:
        zc.convert(sample("f4"), to="cupy")
    assert "cupy-cuda12x" in caught.value.remedy


def test_simulator_refuses_device_memory(machine, monkeypatch) -> None:
    monkeypatch.setattr("zerocopy._frameworks.numba._simulated", lambda: True)
    with pytest.raises(zc.DeviceError, match="simulator"):
        zc.convert(SpeaksDLPack(sample("f4")), to="numba")
