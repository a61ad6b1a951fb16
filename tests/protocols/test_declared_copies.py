"""Objects of other libraries that export copies, or bytes that are not values of their dtype."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc


class Interface:
    """An exporter of NumPy's array interface over an array, with another type of elements."""

    def __init__(self, array: np.ndarray, typestr: str) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "typestr": typestr}


def booleans(values: list[int]) -> Interface:
    return Interface(np.array(values, np.uint8), "|b1")


class Capsules:
    """An exporter of DLPack over a NumPy array."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: object) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class Method:
    """An object that only ``__array__`` exports."""

    def __init__(self, array: np.ndarray) -> None:
        self._array, self.shape, self.dtype = array, array.shape, array.dtype

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return self._array.copy() if copy else self._array


@pytest.mark.hazard("producers#booleans-of-other-bytes")
@pytest.mark.parametrize("target", ["numpy", "torch", "jax", "tensorflow", "pyarrow"])
def test_booleans_of_other_bytes_are_normalised(target: str) -> None:
    """JAX adds a boolean with the byte 255 as -1; C and NumPy define 0 and 1 only."""
    pytest.importorskip(target)
    x = booleans([0, 255, 1, 2])
    plan = zc.explain(x, to=target)
    assert plan.reasons[0].code == "invalid-booleans"
    result = zc.convert(zc.convert(x, to=target), to="numpy")
    assert result.view(np.uint8).tolist() == [0, 1, 1, 1]
    assert x._array.tolist() == [0, 255, 1, 2]
    with pytest.raises(zc.CopyRequiredError) as caught:
        zc.convert(x, to=target, copy=False)
    if target in ("jax", "tensorflow"):
        return  # NumPy's result may not be aligned to 64 bytes
    fixed = pasted(caught.value.calls[0], {"zc": zc, "x": x, "numpy": np})
    assert zc.convert(fixed, to="numpy").tolist() == [False, True, True, True]


@pytest.mark.hazard("producers#booleans-of-other-bytes")
@pytest.mark.parametrize("read", [lambda x: x, lambda x: x[::-1], lambda x: x.reshape(2, 2).T])
def test_booleans_of_other_bytes_in_capsules_are_normalised(read) -> None:
    array = read(np.array([0, 255, 1, 2], np.uint8).view(bool))
    x, expected = Capsules(array), (array.view(np.uint8) != 0).view(np.uint8)
    for _ in range(3):  # later calls take faster paths
        result = zc.convert(x, to="numpy")
        np.testing.assert_array_equal(result.view(np.uint8), expected)
        assert zc.explain(x, to="numpy").zero_copy == zc.shares_memory(array, result) is False
    with pytest.raises(zc.CopyRequiredError, match="other than 0 and 1") as caught:
        zc.convert(x, to="numpy", copy=False)
    fixed = pasted(caught.value.calls[0], {"zc": zc, "x": x, "numpy": np})
    np.testing.assert_array_equal(fixed.view(np.uint8), expected)
    assert array.view(np.uint8).max() == 255


@pytest.mark.parametrize("target", ["numpy", "torch", "jax", "tensorflow"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("export", [lambda x: Interface(x, "|b1"), Capsules, Method, memoryview])
def test_one_boolean_of_another_byte_is_normalised(target: str, shape: tuple[int, ...], export) -> None:
    pytest.importorskip(target)
    x = export(np.full(shape, 255, np.uint8).view(bool))
    for _ in range(2):
        result = zc.convert(zc.convert(x, to=target), to="numpy")
        assert (result.shape, result.tobytes()) == (shape, b"\1")


def test_booleans_of_one_bit_values_in_capsules_are_aliased() -> None:
    array = np.array([True, False])
    assert zc.explain(Capsules(array), to="numpy").zero_copy
    assert zc.shares_memory(array, zc.convert(Capsules(array), to="numpy", copy=False))
    assert zc.convert(Capsules(array[:0]), to="numpy").shape == (0,)


def test_booleans_of_other_bytes_from_the_array_method_are_normalised() -> None:
    array = np.array([0, 255, 1, 2], np.uint8).view(bool)
    result = zc.convert(Method(array), to="numpy")
    assert result.view(np.uint8).tolist() == [0, 1, 1, 1]
    assert array.view(np.uint8).max() == 255


@pytest.mark.hazard("producers#booleans-of-other-bytes")
def test_jax_adds_other_bytes_as_other_numbers() -> None:
    """The hazard: the sum of one true value is not 1."""
    jax = pytest.importorskip("jax")
    memory = np.zeros(128, np.uint8)
    start = -memory.ctypes.data % 64
    aligned = memory[start : start + 4].view(bool)
    aligned.view(np.uint8)[0] = 255
    assert int(jax.numpy.from_dlpack(aligned).sum()) != 1


def test_booleans_of_one_bit_values_are_aliased() -> None:
    x = booleans([0, 1, 1])
    y = zc.convert(x, to="numpy", copy=False)
    x._array[0] = 1
    assert y.tolist() == [True, True, True]


def test_datasets_of_h5py_and_zarr(tmp_path) -> None:
    h5py, values = pytest.importorskip("h5py"), np.arange(6.0).reshape(2, 3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        _check_declared_copy(file.create_dataset("x", data=values), values)
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(tmp_path / "x.zarr", data=values)
    _check_declared_copy(array, values)


def _check_declared_copy(x: object, values: np.ndarray) -> None:
    plan = zc.explain(x, to="numpy")
    assert plan.copied_bytes == values.nbytes
    assert plan.reasons[0].code == "array-method"
    with pytest.raises(zc.CopyRequiredError) as caught:
        zc.convert(x, to="numpy", copy=False)
    np.testing.assert_array_equal(pasted(caught.value.calls[0], {"zc": zc, "x": x, "numpy": np}), values)
    np.testing.assert_array_equal(zc.convert(x, to="numpy"), values)
