"""MXNet's engine, oneDNN's layouts, devices, and environments without MXNet."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.mxnet_or_skip import address, in_onednn_layout, mxnet_or_skip

import zerocopy as zc
from zerocopy import registry
from zerocopy._frameworks.mxnet import canonical, with_gil
from zerocopy.device import CUDA, CUDA_HOST, HOST, Device
from zerocopy.dtype import by_name
from zerocopy.errors import CopyRequiredError, DeviceError, UnsupportedConversionError
from zerocopy.protocols import dlpack
from zerocopy.source import Source
from zerocopy.strided_view import StridedView, contiguous_strides

mx = mxnet_or_skip()
MXNET = registry.by_name("mxnet")
Run = Callable[..., subprocess.CompletedProcess[str]]


# -- the engine ---------------------------------------------------------------------


def test_conversion_waits_for_pending_writes() -> None:
    ones = mx.nd.ones((1500, 1500))
    array = mx.nd.dot(ones, ones)  # runs later, on another thread
    assert (zc.convert(array, "numpy") == 1500).all()


def test_conversion_waits_for_pending_reads() -> None:
    """Queued operators must read the memory before the alias's owner writes to it."""
    array = mx.nd.ones((1500, 1500))
    array.wait_to_read()
    for i in range(1, 4):
        pending = mx.nd.dot(array, array)
        zc.convert(array, "numpy")[:] = i + 1
        assert (pending.asnumpy() == i * i * 1500).all()


def test_copy_is_finished_when_it_is_returned() -> None:
    array = np.ones((3000, 3000), "float32")
    result = zc.convert(array, "mxnet", copy=True)
    array[:] = 2
    assert (result.asnumpy() == 1).all()


def test_failed_operator_raises_with_its_error() -> None:
    array = mx.nd.random.normal(0, -1, (2, 2))  # raises nothing: it runs later
    with pytest.raises(UnsupportedConversionError, match="scale parameter in gaussian") as caught:
        zc.convert(array, "numpy")
    assert isinstance(caught.value.__cause__, mx.MXNetError)


# -- oneDNN -------------------------------------------------------------------------


@pytest.mark.hazard("other-frameworks#mxnet-layouts")
def test_onednn_layout_is_copied() -> None:
    array = in_onednn_layout()
    with pytest.raises(mx.MXNetError):
        array.to_dlpack_for_read()  # no strides can describe it
    plan = zc.explain(array, "numpy")
    assert not plan.zero_copy
    assert plan.copied_bytes == 4 * array.size
    assert "oneDNN" in str(plan)
    result = zc.convert(array, "numpy")
    assert bits(result) == bits(array.asnumpy())
    assert not zc.shares_memory(array, result)
    result[:] = 0
    assert array.asnumpy().any()
    with pytest.raises(CopyRequiredError, match="oneDNN"):
        zc.convert(array, "numpy", copy=False)
    with pytest.raises(CopyRequiredError, match="oneDNN"):
        zc.view(array)
    assert zc.explain(array.copy(), "numpy").zero_copy  # as the remedy says


INFERENCE = """
    import sys, numpy as np, mxnet as mx, zerocopy as zc
    weights = np.random.RandomState(0).rand(16, 3, 3, 3).astype("float32")
    before = weights.copy()
    aliased = zc.convert(weights, "mxnet", copy=COPY)
    data = mx.nd.ones((2, 3, 32, 32))
    mx.nd.Convolution(data, aliased, no_bias=True, kernel=(3, 3), num_filter=16).asnumpy()
    assert (aliased.asnumpy() == before).all()
    print("kept" if (weights == before).all() else "rewritten")
"""


@pytest.mark.hazard("other-frameworks#mxnet-layouts")
@pytest.mark.parametrize(
    ("copy", "enabled", "outcome"), [(None, "1", "rewritten"), (True, "1", "kept"), (None, "0", "kept")]
)
def test_inference_rewrites_aliased_weights(
    run_python: Run, copy: bool | None, enabled: str, outcome: str
) -> None:
    """zerocopy cannot prevent this hazard, which the class documents; both remedies work."""
    completed = run_python(INFERENCE.replace("COPY", repr(copy)), MXNET_MKLDNN_ENABLED=enabled)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip() == outcome


# -- devices ------------------------------------------------------------------------


def test_mxnet_devices_are_parsed() -> None:
    assert zc.frameworks()["mxnet"].devices == ("cpu",)
    assert MXNET.parse_device(mx.gpu(1)) == Device(CUDA, 1)
    assert MXNET.parse_device(mx.cpu()) == HOST
    assert MXNET.parse_device(mx.cpu_pinned()) == Device(CUDA_HOST, 0)
    assert MXNET.parse_device("cuda:1") == Device(CUDA, 1)
    for device in ("cuda", mx.gpu()):
        with pytest.raises(DeviceError, match="sees no CUDA device"):
            zc.convert(np.ones(3), "mxnet", device=device)
    with pytest.raises(DeviceError):
        zc.convert(np.ones(3), "mxnet", device="metal")


@pytest.mark.parametrize("context", ["cpu", "cpu_pinned", "cpu_shared"])
def test_every_kind_of_host_memory_is_aliased(context: str) -> None:
    array = mx.nd.ones((3,), ctx=mx.Context(context))
    result = zc.convert(array, "numpy", copy=False)
    assert address(result) == address(array)
    assert zc.view(array).device.is_host


def test_copy_to_device_waits_for_the_copy() -> None:
    array = mx.nd.ones((3,))
    result = MXNET.copy_to_device(array, HOST, None)
    assert address(result) != address(array)
    assert result.asnumpy().tolist() == [1, 1, 1]


def test_device_memory_is_imported_with_a_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code for device memory, run with host memory: MXNet's wheel is built without CUDA."""
    monkeypatch.setattr(type(MXNET), "check_device", lambda self, device: None)
    streams = []

    class Producer:
        def __dlpack__(self, *, stream=None):
            streams.append(stream)
            return with_gil(array.__dlpack__())  # as producers of device memory do

    array = sample("float32")
    view = StridedView(
        address(array), array.shape, array.strides, by_name("float32"), Device(CUDA, 0), False, array
    )
    source = Source("mine", view, lambda: array, producer=Producer())
    result = MXNET.from_device(source, None)
    assert address(result) == address(array)
    assert streams == [1]
    with pytest.raises(UnsupportedConversionError, match="does not export DLPack"):
        MXNET.from_device(Source("mine", view, lambda: array, producer=object()), None)
    flags = StridedView(64, (3,), (1,), by_name("bool"), Device(CUDA, 0), False, None)
    with pytest.raises(UnsupportedConversionError, match="no bool"):
        MXNET.device_copy_reasons(flags)


def test_strides_of_size_one_dimensions_become_row_major() -> None:
    """MXNet compares every stride; torch and others write 1 for dimensions of size 1."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    array = sample("float32")
    shape, strides = (ctypes.c_int64 * 3)(3, 1, 3), (ctypes.c_int64 * 3)(3, 1, 1)
    tensor = dlpack.DLTensor(
        data=address(array), device_type=1, ndim=3, code=2, bits=32, lanes=1, shape=shape, strides=strides
    )
    tensor.byte_offset = array.strides[0]
    managed = dlpack.DLManagedTensor(dl_tensor=tensor)  # without a deleter: this function owns the memory
    with pytest.raises(mx.MXNetError, match="compact"):
        mx.nd.from_dlpack(new(ctypes.addressof(managed), b"dltensor", None))
    capsule = new(ctypes.addressof(managed), b"dltensor", None)
    view = dlpack.read(capsule)
    result = mx.nd.from_dlpack(canonical(capsule))
    assert view.strides != contiguous_strides(view.shape, 4)
    assert result.shape == (3, 1, 3)
    assert bits(result.asnumpy()) == bits(array[1:])
    del result


# -- presence -------------------------------------------------------------------------


def test_mxnet_is_imported_only_when_needed(run_python: Run) -> None:
    completed = run_python(
        """
        import sys, numpy, zerocopy as zc
        zc.frameworks(); zc.convert(numpy.ones(3), "numpy"); zc.explain("text", "numpy")
        assert "mxnet" not in sys.modules
        """
    )
    assert completed.returncode == 0, completed.stderr


def test_folder_called_mxnet_is_not_mxnet(tmp_path, monkeypatch: pytest.MonkeyPatch, run_python: Run) -> None:
    (tmp_path / "mxnet").mkdir()
    completed = run_python(
        f"""
        import sys
        sys.path[:] = [{str(tmp_path)!r}] + [p for p in sys.path if "site-packages" not in p]
        sys.path.append({str(np.__path__[0])!r}.removesuffix("numpy"))
        import importlib.util, numpy, zerocopy as zc
        class Hide:
            def find_spec(self, name, path, target=None):
                if name == "mxnet":
                    from importlib.machinery import PathFinder
                    return PathFinder.find_spec(name, [{str(tmp_path)!r}])
        sys.meta_path.insert(0, Hide())
        assert importlib.util.find_spec("mxnet") is not None
        assert not zc.frameworks()["mxnet"].installed
        try:
            zc.convert(numpy.ones(3), "mxnet")
        except zc.FrameworkNotInstalledError as error:
            assert "not installed" in str(error) and "numpy<1.24" in str(error)
        else:
            raise SystemExit("it was converted")
        """
    )
    assert completed.returncode == 0, completed.stderr


def test_import_error_with_new_numpy_is_explained(
    run_python: Run,
) -> None:
    completed = run_python(
        """
        import numpy, zerocopy as zc
        numpy.__deprecated_attrs__.pop("bool")  # as NumPy 1.24 has it
        try:
            zc.convert(numpy.ones(3), "mxnet")
        except ImportError as error:
            assert type(error) is zc.FrameworkNotInstalledError
            assert "has no attribute 'bool'" in str(error) and "numpy<1.24" in str(error), error
        else:
            raise SystemExit("it was converted")
        """
    )
    assert completed.returncode == 0, completed.stderr
