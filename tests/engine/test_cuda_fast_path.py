"""The fast path to CuPy from the host, and producers of device memory, without a GPU.

A stand-in for CuPy uses host memory. The routes between frameworks on a device are tested in
``tests/native/test_device_routes.py``.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.cuda_producers import SpeaksDLPack
from helpers.device_sides import counted

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

    assert registry.by_name("cupy").fast_exporters(Units) == {"host_copy": None}


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


# -- transfers ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cupy", "numba"])
def test_arrays_are_fetched_without_a_plan(machine, name: str) -> None:
    values = sample("f4", (4, 6))
    x = zc.convert(values, to=name)
    zc.convert(x, to="numpy")
    machine.log.clear()
    with counted() as counts:
        result = zc.convert(x, to="numpy")
    assert bits(result) == bits(values)
    assert not zc.shares_memory(x, result)
    assert not zc.explain(x, to="numpy").zero_copy
    assert len(counts.framework) <= 3, counts.framework
    assert machine.log == [("get", 0) if name == "cupy" else ("copy_to_host", 0)]
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(x, to="numpy", copy=False)


def test_arrays_that_one_call_cannot_copy_to_the_host_take_the_slow_path(machine) -> None:
    values = sample("f4", (4, 6))
    for name in ("cupy", "numba"):
        x = zc.convert(values, to=name)
        zc.convert(x, to="numpy")
        assert bits(zc.convert(x[:, ::2], to="numpy")) == bits(values[:, ::2])
        with machine.on(1):
            assert bits(zc.convert(x, to="numpy")) == bits(values)
    x.stream = importlib.import_module("numba").cuda.external_stream(9)
    machine.log.clear()
    assert bits(zc.convert(x, to="numpy")) == bits(values)
    assert ("synchronize", 9) in machine.log


def test_host_arrays_reach_numba_by_one_call(machine) -> None:
    values = sample("f4", (4, 6))
    zc.convert(values, to="numba")
    machine.log.clear()
    assert bits(zc.convert(zc.convert(values, to="numba"), to="numpy")) == bits(values)
    assert machine.log[0] == ("to_device", 0, 0)
    strided = zc.convert(values[:, ::2], to="numba")
    assert bits(zc.convert(strided, to="numpy")) == bits(values[:, ::2])


class Moved:
    """The array that a stand-in of torch or JAX received, and the calls on it."""

    def __init__(self, array: np.ndarray, *calls: str) -> None:
        self.array, self.calls = array, calls

    def to(self, where: str) -> Moved:
        return Moved(self.array.copy(), f"to {where}")

    def block_until_ready(self) -> Moved:
        return Moved(self.array, *self.calls, "waited")


def _transfer(monkeypatch: pytest.MonkeyPatch, name: str, module: SimpleNamespace):
    framework = registry.by_name(name)
    monkeypatch.setattr(framework, "module", lambda: module)
    return framework.device_copier(Device(2, 0))


def test_torch_copies_host_arrays_to_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    transfer = _transfer(monkeypatch, "torch", SimpleNamespace(from_numpy=Moved))
    values = sample("f4")
    assert transfer(values).calls == ("to cuda:0",)
    values.flags.writeable = False
    with pytest.raises(BufferError):
        transfer(values)
    assert registry.by_name("torch").device_copier(Device(1, 0)) is None


def test_jax_may_read_a_host_array_only_until_the_call_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    device, config = SimpleNamespace(local_hardware_id=0), SimpleNamespace(jax_enable_x64=False)
    put = lambda array, there: Moved(array, f"put {there.local_hardware_id}")  # noqa: E731
    module = SimpleNamespace(local_devices=lambda backend: [device], config=config, device_put=put)
    transfer = _transfer(monkeypatch, "jax", module)
    small, large = np.ones(1000, "f4"), np.ones(100_000, "f4")
    moved = transfer(small)
    assert moved.calls == ("put 0",)
    assert not np.shares_memory(moved.array, small)
    assert transfer(large).calls == ("put 0", "waited")
    for refused in (np.ones(3), np.ones(3, ">f4"), np.ones(3, "M8[s]")):
        with pytest.raises(BufferError):
            transfer(refused)


def test_torch_tensors_are_fetched_if_they_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    framework = registry.by_name("torch")
    assert torch.version.cuda is not None or framework.host_copier(torch.Tensor) is None
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    fetch = framework.host_copier(torch.Tensor)
    assert fetch(torch.zeros(3)) is None  # on the host

    class OnDevice(torch.Tensor):
        is_cuda = True

    assert fetch(torch.ones(3).as_subclass(OnDevice)).tolist() == [1, 1, 1]
    cut = torch.ones(64)
    cut.untyped_storage().resize_(8)
    lazy = torch.ones(3, dtype=torch.complex64).conj()
    for refused in (torch.ones(3).requires_grad_(), lazy, cut):
        with pytest.raises(BufferError):
            fetch(refused.as_subclass(OnDevice))


def test_devices_of_strings_alone_have_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.device("cuda") is the current device, which may change."""
    torch = pytest.importorskip("torch")
    made: list[object] = []
    monkeypatch.setattr(registry.by_name("torch"), "device_copier", made.append)
    for spec in ("cuda", torch.device("cuda:0"), (2, 0)):
        parts = routes.find_parts(sample("f4"), "torch", {})
        routes.compose_route(parts, "torch", {"device": spec}, None, routes.by_kept_route)
    assert made == [Device(2, 0)]
