"""``share(open_weights(path))``: one aligned copy of the tensors for all processes of a machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.weight_files import model, write

import zerocopy as zc
from zerocopy.errors import HandleFormatError
from zerocopy.shared.handle import pack_names, unpack_names

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared memory needs Linux")


def large() -> dict[str, np.ndarray]:
    return {
        "big": np.arange(50_000, dtype="f4"),
        "empty": np.zeros((0, 2), "f4"),
        "s": np.array(2.0, "f4"),
        **model(),
    }


@pytest.mark.parametrize("tensors", [model, large])
@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_readers_get_a_dict_of_aliases(tmp_path: Path, tensors, to: str) -> None:
    path = write(tmp_path / "m.safetensors", tensors())
    weights = zc.open_weights(path)
    with zc.share(weights) as shared:
        assert shared.nbytes == weights.nbytes == shared.copied_bytes
        assert shared.framework == "numpy"
        again = pickle.loads(pickle.dumps(shared))
        assert len(bytes(shared)) < 200
        result = zc.convert(again, to=to, copy=False)
        assert list(result) == list(weights)
        for name, expected in tensors().items():
            array = zc.convert(result[name], "numpy")
            assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
            assert array.tobytes() == expected.tobytes()
        assert zc.explain(again, to).copied_bytes == 0
    assert zc.convert(result["layer.bias"], "numpy").tobytes() == model()["layer.bias"].tobytes()


def test_results_of_one_process_share_memory(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    shared = zc.share(zc.open_weights(write(tmp_path / "m.safetensors", large())))
    assert zc.shares_memory(shared, zc.convert(shared, "torch"))
    assert not zc.convert(shared, "numpy")["big"].flags.writeable


def _child(shared: object, queue: object) -> None:
    queue.put({name: array.tobytes() for name, array in zc.convert(shared, "numpy").items()})


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_another_process_opens_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with zc.share(zc.open_weights(write(tmp_path / "m.safetensors", large()))) as shared:
        process = context.Process(target=_child, args=(shared, queue))
        process.start()
        read = queue.get(timeout=60)
        process.join()
    assert read == {name: array.tobytes() for name, array in large().items()}


def test_an_empty_mapping_is_shared(tmp_path: Path) -> None:
    with zc.share(zc.open_weights(write(tmp_path / "m.safetensors", {}))) as shared:
        assert zc.convert(shared, "numpy") == {}


def test_damaged_names_are_refused() -> None:
    data = pack_names({"a": b"12", "\N{SNOWMAN}": b"3"})
    for end in range(1, len(data)):
        with contextlib.suppress(HandleFormatError):
            assert len(unpack_names(data[:end])) < 2
    with pytest.raises(HandleFormatError):
        unpack_names(data.replace("\N{SNOWMAN}".encode(), b"\xff\xff\xff"))
