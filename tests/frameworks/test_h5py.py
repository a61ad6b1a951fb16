"""h5py: datasets in one block of a file are aliased through a map of it; others are copied."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerocopy as zc

h5py = pytest.importorskip("h5py")

ALIASED = {
    "matrix": np.arange(6.0).reshape(2, 3),
    "int16": np.arange(1000, dtype="i2"),
    "complex": np.arange(3) + 1j,
    "half": np.arange(5, dtype="f2"),
    "scalar": np.array(3.5),
}
COPIED = {
    "big": np.arange(3, dtype=">f4"),
    "bool": np.array([True, False]),
    "empty": np.empty((0, 3)),
    "chunks": np.arange(100.0),
    "fill": np.full(4, 7.0),
}


@pytest.fixture(params=[0, 512])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a file of datasets, also with a block of the user in front."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", userblock_size=request.param) as file:
        for name, values in (ALIASED | COPIED).items():
            if name == "fill":
                file.create_dataset(name, shape=4, dtype="f8", fillvalue=7)
            else:
                file.create_dataset(name, data=values, **({"chunks": (10,)} if name == "chunks" else {}))
        file.create_dataset("outside", shape=3, dtype="f8", external=[(str(tmp_path / "raw"), 0, 24)])
        file["outside"][:] = 1
    return path


@pytest.fixture
def file(path: Path) -> Iterator[Any]:
    with h5py.File(path, "r") as file:
        yield file


def check(dataset: Any, values: np.ndarray, aliases: bool) -> np.ndarray:
    for _ in range(2):
        plan, result = zc.explain(dataset, "numpy"), zc.convert(dataset, "numpy")
        assert plan.zero_copy == zc.shares_memory(dataset, result) == aliases
        assert (result.dtype, result.shape) == (values.dtype.newbyteorder("="), values.shape)
        np.testing.assert_array_equal(result, values)
        assert not (aliases and result.flags.writeable)
    return result


@pytest.mark.parametrize("name", ALIASED)
def test_numbers_in_one_block_are_aliased(file: Any, name: str) -> None:
    check(file[name], ALIASED[name], aliases=True)
    assert zc.convert(file[name], "numpy", copy=False).shape == ALIASED[name].shape
    for target in ("torch", "jax", "pyarrow"):
        if name == "int16" and zc.frameworks()[target].installed:
            plan, result = zc.explain(file[name], target), zc.convert(file[name], target)
            assert plan.zero_copy == zc.shares_memory(file[name], result)
            np.testing.assert_array_equal(zc.convert(result, "numpy"), ALIASED[name])


@pytest.mark.parametrize("name", COPIED)
def test_other_datasets_are_copied(file: Any, name: str) -> None:
    check(file[name], COPIED[name], aliases=False)
    reason = zc.explain(file[name], "numpy").reasons[0]
    assert (reason.code, reason.fixes[0].source) == ("array-method", "{x}[...]")
    if COPIED[name].size:
        with pytest.raises(zc.CopyRequiredError):
            zc.convert(file[name], "numpy", copy=False)


def test_values_in_other_files_are_copied(file: Any) -> None:
    check(file["outside"], np.ones(3), aliases=False)


@pytest.mark.hazard("producers#hdf5-buffered-values")
def test_files_that_are_open_for_writing_are_copied(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["matrix"][0, 0] = 77
        assert check(file["matrix"], file["matrix"][:], aliases=False)[0, 0] == 77
        assert "open for writing" in zc.explain(file["matrix"], "numpy").reasons[0].why


def test_alias_outlives_the_file(path: Path) -> None:
    with h5py.File(path, "r") as file:
        result = zc.convert(file["int16"], "numpy", copy=False)
        dataset = file["int16"]
    gc.collect()
    np.testing.assert_array_equal(result, ALIASED["int16"])
    with pytest.raises(zc.UnsupportedConversionError, match="file is closed"):
        zc.convert(dataset, "numpy")


@pytest.mark.hazard("producers#hdf5-lock")
def test_file_can_be_written_while_an_alias_lives(path: Path) -> None:
    with h5py.File(path, "r") as file:
        result = zc.convert(file["int16"], "numpy")
    with h5py.File(path, "r+") as file:
        file["new"] = np.arange(1000.0)
    np.testing.assert_array_equal(result, ALIASED["int16"])
    with h5py.File(path, "r") as file:  # the map of the shorter file does not hold it
        check(file["new"], np.arange(1000.0), aliases=True)


def test_writes_to_a_result_do_not_reach_the_file(path: Path) -> None:
    torch = pytest.importorskip("torch")
    with h5py.File(path, "r") as file:
        result = zc.convert(file["matrix"], torch, copy=False)
        result[0, 0] = 99
        assert file["matrix"][0, 0] == 0


def test_replaced_file_is_not_mapped(path: Path, tmp_path: Path) -> None:
    with h5py.File(path, "r") as file:
        other = tmp_path / "other"
        other.write_bytes(bytes(path.stat().st_size))
        other.replace(path)
        check(file["int16"], ALIASED["int16"], aliases=False)


@pytest.mark.hazard("producers#hdf5-file-that-changes")
def test_file_that_was_cut_off_is_not_mapped(path: Path) -> None:
    with h5py.File(path, "r") as file:
        check(file["matrix"], ALIASED["matrix"], aliases=True)
        with path.open("r+b") as raw:
            raw.truncate(100)
        assert not zc.explain(file["matrix"], "numpy").zero_copy


def test_threads_share_one_map(file: Any) -> None:
    results = []

    def run() -> None:
        results.extend(zc.convert(file["int16"], "numpy") for _ in range(50))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200
    assert all(zc.shares_memory(results[0], result) for result in results)


def test_containers_hold_datasets_and_h5py_is_not_a_target(file: Any) -> None:
    result = zc.convert({"x": [file["matrix"]]}, "numpy")
    np.testing.assert_array_equal(result["x"][0], ALIASED["matrix"])
    for target in ("h5py", h5py, file["matrix"]):
        with pytest.raises(zc.errors.UnknownFrameworkError):
            zc.convert(np.zeros(2), target)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize(
    "values",
    [
        np.ones(3, np.longdouble),
        np.ones(3, np.clongdouble),
        ["a", "b"],
        np.array([b"a", b"bb"]),
        np.zeros(2, [("x", "f4"), ("n", "i4")]),
        np.zeros(2, "V4"),
    ],
    ids=["long double", "complex", "text", "bytes", "records", "opaque"],
)
def test_types_that_tensors_lack_are_read_by_a_call(tmp_path: Path, values: Any, mode: str) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as new:
        new.create_dataset("x", data=values)
    with h5py.File(tmp_path / "x.h5", mode) as opened:
        _check_read(opened["x"])


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_elements_that_are_arrays_are_read_by_a_call(tmp_path: Path, mode: str) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as new:
        new.create_dataset("x", shape=(3,), dtype=np.dtype(("f4", (2,))))[...] = np.ones((3, 2))
    with h5py.File(tmp_path / "x.h5", mode) as opened:
        assert _check_read(opened["x"]).tolist() == np.ones((3, 2)).tolist()


def test_an_empty_dataset_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = h5py.Empty("f4")
        with pytest.raises(zc.ZeroCopyError, match="no elements"):
            zc.convert(file["x"], "numpy")


def _check_read(x: Any) -> Any:
    """Paste the fix, and return what its array becomes, or the array if it is refused with another reason."""
    with pytest.raises(zc.UnsupportedConversionError, match="no counterpart") as caught:
        zc.convert(x, "numpy")
    assert zc.explain(x, "numpy").error.calls == caught.value.calls == ('zc.convert(x[...], "numpy")',)
    plan = zc.explain(x[...], "numpy")
    assert plan.possible or plan.error.calls
    return zc.convert(x[...], "numpy") if plan.possible else x[...]
