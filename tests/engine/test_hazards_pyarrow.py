"""Hazards of pyarrow in current versions: each test shows the hazard, or that zerocopy guards against it.

If pyarrow fixes a hazard, the test that shows it fails, and the guard can be removed.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from helpers.arrays import aligned, sample

import zerocopy as zc

pa = pytest.importorskip("pyarrow")
jax = pytest.importorskip("jax")
pytest.importorskip("torch")


@pytest.mark.hazard("pyarrow#nulls")
def test_arrow_nulls_are_refused() -> None:
    for x in (pa.array([1, None]), pa.chunked_array([[1], [None]]), pa.array([True, None])):
        for target in ("numpy", "torch"):
            with pytest.raises(zc.LossyConversionError, match=r"it has 1 null in [123] rows"):
                zc.convert(x, to=target)


@pytest.mark.hazard("pyarrow#packed-booleans")
def test_arrow_booleans_are_copied_to_bytes() -> None:
    x = pa.array([True, False, True, True] * 5).slice(3, 9)
    for target in ("numpy", "torch", "jax", "tensorflow"):
        assert zc.convert(zc.convert(x, to=target), to="numpy").tolist() == x.to_pylist()
        assert "bits" in zc.explain(x, target).reasons[0].why
    with pytest.raises(zc.CopyRequiredError, match="bits"):
        zc.convert(x, to="numpy", copy=False)


@pytest.mark.hazard("pyarrow#packed-booleans")
def test_bool8_is_zero_copy_both_ways() -> None:
    x = aligned([True, False, True])
    column = zc.convert(x, to="pyarrow", copy=False, dtype="bool8")
    assert column.type == pa.bool8()
    assert zc.shares_memory(x, zc.convert(column, to="torch", copy=False))
    assert zc.convert(column.slice(1), to="numpy").tolist() == [False, True]


@pytest.mark.hazard("pyarrow#slices-and-chunks")
def test_arrow_slices_are_aliased_and_chunks_are_copied() -> None:
    x = pa.array(np.arange(10, dtype=np.int32)).slice(3, 4)
    for target in ("numpy", "torch"):
        for _ in range(2):
            y = zc.convert(x, to=target, copy=False)
            assert zc.shares_memory(x, y)
            assert zc.convert(y, to="numpy").tolist() == [3, 4, 5, 6]
    chunks = pa.chunked_array([[1, 2], [3]])
    assert "2 chunks" in zc.explain(chunks, "numpy").reasons[0].why
    assert zc.convert(chunks, to="torch").tolist() == [1, 2, 3]
    with pytest.raises(zc.CopyRequiredError, match="chunks"):
        zc.convert(chunks, to="torch", copy=False)
    one = pa.chunked_array([[1, 2]])
    assert zc.shares_memory(one.chunk(0), zc.convert(one, to="numpy", copy=False))
    assert zc.convert(pa.chunked_array([], pa.float32()), to="numpy").shape == (0,)


@pytest.mark.hazard("pyarrow#legacy-capsules")
def test_jax_arrays_are_aliased_by_arrow() -> None:
    x = jax.numpy.arange(8, dtype="int32")
    if hasattr(pa.Array, "from_dlpack"):
        old = jax.__version_info__ < (0, 12)
        with pytest.raises(ValueError, match="PyCapsule") if old else nullcontext():
            pa.Array.from_dlpack(x)
    y = zc.convert(x, to="pyarrow", copy=False)
    assert y.buffers()[1].address == x.unsafe_buffer_pointer()


@pytest.mark.hazard("pyarrow#other-types-strides-and-array-classes")
@pytest.mark.parametrize(
    ("x", "hint"),
    [
        (lambda: pa.array(["a"]), "encode=True) gives codes of its words"),
        (lambda: pa.array([1], pa.timestamp("us")), "encode=True) gives integers"),
        (lambda: pa.array([1], pa.date32()), "encode=True) gives integers"),
        (lambda: pa.array(["a"]).dictionary_encode(), "encode=True) gives its codes"),
        (lambda: pa.array([["a"]]), "encode=True) gives its elements"),
        (lambda: pa.array([1]).cast(pa.decimal128(20)), "float64"),
        (lambda: pa.scalar(1), "pyarrow.array([x])"),
    ],
)
def test_arrow_types_without_counterpart_are_refused(x, hint: str) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x(), to="torch")
    assert hint in caught.value.remedy


@pytest.mark.hazard("pyarrow#other-types-strides-and-array-classes")
def test_arrow_tensors_keep_their_strides() -> None:
    x = sample("f4", (4, 6))[:, ::2]
    y = zc.convert(x, to="pyarrow", copy=False)
    assert isinstance(y, pa.Tensor)
    assert y.strides == x.strides
    assert zc.shares_memory(x, zc.convert(y, to="torch", copy=False))


@pytest.mark.hazard("pyarrow#other-types-strides-and-array-classes")
def test_arrow_targets_select_the_type_of_the_result() -> None:
    x = sample("f4", (4, 3))
    column = zc.convert(x, to="pyarrow.FixedShapeTensorArray", copy=False)
    assert isinstance(column, pa.FixedShapeTensorArray)
    assert zc.shares_memory(x, column)
    assert zc.shares_memory(x, zc.convert(column, to="torch", copy=False))
    assert isinstance(zc.convert(x[0], to="pyarrow.Tensor"), pa.Tensor)
    with pytest.raises(zc.UnsupportedConversionError, match="dimensions"):
        zc.convert(x, to="pyarrow.Array")
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.convert(x, to="pyarrow.Nonsense")


@pytest.mark.hazard("pyarrow#packed-booleans")
def test_boolean_tensors_are_refused_for_arrow() -> None:
    x = aligned([[True, False]])
    assert str(pa.Tensor.from_numpy(x).type) == "uint8"
    with pytest.raises(zc.UnsupportedConversionError, match="bool"):
        zc.convert(x, to="pyarrow")
