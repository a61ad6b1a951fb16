"""The dtypes of ml_dtypes, most of which have the kind "V", in every container, for every target (P1, P3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy import registry

ml_dtypes = pytest.importorskip("ml_dtypes")
pd = pytest.importorskip("pandas")

DTYPES = [
    np.dtype(kind)
    for name, kind in vars(ml_dtypes).items()
    if isinstance(kind, type) and name.startswith(("bfloat", "float", "int", "uint"))
]
TARGETS = [name for name, info in registry.frameworks().items() if info.installed]


def _data_array(array: np.ndarray) -> Any:
    return pytest.importorskip("xarray").DataArray(array, dims="row")


def _dataset(array: np.ndarray) -> Any:
    return pytest.importorskip("xarray").Dataset({"x": ("row", array)})


CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda array: array,
    "matrix": lambda array: np.stack([array, array]),
    "scalar": lambda array: array[0],
    "dict": lambda array: {"x": array},
    "series": lambda array: pd.Series(array, copy=False),
    "frame": lambda array: pd.DataFrame({"x": pd.Series(array, copy=False)}),
    "mixed frame": lambda array: pd.DataFrame({"x": pd.Series(array), "y": np.arange(len(array))}),
    "records": lambda array: np.rec.fromarrays([array, np.arange(len(array))], names="x,y"),
    "xarray": _data_array,
    "dataset": _dataset,
}


def _bits(result: Any) -> bytes:
    back = zc.convert(result, "numpy")
    if isinstance(back, dict):
        back = back["x"]
    if back.dtype.names is not None:
        back = back["x"]
    return np.ascontiguousarray(back).tobytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_values_are_right_or_refused(container: str, target: str) -> None:
    first = [*CONTAINERS].index(container) + TARGETS.index(target)
    for (dtype,) in sampled(3, DTYPES, first=first):
        array = np.array([1, 0, 1, 1]).astype(dtype)
        source = CONTAINERS[container](array)
        for attempt in ("slow path", "route"):
            plan = zc.explain(source, target)
            if not plan.possible:
                with pytest.raises(zc.ZeroCopyError):
                    zc.convert(source, target)
                continue
            result = zc.convert(source, target)
            expected = {"matrix": array.tobytes() * 2, "scalar": array[:1].tobytes()}
            if type(result) is not type(source):  # pandas and xarray can hold types that they cannot export
                assert _bits(result) == expected.get(container, array.tobytes()), (dtype, attempt)
            if container != "mixed frame":  # a part of it may be aliased
                assert zc.shares_memory(source, result) == plan.zero_copy, (dtype, attempt)


@pytest.mark.parametrize("target", ["numpy", "torch", "jax"])
def test_pandas_columns_are_aliased(target: str) -> None:
    pytest.importorskip(target)
    array = np.array([1.0, -2.0, 0.5] * 16).astype(ml_dtypes.bfloat16)
    series = pd.Series(array, copy=False)
    for _ in range(2):
        result = zc.convert(series, target)
        assert zc.convert(result, "numpy").tolist() == array.tolist()
        assert zc.shares_memory(array, result) == zc.explain(series, target).zero_copy


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4"])
def test_nan_is_missing_where_pandas_reports_it(name: str) -> None:
    array = np.array([1, 0 if name == "int4" else np.nan, 1]).astype(getattr(ml_dtypes, name))
    series = pd.Series(array)
    result = zc.convert(series, "numpy", nulls="mask")
    mask = result.mask.tolist() if isinstance(result, zc.Masked) else [False] * 3
    assert mask == series.isna().tolist()


@pytest.mark.skipif(not hasattr(np.dtypes, "register_dlpack_dtype"), reason="NumPy before 2.5")
def test_types_that_numpy_itself_exports_by_dlpack(run_python: Callable[..., Any]) -> None:
    """NumPy 2.5 lets ml_dtypes register types for DLPack in the whole process; ml_dtypes 0.6 does not."""
    program = """
        import ml_dtypes, numpy as np, zerocopy as zc
        from zerocopy.dtype import by_name

        class Producer:
            def __init__(self, array):
                self.array = array
            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)
            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        targets = [t for t in ("numpy", "jax", "torch") if zc.frameworks()[t].installed]
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            code = by_name(name).code, by_name(name).bits
            np.dtypes.register_dlpack_dtype(code, np.dtype(getattr(ml_dtypes, name)))
            array = np.arange(64).astype(name)
            assert np.from_dlpack(array).dtype == array.dtype
            for source in (array, Producer(array)):
                for to in targets:
                    result = zc.convert(source, to)
                    back = zc.convert(result, "numpy")
                    assert (back.dtype, back.tobytes()) == (array.dtype, array.tobytes()), (name, to)
                    assert zc.explain(source, to).zero_copy == zc.shares_memory(array, result), (name, to)
        """
    completed = run_python(program)
    assert completed.returncode == 0, completed.stderr
