"""Compiled routes between frameworks on a device, over stand-ins: calls, streams, memory, refusals."""

from __future__ import annotations

import gc
import sys
import weakref
from itertools import product

import numpy as np
import pytest
from helpers import cuda_stubs
from helpers.device_sides import JAX_STREAM, SOURCES, TARGETS, Sides, counted

from zerocopy._native import core
from zerocopy.device import CUDA_HOST

pytest.importorskip("torch")
pytest.importorskip("jax")
if core is None:
    pytest.skip("needs the compiled core", allow_module_level=True)

PAIRS = [pair for pair in product(SOURCES, TARGETS) if pair[0] != pair[1]]


@pytest.fixture
def sides(monkeypatch):
    import jax
    import torch

    yield Sides(monkeypatch, torch, jax)
    cuda_stubs.forget()


def values(dtype: str = "f4", shape: tuple[int, ...] = (8, 16)) -> np.ndarray:
    """Return numbers, aligned to 256 bytes."""
    count = int(np.prod(shape))
    memory = np.zeros(count * np.dtype(dtype).itemsize + 256, "u1")
    start = -memory.ctypes.data % 256
    array = memory[start : start + count * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
    array[...] = np.arange(count).reshape(shape)
    return array


# -- calls --------------------------------------------------------------------------------

#: Calls of the frameworks' Python functions in one conversion, with equal streams. They may only fall. JAX's
#: stream differs from all others, so its rows include the order of two streams.
CEILINGS = {
    ("torch", "cupy"): 2,
    ("torch", "jax"): 3,
    ("torch", "numba"): 1,
    ("cupy", "torch"): 1,
    ("cupy", "jax"): 3,
    ("cupy", "numba"): 2,
    ("jax", "torch"): 1,
    ("jax", "cupy"): 3,
    ("jax", "numba"): 2,
    ("numba", "torch"): 1,
    ("numba", "cupy"): 3,
    ("numba", "jax"): 3,
    ("interface", "torch"): 1,
    ("interface", "cupy"): 3,
    ("interface", "jax"): 3,
    ("interface", "numba"): 2,
    ("dlpack", "torch"): 2,
    ("dlpack", "cupy"): 4,
    ("dlpack", "jax"): 4,
    ("dlpack", "numba"): 3,
}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_routed_conversion_calls_little(sides, source: str, target: str) -> None:
    array = values()
    obj = sides.make(source, array)
    route = sides.route(source, target, obj)
    route(obj)
    with counted() as counts:
        result = route(obj)
    assert sides.pointer(target, result) == array.ctypes.data
    assert len(counts.framework) <= CEILINGS[source, target], counts.framework
    is_ordered = target == "jax" and source in ("numba", "interface")
    assert counts.driver == (["order"] if is_ordered else [])


# -- streams ------------------------------------------------------------------------------


@pytest.mark.parametrize(("pending", "consumer"), [(0, 0), (7, 7), (0, 7), (7, 0), (7, 9)])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_consumers_stream_waits_unless_it_is_the_producers(
    sides, source: str, target: str, pending: int, consumer: int
) -> None:
    if target == "numba" and consumer != 0:
        pytest.skip("Numba has no current stream")
    obj = sides.make(source, values())
    route = sides.route(source, target, obj)
    if "cupy" in (source, target):  # one current stream, of which the source makes its own
        sides.set_stream("cupy", consumer if target == "cupy" else pending)
    for name, stream in ((source, pending), (target, consumer)):
        if name != "cupy" and (name == source or name == "torch"):
            sides.set_stream(name, stream, obj)
    sides.machine.log.clear()
    route(obj)
    first = pending or 1
    then = JAX_STREAM if target == "jax" else consumer or 1
    if source in ("cupy", "jax", "dlpack"):  # their exporters order streams
        assert sides.machine.log == [("export", then)]
    else:
        assert sides.machine.log == ([] if first == then else [("record", first), ("wait", then)])


def test_work_that_an_interface_does_not_mention(sides) -> None:
    """Version 3 without a stream has no pending work; in version 2, it may be on the default one."""
    for entries, expected in (
        ({"stream": None}, []),
        ({"version": 2, "stream": None}, [("record", 1), ("wait", 5)]),
        ({"stream": 2}, [("record", 2), ("wait", 5)]),
        ({"stream": 5}, []),
    ):
        obj = sides.make("interface", values())
        obj.entries.update(entries)
        route = sides.route("interface", "torch", obj)
        sides.api.stream = 5
        sides.machine.log.clear()
        route(obj)
        assert sides.machine.log == expected, entries


def test_kernels_of_numba_without_a_stream_run_on_its_default_one(sides, monkeypatch) -> None:
    """The interface of an array without a stream states that there is no pending work."""
    monkeypatch.setenv("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", "1")
    obj = sides.make("numba", values())
    sides.route("numba", "torch", obj)(obj)
    assert sides.machine.log == [("record", 2), ("wait", 1)]


@pytest.mark.parametrize("source", ["cupy", "jax", "dlpack"])
def test_producers_get_the_stream_of_the_consumer(sides, source: str) -> None:
    obj = sides.make(source, values())
    sides.api.stream = 5
    sides.route(source, "torch", obj)(obj)
    assert sides.machine.log == [("export", 5)]


def test_producers_with_the_exchange_api_are_taken_on_their_current_stream_only(sides) -> None:
    """The API orders no streams; for others, the slow path calls ``__dlpack__``."""
    exporter = core.ProducerExporter(sides.api.capsule, (1, 0))
    route = core.MemoryRoute(exporter, None, True, False, device_importer=sides.importer("cupy"))
    array = values()
    tensor = sides.torch.from_numpy(array)
    assert sides.pointer("cupy", route(tensor)) == array.ctypes.data
    sides.api.stream = 7
    with pytest.raises(BufferError):
        route(tensor)
    with sides.cupy.cuda.Stream(7):
        assert sides.pointer("cupy", route(tensor)) == array.ctypes.data


@pytest.mark.parametrize("stream", [0, -1, "1", 1.5])
def test_streams_that_the_interface_disallows_take_the_slow_path(sides, stream: object) -> None:
    obj = sides.make("interface", values())
    obj.entries["stream"] = stream
    with pytest.raises((BufferError, TypeError, ValueError)):
        sides.route("interface", "torch", obj)(obj)
    assert sides.machine.log == []


def test_an_error_of_the_order_is_no_result(sides, monkeypatch) -> None:
    from zerocopy.protocols import cuda_driver

    def fail(first: int, then: int, device: int) -> None:
        raise RuntimeError("no event")

    monkeypatch.setattr(cuda_driver, "order", fail)
    array = values()
    obj = sides.make("interface", array)
    obj.entries["stream"] = 7
    before = sys.getrefcount(obj)
    with pytest.raises(RuntimeError, match="no event"):
        sides.route("interface", "torch", obj)(obj)
    gc.collect()
    assert sys.getrefcount(obj) == before


# -- memory -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "f2", "f4", "f8", "c8", "c16", "i8", "u8"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_types_and_layouts_are_those_of_the_source(sides, source: str, target: str, dtype: str) -> None:
    array = values(dtype)
    for cut in (array, array[2:, ::2], array[3:4, :1], array[1]):
        obj = sides.make(source, cut)
        try:
            result = sides.route(source, target, obj)(obj)
        except Exception:  # noqa: BLE001 - after any exception, convert takes the slow path
            is_plain = cut.flags.c_contiguous and cut.ctypes.data % 16 == 0
            assert not is_plain or (source == "dlpack" and dtype == "?"), cut.strides
            continue
        assert sides.pointer(target, result) == cut.ctypes.data
        host = sides.values(target, result)
        assert (host.shape, host.dtype) == (cut.shape, cut.dtype)
        assert np.array_equal(host, cut)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_results_keep_their_source(sides, source: str, target: str) -> None:
    array = values()
    alive = weakref.ref(array.base)
    obj = sides.make(source, array)
    route = sides.route(source, target, obj)
    result = route(obj)
    sides.machine.owners.clear()
    del obj, array
    gc.collect()
    assert alive() is not None
    del result
    gc.collect()
    assert alive() is None


def test_a_broadcast_array_of_numba_keeps_its_strides(sides) -> None:
    """Its interface omits them."""
    row = np.arange(4.0)
    obj = sides.make("numba", np.broadcast_to(row, (3, 4)))
    assert obj.__cuda_array_interface__["strides"] is None
    result = sides.route("numba", "cupy", obj)(obj)
    assert result.strides == (0, 8)


# -- refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_device_memory_is_not_copied_by_a_route(sides, source: str, target: str) -> None:
    obj = sides.make(source, values())
    with pytest.raises(BufferError):
        sides.route(source, target, obj, copy=True)(obj)


@pytest.mark.parametrize("source", SOURCES)
def test_targets_without_devices_get_no_device_memory(sides, source: str) -> None:
    obj = sides.make(source, values())
    route = core.MemoryRoute(sides.exporter(source, obj), core.NDArrayImporter(), True, True)
    with pytest.raises(BufferError):
        route(obj)
    assert sides.machine.log == []


def test_host_memory_is_refused_by_importers_of_devices(sides) -> None:
    importer = sides.importer("cupy")
    route = core.MemoryRoute(core.NDArrayExporter(), None, True, False, device_importer=importer)
    with pytest.raises(BufferError):
        route(values())


def test_importers_without_streams_take_no_device_memory(sides) -> None:
    with pytest.raises(TypeError):
        core.MemoryRoute(core.NDArrayExporter(), None, True, False, device_importer=core.NDArrayImporter())
    with pytest.raises(TypeError):
        core.MemoryRoute(core.NDArrayExporter(), 3, True, False)


def test_capsules_of_another_device_are_refused(sides) -> None:
    """The exporter has ordered a stream of the device that it was expected on."""
    obj = sides.make("jax", values())
    route = sides.route("jax", "torch", obj)
    obj.device = CUDA_HOST
    with pytest.raises(BufferError):
        route(obj)


def test_only_the_current_device_has_a_fast_path(monkeypatch) -> None:
    import jax
    import torch

    sides = Sides(monkeypatch, torch, jax, devices=2)
    for source, target in (("cupy", "torch"), ("torch", "cupy"), ("torch", "numba")):
        obj = sides.make(source, values())
        route = sides.route(source, target, obj)
        route(obj)
        with sides.machine.on(1), pytest.raises(BufferError):
            route(obj)
    cuda_stubs.forget()


@pytest.mark.parametrize(
    "entries",
    [
        {"data": (0, False)},
        {"data": (3, False)},
        {"mask": object()},
        {"version": 1},
        {"shape": (2**62, 4)},
        {"shape": (-1,)},
        {"strides": (-4,), "shape": (8,)},
        {"typestr": ">f4"},
        {"typestr": "<M8"},
    ],
)
def test_interfaces_that_need_the_slow_path(sides, entries: dict) -> None:
    obj = sides.make("interface", values())
    obj.entries.update(entries)
    with pytest.raises((BufferError, TypeError, ValueError)):
        sides.route("interface", "torch", obj)(obj)
