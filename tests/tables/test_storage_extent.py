"""Storage extent: a result's storage lies in one allocation of its source, at any distances of these."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.frameworks import HOST
from helpers.storage_extent import check_extents, extents

import zerocopy as zc

ROWS = 6
TARGETS = [*HOST, "pandas", "polars"]
#: Bytes between separate allocations. malloc's header takes 8 to 16; a bump allocator has none.
GAPS = [0, 8, 16, 56, 64, 4096 - 16]


class _Heap:
    """Separate blocks of memory at chosen addresses: each is an object of its own."""

    def __init__(self, nbytes: int = 1 << 16) -> None:
        self.memory = np.zeros(nbytes, np.uint8)
        self.used = -self.memory.ctypes.data % 64

    def block(self, nbytes: int, gap: int) -> Any:
        """Return a block that begins `gap` bytes after the end of the last one."""
        self.used += gap
        block = (ctypes.c_char * nbytes).from_address(self.memory.ctypes.data + self.used)
        self.used += nbytes
        return block

    def arrays(self, count: int, gap: int, shape: tuple[int, ...] = (ROWS,)) -> list[np.ndarray]:
        """Return arrays of float64 with distinct owners and equal gaps between them."""
        blocks = [self.block(8 * int(np.prod(shape)), gap if k else 0) for k in range(count)]
        return [np.frombuffer(block, np.float64).reshape(shape) for block in blocks]


@pytest.fixture
def heap() -> _Heap:
    return _Heap()


def _dict(arrays: list[np.ndarray]) -> Any:
    return {str(k): array for k, array in enumerate(arrays)}


def _lists(arrays: list[np.ndarray]) -> Any:
    torch = pytest.importorskip("torch")
    return {str(k): torch.from_numpy(array) for k, array in enumerate(arrays)}


def _arrow(arrays: list[np.ndarray]) -> Any:
    return pa.table({str(k): array for k, array in enumerate(arrays)})


def _buffers(arrays: list[np.ndarray]) -> Any:
    columns = [pa.Array.from_buffers(pa.float64(), ROWS, [None, pa.py_buffer(a)]) for a in arrays]
    return pa.table(columns, names=[str(k) for k in range(len(columns))])


def _pandas(arrays: list[np.ndarray]) -> Any:
    pd = pytest.importorskip("pandas")
    return pd.concat([pd.Series(array, copy=False, name=str(k)) for k, array in enumerate(arrays)], axis=1)


def _polars(arrays: list[np.ndarray]) -> Any:
    pl = pytest.importorskip("polars")
    return pl.DataFrame({str(k): pl.Series(str(k), array) for k, array in enumerate(arrays)})


TABLES = [_dict, _lists, _arrow, _buffers, _pandas, _polars]


@pytest.mark.hazard("untrusted-data#storage-extent")
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("make", TABLES)
@pytest.mark.parametrize("order", [None, "C", "F"])
@pytest.mark.parametrize("layout", ["matrix", "records", "columns"])
def test_columns_of_separate_allocations_are_not_one_array(
    heap: _Heap, make: Callable[[list[np.ndarray]], Any], gap: int, layout: str, order: str | None
) -> None:
    if order and layout != "matrix":
        return
    options = {"layout": layout, "order": order}
    arrays = heap.arrays(3, gap)
    for source in (make(arrays), make(arrays[::-1])):
        _check_separate(source, arrays, layout, options)


def _check_separate(source: Any, arrays: list[np.ndarray], layout: str, options: dict[str, Any]) -> None:
    for target in ["numpy"] if layout == "records" else TARGETS:
        if layout != "columns" and target in ("pandas", "polars"):
            continue
        plan = zc.explain(source, target, **options)
        result = zc.convert(source, target, **options)
        check_extents(arrays, result)
        if layout == "matrix":
            assert not plan.zero_copy
            assert not zc.shares_memory(result, arrays)
            with pytest.raises(zc.CopyRequiredError, match="separate memory"):
                zc.convert(source, target, **options, copy=False)


@pytest.mark.hazard("untrusted-data#storage-extent")
@pytest.mark.parametrize("gap", GAPS)
def test_one_row_in_separate_allocations_is_not_one_record(heap: _Heap, gap: int) -> None:
    source = _dict(heap.arrays(3, gap, (1,)))
    check_extents(source, zc.convert(source, "numpy", layout="records"))
    check_extents(source, zc.convert(source, "numpy", layout="matrix"))
    assert not zc.explain(source, "numpy", layout="records").zero_copy


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_columns_of_one_allocation_are_one_array_in_their_order(order: tuple[int, ...]) -> None:
    memory = np.arange(3.0 * ROWS)
    arrays = [memory[k * ROWS : (k + 1) * ROWS] for k in order]
    torch = pytest.importorskip("torch")
    slices = [pa.py_buffer(memory).slice(8 * k * ROWS, 8 * ROWS) for k in order]
    columns = [pa.Array.from_buffers(pa.float64(), ROWS, [None, part]) for part in slices]
    tensor = torch.from_numpy(memory).reshape(3, ROWS)
    sources = [
        _dict(arrays),
        {str(k): tensor[k] for k in order},
        pa.table(columns, names=list("abc")),
    ]
    for source in sources:
        result = zc.convert(source, "torch", layout="matrix")
        check_extents(source, result)
        assert np.array_equal(result.numpy(), np.stack(arrays, axis=1))
        assert zc.shares_memory(result, memory) == (order == (0, 1, 2))


@pytest.mark.hazard("untrusted-data#storage-extent")
def test_storage_covers_the_gaps_of_a_matrix(heap: _Heap) -> None:
    """The helper itself: a tensor whose storage crosses two allocations is found."""
    torch = pytest.importorskip("torch")
    arrays = heap.arrays(2, 16)
    low, high = arrays[0].ctypes.data, arrays[1].ctypes.data + arrays[1].nbytes
    joined = np.frombuffer((ctypes.c_char * (high - low)).from_address(low), np.float64)
    tensor = torch.from_numpy(joined).as_strided((ROWS, 2), (1, ROWS + 2))
    assert list(extents(tensor)) == [(low, high)]
    with pytest.raises(AssertionError, match="leaves the allocations"):
        check_extents(arrays, tensor)


@pytest.mark.hazard("untrusted-data#storage-extent")
@pytest.mark.parametrize("gap", GAPS)
def test_coordinates_of_separate_allocations_are_not_one_array(heap: _Heap, gap: int) -> None:
    sparse, torch = pytest.importorskip("scipy.sparse"), pytest.importorskip("torch")
    block = heap.arrays(2, gap)
    rows, columns = (array.view(np.int64) for array in block)
    rows[:], columns[:] = np.arange(ROWS), np.arange(ROWS)
    source = sparse.coo_array((np.ones(ROWS), (rows, columns)), shape=(ROWS, ROWS))
    result = zc.convert(source, "torch")
    check_extents(block, result._indices())
    assert not zc.shares_memory(result._indices(), block)
    assert torch.equal(result.to_dense(), torch.eye(ROWS, dtype=torch.float64))


@pytest.mark.hazard("untrusted-data#storage-extent")
@pytest.mark.parametrize("gap", GAPS)
def test_views_with_one_owner_are_not_one_block(heap: _Heap, gap: int) -> None:
    """A caller's views: their owner is a list, which proves nothing about the memory."""
    pytest.importorskip("pandas")
    arrays = heap.arrays(2, gap)
    view = zc.view(arrays[0])
    views = {
        str(k): zc.StridedView(a.ctypes.data, a.shape, a.strides, view.dtype, view.device, True, arrays)
        for k, a in enumerate(arrays)
    }
    for target, layout in [("pandas", None), ("numpy", "matrix"), ("torch", "matrix")]:
        result = zc.convert(views, target, layout=layout)
        check_extents(arrays, result)
