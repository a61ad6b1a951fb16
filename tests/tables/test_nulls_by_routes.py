"""Columns and frames with ``nulls=`` and ``dtype=``: routes give the results and the errors of the plan."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.frameworks import HOST
from helpers.oracle import CALLERS, check
from helpers.tiers import sampled

import zerocopy as zc

pa, pd, pl = (pytest.importorskip(name) for name in ("pyarrow", "pandas", "polars"))

pytestmark = pytest.mark.filterwarnings("ignore")
TARGETS = [name for name in ("numpy", "torch", "jax", "tensorflow") if name in HOST]
ROWS = 40
MASK = np.arange(ROWS) % 7 == 3
OPTIONS: list[dict[str, Any]] = [
    *({"nulls": 0}, {"nulls": 2.5}, {"nulls": -1}, {"nulls": "nan"}, {"nulls": 1e300}, {"nulls": "mask"}),
    *({"nulls": 0, "dtype": "float32"}, {"nulls": "nan", "dtype": "float32"}, {"nulls": 7, "dtype": "int64"}),
    *({"nulls": 300, "dtype": "uint8"}, {"nulls": 1e300, "dtype": "float32"}, {"nulls": 0, "dtype": "bool"}),
    *({"nulls": 0, "copy": True}, {"nulls": 0, "copy": False}, {"nulls": 0, "writable": True}),
    *({"dtype": "float32"}, {"dtype": "int64", "copy": False}, {"dtype": "float64"}, {"lists": "dense"}),
    *({"lists": "pad", "nulls": 0}, {"lists": "ragged", "nulls": 0}, {"lists": "dense", "nulls": 0}, {}),
]
LAYOUTS: list[dict[str, Any]] = [
    *(
        {},
        {"layout": "matrix"},
        {"layout": "matrix", "order": "F"},
        {"layout": "matrix", "order": "C"},
        {"columns": ["b", "a"]},
    ),
    {"layout": "matrix", "columns": ["b"]},
]


def _arrays(kind: str) -> Iterator[Any]:
    """Yield Arrow arrays: without nulls, with nulls, with an offset, empty, of nulls alone."""
    plain = pa.array(np.arange(ROWS) % 100, kind)
    filled = pa.array([None if hidden else x for hidden, x in zip(MASK, plain, strict=True)], kind)
    yield from (plain, filled, filled[5:21], filled[:3], filled[:0], pa.nulls(3, kind))


def _others() -> Iterator[Any]:
    nan = np.where(MASK, np.nan, np.arange(ROWS))
    yield from (pa.array(nan), pa.array(nan, mask=np.roll(MASK, 1)), pa.array([1 << 60 | 1, None]))
    lists = [[1, 2], [3, 4], [5, 6]]
    yield from (pa.array(lists), pa.array([*lists, None]), pa.array([*lists, [7]]), pa.array([[1, None]]))
    yield from (
        pa.array(lists, pa.list_(pa.int32(), 2)),
        pa.array(["a", None]),
        pa.array([True, None, False]),
    )
    yield from (pa.array(["x", "y"]).dictionary_encode(), pa.array([1, None], pa.timestamp("ms")))


@cache
def arrow_arrays() -> list[Any]:
    return [*(x for kind in ("int64", "uint8", "float", "double") for x in _arrays(kind)), *_others()]


@cache
def columns_of(kind: str) -> list[Any]:
    """Return columns of one class; the first is numbers without nulls."""
    arrays = arrow_arrays()
    if kind == "pyarrow.ChunkedArray":
        return [*map(pa.chunked_array, ([x] for x in arrays)), pa.chunked_array([[1, None], [2]])]
    if kind == "pyarrow.Int64Array":
        return [x for x in arrays if type(x) is pa.Int64Array]
    if kind == "polars.Series":
        halves = [pl.Series([1, 2]), pl.Series([3, None])]
        return [*(pl.Series("x", x) for x in arrays), pl.concat(halves, rechunk=False)]
    numbers, nan = np.arange(ROWS), np.where(MASK, np.nan, np.arange(ROWS))
    masked = [pd.arrays.IntegerArray(numbers, mask) for mask in (MASK, MASK & False, MASK | True)]
    masked += [pd.arrays.FloatingArray(x, mask) for x in (nan, numbers / 2) for mask in (MASK & False, MASK)]
    values = [*(pd.array(x) for x in (numbers, nan, nan.astype("f4"), numbers > 3)), *masked, masked[0][::2]]
    values += [masked[1][::2], masked[0][:0], pd.array([True, None]), pd.array(["a", None], object)]
    values += [pd.arrays.ArrowExtensionArray(pa.chunked_array([x])) for x in arrays[:12]]
    values += [pd.array(numbers.astype("M8[s]")), pd.array([1 << 60 | 1, None], "Int64")]
    series = [pd.Series(x, name=name) for x in values for name in (None, "x", 3)]
    return [*series, pd.Series(masked[0], index=numbers[::-1])]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(
    "kind", ["pyarrow.ChunkedArray", "pyarrow.Int64Array", "polars.Series", "pandas.Series"]
)
@pytest.mark.parametrize("to", TARGETS)
def test_columns(to: str, kind: str, caller: str) -> None:
    columns = columns_of(kind)
    for options, column in sampled(29, OPTIONS, columns, first=[*CALLERS].index(caller)):
        check(column, columns[0], to, options, caller)


@cache
def frames() -> list[Any]:
    numbers, nan = np.arange(ROWS), np.where(MASK, np.nan, np.arange(ROWS))
    ints, floats = pd.arrays.IntegerArray(numbers, MASK), pd.arrays.FloatingArray(nan, np.roll(MASK, 1))
    plain = pd.arrays.IntegerArray(numbers, MASK & False)
    block = np.stack([nan, numbers / 2, nan], 1)
    wide = np.asfortranarray(block)
    views = {name: pd.Series(wide[:, place], copy=False) for place, name in enumerate("abc")}
    tables = [
        *({"a": numbers, "b": numbers / 2}, {"a": ints, "b": ints}, {"a": ints, "b": floats, "c": plain}),
        *({"a": nan, "b": numbers}, {"a": nan, "b": nan, "c": nan}, {"a": nan, "b": nan.astype("f4")}),
        *({"a": plain, "b": plain}, {"a": plain}, {"a": nan}, {"b": ints, "a": numbers.astype(str)}),
        *(
            {"a": [True, False] * 20, "b": ints},
            {"a": numbers.astype("M8[s]"), "b": numbers},
            {1: ints, 2: nan},
        ),
        *({"a": [1 << 60 | 1, 2], "b": [1.0, np.nan]}, {"a": [1e300, np.nan], "b": [1.0, 2.0]}),
    ]
    made = [pd.DataFrame(table) for table in tables]
    made += [
        pd.DataFrame(x, columns=[*"abc"], copy=False) for x in (block, wide, wide[::2], wide[::-1], wide[:0])
    ]
    made += [
        pd.DataFrame(views, copy=False),
        made[1].set_index("a"),
        made[2].iloc[::2],
        made[2].assign(a=ints),
    ]
    made += [pd.DataFrame(np.arange(12).reshape(4, 3), columns=[*"abc"]), made[2].convert_dtypes("pyarrow")]
    return [*made, pd.DataFrame({"a": pd.array(numbers, "int64[pyarrow]"), "b": floats})]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("to", TARGETS)
def test_frames_of_pandas(to: str, layout: dict[str, Any], caller: str) -> None:
    first = [*CALLERS].index(caller) + 3 * LAYOUTS.index(layout)
    for number, warm in enumerate((frames()[0], frames()[2])):
        for options, frame in sampled(31, OPTIONS, frames(), first=first + number):
            check(frame, warm, to, layout | options, caller)


def test_complex_nans_of_a_frame_are_filled_after_a_frame_of_floats() -> None:
    floats = pd.DataFrame({"a": [1.0, np.nan], "b": [2.0, 3.0]})
    numbers = pd.DataFrame({"a": np.array([1j, complex(0, np.nan)]), "b": np.array([1j, 1j])})
    zc.convert(floats, "numpy", layout="matrix", nulls=0)
    assert zc.convert(numbers, "numpy", layout="matrix", nulls=0).tolist() == [[1j, 1j], [0, 1j]]
