"""Numba's CUDA simulator, in a separate process, because it replaces ``numba.cuda`` permanently.

    NUMBA_ENABLE_CUDASIM=1 python -m pytest tests/simulator

A simulated device array is host memory and is described as such. Only the transfer is simulated:
it copies, as with a GPU.
"""

from __future__ import annotations

import gc
import os
import weakref

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.dtype import ALL, SUBBYTE_NAMES, to_numpy

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip(
        "the simulator is off: NUMBA_ENABLE_CUDASIM=1 python -m pytest tests/simulator",
        allow_module_level=True,
    )
cuda = pytest.importorskip("numba.cuda")

HELD = [t.name for t in ALL if to_numpy(t) is not None and t.name not in SUBBYTE_NAMES]

SHAPES = {
    "0-d": lambda: np.float32(3) * np.ones((), "f4"),
    "empty": lambda: np.empty((0, 3), "f4"),
    "contiguous": lambda: np.arange(12, dtype="f4").reshape(4, 3),
    "fortran": lambda: np.arange(12, dtype="f4").reshape(3, 4).T,
    "every other": lambda: np.arange(24, dtype="f4")[::2],
    "reversed": lambda: np.arange(12, dtype="f4")[::-1],
    "broadcast": lambda: np.broadcast_to(np.arange(3, dtype="f4"), (4, 3)),
    "packed field": lambda: np.zeros(5, np.dtype([("a", "u1"), ("b", "f4")]))["b"],
    "big-endian": lambda: np.arange(6, dtype=">f4"),
    "3-d": lambda: np.arange(24, dtype="f4").reshape(2, 3, 4).transpose(2, 0, 1),
}


def make(name: str) -> np.ndarray:
    return (np.arange(6) % 2).astype(to_numpy(next(t for t in ALL if t.name == name)))


@pytest.mark.parametrize("to", ["numba", "numba.cuda", cuda])
def test_from_numpy_is_a_transfer(to) -> None:
    x = np.arange(6.0)
    plan = zc.explain(x, to)
    d = zc.convert(x, to=to)
    assert type(d).__name__ == "FakeCUDAArray"
    assert (plan.zero_copy, plan.copied_bytes) == (False, 48)
    assert not zc.shares_memory(x, d)
    x[:] = 0
    assert d.copy_to_host().tolist() == [0, 1, 2, 3, 4, 5]


def test_copy_false_is_refused() -> None:
    with pytest.raises(zc.CopyRequiredError, match="cuda:0"):
        zc.convert(np.ones(3), to="numba", copy=False)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_survive_the_device(shape: str) -> None:
    x = SHAPES[shape]()
    d = zc.convert(x, to="numba")
    back = zc.convert(d, to="numpy")
    assert tuple(d.shape) == back.shape == x.shape
    assert np.array_equal(back, x)


@pytest.mark.parametrize("name", HELD)
def test_dtypes_survive_the_device(name: str) -> None:
    x = make(name)
    d = zc.convert(x, to="numba")
    assert d.dtype == x.dtype
    back = zc.convert(d, to="numpy")
    assert back.dtype == x.dtype
    assert back.tobytes() == x.tobytes()


def test_device_array_is_described_as_host_memory() -> None:
    d = cuda.to_device(np.arange(6, dtype="f4").reshape(2, 3))
    view = zc.view(d)
    assert str(view.device) == "cpu"
    assert view.shape == (2, 3)
    plan = zc.explain(d, "numpy")
    back = zc.convert(d, to="numpy")
    assert plan.zero_copy == zc.shares_memory(d, back) is True
    back[0, 0] = 9
    assert d.copy_to_host()[0, 0] == 9
    alone = zc.convert(d, to="numpy", copy=True)
    assert not zc.shares_memory(d, alone)


@pytest.mark.parametrize("target", ["torch", "jax", "tensorflow", "pyarrow"])
def test_device_arrays_convert_to_host_frameworks(target: str) -> None:
    if not zc.frameworks()[target].installed:
        pytest.skip(f"{target} is not installed")
    d = cuda.to_device(np.arange(64, dtype="f4"))
    plan = zc.explain(d, target)
    result = zc.convert(d, to=target)
    assert zc.convert(result, to="numpy").tolist() == list(range(64))
    assert plan.zero_copy == zc.shares_memory(d, result)


@pytest.mark.parametrize("source", ["torch", "jax", "tensorflow", "pyarrow"])
def test_host_frameworks_convert_to_device_arrays(source: str) -> None:
    if not zc.frameworks()[source].installed:
        pytest.skip(f"{source} is not installed")
    x = zc.convert(np.arange(64, dtype="f4"), to=source)
    d = zc.convert(x, to="numba")
    assert d.copy_to_host().tolist() == list(range(64))
    assert not zc.shares_memory(x, d)


def test_kernel_reads_and_writes_converted_arrays() -> None:
    @cuda.jit
    def double(a):
        i = cuda.grid(1)
        if i < a.shape[0]:
            a[i] *= 2

    d = zc.convert(np.arange(8.0), to="numba")
    double[1, 8](d)
    assert zc.convert(d, to="numpy").tolist() == [0, 2, 4, 6, 8, 10, 12, 14]


def test_numba_arrays_are_returned_unchanged() -> None:
    d = cuda.to_device(np.arange(4.0))
    assert zc.convert(d, to="numba") is d
    assert zc.explain(d, "numba").zero_copy
    fresh = zc.convert(d, to="numba", copy=True)
    assert fresh is not d
    assert not zc.shares_memory(d, fresh)
    assert fresh.copy_to_host().tolist() == [0, 1, 2, 3]


def test_device_option_copies_because_the_memory_is_on_the_host() -> None:
    d = cuda.to_device(np.arange(4.0))
    for device in ("cuda", "cuda:0", (2, 0)):
        plan = zc.explain(d, "numba", device=device)
        copied = zc.convert(d, to="numba", device=device)
        assert not plan.zero_copy
        assert not zc.shares_memory(d, copied)


@pytest.mark.parametrize("device", ["cuda:1", "cpu"])
def test_only_one_device_exists(device: str) -> None:
    with pytest.raises(zc.DeviceError):
        zc.convert(np.ones(3), to="numba", device=device)
    assert zc.frameworks()["numba"].devices == ("cuda:0 (simulated)",)


def test_device_memory_of_other_producers_is_refused() -> None:
    class OnDevice:
        @property
        def __cuda_array_interface__(self):
            return {"shape": (3,), "typestr": "<f4", "data": (0x7F00_0000_0000, False), "version": 3}

    with pytest.raises(zc.DeviceError, match="simulator"):
        zc.convert(OnDevice(), to="numba")


def test_records_and_dates_are_refused_by_name() -> None:
    record = cuda.to_device(np.zeros(3, np.dtype([("a", "f4")])))
    with pytest.raises(zc.UnsupportedConversionError, match="no counterpart"):
        zc.convert(record, to="numpy")


def test_results_keep_their_source_alive() -> None:
    d = cuda.to_device(np.arange(1000.0))
    alive = weakref.ref(d)
    back = zc.convert(d, to="numpy")
    del d
    gc.collect()
    assert back.sum() == 499500
    del back
    gc.collect()
    assert alive() is None


def test_writable_results_can_be_written_to() -> None:
    x = np.arange(4.0)
    x.flags.writeable = False
    d = zc.convert(x, to="numba", writable=True)
    d[0] = 7
    assert x[0] == 0
    assert not zc.convert(d, to="numpy", writable=False).flags.writeable
