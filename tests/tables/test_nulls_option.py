"""``nulls=``: one rule for all sources, and plans that allocate no masks."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted
from helpers.table_cases import TENSORS, pa

import zerocopy as zc

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

NAN = float("nan")
VALUES = [1.5, NAN, None, 4.0]
#: Sources of `VALUES`, and the rows that their framework counts as missing.
SOURCES: dict[str, tuple[Any, list[bool]]] = {
    "pyarrow": (lambda: pa.table({"x": pa.array(VALUES)}), [False, False, True, False]),
    "polars": (lambda: pl.DataFrame({"x": pl.Series(VALUES)}), [False, False, True, False]),
    "duckdb": (
        lambda: duckdb.sql("select unnest([1.5, 'nan'::double, null, 4.0]) x"),
        [False, False, True, False],
    ),
    "pandas float64": (
        lambda: pd.DataFrame({"x": np.array([1.5, NAN, NAN, 4.0])}),
        [False, True, True, False],
    ),
    "pandas swapped": (
        lambda: pd.DataFrame({"x": np.array([1.5, NAN, NAN, 4.0], ">f8")}, copy=False),
        [False, True, True, False],
    ),
    "pandas Float64": (
        lambda: pd.DataFrame({"x": pd.array([1.5, None, None, 4.0], dtype="Float64")}),
        [False, True, True, False],
    ),
    "pandas ArrowDtype": (
        lambda: pd.DataFrame({"x": pd.arrays.ArrowExtensionArray(pa.chunked_array([VALUES]))}),
        [False, False, True, False],
    ),
    "numpy": (lambda: {"x": np.array([1.5, NAN, NAN, 4.0])}, [False] * 4),
}


def rows(tensor: Any) -> list[Any]:
    return zc.convert(tensor, "numpy").tolist()


@pytest.mark.parametrize("to", TENSORS)
@pytest.mark.parametrize("source", SOURCES)
def test_nulls_applies_to_what_the_source_counts_as_missing(source: str, to: str) -> None:
    make, missing = SOURCES[source]
    if source.startswith("pandas"):
        assert make()["x"].isna().tolist() == missing
    filled = rows(zc.convert(make(), to, nulls=7)["x"])
    nan = [i for i in range(4) if not missing[i] and i in (1, 2)]
    assert [value for i, value in enumerate(filled) if i not in nan] == [
        7.0 if hidden else 1.5 if i == 0 else 4.0 for i, hidden in enumerate(missing) if i not in nan
    ]
    assert all(math.isnan(filled[i]) for i in nan)
    masked = zc.convert(make(), to, nulls="mask")["x"]
    assert rows(masked.mask) == missing
    as_nan = rows(zc.convert(make(), to, nulls="nan")["x"])
    assert [math.isnan(value) for value in as_nan] == [False, True, True, False]


@pytest.mark.parametrize("source", ["pandas float64", "numpy"])
def test_nan_is_the_value_without_nulls_and_with_nan(source: str) -> None:
    data = SOURCES[source][0]()
    for nulls in (None, "nan"):
        plan = zc.explain(data, "numpy", nulls=nulls)
        assert plan.zero_copy
        result = zc.convert(data, "numpy", nulls=nulls, copy=False)
        assert zc.shares_memory(result["x"], data["x"].to_numpy(copy=False) if source != "numpy" else data)


@pytest.mark.parametrize("layout", ["columns", "matrix", "records"])
def test_filling_nan_of_pandas_copies_only_if_there_is_one(layout: str) -> None:
    full = pd.DataFrame({"x": np.array([1.5, 2.5]), "y": np.array([3.5, 4.5])})[["x"]]
    assert zc.explain(full, "numpy", nulls=0, layout=layout).zero_copy
    result = zc.convert(full, "numpy", nulls=0, layout=layout, copy=False)
    assert zc.shares_memory(result, full["x"].to_numpy(copy=False))
    holes = pd.DataFrame({"x": [1.5, NAN]})
    plan = zc.explain(holes, "numpy", nulls=0, layout=layout)
    assert not plan.zero_copy
    filled = zc.convert(holes, "numpy", nulls=0, layout=layout)
    assert [float(np.ravel(filled["x"] if layout != "matrix" else filled)[1])] == [0.0]
    with pytest.raises(zc.CopyRequiredError, match="written into rows" if layout == "records" else "with 0"):
        zc.convert(holes, "numpy", nulls=0, layout=layout, copy=False)
    assert math.isnan(holes["x"][1])


def test_series_index_and_objects_follow_the_rule() -> None:
    series = pd.Series([1.5, NAN])
    assert rows(zc.convert(series, "torch", nulls=0)) == [1.5, 0.0]
    assert rows(zc.convert({"a": series, "b": np.array([NAN, 1.0])}, "torch", nulls=0)["a"]) == [1.5, 0.0]
    assert math.isnan(rows(zc.convert({"b": np.array([NAN, 1.0])}, "torch", nulls=0)["b"])[0])
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index([NAN, 3.0], name="i"))
    assert rows(zc.convert(frame, "torch", nulls=0)["i"]) == [0.0, 3.0]
    objects = pd.DataFrame({"o": np.array([1.5, NAN, None], object)})
    assert rows(zc.convert(objects, "numpy", encode=True, nulls=0)["o"]) == [1.5, 0.0, 0.0]
    complexes = pd.DataFrame({"c": np.array([1j, complex(0, NAN)])})
    assert rows(zc.convert(complexes, "numpy", nulls=0)["c"]) == [1j, 0]


def test_each_column_has_its_own_policy() -> None:
    frame = pd.DataFrame({"x": [1.5, NAN], "y": [NAN, 2.5], "z": [NAN, 1.0]})
    result = zc.convert(frame, "numpy", nulls={"x": -1, "y": "mask"})
    assert result["x"].tolist() == [1.5, -1.0]
    assert result["y"].mask.tolist() == [True, False]
    assert math.isnan(result["z"][0])


def test_nan_that_is_filled_may_be_cast() -> None:
    frame = pd.DataFrame({"x": [1.0, NAN], "y": [NAN, 2.0]})
    filled = zc.convert(frame, "numpy", nulls=0, dtype="int32")
    assert [filled["x"].tolist(), filled["y"].tolist()] == [[1, 0], [0, 2]]
    matrix = zc.convert(frame, "torch", nulls=-1, dtype="float32", layout="matrix")
    assert matrix.tolist() == [[1.0, -1.0], [-1.0, 2.0]]
    masked = zc.convert(frame, "numpy", nulls="mask", dtype="int64")["x"]
    assert masked.mask.tolist() == [False, True]
    with pytest.raises(zc.LossyConversionError):
        zc.convert(frame, "numpy", dtype="int32")


COUNT = 4_000_000
LARGE: dict[str, Any] = {
    "pyarrow": lambda: pa.table({"x": np.arange(COUNT) * 0.5}),
    "pandas": lambda: pd.DataFrame({"x": np.arange(COUNT) * 0.5}),
    "pandas NaN": lambda: pd.DataFrame({"x": np.where(np.arange(COUNT) % 2, NAN, 1.0)}),
    "pandas dates": lambda: pd.DataFrame({"x": np.arange(COUNT).astype("M8[us]")}),
    "pandas NaT": lambda: pd.DataFrame({"x": np.full(COUNT, "NaT", "M8[us]")}),
    "numpy": lambda: {"x": np.arange(COUNT) * 0.5},
    "numpy dates": lambda: {"x": np.arange(COUNT).astype("M8[us]")},
    "polars": lambda: pl.DataFrame({"x": np.arange(COUNT) * 0.5}),
}


@pytest.mark.parametrize("source", LARGE)
def test_plans_allocate_no_masks(source: str) -> None:
    data = LARGE[source]()
    for nulls in ("mask", 0) if "dates" not in source and "NaT" not in source else ("mask",):
        zc.explain(data, "numpy", nulls=nulls)
        tracemalloc.start()
        try:
            plan = zc.explain(data, "numpy", nulls=nulls)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert plan.possible
        assert peak < COUNT // 4, f"{peak:,} bytes for a plan with nulls={nulls!r}"


@pytest.mark.parametrize("source", ["pyarrow", "pandas", "numpy", "polars"])
def test_masks_without_nulls_are_new_memory_in_the_plan(source: str) -> None:
    data = LARGE[source]()
    plan = zc.explain(data, "numpy", nulls="mask", copy=False)
    mask = plan.leaves["['x'].mask"]
    assert mask.new_bytes == plan.new_bytes == COUNT
    assert mask.copied_bytes == 0
    assert "new memory of 4,000,000 bytes" in str(mask)
    assert "zero-size" not in str(plan)
    assert "no nulls" in mask.reasons[0].why
    result = zc.convert(data, "numpy", nulls="mask", copy=False)["x"]
    assert not result.mask.any()
    assert len(result.mask) == COUNT
    empty = zc.explain({"x": np.zeros(0)}, "numpy", nulls="mask")
    assert "nothing to copy (zero-size)" in str(empty.leaves["['x'].mask"])


@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("nulls", [None, "nan", "mask", "drop", 0.0])
def test_explain_warns_of_nan_only_where_it_stays(to: str, nulls: object) -> None:
    frame = pytest.importorskip("pandas").DataFrame({"x": [1.0, np.nan, 2.0], "n": [1, 2, 3]})
    warnings = zc.explain(frame, to=to, nulls=nulls).warnings
    assert any("stays NaN" in text for text in warnings) is (nulls in (None, "nan"))
    result = zc.convert(frame, to=to, nulls=nulls)["x"]
    if nulls != "mask":
        assert np.isnan(np.asarray(result)).any() == (nulls in (None, "nan"))


@pytest.mark.parametrize("value", [2**30 + 1, 2**53 + 1])
def test_an_error_names_no_type_that_only_one_of_its_fixes_has(value: int) -> None:
    """The fix ``dtype="float32"`` did not hold the value, and the error gave that as a reason."""
    table = pa.table({"a": [value, None]})
    with pytest.raises(zc.LossyConversionError) as caught:
        zc.convert(table, "torch")
    assert caught.value.why == "column 'a' has 1 null in 2 rows"
    assert "float32" not in str(caught.value)
    assert 'zc.convert(x, "torch", nulls="mask")' in caught.value.calls
    for code in caught.value.calls:
        result = pasted(code, {"x": table, "zc": zc})["a"]
        kept = result.values if isinstance(result, zc.Masked) else result
        assert int(kept[0]) == value
