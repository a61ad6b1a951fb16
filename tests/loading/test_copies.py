"""Copies and states of a loader: of each kind of source, by each way, in each state of the loader."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.loader_sources import SOURCES
from helpers.source_data import small_table
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy.loading.loader import Loader

#: Sources that belong to one loader.
REFUSED = {
    "ParquetFile",
    "Scanner",
    "DuckDB relation",
    "dataset in memory",
    "filtered dataset",
    "h5py datasets in chunks",
}
WAYS: dict[str, Callable[[Loader], Loader]] = {
    "pickle": lambda loader: pickle.loads(pickle.dumps(loader)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
OPTIONS: dict[str, Any] = {"to": "numpy", "batch_size": 3, "epochs": 2}


@pytest.fixture(autouse=True)
def _no_open_files() -> Iterator[None]:
    """Close the files of loaders that the traceback of an error refers to."""
    yield
    gc.collect()


def rows(batches: Any) -> list[list[int]]:
    return [batch["y"].tolist() for batch in batches]


def taken(loader: Loader, count: int) -> Any:
    """Return an iterator of the loader from which some batches were taken."""
    batches = iter(loader)
    for _ in range(count):
        next(batches)
    return batches


def exhausted(loader: Loader) -> None:
    assert len(list(loader)) == 8


def loaded(loader: Loader) -> None:
    taken(loader, 2).close()
    loader.load_state_dict(loader.state_dict())


def exhausted_after_loading(loader: Loader) -> None:
    loaded(loader)
    assert len(list(loader)) == 6


#: Bring a loader into a state in which a copy begins where ``iter(loader)`` begins.
STATES: dict[str, Callable[[Loader], Any]] = {
    "fresh": lambda loader: None,
    "in another epoch": lambda loader: loader.set_epoch(3),
    "loaded": loaded,
    "exhausted": exhausted,
    "exhausted after loading": exhausted_after_loading,
    "copied": lambda loader: loader.load_state_dict(copy.copy(loader).state_dict()),
}
#: Numbers of batches that were taken from an iterator, which has 4 in each of 2 epochs.
RUNNING = (0, 2, 4, 7, 8)
COPIED = [kind for kind in SOURCES if kind not in REFUSED]


@pytest.mark.parametrize(("kind", "way"), [*sampled(3, COPIED, [*WAYS])])
def test_a_copy_of_a_running_loader_delivers_the_batches_that_are_left(
    kind: str, way: str, tmp_path: Path
) -> None:
    source = SOURCES[kind](tmp_path)
    for count in RUNNING:
        loader = zc.loader(source, shuffle=kind == "path", **OPTIONS)
        batches = taken(loader, count)
        other = WAYS[way](loader)
        assert other.state_dict() == loader.state_dict()
        left = rows(batches)
        assert len(left) == 8 - count
        assert rows(other) == left
        assert rows(other) == rows(loader), "in the next iteration"


@pytest.mark.parametrize(("kind", "way"), [*sampled(3, COPIED, [*WAYS])])
def test_a_copy_begins_where_the_loader_begins(kind: str, way: str, tmp_path: Path) -> None:
    source = SOURCES[kind](tmp_path)
    for state, bring in STATES.items():
        loader = zc.loader(source, shuffle=kind == "path", **OPTIONS)
        bring(loader)
        other = WAYS[way](loader)
        assert other.state_dict() == loader.state_dict(), state
        delivered = rows(loader)
        assert len(delivered) == (6 if state == "loaded" else 8)
        assert rows(other) == delivered, state


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_goes_on_where_an_iterator_was_closed(way: str) -> None:
    loader = zc.loader(small_table(), **OPTIONS)
    batches = taken(loader, 3)
    batches.close()
    assert list(batches) == []
    assert rows(WAYS[way](loader)) == rows(zc.loader(small_table(), **OPTIONS))[3:]


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_and_its_loader_read_files_at_once(way: str, tmp_path: Path) -> None:
    """Each has a lock of its own, so each needs an open file of its own."""
    for kind in ("path", "Feather", "IPC stream"):
        for options in ({}, {"schema": {"y": "int32"}}, {"columns": ["y"], "encode": True}):
            loader = zc.loader(SOURCES[kind](tmp_path), **OPTIONS, **options)
            assert all(
                a["y"].tolist() == b["y"].tolist() for a, b in zip(loader, WAYS[way](loader), strict=True)
            )
            other = WAYS[way](loader)
            iter(loader).close()  # type: ignore[attr-defined]
            assert _inner(other._source) is not _inner(loader._source)


def _inner(source: Any) -> Any:
    """Return the source below those that cast or encode its columns."""
    return _inner(source._source) if hasattr(source, "_source") else source


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_a_source_that_only_one_loader_can_read_is_refused(kind: str, way: str, tmp_path: Path) -> None:
    for options in ({}, {"schema": {"y": "int32"}}, {"encode": True}):
        loader = zc.loader(SOURCES[kind](tmp_path), to="numpy", **options)
        with pytest.raises(TypeError, match=r"two loaders|cannot be pickled") as caught:
            WAYS[way](loader)
        assert caught.value.code == "unpicklable-loader"  # type: ignore[attr-defined]


# -- states of each kind of source -------------------------------------------------------------


@pytest.mark.parametrize("kind", SOURCES)
def test_a_state_resumes_each_kind_of_source_at_each_position(kind: str, tmp_path: Path) -> None:
    source = SOURCES[kind](tmp_path)
    loader = zc.loader(source, **OPTIONS)
    states, expected = [loader.state_dict()], []
    for batch in loader:
        expected += rows([batch])
        states.append(loader.state_dict())
    states.append(loader.state_dict())  # after the end
    for position, state in enumerate(states):
        resumed = zc.loader(source, **OPTIONS)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert rows(resumed) == expected[position:]


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"shuffle": "full", "to": "torch"}], ids=str)
@pytest.mark.parametrize("kind", ["columns first", "reversed", "step", "broadcast", "no items", "swapped"])
def test_arrays_of_any_strides_are_sources(kind: str, options: dict[str, Any]) -> None:
    rows = np.arange(24.0).reshape(6, 4)
    array = {
        "columns first": np.asfortranarray(rows),
        "reversed": rows[::-1, ::-1],
        "step": np.repeat(rows, 2, axis=1)[:, ::2],
        "broadcast": np.broadcast_to(rows[:1], (6, 4)),
        "no items": rows[:, :0],
        "swapped": rows.astype(">f8"),
    }[kind]
    for batch in zc.loader({"x": array, "id": np.arange(6)}, **{"to": "numpy", "batch_size": 4} | options):
        assert np.array_equal(np.asarray(batch["x"]), array[np.asarray(batch["id"])])
