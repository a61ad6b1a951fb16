"""Worker processes that iterate over copies of a loader: states, repeated epochs, ``StatefulDataLoader``."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.errors import LoaderStateError

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

from zerocopy._frameworks.torch.loading import Loading  # noqa: E402

DATA = {"x": np.arange(26)}


def loader_of(**options: Any) -> Any:
    return zc.loader(DATA, to="torch", batch_size=4, **options)


class Process:
    """Lets the loaders of this process be those of a worker, with another process id."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, worker: tuple[int, int], pid: int) -> None:
        self._patch, self._worker, self._pid = monkeypatch, worker, pid

    def __enter__(self) -> None:
        self._context = self._patch.context()
        patch = self._context.__enter__()
        patch.setattr(Loading, "worker", lambda hook: self._worker)
        patch.setattr("zerocopy.loading.state.getpid", lambda: self._pid)

    def __exit__(self, *exception: object) -> None:
        self._context.__exit__(*exception)


def forked(loader: Any) -> Any:
    """Return a copy of a loader that shares its numbers, as in a forked process."""
    other = pickle.loads(pickle.dumps(loader))
    other._use._numbers, other._is_begun = loader._use._numbers, loader._is_begun
    return other


def begin_epoch(monkeypatch: pytest.MonkeyPatch, loader: Any, pid: int, workers: int = 2) -> list[Any]:
    """Let new workers deliver an epoch, and return their copies."""
    copies = [forked(loader) for _ in range(workers)]
    for number, other in enumerate(copies):
        with Process(monkeypatch, (number, workers), pid + number):
            list(other)
            assert other.state_dict()["worker"][:2] == [number, workers]
    return copies


def test_a_loader_needs_no_shared_memory_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*arguments: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/dev/shm")

    monkeypatch.setattr("multiprocessing.sharedctypes.RawArray", no_memory)
    assert [len(batch["x"]) for batch in loader_of()] == [4] * 6 + [2]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loader_whose_copies_are_read_has_no_state(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    loader = loader_of()
    start = loader.state_dict()
    begin_epoch(monkeypatch, loader, 10**7, workers)
    with pytest.raises(LoaderStateError, match="worker processes") as caught:
        loader.state_dict()
    assert caught.value.code == "state-in-workers"
    assert "num_workers=0" in caught.value.remedy
    assert "StatefulDataLoader" in caught.value.remedy
    with pytest.raises(LoaderStateError):
        pickle.loads(pickle.dumps(loader)).state_dict()
    loader.set_epoch(1)
    assert loader.state_dict()["epoch"] == 1
    loader.load_state_dict(start)
    assert loader.state_dict() == start


def test_the_state_of_an_iterator_of_this_process_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_of()
    begin_epoch(monkeypatch, loader, 10**7)
    next(iter(loader))
    assert loader.state_dict()["done"] == 1


def test_a_process_that_is_not_a_worker_leaves_the_state_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It shares the numbers, and has a position of its own."""
    loader = loader_of()
    begin_epoch(monkeypatch, loader, 10**7)
    other = forked(loader)
    monkeypatch.setattr("zerocopy.loading.state.getpid", lambda: 10**8)
    next(iter(other))
    assert other.state_dict()["done"] == 1
    monkeypatch.undo()
    with pytest.raises(LoaderStateError):
        loader.state_dict()


def test_new_workers_that_repeat_an_epoch_warn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_of()
    begin_epoch(monkeypatch, loader, 10**7)
    with pytest.warns(RuntimeWarning, match=r"epoch 0 .* again; call loader.set_epoch") as caught:
        begin_epoch(monkeypatch, loader, 10**8)
    assert caught[0].filename == __file__
    begin_epoch(monkeypatch, loader, 10**9)  # a warning would be an error


def test_workers_that_go_on_do_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = loader_of()
        copies = begin_epoch(monkeypatch, loader, 10**7)
        for number, other in enumerate(copies):  # they persist
            with Process(monkeypatch, (number, 2), 10**7 + number):
                list(other)
        loader.set_epoch(1)
        copies = begin_epoch(monkeypatch, loader, 10**8)
        states = [
            other.state_dict() for other in map(forked, copies) if other._move(other._tracker, True) is None
        ]
        for number, state in enumerate(states):  # new workers continue states
            other = forked(loader)
            with Process(monkeypatch, (number, 2), 10**9 + number):
                other.load_state_dict(state)
                list(other)


# Warnings are errors, in the workers too.
STATES = """
import warnings
warnings.simplefilter("error")
import numpy as np, torch, zerocopy as zc
from torch.utils.data import DataLoader

def check_state(loader):
    try:
        loader.state_dict()
    except zc.errors.LoaderStateError as error:
        assert error.code == "state-in-workers", error
    else:
        raise AssertionError("the position is in the workers")

if __name__ == "__main__":
    torch.set_num_threads(1)
    loader = zc.loader({{"x": np.arange(26)}}, to="torch", batch_size=4)
    options = {{"num_workers": {workers}, "multiprocessing_context": {method!r}, "timeout": 60}}
    data = DataLoader(loader, batch_size=None, **options)
    assert loader.state_dict()["done"] == 0
    batches = iter(data)
    next(batches)
    check_state(loader)
    assert len(list(batches)) == 6
    check_state(loader)
    loader.set_epoch(1)
    assert loader.state_dict()["epoch"] == 1
    if {method!r} == "fork":
        assert len(list(data)) == 7
        try:
            list(data)
        except Exception as error:
            assert "new worker processes begin epoch 1 of the loader again" in str(error), error
        else:
            raise AssertionError("epoch 1 was repeated")
        assert len(list(data)) == 7, "it warns once"
"""


@pytest.mark.parametrize(
    ("method", "workers"), [("fork", 2), pytest.param("spawn", 1, marks=pytest.mark.full)]
)
def test_states_and_repeated_epochs_of_a_data_loader(method: str, workers: int, run_warm: Any) -> None:
    completed = run_warm(STATES.format(method=method, workers=workers))
    assert completed.returncode == 0, completed.stderr


STATEFUL = """
import pickle, warnings
import numpy as np, torch, zerocopy as zc
warnings.filterwarnings("error", category=RuntimeWarning)
from torchdata.stateful_dataloader import StatefulDataLoader
torch.set_num_threads(1)
EPOCHS = 2

def create(workers, persistent, every):
    loader = zc.loader({"x": np.arange(14)}, to="torch", batch_size=4, shuffle=True)
    options = {"multiprocessing_context": "fork", "persistent_workers": persistent} if workers else {}
    data = StatefulDataLoader(
        loader, batch_size=None, num_workers=workers, snapshot_every_n_steps=every, **options
    )
    return loader, data

def train(loader, data, first, stop):
    steps = []
    for epoch in range(first, EPOCHS):
        loader.set_epoch(epoch)
        for batch in data:
            steps.append((epoch, batch["x"].tolist()))
            if len(steps) == stop:
                return steps, epoch, data.state_dict()
        steps.append((epoch, "end"))
        if len(steps) == stop:
            return steps, epoch + 1, data.state_dict()
    return steps, None, None

for workers, persistent, every in ((0, False, 1), (0, False, 3), (1, False, 1), (2, False, 1), (2, True, 3)):
    expected = train(*create(workers, persistent, every), 0, None)[0]
    assert len(expected) == 10 and len({str(step) for step in expected}) == 10
    for stop in range(1, 10):
        steps, epoch, state = train(*create(workers, persistent, every), 0, stop)
        loader, data = create(workers, persistent, every)
        data.load_state_dict(pickle.loads(pickle.dumps(state)))
        rest = train(loader, data, epoch, None)[0]
        assert steps + rest == expected, (workers, persistent, every, stop)
"""


@pytest.mark.full
def test_a_stateful_data_loader_resumes_at_each_position(run_warm: Any) -> None:
    pytest.importorskip("torchdata.stateful_dataloader")
    completed = run_warm(STATEFUL)
    assert completed.returncode == 0, completed.stderr


INDICES = """
import numpy as np, torch, zerocopy as zc
from torch.utils.data import DataLoader
torch.set_num_threads(1)
for to in {names!r}:
    for workers in (0, 1):
        loader = zc.loader({{"x": np.arange(8)}}, to=to, batch_size=4)
        try:
            list(DataLoader(loader, batch_size=None, num_workers=workers, timeout=60 * workers))
        except Exception as error:
            assert 'DataLoader(zc.loader(source, to="torch"), batch_size=None)' in str(error), error
            assert isinstance(error, RuntimeError), repr(error)
        else:
            raise AssertionError(to)
"""


def test_a_data_loader_of_other_batches_is_refused_with_a_reason(run_warm: Any) -> None:
    completed = run_warm(INDICES.format(names=["numpy"]))
    assert completed.returncode == 0, completed.stderr


def test_no_loader_has_indices() -> None:
    for to in ("numpy", "torch", "pyarrow"):
        with pytest.raises(zc.ZeroCopyError, match="no indices") as caught:
            zc.loader(DATA, to=to)[0]
        assert caught.value.code == "no-indices"
    data = DataLoader(zc.loader(DATA, to="torch"), batch_size=None)
    assert [len(batch["x"]) for batch in data] == [26]
