"""Views of cuda.core: aliases both ways, read-only memory, lifetimes, memory declared to be CUDA's."""

from __future__ import annotations

import gc
import importlib
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.cuda_producers import FakeGPU, OldDLPack, SpeaksCAI, SpeaksDLPack
from helpers.frameworks import registry_restored

import zerocopy as zc
from zerocopy import registry
from zerocopy.protocols import dlpack

try:
    cuda_core = importlib.import_module("cuda.core")
except ImportError as missing:
    pytest.skip(f"cuda.core cannot be imported: {missing}", allow_module_level=True)
View = cuda_core.utils.StridedMemoryView
ON_DEVICE = (2, 1)


def test_each_name_of_the_target() -> None:
    x = sample("i4")
    named = ("cuda.core", cuda_core, View, "cuda.core.utils.StridedMemoryView", zc.convert(x, "cuda.core"))
    for to in named:
        for _ in range(2):
            assert zc.convert(x, to).ptr == x.ctypes.data
    for to in ("cuda", "cuda_core", "cuda.core.utils", "cuda.core.Buffer", cuda_core.utils):
        with pytest.raises(zc.errors.UnknownFrameworkError, match=r"did you mean 'cuda\.core'"):
            zc.convert(x, to)


def test_objects_of_other_packages_of_cuda_import_no_cuda_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    monkeypatch.setattr(registry.by_name("cuda.core"), "_module", None)
    other = type("CUdevice", (), {"__module__": "cuda.bindings.driver"})
    with pytest.raises(zc.UnsupportedConversionError, match="is not an array"):
        zc.convert(other(), "numpy")


@pytest.mark.parametrize("strided", [lambda x: x[::2], lambda x: x[::-1], lambda x: x.T, lambda x: x[1:1]])
def test_strides_are_kept(strided) -> None:
    x = strided(sample("f4", (6, 4)))
    v = zc.convert(x, to="cuda.core", copy=False)
    assert v.shape == x.shape
    np.testing.assert_array_equal(np.from_dlpack(v), x)
    back = zc.convert(v, to="numpy", copy=False)
    np.testing.assert_array_equal(back, x)
    assert zc.shares_memory(x, back) == (x.size > 0) == zc.explain(v, "numpy").zero_copy


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 0), (1, 1)])
@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "f2", "c16"])
def test_dtypes_and_shapes_without_elements_or_dimensions(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, dtype)
    for v in (zc.convert(x, "cuda.core", copy=False), View.from_dlpack(x, -1)):
        for _ in range(2):
            back = zc.convert(v, "numpy", copy=False)
            assert (back.shape, back.dtype) == (shape, x.dtype)
            np.testing.assert_array_equal(back, x)


def test_read_only_memory_stays_read_only() -> None:
    x = np.frombuffer(b"12345678", "f4")
    for _ in range(3):
        v = zc.convert(x, to="cuda.core", copy=False)
        assert v.readonly
        assert not zc.explain(x, "cuda.core").warnings
        assert not zc.convert(v, to="numpy").flags.writeable
    assert zc.convert(sample("f4"), "cuda.core", writable=False).readonly
    copy = zc.convert(x, "cuda.core", writable=True)
    assert not copy.readonly
    assert copy.ptr != x.ctypes.data
    torch = pytest.importorskip("torch")
    assert any("immutable" in line for line in zc.explain(v, "torch").warnings)
    bfloat16 = zc.convert(torch.ones(2, dtype=torch.bfloat16), "cuda.core", writable=False)
    assert (bfloat16.readonly, bfloat16.dtype.name) == (True, "bfloat16")


def test_older_numpy_cannot_mark_memory_and_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlpack, "NUMPY_TAKES_VERSIONED", False)
    with pytest.raises(zc.FrameworkNotInstalledError, match=r"pip install 'numpy>=2\.1'"):
        zc.convert(sample("u2"), "cuda.core", writable=False)


@pytest.mark.hazard("other-frameworks#bfloat16-in-cuda-core")
def test_bfloat16_is_kept_though_its_exporter_refuses_it() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    x = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    with pytest.raises(BufferError, match="bfloat16"):
        View.from_dlpack(x, -1).__dlpack__()  # the hazard
    zc.convert(zc.convert(np.ones(2), "cuda.core"), "torch")  # the route of other dtypes, which refuses it
    for _ in range(2):
        v = zc.convert(x, "cuda.core", copy=False)
        assert (v.dtype.name, v.ptr) == ("bfloat16", x.data_ptr())
        assert zc.convert(v, "torch", copy=False).tolist() == [1.5, -2.0]


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn", "int4"])
def test_types_that_it_cannot_name_are_refused(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.zeros(4, getattr(ml_dtypes, name))
    with pytest.raises(zc.UnsupportedConversionError, match=f"cuda.core has no {name}"):
        zc.convert(x, "cuda.core")
    if name != "int4":
        capsule = dlpack.retype(x.view("u1").__dlpack__(), zc.view(x).dtype)
        v = View.from_dlpack(dlpack.Handover(capsule), -1)
        with pytest.raises(zc.UnsupportedConversionError, match="does not name its dtype"):
            zc.convert(v, "numpy")


@pytest.mark.filterwarnings("ignore:Constructing an empty:DeprecationWarning")
def test_views_of_nothing_are_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="views no memory"):
        zc.convert(View(), "numpy")
    capsule = np.ones(2).__dlpack__()
    dlpack.tensor_of(capsule).data = None
    v = View.from_dlpack(dlpack.Handover(capsule), -1)
    for _ in range(2):
        with pytest.raises(zc.UnsupportedConversionError, match="NULL"):
            zc.convert(v, "numpy")


def test_conversions_keep_no_references() -> None:
    x = sample("f4", (1000,))
    zc.convert(zc.convert(x, "cuda.core"), "numpy")
    gc.collect()
    before = sys.getrefcount(x)
    for _ in range(200):
        zc.convert(zc.convert(x, "cuda.core"), "numpy")
        zc.convert(x, "cuda.core", writable=False)
    gc.collect()
    assert sys.getrefcount(x) == before


# -- CUDA memory: NumPy's, which a producer declares to be on a device; nothing reads it ----------


@pytest.mark.parametrize("producer", [SpeaksDLPack, OldDLPack])
def test_device_memory_is_viewed_in_order_on_the_callers_stream(producer) -> None:
    x = sample("f4")
    for stream, asked in ((None, 1), (7, 7), (-1, -1)):
        obj = producer(x, ON_DEVICE)
        v = zc.convert(obj, "cuda.core", stream=stream)
        assert (v.ptr, v.shape, v.device_id, v.is_device_accessible) == (x.ctypes.data, x.shape, 1, True)
        assert obj.streams == [-1, asked]
        watched = weakref.ref(obj)
        view = zc.view(v)
        assert (view.ptr, view.shape, view.strides, str(view.device)) == (
            *(x.ctypes.data, x.shape, x.strides),
            "cuda:1",
        )
        del obj, view
        gc.collect()
        assert watched() is None, "the view holds the capsule, which holds the memory"


@pytest.mark.hazard("other-frameworks#byte-offsets-in-cuda-core")
def test_byte_offsets_are_part_of_the_address() -> None:
    x = sample("f4", (6,))

    def capsule():
        made = dlpack.request(x[2:])
        tensor = dlpack.tensor_of(made)
        tensor.data, tensor.byte_offset = x.ctypes.data, 8
        tensor.device_type, tensor.device_id = ON_DEVICE
        return made

    producer = dlpack.Producer(lambda **options: capsule(), ON_DEVICE)
    assert View.from_dlpack(producer, -1).ptr in (x.ctypes.data, x.ctypes.data + 8)  # the hazard: without it
    assert zc.convert(producer, "cuda.core").ptr == x.ctypes.data + 8


def test_read_only_device_memory_stays_read_only() -> None:
    x = sample("f4")
    x.flags.writeable = False
    assert zc.convert(SpeaksDLPack(x, ON_DEVICE), "cuda.core").readonly


def test_other_devices_are_refused_before_a_conversion() -> None:
    x = sample("f4")
    for obj, device, why in (
        (x, "cuda", "copies none to a device"),
        (SpeaksDLPack(x, ON_DEVICE), "cuda:0", "copies no memory between devices"),
        (x, "tpu", "does not name a device"),
    ):
        plan = zc.explain(obj, "cuda.core", device=device)
        assert why in plan.reasons[0].why
        with pytest.raises(zc.ZeroCopyError, match=why):
            zc.convert(obj, "cuda.core", device=device)
    device_view = zc.convert(SpeaksDLPack(x, ON_DEVICE), "cuda.core")
    with pytest.raises(zc.UnsupportedConversionError, match="no copy into an array on cuda"):
        zc.convert(x, "cuda.core", out=device_view)


def test_device_memory_goes_on_to_other_frameworks() -> None:
    x = sample("f4")
    with registry_restored():
        zc.register(fake := FakeGPU())
        v = zc.convert(SpeaksDLPack(x, (2, 0)), "cuda.core")
        result = zc.convert(v, "fakegpu")
        assert result.view.ptr == x.ctypes.data
        assert zc.explain(v, "numpy").copied_bytes == x.nbytes  # by a relay, which can copy the memory
        assert fake.log


@pytest.mark.parametrize("version", [2, 3])
def test_the_cuda_array_interface_is_handed_on(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuda.core asks the driver for the device, so its function is replaced."""
    x = sample("f4")
    taken = []
    stub = SimpleNamespace(from_cuda_array_interface=lambda *arguments: taken.append(arguments))
    monkeypatch.setattr(cuda_core.utils, "StridedMemoryView", stub)
    obj = SpeaksCAI(x.T, version=version, stream=5, data=(x.ctypes.data, True))
    assert zc.explain(obj, "cuda.core").zero_copy
    assert not taken
    zc.convert(obj, "cuda.core", stream=7)
    (memory, consumer), *_ = taken
    expected = {"shape": (3, 4), "strides": (4, 12), "typestr": "<f4", "version": 3}
    expected |= {"data": (x.ctypes.data, True), "stream": 5 if version == 3 else 1}
    assert (memory.__cuda_array_interface__, consumer) == (expected, 7)
    assert memory.owner is obj
