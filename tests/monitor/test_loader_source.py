"""``read_loaders``: loaders that are in use, finished or dropped, in threads and forked children."""

from __future__ import annotations

import gc
import json
import os
import pickle
import threading
import weakref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.loader_cases import Groups
from helpers.shared_memory import in_child

import zerocopy as zc
from zerocopy.loading.loader import Loader
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.stats import live_loaders
from zerocopy.monitor import sample
from zerocopy.monitor.process_record import read_loaders

DATA = {"x": np.arange(100.0), "y": np.arange(100)}


@pytest.fixture(autouse=True)
def no_loaders():
    """Drop loaders of other tests, which cycles may keep."""
    gc.collect()
    names = [record["name"] for record in read_loaders()]
    yield
    gc.collect()
    assert [record["name"] for record in read_loaders()] == names


@pytest.fixture
def records(no_loaders):
    """Return a function that reads the loaders that the test created."""
    others = {id(loader) for loader in live_loaders()}

    def read():
        others.intersection_update(id(loader) for loader in live_loaders())
        rows = read_loaders()[len(others) :]
        assert all(each.keys() == sample.LoaderRecord.__annotations__.keys() for each in rows)
        assert json.loads(json.dumps(rows)) == rows
        return rows

    return read


def wait_until(condition) -> None:
    pause = threading.Event()
    for _ in range(5000):
        if condition():
            return
        pause.wait(0.002)
    raise AssertionError("the condition was not met in 10 s")


def test_without_loaders_nothing_is_imported(run_python) -> None:
    completed = run_python(
        """
        import sys
        from zerocopy.monitor.process_record import read_loaders
        print(read_loaders(), [name for name in sys.modules if name.startswith("zerocopy.loading")])
        """
    )
    assert completed.stdout == "[] []\n", completed.stderr


def test_figures_before_during_and_after_an_epoch(records) -> None:
    source = Groups([10] * 10)
    loader = Loader(source, LoaderOptions("numpy", 10, prefetch=3), source.schema.empty_table())
    (record,) = records()
    assert record["name"] == "memory -> numpy"
    assert (record["batches"], record["rows"], record["bytes"], record["running"]) == (0, 0, 0, False)
    assert record["bottleneck"] == "No batch has been delivered."
    batches = iter(loader)
    next(batches)
    wait_until(lambda: records()[0]["depth"] > 0)
    (record,) = records()
    assert (record["batches"], record["rows"], record["running"]) == (1, 10, True)
    assert record["limit"] == 3
    list(batches)
    (record,) = records()
    assert (record["batches"], record["rows"], record["bytes"]) == (10, 100, 1600)
    assert (record["depth"], record["running"]) == (0, False)
    assert "The consumer waited" in record["bottleneck"]


def test_iterators_are_summed(records) -> None:
    loader = zc.loader(DATA, to="numpy", batch_size=10)
    iterators = [iter(loader), iter(loader)]
    for batches in iterators:
        next(batches)
    (record,) = records()
    assert (record["batches"], record["limit"], record["running"]) == (2, 4, True)
    del iterators, batches
    gc.collect()
    (record,) = records()
    assert (record["batches"], record["limit"], record["running"]) == (2, 2, False)


def test_loader_is_not_kept(records) -> None:
    loader = zc.loader(DATA, to="numpy", batch_size=10)
    list(loader)
    reference = weakref.ref(loader)
    assert len(records()) == 1
    del loader
    gc.collect()
    assert reference() is None
    assert records() == []


def test_copies_are_loaders_of_their_own(records) -> None:
    loader = zc.loader(DATA, to="numpy", batch_size=10)
    list(loader)
    copied = pickle.loads(pickle.dumps(loader))
    assert [record["batches"] for record in records()] == [10, 0]
    list(copied)
    assert [record["batches"] for record in records()] == [10, 10]


@pytest.mark.parametrize(("count", "name"), [(1, "a0.parquet"), (3, "a0.parquet and 2 more")])
def test_name_has_no_directories(records, tmp_path, count: int, name: str) -> None:
    folder = tmp_path / "secret"
    folder.mkdir()
    for number in range(count):
        pq.write_table(pa.table(DATA), folder / f"a{number}.parquet", row_group_size=10)
    loader = zc.loader(str(folder / "*.parquet"), to="torch" if count == 1 else np, batch_size=10)
    assert loader
    (record,) = records()
    assert record["name"] == f"{name} -> {'torch' if count == 1 else 'numpy'}"
    assert "secret" not in json.dumps(records())


def test_loader_with_an_error_is_not_running(records) -> None:
    source = Groups([5, 5], broken=[1])
    loader = Loader(source, LoaderOptions("numpy", 5), source.schema.empty_table())
    with pytest.raises(zc.errors.ReadError):
        list(loader)
    (record,) = records()
    assert (record["batches"], record["running"]) == (1, False)


def test_forked_child_lists_the_loaders_that_it_uses(records) -> None:
    loader, other = zc.loader(DATA, to="numpy", batch_size=10), zc.loader(DATA, to="numpy", batch_size=20)
    batches = iter(loader)
    next(batches)

    def check() -> None:
        assert read_loaders() == []
        list(other)
        (record,) = read_loaders()
        assert (record["batches"], record["running"]) == (5, False)
        list(loader)
        assert [each["batches"] for each in read_loaders()] == [5, 10]  # without the parent's batch

    assert in_child(check) == 0
    assert [record["batches"] for record in records()] == [1, 0]
    batches.close()
    assert os.getpid() == loader._pid


def test_reading_while_loaders_come_and_go(records) -> None:
    done, errors = threading.Event(), []

    def work() -> None:
        try:
            for _ in range(20):
                assert len(list(zc.loader(DATA, to="numpy", batch_size=25))) == 4
        except BaseException as error:  # noqa: BLE001 - the test reports it
            errors.append(error)
        finally:
            done.set()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while not done.is_set():
        assert all(0 <= record["batches"] <= 4 for record in records())
    for thread in threads:
        thread.join()
    assert errors == []
