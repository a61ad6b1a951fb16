"""TVM FFI tensors: aliases both ways, what it lacks, lifetimes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.pasting import pasted

import zerocopy as zc
from zerocopy.protocols import dlpack

tvm_ffi = pytest.importorskip("tvm_ffi")


@pytest.mark.parametrize("strided", [lambda x: x[::2], lambda x: x[::-1], lambda x: x.T, lambda x: x[1:1]])
def test_strides_are_kept(strided) -> None:
    x = strided(sample("f4", (6, 4)))
    t = zc.convert(x, to="tvm_ffi", copy=False)
    assert tuple(t.shape) == x.shape
    np.testing.assert_array_equal(np.from_dlpack(t), x)
    np.testing.assert_array_equal(zc.convert(t, to="numpy"), x)


def test_it_refuses_read_only_arrays_and_zerocopy_warns() -> None:
    x = np.frombuffer(b"12345678", "f4")
    with pytest.raises(BufferError):
        tvm_ffi.from_dlpack(x)
    plan = zc.explain(x, to="tvm_ffi")
    assert plan.zero_copy
    assert any("immutable" in line for line in plan.warnings)
    assert zc.explain(x, to="tvm_ffi", writable=True).copied_bytes == 8


@pytest.mark.hazard("other-frameworks#misaligned-memory-in-tvm")
def test_misaligned_memory_is_copied() -> None:
    x = sample("u1", (41,))[1:].view("f4")
    assert tvm_ffi.from_dlpack(x).data_ptr() % 4  # the hazard: it imports it
    assert [reason.code for reason in zc.explain(x, to="tvm_ffi").reasons] == ["misaligned"]


def test_misaligned_tensors_are_copied_for_targets_that_require_alignment() -> None:
    torch = pytest.importorskip("torch")
    x = sample("u1", (41,))[1:].view("f4")
    t = tvm_ffi.from_dlpack(x)
    for _ in range(3):  # later calls take faster paths
        result = zc.convert(t, to="torch")
        assert result.data_ptr() % 4 == 0
        assert zc.explain(t, "torch").zero_copy == zc.shares_memory(t, result) is False
    assert torch.equal(result, torch.from_numpy(x.copy()))
    assert zc.shares_memory(t, zc.convert(t, to="numpy", copy=False))


@pytest.mark.hazard("other-frameworks#complex-numbers-in-tvm")
def test_complex_numbers_are_refused_with_a_call_that_works() -> None:
    x = np.array([1 + 2j], "complex64")
    with pytest.raises(ValueError, match="type_code"):
        str(tvm_ffi.from_dlpack(x).dtype)  # the hazard: an import without an error
    with pytest.raises(zc.UnsupportedConversionError, match="no complex64") as caught:
        zc.convert(x, to="tvm_ffi")
    pairs = pasted(caught.value.calls[0], {"zc": zc, "x": x, "numpy": np})
    assert np.from_dlpack(pairs).tolist() == [[1, 2]]


def test_memory_at_null_is_refused() -> None:
    zc.convert(tvm_ffi.from_dlpack(np.ones(2)), "numpy")  # the route of other tensors
    capsule = np.ones(2).__dlpack__()
    dlpack.tensor_of(capsule).data = None
    t = tvm_ffi.from_dlpack(dlpack.Handover(capsule))
    assert np.from_dlpack(t).flags.owndata  # NumPy allocates new memory, with any values
    for _ in range(2):
        with pytest.raises(zc.UnsupportedConversionError, match="NULL"):
            zc.convert(t, "numpy")


def test_types_of_ml_dtypes_are_kept() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    t = zc.convert(x, to="tvm_ffi", copy=False)
    assert str(t.dtype) == "bfloat16"
    assert zc.convert(t, to="torch").tolist() == [1.5, -2.0]
    assert str(zc.convert(t, to="numpy").dtype) == "bfloat16"
