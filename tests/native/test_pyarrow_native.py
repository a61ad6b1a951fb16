"""pyarrow's import by addresses against its public functions, and the guards of its exporter."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from helpers.native_core import REFUSED, core, exported, keep_capsule, memory_route, require_core

require_core()
pa = pytest.importorskip("pyarrow")

from zerocopy import registry  # noqa: E402 - after the check for pyarrow

IMPORTER = registry.by_name("pyarrow").fast_importers().get("native")
if IMPORTER is None:
    pytest.skip("this pyarrow has other internals", allow_module_level=True)
NAMES = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)


def exporter(array):
    from zerocopy._frameworks.pyarrow.fast_path import native_exporter

    return native_exporter(pa, type(array))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_imported_array_is_the_public_one(name, size):
    source = (np.arange(size) % 100).astype(name)
    result = memory_route(core.NDArrayExporter(), IMPORTER)(source)
    right = pa.array(source)
    public = pa.Array.from_buffers(right.type, size, [None, pa.py_buffer(source)])
    assert type(result) is type(right)
    assert result.type == right.type
    assert result.null_count == result.offset == 0
    assert result.equals(right)
    assert result.equals(public)
    assert [buffer and buffer.size for buffer in result.buffers()] == [b and b.size for b in public.buffers()]
    assert result.buffers()[1].address == source.ctypes.data
    result.validate(full=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros((2, 3)),
        lambda: np.array(3.0),
        lambda: np.arange(8.0)[::2],
        lambda: np.zeros(3, bool),
        lambda: np.zeros(3, "c8"),
        lambda: np.zeros(0),
    ],
)
def test_other_arrays_than_columns_of_numbers_are_left_to_the_slow_path(make):
    with pytest.raises(BufferError, match=REFUSED):
        memory_route(core.NDArrayExporter(), IMPORTER)(make())


def test_misaligned_columns_are_left_to_the_slow_path():
    memory = np.arange(9.0)
    source = exported(memory, shape=(4,), data=memory.ctypes.data + 4)
    with pytest.raises(BufferError, match=REFUSED):
        memory_route(core.CapsuleExporter(lambda x: x), IMPORTER)(source.capsule())
    assert source.deleted == 1


@pytest.mark.parametrize("name", NAMES)
def test_arrays_pass_to_numpy_with_their_offset(name):
    array = pa.array((np.arange(20) % 100).astype(name))[3:11]
    result = memory_route(exporter(array), core.NDArrayImporter())(array)
    assert result.ctypes.data == array.buffers()[1].address + 3 * result.itemsize
    assert not result.flags.writeable
    np.testing.assert_array_equal(result, array.to_numpy())


@pytest.mark.parametrize(
    "make", [lambda: pa.array([1, None]), lambda: pa.array([1, None, 3])[0:2], lambda: pa.array([], "int64")]
)
def test_nulls_and_empty_arrays_are_left_to_the_slow_path(make):
    array = make()
    for importer in (core.NDArrayImporter(), keep_capsule([]), IMPORTER):
        assert memory_route(exporter(array), importer, fallback=lambda x: None)(array) is None


def test_a_slice_without_the_nulls_passes():
    array = pa.array([1, None, 3, 4])[2:]
    result = memory_route(exporter(array), core.NDArrayImporter(), fallback=lambda x: None)(array)
    assert result is None or result.tolist() == [3, 4]


def test_the_source_lives_as_long_as_the_array_and_its_slices():
    for version in (None, (1, 0)):
        source = exported(np.arange(64.0), version=version)
        result = memory_route(core.CapsuleExporter(lambda x: x), IMPORTER)(source.capsule())
        part = result.slice(5, 3)
        del result
        gc.collect()
        assert source.deleted == 0
        assert part.to_pylist() == [5, 6, 7]
        del part
        assert source.deleted == 1


def test_an_import_that_fails_frees_the_memory():
    source = exported(np.arange(8.0))
    importer = core.ArrowImporter(pa.Array._import_from_c, {(2, 64): "not a type"})
    with pytest.raises((TypeError, ValueError, AttributeError)):
        memory_route(core.CapsuleExporter(lambda x: x), importer)(source.capsule())
    assert source.deleted == 1
