"""Producers with a single protocol; DLPack's versions and flags; malformed capsules."""

from __future__ import annotations

import array
import ctypes
import mmap

import numpy as np
import pytest
from helpers.arrays import aligned, bits, sample
from helpers.frameworks import HOST
from helpers.versions import VERSIONED_CAPSULES, needs, needs_versioned_capsules

import zerocopy as zc
from zerocopy.describe import describe_array
from zerocopy.device import CPU, CUDA, Device
from zerocopy.dtype import SUBBYTE_NAMES, by_name
from zerocopy.protocols import array_interface, dlpack
from zerocopy.strided_view import StridedView


class Legacy:
    """A producer older than DLPack 1.0, without max_version."""

    def __init__(self, x: np.ndarray) -> None:
        self.x, self.asked = x, []

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        return self.x.__dlpack__()

    def __dlpack_device__(self):
        return (CPU, 0)


class Versioned(Legacy):
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.asked.append(max_version)
        return self.x.__dlpack__(max_version=max_version)


class ArrayInterface:
    def __init__(self, x: np.ndarray) -> None:
        self.keep, self.__array_interface__ = x, x.__array_interface__


class ArrowArray:
    def __init__(self, x) -> None:
        self.x = x

    def __arrow_c_array__(self, requested_schema=None):
        return self.x.__arrow_c_array__(requested_schema)


def producers() -> dict[str, object]:
    x = sample("f4", (16,))
    raw = bytearray(x.tobytes())
    by_protocol = {
        "legacy dlpack": Legacy(x),
        "array interface": ArrayInterface(x),
        "memoryview": memoryview(x),
        "memoryview of bytes": memoryview(x.tobytes()).cast("f"),
        "array.array": array.array("f", x.tolist()),
        "ctypes": (ctypes.c_float * 16)(*x.tolist()),
        "memoryview cast": memoryview(raw).cast("f"),
        "view": zc.view(x),
    }
    if VERSIONED_CAPSULES:
        by_protocol["versioned dlpack"] = Versioned(x)
    try:
        import pyarrow as pa
    except ImportError:
        return by_protocol
    by_protocol["arrow c array"] = ArrowArray(pa.array(x))
    return by_protocol


@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize("name", producers())
def test_one_protocol_is_enough(name: str, target: str) -> None:
    x = producers()[name]
    for options in ({}, {"copy": None, "writable": None}, {"copy": True}):
        plan = zc.explain(x, target, **options)
        result = zc.convert(x, to=target, **options)
        assert plan.zero_copy == zc.shares_memory(x, result)
        assert zc.convert(result, to="numpy").tolist() == sample("f4", (16,)).tolist()


def test_bytes_mmaps_and_memmaps_are_aliased(tmp_path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(bytes(range(64)))
    with file.open("r+b") as opened:
        mapped = mmap.mmap(opened.fileno(), 0)
    for x in (bytes(range(64)), bytearray(range(64)), mapped, np.memmap(file, mode="r+")):
        result = zc.convert(x, to="numpy")
        assert result.tolist() == list(range(64))
        assert zc.shares_memory(x, result)
        if "torch" in HOST:
            assert zc.shares_memory(x, zc.convert(x, to="torch"))
    mapped_again = zc.convert(np.memmap(file, mode="r"), to="numpy", writable=True)
    mapped_again[0] = 1
    assert file.read_bytes()[0] == 0
    closed = mmap.mmap(-1, 8)
    closed.close()
    with pytest.raises(zc.UnsupportedConversionError, match="closed"):
        zc.convert(closed, to="numpy")


def test_other_libraries_are_converted_by_protocol_alone() -> None:
    x = sample("f4", (16,))
    nanoarrow = pytest.importorskip("nanoarrow")
    column = nanoarrow.Array(x.tolist(), nanoarrow.float32())
    assert zc.convert(column, to="numpy").tolist() == x.tolist()
    buffer = nanoarrow.c_buffer(x)
    assert zc.shares_memory(x, zc.convert(buffer, to="numpy"))
    nulls = nanoarrow.Array([1, None], nanoarrow.int32())
    with pytest.raises(zc.LossyConversionError, match="1 null in 2 rows"):
        zc.convert(nulls, to="numpy")
    with pytest.raises(zc.UnsupportedConversionError, match="is string"):
        zc.convert(nanoarrow.Array(["a"], nanoarrow.string()), to="numpy")


def test_tvm_ffi_tensors_are_aliased() -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    x = sample("f4", (16,))
    y = tvm_ffi.from_dlpack(x)
    for target in HOST:
        result = zc.convert(y, to=target)
        assert zc.shares_memory(x, result)


@needs_versioned_capsules
def test_dlpack_version_is_negotiated() -> None:
    x = sample("f4")
    new, old = Versioned(x), Legacy(x)
    assert dlpack.name_of(dlpack.request(new)) == dlpack.VERSIONED
    assert new.asked == [dlpack.MAX_VERSION]
    assert dlpack.name_of(dlpack.request(new, max_version=None)) == dlpack.LEGACY
    assert dlpack.name_of(dlpack.request(old)) == dlpack.LEGACY
    assert old.asked == [None]


@needs_versioned_capsules
def test_read_only_flag_is_respected() -> None:
    x = sample("f4")
    assert not dlpack.read(dlpack.request(Versioned(x))).readonly
    x.flags.writeable = False
    capsule = dlpack.request(Versioned(x))
    view = dlpack.read(capsule)
    assert view.readonly
    assert not dlpack.as_ndarray(capsule, view).flags.writeable
    if "torch" in HOST:
        assert "changes the source" in zc.explain(Versioned(x), "torch").warnings[0]


@needs_versioned_capsules
def test_capsule_with_the_copied_flag_is_not_an_alias() -> None:
    class Copies(Versioned):
        def __dlpack__(self, *, copy=None, **options):
            return self.x.__dlpack__(max_version=(1, 0), copy=True)

    x = Copies(sample("f4"))
    plan = zc.explain(x, "numpy")
    assert not plan.zero_copy
    assert "copy" in plan.reasons[0].why
    assert not zc.shares_memory(x, zc.convert(x, to="numpy"))
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(x, to="numpy", copy=False)


def test_reading_does_not_consume() -> None:
    x = sample("f4", (3, 4)).T
    capsule = x.__dlpack__()
    for _ in range(3):
        view = dlpack.read(capsule)
        assert (view.ptr, view.shape, view.strides) == (x.ctypes.data, x.shape, x.strides)
    assert np.shares_memory(np.from_dlpack(dlpack.Handover(capsule)), x)


def test_retype_exports_dtypes_that_numpy_refuses() -> None:
    from zerocopy.dtype import by_name

    x = aligned(np.arange(6, dtype=np.uint16))
    capsule = dlpack.export(x, by_name("bfloat16"))
    assert dlpack.read(capsule).dtype.name == "bfloat16"
    with pytest.raises(ValueError, match="width"):
        dlpack.retype(x.__dlpack__(), by_name("float32"))


# -- exporters that misbehave ----------------------------------------------------------


class Bad(Legacy):
    def __init__(self, capsule=None, device=(CPU, 0)) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_):
        return self.capsule() if callable(self.capsule) else self.capsule

    def __dlpack_device__(self):
        if isinstance(self.device, Exception):
            raise self.device
        return self.device


def _raise(error: Exception):
    raise error


def _consumed():
    capsule = sample("f4").__dlpack__()
    np.from_dlpack(dlpack.Handover(capsule))
    return capsule


def _null():
    capsule = sample("f4").__dlpack__()
    dlpack._tensor(capsule)[0].data = None
    return capsule


def _strange_type():
    capsule = sample("f4").__dlpack__()
    dlpack._tensor(capsule)[0].bits = 24
    return capsule


def _on_cuda():
    capsule = sample("f4").__dlpack__()
    dlpack._tensor(capsule)[0].device_type = CUDA
    return capsule


def _other_capsule():
    import _datetime

    return _datetime.datetime_CAPI


@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize(
    ("x", "error", "match"),
    [
        (Bad(lambda: _raise(RuntimeError("broken"))), zc.UnsupportedConversionError, "RuntimeError: broken"),
        (Bad(lambda: _raise(TypeError("broken"))), zc.UnsupportedConversionError, "TypeError: broken"),
        (Bad(None), zc.UnsupportedConversionError, "not a capsule"),
        (Bad("capsule"), zc.UnsupportedConversionError, "not a capsule"),
        (Bad(_consumed), zc.UnsupportedConversionError, "consumed"),
        (Bad(_other_capsule), zc.UnsupportedConversionError, "not DLPack"),
        (Bad(_null), zc.UnsupportedConversionError, "NULL"),
        (Bad(_strange_type), zc.UnsupportedConversionError, "24 bits"),
        (Bad(_on_cuda), zc.DeviceError, "cuda:0"),
        (Bad(None, device=None), zc.UnsupportedConversionError, "pair"),
        (Bad(None, device=RuntimeError("gone")), zc.UnsupportedConversionError, "gone"),
    ],
)
def test_bad_exporters_are_refused(x: Bad, error: type, match: str, target: str) -> None:
    with pytest.raises(error, match=match) as caught:
        zc.convert(x, to=target)
    assert caught.value.remedy
    assert not zc.explain(x, target).possible


@pytest.mark.parametrize("name", sorted(SUBBYTE_NAMES))
def test_packed_elements_smaller_than_a_byte_are_refused(name: str) -> None:
    dtype = by_name(name)

    def packed():
        capsule = sample("u1").__dlpack__()
        tensor = dlpack._tensor(capsule)[0]
        tensor.code, tensor.bits = dtype.code, dtype.bits
        return capsule

    with pytest.raises(zc.UnsupportedConversionError, match="one byte"):
        zc.convert(Bad(packed), to="numpy")


@pytest.mark.parametrize(
    "target", ["pyarrow.Table", "pyarrow.RecordBatch", "pyarrow.ChunkedArray", "pyarrow"]
)
@pytest.mark.parametrize("source", [*HOST, *producers()])
def test_every_array_of_one_dimension_becomes_each_form_of_a_column(source: str, target: str) -> None:
    pytest.importorskip("pyarrow")
    x = producers()[source] if source in producers() else zc.convert(sample("f4", (16,)), to=source)
    result = zc.convert(x, to=target)
    column = result.column(0) if hasattr(result, "column") else result
    assert column.to_pylist() == sample("f4", (16,)).tolist()


@pytest.mark.parametrize("source", [*HOST, *producers()])
def test_a_source_gives_its_host_memory_several_times(source: str) -> None:
    x = producers()[source] if source in producers() else zc.convert(sample("f4", (16,)), to=source)
    described = describe_array(x)
    first, second = described.host(), described.host()
    assert first.tolist() == second.tolist() == sample("f4", (16,)).tolist()


def test_the_exporters_own_exception_is_chained() -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(Bad(lambda: _raise(RuntimeError("broken"))), to="numpy")
    assert isinstance(caught.value.__cause__, RuntimeError)


@needs_versioned_capsules
def test_newer_major_versions_are_not_read() -> None:
    capsule = sample("f4").__dlpack__(max_version=(1, 0))
    pointer = dlpack._get_pointer(capsule, dlpack.VERSIONED)
    dlpack.DLManagedTensorVersioned.from_address(pointer).major = 2
    with pytest.raises(zc.UnsupportedConversionError, match="version 2"):
        dlpack.read(capsule)
    dlpack.DLManagedTensorVersioned.from_address(pointer).major = 1


# -- host memory -----------------------------------------------------------------------


def test_address_by_abi_equals_address_by_interface() -> None:
    for x in (sample("f4"), sample("i1", (9,))[3:][::-1], np.empty((0,)), np.array(1.0)):
        assert array_interface.address_by_layout(x) == array_interface.address_by_interface(x)
        assert array_interface.address(x) == x.ctypes.data
    assert array_interface._layout_holds()


def test_allocated_memory_is_aligned() -> None:
    for dtype in ("u1", "f4", "c16"):
        for shape in ((), (0,), (7,), (3, 5)):
            x = array_interface.aligned_empty(shape, np.dtype(dtype))
            assert x.ctypes.data % 64 == 0 or x.size == 0
            assert x.shape == shape
            assert x.flags.c_contiguous


@pytest.mark.parametrize("way", [array_interface.writable_by_layout, array_interface.writable_by_interface])
def test_writable_alias_keeps_the_memory(way) -> None:
    x = sample("f4", (4, 6))[::-1, ::2]
    x.flags.writeable = False
    y = way(x)
    assert y.flags.writeable
    assert not x.flags.writeable
    assert (y.ctypes.data, y.shape, y.strides, y.dtype) == (x.ctypes.data, x.shape, x.strides, x.dtype)
    expected = bits(x)
    del x
    assert bits(y) == expected
    frozen = np.zeros((0, 3))
    frozen.flags.writeable = False
    assert way(frozen).shape == (0, 3)


def test_views_of_device_memory_have_no_array_interface() -> None:
    from zerocopy.dtype import by_name

    view = StridedView(4096, (3,), (4,), by_name("float32"), Device(CUDA, 0), False, None)
    assert not hasattr(view, "__array_interface__")


def test_capsule_is_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(sample("f4").__dlpack__(), to="numpy")
    assert "the array that exported it" in caught.value.remedy


@needs("numpy", "2.0", "StringDType")
def test_strings_of_variable_width_are_refused() -> None:
    others = [name for name in HOST if name not in ("numpy", "pyarrow")]  # pyarrow takes text
    other = others[0] if others else pytest.skip("needs a framework besides NumPy and pyarrow")
    with pytest.raises(zc.UnsupportedConversionError, match="StringDType"):
        zc.convert(np.array(["a"], dtype=np.dtypes.StringDType()), to=other, copy=True)


@pytest.mark.parametrize(
    ("shape", "cut", "count"),
    [
        ((2, 3), ..., 6),
        ((0, 3), ..., 0),
        ((), ..., 1),
        ((2, 3), np.s_[::-1, 1:], 5),
        ((4, 3), np.s_[::2, 0], 7),
    ],
)
def test_the_span_of_an_array_has_its_elements(shape: tuple[int, ...], cut: object, count: int) -> None:
    low, high = array_interface.span(np.zeros(shape, "i4")[cut])
    assert high - low == 4 * count
