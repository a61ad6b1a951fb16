"""ONNX Runtime's OrtValue: aliases both ways, what it lacks, lifetimes."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.pasting import pasted
from helpers.versions import needs

import zerocopy as zc

ort = pytest.importorskip("onnxruntime")


@pytest.mark.hazard("other-frameworks#strides-in-onnxruntime")
@pytest.mark.parametrize("strided", [lambda x: x[::2], lambda x: x[::-1], lambda x: x.T])
def test_other_layouts_are_copied(strided) -> None:
    x = strided(sample("f4", (6, 4)))
    with pytest.raises(RuntimeError, match="IsContiguousTensor"):
        ort.OrtValue.from_dlpack(x)
    assert [reason.code for reason in zc.explain(x, to="onnxruntime").reasons] == ["not-contiguous"]
    np.testing.assert_array_equal(zc.convert(x, to="onnxruntime").numpy(), x)


@pytest.mark.hazard("other-frameworks#misaligned-memory-in-onnxruntime")
def test_misaligned_memory_is_copied() -> None:
    x = sample("u1", (41,))[1:].view("f4")
    assert ort.OrtValue.from_dlpack(x).data_ptr() % 4  # the hazard: it imports it
    assert [reason.code for reason in zc.explain(x, to="onnxruntime").reasons] == ["misaligned"]


def test_misaligned_values_are_copied_for_targets_that_require_alignment() -> None:
    torch = pytest.importorskip("torch")
    x = sample("u1", (41,))[1:].view("f4")
    value = ort.OrtValue.from_dlpack(x)
    for _ in range(3):  # later calls take faster paths
        result = zc.convert(value, to="torch")
        assert result.data_ptr() % 4 == 0
        assert zc.explain(value, "torch").zero_copy == zc.shares_memory(value, result) is False
    assert torch.equal(result, torch.from_numpy(x.copy()))


def test_complex_numbers_are_refused_with_a_call_that_works() -> None:
    x = np.array([1 + 2j], "complex64")
    with pytest.raises(zc.UnsupportedConversionError, match="no complex64") as caught:
        zc.convert(x, to="onnxruntime")
    pairs = pasted(caught.value.calls[0], {"zc": zc, "x": x, "numpy": np})
    assert pairs.numpy().tolist() == [[1, 2]]


def test_bfloat16_and_float16_are_kept() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.tensor([1.5, -2.0], dtype=dtype)
        value = zc.convert(x, to="onnxruntime", copy=False)
        assert value.data_type() == f"tensor({str(dtype).removeprefix('torch.')})"
        assert zc.convert(value, to="torch").tolist() == [1.5, -2.0]


@pytest.mark.hazard("other-frameworks#booleans-in-onnxruntime")
def test_booleans_stay_booleans() -> None:
    for _ in range(2):  # the slow path, then the fast path
        x = np.array([[True, False], [False, True]])
        value = zc.convert(x, to="onnxruntime", copy=False)
        assert value.data_type() == "tensor(bool)"
        assert str(zc.view(value).dtype) == "bool"
        back = zc.convert(value, to="numpy", copy=False)
        assert back.dtype == bool
        assert zc.shares_memory(x, back)
        np.testing.assert_array_equal(back, x)


class Watched(np.ndarray):
    """An ndarray that weak references can watch."""


@pytest.mark.hazard("other-frameworks#capsules-of-onnxruntime")
def test_capsules_do_not_hold_the_array_that_a_value_was_made_of() -> None:
    """The hazard: the result of NumPy's import has memory that is free."""
    x = np.arange(8, dtype="f4").view(Watched)
    watched, value = weakref.ref(x), ort.OrtValue.ortvalue_from_numpy(x)
    imported = np.from_dlpack(value)
    del x, value
    gc.collect()
    assert watched() is None
    assert imported.shape == (8,)  # its values are undefined


@pytest.mark.hazard("other-frameworks#capsules-of-onnxruntime")
@pytest.mark.parametrize("target", ["numpy", "torch", "tvm_ffi", "pyarrow"])
def test_an_array_lives_as_long_as_a_value_that_was_made_of_it(target: str) -> None:
    pytest.importorskip(target)
    for _ in range(2):  # the slow path, then the fast path
        x = np.arange(1000, dtype="f4").view(Watched)
        watched, value = weakref.ref(x), ort.OrtValue.ortvalue_from_numpy(x)
        result = zc.convert(value, to=target, copy=False)
        del x, value
        gc.collect()
        assert watched() is not None
        assert zc.convert(result, to="numpy")[999] == 999
        del result
        gc.collect()
        assert watched() is None


@needs("onnxruntime", "1.32", "float8 in its DLPack")
def test_values_of_float8() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.5, -2.0]).to(torch.float8_e4m3fn)
    value = zc.convert(x, to="onnxruntime", copy=False)
    assert value.data_type() == "tensor(float8e4m3fn)"
    assert zc.convert(value, to="torch").to(torch.float32).tolist() == [1.5, -2.0]


# -- results of sessions, of a model in protocol buffers ------------------------------

_FLOAT, _STRING = 1, 8


def message(*fields: tuple[int, bytes | int]) -> bytes:
    """Return a message of fields that are shorter than 128 bytes."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(bytes([number << 3, value]))
        else:
            size = (
                bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 127 | 128, len(value) >> 7])
            )
            parts.append(bytes([number << 3 | 2]) + size + value)
    return b"".join(parts)


def tensor(element: int) -> bytes:
    return message((1, message((1, element), (2, message((1, message((1, 2))))))))


def session(operator: bytes, inputs: list[bytes], result: bytes, attribute: bytes = b""):
    """Return a session whose model applies one operator to two numbers, ``x``."""
    node = [
        *((1, name) for name in inputs),
        (2, b"y"),
        (4, operator),
        *([(5, attribute)] if attribute else []),
    ]
    x, y = message((1, b"x"), (2, tensor(_FLOAT))), message((1, b"y"), (2, result))
    graph = message((1, message(*node)), (2, b"g"), (11, x), (12, y))
    return ort.InferenceSession(message((1, 8), (7, graph), (8, message((2, 17)))))


def run(*model) -> object:
    x = zc.convert(np.array([1, 2], "f4"), to="onnxruntime")
    (y,) = session(*model).run_with_ort_values(["y"], {"x": x})
    return y


def test_results_of_a_session_outlive_it() -> None:
    y = run(b"Add", [b"x", b"x"], tensor(_FLOAT))
    result = zc.convert(y, to="numpy", copy=False)
    assert zc.shares_memory(y, result)
    del y
    gc.collect()
    assert result.tolist() == [2, 4]


@pytest.mark.hazard("other-frameworks#onnxruntime-without-numbers")
def test_text_and_sequences_are_refused() -> None:
    to_text = message((1, b"to"), (3, _STRING)) + b"\xa0\x01\x02"  # field 20: its type is an integer
    y = run(b"Cast", [b"x"], tensor(_STRING), to_text)
    with pytest.raises(zc.UnsupportedConversionError, match="strings") as caught:
        zc.convert(y, to="numpy")
    assert pasted(caught.value.calls[0], {"x": y}).tolist() == ["1", "2"]
    several = run(b"SequenceConstruct", [b"x", b"x"], message((4, message((1, tensor(_FLOAT))))))
    with pytest.raises(zc.UnsupportedConversionError, match="a sequence"):
        zc.convert(several, to="numpy")


@pytest.mark.hazard("other-frameworks#onnxruntime-without-numbers")
def test_sparse_values_are_refused_with_a_call_that_works() -> None:
    values, places = np.array([1, 2], "f4"), np.array([0, 3])
    device = ort.OrtDevice.make("cpu", 0)
    sparse = ort.SparseTensor.sparse_coo_from_numpy(np.array([2, 2]), values, places, device)
    x = ort.OrtValue.ort_value_from_sparse_tensor(sparse)
    with pytest.raises(zc.UnsupportedConversionError, match="sparse") as caught:
        zc.convert(x, to="numpy")
    assert pasted(caught.value.calls[0], {"zc": zc, "x": x}).tolist() == [1, 2]
