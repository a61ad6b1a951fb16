"""ONNX Runtime's OrtValue: aliases both ways, what it lacks, lifetimes."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from helpers.arrays import sample

import zerocopy as zc

ort = pytest.importorskip("onnxruntime")


def test_values_alias_both_ways() -> None:
    x = sample("f4", (4, 3))
    value = zc.convert(x, to="onnxruntime", copy=False)
    assert type(value) is ort.OrtValue
    assert value.data_ptr() == x.ctypes.data
    back = zc.convert(value, to="numpy", copy=False)
    back[1, 2] = 7
    assert x[1, 2] == 7


@pytest.mark.parametrize("strided", [lambda x: x[::2], lambda x: x[::-1], lambda x: x.T])
def test_other_layouts_are_copied(strided) -> None:
    x = strided(sample("f4", (6, 4)))
    with pytest.raises(RuntimeError, match="IsContiguousTensor"):
        ort.OrtValue.from_dlpack(x)
    assert [reason.code for reason in zc.explain(x, to="onnxruntime").reasons] == ["not-contiguous"]
    np.testing.assert_array_equal(zc.convert(x, to="onnxruntime").numpy(), x)


def test_misaligned_memory_is_copied() -> None:
    x = sample("u1", (41,))[1:].view("f4")
    assert ort.OrtValue.from_dlpack(x).data_ptr() % 4  # the hazard: it imports it
    assert [reason.code for reason in zc.explain(x, to="onnxruntime").reasons] == ["misaligned"]


def test_complex_numbers_are_refused_with_a_call_that_works() -> None:
    x = np.array([1 + 2j], "complex64")
    with pytest.raises(zc.UnsupportedConversionError, match="no complex64") as caught:
        zc.convert(x, to="onnxruntime")
    pairs = eval(caught.value.calls[0], {"zc": zc, "x": x, "numpy": np})
    assert pairs.numpy().tolist() == [[1, 2]]


def test_bfloat16_and_float16_are_kept() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.tensor([1.5, -2.0], dtype=dtype)
        value = zc.convert(x, to="onnxruntime", copy=False)
        assert value.data_type() == f"tensor({str(dtype).removeprefix('torch.')})"
        assert zc.convert(value, to="torch").tolist() == [1.5, -2.0]


def test_memory_lives_as_long_as_either_side() -> None:
    x = sample("f4", (8,))
    expected, watched = x.copy(), weakref.ref(x)
    value = zc.convert(x, to="onnxruntime")
    del x
    gc.collect()
    np.testing.assert_array_equal(value.numpy(), expected)
    back = zc.convert(value, to="numpy")
    del value
    gc.collect()
    np.testing.assert_array_equal(back, expected)
    del back
    gc.collect()
    assert watched() is None
