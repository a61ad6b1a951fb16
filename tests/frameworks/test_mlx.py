"""MLX arrays: imports copy, exports alias read-only, and the hazards that the guards prevent."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers.arrays import sample

import zerocopy as zc

mx = pytest.importorskip("mlx.core")


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", ">i4", ">f8"]
)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (2, 0, 3)])
def test_imports_copy_all_dtypes(dtype: str, shape: tuple[int, ...]) -> None:
    array = sample(dtype, shape)
    plan = zc.explain(array, "mlx")
    assert not plan.zero_copy
    assert plan.reasons[-1].code == "imports-by-copy"
    for _ in range(3):  # the second conversion takes the fast route
        x = zc.convert(array, to="mlx")
        assert type(x) is mx.array
        assert x.shape == shape
        assert not zc.shares_memory(array, x) or array.size == 0
        back = zc.convert(x, to="numpy", copy=False)
        assert back.dtype == array.dtype.newbyteorder("=")
        assert np.array_equal(back, array)


@pytest.mark.hazard("other-frameworks#float64-in-mlx")
def test_mlx_itself_narrows_float64() -> None:
    assert mx.array(np.ones(2)).dtype == mx.float32  # the hazard
    assert zc.convert(np.array([1 + 2**-40]), to="mlx").dtype == mx.float64
    assert zc.convert(zc.convert(np.array([1 + 2**-40]), to="mlx"), to="numpy")[0] == 1 + 2**-40


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0)[::-1], np.arange(12.0).reshape(3, 4).T, np.arange(12.0)[::3], np.ones(3, "f4,u1")["f0"]],
)
def test_strided_and_misaligned_memory_keeps_its_values(array: np.ndarray) -> None:
    for _ in range(2):
        assert np.array_equal(zc.convert(zc.convert(array, to="mlx"), to="numpy"), array)


def test_a_copy_is_refused_before_memory_is_touched() -> None:
    array = np.arange(3.0)
    with pytest.raises(zc.CopyRequiredError, match="MLX copies host memory") as caught:
        zc.convert(array, to="mlx", copy=False)
    assert caught.value.code == "imports-by-copy"
    for copies in (True, None):
        x = zc.convert(array, to="mlx", copy=copies)
        array[0] += 5
        assert x[0].item() == array[0] - 5


@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_exports_alias_and_keep_their_memory(target: str) -> None:
    pytest.importorskip(target)
    x = mx.arange(1000, dtype=mx.float32)
    plan = zc.explain(x, target)
    result = zc.convert(x, to=target, copy=False)
    assert plan.zero_copy
    assert zc.shares_memory(x, result)
    if target == "numpy":
        assert not result.flags.writeable
    else:
        assert "cannot mark its alias read-only" in plan.warnings[0]
    del x
    gc.collect()
    assert float(result[999]) == 999


@pytest.mark.hazard("other-frameworks#assignment-in-mlx")
def test_an_export_keeps_its_values_after_the_array_is_assigned_to() -> None:
    """MLX copies memory on write if another object holds it, so an alias never changes."""
    x = mx.array([1.0, 2.0, 3.0])
    held = np.asarray(x)  # by the buffer protocol, which holds the Python object
    x += 1
    assert held.tolist() in ([1, 2, 3], [2, 3, 4])
    y = mx.array([1.0, 2.0, 3.0])
    for _ in range(2):
        result, before = zc.convert(y, to="numpy", copy=False), y.tolist()
        y += 1
        y[0] = 9
        assert result.tolist() == before


def test_results_do_not_keep_their_source() -> None:
    array = sample("f4", (1000,))
    watched = weakref.ref(array)
    x = zc.convert(array, to="mlx")
    del array
    gc.collect()
    assert watched() is None
    assert x[:3].tolist() == [-3, -2, -1]


def test_bfloat16_keeps_its_dtype() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    for _ in range(2):
        x = zc.convert(array, to="mlx")
        assert x.dtype == mx.bfloat16
        back = zc.convert(x, to="numpy", copy=False)
        assert (back.dtype, back.tolist()) == (array.dtype, [1.5, -2.0])


def test_a_lazy_array_is_evaluated() -> None:
    x = mx.ones((3,)) + 1
    assert zc.convert(x, to="numpy").tolist() == [2, 2, 2]
    assert zc.convert(mx.arange(12).reshape(3, 4).T, to="numpy", copy=False).tolist()[1] == [1, 5, 9]


@pytest.mark.hazard("other-frameworks#lazy-arrays-of-mlx")
def test_a_lazy_array_of_another_thread_is_refused() -> None:
    """Only the thread that created it has its stream (ml-explore/mlx#3529)."""
    lazy, evaluated = mx.arange(10) * 3, mx.arange(10) * 3
    mx.eval(evaluated)
    outcome: list[object] = []

    def work() -> None:
        outcome.append(zc.convert(evaluated, to="numpy")[3])
        try:
            outcome.append(zc.convert(lazy, to="numpy")[3])
        except zc.UnsupportedConversionError as error:
            outcome.append((error.code, str(error)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    first, second = outcome
    assert first == 9
    if second != 9:  # versions before 0.31.2 evaluate it
        assert second[0] == "other-thread"  # type: ignore[index]
        assert "mlx.core.eval(x)" in second[1]  # type: ignore[index]
    assert zc.convert(lazy, to="numpy")[3] == 9


def test_threads_convert_their_own_arrays() -> None:
    def work(start: int) -> bool:
        xs = [zc.convert(np.full(100, k, "f4"), to="mlx") + 1 for k in range(start, start + 50)]
        return all((zc.convert(x, to="numpy") == k + 1).all() for k, x in enumerate(xs, start))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))


def test_a_traced_array_is_refused() -> None:
    caught: list[str] = []

    def function(x: object) -> object:
        try:
            zc.convert(x, to="numpy")
        except zc.UnsupportedConversionError as error:
            caught.append(error.code)
        return x

    mx.compile(function)(mx.ones(3))
    assert caught == ["traced"]


@pytest.mark.hazard("other-frameworks#sizes-in-mlx")
@pytest.mark.parametrize("shape", [(0, 2**40), (2**31, 0)])
def test_sizes_that_need_more_than_32_bits_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(OverflowError):
        mx.array(np.zeros(shape))  # the hazard: no error of zerocopy
    for _ in range(2):
        with pytest.raises(zc.UnsupportedConversionError, match="32-bit integers") as caught:
            zc.convert(np.zeros(shape), to="mlx")
        assert caught.value.code == "too-many-elements"


@pytest.mark.parametrize("dtype", ["c16", "M8[s]", "U3", "O", "V8"])
def test_dtypes_without_a_counterpart_are_refused(dtype: str) -> None:
    with pytest.raises(zc.ZeroCopyError):
        zc.convert(np.zeros(3, dtype), to="mlx")


def test_the_module_is_a_target() -> None:
    assert type(zc.convert(np.ones(3), to=mx)) is mx.array
    assert zc.convert({"a": np.ones(3, "f4"), "b": [np.zeros(2, "i4")]}, to="mlx")["b"][0].dtype == mx.int32
