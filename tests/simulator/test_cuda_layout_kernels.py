"""The CUDA kernels under Numba's simulator, against NumPy, bit for bit.

    NUMBA_ENABLE_CUDASIM=1 python -m pytest tests/simulator

The simulator runs one Python thread per thread of a block, so most tests use blocks of 64
instead of 256 threads; the kernels are the same.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from helpers.layout_cases import ON_DEVICE, column, records, without_padding
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy.layout.schema import FieldLeaf, leaves

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip(
        "the simulator is off: NUMBA_ENABLE_CUDASIM=1 python -m pytest tests/simulator",
        allow_module_level=True,
    )
cuda = pytest.importorskip("numba.cuda")

from zerocopy.layout.cuda import (  # noqa: E402
    kernels,
    memory,
    tile,
    transposition,
)
from zerocopy.layout.cuda.tile_plan import (  # noqa: E402
    WARP,
    tile_plan,
)
from zerocopy.layout.cuda.transposition import aos_to_soa, soa_to_aos  # noqa: E402

assert ON_DEVICE["particle"].itemsize == 59
assert ON_DEVICE["particle, aligned"].itemsize == 64


@pytest.fixture(autouse=True)
def _small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "whole_blocks" not in request.node.name:
        for module, name, value in (
            (transposition, "THREADS", 64),
            (tile, "THREADS", 64),
            (kernels, "_WARPS", 64 // WARP),
        ):
            monkeypatch.setattr(module, name, value)


def on_device(array: np.ndarray, shift: int = 0) -> object:
    """Return an array's bytes on the device, `shift` bytes after a multiple of 8."""
    octets = array.reshape(-1).view(np.uint8)
    buffer = cuda.device_array(len(octets) + 32, np.uint8)
    start = -buffer.__array_interface__["data"][0] % 8 + shift
    buffer[start : start + len(octets)] = octets
    return buffer[start : start + len(octets)]


def check_columns(result: list, rows: np.ndarray, wanted: list[FieldLeaf]) -> None:
    assert len(result) == len(wanted)
    for leaf, values in zip(wanted, result, strict=True):
        assert values.dtype == leaf.dtype
        assert tuple(values.shape) == (len(rows), *leaf.shape)
        assert values.copy_to_host().tobytes() == column(rows, leaf).tobytes(), leaf


def check_rows(result: object, rows: np.ndarray) -> None:
    expected = without_padding(rows)
    values = result.copy_to_host()
    assert values.dtype == np.uint8
    assert values.shape == (expected.size,)
    wrong = np.flatnonzero(values != expected.reshape(-1))
    assert not len(wrong), (
        f"byte {wrong[0] % rows.dtype.itemsize} of record {wrong[0] // rows.dtype.itemsize}"
    )


def check_both(dtype: np.dtype, length: int, shift: int = 0) -> None:
    rows, all_leaves = records(dtype, length), leaves(dtype)
    result = aos_to_soa(on_device(rows, shift), all_leaves, dtype.itemsize)
    check_columns(result, rows, all_leaves)
    # From columns that NumPy made, not from the kernels'.
    sources = [cuda.to_device(column(rows, leaf)) for leaf in all_leaves]
    check_rows(soa_to_aos(sources, all_leaves, dtype.itemsize), rows)


# The quick tier runs each layout with a third of the lengths, one of which ends within a tile.
@pytest.mark.parametrize(("layout", "length"), [*sampled(3, [*ON_DEVICE], [0, 1, 64, 127, 65, 63])])
def test_lengths_around_a_tile_are_converted(layout: str, length: int) -> None:
    dtype = ON_DEVICE[layout]
    check_both(dtype, length if dtype.itemsize < 1000 else length // 8)


@pytest.mark.parametrize("layout", [name for (name,) in sampled(2, [*ON_DEVICE][:-1])])
def test_several_tiles_of_whole_blocks_are_converted(layout: str) -> None:
    dtype = ON_DEVICE[layout]
    rows = tile_plan(tuple(leaves(dtype)), dtype.itemsize).rows
    check_both(dtype, min(2 * rows + 3, max(1000, rows + 3)))


@pytest.mark.parametrize(
    ("layout", "shift"),
    [*sampled(2, ["x, y, z: f4", "particle", "big-endian, sub-array", "long"], [1, 4, 2, 7])],
)
def test_records_may_start_at_any_address(layout: str, shift: int) -> None:
    """Slices of a buffer; no byte outside is read or written."""
    dtype = ON_DEVICE[layout]
    all_leaves = leaves(dtype)
    tile_rows = tile_plan(tuple(all_leaves), dtype.itemsize).rows
    length = 9 if layout == "long" else tile_rows + 3
    rows = records(dtype, length)
    check_columns(aos_to_soa(on_device(rows, shift), all_leaves, dtype.itemsize), rows, all_leaves)
    memory_block = on_device(np.full(rows.nbytes + 64, 0xAB, np.uint8))
    out = memory_block[16 + shift : 16 + shift + rows.nbytes]
    sources = [cuda.to_device(column(rows, leaf)) for leaf in all_leaves]
    assert soa_to_aos(sources, all_leaves, dtype.itemsize, out=out) is out
    check_rows(out, rows)
    octets = memory_block.copy_to_host()
    assert (octets[: 16 + shift] == 0xAB).all()
    assert (octets[16 + shift + rows.nbytes :] == 0xAB).all()


@pytest.mark.parametrize("layout", ["x, y, z: f4", "particle"])
def test_columns_at_new_addresses_need_no_new_plan(layout: str) -> None:
    """Columns in another order and at other distances, each at a multiple of 8, use the plan of the first."""
    dtype = ON_DEVICE[layout]
    all_leaves = leaves(dtype)
    plans: list[int] = []
    memory_block = on_device(np.zeros(2 * 131 * dtype.itemsize + 4096, np.uint8))
    for order, gap in ((1, 0), (-1, 64), (1, 128)):
        rows = records(dtype, 131)
        outs, start = {}, 0
        for leaf in all_leaves[::order]:
            size = 131 * leaf.width
            outs[leaf.name] = memory_block[start : start + size].view(leaf.dtype).reshape(131, *leaf.shape)
            start += -(-(size + gap) // 8) * 8
        columns = [outs[leaf.name] for leaf in all_leaves]
        aos_to_soa(on_device(rows), all_leaves, dtype.itemsize, out=columns)
        check_columns(columns, rows, all_leaves)
        check_rows(soa_to_aos(columns, all_leaves, dtype.itemsize), rows)
        plans.append(tile_plan.cache_info().misses)
    assert plans[0] == plans[1] == plans[2]


@pytest.mark.parametrize(
    ("layout", "shift"),
    [*sampled(2, ["i8, f8, i4, u1", "i8, f8, i4, u1, aligned", "nested, text", "halves"], [0, 1, 2, 3])],
)
def test_columns_may_start_at_any_multiple_of_their_items(layout: str, shift: int) -> None:
    dtype = ON_DEVICE[layout]
    rows, all_leaves = records(dtype, 131), leaves(dtype)
    memory_blocks, outs = [], []
    for leaf in all_leaves:
        item = min(8, leaf.dtype.itemsize & -leaf.dtype.itemsize)
        start, size = 8 + shift * item, 131 * leaf.width
        memory_block = on_device(np.full(size + 80, 0xAB, np.uint8))
        out = memory_block[start : start + size].view(leaf.dtype).reshape(131, *leaf.shape)
        memory_blocks.append((memory_block, start, size))
        outs.append(out)
    result = aos_to_soa(on_device(rows), all_leaves, dtype.itemsize, out=outs)
    assert all(a is b for a, b in zip(result, outs, strict=True))
    check_columns(outs, rows, all_leaves)
    for memory_block, start, size in memory_blocks:
        octets = memory_block.copy_to_host()
        assert (octets[:start] == 0xAB).all()
        assert (octets[start + size :] == 0xAB).all()
    check_rows(soa_to_aos(outs, all_leaves, dtype.itemsize), rows)


def test_columns_share_one_aligned_allocation() -> None:
    dtype = ON_DEVICE["8 x f4"]
    result = aos_to_soa(on_device(records(dtype, 100)), leaves(dtype), dtype.itemsize)
    starts = [c.__array_interface__["data"][0] for c in result]
    steps = np.diff(starts)
    assert (steps == steps[0]).all()
    assert steps[0] % 256 == 0
    mixed = ON_DEVICE["nested, text"]
    result = aos_to_soa(on_device(records(mixed, 70)), leaves(mixed), mixed.itemsize)
    starts = [c.__array_interface__["data"][0] for c in result]
    assert (np.diff(starts) > 0).all()
    assert all((start - starts[0]) % 256 == 0 for start in starts)


def test_selected_fields_are_converted() -> None:
    """For few fields of long records, only their sectors are read; else whole tiles."""
    for name, fields in (("64 x f4", ("f3", "f40")), ("particle", ("type", "m"))):
        dtype = ON_DEVICE[name]
        wanted = leaves(dtype, fields)
        rows = records(dtype, 70)
        check_columns(aos_to_soa(on_device(rows, 1), wanted, dtype.itemsize), rows, wanted)
    assert tile_plan(tuple(leaves(ON_DEVICE["64 x f4"], ("f3", "f40"))), 256).shared == 0
    assert tile_plan(tuple(leaves(ON_DEVICE["particle"], ("type", "m"))), 59).shared > 0


@pytest.mark.parametrize("itemsize", [12, 9000])
def test_last_of_overlapping_fields_is_written(itemsize: int) -> None:
    """All are read; the last one determines what is written, as with NumPy."""
    dtype = np.dtype(
        {
            "names": ["low", "whole", "mid", "end"],
            "formats": [">i4", ">u8", "u1", "i4"],
            "offsets": [0, 0, 5, itemsize - 5],
            "itemsize": itemsize,
        }
    )
    length = 67 if itemsize < 100 else 9
    rows, all_leaves = records(dtype, length), leaves(dtype)
    check_columns(aos_to_soa(on_device(rows), all_leaves, itemsize), rows, all_leaves)
    expected = np.zeros(length, dtype)
    sources = {name: records(dtype[name].newbyteorder("="), length) for name in dtype.names}
    for name, values in sources.items():
        expected[name] = values
    result = soa_to_aos([cuda.to_device(v) for v in sources.values()], all_leaves, itemsize)
    assert result.copy_to_host().tobytes() == expected.tobytes()


def test_leaves_without_bytes_are_converted() -> None:
    dtype = np.dtype([("none", "S0"), ("x", "f4"), ("empty", "i4", (0, 2))])
    rows, all_leaves = records(dtype, 5), leaves(dtype)
    result = aos_to_soa(on_device(rows), all_leaves, dtype.itemsize)
    assert [tuple(c.shape) for c in result] == [(5,), (5,), (5, 0, 2)]
    check_rows(soa_to_aos(result, all_leaves, dtype.itemsize), rows)
    alone = aos_to_soa(on_device(rows), all_leaves[2:], dtype.itemsize)
    assert [tuple(c.shape) for c in alone] == [(5, 0, 2)]
    assert aos_to_soa(on_device(rows), [], dtype.itemsize) == []


def test_structured_arrays_and_streams_are_accepted() -> None:
    dtype = ON_DEVICE["x, y, z: f4"]
    rows, all_leaves = records(dtype, 7), leaves(dtype)
    for stream in (None, 1, 2, -1, cuda.default_stream() if hasattr(cuda, "default_stream") else 1):
        check_columns(aos_to_soa(cuda.to_device(rows), all_leaves, 12, stream=stream), rows, all_leaves)
    out = cuda.to_device(np.zeros(7, dtype))
    sources = [cuda.to_device(column(rows, leaf)) for leaf in all_leaves]
    assert soa_to_aos(sources, all_leaves, 12, out=out) is out
    assert out.copy_to_host().tobytes() == rows.tobytes()


def test_offsets_past_two_and_four_gigabytes_are_right() -> None:
    """Runs only the last block of arrays whose other pages are never accessed, and take no memory."""
    from numba.cuda.simulator.kernel import (
        BlockManager,
        FakeCUDAModule,
        FakeWithinKernelCUDAArray,
        _push_kernel_context,
        swapped_cuda_module,
    )

    dtype = np.dtype([("a", "u4"), ("b", "u1", (5,))])
    all_leaves = tuple(leaves(dtype))
    length = (5 << 30) // dtype.itemsize
    planned = tile_plan(all_leaves, dtype.itemsize)
    block = length // planned.rows
    tail = records(dtype, length - block * planned.rows)
    assert len(tail)

    def run(kernel: object, *arguments: object) -> None:
        module = FakeCUDAModule((block + 1, 1, 1), (64, 1, 1), planned.shared)
        fakes = [FakeWithinKernelCUDAArray(a) if hasattr(a, "_ary") else a for a in arguments]
        with _push_kernel_context(module), swapped_cuda_module(kernel.fn, module):
            BlockManager(kernel.fn, (block + 1, 1, 1), (64, 1, 1), False).run((block, 0, 0), *fakes)

    source = np.zeros(length * 9, np.uint8)  # pages without memory until they are written
    source[-tail.nbytes :] = tail.view(np.uint8)
    arena = np.zeros(length * 4 + length * 5 + 4096, np.uint8)
    pitch = (length + 255) // 256 * 256
    rest = np.arange(length - len(tail), length)
    assert arena.ctypes.data % 8 == source.ctypes.data % 8 == 0

    def over(array: np.ndarray, *names: str) -> list[object]:
        return [memory.window(array.ctypes.data, array.nbytes, name, 0) for name in names]

    shared = (cuda.to_device(planned.table), length, 9, 0, *planned.swizzle, planned.rows, pitch, False)
    run(
        kernels.to_columns,
        *over(source, "uint8", "uint64"),
        *over(arena, "uint8", "uint32", "uint64"),
        *shared,
    )
    a = arena[: 4 * length].view(np.uint32)
    b = arena[4 * pitch : 4 * pitch + 5 * length].reshape(-1, 5)
    assert (a[rest] == tail["a"]).all()
    assert (b[rest] == tail["b"]).all()
    back = np.zeros(length * 9, np.uint8)
    run(
        kernels.to_rows,
        *over(back, "uint8", "uint64"),
        *over(arena, "uint8", "uint32", "uint64"),
        *shared,
    )
    assert back[-tail.nbytes :].tobytes() == tail.tobytes()


# -- refusals --------------------------------------------------------------------


class Interface:
    """A producer of an interface with arbitrary entries."""

    def __init__(self, **entries: object):
        self.__cuda_array_interface__ = {
            "shape": (12,),
            "typestr": "|u1",
            "data": (4096, False),
            "version": 3,
            **entries,
        }


XYZ = ON_DEVICE["x, y, z: f4"]


@pytest.mark.parametrize(
    ("buffer", "error", "match"),
    [
        (np.zeros(12, np.uint8), zc.UnsupportedConversionError, "no __cuda_array_interface__"),
        ([1, 2], zc.UnsupportedConversionError, "a list"),
        (Interface(version=1), zc.UnsupportedConversionError, "version 1"),
        (Interface(mask=object()), zc.LossyConversionError, "mask"),
        (Interface(stream=0), zc.UnsupportedConversionError, "ambiguous"),
        (Interface(strides=(2,)), zc.UnsupportedConversionError, "not contiguous"),
        (Interface(typestr="?!"), zc.UnsupportedConversionError, "could not be read"),
        (Interface(shape=None), zc.UnsupportedConversionError, "could not be read"),
        (Interface(data=(0, False)), zc.UnsupportedConversionError, "pointer is (0|NULL)"),
        (Interface(), zc.DeviceError, "simulator"),
    ],
)
def test_invalid_buffers_are_refused(buffer: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        aos_to_soa(buffer, leaves(XYZ), 12)
    assert caught.value.asked.startswith("aos_to_soa")
    assert caught.value.remedy


def test_partial_records_are_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="13 bytes are not a whole number of records"):
        aos_to_soa(cuda.to_device(np.zeros(13, np.uint8)), leaves(XYZ), 12)
    with pytest.raises(zc.UnsupportedConversionError, match="of 0 bytes"):
        aos_to_soa(cuda.to_device(np.zeros(13, np.uint8)), [], 0)


@pytest.mark.parametrize("strided", [lambda x: x[::2], lambda x: x[::-1], lambda x: x.reshape(4, 6)[:, :3]])
def test_buffers_that_are_not_contiguous_are_refused(strided) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="not contiguous"):
        aos_to_soa(strided(cuda.to_device(np.zeros(24, np.uint8))), leaves(XYZ), 12)


@pytest.mark.parametrize("stream", [0, -5, "main"])
def test_invalid_streams_are_refused(stream: object) -> None:
    with pytest.raises(zc.DeviceError, match="stream"):
        aos_to_soa(cuda.to_device(np.zeros(24, np.uint8)), leaves(XYZ), 12, stream=stream)


def bad_columns(case: str, source: object) -> list:
    good = [cuda.to_device(np.full(5, 7, "f4")) for _ in range(3)]
    if case == "too few":
        return good[:2]
    good[1] = {
        "too short": lambda: cuda.to_device(np.full(4, 7, "f4")),
        "too long": lambda: cuda.to_device(np.full(6, 7, "f4")),
        "two dimensions": lambda: cuda.to_device(np.full((5, 1), 7, "f4")),
        "a scalar": lambda: cuda.to_device(np.full((), 7, "f4")),
        "another type": lambda: cuda.to_device(np.full(5, 7, "i4")),
        "the other byte order": lambda: cuda.to_device(np.full(5, 7, ">f4")),
        "not contiguous": lambda: cuda.to_device(np.full(10, 7, "f4"))[::2],
        "of the host": lambda: np.full(5, 7, "f4"),
        "the source": lambda: source[40:].view("f4"),
        "another column": lambda: good[0],
    }[case]()
    return good


BAD = {
    "too few": "2 columns",
    "too short": r"shape \(4,\)",
    "too long": r"shape \(6,\)",
    "two dimensions": r"shape \(5, 1\)",
    "a scalar": r"shape \(\)",
    "another type": "<i4",
    "the other byte order": ">f4",
    "not contiguous": "not contiguous",
    "of the host": "no __cuda_array_interface__",
    "the source": "overlap",
    "another column": "overlap",
}


@pytest.mark.parametrize("case", BAD)
def test_out_that_does_not_fit_is_left_unchanged(case: str) -> None:
    source = cuda.to_device(np.full(60, 1, np.uint8))
    out = bad_columns(case, source)
    before = [np.array(o if isinstance(o, np.ndarray) else o.copy_to_host()) for o in out]
    with pytest.raises(zc.UnsupportedConversionError, match=BAD[case]) as caught:
        aos_to_soa(source, leaves(XYZ), 12, out=out)
    assert caught.value.asked == "aos_to_soa(records, out=out)"
    assert caught.value.remedy
    for was, now in zip(before, out, strict=True):
        assert np.array_equal(was, now if isinstance(now, np.ndarray) else now.copy_to_host())
    assert (source.copy_to_host() == 1).all()


@pytest.mark.parametrize("case", [c for c in BAD if c not in ("the source", "another column")])
def test_columns_that_do_not_fit_are_refused(case: str) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match=BAD[case]):
        soa_to_aos(bad_columns(case, None), leaves(XYZ), 12)


def test_source_columns_may_be_the_same_array() -> None:
    x = cuda.to_device(np.arange(5, dtype="f4"))
    result = soa_to_aos([x, x, x], leaves(XYZ), 12).copy_to_host().view("f4").reshape(5, 3)
    assert (result == np.arange(5)[:, None]).all()


def test_empty_columns_are_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="columns is empty"):
        soa_to_aos([], [], 12)


@pytest.mark.parametrize(
    ("out", "match"),
    [
        (lambda x: cuda.to_device(np.full(59, 7, np.uint8)), r"shape \(59,\)"),
        (lambda x: cuda.to_device(np.full(15, 7, "f4")), r"shape \(15,\)"),
        (lambda x: cuda.to_device(np.full(120, 7, np.uint8))[::2], "not contiguous"),
        (lambda x: np.full(60, 7, np.uint8), "no __cuda_array_interface__"),
        (lambda x: x[4:], "overlap"),
    ],
)
def test_out_for_records_that_does_not_fit_is_left_unchanged(out, match: str) -> None:
    memory_block = cuda.to_device(np.full(64, 7, np.uint8))
    sources = [memory_block[:20].view("f4"), *[cuda.to_device(np.zeros(5, "f4")) for _ in range(2)]]
    with pytest.raises(zc.UnsupportedConversionError, match=match):
        soa_to_aos(sources, leaves(XYZ), 12, out=out(memory_block))
    assert (memory_block.copy_to_host() == 7).all()


def test_read_only_out_is_refused() -> None:
    frozen = np.zeros(60, np.uint8)
    frozen.flags.writeable = False
    from numba.cuda.cudadrv.devicearray import FakeCUDAArray

    sources = [cuda.to_device(np.zeros(5, "f4")) for _ in range(3)]
    with pytest.raises(zc.UnsupportedConversionError, match="read-only"):
        soa_to_aos(sources, leaves(XYZ), 12, out=FakeCUDAArray(frozen))
    outs = [*sources[:2], FakeCUDAArray(frozen[:20].view("f4"))]
    with pytest.raises(zc.UnsupportedConversionError, match="read-only"):
        aos_to_soa(cuda.to_device(np.zeros(60, np.uint8)), leaves(XYZ), 12, out=outs)
