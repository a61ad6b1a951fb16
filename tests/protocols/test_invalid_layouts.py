"""Addresses, shapes and strides that no memory can have are refused before memory is read."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import zerocopy as zc
from zerocopy.device import CUDA, HOST, Device
from zerocopy.dtype import by_name
from zerocopy.protocols import cuda_array_interface, dlpack
from zerocopy.protocols.exporter_errors import _ADDRESSES as ADDRESSES, MAX_NDIM
from zerocopy.strided_view import MAX_NDIM as ARRAY_MAX_NDIM, StridedView

INT32_MAX, INT64_MAX, INT64_MIN = 2**31 - 1, 2**63 - 1, -(2**63)


class Exporter:
    """Exports a float32 array of shape (2, 3) whose ``DLTensor`` is changed first."""

    def __init__(self, **values: Any) -> None:
        self.array = np.zeros((2, 3), "f4")
        self.values = values
        self.kept: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.array.__dlpack__()
        tensor = dlpack.tensor_of(capsule)
        for name, value in self.values.items():
            if name in ("shape", "strides") and value is not None:
                extents = (ctypes.c_int64 * len(value))(*value)
                self.kept.append(extents)
                value = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
            elif value is None:
                value = ctypes.cast(None, ctypes.POINTER(ctypes.c_int64))
            setattr(tensor, name, value)
        return capsule


INVALID_TENSORS = {
    "ndim of 2^31 - 1": {"ndim": INT32_MAX},
    "ndim above the limit": {"ndim": MAX_NDIM + 1, "shape": [1] * (MAX_NDIM + 1)},
    "negative ndim": {"ndim": -1},
    "NULL shape": {"shape": None},
    "negative extent": {"shape": [-1, 3]},
    "product of the shape above int64": {"shape": [2**40, 2**40]},
    "product above int64 of an empty array": {"ndim": 3, "shape": [0, 2**40, 2**40]},
    "bytes above int64": {"shape": [2**61, 1]},
    "span above the address space": {"strides": [INT64_MAX // 4, 1]},
    "span below address 0": {"strides": [INT64_MIN // 4, 1]},
    "byte offset above the address space": {"byte_offset": 2**64 - 1},
    "NULL data": {"data": 0},
    "NULL data with an offset": {"data": 0, "byte_offset": 4096},
    "two lanes": {"lanes": 2},
    "no lanes": {"lanes": 0},
    "unknown code": {"code": 200},
    "no bits": {"bits": 0},
    "address above those of a process": {"byte_offset": ADDRESSES},
    "24 bits": {"bits": 24},
}


@pytest.mark.hazard(
    "robustness#dlpack-extents", "robustness#sizes-beyond-64-bits", "robustness#dlpack-dtypes"
)
@pytest.mark.parametrize("target", ["numpy", "torch"])
@pytest.mark.parametrize("change", INVALID_TENSORS.values(), ids=INVALID_TENSORS)
def test_dlpack_tensor_that_no_memory_can_have_is_refused(change: dict[str, Any], target: str) -> None:
    pytest.importorskip(target)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(Exporter(**change), to=target)
    assert caught.value.code in ("invalid-producer", "missing-dtype", "too-many-dimensions")
    assert caught.value.remedy
    assert not zc.explain(Exporter(**change), target).possible


def test_dlpack_tensor_without_elements_may_be_null() -> None:
    assert zc.convert(Exporter(shape=[0, 3], data=0), to="numpy").shape == (0, 3)


@pytest.mark.hazard("robustness#sizes-beyond-64-bits")
@settings(deadline=None)
@given(
    shape=st.lists(st.integers(INT64_MIN, INT64_MAX), min_size=2, max_size=2),
    strides=st.lists(st.integers(INT64_MIN, INT64_MAX), min_size=2, max_size=2),
    offset=st.integers(0, 2**64 - 1),
)
def test_view_of_any_dlpack_tensor_is_inside_the_address_space(
    shape: list[int], strides: list[int], offset: int
) -> None:
    exporter = Exporter(shape=shape, strides=strides, byte_offset=offset)
    plan = zc.explain(exporter, "numpy")
    if not plan.possible:
        assert plan.error.code == "invalid-producer"
        return
    view = zc.view(exporter)
    low, high = view.bounds
    assert view.size == 0 or (low > 0 and high <= ADDRESSES)
    assert view.nbytes < 2**63


class Interface:
    """An object with an array interface of float32."""

    def __init__(self, name: str, **values: Any) -> None:
        interface = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3}
        setattr(self, name, interface | values)


INVALID_INTERFACES = {
    "NULL": {"data": (0, False)},
    "negative extent": {"shape": (-2, 3)},
    "fewer strides than dimensions": {"strides": (4,)},
    "span above the address space": {"strides": (2**62, 4), "shape": (9, 3)},
    "span below address 0": {"strides": (-4096, 4)},
    "shape above int64": {"shape": (2**40, 2**40)},
    "too many dimensions": {"shape": (1,) * 1000},
}


@pytest.mark.hazard("robustness#address-0")
@pytest.mark.parametrize("name", ["__array_interface__", "__cuda_array_interface__"])
@pytest.mark.parametrize("values", INVALID_INTERFACES.values(), ids=INVALID_INTERFACES)
def test_array_interface_that_no_memory_can_have_is_refused(name: str, values: dict[str, Any]) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.view(Interface(name, **values))
    assert caught.value.code in ("invalid-producer", "too-many-dimensions")


@pytest.mark.parametrize("values", [{"data": ("x", False)}, {"data": 7}, {"strides": 5}, {"shape": None}])
def test_cuda_array_interface_with_values_of_wrong_types_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        cuda_array_interface.read(Interface("__cuda_array_interface__", **values))
    assert caught.value.code == "invalid-producer"


@pytest.mark.hazard("robustness#address-0")
def test_buffer_at_address_0_is_refused() -> None:
    null = (ctypes.c_float * 3).from_address(0)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(null, to="numpy")
    assert caught.value.code == "invalid-producer"


@pytest.mark.hazard("robustness#address-0-of-a-view")
def test_view_at_address_0_with_elements_is_not_read() -> None:
    view = StridedView(0, (3,), (4,), by_name("float32"), HOST, True, None)
    for read in (view.numpy, lambda: np.asarray(view)):
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            read()
        assert caught.value.code == "null-address"
    empty = StridedView(0, (0, 3), (12, 4), by_name("float32"), HOST, True, None)
    assert empty.numpy().shape == (0, 3)


def test_views_that_numpy_cannot_hold_are_refused_or_get_other_strides() -> None:
    memory, dtype = np.arange(2.0, dtype="f4"), by_name("float32")
    many = (1,) * (ARRAY_MAX_NDIM + 1)
    deep = StridedView(memory.ctypes.data, many, (4,) * len(many), dtype, HOST, True, memory)
    for read in (deep.numpy, lambda: np.asarray(deep)):
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            read()
        assert caught.value.code == "too-many-dimensions"
    # A stride over one element may be any number.
    wide = StridedView(memory.ctypes.data, (1, 2), (4 * INT64_MAX, 4), dtype, HOST, True, memory)
    assert wide.numpy().tolist() == [[0, 1]]


def test_view_of_device_memory_at_address_0_has_no_array_interface() -> None:
    view = StridedView(0, (3,), (4,), by_name("float32"), Device(CUDA, 0), True, None)
    assert not hasattr(view, "__array_interface__")


def test_type_without_a_module_is_named_in_the_refusal() -> None:
    cls = eval("ctypes.c_float * 2", {"ctypes": ctypes, "__builtins__": {}})
    with pytest.raises(zc.UnsupportedConversionError, match="c_float_Array_2"):
        zc.convert(cls.from_address(0), to="numpy")


class InBuffer:
    """An array interface whose memory is a buffer; NumPy does not check that the array lies in it."""

    def __init__(self, **values: Any) -> None:
        interface = {"shape": (4,), "typestr": "<f4", "data": bytearray(16), "version": 3}
        self.__array_interface__ = interface | values


@pytest.mark.hazard("producers#array-interfaces-that-leave-their-buffer")
@pytest.mark.parametrize("data", [bytearray, bytes, np.zeros, lambda n: memoryview(bytes(n))])
@pytest.mark.parametrize(
    "values",
    [
        {"offset": -4},
        {"offset": 4},
        {"offset": 2**40},
        {"strides": (8,)},
        {"strides": (-4,)},
        {"shape": (200,)},
    ],
    ids=str,
)
def test_array_interface_that_leaves_its_buffer_is_refused(values: dict[str, Any], data: Any) -> None:
    exporter = InBuffer(**values, data=data(16))
    if isinstance(exporter.__array_interface__["data"], np.ndarray):
        exporter.__array_interface__["data"] = np.zeros(4, "f4")
    for target in ("numpy", "torch"):
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.convert(exporter, to=target)
        assert caught.value.code == "invalid-producer"
        assert not zc.explain(exporter, target).possible


@pytest.mark.parametrize(
    "values", [{}, {"shape": (3,), "offset": 4}, {"shape": (2,), "strides": (8,)}], ids=str
)
def test_array_interface_within_its_buffer_is_aliased(values: dict[str, Any]) -> None:
    exporter = InBuffer(**values)
    result = zc.convert(exporter, to="numpy")
    assert zc.shares_memory(result, exporter.__array_interface__["data"])


@pytest.mark.hazard("other-frameworks#reversed-arrays-of-cupy")
@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_negative_strides_divided_as_unsigned_integers_are_read(to: str) -> None:
    """CuPy 14.2: the stride of -4 bytes is (2**64 - 4) // 4 elements."""
    pytest.importorskip(to)
    exporter = Exporter(strides=[3, 2**62 - 1], byte_offset=8)
    exporter.array[...] = np.arange(6).reshape(2, 3)
    for _ in range(3):
        result = zc.convert(exporter, to, copy=None)
        np.testing.assert_array_equal(np.asarray(result), exporter.array[:, ::-1])
