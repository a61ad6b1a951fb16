"""Core conversions with MXNet, and with the NumPy version that it needs."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.mxnet_or_skip import mxnet_or_skip

import zerocopy as zc
from zerocopy.dtype import by_name
from zerocopy.protocols import dlpack

mx = mxnet_or_skip()


class Legacy:
    """A producer with DLPack's two methods alone."""

    def __init__(self, values: np.ndarray, dtype: str | None = None) -> None:
        self.array, self.dtype = values, values.dtype.name if dtype is None else dtype

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return dlpack.export(self.array, by_name(self.dtype))

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


DTYPES = [
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128"),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_legacy_dlpack_is_aliased_by_numpy(dtype: str) -> None:
    """Before 1.25, NumPy does not import booleans, and it marks all imports as read-only."""
    source = sample(dtype)
    before = source.copy()
    result = zc.convert(Legacy(source), "numpy", copy=False)
    assert result.dtype == source.dtype
    assert bits(result) == bits(before)
    assert result.flags.writeable
    result[0, 0] = 0 if result[0, 0] else 1
    assert source[0, 0] == result[0, 0] != before[0, 0]
    assert zc.shares_memory(source, result)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float32", "int64"])
def test_legacy_dlpack_is_imported_by_mxnet(dtype: str) -> None:
    source = sample(dtype)
    result = zc.convert(Legacy(source), "mxnet", copy=False)
    assert bits(result.asnumpy()) == bits(source)
    source[0, 0] = 0 if source[0, 0] else 1
    assert bits(result.asnumpy()) == bits(source)


@pytest.mark.parametrize(
    "source",
    [bytearray(range(8)), array.array("f", [1, 2]), memoryview(bytes(8)), np.float32(3) * np.ones(2)],
    ids=lambda source: type(source).__name__,
)
def test_buffers_are_aliased_by_mxnet(source: Any) -> None:
    result = zc.convert(source, "mxnet", copy=False)
    assert bits(result.asnumpy()) == bytes(memoryview(source).cast("B"))
    assert zc.shares_memory(source, result)
    assert result.writable is not memoryview(source).readonly


def test_pythonapi_is_left_alone() -> None:
    """MXNet's deleter relies on ctypes.pythonapi without argument types, as other packages do."""
    assert ctypes.pythonapi.PyCapsule_GetPointer.argtypes is None
    assert ctypes.pythonapi.PyCapsule_GetName.argtypes is None


def test_mxnet_capsules_are_released_without_error(capfd: pytest.CaptureFixture[str]) -> None:
    capsule = mx.nd.ones((3,)).to_dlpack_for_read()
    dlpack.read(capsule)
    del capsule
    assert capfd.readouterr().err == ""
