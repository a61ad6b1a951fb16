"""Batches on a device: values and order, with a stub driver that runs work as late as possible."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers import cuda_stubs, lane_framework, queue_driver
from helpers.lane_framework import Lane, Lanes
from helpers.queue_driver import QueueDriver

import zerocopy as zc
from zerocopy import registry
from zerocopy.loading.device import Transfer

ROWS, BATCH = 1000, 64
TABLE = {
    "x": np.arange(ROWS, dtype=np.float64),
    "n": np.arange(ROWS, dtype=np.int16),
    "pair": np.arange(2 * ROWS, dtype=np.float32).reshape(ROWS, 2),
}
FORMS: list[dict[str, Any]] = [
    {},
    {"shuffle": True},
    {"shuffle": 128, "prefetch": 4},
    {"drop_last": True, "prefetch": 1},
]
MATRIX = {"a": np.arange(ROWS, dtype=np.float32), "b": -np.arange(ROWS, dtype=np.float32)}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueDriver]:
    monkeypatch.setattr(lane_framework, "current", [1])
    driver = queue_driver.install(monkeypatch)
    zc.register(Lanes())
    yield driver
    gc.collect()  # frees the loaders' memory while the driver is replaced
    lane_framework.unused.clear()
    registry._known.pop("lanes", None)
    for owners in registry._by_root.values():
        owners[:] = [owner for owner in owners if owner.name != "lanes"]
    registry._by_type.clear()
    registry._by_lasting_type.clear()


def values(batch: Any) -> Any:
    """Return a copy of the values that a device's memory has now."""
    if isinstance(batch, dict):
        return {name: part.values.copy() for name, part in batch.items()}
    return batch.values.copy()


def consume(driver: QueueDriver, loader: Any, streams: tuple[int, ...] = (1,)) -> list[Any]:
    """Read each batch by work on the consumer's stream, which runs after the iteration; drop it at once."""
    read: list[Any] = []
    for number, batch in enumerate(loader):
        stream = lane_framework.current[0]
        # The work knows the memory, and does not keep the batch alive.
        parts = batch if isinstance(batch, dict) else {"": batch}
        views = {name: part.values.view() for name, part in parts.items()}
        driver.launch(stream, lambda views=views: read.append({n: v.copy() for n, v in views.items()}))
        del batch, parts
        lane_framework.current[0] = streams[(number + 1) % len(streams)]
    for stream in streams:
        driver.synchronize(stream)
    return [part[""] if list(part) == [""] else part for part in read]


def check(read: list[Any], source: Any, **options: Any) -> None:
    expected = list(zc.loader(source, to="numpy", batch_size=BATCH, **options))
    assert len(read) == len(expected)
    for batch, right in zip(read, expected, strict=True):
        np.testing.assert_equal(batch, right)


@pytest.mark.hazard("robustness#batch-that-is-read", "robustness#legacy-default-stream")
@pytest.mark.parametrize("options", FORMS, ids=str)
def test_batches_have_the_values_of_the_host(driver: QueueDriver, options: dict[str, Any]) -> None:
    check(consume(driver, zc.loader(TABLE, to="lanes", batch_size=BATCH, **options)), TABLE, **options)


@pytest.mark.hazard("robustness#copy-that-is-not-done")
@pytest.mark.parametrize("options", FORMS, ids=str)
def test_matrices_have_the_values_of_the_host(driver: QueueDriver, options: dict[str, Any]) -> None:
    options = options | {"layout": "matrix"}
    check(consume(driver, zc.loader(MATRIX, to="lanes", batch_size=BATCH, **options)), MATRIX, **options)


@pytest.mark.hazard("robustness#host-memory-in-use")
def test_epochs_reuse_the_memory(driver: QueueDriver) -> None:
    options = {"shuffle": True, "epochs": 5}
    read = consume(driver, zc.loader(TABLE, to="lanes", batch_size=BATCH, **options))
    check(read, TABLE, **options)
    held = sum(len(parts) for parts in lane_framework.unused.values())
    assert held <= 3 * 10, "memory of dropped batches was not used again"


@pytest.mark.hazard("robustness#batch-that-is-read")
def test_kept_batches_are_not_overwritten(driver: QueueDriver) -> None:
    kept = list(zc.loader(TABLE, to="lanes", batch_size=BATCH, shuffle=True))
    driver.synchronize(1)
    check([values(batch) for batch in kept], TABLE, shuffle=True)


@pytest.mark.hazard("robustness#stream-that-changes")
def test_consumer_that_changes_its_stream_gets_right_values(driver: QueueDriver) -> None:
    read = consume(driver, zc.loader(TABLE, to="lanes", batch_size=BATCH, prefetch=3), streams=(1, 77, 78))
    right = zc.loader(TABLE, to="numpy", batch_size=BATCH)
    key = {float(batch["x"][0]): batch for batch in right}
    assert len(read) == len(key)
    for batch in read:
        np.testing.assert_equal(batch, key[float(batch["x"][0])])


def test_copies_start_before_the_consumer_asks(driver: QueueDriver) -> None:
    batches = iter(zc.loader(MATRIX, "lanes", batch_size=BATCH, layout="matrix", shuffle="full", prefetch=3))
    next(batches)
    assert driver.calls.count("cuMemcpyHtoDAsync_v2") == 1 + 3
    next(batches)
    assert driver.calls.count("cuMemcpyHtoDAsync_v2") == 1 + 3 + 1


def test_host_waits_for_no_work_of_the_consumer(driver: QueueDriver) -> None:
    batches = iter(zc.loader(MATRIX, "lanes", batch_size=BATCH, layout="matrix", shuffle="full", prefetch=2))
    ran: list[int] = []
    first = next(batches)
    driver.launch(1, lambda: ran.append(1))
    second = next(batches)
    assert not ran
    assert "cuStreamSynchronize" not in driver.calls
    assert "cuCtxSynchronize" not in driver.calls
    assert first is not second


def test_copies_read_page_locked_memory(driver: QueueDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[bool] = []
    copy = driver.cuMemcpyHtoDAsync_v2

    def spy(ptr: Any, host: Any, nbytes: Any, stream: Any) -> int:
        sources.append(driver.is_locked(host.value))
        return copy(ptr, host, nbytes, stream)

    monkeypatch.setattr(driver, "cuMemcpyHtoDAsync_v2", spy, raising=False)
    for source, options in [(TABLE, {}), (TABLE, {"shuffle": True}), (MATRIX, {"layout": "matrix"})]:
        consume(driver, zc.loader(source, to="lanes", batch_size=BATCH, **options))
    assert sources
    assert all(sources)


@pytest.mark.hazard("robustness#host-memory-in-use")
def test_page_locked_memory_is_bounded_and_freed(driver: QueueDriver) -> None:
    loader = zc.loader(TABLE, to="lanes", batch_size=BATCH, epochs=10, prefetch=2)
    consume(driver, loader)
    assert len(driver.locked) <= 2 * 2 + 3
    del loader
    gc.collect()
    assert not driver.locked


@pytest.mark.hazard("robustness#pages-that-cannot-be-locked")
def test_memory_that_cannot_be_locked_is_replaced_and_reported(driver: QueueDriver) -> None:
    driver.refuses_to_lock = True
    loader = zc.loader(TABLE, to="lanes", batch_size=BATCH, shuffle=True)
    check(consume(driver, loader), TABLE, shuffle=True)
    assert "page-locked" in loader.explain().notes[-1]
    assert driver.calls.count("cuMemHostAlloc") == 1


@pytest.mark.hazard("robustness#dropped-iterator")
def test_dropped_iterator_keeps_memory_until_the_copies_are_done(driver: QueueDriver) -> None:
    loader = zc.loader(TABLE, to="lanes", batch_size=BATCH, prefetch=3)
    batches = iter(loader)
    first = next(batches)
    before = sum(map(len, lane_framework.unused.values()))
    batches.close()  # type: ignore[attr-defined]
    del batches
    assert sum(map(len, lane_framework.unused.values())) == before
    del loader
    gc.collect()
    assert sum(map(len, lane_framework.unused.values())) == before + 3 * len(TABLE)
    driver.synchronize(1)
    np.testing.assert_equal(values(first)["x"], np.arange(64.0))


@pytest.mark.hazard("robustness#page-locked-source")
def test_source_may_change_after_delivery(driver: QueueDriver) -> None:
    source = {"x": np.arange(128.0)}
    batches = iter(zc.loader(source, to="lanes", batch_size=128))
    batch = next(batches)
    source["x"][:] = -1
    driver.synchronize(1)
    np.testing.assert_equal(values(batch)["x"], np.arange(128.0))


def test_state_counts_delivered_batches_only(driver: QueueDriver) -> None:
    loader = zc.loader(TABLE, to="lanes", batch_size=BATCH, shuffle=True, prefetch=3)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    resumed = zc.loader(TABLE, to="lanes", batch_size=BATCH, shuffle=True, prefetch=3)
    resumed.load_state_dict(state)
    rest = consume(driver, resumed)
    expected = list(zc.loader(TABLE, to="numpy", batch_size=BATCH, shuffle=True))[1:]
    for batch, right in zip(rest, expected, strict=True):
        np.testing.assert_equal(batch, right)


def test_state_is_that_of_a_loader_on_the_host(driver: QueueDriver) -> None:
    options: dict[str, Any] = {"batch_size": 300, "shuffle": True, "prefetch": 3, "epochs": 2}
    loader, host = (zc.loader(TABLE, to=to, **options) for to in ("lanes", "numpy"))
    for _ in zip(loader, host, strict=True):
        assert loader.state_dict() == host.state_dict()
    assert loader.state_dict() == host.state_dict()


@pytest.mark.hazard("robustness#iterators-in-threads")
def test_iterators_of_a_loader_alternate(driver: QueueDriver) -> None:
    loader = zc.loader(TABLE, to="lanes", batch_size=BATCH, shuffle=True)
    kept: list[list[Any]] = [[], []]
    for pair in zip(loader, loader, strict=True):
        for batches, batch in zip(kept, pair, strict=True):
            batches.append(batch)
    driver.synchronize(1)
    check([values(batch) for batch in kept[0] + kept[1]], TABLE, shuffle=True, epochs=2)


@pytest.mark.hazard("robustness#iterators-in-threads")
def test_threads_drop_only_transfers_that_are_done(driver: QueueDriver) -> None:
    """While one thread waits for a transfer, another one drops those that are done."""
    copies = zc.loader(TABLE, to="lanes", batch_size=BATCH)._plan.copies
    assert copies is not None
    other = threading.Thread(target=copies._release, args=(9,))

    class Event:
        def __init__(self, is_done: bool) -> None:
            self.is_done = lambda: is_done

        def wait(self) -> None:
            if other.ident is None:
                other.start()
                other.join(0.2)  # it waits for the lock

    pending = Transfer(Event(False), 1, [], [])  # type: ignore[arg-type]
    copies._started.extend([Transfer(Event(True), 1, [], []), pending])  # type: ignore[arg-type]
    copies._release(9)
    other.join(60)
    assert list(copies._started) == [pending]
    copies._started.clear()


def test_out_of_memory_is_a_memory_error(driver: QueueDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(self: Any, shape: Any, dtype: Any, index: int) -> Any:
        raise RuntimeError("out of lanes")

    monkeypatch.setattr(lane_framework.Loading, "empty", empty)
    with pytest.raises(MemoryError, match="out of lanes"):
        next(iter(zc.loader(TABLE, to="lanes", batch_size=BATCH)))


def test_other_byte_orders_are_swapped(driver: QueueDriver) -> None:
    source = {"x": np.arange(200, dtype=">f8")}
    read = consume(driver, zc.loader(source, to="lanes", batch_size=100))
    np.testing.assert_equal([part["x"].sum() for part in read], [4950.0, 14950.0])


def test_missing_device_is_refused_when_the_loader_is_created() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("torch has a device")
    with pytest.raises(zc.DeviceError, match="CUDA"):
        zc.loader(TABLE, to="torch", batch_size=BATCH, device="cuda")


@pytest.mark.hazard("robustness#batch-that-fails")
def test_errors_are_raised_after_the_batches_before_them(
    driver: QueueDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty, calls = lane_framework.Loading.empty, []

    def third_fails(self: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            raise ValueError("the third")
        return empty(self, *arguments)

    monkeypatch.setattr(lane_framework.Loading, "empty", third_fails)
    batches = iter(zc.loader({"x": np.arange(40.0)}, to="lanes", batch_size=10, prefetch=3))
    next(batches)
    next(batches)
    with pytest.raises(ValueError, match="the third"):
        next(batches)
    rest = list(batches)  # from the batch that could not be made
    driver.synchronize(1)
    np.testing.assert_equal([values(batch)["x"] for batch in rest], np.arange(20.0, 40.0).reshape(2, 10))
    with pytest.raises(StopIteration):
        next(batches)


def test_host_targets_have_no_copies(driver: QueueDriver) -> None:
    for to, device in [("numpy", None), ("torch", None), ("torch", "cpu")]:
        if to == "torch":
            pytest.importorskip("torch")
        loader = zc.loader(TABLE, to=to, batch_size=BATCH, device=device)
        assert loader._plan.copies is None
    assert not driver.calls


def test_cupy_arrays_belong_to_the_consumers_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = cuda_stubs.install(monkeypatch)
    driver = queue_driver.install(monkeypatch)
    monkeypatch.setattr("zerocopy.protocols.cuda_driver.ordinal", machine.ordinal)
    cuda_stubs.forget()
    driver.eager.add(1)
    try:
        batches = list(zc.loader(TABLE, to="cupy", batch_size=BATCH, shuffle=True))
        assert "cuMemcpyHtoDAsync_v2" in driver.calls
        expected = zc.loader(TABLE, to="numpy", batch_size=BATCH, shuffle=True)
        for batch, right in zip(batches, expected, strict=True):
            np.testing.assert_equal({name: part.get() for name, part in batch.items()}, right)
    finally:
        gc.collect()
        cuda_stubs.forget()


def test_lanes_are_arrays_of_a_device(driver: QueueDriver) -> None:
    batch = next(iter(zc.loader(TABLE, to="lanes", batch_size=BATCH, device="cuda:1")))
    assert all(isinstance(part, Lane) for part in batch.values())
