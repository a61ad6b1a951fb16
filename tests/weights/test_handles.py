"""Handles of files that another library opened: ``NpzFile`` and ``safetensors.safe_open``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.weight_files import model, write

import zerocopy as zc


class SafeOpen:
    """As ``safetensors.safe_open``: a context manager with `keys` and `get_tensor` alone."""

    def __enter__(self) -> SafeOpen:
        return self

    def __exit__(self, *error: Any) -> None: ...

    def keys(self) -> list[str]:
        return ["a", "b"]

    def get_tensor(self, name: str) -> np.ndarray:
        if name == "b":
            return np.ones((2, 2), "float32")
        return np.arange(3.0)


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_an_npz_file_is_converted_as_a_dict(tmp_path: Path, to: str) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(3, dtype="f4"), b=np.ones((2, 2), "i4"))
    with np.load(tmp_path / "x.npz") as file:
        assert set(zc.explain(file, to).leaves) == {"['a']", "['b']"}
        result = zc.convert(file, to)
    assert type(result) is dict
    assert zc.convert(result["a"], "numpy").tolist() == [0, 1, 2]
    assert tuple(result["b"].shape) == (2, 2)


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_an_open_safetensors_file_is_converted_as_a_dict(to: str) -> None:
    result = zc.convert(SafeOpen(), to)
    assert {name: tuple(array.shape) for name, array in result.items()} == {"a": (3,), "b": (2, 2)}
    assert "['b']" in zc.explain(SafeOpen(), to).leaves


def test_its_tensors_are_columns_of_a_table() -> None:
    class Columns(SafeOpen):
        def get_tensor(self, name: str) -> np.ndarray:
            return np.arange(3)

    assert zc.convert(Columns(), "pyarrow").column_names == ["a", "b"]


@pytest.mark.parametrize(("kind", "to"), [("np", "jax"), ("pt", "numpy"), ("pt", "torch")])
def test_a_handle_of_the_library_is_converted(tmp_path: Path, kind: str, to: str) -> None:
    safetensors = pytest.importorskip("safetensors")
    path = write(tmp_path / "x.safetensors", model())
    with safetensors.safe_open(path, kind) as file:
        result = zc.convert(file, to)
    assert {name: tuple(array.shape) for name, array in result.items()} == {
        name: array.shape for name, array in model().items()
    }


def test_a_handle_whose_tensors_cannot_be_read_is_refused() -> None:
    class Broken(SafeOpen):
        def get_tensor(self, name: str) -> np.ndarray:
            raise OSError("disk")

    with pytest.raises(zc.UnsupportedConversionError, match="reading its items raised OSError: disk"):
        zc.convert(Broken(), "numpy")
