"""The loader in torch: ``DataLoader`` with worker processes, its states, and distributed training."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy.framework import hook_of
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.loader import Loader
from zerocopy.loading.order import Layout, Run, deal

torch = pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

from zerocopy._frameworks.torch.loading import Loading  # noqa: E402

ROWS, BATCH = 1000, 32
SHUFFLES = (False, True, "full", 100)


def write(folder: Path) -> str:
    """Write a Parquet file with the numbers from 0, and return its path."""
    path = str(folder / "rows.parquet")
    pq.write_table(pa.table({"x": np.arange(ROWS), "y": np.arange(float(ROWS))}), path, row_group_size=130)
    return path


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write(tmp_path)


def rows(batches: Any) -> list[list[int]]:
    return [batch["x"].tolist() for batch in batches]


def as_worker(monkeypatch: pytest.MonkeyPatch, number: int, workers: int) -> None:
    """Let the loaders of this process be those of a worker; of no worker if there is one process."""
    worker = (number, workers) if workers > 1 else None
    monkeypatch.setattr(Loading, "worker", lambda self: worker)


# -- the class ------------------------------------------------------------------------


def test_only_a_loader_of_tensors_is_an_iterable_dataset(path: str) -> None:
    loaders = [zc.loader(path, to=to) for to in ("torch", torch, torch.Tensor)]
    assert all(isinstance(loader, IterableDataset) for loader in loaders)
    assert len({type(loader) for loader in loaders}) == 1
    assert type(zc.loader(path, to="numpy")) is Loader
    assert type(zc.loader(path, to="pyarrow")) is Loader


def test_a_framework_without_a_hook_has_no_workers() -> None:
    assert hook_of(None, LoadingHook).worker() is None
    assert hook_of(None, LoadingHook).bases() == ()


# -- parts of workers -----------------------------------------------------------------


@pytest.mark.hazard("training#batches-of-workers")
def test_the_parts_of_workers_are_the_batches_of_one_process() -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        sizes = random.integers(0, 40, 3)
        runs = [Run(100 * k, 100 * k + int(size) + 7, 7) for k, size in enumerate(sizes)]
        batch, workers = int(random.integers(1, 12)), int(random.integers(1, 6))
        expected = [(run.start, row) for run in runs for row in range(run.first, run.first + run.rows, batch)]
        layout, delivered = Layout(300, batch, False), []
        for number in range(workers):
            for run in deal(runs, number, workers, layout, even=False):
                assert run.rows > 0
                delivered += [(run.start, row) for row in range(run.first, run.first + run.rows, batch)]
        assert delivered == expected


@pytest.mark.hazard("training#workers-that-read-everything")
@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("drop_last", [False, True])
def test_each_batch_is_delivered_by_one_worker(
    path: str, monkeypatch: pytest.MonkeyPatch, shuffle: Any, drop_last: bool
) -> None:
    options = {"batch_size": BATCH, "shuffle": shuffle, "drop_last": drop_last, "rank": 1, "world_size": 2}
    plain = zc.loader(path, to="torch", **options)
    workers = [zc.loader(path, to="torch", **options) for _ in range(3)]
    for _ in range(3):  # workers that persist go on to the next epoch
        delivered = []
        for number, worker in enumerate(workers):
            as_worker(monkeypatch, number, 3)
            delivered += rows(worker)
        as_worker(monkeypatch, 0, 1)
        assert delivered == rows(plain)


@pytest.mark.hazard("training#shards-of-a-worker")
def test_a_loader_that_a_worker_creates_is_its_own(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_worker(monkeypatch, 1, 2)
    loader = zc.loader(path, to="torch", batch_size=BATCH, rank=1, world_size=2)
    assert sum(map(len, rows(loader))) == ROWS // 2


@pytest.mark.hazard("training#stream-in-workers")
def test_a_stream_is_refused_in_workers(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocopy.loading.dataset import Stream

    class Numbers(Stream):
        name, schema = "numbers", pa.schema({"x": pa.int64()})

        def batches(self) -> Any:
            return iter([pa.table({"x": np.arange(4)})])

        def fingerprint(self) -> str:
            return ""

    monkeypatch.setattr("zerocopy.loading.create.open_source", lambda source, options: Numbers())
    loader = zc.loader("", to="torch")
    assert rows(loader) == [[0, 1, 2, 3]]
    as_worker(monkeypatch, 0, 2)
    with pytest.raises(zc.ZeroCopyError, match="2 worker processes would read all rows") as caught:
        iter(loader)
    assert caught.value.code == "stream-in-workers"
    assert "num_workers=0" in caught.value.remedy


# -- states ---------------------------------------------------------------------------


@pytest.mark.hazard("training#state-of-a-worker")
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_the_states_of_workers_resume_each_of_them(
    path: str, monkeypatch: pytest.MonkeyPatch, shuffle: Any
) -> None:
    """As torchdata's ``StatefulDataLoader`` does: it calls the data set's methods in the workers."""
    options = {"batch_size": BATCH, "shuffle": shuffle, "epochs": 2}
    expected = rows(zc.loader(path, to="torch", **options))
    delivered, states = [], []
    for number in range(2):
        loader = zc.loader(path, to="torch", **options)
        as_worker(monkeypatch, number, 2)
        batches = iter(loader)
        delivered += rows(next(batches) for _ in range(3 + 20 * number))  # one is in the second epoch
        states.append(json.loads(json.dumps(loader.state_dict())))
        batches.close()
        as_worker(monkeypatch, 0, 1)
    for number, state in enumerate(states):
        loader = zc.loader(path, to="torch", **options)
        as_worker(monkeypatch, number, 2)
        loader.load_state_dict(state)
        delivered += rows(loader)
        as_worker(monkeypatch, 0, 1)
    assert sorted(delivered) == sorted(expected)


@pytest.mark.hazard("training#state-of-one-worker-in-all")
def test_the_state_of_another_worker_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_worker(monkeypatch, 0, 1)
    loader = zc.loader(path, to="torch", batch_size=BATCH)
    other = zc.loader(path, to="torch", batch_size=BATCH)
    as_worker(monkeypatch, 1, 2)
    next(iter(loader))
    as_worker(monkeypatch, 0, 2)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(zc.ZeroCopyError, match="worker 1 of 2, and this is worker 0 of 2") as caught:
        iter(other)
    assert caught.value.code == "other-worker"


def test_a_resumed_loader_is_divided_among_workers(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = zc.loader(path, to="torch", batch_size=BATCH, shuffle=True)
    batches = iter(loader)
    delivered = rows(next(batches) for _ in range(5))
    state = loader.state_dict()
    batches.close()
    for number in range(3):
        resumed = zc.loader(path, to="torch", batch_size=BATCH, shuffle=True)
        resumed.load_state_dict(state)
        as_worker(monkeypatch, number, 3)
        delivered += rows(resumed)
        as_worker(monkeypatch, 0, 1)
    assert delivered == rows(zc.loader(path, to="torch", batch_size=BATCH, shuffle=True))


def test_a_pickled_loader_has_the_position(path: str) -> None:
    loader = zc.loader(path, to=torch, batch_size=BATCH, shuffle=True)
    batches = iter(loader)
    next(batches)
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.state_dict() == loader.state_dict()
    assert isinstance(copy, IterableDataset)
    assert rows(copy) == rows(batches)


@pytest.mark.hazard("training#workers-that-do-not-persist")
def test_set_epoch_gives_the_order_of_that_epoch(path: str) -> None:
    loader = zc.loader(path, to="torch", batch_size=BATCH, shuffle=True)
    epochs = [rows(loader) for _ in range(3)]
    other = zc.loader(path, to="torch", batch_size=BATCH, shuffle=True)
    other.set_epoch(2)
    assert rows(other) == epochs[2]
    other.set_epoch(1)
    batches = iter(other)
    first = rows([next(batches)])
    state = other.state_dict()
    other.load_state_dict(state)
    other.set_epoch(1)  # keeps the position that was loaded
    assert first + rows(other) == epochs[1]


# -- DataLoader -----------------------------------------------------------------------


def test_a_data_loader_without_workers_returns_the_batches(path: str) -> None:
    loader = zc.loader(path, to="torch", batch_size=BATCH)
    data_loader = DataLoader(loader, batch_size=None)
    assert len(data_loader) == len(loader) == 32
    batches = list(data_loader)
    assert [row for batch in rows(batches) for row in batch] == list(range(ROWS))


# Warnings are errors: torch warns if there are more batches than `len`.
WORKERS = """
import sys, warnings
warnings.simplefilter("error")
import torch, zerocopy as zc
from torch.utils.data import DataLoader
if __name__ == "__main__":
    torch.set_num_threads(1)
    def batches(data): return [batch["x"].tolist() for batch in data]
    for options in {cases!r}:
        loader = zc.loader({path!r}, to="torch", batch_size=32, **options)
        plain = zc.loader({path!r}, to="torch", batch_size=32, **options)
        for persistent in {persistent!r}:
            data = DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context={method!r},
                              persistent_workers=persistent, timeout=60)
            for epoch in range(2):
                number = epoch * options.get("epochs", 1)
                loader.set_epoch(number)
                plain.set_epoch(number)
                assert len(data) == len(plain)
                expected, delivered = batches(plain), batches(data)
                assert sorted(delivered) == sorted(expected), (options, persistent, epoch)
"""


@pytest.mark.hazard("training#workers-that-read-everything")
def test_forked_workers_deliver_each_row_once(path: str, run_warm) -> None:
    cases = [{"shuffle": False}, {"shuffle": True, "epochs": 2}]
    code = WORKERS.format(cases=cases, path=path, persistent=(False, True), method="fork")
    completed = run_warm(code)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.full
def test_spawned_workers_deliver_each_row_once(path: str, run_warm) -> None:
    code = WORKERS.format(cases=[{"shuffle": True}], path=path, persistent=(True,), method="spawn")
    completed = run_warm(code)
    assert completed.returncode == 0, completed.stderr


# -- DistributedDataParallel ----------------------------------------------------------


@pytest.mark.hazard("training#unequal-numbers-of-batches")
@pytest.mark.full
def test_distributed_processes_have_equal_numbers_of_batches(path: str, tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed")
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("torch was built without gloo")
    program = str(ROOT / "tests" / "helpers" / "ddp_training.py")
    commands = [[sys.executable, program, path, str(tmp_path / "store"), str(rank), "2"] for rank in (0, 1)]
    environment = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for command in commands
    ]
    try:
        outputs = [process.communicate(timeout=90) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, messages) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, messages
    results = [json.loads(output) for output, _ in outputs]
    assert results[0]["parameters"] == results[1]["parameters"]
    assert [len(result["rows"]) for result in results] == [62, 62] == [r["length"] for r in results]
    delivered = [row for result in results for batch in result["rows"] for row in batch]
    assert len(delivered) == len(set(delivered)) == 62 * 8 * 2
