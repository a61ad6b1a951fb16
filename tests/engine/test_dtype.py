"""``dtype=`` of convert and explain: arrays and containers, for every framework with arrays on the host."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers.arrays import aligned, sample
from helpers.frameworks import HOST
from helpers.pasting import pasted

import zerocopy as zc

NAMES = ["bool", "int8", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64", "complex64"]
#: 64-bit types that JAX lacks while its x64 mode is off.
WIDE = {"int64", "uint64", "float64"}


def framework_dtypes() -> list[Any]:
    """Return what names float32 in each installed framework."""
    specs: list[Any] = ["float32", "f4", np.float32, np.dtype("f4"), np.dtype(">f4"), zc.DType, "Float32"]
    specs[5] = zc.view(np.zeros(1, "f4")).dtype
    for module, name in [
        ("torch", "float32"), ("jax.numpy", "float32"), ("tensorflow", "float32"), ("polars", "Float32"),
        ("pandas", "Float32Dtype"), ("ml_dtypes", "float32"), ("numba", "float32"),
    ]:  # fmt: skip
        named = getattr(pytest.importorskip(module), name, None)
        specs += [named] if named is not None else []
    pa, pl, duckdb, pd = map(pytest.importorskip, ("pyarrow", "polars", "duckdb", "pandas"))
    return [
        *specs,
        pa.float32(),
        pl.Float32(),
        duckdb.sqltypes.FLOAT,
        pd.ArrowDtype(pa.float32()),
        pd.Float32Dtype(),
    ]


def test_every_framework_names_a_dtype() -> None:
    x = np.arange(3.0)
    for spec in framework_dtypes():
        assert zc.convert(x, "numpy", dtype=spec).dtype == np.float32, spec


@pytest.mark.parametrize(
    ("spec", "name"),
    [(float, "float64"), (bool, "bool"), (int, "int64"), (complex, "complex128"), ("double", "float64")],
)
def test_python_types_name_what_numpy_gives_them(spec: object, name: str) -> None:
    assert zc.convert(np.ones(2, "i1"), "numpy", dtype=spec).dtype == name


def test_other_names_of_types_are_parsed() -> None:
    pa, duckdb, torch = map(pytest.importorskip, ("pyarrow", "duckdb", "torch"))
    types = {
        "float64": (pa.float64(), duckdb.sqltypes.DOUBLE, torch.float64, "torch.double"),
        "float16": (pa.float16(), torch.half, "half"),
        "uint16": (pa.uint16(), duckdb.sqltypes.USMALLINT, torch.uint16),
        "bool": (pa.bool_(), duckdb.sqltypes.BOOLEAN, torch.bool, "boolean"),
    }
    for name, specs in types.items():
        for spec in specs:
            assert zc.convert(np.ones(2, "i1"), "numpy", dtype=spec).dtype == name, spec


@pytest.mark.parametrize(
    "spec", ["flaot32", "string", "datetime64[ns]", np.dtype("U3"), object, 3, [], [3], "float32 "]
)
def test_other_objects_are_not_dtypes(spec: object) -> None:
    for function in (zc.convert, zc.explain):
        with pytest.raises(ValueError, match="is not the dtype of numbers or booleans"):
            function(np.zeros(2), "numpy", dtype=spec)


@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize(("old", "new"), list(itertools.product(NAMES, NAMES)))
def test_targets_get_the_requested_type_or_refuse_it(target: str, old: str, new: str) -> None:
    """Small values fit every type, except that negative ones do not fit unsigned types."""
    x = aligned(np.array([0, 1, 1, 0]), old)
    expected = (x.real if old == "complex64" and new != old else x).astype(new)
    plan = zc.explain(x, target, dtype=new)
    if not plan.possible:
        # The target lacks the new type: it is refused without a cast too.
        assert not zc.explain(expected, target).possible, plan
        with pytest.raises(type(plan.error)):
            zc.convert(x, target, dtype=new)
        return
    result = zc.convert(x, target, dtype=new)
    back = zc.convert(result, "numpy")
    assert back.dtype == new
    np.testing.assert_array_equal(back, expected)
    assert zc.shares_memory(x, result) == plan.zero_copy == (old == new and zc.explain(x, target).zero_copy)
    if old != new:
        assert plan.copied_bytes == 4 * np.dtype(new).itemsize
        assert "dtype-requested" in [reason.code for reason in plan.reasons]
        with pytest.raises(zc.CopyRequiredError, match="dtype= casts"):
            zc.convert(x, target, dtype=new, copy=False)
    assert not zc.shares_memory(x, zc.convert(x, target, dtype=new, copy=True))


@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize("source", HOST)
def test_arrays_of_every_framework_are_cast(source: str, target: str) -> None:
    x = zc.convert(sample("int32"), source)
    result = zc.convert(x, target, dtype="float32")
    np.testing.assert_array_equal(zc.convert(result, "numpy"), sample("float32"))
    assert zc.explain(x, target, dtype="float32").source.count("int32")
    same = zc.convert(x, target, dtype="int32")
    assert zc.shares_memory(x, same) == zc.explain(x, target).zero_copy


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (2, 3, 4), (40_000,), (200, 300), (3, 20_000)])
@pytest.mark.parametrize("layout", ["C", "F", "reversed"])
def test_every_shape_and_layout_keeps_its_values(shape: tuple[int, ...], layout: str) -> None:
    x = sample("int64", shape)
    x = np.asfortranarray(x) if layout == "F" else x[..., ::-1] if layout == "reversed" and shape else x
    result = zc.convert(x, "torch", dtype="int16")
    np.testing.assert_array_equal(result.numpy(), x)
    assert zc.explain(x, "torch", dtype="int16").zero_copy is False


@pytest.mark.parametrize("shape", [(), (5,), (40_000,), (200, 300), (3, 20_000)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_errors_name_the_first_value_that_does_not_fit(shape: tuple[int, ...], order: str) -> None:
    x = np.zeros(shape, "i8", order=order)
    place = tuple(n - 2 for n in shape)
    x[place] = 300
    where = f" at {list(place)}" if shape else ""
    with pytest.raises(zc.LossyConversionError) as error:
        zc.convert(x, "numpy", dtype="uint8")
    assert error.value.why == f"dtype uint8 cannot hold the value 300{where}: it is outside 0 to 255"
    assert zc.explain(x, "numpy", dtype="uint8").error.why == error.value.why


@pytest.mark.parametrize(
    ("value", "new"),
    [(300, "uint8"), (-1, "uint64"), (2**24 + 1, "float32"), (70_000, "float16"), (2, "bool"), (0.5, "int8"),
     (np.nan, "int8"), (np.inf, "bool"), (1e300, "float32"), (1e300, "bfloat16"), (2.0**63, "int64"),
     (1j, "float32"), (1e300 + 1j, "complex64"), (np.inf, "float8_e4m3fn"), (2**53 + 1, "float64")],
)  # fmt: skip
def test_fixes_hold_the_value_when_pasted(value: Any, new: str) -> None:
    x = np.array([0, value])
    with pytest.raises(zc.LossyConversionError, match="To fix: ") as error:
        zc.convert(x, "numpy", dtype=new)
    names = {"zc": zc, "numpy": np, "x": x}
    np.testing.assert_array_equal(pasted(error.value.calls[0], names), x)
    with pytest.raises(zc.LossyConversionError, match="To fix: ") as error:
        zc.convert(x, "numpy", dtype={x.dtype: new})
    np.testing.assert_array_equal(pasted(error.value.calls[0], names), x)


def test_dtypes_that_cannot_be_cast_are_refused() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("float4_e2m1fn", "float6_e2m3fn", "float8_e8m0fnu", "complex32"):
        plan = zc.explain(np.zeros(3), "numpy", dtype=name)
        assert plan.reasons[0].code == "missing-dtype", plan
    x = np.zeros(3, ml_dtypes.float4_e2m1fn)
    assert "there is no cast" in zc.explain(x, "numpy", dtype="float32").reasons[0].why


# -- NumPy's default dtypes into JAX -------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [("int64", "int32"), ("uint64", "uint32"), ("float64", "float32")])
def test_jax_without_x64_names_both_ways_out(old: str, new: str) -> None:
    jax = pytest.importorskip("jax")
    x = np.arange(3).astype(old)
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(zc.LossyConversionError) as error:
            zc.convert(x, "jax")
        enable, cast = error.value.calls
        assert cast == f'zc.convert(x, "jax", dtype="{new}")'
        assert pasted(cast, {"zc": zc, "x": x}).dtype == new
        exec(enable, {"zc": zc, "jax": jax, "x": x})
        assert zc.convert(x, "jax").dtype == old
    finally:
        jax.config.update("jax_enable_x64", before)


# -- mappings and containers ---------------------------------------------------------------


def test_mapping_casts_the_types_that_it_names() -> None:
    tree = {"a": np.zeros(2), "b": [np.zeros(2, "f4"), np.zeros(2, "i8")]}
    result = zc.convert(tree, "torch", dtype={"float64": "float32", np.int64: "int32"})
    assert [str(x.dtype) for x in (result["a"], *result["b"])] == [
        "torch.float32",
        "torch.float32",
        "torch.int32",
    ]
    assert zc.shares_memory(tree["b"][0], result["b"][0])
    plan = zc.explain(tree, "torch", dtype={"float64": "float32", np.int64: "int32"})
    assert [leaf.zero_copy for leaf in plan.leaves.values()] == [False, True, False]
    assert plan.copied_bytes == 8 + 8


def test_keys_of_a_container_are_labels_of_what_they_hold() -> None:
    tree = {"w": {"x": np.zeros(2), "y": np.zeros(2)}, "float64": np.zeros(2), "z": np.zeros(2)}
    spec = {"w": "float32", "y": "float16", "float64": "int8"}
    result = zc.convert(tree, "numpy", dtype=spec)
    types = (result["w"]["x"], result["w"]["y"], result["float64"], result["z"])
    assert [str(x.dtype) for x in types] == ["float32", "float16", "int8", "float64"]
    plans = zc.explain(tree, "numpy", dtype=spec).leaves.values()
    assert [plan.zero_copy for plan in plans] == [False, False, False, True]


def test_an_error_in_a_container_names_the_leaf() -> None:
    tree = {"a": [np.array([1]), np.array([1, 300])]}
    with pytest.raises(
        zc.LossyConversionError, match=r"at \['a'\]\[1\]: dtype uint8 cannot hold the value 300"
    ):
        zc.convert(tree, "torch", dtype="uint8")
    assert not zc.explain(tree, "torch", dtype="uint8").possible


@pytest.mark.parametrize("obj", [np.zeros(2), {"a": np.zeros(2)}], ids=["array", "container"])
@pytest.mark.parametrize("function", [zc.convert, zc.explain])
def test_unknown_keys_are_a_value_error(obj: object, function: Any) -> None:
    with pytest.raises(ValueError, match="'price' is not the name of a dtype"):
        function(obj, "numpy", dtype={"price": "float32"})


# -- other options -------------------------------------------------------------------------


def test_writable_false_marks_a_cast_read_only() -> None:
    x = np.arange(3.0)
    assert zc.convert(x, "numpy", dtype="float32", writable=False).flags.writeable is False
    assert zc.convert(x, "numpy", dtype="float32", writable=True).flags.writeable is True


def test_lazy_and_byte_swapped_sources_are_cast_from_their_values() -> None:
    torch = pytest.importorskip("torch")
    z = torch.tensor([1 + 2j, 3 - 4j]).conj()
    np.testing.assert_array_equal(zc.convert(z, "numpy", dtype="complex128"), [1 - 2j, 3 + 4j])
    np.testing.assert_array_equal(zc.convert(z.imag, "numpy", dtype="float64"), [-2.0, 4.0])
    np.testing.assert_array_equal(zc.convert(np.array([1, 2], ">i4"), "torch", dtype="float64"), [1.0, 2.0])
    with pytest.raises(zc.UnsupportedConversionError, match="requires grad"):
        zc.convert(torch.ones(2, requires_grad=True), "numpy", dtype="float64")


def test_explain_allocates_nothing_of_the_size_of_the_array() -> None:
    import tracemalloc

    x = np.zeros(4_000_000)
    zc.explain(x, "numpy", dtype="float32")
    tracemalloc.start()
    zc.explain(x, "numpy", dtype="float32")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
