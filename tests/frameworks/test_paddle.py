"""Paddle tensors: aliases both ways, dtypes, and the hazards that the guards prevent."""

from __future__ import annotations

import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from helpers.arrays import sample

import zerocopy as zc

paddle = pytest.importorskip("paddle")


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[:, ::2], np.s_[1:, ::-1]])
@pytest.mark.parametrize(
    "dtype", ["float32", "uint16", "uint32", "uint64", "bfloat16", "float8_e4m3fn", "complex64"]
)
def test_strided_arrays_are_aliased(view: object, dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.arange(24).reshape(4, 6).astype(kind)[view].T
    x = zc.convert(array, to="paddle", copy=False)
    assert x.data_ptr() == array.ctypes.data
    back = zc.convert(x, to="numpy", copy=False)
    assert (back.dtype, back.strides) == (array.dtype, array.strides)
    assert back.tobytes() == array.tobytes()
    array[...] = 0
    assert (back == 0).all()


def test_calculations_with_negative_strides_are_right() -> None:
    array = np.arange(6, dtype="f4").reshape(2, 3)[::-1, ::-1]
    x = zc.convert(array, to="paddle", copy=False)
    assert (x + 1).numpy().tolist() == (array + 1).tolist()
    assert x.sum().item() == 15
    assert x.numpy().tolist() == array.tolist()


@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_a_flipped_tensor_has_negative_strides(target: str) -> None:
    x = paddle.arange(6, dtype="float32")[::-1]
    assert x.strides == [-1]  # the hazard: torch's importer would end the process
    plan = zc.explain(x, target)
    assert plan.zero_copy == (target == "numpy")
    for _ in range(2):
        assert zc.convert(x, to=target).tolist() == [5, 4, 3, 2, 1, 0]


@pytest.mark.hazard("other-frameworks#chains-of-paddle-tensors")
def test_chains_of_aliases_are_freed() -> None:
    """Not one after another with Paddle's mutex held, as `test_from_dlpack_waits_forever` shows."""
    for _ in range(50):
        x = np.arange(10.0)
        for _ in range(4):
            x = zc.convert(zc.convert(x, to="paddle", copy=False), to="numpy", copy=False)
    threads = [threading.Thread(target=lambda: zc.convert(np.ones(3), to="paddle")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.hazard("other-frameworks#chains-of-paddle-tensors")
def test_from_dlpack_waits_forever() -> None:
    code = (
        "import numpy as np, paddle\n"
        "inner = np.from_dlpack(paddle.from_dlpack(np.arange(3.0)))\n"
        "outer = paddle.from_dlpack(inner.view())\n"
        "del inner\n"
        "print('made', flush=True)\n"
        "del outer\n"  # its deleter frees the inner tensor, whose deleter needs the same mutex
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"made\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(5)
        finally:
            process.kill()


@pytest.mark.hazard("other-frameworks#uint16-in-paddle")
def test_uint16_is_not_read_as_bfloat16() -> None:
    array = np.array([1, 2], "u2")
    aliased = paddle.Tensor(array, place=paddle.CPUPlace(), zero_copy=True)
    assert aliased.dtype == paddle.bfloat16  # the hazard
    for _ in range(2):
        x = zc.convert(array, to="paddle", copy=False)
        assert (x.dtype, x.data_ptr()) == (paddle.uint16, array.ctypes.data)
        assert zc.convert(x, to="numpy").dtype == np.uint16


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats_keep_their_dtype(dtype: str) -> None:
    x = paddle.ones([2, 3]).astype(dtype)
    assert x.numpy().dtype in (np.uint16, np.int8)  # the hazard: not a type of floats
    for _ in range(2):
        result = zc.convert(x, to="numpy")
        assert (result.dtype, result.astype("f4").tolist()) == (getattr(ml_dtypes, dtype), [[1] * 3] * 2)
    back = zc.convert(result, to="paddle", copy=False)
    assert (str(back.dtype), back.data_ptr()) == (str(x.dtype), x.data_ptr())


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,) * 9])
def test_shapes_are_kept(shape: tuple[int, ...]) -> None:
    x = zc.convert(np.ones(shape, "f4"), to="paddle")
    assert tuple(x.shape) == shape
    assert zc.convert(x, to="numpy").shape == shape


def test_ten_dimensions_are_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="10 dimensions and paddle supports at most 9"):
        zc.convert(np.ones((1,) * 10), to="paddle")


@pytest.mark.parametrize(
    "array", [np.zeros(9, "u1")[1:].view("f4"), np.zeros(3, "f4,u1")["f0"], np.arange(3, dtype=">f8")]
)
def test_other_memory_is_copied(array: np.ndarray) -> None:
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(array, to="paddle", copy=False)
    for _ in range(2):
        result = zc.convert(array, to="paddle")
        assert not zc.shares_memory(array, result)
        assert result.numpy().tolist() == array.tolist()


def test_tensors_that_require_grad_have_a_fix() -> None:
    x = paddle.ones([3])
    x.stop_gradient = False
    for _ in range(2):
        with pytest.raises(zc.UnsupportedConversionError, match=r"x\.detach\(\)") as caught:
            zc.convert(x, to="numpy")
    assert caught.value.code == "requires-grad"
    assert zc.shares_memory(x.detach(), zc.convert(x.detach(), to="numpy"))


def test_sparse_tensors_have_a_fix() -> None:
    coo = paddle.sparse.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0], [3, 3])
    csr = paddle.sparse.sparse_csr_tensor([0, 1, 2], [1, 2], [1.0, 2.0], [2, 3])
    for x in (coo, csr):
        for _ in range(2):
            with pytest.raises(zc.UnsupportedConversionError) as caught:
                zc.convert(x, to="numpy")
        assert caught.value.code == "sparse"
        assert zc.convert(x.to_dense(), "numpy").sum() == 3
    assert len(zc.convert([coo.indices(), coo.values()], "numpy")) == 2
    assert len(zc.convert([csr.crows(), csr.cols(), csr.values()], "numpy")) == 3


def test_the_device_index_of_paddle_is_none() -> None:
    x = paddle.ones([3])
    assert x.__dlpack_device__()[1] is None  # the hazard: DLPack requires an integer
    assert str(zc.view(x).device) == "cpu"


def test_targets_by_module_and_type() -> None:
    array = sample("f4", (3,))
    for to in (paddle, paddle.Tensor, "paddle", "paddle.Tensor"):
        assert isinstance(zc.convert(array, to=to), paddle.Tensor)
