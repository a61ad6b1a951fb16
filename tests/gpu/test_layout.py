"""AoS <-> SoA on a GPU: values against NumPy, bit for bit; buffers of other frameworks; streams."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
from helpers.gpu_arrays import MARKS, InterfaceAlone, free_bytes, have, side
from helpers.layout_cases import ON_DEVICE, column, records, without_padding

import zerocopy as zc
from zerocopy.layout.schema import leaves

pytestmark = [*MARKS]


class _Later:
    """A module that is imported at the first use of one of its names.

    Collecting this file must not start CUDA: the tests of pools and of forks are collected with it.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


cuda = _Later("numba.cuda")
plans = _Later("zerocopy.layout.cuda.tile_plan")
device_tables = _Later("zerocopy.layout.cuda.transposition")
transposition = _Later("zerocopy.layout.cuda.transposition")


@pytest.fixture(autouse=True, scope="module")
def _numba() -> None:
    if importlib.util.find_spec("numba") is None:
        pytest.skip("Numba is not installed")
    if not cuda.is_available():
        pytest.skip("Numba finds no GPU, or no NVVM: see numba -s")


def aos_to_soa(*arguments: Any, **options: Any) -> Any:
    return transposition.aos_to_soa(*arguments, **options)


def soa_to_aos(*arguments: Any, **options: Any) -> Any:
    return transposition.soa_to_aos(*arguments, **options)


LENGTHS = (0, 1, 63, 64, 65, 127, 1000, 100_003)


def same(result: Any, expected: np.ndarray) -> bool:
    """Compare as bytes, because Numba copies only types that it supports."""
    nbytes = result.size * result.dtype.itemsize
    if nbytes != expected.nbytes:
        return False
    if not nbytes:
        return True
    pointer, _ = result.__cuda_array_interface__["data"]
    octets = cuda.as_cuda_array(Octets(pointer, nbytes, result), sync=False)
    cuda.synchronize()
    return octets.copy_to_host().tobytes() == expected.tobytes()


class Octets:
    """An array at an address that has only the interface."""

    def __init__(self, pointer: int, nbytes: int, owner: Any, typestr: str = "|u1", **entries: Any):
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (nbytes // np.dtype(typestr).itemsize,),
            "typestr": typestr,
            "data": (pointer, False),
            "version": 3,
            "stream": None,
            **entries,
        }


def check(rows: np.ndarray, shift: int = 0) -> None:
    dtype = rows.dtype
    field_leaves = leaves(dtype)
    memory = cuda.to_device(np.concatenate([np.zeros(shift, np.uint8), rows.view(np.uint8)]))
    result = aos_to_soa(memory[shift:] if shift else memory, field_leaves, dtype.itemsize)
    for leaf, column_on_device in zip(field_leaves, result, strict=True):
        assert column_on_device.dtype == leaf.dtype
        assert column_on_device.shape == (len(rows), *leaf.shape)
        assert same(column_on_device, column(rows, leaf)), leaf
    back = soa_to_aos(result, field_leaves, dtype.itemsize)
    assert same(back, without_padding(rows))
    if not len(rows):
        return
    whole = cuda.to_device(np.full(rows.nbytes + 64, 0xAB, np.uint8))
    out = whole[8 + shift : 8 + shift + rows.nbytes]
    assert soa_to_aos(result, field_leaves, dtype.itemsize, out=out) is out
    host = whole.copy_to_host()
    assert (host[: 8 + shift] == 0xAB).all()
    assert (host[8 + shift + rows.nbytes :] == 0xAB).all()
    assert host[8 + shift : 8 + shift + rows.nbytes].tobytes() == without_padding(rows).tobytes()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("layout", ON_DEVICE)
def test_records_of_every_length_are_converted(layout: str, length: int) -> None:
    dtype = ON_DEVICE[layout]
    check(records(dtype, length if dtype.itemsize < 1000 else length // 10))


@pytest.mark.parametrize("layout", ["x, y, z: f4", "particle", "particle, aligned", "64 x f4", "one u1"])
def test_a_million_records_are_converted(layout: str) -> None:
    check(records(ON_DEVICE[layout], 1 << 20))


@pytest.mark.parametrize("shift", range(1, 16))
@pytest.mark.parametrize("layout", ON_DEVICE)
def test_records_may_start_at_any_address(layout: str, shift: int) -> None:
    check(records(ON_DEVICE[layout], 777), shift)


@pytest.mark.parametrize("shift", range(8))
@pytest.mark.parametrize("layout", ON_DEVICE)
def test_columns_may_start_at_any_multiple_of_their_items(layout: str, shift: int) -> None:
    dtype = ON_DEVICE[layout]
    rows, field_leaves = records(dtype, 777), leaves(dtype)
    outs, memories = [], []
    for leaf in field_leaves:
        item = min(8, leaf.dtype.itemsize & -leaf.dtype.itemsize)
        size = 777 * leaf.width
        memory = cuda.to_device(np.full(size + 80, 0xAB, np.uint8))
        part = memory[8 + shift * item : 8 + shift * item + size].view(leaf.dtype)
        outs.append(part.reshape(777, *leaf.shape) if leaf.shape else part)
        memories.append((memory, 8 + shift * item, size))
    assert aos_to_soa(cuda.to_device(rows.view(np.uint8)), field_leaves, dtype.itemsize, out=outs) == outs
    for leaf, out, (memory, start, size) in zip(field_leaves, outs, memories, strict=True):
        assert same(out, column(rows, leaf)), leaf
        host = memory.copy_to_host()
        assert (host[:start] == 0xAB).all()
        assert (host[start + size :] == 0xAB).all()
    assert same(soa_to_aos(outs, field_leaves, dtype.itemsize), without_padding(rows))


def test_selected_fields_are_converted() -> None:
    for name, fields in (
        ("64 x f4", ("f3", "f40")),
        ("particle", ("type", "m")),
        ("long", ("k", "s")),
    ):
        dtype = ON_DEVICE[name]
        rows, field_leaves = records(dtype, 5000), leaves(dtype, fields)
        result = aos_to_soa(cuda.to_device(rows.view(np.uint8)), field_leaves, dtype.itemsize)
        for leaf, column_on_device in zip(field_leaves, result, strict=True):
            assert same(column_on_device, column(rows, leaf)), leaf


def test_columns_are_aligned_to_256_bytes() -> None:
    dtype = ON_DEVICE["nested, text"]
    result = aos_to_soa(cuda.to_device(records(dtype, 70).view(np.uint8)), leaves(dtype), dtype.itemsize)
    assert all(c.__cuda_array_interface__["data"][0] % 256 == 0 for c in result)


def test_structured_arrays_are_accepted() -> None:
    dtype = ON_DEVICE["x, y, z: f4"]
    rows, field_leaves = records(dtype, 1000), leaves(dtype)
    result = aos_to_soa(cuda.to_device(rows), field_leaves, 12)
    assert all(same(c, column(rows, leaf)) for leaf, c in zip(field_leaves, result, strict=True))
    out = cuda.to_device(np.zeros(1000, dtype))
    assert soa_to_aos(result, field_leaves, 12, out=out) is out
    assert same(out, without_padding(rows))


def test_offsets_past_four_gigabytes_are_right() -> None:
    """Offsets of more than 32 bits, in records and in columns; samples are compared on the device."""
    dtype = np.dtype([("a", "u4"), ("b", "u1", (8,)), ("c", "u1")])
    length = (5 << 30) // dtype.itemsize
    if free_bytes() < 20 << 30:
        pytest.skip("needs 20 GiB of GPU memory")
    field_leaves = leaves(dtype)
    pattern = records(dtype, 1 << 20)
    source = cuda.device_array(length * dtype.itemsize, np.uint8)
    device_pattern = cuda.to_device(pattern.view(np.uint8))
    for start in range(0, length, 1 << 20):
        count = min(1 << 20, length - start)
        part = source[start * dtype.itemsize : (start + count) * dtype.itemsize]
        part.copy_to_device(device_pattern[: count * dtype.itemsize])
    result = aos_to_soa(source, field_leaves, dtype.itemsize)
    back = soa_to_aos(result, field_leaves, dtype.itemsize)
    for start in (0, (2 << 30) // 13, (4 << 30) // 13 - 500, length - 1000):
        index = np.arange(start, start + 1000) % (1 << 20)
        for leaf, column_on_device in zip(field_leaves, result, strict=True):
            assert same(column_on_device[start : start + 1000], column(pattern, leaf)[index]), (leaf, start)
        part = back[start * dtype.itemsize : (start + 1000) * dtype.itemsize]
        assert same(part, pattern[index])


def test_records_of_megabytes_are_converted() -> None:
    """Offsets within a tile would need more than 32 bits if it did not have fewer records."""
    size, length = 16 << 20, 520
    if free_bytes() < 20 << 30:
        pytest.skip("needs 20 GiB of GPU memory")
    dtype = np.dtype({"names": ["x"], "formats": ["f4"], "offsets": [8], "itemsize": size})
    values = np.arange(length, dtype="f4") + 1
    source = cuda.device_array(length * size, np.uint8)
    for i in range(length):
        source[i * size + 8 : i * size + 12].copy_to_device(values[i : i + 1].view(np.uint8))
    (result,) = aos_to_soa(source, leaves(dtype), size)
    assert same(result, values)
    back = soa_to_aos([result], leaves(dtype), size)
    for i in (0, 1, 255, 256, 257, length - 1):
        expected = np.zeros(16, np.uint8)
        expected[8:12] = values[i : i + 1].view(np.uint8)
        assert same(back[i * size : i * size + 16], expected), i


# -- other frameworks' buffers ----------------------------------------------------


@pytest.mark.parametrize("name", ["cupy", "torch", "jax", "numba"])
def test_buffers_of_other_frameworks_are_accepted(name: str) -> None:
    framework = side(name)
    dtype = ON_DEVICE["particle"]
    rows, field_leaves = records(dtype, 10_000), leaves(dtype)
    result = aos_to_soa(framework.make(rows.view(np.uint8)), field_leaves, dtype.itemsize)
    assert all(same(c, column(rows, leaf)) for leaf, c in zip(field_leaves, result, strict=True))


@pytest.mark.parametrize("name", ["cupy", "torch"])
def test_slices_of_buffers_are_accepted(name: str) -> None:
    framework = side(name)
    dtype = ON_DEVICE["i8, f8, i4, u1"]
    rows, field_leaves = records(dtype, 1000), leaves(dtype)
    buffer = framework.make(rows.view(np.uint8))[21 * 3 :]
    result = aos_to_soa(buffer, field_leaves, 21)
    assert all(same(c, column(rows[3:], leaf)) for leaf, c in zip(field_leaves, result, strict=True))


@pytest.mark.parametrize("name", ["cupy", "torch"])
def test_columns_and_out_of_other_frameworks_are_accepted(name: str) -> None:
    framework = side(name)
    dtype = np.dtype([("a", "i8"), ("b", "f4"), ("c", "u1"), ("d", "f8", (3,))])
    rows, field_leaves = records(dtype, 1001), leaves(dtype)
    # As integers, because a conversion of floats may change the bits of NaNs.
    unsigned = {8: "i8", 4: "i4", 1: "u1"}
    device_columns = [
        framework.view_as(framework.make(column(rows, leaf).view(unsigned[leaf.dtype.itemsize])), leaf.dtype)
        for leaf in field_leaves
    ]
    back = framework.make(np.zeros(rows.nbytes, np.uint8))
    assert soa_to_aos(device_columns, field_leaves, dtype.itemsize, out=back) is back
    assert framework.values(back).tobytes() == rows.tobytes()
    outs = [framework.make(np.zeros((1001, *leaf.shape), leaf.dtype)) for leaf in field_leaves]
    aos_to_soa(back, field_leaves, dtype.itemsize, out=outs)
    for leaf, out in zip(field_leaves, outs, strict=True):
        assert framework.values(framework.view_as(out, unsigned[leaf.dtype.itemsize])).tobytes() == (
            column(rows, leaf).tobytes()
        )


# -- streams ----------------------------------------------------------------------

BUSY_CYCLES = 400_000_000  # 200 ms at 2 GHz


def _torch() -> Any:
    if not have("torch"):
        pytest.skip("the test needs torch to keep a stream busy")
    return importlib.import_module("torch")


@pytest.fixture(autouse=True)
def _no_cleanup() -> Any:
    """Make Numba free memory between the tests only, because that waits for the device."""
    with cuda.defer_cleanup():
        yield
    cuda.current_context().memory_manager.deallocations.clear()


def export_with_stream(producer: str, buffer: Any, on: Any) -> Any:
    """Return a tensor on which a stream works, as a producer that exports the stream in one way."""
    if producer == "torch":  # only through __dlpack__: its interface has no stream
        return buffer
    if producer == "interface":
        return InterfaceAlone(buffer, stream=on.cuda_stream, version=3)
    interface = Octets(buffer.data_ptr(), buffer.numel(), buffer, stream=on.cuda_stream)
    return cuda.as_cuda_array(interface, sync=False)


@pytest.mark.parametrize("stream_form", ["handle", "object", "numba"])
@pytest.mark.parametrize("producer", ["torch", "interface", "numba"])
def test_kernel_waits_for_the_producers_stream(producer: str, stream_form: str) -> None:
    """One stream writes the records late, the kernel runs on another; the host waits for neither."""
    torch = _torch()
    dtype = ON_DEVICE["x, y, z: f4"]
    rows, field_leaves = records(dtype, 1 << 20), leaves(dtype)
    fresh = torch.from_numpy(rows.view(np.uint8).copy()).cuda()
    outs = [cuda.to_device(np.zeros(len(rows), "f4")) for _ in range(3)]
    for cycles in (1000, BUSY_CYCLES):  # the first iteration compiles
        buffer = torch.zeros_like(fresh)
        torch.cuda.synchronize()
        first, then = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(first):
            torch.cuda._sleep(cycles)
            buffer.copy_(fresh)
            exported = export_with_stream(producer, buffer, first)
            stream = {
                "handle": then.cuda_stream,
                "object": then,
                "numba": cuda.external_stream(then.cuda_stream),
            }[stream_form]
            aos_to_soa(exported, field_leaves, 12, out=outs, stream=stream)
        waited = first.query()
        then.synchronize()
        for leaf, out in zip(field_leaves, outs, strict=True):
            assert same(out, column(rows, leaf))
        assert cycles == 1000 or not waited, "the host or the whole device waited for the producer"


def test_producers_stream_waits_for_the_kernel() -> None:
    """The producer may change the source on its own stream at once, after the kernel has read it."""
    torch = _torch()
    dtype = ON_DEVICE["x, y, z: f4"]
    rows, field_leaves = records(dtype, 1 << 20), leaves(dtype)
    fresh = torch.from_numpy(rows.view(np.uint8).copy()).cuda()
    outs = [cuda.to_device(np.zeros(len(rows), "f4")) for _ in range(3)]
    for cycles in (1000, BUSY_CYCLES):
        buffer = fresh.clone()
        torch.cuda.synchronize()
        first, then = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(then):
            torch.cuda._sleep(cycles)
        exported = InterfaceAlone(buffer, stream=first.cuda_stream, version=3)
        aos_to_soa(exported, field_leaves, 12, out=outs, stream=then)
        with torch.cuda.stream(first):
            buffer.zero_()
        assert cycles == 1000 or not first.query()
        first.synchronize()
        then.synchronize()
        assert all(same(c, column(rows, leaf)) for leaf, c in zip(field_leaves, outs, strict=True))


def without_streams(rows: np.ndarray, torch: Any) -> tuple[list[Any], list[Octets], Octets]:
    """Return columns in torch's memory, views of them without a stream, and an `out` without one.

    So no stream waits for another; only work on the same stream is ordered.
    """
    fresh = [torch.from_numpy(column(rows, leaf).view(np.uint8).copy()).cuda() for leaf in leaves(rows.dtype)]
    empty = [torch.zeros_like(each) for each in fresh]
    views = [
        Octets(each.data_ptr(), each.numel(), each, leaf.dtype.str)
        for each, leaf in zip(empty, leaves(rows.dtype), strict=True)
    ]
    out = torch.zeros(rows.nbytes, dtype=torch.uint8, device="cuda")
    return list(zip(empty, fresh, strict=True)), views, Octets(out.data_ptr(), rows.nbytes, out)


def test_kernel_runs_on_the_given_stream() -> None:
    """That stream fills the columns late; on another stream the kernel would read them earlier."""
    torch = _torch()
    dtype = ON_DEVICE["x, y, z: f4"]
    rows, field_leaves = records(dtype, 100_003), leaves(dtype)
    pairs, device_columns, out = without_streams(rows, torch)
    soa_to_aos(device_columns, field_leaves, dtype.itemsize, out=out)
    torch.cuda.synchronize()
    busy = torch.cuda.Stream()
    with torch.cuda.stream(busy):
        torch.cuda._sleep(BUSY_CYCLES)
        for empty, fresh in pairs:
            empty.copy_(fresh)
    soa_to_aos(device_columns, field_leaves, dtype.itemsize, out=out, stream=busy)
    assert not busy.query(), "the host waited"
    busy.synchronize()
    assert out.owner.cpu().numpy().tobytes() == without_padding(rows).tobytes()


def test_plan_table_is_freed_after_the_kernel() -> None:
    """Numba frees it on its default stream, where a pool reuses memory at once, so that stream waits."""
    torch = _torch()
    dtype = ON_DEVICE["x, y, z: f4"]
    rows, field_leaves = records(dtype, 1000), leaves(dtype)
    _, device_columns, out = without_streams(rows, torch)
    soa_to_aos(device_columns, field_leaves, dtype.itemsize, out=out)
    torch.cuda.synchronize()
    busy, default = torch.cuda.Stream(), torch.cuda.default_stream()
    with torch.cuda.stream(busy):
        torch.cuda._sleep(BUSY_CYCLES)
    soa_to_aos(device_columns, field_leaves, dtype.itemsize, out=out, stream=busy)
    assert default.query(), "the default stream waits unnecessarily"
    device_tables.device_table.cache_clear()
    assert not default.query()
    assert not busy.query(), "the host waited"
    torch.cuda.synchronize()


def test_new_columns_wait_for_numbas_default_stream() -> None:
    """Numba's memory may come from a pool, and earlier work on its default stream may still write to it."""
    torch = _torch()
    dtype = ON_DEVICE["x, y, z: f4"]
    rows, field_leaves = records(dtype, 1000), leaves(dtype)
    memory = torch.from_numpy(rows.view(np.uint8).copy()).cuda()
    device_records = Octets(memory.data_ptr(), rows.nbytes, memory)
    on, default = torch.cuda.Stream(), torch.cuda.default_stream()
    for cycles in (1000, BUSY_CYCLES):
        torch.cuda.synchronize()
        earlier, finished = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(default):
            torch.cuda._sleep(cycles)
            earlier.record(default)
        result = aos_to_soa(device_records, field_leaves, 12, stream=on)
        finished.record(on)
        torch.cuda.synchronize()
        # Not by query(): the driver may wait as it allocates.
        assert cycles == 1000 or earlier.elapsed_time(finished) > 0, "the kernel overtook the earlier work"
        assert all(same(c, column(rows, leaf)) for leaf, c in zip(field_leaves, result, strict=True))


def test_results_are_bound_to_the_stream() -> None:
    torch = _torch()
    dtype = ON_DEVICE["nested, text"]
    rows, field_leaves = records(dtype, 100), leaves(dtype)
    on = torch.cuda.Stream()
    result = aos_to_soa(cuda.to_device(rows.view(np.uint8)), field_leaves, dtype.itemsize, stream=on)
    assert {c.__cuda_array_interface__["stream"] for c in result} == {on.cuda_stream}
    back = soa_to_aos(result, field_leaves, dtype.itemsize, stream=on)
    assert back.__cuda_array_interface__["stream"] == on.cuda_stream
    assert same(back, without_padding(rows))
    unbound = aos_to_soa(cuda.to_device(rows.view(np.uint8)), field_leaves, dtype.itemsize)
    assert {c.__cuda_array_interface__["stream"] for c in unbound} == {None}


def test_small_grids_do_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    dtype = ON_DEVICE["x, y, z: f4"]
    aos_to_soa(cuda.to_device(records(dtype, 3).view(np.uint8)), leaves(dtype), 12)
    assert not [w for w in recwarn if "utilization" in str(w.message)]


def test_each_kernel_is_compiled_once() -> None:
    """One kernel per direction with and one without shared memory serve all record types."""
    from zerocopy.layout.cuda import kernels

    for name in ON_DEVICE:
        check(records(ON_DEVICE[name], 65))
    for kernel in (kernels.to_columns, kernels.to_rows, kernels.to_columns_direct, kernels.to_rows_direct):
        assert len(kernel.overloads) == 1
    assert plans.tile_plan(tuple(leaves(ON_DEVICE["long"])), ON_DEVICE["long"].itemsize).shared == 0


def test_tensors_that_require_gradients_are_refused() -> None:
    x = _torch().ones(5, device="cuda", requires_grad=True)
    with pytest.raises(zc.UnsupportedConversionError, match="requires grad") as caught:
        zc.soa_to_aos({"x": x})
    assert "detach" in caught.value.remedy
