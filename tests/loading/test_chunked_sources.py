"""Arrays in files, and data sets of Lance: rows are read by chunks and ranges, when a batch needs them."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerocopy as zc

ROWS = np.arange(20.0).reshape(10, 2)


def zarr_array(folder: Path, values: np.ndarray = ROWS, **options: Any) -> Any:
    zarr = pytest.importorskip("zarr", "3")
    options = {"chunks": (3, *values.shape[1:])} | options
    return zarr.create_array(folder / "x.zarr", data=values, **options)


def h5py_array(folder: Path, values: np.ndarray = ROWS) -> Any:
    file = pytest.importorskip("h5py").File(folder / "x.h5", "w")
    return file.create_dataset("x", data=values, chunks=(3, *values.shape[1:]))


ARRAYS = pytest.mark.parametrize("make", [zarr_array, h5py_array])


@ARRAYS
@pytest.mark.parametrize("options", [{}, {"shuffle": "full"}, {"dtype": "float32"}, {"to": "pyarrow"}])
def test_rows_of_an_array_in_chunks(make: Any, options: dict[str, Any], tmp_path: Path) -> None:
    loader = zc.loader(make(tmp_path), **{"to": "numpy", "batch_size": 4} | options)
    assert len(loader) == 3
    for _ in range(2):
        batches = [zc.convert(batch, "numpy", lists="dense") for batch in loader]
        rows = np.concatenate([batch["data"] for batch in batches])
        np.testing.assert_array_equal(np.sort(rows, axis=0), ROWS)
        assert rows.dtype == options.get("dtype", "float64")


@ARRAYS
def test_an_array_in_chunks_is_a_matrix(make: Any, tmp_path: Path) -> None:
    first, *_ = zc.loader(make(tmp_path), to="numpy", batch_size=4, layout="matrix")
    np.testing.assert_array_equal(first, ROWS[:4])


@ARRAYS
def test_chunks_are_read_with_arrays_in_memory(make: Any, tmp_path: Path) -> None:
    labels = np.arange(10)
    *_, last = zc.loader({"x": make(tmp_path), "y": labels}, to="numpy", batch_size=4)
    np.testing.assert_array_equal(last["x"], ROWS[8:])
    assert zc.shares_memory(last["y"], labels)


@ARRAYS
@pytest.mark.parametrize("options", [{}, {"dtype": "float32"}])
def test_groups_are_whole_chunks_and_are_read_one_by_one(
    make: Any, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zerocopy.loading.sources.chunked._ROWS", 7)
    array, asked = make(tmp_path), []
    original = type(array).__getitem__

    def getitem(self: Any, key: Any) -> Any:
        asked.append((key.start, key.stop))
        return original(self, key)

    monkeypatch.setattr(type(array), "__getitem__", getitem)
    loader = zc.loader(array, to="numpy", batch_size=6, **options)
    assert not asked
    assert [len(batch["data"]) for batch in loader] == [6, 4]
    assert asked == [(0, 6), (6, 10)]


def test_the_rows_of_a_shard_are_read_at_once(tmp_path: Path) -> None:
    loader = zc.loader(zarr_array(tmp_path, shards=(6, 2)), to="numpy", batch_size=100)
    assert len(list(loader)) == 1
    assert zarr_rows(tmp_path) == 6


def zarr_rows(folder: Path) -> int:
    from zerocopy.loading.sources.chunked import chunk_rows

    return chunk_rows(pytest.importorskip("zarr").open_array(folder / "x.zarr"))


def test_a_corrupt_chunk_is_named_or_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerocopy.loading.sources.chunked._ROWS", 3)
    array = zarr_array(tmp_path)
    (tmp_path / "x.zarr" / "c" / "1" / "0").write_bytes(b"no chunk")
    with pytest.raises(zc.errors.ReadError, match=r"row group 1: zarr.*'data' raised") as caught:
        list(zc.loader(array, to="numpy", batch_size=3))
    assert caught.value.row_group == 1
    loader = zc.loader(array, to="numpy", batch_size=3, on_error="skip")
    assert np.concatenate([batch["data"] for batch in loader])[:, 0].tolist() == [0, 2, 4, 12, 14, 16, 18]
    assert len(loader.stats().skipped) == 1


def test_copies_of_a_loader(tmp_path: Path) -> None:
    loader = zc.loader(zarr_array(tmp_path), to="numpy", batch_size=4)
    assert len(list(pickle.loads(pickle.dumps(loader)))) == 3
    with pytest.raises(zc.errors.LoaderUseError, match="open for writing"):
        pickle.dumps(zc.loader(h5py_array(tmp_path), to="numpy", batch_size=4))


@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("form", ["path", "data set", "dict"])
@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"layout": "matrix"}, {"nulls": 0}], ids=str)
def test_copies_of_a_loader_of_an_hdf5_file_open_it_again(
    tmp_path: Path, form: str, copied: Any, options: dict[str, Any]
) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=np.arange(10.0), chunks=(3,))
    opened = {"path": lambda: str(path), "data set": lambda: h5py.File(path)["data"]}
    source = opened[form]() if form in opened else {"data": h5py.File(path)["data"], "y": np.arange(10.0)}
    loader = zc.loader(source, "numpy", batch_size=4, **options)
    copies, expected = (copied(loader), copied(copied(loader))), list(loader)
    for made in copies:
        for batch, right in zip(made, expected, strict=True):
            np.testing.assert_array_equal(
                *(list(each.values()) if isinstance(each, dict) else each for each in (batch, right))
            )


def test_text_and_arrays_without_rows_are_refused(tmp_path: Path) -> None:
    zarr, h5py = pytest.importorskip("zarr", "3"), pytest.importorskip("h5py")
    with pytest.raises(zc.UnsupportedConversionError, match="no dimension"):
        zc.loader(zarr.create_array({}, shape=(), dtype="f4"), to="numpy")
    with h5py.File(tmp_path / "t.h5", "w") as file:
        text = file.create_dataset("t", data=["a", "b"], chunks=(1,))
        with pytest.raises(zc.UnsupportedConversionError):
            zc.loader({"t": text}, to="numpy")


def test_an_array_of_zarr_is_converted_at_once(tmp_path: Path) -> None:
    array = zarr_array(tmp_path)
    assert not zc.explain(array, "numpy").zero_copy
    np.testing.assert_array_equal(zc.convert(array, "numpy"), ROWS)


def lance_rows(folder: Path, rows: int = 10) -> Any:
    lance, pa = pytest.importorskip("lance"), pytest.importorskip("pyarrow")
    table = pa.table({"x": np.arange(rows, dtype="f8"), "y": np.arange(rows)})
    return lance.write_dataset(table, str(folder / "a.lance"), max_rows_per_file=4, mode="overwrite")


def test_deleted_rows_of_lance_are_left_out(tmp_path: Path) -> None:
    data = lance_rows(tmp_path)
    data.delete("y = 1 OR y = 8")
    (batch,) = zc.loader(data, to="numpy")
    assert batch["y"].tolist() == [0, 2, 3, 4, 5, 6, 7, 9]


def test_rows_of_lance_are_read_in_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = lance_rows(tmp_path)
    monkeypatch.setattr("zerocopy._frameworks.lance.loading.GROUP_ROWS", 3)
    loader = zc.loader(data, to="numpy", batch_size=3)
    assert loader.explain().groups == 5
    assert np.concatenate([batch["y"] for batch in loader]).tolist() == [*range(10)]
    states = [zc.loader(data, to="numpy", batch_size=3, rank=rank, world_size=2) for rank in range(2)]
    assert sorted(row for each in states for batch in each for row in batch["y"].tolist()) == [*range(10)]
    assert len(list(pickle.loads(pickle.dumps(loader)))) == 4


def test_a_new_version_of_lance_is_another_source(tmp_path: Path) -> None:
    data = lance_rows(tmp_path)
    first = zc.loader(data, to="numpy").state_dict()["source"]
    data.delete("y = 1")
    assert zc.loader(data, to="numpy").state_dict()["source"] != first


def test_lance_is_converted_as_a_table(tmp_path: Path) -> None:
    data = lance_rows(tmp_path)
    with pytest.raises(zc.UnsupportedConversionError, match="not read") as caught:
        zc.convert(data, "numpy")
    assert caught.value.calls == ('zc.convert(x.to_table(), "numpy")',)
    assert zc.convert(data.to_table(), "numpy")["y"].tolist() == [*range(10)]
