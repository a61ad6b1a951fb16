"""A route of a type answers as before it existed, for every dtype and label of the type (P1, P3)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from helpers.frameworks import HOST
from helpers.option_cases import outcome
from helpers.table_cases import TABLES
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy._engine import routes

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

TARGETS = [name for name in dict.fromkeys((*HOST, *TABLES)) if name != "duckdb"]
OPTIONS: list[dict[str, Any]] = [{}, {"copy": False}, {"copy": True}, {"dtype": "float32"}]


def _dtypes() -> list[np.dtype[Any]]:
    chars = "?bhilqBHILQefdgFDG"
    names = [*chars, ">i4", ">f8", ">g", "M8[s]", "M8[D]", "m8[ns]", "U3", "S3", "O", "i4,f8"]
    kinds = [np.dtype(name) for name in names]
    ml_dtypes = pytest.importorskip("ml_dtypes")
    names = ["bfloat16", "float8_e5m2", "float8_e4m3fn", "float4_e2m1fn", "int4", "uint2", "int1"]
    return kinds + [np.dtype(getattr(ml_dtypes, name)) for name in names if hasattr(ml_dtypes, name)]


def _data_array(array: np.ndarray) -> Any:
    return pytest.importorskip("xarray").DataArray(array, dims="row")


MAKERS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda array: array,
    "dict": lambda array: {"x": array},
    "pandas.Series": lambda array: pd.Series(array, copy=False),
    "pandas.DataFrame": lambda array: pd.DataFrame({"x": pd.Series(array, copy=False), "y": 1.0}),
    "polars.Series": lambda array: pl.Series("x", array),
    "polars.DataFrame": lambda array: pl.DataFrame({"x": pl.Series("x", array), "y": np.ones(len(array))}),
    "xarray.DataArray": _data_array,
}


def _check(x: Any, warm: Any, target: str, options: dict[str, Any], case: Any) -> None:
    routes.clear()
    plan = zc.explain(x, target, **options)
    cold = outcome(x, target, options)
    with suppress(zc.ZeroCopyError):
        zc.convert(warm, target, **options)
    assert outcome(x, target, options) == cold, (case, options)
    assert plan.possible == (not issubclass(cold[0], Exception)), (case, options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", MAKERS)
def test_every_dtype_converts_as_without_a_route(kind: str, target: str) -> None:
    make = MAKERS[kind]
    first = list(MAKERS).index(kind) + TARGETS.index(target)
    for dtype, options in sampled(8, _dtypes(), OPTIONS, first=first):
        try:
            x, warm = make(np.zeros(4, dtype)), make(np.zeros(4))
            repr(x)  # for frames, the outcome is the text
        except (TypeError, ValueError, NotImplementedError, pl.exceptions.PolarsError):
            continue  # the framework lacks the dtype
        _check(x, warm, target, options, dtype)


LABELS = {
    "nan": [float("nan")] * 2,
    "one nan": [float("nan"), "a"],
    "none": [None, None],
    "equal numbers": [1, 1.0],
    "true": [1, True],
    "nat": [pd.NaT, pd.NaT],
    "na": [pd.NA, pd.NA],
    "tuples": [("a", 1), ("a", 1)],
    "numpy": [np.float64("nan"), np.float64("nan")],
    "text": ["a", "a"],
    "bytes": [b"a", "a"],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LABELS)
def test_every_label_converts_as_without_a_route(name: str, target: str) -> None:
    first, second = LABELS[name]
    index = pd.Index([first, second], dtype=object, tupleize_cols=False)
    x, warm = pd.DataFrame(np.ones((3, 2))), pd.DataFrame(np.ones((3, 2)), columns=["a", "b"])
    x.columns = index
    for options in (*OPTIONS, {"columns": [first]}, {"columns": ["a"]}):
        _check(x, warm, target, options, name)
