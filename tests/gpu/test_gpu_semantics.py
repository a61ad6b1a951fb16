"""Options and promises on the GPU: copy, writable, device, and refusals."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest
from helpers.gpu_arrays import DEVICE, MARKS, NAMES, PAIRS, InterfaceAlone, have, same, sample, side

import zerocopy as zc
from zerocopy.protocols import cuda_driver

pytestmark = MARKS

MUTABLE = [pair for pair in PAIRS if pair[0] != "jax"]


@pytest.mark.parametrize(("source", "target"), MUTABLE)
def test_write_to_the_source_changes_aliases_only(source: str, target: str) -> None:
    """A write to the source is visible in an alias, not in a copy."""
    source, target = side(source), side(target)
    x = source.make(sample())
    alias = zc.convert(x, to=target.name)
    strict = zc.convert(x, to=target.name, copy=False)
    copied = zc.convert(x, to=target.name, copy=True)
    source.fill(x, 9)
    source.values(x)  # waits
    same(target, strict, np.full((6, 4), 9, "f4"))
    same(target, alias, np.full((6, 4), 9, "f4"))
    same(target, copied, sample())


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_write_to_a_copy_does_not_change_the_source(source: str, target: str) -> None:
    source, target = side(source), side(target)
    if target.name == "jax":
        pytest.skip("JAX arrays are immutable")
    x = source.make(sample())
    copied = zc.convert(x, to=target.name, copy=True)
    target.fill(copied, 9)
    target.values(copied)
    same(source, x, sample())


@pytest.mark.parametrize("writable", [None, True, False])
@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_explain_agrees_with_shares_memory(source, target, copy, writable) -> None:
    source, target = side(source), side(target)
    x = source.make(sample())
    options = {"copy": copy, "writable": writable, "device": DEVICE}
    plan = zc.explain(x, target.name, **options)
    if not plan.possible:
        assert isinstance(plan.error, zc.CopyRequiredError)
        assert copy is False
        assert writable
        with pytest.raises(zc.CopyRequiredError):
            zc.convert(x, to=target.name, **options)
        return
    result = zc.convert(x, to=target.name, **options)
    assert plan.zero_copy == zc.shares_memory(x, result)
    assert plan.zero_copy == (target.pointer(result) == source.pointer(x))
    same(target, result, sample())


@pytest.mark.parametrize("target", ["cupy", "torch", "numba"])
def test_jax_arrays_are_immutable(target: str) -> None:
    jax, target = side("jax"), side(target)
    x = jax.make(sample())
    plan = zc.explain(x, target.name)
    assert plan.zero_copy
    assert "changes the source, or ends the process" in plan.warnings[0]
    writable_result = zc.convert(x, to=target.name, writable=True)
    target.fill(writable_result, 9)
    target.values(writable_result)
    same(jax, x, sample())


@pytest.mark.parametrize("name", NAMES)
def test_array_of_the_target_is_returned_unchanged(name: str) -> None:
    framework = side(name)
    x = framework.make(sample())
    assert zc.convert(x, to=name) is x
    assert zc.convert(x, to=name, device=DEVICE) is x
    assert zc.convert(x, to=name, copy=False) is x
    fresh = zc.convert(x, to=name, copy=True)
    assert framework.pointer(fresh) != framework.pointer(x)
    assert not zc.shares_memory(x, fresh)
    same(framework, fresh, sample())


@pytest.mark.parametrize("name", ["cupy", "torch", "numba"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "complex128", "bool"])
def test_strided_array_of_the_target_is_copied(name: str, dtype: str) -> None:
    framework = side(name)
    values = sample(dtype, (8, 6))
    x = framework.make(values)[:, 1]
    fresh = zc.convert(x, to=name, copy=True)
    assert not zc.shares_memory(x, fresh)
    same(framework, fresh, values[:, 1])


# -- devices ------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_missing_device_is_refused(source: str, target: str) -> None:
    source, target = side(source), side(target)
    x = source.make(sample())
    with pytest.raises(zc.DeviceError):
        zc.convert(x, to=target.name, device="cuda:63")
    assert not zc.explain(sample(), target.name, device="cuda:63").possible


@pytest.mark.parametrize("target", ["cupy", "numba"])
def test_host_device_is_refused_by_cupy_and_numba(target: str) -> None:
    side(target)
    with pytest.raises(zc.DeviceError, match="cuda"):
        zc.convert(sample(), to=target, device="cpu")


def test_device_objects_of_frameworks_are_accepted() -> None:
    if have("torch"):
        torch = importlib.import_module("torch")
        assert zc.convert(sample(), to="torch", device=torch.device("cuda")).is_cuda
        assert zc.convert(sample(), to="torch", device=torch.device("cuda:0")).is_cuda
    if have("cupy"):
        cupy = importlib.import_module("cupy")
        assert zc.convert(sample(), to="cupy", device=cupy.cuda.Device(0)).device.id == 0
    if have("jax"):
        jax = importlib.import_module("jax")
        gpu = jax.devices("cuda")[0]
        assert set(zc.convert(sample(), to="jax", device=gpu).devices()) == {gpu}


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", NAMES)
def test_conversion_to_another_device_copies(source: str, target: str) -> None:
    source, target = side(source), side(target)
    if cuda_driver.count() < 2:
        pytest.skip("there is one GPU")
    x = source.make(sample())
    plan = zc.explain(x, target.name, device="cuda:1")
    assert not plan.zero_copy
    result = zc.convert(x, to=target.name, device="cuda:1")
    assert str(zc.view(result).device) == "cuda:1"
    assert np.array_equal(zc.convert(result, to="numpy"), sample())
    back = zc.convert(result, to=source.name, device=DEVICE)
    same(source, back, sample())
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(x, to=target.name, device="cuda:1", copy=False)


@pytest.mark.parametrize("name", NAMES)
def test_frameworks_lists_the_gpu(name: str) -> None:
    side(name)
    assert DEVICE in zc.frameworks()[name].devices


def test_driver_reports_the_device_of_a_pointer() -> None:
    cupy = side("cupy")
    assert cuda_driver.ordinal(cupy.pointer(cupy.make(sample()))) == 0
    assert cuda_driver.ordinal(sample().ctypes.data) is None


# -- refusals -----------------------------------------------------------------


@pytest.mark.parametrize("target", ["cupy", "jax", "numba", "numpy"])
def test_lazy_torch_tensors_are_copied_or_refused(target: str) -> None:
    side("torch")
    torch = importlib.import_module("torch")
    if target != "numpy":
        side(target)
    grad = torch.ones(3, device=DEVICE, requires_grad=True)
    with pytest.raises(zc.UnsupportedConversionError, match="grad"):
        zc.convert(grad, to=target)
    if target in ("numba", "numpy"):  # CuPy and JAX have sparse arrays
        with pytest.raises(zc.UnsupportedConversionError, match="sparse"):
            zc.convert(torch.ones(3, 3, device=DEVICE).to_sparse(), to=target)
    z = torch.tensor([1 + 2j, 3 - 4j], device=DEVICE)
    for lazy in (z.conj(), z.conj().imag):
        plan = zc.explain(lazy, target)
        result = zc.convert(lazy, to=target)
        assert not plan.zero_copy
        assert np.array_equal(zc.convert(result, to="numpy"), lazy.resolve_conj().resolve_neg().cpu().numpy())


@pytest.mark.parametrize("target", ["torch", "numpy"])
def test_cupy_records_and_dates_are_refused_by_name(target: str) -> None:
    side("cupy")
    cupy = importlib.import_module("cupy")
    memory = cupy.zeros(16, "uint8").data
    for dtype in ("M8[s]", "S4", np.dtype([("a", "f4"), ("b", "i4")])):
        x = cupy.ndarray((1,), dtype, memptr=memory)
        with pytest.raises(zc.UnsupportedConversionError, match="no counterpart"):
            zc.convert(x, to=target)


@pytest.mark.parametrize("target", NAMES)
def test_malformed_interfaces_are_refused(target: str) -> None:
    cupy, _ = side("cupy"), side(target)
    x = cupy.make(sample())
    for entries, error in (
        ({"stream": 0}, zc.UnsupportedConversionError),
        ({"version": 1}, zc.UnsupportedConversionError),
        ({"mask": InterfaceAlone(x)}, zc.LossyConversionError),
        ({"typestr": "|V4"}, zc.UnsupportedConversionError),
    ):
        with pytest.raises(error):
            zc.convert(InterfaceAlone(x, **entries), to=target)


@pytest.mark.parametrize("stream", [0, -2, "1", object()])
@pytest.mark.parametrize("target", NAMES)
def test_objects_that_are_not_streams_are_refused(target: str, stream: object) -> None:
    cupy, _ = side("cupy"), side(target)
    with pytest.raises(zc.DeviceError, match="stream"):
        zc.convert(cupy.make(sample()), to=target, stream=stream)


def test_64_bit_values_are_refused_by_jax_without_x64() -> None:
    cupy, _ = side("cupy"), side("jax")
    jax = importlib.import_module("jax")
    x = cupy.make(np.array([2**40 + 5]))
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(zc.LossyConversionError):
            zc.convert(x, to="jax")
    finally:
        jax.config.update("jax_enable_x64", True)


# -- containers, and silence --------------------------------------------------


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_containers_are_converted_leaf_by_leaf(source: str, target: str) -> None:
    source, target = side(source), side(target)
    x = {"a": source.make(sample()), "b": [source.make(sample(shape=(3,)))]}
    result = zc.convert(x, to=target.name)
    assert target.pointer(result["a"]) == source.pointer(x["a"])
    same(target, result["b"][0], sample(shape=(3,)))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_conversions_issue_no_python_warnings(source: str, target: str) -> None:
    """Warnings are in the plan, not issued through `warnings`."""
    source, target = side(source), side(target)
    x = source.make(sample())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="Grid size")  # Numba, of any small kernel
        zc.convert(x, to=target.name)
        zc.convert(x, to=target.name, copy=True)
        zc.convert(x, to=target.name, stream=1)
        zc.convert(x, to="numpy")
        zc.convert(sample(), to=target.name, device=DEVICE)
