"""Arrow memory reported as on a GPU: aliases, waits, copies, and the driver calls for them."""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa
import pytest
from helpers import cuda_stubs, cudf_stubs

import zerocopy as zc
from zerocopy.device import CUDA, CUDA_HOST, CUDA_MANAGED
from zerocopy.protocols import arrow_c, cuda_driver
from zerocopy.protocols.arrow_schema import pointer

EVENT = 0xE7E7


class OnDevice:
    """A pyarrow batch or array whose capsule reports a device."""

    def __init__(self, array, event=EVENT, device_type=CUDA, device_id=0, uncounted=False):
        self._array, self._says = array, (device_type, device_id)
        # sync_event is a host pointer to the event.
        self._event = ctypes.c_void_p(event) if event else None
        self._uncounted = uncounted

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        schema, capsule = self._array.__arrow_c_device_array__()
        whole = arrow_c.ArrowDeviceArray.from_address(pointer(capsule, arrow_c.DEVICE_ARRAY))
        whole.device_type, whole.device_id = self._says
        whole.sync_event = ctypes.addressof(self._event) if self._event else None
        if self._uncounted:
            for i in range(whole.array.n_children):
                whole.array.children[i].contents.null_count = -1
        return schema, capsule


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    yield cudf_stubs.install(monkeypatch)
    cuda_stubs.forget()


def batch(**columns):
    return pa.record_batch(columns)


def host(x):
    return zc.convert(x, to="numpy")


@pytest.mark.parametrize("target", ["cupy", "numba"])
def test_columns_are_aliased_after_their_event(machine, target: str) -> None:
    source = batch(a=pa.array([1, 2, 3]), f=pa.array([1.5, None, 2.5]))
    table = OnDevice(source)
    plan = zc.explain(table, target, columns=["a"])
    assert plan.zero_copy, str(plan)
    assert not machine.log, "explaining waits for nothing"
    result = zc.convert(table, to=target, columns=["a"])
    assert zc.view(result["a"]).ptr == source.column(0).buffers()[1].address
    assert host(result["a"]).tolist() == [1, 2, 3]
    assert ("wait", 1, EVENT, 0) in machine.log, "the legacy default stream waits, the host does not"
    assert not [entry for entry in machine.log if entry[0] in ("finish", "fetch")]


def test_consumer_stream_waits_for_the_event(machine) -> None:
    zc.convert(OnDevice(pa.array([1, 2])), to="cupy", stream=9)
    assert machine.log == [("wait", 1, EVENT, 0), ("record", 0), ("wait", 9, 0)]


def test_memory_without_event_needs_no_wait(machine) -> None:
    """ "NULL: safe to access without synchronization"."""
    zc.convert(OnDevice(pa.array([1, 2]), event=0), to="cupy", stream=9)
    assert machine.log == []


def test_slices_and_masks_have_the_right_offset(machine) -> None:
    source = pa.array([0, None, 2, 3, None, 5, 6, None, 8, 9])[2:9]
    table = OnDevice(source)
    with pytest.raises(zc.LossyConversionError, match="2 nulls"):
        zc.convert(table, to="cupy")
    values, mask = zc.convert(table, to="cupy", nulls="mask")
    assert zc.view(values).ptr == source.buffers()[1].address + 16
    assert host(mask).tolist() == [v is None for v in source.to_pylist()]
    assert str(zc.view(mask).device) == "cuda:0"
    filled = zc.convert(table, to="cupy", nulls=-1)
    assert host(filled).tolist() == [2, 3, -1, 5, 6, -1, 8]
    assert zc.convert(table, to="numpy", nulls=-1).tolist() == [2, 3, -1, 5, 6, -1, 8]
    assert not zc.explain(table, "cupy", nulls=-1).zero_copy


def test_mask_without_nulls_is_on_the_device_too() -> None:
    values, mask = zc.convert(OnDevice(pa.array([1, 2])), to="numba", nulls="mask")
    assert str(zc.view(mask).device) == str(zc.view(values).device) == "cuda:0"
    assert host(mask).tolist() == [False, False]


def test_device_null_count_of_minus_one_is_counted() -> None:
    table = OnDevice(batch(a=pa.array([1, None, 3])), uncounted=True)
    with pytest.raises(zc.LossyConversionError, match="column 'a' has 1 null"):
        zc.convert(table, to="cupy")


def test_booleans_are_unpacked() -> None:
    table = OnDevice(pa.array([True, False, True, None])[1:])
    plan = zc.explain(table, "cupy", nulls="mask")
    assert "packs booleans" in plan.leaves[".values"].reasons[0].why
    values, mask = zc.convert(table, to="cupy", nulls="mask")
    assert (host(values)[:2].tolist(), host(mask).tolist()) == ([False, True], [False, False, True])


def test_text_lists_and_tensors(machine) -> None:
    text = pa.array(["zero", "one", "two"])[1:]
    result = zc.convert(OnDevice(text), to="cupy", encode="bytes")
    with pytest.raises(
        zc.UnsupportedConversionError, match="codes of words are computed on the host"
    ) as caught:
        zc.convert(OnDevice(text), to="cupy", encode=True)
    assert caught.value.calls == ('zc.convert(x, "cupy", encode="bytes")',)
    assert zc.view(result.values).ptr == text.buffers()[2].address
    assert result.to_pylist() == ["one", "two"]
    fixed = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2))[1:]
    tensor = zc.convert(OnDevice(fixed), to="cupy")
    assert tensor.shape == (2, 2)
    assert zc.view(tensor).ptr == fixed.values.buffers()[1].address + 8
    assert host(OnDevice(fixed)).tolist() == [[3, 4], [5, 6]]
    lists = zc.convert(OnDevice(pa.array([[1], [2, 3]])), to="cupy", encode=True)
    assert (host(lists.values).tolist(), host(lists.offsets).tolist()) == ([1, 2, 3], [0, 1, 3])


def test_numpy_copies_are_made_by_the_driver_alone(machine) -> None:
    table = OnDevice(batch(a=pa.array([1, 2]), d=pa.array([0, 1], pa.date32())))
    plan = zc.explain(table, "numpy")
    assert not plan.zero_copy
    assert plan.leaves["['a']"].copied_bytes == 16
    result = zc.convert(table, to="numpy")
    assert result["a"].tolist() == [1, 2]
    assert result["d"].tolist() == np.array([0, 1], "M8[D]").tolist()
    assert ("fetch", 16, 1) in machine.log
    assert machine.log[0] == ("wait", 1, EVENT, 0)


@pytest.mark.parametrize("device_type", [CUDA_HOST, CUDA_MANAGED])
def test_host_waits_for_pinned_and_managed_memory(machine, device_type: int) -> None:
    source = pa.array([1, 2])
    result = zc.convert(OnDevice(source, device_type=device_type), to="numpy")
    assert result.ctypes.data == source.buffers()[1].address
    assert ("finish", EVENT, 0) in machine.log


@pytest.mark.parametrize("target", ["pyarrow", "pandas", "polars"])
def test_host_tables_refuse_device_memory(target: str) -> None:
    pytest.importorskip(target)
    table = OnDevice(batch(a=pa.array([1, 2])))
    with pytest.raises(zc.UnsupportedConversionError, match="column 'a' is on cuda:0"):
        zc.convert(table, to=target)


def test_description_is_a_view_of_device_memory() -> None:
    source = pa.array([1, 2])
    view = zc.view(OnDevice(source))
    assert (str(view.device), view.ptr) == ("cuda:0", source.buffers()[1].address)


def test_another_kind_of_device_is_refused() -> None:
    with pytest.raises(zc.DeviceError, match="device of type 10"):
        zc.convert(OnDevice(pa.array([1]), device_type=10), to="cupy")


# -- to cuDF ------------------------------------------------------------------


def test_device_arrow_is_aliased_by_cudf(machine) -> None:
    source = batch(
        a=pa.array([1, None, 3, 4])[1:],
        s=pa.array(["w", "x", None, "z"])[1:],
        v=pa.array([[1], [2, 3], [], None], pa.list_(pa.int32()))[1:],
        r=pa.StructArray.from_arrays([pa.array([1, 2, 3])], ["x"]),
        t=pa.array([0, 1, 2], pa.timestamp("us")),
    )
    table = OnDevice(source, uncounted=True)
    plan = zc.explain(table, "cudf")
    assert plan.zero_copy, str(plan)
    result = zc.convert(table, to="cudf")
    assert list(result) == ["a", "s", "v", "r", "t"]
    assert result["a"]._col.null_count() == 1, "cuDF would drop the mask for a null count of -1"
    assert result["a"]._col.data().ptr == source.column(0).buffers()[1].address
    assert result["s"]._col.data().ptr == source.column(1).buffers()[2].address
    for name in ("a", "s", "v", "t"):
        assert cudf_stubs.to_arrow(result[name]._col).to_pylist() == source[name].to_pylist()
    assert ("wait", 1, EVENT, 0) in machine.log
    assert "from_arrow" not in machine.log


def test_device_booleans_are_copied_by_cudf(machine) -> None:
    table = OnDevice(batch(b=pa.array([True, None, False, True])[1:]))
    assert "bits" in zc.explain(table, "cudf").leaves["['b']"].reasons[0].why
    result = zc.convert(table, to="cudf")
    assert cudf_stubs.to_arrow(result["b"]._col).to_pylist() == [None, False, True]
    assert "mask_to_bools" in machine.log


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a"]).dictionary_encode(),
        pa.array([[1]], pa.large_list(pa.int8())),
        pa.array([[1]], pa.list_(pa.int8(), 1)),
        pa.array([1], pa.timestamp("s", "UTC")),
        pa.array([b"x"]),
    ],
    ids=lambda a: str(a.type),
)
def test_device_types_that_cudf_does_not_alias(array) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="column 'x' is "):
        zc.convert(OnDevice(batch(x=array)), to="cudf")


# -- the driver ---------------------------------------------------------------


class Driver:
    """The functions of libcuda that are called: it logs calls, and copies with memmove."""

    def __init__(self, current=None, fails=""):
        self.current, self.fails, self.log = current, fails, []

    def __getattr__(self, name):
        def call(*args):
            self.log.append((name, *[getattr(a, "value", None) for a in args]))
            if name == self.fails:
                return 400
            if name == "cuCtxGetDevice":
                if self.current is None:
                    return 201
                args[0]._obj.value = self.current
            if name in ("cuDeviceGetCount", "cuEventCreate", "cuDevicePrimaryCtxRetain"):
                args[0]._obj.value = 2
            if name == "cuDeviceGet":
                args[0]._obj.value = args[1].value
            if name == "cuMemcpyDtoHAsync_v2":
                ctypes.memmove(args[0], args[1].value, args[2].value)
            return 1 if name == "cuGetErrorName" else 0

        call.__name__ = name
        return call

    @property
    def calls(self):
        return [entry[0] for entry in self.log if entry[0] not in ("cuInit", "cuDeviceGetCount")]


@pytest.fixture
def driver(monkeypatch):
    monkeypatch.undo()

    def install(**options):
        library = Driver(**options)
        monkeypatch.setattr(cuda_driver, "driver", lambda: library)
        return library

    return install


def test_the_driver_fetches_in_the_context_of_the_device(driver) -> None:
    library = driver(current=1)
    device_memory, host_memory = np.arange(4, dtype="i8"), np.zeros(4, "i8")
    cuda_driver.fetch(host_memory.ctypes.data, device_memory.ctypes.data, 32, 1, 1)
    assert host_memory.tolist() == [0, 1, 2, 3]
    assert library.calls == ["cuCtxGetDevice", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"]
    assert library.log[-1] == ("cuStreamSynchronize", 1)


@pytest.mark.parametrize("current", [None, 0])
def test_another_device_has_its_primary_context_made_current(driver, current) -> None:
    library = driver(current=current)
    cuda_driver.wait(1, EVENT, 1)
    assert library.calls == [
        "cuCtxGetDevice",
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuCtxPushCurrent_v2",
        "cuStreamWaitEvent",
        "cuCtxPopCurrent_v2",
        "cuDevicePrimaryCtxRelease_v2",
    ]
    assert ("cuStreamWaitEvent", 1, EVENT, 0) in library.log


def test_streams_are_ordered_by_a_temporary_event(driver) -> None:
    library = driver(current=0)
    cuda_driver.order(5, 1, 0)
    assert library.calls[1:] == ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy_v2"]
    assert ("cuEventRecord", 2, 5) in library.log
    assert ("cuStreamWaitEvent", 1, 2, 0) in library.log
    cuda_driver.finish(EVENT, 0)
    assert library.log[-1] == ("cuEventSynchronize", EVENT)


def test_driver_error_raises_device_error(driver) -> None:
    library = driver(current=None, fails="cuStreamWaitEvent")
    with pytest.raises(zc.DeviceError, match="returned an error"):
        cuda_driver.wait(1, EVENT, 0)
    assert library.calls[-2:] == ["cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRelease_v2"]


def test_device_memory_without_a_driver_is_an_error(driver, monkeypatch) -> None:
    monkeypatch.setattr(cuda_driver, "driver", lambda: None)
    with pytest.raises(zc.DeviceError, match="no NVIDIA driver"):
        zc.convert(OnDevice(pa.array([1, 2])), to="numpy")
