"""Every framework with arrays in host memory: equal objects of the same type over the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST

import zerocopy as zc
from zerocopy import registry
from zerocopy.describe import describe_array
from zerocopy.dtype import NATIVE_NAMES
from zerocopy.frames import from_frames, to_frames

FOREIGN = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int4", "uint4")
#: Frameworks that only import arrays, or whose objects have several types.
ARRAYS = [name for name in HOST if not registry.by_name(name).tables]


def array_of(framework: str, dtype: str, shape: tuple[int, ...] = (4, 3)) -> Any:
    if dtype in FOREIGN:
        dtype = getattr(pytest.importorskip("ml_dtypes"), dtype)
    try:
        return zc.convert(sample(dtype, shape), to=framework)
    except zc.ZeroCopyError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("dtype", [*sorted(NATIVE_NAMES), *FOREIGN])
@pytest.mark.parametrize("framework", ARRAYS)
def test_every_dtype_comes_back(framework: str, dtype: str) -> None:
    obj = array_of(framework, dtype)
    split = to_frames(obj)
    result = from_frames(split.header, split.frames)
    assert type(result) is type(obj)
    restored, view = describe_array(result).view, describe_array(obj).view
    assert (restored.dtype, restored.shape) == (view.dtype, view.shape)
    assert split.copied_bytes == zc.explain(obj, "numpy").copied_bytes
    assert len(split.header) < 60
    imported = zc.explain(zc.convert(obj, "numpy"), framework)  # TensorFlow copies what DLPack lacks
    assert zc.shares_memory(result, obj) == (split.copied_bytes == 0 and imported.copied_bytes == 0)
    same = zc.convert(result, "numpy", copy=True), zc.convert(obj, "numpy", copy=True)
    assert same[0].tobytes() == same[1].tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 4)])
@pytest.mark.parametrize("framework", ARRAYS)
def test_every_shape_comes_back_over_bytes(framework: str, shape: tuple[int, ...]) -> None:
    obj = array_of(framework, "float32", shape)
    split = to_frames(obj)
    result = from_frames(split.header, [bytes(frame) for frame in split.frames])
    assert type(result) is type(obj)
    assert describe_array(result).view.shape == shape
    assert np.array_equal(zc.convert(result, "numpy"), zc.convert(obj, "numpy"))


def test_a_transposed_tensor_keeps_its_strides() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    split = to_frames(tensor)
    result = from_frames(split.header, split.frames)
    assert split.copied_bytes == 0
    assert result.stride() == tensor.stride()
    assert result.data_ptr() == tensor.data_ptr()


def test_a_view_of_a_tensor_has_its_own_bytes_only() -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(1000.0)
    assert to_frames(base[10:15]).nbytes == 20
    strided = to_frames(base[::100])
    assert (strided.nbytes, strided.copied_bytes) == (40, 40)


def test_a_type_that_numpy_lacks_comes_back() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.view_as_complex(torch.ones(4, 2)).to(torch.complex64).to(torch.complex32)
    split = to_frames(tensor)
    result = from_frames(split.header, split.frames)
    assert (result.dtype, result.data_ptr()) == (tensor.dtype, tensor.data_ptr())


def test_lazy_bits_are_resolved_by_a_copy() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([1 + 2j, 3 - 1j]).conj()
    split = to_frames(tensor)
    assert split.copied_bytes == 16
    assert torch.equal(from_frames(split.header, split.frames), tensor.resolve_conj())


def test_gradients_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(zc.UnsupportedConversionError) as error:
        to_frames(torch.ones(2, requires_grad=True))
    assert error.value.code == "requires-grad"


def test_another_framework_can_be_chosen() -> None:
    torch = pytest.importorskip("torch")
    split = to_frames(np.arange(3.0))
    result = from_frames(split.header, split.frames, to="torch")
    assert torch.equal(result, torch.arange(3.0, dtype=torch.float64))


def test_readonly_frames_give_readonly_arrays() -> None:
    split = to_frames(np.arange(3.0))
    assert split.frames[0].flags.writeable
    assert from_frames(split.header, split.frames).flags.writeable
    assert not from_frames(split.header, [bytes(split.frames[0])]).flags.writeable
    assert not to_frames(b"abc").frames[0].flags.writeable


def test_the_result_keeps_the_frames_alive() -> None:
    split = to_frames(np.arange(1000.0))
    result = from_frames(split.header, [bytearray(split.frames[0])])
    assert result.sum() == 499500.0


@pytest.mark.parametrize("obj", [{"a": np.ones(2)}, [np.ones(2)], object(), "text", None])
def test_other_objects_are_refused(obj: object) -> None:
    with pytest.raises(zc.UnsupportedConversionError):
        to_frames(obj)


def test_masked_elements_are_refused() -> None:
    with pytest.raises(zc.LossyConversionError):
        to_frames(np.ma.array([1, 2], mask=[False, True]))


def test_queries_and_streams_are_refused() -> None:
    pl = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    duckdb = pytest.importorskip("duckdb")
    table = pa.table({"x": [1, 2]})
    for unread in (pl.LazyFrame({"x": [1]}), table.to_reader(), duckdb.sql("select 1 as x")):
        with pytest.raises(zc.UnsupportedConversionError) as error:
            to_frames(unread)
        assert error.value.code == "unread"
