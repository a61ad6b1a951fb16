"""TensorFlow's private functions against its public ones, and the guards around them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.native_core import (
    REFUSED,
    aligned_copy,
    aligned_empty,
    core,
    exported,
    keep_capsule,
    memory_route,
    require_core,
)

from zerocopy import registry
from zerocopy.dtype import by_name

require_core()
tf = pytest.importorskip("tensorflow")

FRAMEWORK = registry.by_name("tensorflow")
EXPORTER = FRAMEWORK.fast_exporters(type(tf.constant(0)))["native"]
IMPORTER = FRAMEWORK.fast_importers()["native"]
NAMES = (
    "bool",
    "int8",
    "uint16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)


@pytest.fixture(autouse=True, scope="module")
def _declared():
    import ml_dtypes

    core.set_dtype(np.dtype(ml_dtypes.bfloat16), by_name("bfloat16").code, 16)


def aligned(values, dtype):
    return aligned_copy(np.asarray(values).astype(dtype))


@pytest.mark.parametrize("shape", [(5,), (2, 3), (1, 3, 1)])
@pytest.mark.parametrize("name", [*NAMES, "bfloat16"])
def test_the_alias_is_the_public_one(name, shape):
    tensor = tf.ones(shape, getattr(tf, name)) if name != "bool" else tf.constant(np.ones(shape, bool))
    result, right = memory_route(EXPORTER, core.NDArrayImporter())(tensor), np.asarray(tensor)
    assert result.dtype == right.dtype == tensor.dtype.as_numpy_dtype
    assert result.shape == shape
    assert not result.flags.writeable
    np.testing.assert_array_equal(result, tensor.numpy())
    assert result.ctypes.data == np.asarray(memoryview(tensor)).ctypes.data if name != "bfloat16" else True


@pytest.mark.parametrize("name", [*NAMES, "bfloat16"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (1, 3, 1)])
def test_the_importer_makes_what_the_public_one_does(name, shape):
    dtype = getattr(tf, name).as_numpy_dtype
    source = aligned(np.ones(shape), dtype)
    result = memory_route(core.NDArrayExporter(), IMPORTER)(source)
    got = []
    memory_route(core.NDArrayExporter(), keep_capsule(got), fallback=lambda x: got.append(None))(source)
    assert result.dtype == getattr(tf, name)
    assert tuple(result.shape) == shape
    assert result.device == tf.constant(0.0).device
    if got[0] is not None:
        right = tf.experimental.dlpack.from_dlpack(got[0])
        assert (right.dtype, right.shape, right.device) == (result.dtype, result.shape, result.device)
    np.testing.assert_array_equal(result.numpy(), source)
    if shape:  # a scalar's alias is not visible through NumPy
        assert memory_route(EXPORTER, core.NDArrayImporter())(result).ctypes.data == source.ctypes.data


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.constant(["a", "b"]),
        lambda: tf.constant("a"),
        lambda: tf.zeros((0,)),
        lambda: tf.Variable([1.0]).handle,
        lambda: tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=3, element_dtype=tf.float32),
        lambda: tf.RaggedTensor.from_row_lengths([1, 2], [2]),
        lambda: tf.sparse.from_dense([1.0]),
    ],
)
def test_strings_resources_and_variants_are_left_to_the_slow_path(make):
    obj = make()
    for importer in (core.NDArrayImporter(), keep_capsule([]), IMPORTER):
        assert memory_route(EXPORTER, importer, fallback=lambda x: None)(obj) is None


def test_symbolic_tensors_are_left_to_the_slow_path():
    @tf.function
    def function(x):
        assert memory_route(EXPORTER, core.NDArrayImporter(), fallback=lambda x: None)(x) is None
        return x

    function(tf.ones(3))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_does_not_reach_tensorflow(name):
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, name))
    core.set_dtype(dtype, by_name(name).code, 8)
    with pytest.raises(BufferError, match=REFUSED):
        memory_route(core.NDArrayExporter(), IMPORTER)(aligned(np.ones(64), dtype))


def test_the_handle_is_read_for_each_call(run_warm):
    completed = run_warm(
        """
import sys
sys.path.insert(0, "tests")
import numpy as np, tensorflow as tf
from tensorflow.python.eager import context
from helpers.native_core import aligned_copy, core, declare, memory_route
from zerocopy import registry
declare()
importer = registry.by_name("tensorflow").fast_importers()["native"]
route = memory_route(core.NDArrayExporter(), importer, fallback=lambda x: None)
source = aligned_copy(np.arange(64.0))
for _ in range(3):
    assert np.array_equal(route(source).numpy(), source)
    context._reset_context()
    assert route(source) is None or np.array_equal(route(source).numpy(), source)
    context.context().ensure_initialized()
    assert np.array_equal(route(source).numpy(), source)
print("end")
"""
    )
    assert completed.stdout == "end\n", completed.stderr[-2000:]


@pytest.mark.parametrize("offset", [8, 16, 32, 64])
def test_misaligned_memory_is_copied(offset):
    block = aligned_empty((512,), np.dtype("u1"))
    block[:] = np.arange(512) % 251
    source = block[offset : offset + 64]
    result = memory_route(core.NDArrayExporter(), IMPORTER)(source)
    np.testing.assert_array_equal(np.asarray(result), source)
    assert (np.asarray(memoryview(result)).ctypes.data == source.ctypes.data) is (offset % 64 == 0)


@pytest.mark.parametrize(
    "make", [lambda x: x.T, lambda x: x[:, ::2], lambda x: np.broadcast_to(x[:1], (5, 8))]
)
def test_other_layouts_than_row_major_are_copied(make):
    source = make(aligned(np.arange(64).reshape(8, 8), "float32"))
    result = memory_route(core.NDArrayExporter(), IMPORTER)(source)
    np.testing.assert_array_equal(np.asarray(result), source)
    with pytest.raises(BufferError, match=REFUSED):
        memory_route(core.NDArrayExporter(), IMPORTER, copy=False)(source)


def test_read_only_memory_aliases_because_tensors_are_immutable():
    source = aligned(np.arange(64), "float32")
    source.flags.writeable = False
    result = memory_route(core.NDArrayExporter(), IMPORTER, mutable=False, marks_readonly=False)(source)
    assert np.asarray(memoryview(result)).ctypes.data == source.ctypes.data


def test_the_source_lives_as_long_as_the_tensor():
    source = exported(aligned(np.arange(64), "float32"))
    result = memory_route(core.CapsuleExporter(lambda x: x), IMPORTER)(source.capsule())
    alias = memory_route(EXPORTER, core.NDArrayImporter())(result)
    del result
    assert source.deleted == 0
    np.testing.assert_array_equal(alias, np.arange(64))
    del alias
    assert source.deleted == 1
