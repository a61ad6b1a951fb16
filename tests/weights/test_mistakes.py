"""``open_weights`` of missing files, of files of another format, and of objects that are not paths."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers.weight_files import write

import zerocopy as zc
from zerocopy.errors import MonitorFileError


def test_a_missing_file_is_a_file_not_found_error_with_its_name() -> None:
    with pytest.raises(FileNotFoundError, match="the file does not exist") as caught:
        zc.open_weights("missing.safetensors")
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert isinstance(error, zc.errors.ReadError)
        assert (error.errno, error.filename, error.code) == (2, "missing.safetensors", "missing-file")
        assert error.strerror == error.why
    with pytest.raises(FileNotFoundError, match=r"glob\.glob\('\*\.safetensors'\)"):
        zc.open_weights("*.safetensors")


def test_objects_that_are_not_paths_are_type_errors(tmp_path: Path) -> None:
    path = write(tmp_path / "x.safetensors", {"a": np.ones(3)})
    with open(path, "rb") as opened:
        for given in (None, path.encode(), opened, 3, [None], [path.encode()]):
            with pytest.raises(
                zc.UnsupportedConversionError, match="pass a path, or a list of paths"
            ) as caught:
                zc.open_weights(given)
            assert isinstance(caught.value, TypeError)
    assert list(zc.open_weights(each for each in [path])) == ["a"]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("x.safetensors", b"PK\x03\x04\x14\0\0\0\x08\0" + bytes(60), "a zip archive"),
        ("x.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("x.safetensors", b"\n<!DOCTYPE html>\n<html>", "an HTML page"),
        ("x.safetensors", b"not found: the entry", "it begins as text"),
        ("x.safetensors", b"\xff" * 40, "claims"),
        ("x.safetensors", b"GGUF\x03\0\0\0" + bytes(32), r"rename it to \*\.gguf"),
        ("x.gguf", b"version https://git-lfs.github.com/spec/v1\n", "not a GGUF file, but a pointer"),
        ("x.npy", b"PK\x03\x04" + bytes(60), "not a .npy file, but a zip archive"),
        ("x.npz", b"\x93NUMPY" + bytes(60), r"rename it to \*\.npy"),
        ("x.npz", b"PK\x03\x04" + bytes(60), "a zip archive without its end"),
        ("x.npz", b"\0" * 60, "it is not a zip archive"),
        ("x.parquet", b"PAR1", r"zc\.loader\('.*x\.parquet', to, batch_size=1024\)"),
    ],
)
def test_a_file_of_another_format_is_named(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(zc.errors.ReadError, match=match):
        zc.open_weights(path)


def test_an_npz_archive_of_no_arrays_is_empty(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w"):
        pass
    assert len(zc.open_weights(tmp_path / "x.npz")) == 0


def test_a_missing_shard_is_an_error_that_names_the_index(tmp_path: Path) -> None:
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "m-1.safetensors"}}))
    with pytest.raises(FileNotFoundError, match=r"m-1\.safetensors.*the index .*m\.safetensors\.index\.json"):
        zc.open_weights(index)


def test_a_missing_name_of_several_files_has_their_count(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.safetensors", {name: np.ones(3)}) for name in ("weight", "bias")]
    with pytest.raises(KeyError, match="2 files have no tensor 'wieght'; did you mean 'weight'"):
        zc.open_weights(paths)["wieght"]
    assert repr(zc.open_weights(paths).keys()) == "dict_keys(['weight', 'bias'])"


def test_the_fix_of_a_tensor_of_an_odd_size_pads(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    path = write(tmp_path / "m.safetensors", {"a": np.ones(15, "f4"), "b": np.ones(5, "f4")}, multiple=64)
    (reason,) = zc.open_weights(path, to="jax").explain().leaves["['b']"].reasons
    assert reason.remedy.startswith(f"zerocopy align --pad {path} ")
    with pytest.raises(zc.CopyRequiredError, match=f"zerocopy align --pad {path} "):
        zc.open_weights(path, to="jax", copy=False)["b"]


def test_the_plan_of_the_weights_is_that_of_explain(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    path = write(tmp_path / "m.safetensors", {"a": np.ones(15, "f4")}, multiple=8)
    weights = zc.open_weights(path, to="jax")
    assert str(zc.explain(weights, "jax")) == str(weights.explain())


def test_convert_of_a_path_of_weights_names_the_call() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match=r'zc\.convert\(zc\.open_weights\(x\), "numpy"\)'):
        zc.convert("model.safetensors", "numpy")


def test_errors_of_the_system_have_their_reason_and_no_number() -> None:
    error = MonitorFileError("output", "the disk is full", "free some space")
    assert (error.errno, error.strerror, error.filename) == (None, "the disk is full", None)
    assert error.args == ("output", "the disk is full", "free some space")
