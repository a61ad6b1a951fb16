"""``shared_collate``: batches of torch's DataLoader in shared memory, with real workers."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections import OrderedDict
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.mp_workers import IGNORE_FORK, MEBI, Point, Rows, WholeBatches, context

import zerocopy as zc
from zerocopy.integrations.multiprocessing import shared_collate

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, default_collate  # noqa: E402

pytestmark = pytest.mark.filterwarnings(IGNORE_FORK)


def loader(
    dataset: Any, workers: int = 1, batch_size: int | None = 8, to: str = "torch", **options: Any
) -> Any:
    collate = shared_collate(to, stack=batch_size is not None)
    if workers:
        options = {"multiprocessing_context": context("forkserver"), "timeout": 60} | options
    return DataLoader(dataset, batch_size, num_workers=workers, collate_fn=collate, **options)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_segments_stays_bounded(workers: int) -> None:
    fresh = 0
    for index, batch in enumerate(loader(Rows(200 * 8), workers, prefetch_factor=2)):
        expected = torch.arange(8 * index, 8 * index + 8)
        assert torch.equal(batch["label"], expected)
        assert torch.equal(batch["x"], expected.float()[:, None, None].expand(8, 32, 1024))
        assert batch["name"] == [str(i) for i in expected.tolist()]
        batch["x"] += 1  # private to this process
        fresh = max(fresh, int(batch["fresh"].max()))
    assert index == 199
    assert 0 < fresh <= 2 + 2


def test_batches_that_are_kept_stay_right() -> None:
    batches = [batch["x"] for batch in loader(Rows(20 * 8))]
    assert [int(batch[0, 0, 0]) for batch in batches] == list(range(0, 160, 8))
    assert all(int(batch[7].sum()) == (8 * i + 7) * 32 * 1024 for i, batch in enumerate(batches))


@pytest.mark.parametrize("form", ["dict", "point", "torch"])
def test_batches_are_those_of_default_collate(form: str) -> None:
    expected = next(iter(DataLoader(Rows(8, form), 8, collate_fn=default_collate)))
    for workers in (0, 1):
        batch = next(iter(loader(Rows(8, form), workers)))
        assert type(batch) is type(expected)
        if form == "dict":
            del batch["fresh"], expected["fresh"]
            assert batch.keys() == expected.keys()
            batch, compared = list(batch.values()), list(expected.values())
        else:
            compared = expected
        for one, other in zip(batch, compared, strict=True):
            same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
            assert same
            assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
        expected = next(iter(DataLoader(Rows(8, form), 8, collate_fn=default_collate)))


@pytest.mark.parametrize("shared", [False, True])
def test_whole_batches(shared: bool) -> None:
    blocks = []
    for index, batch in enumerate(loader(WholeBatches(12, shared), batch_size=None)):
        array, small, count, text = batch
        assert torch.equal(array, torch.full((MEBI,), float(index)))
        assert small.tolist() == [index, index + 1, index + 2]
        assert text == "text"
        blocks.append(count)
    assert len(blocks) == 12
    if shared:  # one block for each batch: no array was copied
        assert blocks == list(range(12))


def test_other_targets() -> None:
    batch = next(iter(loader(Rows(8), to="numpy")))
    assert type(batch["x"]) is np.ndarray
    assert batch["x"][7, 0, 0] == 7
    with pytest.raises(zc.errors.UnknownFrameworkError):
        shared_collate("trch")


def test_persistent_workers_and_an_early_end() -> None:
    batches = loader(Rows(40), persistent_workers=True)
    for _ in range(2):
        assert [int(batch["label"][0]) for batch in batches] == [0, 8, 16, 24, 32]
    for batch in batches:
        assert int(batch["label"][0]) == 0
        break


@pytest.mark.filterwarnings("ignore:'pin_memory'")
def test_pinned_memory() -> None:
    """Without an accelerator torch warns, and starts no thread that pins."""
    assert [int(batch["label"][0]) for batch in loader(Rows(16), pin_memory=True)] == [0, 8]


def test_a_worker_that_is_killed() -> None:
    """torch raises its own error; ours if the fork server has not reported the worker's end."""
    with pytest.raises(RuntimeError, match=r"DataLoader worker|process \d+, which sent it, has ended"):
        list(loader(Rows(80, "killed"), timeout=0))  # 0: torch checks its workers every 5 s


def test_a_killed_worker_whose_end_is_not_yet_reported() -> None:
    batches = iter(loader(Rows(80, "torch")))
    worker = batches._workers[0]
    server = forkserver._forkserver._forkserver_pid
    os.kill(server, signal.SIGSTOP)
    try:
        next(batches)
        assert batches._worker_result_queue._reader.poll(60)
        os.kill(worker.pid, signal.SIGKILL)
        while Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        assert worker.is_alive()
        with pytest.raises(zc.errors.StaleHandleError, match=f"process {worker.pid}, which .* has ended"):
            next(batches)
    finally:
        os.kill(server, signal.SIGCONT)


def test_samples_that_differ_are_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="sample 1 is float32"):
        next(iter(loader(Rows(8, "ragged"), workers=0)))
    collate = shared_collate("numpy")
    for samples in ([{"a": 1}, {"b": 1}], [(1, 2), (1,)], [[1], (1,)], [{"a": 1}, 3], [object()], [2**70, 1]):
        with pytest.raises(zc.UnsupportedConversionError) as error:
            collate(samples)
        assert error.value.code == "unequal-samples"
    for samples in ([], np.zeros(3), 5):
        with pytest.raises(zc.UnsupportedConversionError, match="stack=False"):
            collate(samples)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch, when it receives a sparse tensor
@pytest.mark.parametrize("batch_size", [None, 1])
@pytest.mark.parametrize("to", ["torch", "numpy"])
def test_samples_without_frames_are_as_without_workers(to: str, batch_size: int | None) -> None:
    """An error in the thread of the worker's queue would let the main process wait forever."""
    pytest.importorskip("scipy")
    pytest.importorskip("pandas")
    rows = Rows(7, "odd")
    batches = iter(loader(rows, batch_size=batch_size, to=to))
    messages = []
    for index in range(6):
        try:
            (expected,) = loader([rows[index]], 0, batch_size, to)
        except zc.errors.ZeroCopyError as error:
            messages.append(error.why)
        else:
            assert repr(next(batches)) == repr(expected)
            continue
        with pytest.raises(RuntimeError, match="worker process 0") as raised:
            next(batches)
        assert messages[-1] in str(raised.value)
    assert messages
    with pytest.raises(RuntimeError, match=r"non-leaf|requires grad"):
        next(batches)


def test_containers_and_numbers() -> None:
    collate = pickle.loads(pickle.dumps(shared_collate("numpy")))
    batch = collate([OrderedDict(a=[1, 2.5], b=True), OrderedDict(a=[3, 4], b=False)])
    assert type(batch) is OrderedDict
    assert batch["a"][0].tolist() == [1, 3]
    assert batch["a"][1].tolist() == [2.5, 4]
    assert batch["b"].dtype == bool
    batch = collate([Point(np.int8(1), "x"), Point(np.int8(2), "y")])
    assert type(batch) is Point
    assert batch.x.dtype == np.int8
    assert batch.y == ["x", "y"]
    convert = shared_collate("torch", stack=False)
    assert convert({"a": np.zeros(2), "b": Point(1, None)})["b"] == Point(1, None)


def test_samples_of_several_frameworks() -> None:
    pa = pytest.importorskip("pyarrow")
    batch = shared_collate("torch")([np.arange(3.0), torch.arange(3.0).double(), pa.array([0.0, 1.0, 2.0])])
    assert torch.equal(batch, torch.arange(3.0).double().expand(3, 3))
