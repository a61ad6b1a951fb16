"""DLPack capsules into the core: valid ones pass; wrong fields are refused before memory is read."""

from __future__ import annotations

import platform

import numpy as np
import pytest
from helpers.native_core import (
    REFUSED,
    Exported,
    consume,
    core,
    delete,
    exported,
    keep_capsule,
    memory_route,
    require_core,
)

from zerocopy.protocols import dlpack

require_core()

VERSIONS = [None, (1, 0), (1, 3)]
EXPORTER = core.CapsuleExporter(lambda capsule: capsule) if core is not None else None


def route(importer=None, **options):
    return memory_route(EXPORTER, importer or core.NDArrayImporter(), **options)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("strides", [None, (4, 1), (1, 3), (0, 1), (8, 2), (-4, 1), (4, -1)])
def test_a_valid_capsule_passes(version, strides):
    memory = np.arange(100, dtype=np.int32)
    source = exported(memory, version=version, shape=(3, 4), strides=strides, data=memory[40:].ctypes.data)
    result = route()(source.capsule())
    steps = tuple(4 * stride for stride in strides or (4, 1))
    np.testing.assert_array_equal(result, np.ndarray((3, 4), "i4", memory, 160, steps))
    assert source.deleted == 0
    del result
    assert source.deleted == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_byte_offsets_and_sizes_of_1_with_any_stride(version):
    memory = np.arange(100, dtype=np.int32)
    wild = (-(2**63), 1, 2**63 - 1)
    source = exported(memory, version=version, shape=(1, 5, 1), strides=wild, byte_offset=80)
    result = route()(source.capsule())
    assert result.shape == (1, 5, 1)
    np.testing.assert_array_equal(result.ravel(), memory[20:25])


@pytest.mark.parametrize(("flags", "writable"), [(0, True), (1, False), (2, True), (3, False), (4, True)])
def test_the_flag_of_read_only_memory(flags, writable):
    source = exported(np.arange(4.0), version=(1, 1), flags=flags)
    assert route()(source.capsule()).flags.writeable is writable


WRONG = {
    "device": {"device_type": 2},
    "device 0": {"device_type": 0},
    "NULL data": {"data": None},
    "NULL data with an offset": {"data": None, "byte_offset": 64},
    "no lanes": {"lanes": 0},
    "lanes": {"lanes": 4},
    "no bits": {"bits": 0},
    "7 bits": {"bits": 7},
    "4 bits": {"bits": 4},
    "255 bits": {"bits": 255},
    "float8 of no kind": {"code": 2, "bits": 8},
    "handle": {"code": 3},
    "code": {"code": 200},
    "negative ndim": {"ndim": -1},
    "least ndim": {"ndim": -(2**31)},
    "65 dimensions": {"shape": (1,) * 65, "strides": None},
    "2^31 - 1 dimensions": {"ndim": 2**31 - 1},
    "NULL shape": {"shape": None, "ndim": 2},
    "negative extent": {"shape": (-1,), "strides": (1,)},
    "least extent": {"shape": (-(2**63),), "strides": (1,)},
    "zero extent": {"shape": (0,), "strides": (1,)},
    "zero after a huge extent": {"shape": (2**62, 2**62, 0), "strides": None},
    "2^63 - 1 elements": {"shape": (2**63 - 1,), "strides": None},
    "2^64 elements": {"shape": (2**32, 2**32), "strides": None},
    "2^64 equal elements": {"shape": (2**32, 2**32), "strides": (0, 0)},
    "2^62 bytes": {"shape": (2**60,), "strides": (1,)},
    "huge stride": {"shape": (2,), "strides": (2**62,)},
    "least stride": {"shape": (2,), "strides": (-(2**63),)},
    "greatest stride": {"shape": (3,), "strides": (2**63 - 1,)},
    "strides whose sum overflows": {"shape": (2, 2, 2), "strides": (2**59, 2**59, 2**59)},
    "below address 0": {"shape": (2,), "strides": (-(2**50),)},
    "last byte offset": {"byte_offset": 2**64 - 1},
    "byte offset of 2^63": {"byte_offset": 2**63},
    "address of 63 bits": {"data": 2**62},
}


@pytest.mark.hazard("robustness#fields-of-capsules")
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_field_is_refused_and_its_capsule_frees_the_memory(wrong, version):
    if wrong in ("byte offset of 2^63", "address of 63 bits") and platform.machine() != "x86_64":
        pytest.skip("arm64 has tags in the highest byte of addresses")
    source = exported(np.arange(8.0), version=version, **WRONG[wrong])
    for importer in (core.NDArrayImporter(), keep_capsule([])):
        source.deleted = 0
        capsule = source.capsule()
        with pytest.raises(BufferError, match=REFUSED):
            route(importer)(capsule)
        del capsule
        source.drop()
        assert source.deleted == 1


@pytest.mark.hazard("robustness#fields-of-capsules")
@pytest.mark.parametrize("version", [(0, 0), (0, 8), (2, 0), (2**32 - 1, 0)])
def test_other_major_versions_are_refused_unread(version):
    source = Exported(version=version, data=8, ndim=2**31 - 1)
    capsule = source.capsule()
    with pytest.raises(BufferError, match=REFUSED):
        route()(capsule)
    del capsule
    source.drop()
    assert source.deleted == 1


@pytest.mark.parametrize(
    "name", [b"used_dltensor", b"used_dltensor_versioned", b"dltensor ", b"x", b"\xff\xfe", b"arrow_array"]
)
def test_capsules_of_other_names_are_refused_unread(name):
    capsule = exported(np.arange(8.0), name=name, deleter=False).capsule()
    with pytest.raises(BufferError, match=REFUSED):
        route()(capsule)


@pytest.mark.parametrize("other", [None, 3, "dltensor", np.zeros(3), (), object()])
def test_other_objects_than_capsules_are_refused(other):
    with pytest.raises(BufferError, match=REFUSED):
        route()(other)


def test_a_capsule_is_consumed_once():
    source = exported(np.arange(8.0))
    capsule = source.capsule()
    result = route()(capsule)
    for _ in range(2):
        with pytest.raises(BufferError, match=REFUSED):
            route()(capsule)
    del capsule
    assert source.deleted == 0
    del result
    assert source.deleted == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_deleter_is_not_called(version):
    source = exported(np.arange(8.0), version=version, deleter=False)
    got = []
    for importer in (core.NDArrayImporter(), keep_capsule(got)):
        route(importer)(source.capsule())
    delete(consume(got.pop()))
    assert source.deleted == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("consumed", [False, True])
def test_a_capsule_out_of_a_capsule_keeps_the_first_ones_memory(version, consumed):
    source, got = exported(np.arange(8.0), version=version), []
    route(keep_capsule(got))(source.capsule())
    capsule = got.pop()
    view = dlpack.read(capsule)
    assert view.ptr == source.managed.dl_tensor.data
    managed = consume(capsule) if consumed else None
    del view
    assert source.deleted == 0
    del capsule
    assert source.deleted == (0 if consumed else 1)
    if consumed:
        delete(managed)
    assert source.deleted == 1


@pytest.mark.hazard("robustness#deleters-with-an-exception")
def test_a_deleter_in_python_runs_without_the_exception_of_a_failed_importer():
    class Stop(BaseException):
        pass

    def fails(*arguments):
        raise Stop

    failing = core.CapsuleImporter(fails, dtypes=[(2, 64)], alignment=1, layout="compact", arguments=())
    for importer in (failing, core.ArrowImporter(fails, {(2, 64): None})):
        source, seen = exported(np.arange(8.0)), []
        source.on_delete = lambda seen=seen: seen.append(sorted([2, 1]))
        with pytest.raises(Stop):
            route(importer)(source.capsule())
        assert source.deleted == 1
        assert seen == [[1, 2]]


def test_errors_of_the_exporters_function_pass():
    def fails(obj):
        raise KeyError(obj)

    exporter = core.CapsuleExporter(fails)
    with pytest.raises(KeyError):
        memory_route(exporter, core.NDArrayImporter())(3)
    assert memory_route(exporter, core.NDArrayImporter(), fallback=lambda x: x + 1)(3) == 4


def test_keywords_of_the_exporters_function():
    calls = []
    exporter = core.CapsuleExporter(lambda obj, **keywords: calls.append(keywords), keywords={"a": 1, "b": 2})
    with pytest.raises(BufferError, match=REFUSED):
        memory_route(exporter, core.NDArrayImporter())(3)
    assert calls == [{"a": 1, "b": 2}]
    for keywords in ({1: 2}, {"a": 1, "b": 2, "c": 3}, [("a", 1)]):
        with pytest.raises(TypeError):
            core.CapsuleExporter(len, keywords=keywords)
    with pytest.raises(TypeError):
        core.CapsuleExporter(3)
