"""Handles of files that another library opened: ``NpzFile`` and ``safetensors.safe_open``."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted
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


TARGETS = [n for n in ("numpy", "torch", "jax", "pyarrow", "polars", "pandas") if n in zc.frameworks()]
NPZ = {"empty": np.zeros(0), "a": np.arange(3, dtype="f4"), "b": np.ones(3, "i4")}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("to", TARGETS)
def test_an_npz_file_that_would_be_read_is_not_an_alias(tmp_path: Path, to: str, save: Any) -> None:
    pytest.importorskip(to)
    is_table = to in ("pyarrow", "polars", "pandas")
    arrays = {name: array for name, array in NPZ.items() if array.size or not is_table}
    path = str(tmp_path / "x.npz")
    save(path, **arrays)
    with np.load(path) as file:
        plan = zc.explain(file, to)
        result = zc.convert(file, to)
        assert not zc.shares_memory(file, result)
        assert (plan.possible, plan.zero_copy, plan.aliased_bytes, plan.copied_bytes) == (True, False, 0, 24)
        reasons = [leaf.reasons[0].code for leaf in plan.leaves.values() if leaf.copied_bytes]
        assert reasons == ["exporter-copies"] * 2
        assert zc.explain(file, to, copy=True).copied_bytes == 24
        with pytest.raises(zc.CopyRequiredError, match=r"at \['a'\]: .*NpzFile reads its arrays") as caught:
            zc.convert(file, to, copy=False)
        refused = zc.explain(file, to, copy=False)
        assert refused.error is not None
        assert (refused.possible, str(refused.error)) == (False, str(caught.value))
        load, copies = caught.value.calls
        assert load == f"zc.open_weights({path!r}, to={to!r})"
        assert set(pasted(load, {"zc": zc})) == {*arrays}
        assert type(pasted(copies, {"zc": zc, "x": file})) is type(result)


@pytest.mark.parametrize("dtype", ["U3", "M8[s]", "?", "V3"])
def test_an_npz_file_of_other_types_is_read_too(tmp_path: Path, dtype: str) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(3, dtype))
    with np.load(tmp_path / "x.npz") as file:
        assert not zc.explain(file, "numpy").zero_copy
        with pytest.raises(zc.CopyRequiredError, match="NpzFile reads its arrays"):
            zc.convert(file, "numpy", copy=False)


def test_an_npz_file_inside_a_container_is_named_by_its_path(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(3))
    with np.load(tmp_path / "x.npz") as file:
        model = {"b": np.arange(2), "n": [file]}
        for _ in range(2):  # the second time by the route of the first
            with pytest.raises(zc.CopyRequiredError, match=r"at \['n'\]\[0\]\['a'\]: copy=False"):
                zc.convert(model, "numpy", copy=False)
        plan = zc.explain(model, "numpy")
        assert plan.leaves["['n'][0]['a']"].copied_bytes == 24
        assert plan.leaves["['b']"].zero_copy


def test_an_npz_file_over_a_stream_has_no_path(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.savez(stream, a=np.arange(3))
    stream.seek(0)
    with np.load(stream) as file:
        with pytest.raises(zc.CopyRequiredError) as caught:
            zc.convert(file, "numpy", copy=False)
        assert caught.value.calls == ('zc.convert(x, "numpy", copy=None)',)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_handle_that_returns_the_same_memory_is_an_alias(keeps: bool) -> None:
    kept = np.arange(3.0)

    class Handle(SafeOpen):
        def get_tensor(self, name: str) -> np.ndarray:
            return kept if keeps else kept.copy()

    handle = Handle()
    assert zc.explain(handle, "numpy").zero_copy == keeps
    assert zc.shares_memory(handle, zc.convert(handle, "numpy")) == keeps
    assert zc.explain(handle, "numpy", copy=False).possible == keeps


@pytest.mark.parametrize("kind", ["np", "pt"])
def test_explain_agrees_for_handles_of_the_library(tmp_path: Path, kind: str) -> None:
    safetensors = pytest.importorskip("safetensors")
    path = write(tmp_path / "x.safetensors", model())
    with safetensors.safe_open(path, kind) as file:
        shares = zc.shares_memory(file, zc.convert(file, "numpy"))
        assert zc.explain(file, "numpy").zero_copy == shares
        assert zc.explain(file, "numpy", copy=False).possible == shares
