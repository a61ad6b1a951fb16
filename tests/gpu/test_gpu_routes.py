"""The fast path on a device: it is taken, agrees with the slow path, and raises for other inputs."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from helpers.gpu_arrays import DTYPES, MARKS, PAIRS, bits, same, sample, side

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import routes
from zerocopy._engine.planner import Call, make_plan
from zerocopy.dtype import NATIVE_NAMES

pytestmark = MARKS


def _kept(source: str, target: str):
    """Return the fast path of a pair."""
    x = side(source).make(sample())
    zc.convert(x, to=target)
    return routes.routes_of(target, {})[type(x)]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_fast_path_is_registered(source: str, target: str) -> None:
    side(target)
    x = side(source).make(sample())
    result = _kept(source, target)(x)  # raises without a route
    assert side(target).pointer(result) == side(source).pointer(x)
    same(side(target), result, sample())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_fast_path_agrees_with_the_slow_path_or_raises(source: str, target: str, dtype: str) -> None:
    """For each dtype, the result of the slow path; or BufferError, and convert takes the slow path."""
    source_side, target_side = side(source), side(target)
    route = _kept(source, target)
    if not source_side.holds(dtype):
        pytest.skip(f"{source} has no {dtype}")
    values = sample(dtype)
    x = source_side.make(values)
    if not zc.explain(x, to=target).possible:
        with pytest.raises(zc.ZeroCopyError):
            zc.convert(x, to=target)
        return
    planned = make_plan(Call(x, target, {})).run()
    try:
        fast = route(x)
    except Exception:  # noqa: BLE001 - after any exception, convert takes the slow path
        assert dtype not in NATIVE_NAMES
    else:
        a, b = zc.view(fast), zc.view(planned)
        assert (a.ptr, a.shape, a.strides, a.dtype, a.device) == (
            b.ptr,
            b.shape,
            b.strides,
            b.dtype,
            b.device,
        )
    same(target_side, zc.convert(x, to=target), values)


CUTS = {
    "transposed": lambda x: x.T,
    "every other": lambda x: x[::2, ::2],
    "a column": lambda x: x[:, 1],
    "reversed": lambda x: x[::-1],
    "one, reversed": lambda x: x[:1][::-1],
    "0-d": lambda x: x[1, 1],
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_route_does_not_depend_on_the_layout(source: str, target: str, cut: str) -> None:
    """Routes depend on the type alone: one array's layout must not be assumed for the next."""
    if source == "torch" and "reversed" in cut:
        pytest.skip("torch has no negative strides")
    source_side, target_side = side(source), side(target)
    _kept(source, target)
    same(
        target_side,
        zc.convert(CUTS[cut](source_side.make(sample())), to=target),
        np.array(CUTS[cut](sample())),
    )


def test_lazy_torch_tensors_leave_the_fast_path() -> None:
    side("torch")
    side("cupy")
    torch = importlib.import_module("torch")
    _kept("torch", "cupy")
    z = torch.tensor([1 + 2j, 3 - 4j], device="cuda:0", dtype=torch.complex64)
    for lazy in (z.conj(), z.conj().imag):
        values = side("cupy").values(zc.convert(lazy, to="cupy"))
        assert np.array_equal(values, lazy.resolve_conj().resolve_neg().cpu().numpy())
    with pytest.raises(zc.UnsupportedConversionError, match="grad"):
        zc.convert(torch.ones(3, device="cuda:0", requires_grad=True), to="cupy")


def test_route_does_not_depend_on_the_device() -> None:
    """One type on host and device: the second array is transferred."""
    side("torch")
    side("cupy")
    torch = importlib.import_module("torch")
    _kept("torch", "cupy")
    host = torch.from_numpy(sample().copy())
    same(side("cupy"), zc.convert(host, to="cupy"), sample())
    assert np.array_equal(zc.convert(host, to="numpy"), sample())
    assert np.array_equal(zc.convert(host.to("cuda:0"), to="numpy"), sample())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_numpy_arrays_are_transferred_to_cupy(dtype: str, order: str) -> None:
    """A transfer, on the fast path from the second call on; the source may change when it returns."""
    cupy = side("cupy")
    zc.convert(sample(), to="cupy")
    values = np.array(sample(dtype), order=order if order in "CF" else "C")
    values = values[::2, ::2] if order == "strided" else values
    expected = values.copy()
    result = zc.convert(values, to="cupy")
    planned = make_plan(Call(values, "cupy", {})).run()
    values[...] = expected.flat[0]
    same(cupy, result, expected)
    assert bits(cupy.values(planned)).tolist() == bits(expected).tolist()
    assert result.strides == planned.strides


@pytest.mark.parametrize("count", [1000, 1_000_000])
@pytest.mark.parametrize("name", ["cupy", "torch", "jax", "numba"])
def test_transfers_have_routes_after_which_the_source_may_change(name: str, count: int) -> None:
    """Also from page-locked memory, which frameworks copy asynchronously."""
    there = side(name)
    torch = importlib.import_module("torch")
    options = {"device": "cuda:0"} if name in ("torch", "jax") else {}
    pinned = torch.ones(count).pin_memory().numpy()
    zc.convert(pinned, to=name, **options)
    for _ in range(20):
        pinned[...] = 1
        x = routes.routes_of(name, options)[np.ndarray](pinned)
        pinned[...] = 2
        assert np.all(there.values(x) == 1)
    zc.convert(x, to="numpy")
    fetched = routes.routes_of("numpy", {})[type(x)](x)
    assert np.all(fetched == 1)
    assert not zc.shares_memory(fetched, x)


def test_cupy_exports_and_imports_the_expected_forms() -> None:
    side("cupy")
    cupy = importlib.import_module("cupy")
    assert set(registry.by_name("cupy").fast_exporters(cupy.ndarray)) == {"native", "host_copy"}
    assert set(registry.by_name("cupy").fast_importers()) == {"native_device", "device_copy"}


def test_key_of_tensors_on_devices() -> None:
    """The exporter composes the key, because a tensor on a device starts CUDA."""
    side("torch")
    torch = importlib.import_module("torch")
    from zerocopy._frameworks.torch.native import find_layout

    layout = find_layout(torch)
    assert layout is not None
    assert layout["keys"][1] == torch._C._dispatch_keys(torch.zeros(3, device="cuda:0")).raw_repr()
