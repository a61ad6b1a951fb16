"""Which arrays MXNet aliases and which it copies, by address and by writing."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.mxnet_or_skip import address, mxnet_or_skip

import zerocopy as zc
from zerocopy import registry
from zerocopy.device import HOST
from zerocopy.dtype import ALL, by_name
from zerocopy.errors import (
    CopyRequiredError,
    UnsupportedConversionError,
)
from zerocopy.strided_view import StridedView

mx = mxnet_or_skip()
MXNET = registry.by_name("mxnet")

DTYPES = ["bool", "int8", "int32", "int64", "uint8", "float16", "float32", "float64"]
LACKING = sorted({t.name for t in ALL} - {*DTYPES, "bfloat16"})
CLASSES = {"nd": lambda x: mx.nd.array(x, dtype=x.dtype), "np": lambda x: mx.np.array(x, dtype=x.dtype)}


class Legacy:
    """A producer with DLPack's two methods alone."""

    def __init__(self, array: np.ndarray, dtype: str | None = None) -> None:
        self.array, self.dtype = array, dtype

    def __dlpack__(self, *, stream=None):
        from zerocopy.protocols import dlpack

        capsule = self.array.__dlpack__()
        return capsule if self.dtype is None else dlpack.retype(capsule, by_name(self.dtype))

    def __dlpack_device__(self):
        return (1, 0)


@pytest.fixture
def np_shape():
    """NumPy's shape semantics, required in MXNet for 0-d and zero-size arrays."""
    with mx.util.np_shape(True):
        yield


# -- into MXNet -----------------------------------------------------------------


@pytest.mark.hazard("other-frameworks#mxnet-read-only-source")
def test_the_source_stays_writable() -> None:
    """Only mx.nd.from_numpy marks its argument as read-only."""
    source = sample("float32")
    plain = source.view()
    mx.nd.from_numpy(plain)
    assert not plain.flags.writeable
    zc.convert(source, "mxnet")  # the slow path, then the fast path
    zc.convert(source, "mxnet")
    assert source.flags.writeable


def test_bfloat16_is_converted_in_both_directions() -> None:
    raw = (np.arange(6, dtype="float32").view("uint32") >> 16).astype("uint16").reshape(2, 3)
    result = zc.convert(Legacy(raw, "bfloat16"), "mxnet", copy=False)
    assert np.dtype(result.dtype).names == ("bfloat16",)
    assert address(result) == address(raw)
    assert (mx.nd.cast(result, "float32").asnumpy() == [[0, 1, 2], [3, 4, 5]]).all()
    view = zc.view(result)
    assert view.dtype is by_name("bfloat16")
    assert view.ptr == address(raw)
    assert zc.shares_memory(raw, result)


@pytest.mark.parametrize("dtype", LACKING)
def test_dtypes_that_mxnet_lacks_are_refused_by_name(dtype: str) -> None:
    view = StridedView(64, (3,), (by_name(dtype).itemsize,), by_name(dtype), HOST, False, None)
    with pytest.raises(UnsupportedConversionError, match=f"mxnet has no {dtype}"):
        MXNET.copy_reasons(view)
    if by_name(dtype).in_numpy:
        with pytest.raises(UnsupportedConversionError, match=f"mxnet has no {dtype}"):
            zc.convert(np.zeros(3, dtype), "mxnet")


def test_size_one_dimensions_have_any_strides() -> None:
    source = np.lib.stride_tricks.as_strided(sample("float32"), (4, 1, 3), (12, 999 * 4, 4))
    assert address(zc.convert(source, "mxnet", copy=False)) == address(source)


def test_more_dimensions_are_refused() -> None:
    view = StridedView(64, (1,) * 33, (4,) * 33, by_name("float32"), HOST, False, None)
    with pytest.raises(UnsupportedConversionError, match="33 dimensions"):
        MXNET.copy_reasons(view)


def test_too_many_elements_are_refused() -> None:
    large = np.broadcast_to(np.uint8(1), (2**31 - 1,))
    plan = zc.explain(large, "mxnet")
    assert not plan.possible
    assert "2,147,483,646 at most" in str(plan)
    view = StridedView(64, (2**31 - 2,), (1,), by_name("uint8"), HOST, False, None)
    assert MXNET.copy_reasons(view) == []


@pytest.mark.hazard("other-frameworks#mxnet-empty-shapes")
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_shapes_that_mxnet_treats_as_unknown_are_refused(shape: tuple[int, ...], dtype: str) -> None:
    source = np.ones(shape, dtype)
    for _ in range(2):
        with pytest.raises(UnsupportedConversionError, match="unknown") as caught:
            zc.convert(source, "mxnet")
    assert "set_np_shape" in str(caught.value)
    assert not zc.explain(source, "mxnet").possible


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_0d_arrays_are_aliased_with_numpy_shapes(np_shape: None, dtype: str) -> None:
    source = np.ones((), dtype)
    result = zc.convert(source, "mxnet", copy=False)
    assert result.shape == ()
    assert result.asnumpy() == 1
    assert address(result) == address(source)
    source[()] = 0
    assert result.asnumpy() == 0
    assert (result.astype("float32") + 1).asnumpy() == 1  # operators take it
    back = zc.convert(result, "numpy", copy=False)
    assert back.shape == ()
    assert address(back) == address(source)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
@pytest.mark.parametrize("copy", [None, False, True])
def test_zero_size_arrays_are_imported_with_numpy_shapes(
    np_shape: None, shape: tuple[int, ...], copy: bool | None
) -> None:
    source = np.ones(shape, "int8")
    plan = zc.explain(source, "mxnet", copy=copy)
    result = zc.convert(source, "mxnet", copy=copy)
    assert result.shape == shape
    assert np.dtype(result.dtype) == source.dtype
    assert plan.possible
    assert not plan.zero_copy
    assert plan.copied_bytes == 0
    assert not zc.shares_memory(source, result)
    assert zc.convert(result, "numpy", copy=copy).shape == shape


def test_zero_size_arrays_are_exported_without_numpy_shapes() -> None:
    result = zc.convert(mx.nd.array([]), "numpy")
    assert result.shape == (0,)
    assert result.dtype == np.float32


# -- out of MXNet -----------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_mxnet_memory_is_aliased_by_numpy(kind: str, dtype: str) -> None:
    values = sample(dtype)
    source = CLASSES[kind](values)
    for _ in range(2):  # the slow path, then the fast path
        result = zc.convert(source, "numpy")
        assert result.dtype == values.dtype
        assert bits(result) == bits(values)
        assert address(result) == address(source)
        assert result.flags.writeable
    assert zc.explain(source, "numpy").zero_copy
    assert zc.shares_memory(source, result)
    result[1, 2] = 1
    assert source.asnumpy()[1, 2] == 1
    CLASSES[kind](np.ones(values.shape, dtype)).copyto(source)
    source.wait_to_read()
    assert (result == 1).all()


def test_mxnet_views_keep_their_offset() -> None:
    source = mx.nd.arange(12).reshape((4, 3))
    part = source[1:3]
    result = zc.convert(part, "numpy", copy=False)
    assert address(result) == address(source) + 12
    assert result.tolist() == [[3, 4, 5], [6, 7, 8]]
    result[:] = -1
    assert source.asnumpy()[:, 0].tolist() == [0, -1, -1, 9]
    assert zc.shares_memory(part, source)
    assert not zc.shares_memory(source[:1], source[1:])


@pytest.mark.hazard("other-frameworks#mxnet-sparse")
def test_sparse_is_refused_with_a_remedy() -> None:
    for kind in ("csr", "row_sparse"):
        source = mx.nd.array([[0, 1], [0, 0]]).tostype(kind)
        with pytest.raises(UnsupportedConversionError, match=f"sparse \\({kind}\\)") as caught:
            zc.convert(source, "numpy")
        assert "tostype('default')" in str(caught.value)
        assert zc.convert(source.tostype("default"), "numpy").tolist() == [[0, 1], [0, 0]]
        assert zc.convert(source, "mxnet") is source


def test_arrays_without_values_are_refused() -> None:
    for source in (mx.nd.NDArray(mx.nd.ndarray._new_empty_handle()), mx.nd.NDArray(None)):
        with pytest.raises(UnsupportedConversionError, match=r"has no values yet|no handle"):
            zc.convert(source, "numpy")


def test_objects_that_are_not_arrays_are_refused() -> None:
    for source in (mx.sym.var("x"), mx.cpu()):
        with pytest.raises(UnsupportedConversionError):
            zc.convert(source, "numpy")


# -- copy, writable, itself -------------------------------------------------------


def test_immutable_memory_is_marked_with_a_warning() -> None:
    source = sample("float32")
    source.flags.writeable = False
    plan = zc.explain(source, "mxnet")
    assert plan.zero_copy
    assert "immutable" in plan.warnings[0]
    result = zc.convert(source, "mxnet")
    assert address(result) == address(source)
    assert not result.writable
    assert zc.view(result).readonly
    with pytest.raises(ValueError, match="readonly"):
        result += 1
    assert not zc.convert(result, "numpy").flags.writeable  # the way back keeps it
    writable_copy = zc.convert(source, "mxnet", writable=True)
    writable_copy += 1
    writable_copy.wait_to_read()
    assert bits(source) == bits(sample("float32"))
    assert writable_copy.writable
    with pytest.raises(CopyRequiredError):
        zc.convert(source, "mxnet", writable=True, copy=False)
