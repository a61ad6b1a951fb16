"""Batches of ``loader`` on a GPU: values, order of streams, page-locked memory, and what overlaps."""

from __future__ import annotations

import gc
import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.gpu_arrays import DEVICE, MARKS, NAMES, free_bytes, side

import zerocopy as zc

pytestmark = MARKS

ROWS, BATCH = 5000, 512
COLUMNS = {
    "x": np.arange(ROWS, dtype=np.float32),
    "n": np.arange(ROWS, dtype=np.int16),
    "flag": np.arange(ROWS) % 3 == 0,
}
MATRIX = {name: np.arange(ROWS, dtype=np.float32) * factor for name, factor in [("a", 1), ("b", -1)]}
FORMS: list[tuple[dict[str, np.ndarray], dict[str, Any]]] = [
    (COLUMNS, {}),
    (COLUMNS, {"shuffle": True}),
    (MATRIX, {"layout": "matrix"}),
    (MATRIX, {"layout": "matrix", "shuffle": 2048, "prefetch": 4}),
]
AHEAD = ["torch", "cupy"]  # frameworks whose batches are copied in advance
BUSY_CYCLES = 400_000_000  # 200 ms at 2 GHz


def loader(name: str, source: Any, **options: Any) -> Any:
    return zc.loader(source, to=name, batch_size=BATCH, device=DEVICE, **options)


def on_host(source: Any, **options: Any) -> list[Any]:
    return list(zc.loader(source, to="numpy", batch_size=BATCH, **options))


def values(name: str, batch: Any) -> Any:
    if isinstance(batch, dict):
        return {label: side(name).values(part) for label, part in batch.items()}
    return side(name).values(batch)


def torch_module() -> Any:
    side("torch")
    return importlib.import_module("torch")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("source", "options"), FORMS, ids=lambda part: str(list(part)))
def test_loader_batches_have_the_values_of_the_host(name: str, source: Any, options: Any) -> None:
    side(name)
    batches = list(loader(name, source, **options))
    for batch, right in zip(batches, on_host(source, **options), strict=True):
        np.testing.assert_equal(values(name, batch), right)


@pytest.mark.parametrize("name", AHEAD)
def test_loader_columns_with_nulls_and_categories(name: str) -> None:
    side(name)
    table = pa.table({"x": pa.array([1, None, 3] * 500), "c": pa.array(["a", "b", "a"] * 500)})
    options = {"nulls": "mask", "encode": True}
    batches = list(loader(name, table, **options))
    for batch, right in zip(batches, on_host(table, **options), strict=True):
        np.testing.assert_equal(side(name).values(batch["x"].values), right["x"].values)
        np.testing.assert_equal(side(name).values(batch["x"].mask), right["x"].mask)


def test_loader_host_memory_is_page_locked() -> None:
    torch = torch_module()
    batches = loader("torch", MATRIX, layout="matrix", shuffle=True)
    next(iter(batches))
    copies = batches._plan.copies
    assert copies.memory.warnings == ()
    [array] = copies.host_arrays([((BATCH, 2), np.dtype(np.float32))])
    assert torch.from_numpy(array).is_pinned()
    assert torch.from_numpy(batches._buffers.take()).is_pinned()


def test_loader_host_does_not_wait_for_the_consumers_stream() -> None:
    torch = torch_module()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        batches = iter(loader("torch", MATRIX, layout="matrix", shuffle="full"))
        next(batches)  # loads kernels, and allocates page-locked memory, which may wait for the device
        torch.cuda._sleep(BUSY_CYCLES)
        batch = next(batches)
        assert not stream.query(), "the host waited for the stream"
        torch.cuda.synchronize()
    right = on_host(MATRIX, layout="matrix", shuffle="full")[1]
    np.testing.assert_equal(values("torch", batch), right)


def test_loader_memory_of_dropped_batches_is_not_overwritten_while_kernels_read_it() -> None:
    torch = torch_module()
    stream = torch.cuda.Stream()
    read = []
    with torch.cuda.stream(stream):
        for batch in loader("torch", MATRIX, layout="matrix", shuffle=True, prefetch=3):
            torch.cuda._sleep(BUSY_CYCLES // 20)
            read.append(batch.clone())  # runs when the loader has started later copies
            del batch
    torch.cuda.synchronize()
    for batch, right in zip(read, on_host(MATRIX, layout="matrix", shuffle=True), strict=True):
        np.testing.assert_equal(values("torch", batch), right)


def test_loader_consumer_changes_its_stream() -> None:
    torch = torch_module()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    batches, read = iter(loader("torch", MATRIX, layout="matrix", prefetch=3)), []
    for number, right in enumerate(on_host(MATRIX, layout="matrix")):
        with torch.cuda.stream(streams[number % 2]):
            batch = next(batches)
            torch.cuda._sleep(BUSY_CYCLES // 20)
            read.append((batch.clone(), right))
            del batch
    torch.cuda.synchronize()
    for batch, right in read:
        np.testing.assert_equal(values("torch", batch), right)


@pytest.mark.parametrize("name", AHEAD)
def test_loader_dropped_iterators_leave_no_memory(name: str) -> None:
    side(name)

    def some_batches() -> None:
        batches = iter(loader(name, COLUMNS, shuffle=True, prefetch=4))
        next(batches)

    for _ in range(3):
        some_batches()
    gc.collect()
    before = free_bytes()
    for _ in range(50):
        some_batches()
    gc.collect()
    assert before - free_bytes() < 64 << 20


@pytest.mark.parametrize("name", NAMES)
def test_loader_rows_that_cudf_decodes(name: str, tmp_path: Path) -> None:
    pytest.importorskip("cudf", reason="cuDF is not installed")
    side(name)
    path = str(tmp_path / "rows.parquet")
    nulls = pa.array([None if k % 7 == 0 else k for k in range(ROWS)], pa.int32())
    pq.write_table(pa.table(MATRIX | {"nulls": nulls}), path)
    numbers = {"columns": ["a", "b"]}
    for options in (numbers, numbers | {"layout": "matrix"}, {"nulls": -1}):
        decoded, right = loader(name, path, engine="cudf", **options), on_host(path, **options)
        np.testing.assert_equal(values(name, next(iter(decoded))), right[0])
        decoded.load_state_dict(decoded.state_dict())
        for batch, expected in zip(decoded, right[1:], strict=True):
            np.testing.assert_equal(values(name, batch), expected)
    first, second = list(loader(name, path, engine="cudf", columns=["a"]))[:2]
    assert side(name).pointer(second["a"]) - side(name).pointer(first["a"]) == BATCH * 4


def test_loader_copies_overlap_with_kernels() -> None:
    """Print the time of an epoch with kernels, and those of the kernels and of the loader alone."""
    torch = torch_module()
    source = {f"c{k}": np.random.default_rng(k).random(1 << 20, np.float32) for k in range(32)}
    weights = torch.ones((32, 4096), device=DEVICE)

    def epoch(work: bool) -> float:
        batches = zc.loader(
            source, to="torch", batch_size=1 << 16, layout="matrix", shuffle=True, device=DEVICE, epochs=2
        )
        began = time.perf_counter()
        for batch in batches:
            if work:
                batch @ weights
        torch.cuda.synchronize()
        return time.perf_counter() - began

    def kernels() -> float:
        batch = torch.ones((1 << 16, 32), device=DEVICE)
        began = time.perf_counter()
        for _ in range(32):
            batch @ weights
        torch.cuda.synchronize()
        return time.perf_counter() - began

    epoch(True)
    print(f"loader {epoch(False):.3f} s, kernels {kernels():.3f} s, both {epoch(True):.3f} s")
