"""Resume is exact from every position, in other processes, and with other numbers of shards."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.loader_cases import Groups, Tables, ids, loader_of, parquet_file
from helpers.paths import ROOT
from helpers.tiers import sample_size

import zerocopy as zc
from zerocopy.errors import LoaderStateError
from zerocopy.loading.loader import Loader

WAYS: list[dict[str, Any]] = [
    {},
    {"layout": "matrix", "dtype": "float64"},
    {"shuffle": 12},
    {"shuffle": True, "layout": "matrix", "dtype": "float64"},
    {"shuffle": "full", "drop_last": True},
    {"shuffle": 9, "to": "pyarrow"},
    {"shuffle": 8, "rank": 1, "world_size": 3},
    {"shuffle": 6, "on_error": "skip"},
    {"to": "pyarrow", "on_error": "skip", "rank": 0, "world_size": 2},
    {"on_error": "skip", "drop_last": True},
]
SIZES = [7, 0, 13, 1, 21, 6, 11]
EPOCHS = 3


def source_of(options: dict[str, Any]) -> Groups:
    return Groups(SIZES, broken=(2,) if "on_error" in options else ())


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state, allow_nan=False))


@pytest.mark.hazard("robustness#batches-read-ahead")
@pytest.mark.parametrize("number", range(len(WAYS)))
def test_resume_at_100_random_points(number: int) -> None:
    """1,000 points over all ways, or 300, in three epochs of one iteration and the epoch after them."""
    options = {"batch_size": 4, "epochs": EPOCHS, "seed": number} | WAYS[number]
    loader = loader_of(source_of(options), **options)
    states, batches = [through_json(loader.state_dict())], []
    for batch in loader:
        batches.append(ids(batch))
        states.append(through_json(loader.state_dict()))
    later = [ids(batch) for batch in loader]
    resumed = loader_of(source_of(options), **options)
    points = random.Random(number)
    for _ in range(sample_size(100, 30)):
        point = points.randint(0, len(batches))
        resumed.load_state_dict(states[point])
        assert resumed.state_dict() == states[point]
        iterator = iter(resumed)
        assert [ids(batch) for batch in iterator] == batches[point:]
    assert [ids(batch) for batch in resumed] == later
    if "on_error" not in options:
        resumed.load_state_dict(states[5])
        assert len(resumed) == len(batches) - 5
        assert len(list(resumed)) == len(batches) - 5
        assert len(resumed) == len(batches)


@pytest.mark.parametrize("options", [{}, {"shuffle": 12}, {"layout": "matrix", "dtype": "float64"}])
def test_resume_of_streams(options: dict[str, Any]) -> None:
    loader = loader_of(Tables(SIZES), batch_size=4, epochs=2, **options)
    states, batches = [through_json(loader.state_dict())], []
    for batch in loader:
        batches.append(ids(batch))
        states.append(through_json(loader.state_dict()))
    states.append(through_json(loader.state_dict()))  # after the end
    for point, state in enumerate(states):
        resumed = loader_of(Tables(SIZES), batch_size=4, epochs=2, **options)
        resumed.load_state_dict(state)
        assert [ids(batch) for batch in resumed] == batches[point:]


def test_state_after_break_error_and_end() -> None:
    """The state is that of the batch which the consumer had last."""
    loader = loader_of(Groups(SIZES), batch_size=4, shuffle=12)
    batches = [ids(batch) for batch in loader]
    assert loader.state_dict()["done"] == len(batches)
    for how in ("break", "raise"):
        loader = loader_of(Groups(SIZES), batch_size=4, shuffle=12)
        try:
            for number, _ in enumerate(loader):
                if number == 5:
                    if how == "raise":
                        raise KeyError(how)
                    break
        except KeyError:
            pass
        state = loader.state_dict()
        loader.load_state_dict(state)
        assert [ids(batch) for batch in loader] == batches[6:]


def test_state_of_an_error_in_the_reader_continues_after_the_batches_before_it() -> None:
    loader = loader_of(Groups(SIZES, broken=(4,)), batch_size=4)
    iterator = iter(loader)
    delivered = [ids(next(iterator)) for _ in range(5)]
    with pytest.raises(OSError, match="broken"):
        next(iterator)
    repaired = loader_of(Groups(SIZES), batch_size=4)
    repaired.load_state_dict(loader.state_dict())
    rest = [ids(batch) for batch in repaired]
    assert delivered + rest == [ids(batch) for batch in loader_of(Groups(SIZES), batch_size=4)]


RESUME = """
import json, sys, zerocopy as zc
path, state = sys.argv[1], json.loads(sys.argv[2])
loader = zc.loader(path, to="numpy", batch_size=4, shuffle=12, seed=3)
loader.load_state_dict(state)
print(json.dumps([batch["id"].tolist() for batch in loader]))
"""


def test_resume_in_another_process(tmp_path: Path) -> None:
    path = parquet_file(tmp_path, 61, 7)
    loader = zc.loader(path, to="numpy", batch_size=4, shuffle=12, seed=3)
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    state = json.dumps(loader.state_dict())
    rest = [batch["id"].tolist() for batch in iterator]
    command = [sys.executable, "-c", RESUME, path, state]
    output = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert output.returncode == 0, output.stderr
    assert json.loads(output.stdout) == rest


# -- shards ------------------------------------------------------------------------------------


def shards(world: int, **options: Any) -> list[Loader]:
    return [loader_of(Groups(SIZES), batch_size=4, rank=k, world_size=world, **options) for k in range(world)]


def advance(loader: Loader, count: int) -> list[list[int]]:
    return [ids(batch) for batch in itertools.islice(iter(loader), count)]


@pytest.mark.hazard("robustness#states-of-other-loaders")
@pytest.mark.parametrize("shuffle", [False, 12, "full"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_other_numbers_of_shards_deliver_the_batches_that_are_left(shuffle: Any, drop_last: bool) -> None:
    """Twice: from 3 shards to any number, and from these to 2."""
    options = {"shuffle": shuffle, "drop_last": drop_last, "epochs": 2}
    for world, ahead in itertools.product((1, 2, 3, 4, 7), ((0, 0, 0), (1, 2, 1), (2, 4, 0), (9, 9, 9))):
        old = shards(3, **options)
        whole = [ids(batch) for loader in shards(3, **options | {"epochs": 1}) for batch in loader]
        seen = [batch for loader, count in zip(old, ahead, strict=True) for batch in advance(loader, count)]
        if max(ahead) == 9:
            # All shards have ended their first epoch, and some have begun their second.
            old = shards(3, **options)
            seen = [batch for loader in old for batch in advance(loader, len(loader) // 2)]
        states = [through_json(loader.state_dict()) for loader in old]
        random.Random(0).shuffle(states)
        middle = shards(world, **options)
        for loader in middle:
            loader.load_state_dict(states)
            assert loader.epoch == 0
        seen += [batch for loader in middle for batch in advance(loader, 1) if loader.epoch == 0]
        states = [through_json(loader.state_dict()) for loader in middle]
        if len({state["epoch"] for state in states}) > 1:
            continue  # some shards had no batches left, and are in the next epoch
        new = shards(2, **options)
        counts = set()
        for loader in new:
            loader.load_state_dict(states)
            if loader.epoch:
                break
            left = loader._tracker.progress.portion.batches() - loader._tracker.progress.done
            batches = [ids(batch) for batch in itertools.islice(iter(loader), left)]
            counts.add(len(batches))
            seen += batches
        else:
            missing = [batch for batch in whole if batch not in seen]
            assert len(seen) == len(set(map(tuple, seen)))
            assert all(batch in whole for batch in seen)
            assert len(missing) <= (world - 1 + 1 if drop_last else 0)
            assert not drop_last or len(counts) == 1


def test_one_state_continues_all_shards_in_lockstep() -> None:
    """Each shard has delivered as many batches as the one that saved its state, or all that it has."""
    whole = sorted(row for loader in shards(3, shuffle=12) for batch in loader for row in ids(batch))
    for count, saver, world in itertools.product((0, 1, 3, 4, 5), range(3), (1, 2, 3, 5)):
        old = shards(3, shuffle=12)
        seen = [row for loader in old for batch in advance(loader, count) for row in batch]
        state = through_json(old[saver].state_dict())
        new = shards(world, shuffle=12)
        for loader in new:
            loader.load_state_dict(state)
            seen += [row for batch in loader for row in ids(batch)]
        if count < 5 or saver == 2:  # otherwise the saver's shard ended before the others
            assert sorted(seen) == whole
        else:
            assert set(seen) == set(whole)


def test_states_that_are_not_of_all_shards_are_refused() -> None:
    old = shards(3)
    for loader in old:
        advance(loader, 2)
    states = [loader.state_dict() for loader in old]
    ended = shards(3, epochs=1)[1]
    list(ended)
    list(ended)
    for given in (
        states[:2],
        [states[0], states[0], states[1]],
        [*states, states[0]],
        [states[0], ended.state_dict(), states[2]],
    ):
        target = shards(2)[0]
        before = target.state_dict()
        with pytest.raises(LoaderStateError, match="states are of"):
            target.load_state_dict(given)
        assert target.state_dict() == before


# -- states that are refused ----------------------------------------------------------------------


def changed(**parts: Any) -> Any:
    state = loader_of(Groups(SIZES), batch_size=4, shuffle=12).state_dict()
    return {name: value for name, value in (state | parts).items() if value is not KeyError}


HOSTILE: list[Any] = [
    None, 5, "state", b"state", [], [[]], {}, [None], object(), np.zeros(3),
    *[
        changed(**{name: value})
        for name in ("version", "source", "rows", "seed", "batch_size", "shuffle", "drop_last", "epoch",
                     "until", "window", "rank", "world_size", "done")
        for value in (KeyError, None, -1, 10**30, 1.5, "1", [1], {}, True, float("nan"))
    ],
    *[changed(dealt=value) for value in (
        KeyError, 5, "x", {}, [5], [[1, 2]], [[0, 9, 0, "1"]], [[-4, 9, 0, -1]], [[0, 60, 0, -1]],
        [[0, 9, 1, -1]], [[0, 9, 0, 3]], [[0, 9, 0, 12]], [[9, 0, 0, -1]], [[0, 9, 8, 4]], [[0, 9, 4, 4]],
        [[0, 9, 0, -2]], [[0, 9, 0, -1], [0, 9, 0, -1]], [[0, 9, 0, -1], [8, 20, 0, -1]],
        [[0, 20, 0, 8], [0, 20, 4, -1]], [[20, 30, 0, -1], [0, 20, 0, -1]], [[0, True, 0, -1]],
    )],
    *[changed(rank=k, world_size=n) for k, n in ((0, 0), (1, 1), (-1, 2), (0, 2**40), ([0], 2), ("0", 1))],
    changed(window=10), changed(window=16 * 10**9), changed(done=16), changed(until=3), changed(until=0),
]  # fmt: skip


@pytest.mark.hazard("robustness#states-of-other-loaders")
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_states_are_refused(number: int) -> None:
    state = HOSTILE[number]
    loader = loader_of(Groups(SIZES), batch_size=4, shuffle=12)
    before = loader.state_dict()
    if isinstance(state, dict) and state == before:
        return  # the value is the loader's own
    with pytest.raises(LoaderStateError) as caught:
        loader.load_state_dict(state)
    assert caught.value.remedy
    assert len(str(caught.value)) < 600
    assert loader.state_dict() == before


def test_bits_of_types_are_not_confused() -> None:
    """``True == 1`` in Python: ``shuffle=True`` is not a window of one row."""
    state = loader_of(Groups(SIZES), batch_size=4, shuffle=True).state_dict()
    with pytest.raises(LoaderStateError, match="shuffle"):
        loader_of(Groups(SIZES), batch_size=4, shuffle=1).load_state_dict(state)


def test_a_state_is_independent_of_the_loader() -> None:
    loader = loader_of(Groups(SIZES), batch_size=4)
    state = loader.state_dict()
    state["worker"].append(7)
    state["done"] = 3
    assert loader.state_dict()["worker"] == [0, 1, 0]
    assert loader.state_dict()["done"] == 0


def test_a_source_for_one_reading_is_not_pickled() -> None:
    stream = Tables(SIZES)
    stream.once, stream.only_here = True, "can be read only once"
    loader = loader_of(stream, batch_size=4)
    with pytest.raises(TypeError, match="can be read only once") as caught:
        pickle.dumps(loader)
    assert caught.value.code == "unpicklable-loader"  # type: ignore[attr-defined]
    assert len(list(loader)) == 15
    with pytest.raises(RuntimeError, match="can be read only once") as used:
        iter(loader)
    assert used.value.code == "used-up"  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="not known before"):
        len(loader)


@pytest.mark.parametrize(
    "changed",
    [{"to": "polars"}, {"layout": "matrix", "dtype": "float32"}, {"nulls": 0}, {"encode": True}],
    ids=["to", "layout", "nulls", "encode"],
)
def test_a_state_of_arrays_fits_other_conversions(changed: dict[str, Any]) -> None:
    """Options that make a table of the arrays leave the source, and so the state, as it is."""
    data = {"x": np.arange(10.0), "y": np.arange(10)}
    loader = zc.loader(data, "numpy", batch_size=2)
    next(iter(loader))
    resumed = zc.loader(data, **{"to": "numpy", "batch_size": 2, **changed})
    resumed.load_state_dict(loader.state_dict())
    assert len(list(resumed)) == 4
    other = zc.loader({**data, "x": np.ones(10)}, **{"to": "numpy", "batch_size": 2, **changed})
    with pytest.raises(zc.errors.LoaderStateError, match="source="):
        other.load_state_dict(loader.state_dict())
