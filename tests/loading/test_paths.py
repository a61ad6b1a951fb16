"""Paths to files of other libraries: opened as these open them, or refused with the call that works."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.errors import MissingFileError, ReadError

VALUES = np.arange(10.0)


def rows(path: Any, **options: Any) -> dict[str, list[Any]]:
    batches = list(zc.loader(path, to="numpy", batch_size=4, **options))
    return {name: np.concatenate([batch[name] for batch in batches]).tolist() for name in batches[0]}


def test_a_path_to_zarr_is_an_array_or_the_arrays_of_a_group(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    zarr.create_array(tmp_path / "a.zarr", data=VALUES, chunks=(3,))
    assert rows(tmp_path / "a.zarr") == {"data": VALUES.tolist()}
    for form in (2, 3):
        group = zarr.open_group(tmp_path / f"g{form}.zarr", mode="w", zarr_format=form)
        group.create_array("x", data=VALUES, chunks=(3,))
        group.create_group("sub").create_array("z", data=2 * VALUES, chunks=(5,))
        expected = {"x": VALUES.tolist(), "sub/z": (2 * VALUES).tolist()}
        assert rows(str(tmp_path / f"g{form}.zarr")) == expected
        assert rows(tmp_path / f"g{form}.zarr", columns=["sub/z"]) == {"sub/z": expected["sub/z"]}
        assert rows(tmp_path / f"g{form}.zarr" / "sub") == {"z": expected["sub/z"]}
        shuffled = rows(tmp_path / f"g{form}.zarr", shuffle=True)
        assert sorted(shuffled["x"]) == VALUES.tolist()


@pytest.mark.parametrize("suffix", ["h5", "hdf5"])
def test_a_path_to_hdf5_has_the_data_sets_of_all_groups(suffix: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = str(tmp_path / f"a.{suffix}")
    with h5py.File(path, "w") as file:
        file["x"] = VALUES
    assert rows(path) == {"x": VALUES.tolist()}
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(3,))
        file["group/y"] = 2 * VALUES
        file["other"] = [1]
    assert rows(path, columns=["x", "group/y"]) == {"x": VALUES.tolist(), "group/y": (2 * VALUES).tolist()}
    with pytest.raises(zc.UnsupportedConversionError, match="number of rows"):
        zc.loader(path, to="numpy")


def test_a_path_to_lance_is_its_latest_version(tmp_path: Path) -> None:
    lance, pa = pytest.importorskip("lance"), pytest.importorskip("pyarrow")
    lance.write_dataset(pa.table({"x": VALUES}), str(tmp_path / "a.lance"))
    assert rows(tmp_path / "a.lance") == {"x": VALUES.tolist()}


@pytest.mark.parametrize("suffix", ["zarr", "h5", "hdf5", "lance"])
def test_a_path_that_cannot_be_opened_is_a_zerocopy_error(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"a.{suffix}"
    with pytest.raises(MissingFileError):
        zc.loader(path, to="numpy")
    path.write_bytes(b"something else")
    with pytest.raises((ReadError, zc.FrameworkNotInstalledError)) as raised:
        zc.loader(path, to="numpy")
    assert "remove" not in raised.value.remedy
    if isinstance(raised.value, zc.FrameworkNotInstalledError):
        assert "pip install" in raised.value.remedy


CALLS = {
    "safetensors": "zc.open_weights",
    "gguf": "zc.open_weights",
    "pt": "torch.load",
    "tsv": "pandas.read_csv",
    "xlsx": "read_excel",
    "txt": "its own library",
    "pkl": "its own library",
    "parquet": "write the file again",
    "feather": "write the file again",
    "json": "read_json",
}


@pytest.mark.parametrize("suffix", CALLS)
@pytest.mark.parametrize("content", [b"", b"something else\nand {more}\n"])
def test_the_error_of_an_unreadable_file_names_a_call_and_no_deletion(
    suffix: str, content: bytes, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content)
    with pytest.raises(ReadError) as raised:
        list(zc.loader(path, to="numpy"))
    assert "remove" not in raised.value.remedy
    assert not content or CALLS[suffix] in raised.value.remedy


def test_compressed_text_is_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n"))
    assert rows(tmp_path / "a.csv.gz") == {"a": [1, 3], "b": [2, 4]}


ABSENT = """
import sys
sys.modules["{name}"] = None
import zerocopy as zc
try:
    zc.loader({path!r}, to="numpy"{options})
except zc.FrameworkNotInstalledError as error:
    assert isinstance(error, ImportError)
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "path", "options"),
    [
        ("pyarrow", "x.parquet", ""),
        ("pyarrow", "x.csv", ""),
        ("pyarrow", "s3://bucket/x.parquet", ""),
        ("pyarrow", "x.parquet", ', schema={"x": "int8"}'),
        ("zarr", "x.zarr", ""),
        ("h5py", "x.h5", ""),
    ],
)
def test_a_missing_package_is_named_with_its_pip_line(
    name: str, path: str, options: str, run_python: Any, tmp_path: Path
) -> None:
    if "/" not in path:
        path = str(tmp_path / path)
        Path(path).write_bytes(b"x")
    done = run_python(ABSENT.format(name=name, path=path, options=options))
    assert done.returncode == 0, done.stderr
    assert f"pip install {name}" in done.stdout
    assert f"loader({path!r}" in done.stdout
