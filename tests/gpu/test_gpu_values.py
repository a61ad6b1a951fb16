"""Every pair on the GPU: values, dtypes, layouts, pointers; each protocol alone; the host."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.gpu_arrays import (
    CORE,
    DEVICE,
    DTYPES,
    MARKS,
    NAMES,
    PAIRS,
    DLPackAlone,
    InterfaceAlone,
    bits,
    same,
    sample,
    side,
)

import zerocopy as zc
from zerocopy.dtype import by_name, to_numpy

pytestmark = MARKS

# A base shape, and a change that is applied to an array in each framework and in NumPy.
LAYOUTS = {
    "0-d": ((), lambda a: a),
    "empty": ((0,), lambda a: a),
    "empty 2-d": ((3, 0), lambda a: a),
    "one": ((1,), lambda a: a),
    "contiguous": ((6, 4), lambda a: a),
    "3-d": ((2, 3, 4), lambda a: a),
    "transposed": ((6, 4), lambda a: a.T),
    "rows": ((6, 4), lambda a: a[1:4]),
    "column": ((6, 4), lambda a: a[:, 2]),
    "every other": ((24,), lambda a: a[::2]),
    "every other column": ((6, 4), lambda a: a[:, ::2]),
    "offset": ((17,), lambda a: a[1:]),
    "reversed": ((12,), lambda a: a[::-1]),
    "reversed columns": ((6, 4), lambda a: a[:, ::-1]),
}


def check(x, source, target, expected, **options) -> None:
    """Convert and check P1 and P3; if the conversion is refused, check that the plan is too."""
    plan = zc.explain(x, target.name, **options)
    if not plan.possible:
        with pytest.raises(type(plan.error)):
            zc.convert(x, to=target.name, **options)
        assert plan.reasons[0].why
        assert plan.reasons[0].remedy
        return
    for _ in range(2):
        result = zc.convert(x, to=target.name, **options)
        assert target.is_array(result)
        same(target, result, expected)
        assert plan.zero_copy == zc.shares_memory(x, result), str(plan)
        if plan.zero_copy:
            assert target.pointer(result) == source.pointer(x)
    assert (plan.copied_bytes == 0) == (plan.zero_copy or expected.size == 0), str(plan)
    same(source, x, expected)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_plain_array_is_aliased(source: str, target: str) -> None:
    source, target = side(source), side(target)
    expected = sample()
    x = source.make(expected)
    plan = zc.explain(x, target.name)
    assert plan.zero_copy, str(plan)
    assert plan.copied_bytes == 0
    result = zc.convert(x, to=target.name)
    assert target.is_array(result)
    assert target.pointer(result) == source.pointer(x)
    same(target, result, expected)
    assert zc.shares_memory(x, result)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_type_keeps_its_values(source: str, target: str, dtype: str) -> None:
    source, target = side(source), side(target)
    if not source.holds(dtype):
        pytest.skip(f"{source.name} has no {dtype}")
    expected = sample(dtype)
    x = source.make(expected)
    check(x, source, target, expected)
    if dtype in CORE:
        assert zc.explain(x, target.name).zero_copy
    if not target.holds(dtype):
        assert not zc.explain(x, target.name).possible


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_layout_keeps_its_values(source: str, target: str, layout: str, copy: bool | None) -> None:
    source, target = side(source), side(target)
    shape, change = LAYOUTS[layout]
    if source.name == "torch" and "reversed" in layout:
        pytest.skip("torch has no negative strides")
    values = sample(shape=shape)
    check(source.lay(values, change), source, target, change(values), copy=copy)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_broadcast_arrays_keep_their_values(source: str, target: str) -> None:
    source, target = side(source), side(target)
    values = sample(shape=(4,))
    x = source.broadcast(values, (6, 4))
    result = zc.convert(x, to=target.name)
    same(target, result, np.broadcast_to(values, (6, 4)))
    assert zc.explain(x, target.name).zero_copy == zc.shares_memory(x, result)


@pytest.mark.parametrize("name", NAMES)
def test_view_describes_device_memory(name: str) -> None:
    framework = side(name)
    x = framework.make(sample("complex64"))
    view = zc.view(x)
    assert (view.ptr, view.shape, str(view.device)) == (framework.pointer(x), (6, 4), DEVICE)
    assert view.dtype.name == "complex64"
    assert view.c_contiguous
    assert view.readonly == (name == "jax")
    assert not hasattr(view, "__array_interface__")


# -- each protocol alone ------------------------------------------------------


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", ["cupy", "torch", "jax"])
def test_dlpack_alone_is_sufficient(source: str, target: str) -> None:
    source, target = side(source), side(target)
    expected = sample()
    x = source.make(expected)
    bare = DLPackAlone(x)
    plan = zc.explain(bare, target.name)
    assert (plan.zero_copy, plan.protocol) == (True, "dlpack"), str(plan)
    result = zc.convert(bare, to=target.name)
    assert target.pointer(result) == source.pointer(x)
    same(target, result, expected)
    same(target, zc.convert(bare, to=target.name, copy=True), expected)
    assert np.array_equal(zc.convert(bare, to="numpy"), expected)


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", ["cupy", "torch", "numba"])
def test_cuda_array_interface_alone_is_sufficient(source: str, target: str) -> None:
    """To JAX too, which imports only DLPack: another framework relays the memory."""
    source, target = side(source), side(target)
    if target.name == "jax":
        side("cupy")  # CuPy or torch must be installed to relay
    expected = sample()
    x = source.make(expected)
    bare = InterfaceAlone(x)
    plan = zc.explain(bare, target.name)
    assert (plan.zero_copy, plan.protocol) == (True, "cuda-array-interface"), str(plan)
    result = zc.convert(bare, to=target.name)
    assert target.pointer(result) == source.pointer(x)
    same(target, result, expected)
    same(target, zc.convert(bare, to=target.name, copy=True), expected)
    assert np.array_equal(zc.convert(bare, to="numpy"), expected)


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("layout", ["transposed", "every other", "reversed", "reversed columns"])
@pytest.mark.parametrize("wrapper", [DLPackAlone, InterfaceAlone])
def test_layouts_of_bare_producers_keep_their_values(wrapper: type, layout: str, target: str) -> None:
    """Negative strides too: torch aborts for them, so it must not relay such memory."""
    cupy, target = side("cupy"), side(target)
    shape, change = LAYOUTS[layout]
    values = sample(shape=shape)
    bare = wrapper(change(cupy.make(values)))
    result = zc.convert(bare, to=target.name)
    same(target, result, change(values))
    assert zc.explain(bare, target.name).zero_copy == zc.shares_memory(bare, result)
    assert np.array_equal(zc.convert(bare, to="numpy"), change(values))


@pytest.mark.parametrize("target", NAMES)
def test_immutable_memory_of_an_interface_has_a_warning(target: str) -> None:
    """torch refuses the read-only flag; the plan warns of writes."""
    cupy, target = side("cupy"), side(target)
    expected = sample()
    x = cupy.make(expected)
    bare = InterfaceAlone(x, data=(cupy.pointer(x), True))
    result = zc.convert(bare, to=target.name)
    assert target.pointer(result) == cupy.pointer(x)
    if target.name != "jax":
        assert zc.explain(bare, target.name).warnings
        assert not zc.shares_memory(bare, zc.convert(bare, to=target.name, writable=True))


@pytest.mark.parametrize("target", NAMES)
def test_misaligned_memory_is_copied(target: str) -> None:
    """A packed record's field: a kernel that reads it destroys the process's CUDA context."""
    cupy, target = side("cupy"), side(target)
    record = np.zeros(5, np.dtype([("a", "u1"), ("b", "f4")]))
    record["b"] = [1, 2, 3, 4, 5]
    octets = cupy.make(record.view("u1"))
    field = InterfaceAlone(
        octets, shape=(5,), strides=(5,), typestr="<f4", data=(cupy.pointer(octets) + 1, False)
    )
    assert not zc.explain(field, target.name).zero_copy
    same(target, zc.convert(field, to=target.name), record["b"])
    assert zc.convert(field, to="numpy").tolist() == [1, 2, 3, 4, 5]
    same(cupy, cupy.make(record["b"]), record["b"])  # the context is alive


@pytest.mark.parametrize("target", NAMES)
def test_zero_size_arrays_of_an_interface_are_converted(target: str) -> None:
    cupy, target = side("cupy"), side(target)
    if target.name == "jax":
        pytest.skip("JAX has its own zero-size arrays: see test_every_layout_keeps_its_values")
    bare = InterfaceAlone(cupy.make(sample(shape=(0, 3))))
    result = zc.convert(bare, to=target.name)
    assert tuple(result.shape) == (0, 3)
    assert not zc.explain(bare, target.name).zero_copy


# -- to and from the host -----------------------------------------------------

HOST = {
    "contiguous": lambda: sample(),
    "0-d": lambda: sample(shape=()),
    "empty": lambda: sample(shape=(0, 3)),
    "transposed": lambda: sample().T,
    "every other": lambda: sample(shape=(24,))[::2],
    "reversed": lambda: sample(shape=(24,))[::-1],
    "broadcast": lambda: np.broadcast_to(sample(shape=(4,)), (6, 4)),
    "packed field": lambda: np.ones(5, np.dtype([("a", "u1"), ("b", "f4")]))["b"],
    "big-endian": lambda: sample().astype(">f4"),
    "read-only": lambda: np.frombuffer(sample().tobytes(), "f4"),
    "large": lambda: np.arange(3_000_000, dtype="f4"),
}


@pytest.mark.parametrize("layout", HOST)
@pytest.mark.parametrize("name", NAMES)
def test_values_survive_numpy_and_back(name: str, layout: str) -> None:
    framework, values = side(name), HOST[layout]()
    plan = zc.explain(values, name, device=DEVICE)
    assert not plan.zero_copy
    assert plan.copied_bytes == values.nbytes
    x = zc.convert(values, to=name, device=DEVICE)
    assert framework.is_array(x)
    same(framework, x, values.astype("f4"))
    back = zc.convert(x, to="numpy")
    assert isinstance(back, np.ndarray)
    assert np.array_equal(back, values)
    assert back.dtype == np.float32
    back[...] = 0  # its own memory
    same(framework, x, values.astype("f4"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_types_survive_numpy_and_back(name: str, dtype: str) -> None:
    framework = side(name)
    if not framework.holds(dtype):
        pytest.skip(f"{name} has no {dtype}")
    values = sample(dtype)
    x = zc.convert(values, to=name, device=DEVICE)
    same(framework, x, values)
    back = zc.convert(x, to="numpy")
    assert back.dtype == to_numpy(by_name(dtype))
    assert np.array_equal(bits(back), bits(values))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_every_layout_is_fetched_to_numpy(name: str, layout: str) -> None:
    framework = side(name)
    shape, change = LAYOUTS[layout]
    if name == "torch" and "reversed" in layout:
        pytest.skip("torch has no negative strides")
    values = sample(shape=shape)
    assert np.array_equal(zc.convert(framework.lay(values, change), to="numpy"), change(values))


@pytest.mark.parametrize("name", ["cupy", "numba"])
def test_target_name_transfers_host_memory(name: str) -> None:
    framework = side(name)
    x = zc.convert(sample(), to=name)
    assert framework.is_array(x)
    same(framework, x, sample())


@pytest.mark.parametrize("name", NAMES)
def test_pyarrow_arrays_are_transferred(name: str) -> None:
    pa = pytest.importorskip("pyarrow")
    framework = side(name)
    x = zc.convert(pa.array([1.0, 2.0, 3.0]), to=name, device=DEVICE)
    same(framework, x, np.array([1.0, 2.0, 3.0]))
    back = zc.convert(x, to="pyarrow")
    assert back.to_pylist() == [1.0, 2.0, 3.0]
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(x, to="pyarrow", copy=False)
    with pytest.raises(zc.LossyConversionError):
        zc.convert(pa.array([1.0, None]), to=name, device=DEVICE)


@pytest.mark.parametrize("name", NAMES)
def test_pandas_columns_are_transferred(name: str) -> None:
    pd = pytest.importorskip("pandas")
    framework = side(name)
    expected = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([4, 5, 6], "i4")}
    columns = zc.convert(pd.DataFrame(expected), to=name, device=DEVICE)
    for key, values in expected.items():
        assert framework.is_array(columns[key])
        same(framework, columns[key], values)
    back = zc.convert(columns, to="pandas")
    assert {key: back[key].tolist() for key in back} == {"a": [1.0, 2.0, 3.0], "b": [4, 5, 6]}
    assert [str(dtype) for dtype in back.dtypes] == ["float64", "int32"]
    same(framework, zc.convert(pd.Series(expected["a"]), to=name, device=DEVICE), expected["a"])
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(columns, to="pandas", copy=False)
    with pytest.raises(zc.LossyConversionError):
        zc.convert(pd.Series([1, None], dtype="Int64"), to=name, device=DEVICE)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("host", ["torch", "jax"])
def test_host_tensors_are_transferred_and_back(host: str, name: str) -> None:
    framework, _ = side(name), side(host)
    expected = sample()
    on_host = zc.convert(expected.copy(), to=host, device="cpu")
    x = zc.convert(on_host, to=name, device=DEVICE)
    same(framework, x, expected)
    back = zc.convert(x, to=host, device="cpu")
    assert str(zc.view(back).device).startswith("cpu")
    assert np.array_equal(zc.convert(back, to="numpy"), expected)
