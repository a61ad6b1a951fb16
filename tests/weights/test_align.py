"""``zerocopy align``: the copy has the same tensors, and they start at multiples of 64 bytes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from helpers.tiers import sampled
from helpers.weight_files import NAMES, dtype_of, model, write

import zerocopy as zc
from zerocopy.weights import safetensors
from zerocopy.weights.align import align

pytest.importorskip("click")
from click.testing import CliRunner, Result

from zerocopy.cli.main import command


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(command(), ["align", *map(str, arguments)], catch_exceptions=False)


def odd() -> dict[str, np.ndarray]:
    return {
        "scale": np.array(2.0, "f4"),
        "ids": np.arange(5, dtype="i8"),
        "mask": np.array([True, False, True]),
        "half": np.ones(7, ml_dtypes.bfloat16),
        "none": np.zeros((0, 4), "f4"),
        **model(),
    }


def assert_same(path: str, other: str) -> None:
    one, two = zc.open_weights(path), zc.open_weights(other)
    assert set(one) == set(two)
    assert one.metadata == two.metadata
    for name in one:
        assert one.tensors[name].dtype == two.tensors[name].dtype
        assert one.tensors[name].shape == two.tensors[name].shape
        assert one[name].tobytes() == two[name].tobytes()


@pytest.mark.parametrize("pad", [False, True])
def test_the_copy_has_the_same_tensors_at_multiples_of_64_bytes(tmp_path: Path, pad: bool) -> None:
    pytest.importorskip("jax")
    path = write(tmp_path / "m.safetensors", odd(), metadata={"format": "pt"})
    output = str(tmp_path / "n.safetensors")
    report = align(path, output, pad)
    assert_same(path, output)
    tensors = zc.open_weights(output).tensors
    aligned = [tensor for tensor in tensors.values() if tensor.offset % 64 == 0 or not tensor.nbytes]
    assert len(aligned) == report.after == (len(odd()) if pad else 5)
    assert {tensor.name for tensor in aligned} >= {*model(), "none"}
    assert report.aligned_bytes == sum(tensor.nbytes for tensor in aligned)
    for tensor in tensors.values():  # elements are aligned in each copy
        assert tensor.offset % tensor.dtype.itemsize == 0
    weights = zc.open_weights(output, to="jax")
    assert all(leaf.zero_copy or at == "['none']" for at, leaf in weights.explain(model()).leaves.items())


@pytest.mark.parametrize("to", ["jax", "tensorflow"])
def test_frameworks_that_need_alignment_alias_the_copy(tmp_path: Path, to: str) -> None:
    path, output = write(tmp_path / "m.safetensors", odd()), str(tmp_path / "n.safetensors")
    align(path, output, pad=True)
    weights = zc.open_weights(output, to=to, copy=False)
    for name, tensor in weights.read([*model(), "scale", "half"]).items():
        assert zc.convert(tensor, "numpy").tobytes() == odd()[name].tobytes()


def test_the_library_reads_the_copy(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    path = write(tmp_path / "m.safetensors", {name: a for name, a in odd().items() if name != "half"})
    for pad in (False, True):
        output = str(tmp_path / f"{pad}.safetensors")
        align(path, output, pad)
        read = library.load_file(output)
        for name, array in zc.open_weights(path).items():
            assert read[name].tobytes() == array.tobytes()
        assert any(name.startswith("zerocopy.padding") for name in read) is pad


def test_generated_models_are_aligned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for (seed,) in sampled(10, range(100)):
        tensors = {}
        for i in range(int(rng.integers(0, 12))):
            kind = dtype_of(str(rng.choice(list(NAMES))))
            shape = rng.integers(0, 9, rng.integers(0, 3))
            tensors[f"{i}\N{SNOWMAN}"] = np.zeros(shape, kind)
        path = write(tmp_path / f"{seed}.safetensors", tensors)
        report = align(path, str(tmp_path / "out"), pad=True)
        os.rename(tmp_path / "out", tmp_path / "out.safetensors")
        assert report.after == len(tensors)
        assert_same(path, str(tmp_path / "out.safetensors"))


def test_the_command_names_the_copy_and_counts_tensors(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", odd())
    result = invoke(path)
    copy = tmp_path / "m.aligned.safetensors"
    assert result.exit_code == 0
    assert result.output.startswith(f"{copy}:\n  5 of 8 tensors start at a multiple of 64 bytes (")
    assert "21 B do not: --pad aligns them" in result.output
    assert_same(path, str(copy))
    again = invoke(path)
    assert again.exit_code == 2
    assert "--force" in again.output
    assert "8 of 8" in invoke(path, "--force", "--pad").output


def test_the_shards_of_an_index_are_aligned_into_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    write(tmp_path / "1.safetensors", {"a": np.ones(16)})
    write(tmp_path / "2.safetensors", {"b": np.ones(16)})
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    assert invoke(index).exit_code == 2
    assert invoke(index, "-o", tmp_path / "out").exit_code == 0
    weights = zc.open_weights(tmp_path / "out" / index.name, to="jax", dtype="float32")
    assert {tensor.offset % 64 for tensor in weights.tensors.values()} == {0}
    assert (
        invoke(tmp_path / "1.safetensors", tmp_path / "2.safetensors", "-o", tmp_path / "two").exit_code == 0
    )
    assert sorted(os.listdir(tmp_path / "two")) == ["1.safetensors", "2.safetensors"]


def test_a_file_can_be_replaced_by_its_copy(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", odd())
    before = zc.open_weights(path)
    assert invoke(path, "-o", path, "--force").exit_code == 0
    assert before["ids"].tolist() == [0, 1, 2, 3, 4]  # the old file is still mapped
    assert os.listdir(tmp_path) == ["m.safetensors"]


@pytest.mark.parametrize("content", [b"", b"\xff" * 100])
def test_an_invalid_file_is_refused_and_nothing_is_left(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    result = invoke(path)
    assert result.exit_code == 1
    assert f"open_weights('{path}')" in result.output
    assert os.listdir(tmp_path) == ["m.safetensors"]


def test_a_copy_that_differs_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.safetensors", odd())
    write_all = safetensors.write

    def damaged(file, *arguments):
        write_all(file, *arguments)
        file.stream.seek(-1, os.SEEK_CUR)
        file.stream.write(b"\xff")
        file.stream.flush()

    monkeypatch.setattr(safetensors, "write", damaged)
    with pytest.raises(zc.errors.ReadError, match="the aligned copy differs in the tensor"):
        align(path, str(tmp_path / "n.safetensors"))
    assert os.listdir(tmp_path) == ["m.safetensors"]


def test_a_folder_that_does_not_exist_is_named_without_a_temporary_name(tmp_path: Path) -> None:
    result = invoke(write(tmp_path / "m.safetensors", odd()), "-o", tmp_path / "none" / "x")
    assert result.exit_code == 1
    assert f"pass -o with an existing folder that you can write to: '{tmp_path}/none/x'" in result.output
