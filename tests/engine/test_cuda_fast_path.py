"""The fast path to CuPy from the host, and producers of device memory, without a GPU.

A stand-in for CuPy uses host memory. The routes between frameworks on a device are tested in
``tests/native/test_device_routes.py``.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.cuda_producers import SpeaksDLPack

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import routes
from zerocopy._engine.planner import Call, make_plan
from zerocopy.device import Device
from zerocopy.dtype import by_name, to_numpy
from zerocopy.protocols import dlpack


@pytest.fixture
def cupy(machine):
    import cupy

    return cupy


def on_gpu(values: np.ndarray) -> object:
    return zc.convert(values, to="cupy")


class SimpleCapsule:
    """A producer that exports a given capsule."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **options):
        return self._capsule

    def __dlpack_device__(self):
        return 2, 0


def test_subclasses_of_cupy_arrays_have_no_fast_path(cupy) -> None:
    class Units(cupy.ndarray):
        pass

    assert registry.by_name("cupy").fast_exporters(Units) == {}


# -- from the host ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "f2", "f4", "f8", "c16", "q", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("layout", ["C", "F", "strided", "reversed", "0-d", "empty", "read-only"])
def test_host_arrays_reach_cupy_equally_on_both_paths(machine, dtype: str, layout: str) -> None:
    numpy_dtype = to_numpy(by_name(dtype)) if len(dtype) > 3 else np.dtype(dtype)
    values = {
        "C": lambda x: x,
        "F": lambda x: np.array(x, order="F"),
        "strided": lambda x: x[::2, ::3],
        "reversed": lambda x: x[::-1],
        "0-d": lambda x: x[:1, :1].reshape(()),
        "empty": lambda x: x[:0],
        "read-only": lambda x: x,
    }[layout](sample(numpy_dtype, (4, 6)))
    values.flags.writeable = layout != "read-only"
    planned = make_plan(Call(values, "cupy", {})).run()
    for _ in range(2):  # the second conversion takes the fast path
        machine.log.clear()
        fast = zc.convert(values, to="cupy")
        assert ("array", 0, 0) in machine.log
        assert (fast.dtype, fast.shape, fast.strides) == (planned.dtype, planned.shape, planned.strides)
        assert bits(zc.convert(fast, to="numpy")) == bits(values)
        assert not zc.shares_memory(fast, values)


@pytest.mark.parametrize(
    "values",
    [np.zeros(3, ">f4"), np.zeros(3, "M8[s]"), np.array(["a"]), np.array([None])],
    ids=["swapped", "dates", "text", "objects"],
)
def test_host_arrays_that_cupy_cannot_take_need_the_slow_path(cupy, values: np.ndarray) -> None:
    zc.convert(np.zeros(3), to="cupy")
    with pytest.raises(BufferError):
        routes.routes_of("cupy", {})[np.ndarray](values)
    if values.dtype.kind == "f":
        assert zc.convert(values, to="cupy").dtype == np.dtype("f4")
    else:
        with pytest.raises(zc.ZeroCopyError):
            zc.convert(values, to="cupy")


# -- torch --------------------------------------------------------------------------------


def test_torch_without_cuda_takes_no_memory_on_devices() -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this build has CUDA")
    assert "native_device" not in registry.by_name("torch").fast_importers()


# -- streams that JAX does not accept --------------------------------------------------------


class JaxArray:
    """Records the arguments of JAX's exporter, which passes stream -1 to the driver and crashes."""

    def __init__(self, kind: int):
        self.kind, self.calls = kind, []

    def __dlpack__(self, *, stream=None, **options):
        assert stream != -1
        self.calls.append((stream, options))

    def __dlpack_device__(self):
        return self.kind, 0


@pytest.mark.parametrize(
    ("kind", "stream", "exported"), [(2, -1, 1), (2, 7, 7), (2, 1, 1), (10, -1, 0), (10, 9, 9), (3, -1, 1)]
)
def test_jax_exporter_never_gets_stream_minus_one(kind: int, stream: int, exported: int) -> None:
    pytest.importorskip("jax")
    from zerocopy._frameworks.jax.capsules import OnDevice

    x = JaxArray(kind)
    OnDevice(x).__dlpack__(stream=stream, max_version=(1, 0))
    assert x.calls == [(exported, {"max_version": (1, 0)})]
    assert OnDevice(x).__dlpack_device__() == (kind, 0)


@pytest.mark.parametrize("message", ["UNIMPLEMENTED: WaitUntilBufferReadyOnStream", "INTERNAL: failed"])
def test_jax_without_streams_waits_on_the_host(message: str) -> None:
    """XLA's TFRT client does not implement the order of streams."""
    pytest.importorskip("jax")
    from zerocopy._frameworks.jax.capsules import OnDevice

    class WithoutStreams(JaxArray):
        def __dlpack__(self, *, stream=None, **options):
            super().__dlpack__(stream=stream, **options)
            if stream is not None:
                raise RuntimeError(message)

    x = WithoutStreams(2)
    if message.startswith("INTERNAL"):
        with pytest.raises(RuntimeError, match="failed"):
            OnDevice(x).__dlpack__(stream=7)
    else:
        OnDevice(x).__dlpack__(stream=7)
        assert [stream for stream, _ in x.calls] == [7, None]


# -- managed memory -----------------------------------------------------------------------


class Managed(SpeaksDLPack):
    """Memory that CuPy declares as DLPack's managed device."""

    def __init__(self):
        super().__init__(sample("f4"), device=(13, 0))


def test_managed_memory_is_device_memory_for_jax() -> None:
    """JAX and torch have no managed device."""
    pytest.importorskip("jax")
    from zerocopy._frameworks.jax.capsules import as_cuda

    producer = as_cuda(Managed())
    assert producer.__dlpack_device__() == (2, 0)
    assert str(zc.view(producer).device) == "cuda:0"
    assert zc.view(producer).ptr == zc.view(SimpleCapsule(producer.__dlpack__(stream=1))).ptr


def test_capsules_of_other_devices_are_unchanged() -> None:
    for kind in (1, 2, 10):
        capsule = SpeaksDLPack(sample("f4"), device=(kind, 3)).__dlpack__()
        assert dlpack.read(dlpack.as_cuda(capsule)).device == Device(kind, 3)
