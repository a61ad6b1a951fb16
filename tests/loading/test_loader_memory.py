"""Memory of batches: they stay valid, buffers are used again, and aliases copy nothing."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.frameworks import HOST
from helpers.loader_cases import Groups, ids, loader_of, parquet_file

import zerocopy as zc
from zerocopy.loading import reading
from zerocopy.loading.buffers import BufferCache
from zerocopy.loading.order import Order
from zerocopy.loading.reading import GroupReader
from zerocopy.loading.stats import Counters

TARGETS = sorted({"numpy", "torch", "jax", "tensorflow", "pyarrow"} & set(HOST))


@pytest.mark.hazard("robustness#buffer-of-a-kept-batch", "robustness#aliases-of-a-buffer")
@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize(
    "options", [{}, {"shuffle": 16}, {"layout": "matrix", "shuffle": 16}, {"layout": "matrix"}]
)
def test_kept_batches_stay_valid(to: str, options: dict[str, Any], tmp_path: Path) -> None:
    """The consumer keeps every batch of two epochs; no buffer is written again."""
    if to == "pyarrow" and "layout" in options:
        return
    path = parquet_file(tmp_path, 3000, 25)
    extra = {"dtype": "float64"} if "layout" in options else {}
    loader = zc.loader(path, to=to, batch_size=8, epochs=2, **options, **extra)
    expected = zc.loader(path, to="numpy", batch_size=8, epochs=2, **options, **extra)
    assert [ids(batch) for batch in list(loader)] == [ids(batch) for batch in expected]


@pytest.mark.parametrize("options", [{"layout": "matrix", "dtype": "float64"}, {}])
@pytest.mark.parametrize("to", sorted({"numpy", "torch", "jax"} & set(HOST)))
def test_buffers_are_used_again(to: str, options: dict[str, Any]) -> None:
    """Twenty windows need three buffers: of the thread, of the queue and of the consumer."""
    loader = loader_of(Groups([40] * 32), to, batch_size=8, shuffle=64, **options)
    for _ in loader:
        pass
    gc.collect()
    assert loader._buffers is not None
    assert 1 <= loader._buffers.allocated <= 3
    for _ in loader:
        pass
    assert loader._buffers.allocated <= 4  # the last batch of the first epoch was still there


@pytest.mark.hazard("robustness#buffer-of-a-kept-batch", "robustness#base-of-a-view")
def test_buffer_of_a_kept_batch_is_not_used_again() -> None:
    cache = BufferCache(1 << 10)
    buffer = cache.take()
    kept = buffer[:16].view(np.float64).reshape(1, 2)
    kept[...] = 5
    del buffer
    others = [cache.take() for _ in range(4)]
    assert all(not np.shares_memory(kept, other) for other in others)
    addresses = {other.ctypes.data for other in others}
    assert all(address % 64 == 0 for address in addresses)
    del others, kept
    assert cache.allocated == 5
    assert len(cache._free) == 2


def most_bytes(loader: Any) -> int:
    """Return the most bytes that Arrow has allocated while an epoch was consumed."""
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    return max(pool.bytes_allocated() - before for _ in loader)


@pytest.mark.parametrize("options", [{}, {"shuffle": 80_000}, {"to": "pyarrow"}])
def test_memory_of_an_epoch_is_constant(options: dict[str, Any], tmp_path: Path) -> None:
    """A file of 32 row groups needs the memory of a few, and is four times as large as the bound."""
    path = parquet_file(tmp_path, 1_280_000, 40_000)
    gc.collect()
    before = pa.total_allocated_bytes()
    loader = zc.loader(path, **({"to": "numpy", "batch_size": 4000} | options))
    assert most_bytes(loader) < 1_280_000 * 16 / 4
    end = time.monotonic() + 60
    while pa.total_allocated_bytes() != before and time.monotonic() < end:
        time.sleep(0.01)  # Arrow's threads drop their references after a read has returned
    assert pa.total_allocated_bytes() == before
    if loader._buffers is not None:
        assert loader._buffers.allocated <= 3


def address(array: Any) -> int:
    return int(zc.convert(array, "numpy", copy=False).__array_interface__["data"][0])


def test_columns_in_order_alias_the_source() -> None:
    table = pa.table({"id": np.arange(64), "x": np.arange(64) / 2})
    starts = [address(table["id"].chunk(0)), address(table["x"].chunk(0))]
    for to in sorted({"numpy", "torch"} & set(HOST)):
        for k, batch in enumerate(zc.loader(table, to=to, batch_size=8)):
            assert [address(batch["id"]), address(batch["x"])] == [start + 64 * k for start in starts]
    arrays = {"id": np.arange(64), "x": np.arange(64) / 2}
    for batch in zc.loader(arrays, to="numpy", batch_size=8):
        assert all(np.shares_memory(batch[name], arrays[name]) for name in arrays)


@pytest.mark.hazard("robustness#aliases-of-a-buffer")
@pytest.mark.parametrize("to", sorted({"numpy", "torch", "jax"} & set(HOST)))
def test_matrix_batches_alias_their_window(to: str) -> None:
    """The batches of a window follow each other in memory."""
    loader = loader_of(Groups([32, 32]), to, batch_size=8, shuffle=32, layout="matrix", dtype="float64")
    batches = list(loader)
    places = [address(batch) for batch in batches]
    for window in (places[:4], places[4:]):
        assert [place - window[0] for place in window] == [0, 128, 256, 384]


@pytest.mark.parametrize(("limit", "groups"), [(1 << 30, 2), (1 << 18, 1)])
def test_groups_ahead_are_limited_by_number_and_bytes(limit: int, groups: int, monkeypatch: Any) -> None:
    """A group of 32,768 rows has 512 KiB; one is always read ahead, and each is read once."""
    monkeypatch.setattr(reading, "_AHEAD_BYTES", limit)
    source, counters = Groups([1 << 15] * 5), Counters()
    reader = GroupReader(source, Order([1 << 15] * 5), False, counters, threading.Lock(), reads_ahead=True)
    ahead, rows = [], 0
    for start in range(0, 5 << 15, 40_960):  # windows that end within groups
        for part in reader(start, start + 40_960, 5 << 15):
            rows += part.rows
            ahead.append(len(reader._ahead))
    reader.close()
    assert part.is_alone  # no group is read while the last one is assembled
    assert max(ahead[:3]) == groups
    assert source.reads == [0, 1, 2, 3, 4]
    assert rows == 5 << 15


def test_groups_ahead_that_are_not_needed_are_dropped() -> None:
    """A run may end early, and the next one begin elsewhere; a broken group is not read again."""
    source, counters = Groups([1 << 15] * 6, broken=[3]), Counters()
    reader = GroupReader(source, Order([1 << 15] * 6), True, counters, threading.Lock(), reads_ahead=True)
    assert [part.position for part in reader(0, 10, 3 << 15)] == [0]
    assert [part.position >> 15 for part in reader(3 << 15, 6 << 15, 6 << 15)] == [3, 4, 5]
    assert [part.content is None for part in reader(0, 1 << 15, 1 << 15)] == [False]
    reader.close()
    assert [source.reads.count(group) for group in (0, 3, 4, 5)] == [2, 1, 1, 1]
    assert counters.stats(0).skipped[0].row_group == 3


def test_buffers_of_a_matrix_in_order_are_used_again() -> None:
    """A buffer has two batches of 1 MiB; the reader has at most 16 batches ready."""
    loader = loader_of(
        Groups([1 << 20] * 2), batch_size=1 << 16, layout="matrix", dtype="float64", prefetch=16, epochs=3
    )
    for _ in loader:
        pass
    assert loader.stats().buffers <= 16 // 2 + 3
    assert loader.stats().buffers << 21 <= loader.explain().memory_bytes
