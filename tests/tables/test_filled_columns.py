"""Tables with ``nulls=`` and ``dtype=``: compiled routes give the results and errors of the slow path."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from helpers.option_cases import outcome

import zerocopy as zc
from zerocopy._engine import routes
from zerocopy._native import core

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
pytestmark = pytest.mark.skipif(core is None, reason="only the compiled core has these routes")

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
TYPES = [*INTEGERS, "float32", "float64"]
FILLS: list[Any] = [None, 0, 0, 1, -1, 300, 2**53, 0.0, -0.0, 0.5, -3.0, 1e300, math.nan, math.inf, "nan"]
TARGETS = ["numpy", "torch", "jax", "tensorflow"]


def numbers(rng: random.Random, dtype: str, length: int) -> list[Any]:
    """Return numbers of a type, most of them small, some at its limits."""
    if dtype.startswith("float"):
        info = np.finfo(dtype)
        special = [
            math.nan,
            math.inf,
            -0.0,
            0.5,
            float(info.max),
            2.0**24 + 1,
            2.0**31,
            -1.0,
            2.0**63,
            2.0**64,
        ]
        special = [float(np.dtype(dtype).type(x)) for x in special]
    else:
        limits = np.iinfo(dtype)
        special = [limits.min, limits.max, min(2**24 + 1, limits.max), min(2**53 + 1, limits.max)]
    chance = rng.choice([0, 0, 0.1])
    kind = float if dtype.startswith("float") else int
    return [rng.choice(special) if rng.random() < chance else kind(rng.randrange(100)) for _ in range(length)]


def table_of(rng: random.Random) -> Any:
    """Return a table of numbers with nulls, of one or several chunks, some of them slices."""
    length = rng.choice([1, 3, 40, 700])
    types = [rng.choice(TYPES)] * 3 if rng.random() < 0.4 else [rng.choice(TYPES) for _ in range(3)]
    columns = {}
    for name, dtype in zip("abc", types, strict=True):
        share = rng.choice([0, 0, 0.2, 1])
        values = [None if rng.random() < share else x for x in numbers(rng, dtype, length + 5)]
        columns[name] = pa.array(values, getattr(pa, dtype)())
    table = pa.table(columns).slice(rng.randrange(5), length)
    if rng.random() < 0.2:
        table = pa.concat_tables([table, table.slice(0, 1)])
    kind = rng.choice(["table", "batch", "polars"])
    if kind == "polars":
        return pl.DataFrame(table)
    return table.to_batches()[0] if kind == "batch" else table


def options_of(rng: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if (fill := rng.choice(FILLS)) is not None:
        options["nulls"] = fill
    if rng.random() < 0.6:
        options["dtype"] = rng.choice([*TYPES, "float32", "float64", "float16", "bool"])
    if rng.random() < 0.6:
        options |= {"layout": "matrix", "order": rng.choice([None, "C", "F"])}
    if rng.random() < 0.2:
        options["columns"] = rng.choice([["a"], ["c", "a"]])
    if rng.random() < 0.2:
        options["copy"] = rng.choice([True, False])
    if rng.random() < 0.1:
        options["writable"] = rng.choice([True, False])
    return options


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(120))
def test_filled_and_cast_columns_are_those_of_the_slow_path(seed: int) -> None:
    rng = random.Random(seed)
    table, options, to = table_of(rng), options_of(rng), rng.choice(TARGETS)
    pytest.importorskip(to)
    routes.clear()
    core.bypass_routes(True)
    try:
        slow = outcome(table, to, options)
    finally:
        core.bypass_routes(False)
    for _ in range(2):
        assert outcome(table, to, options) == slow, (to, options, table)
    if slow[0] not in (ValueError, TypeError):
        plan = zc.explain(table, to, **options)
        assert plan.possible == (not issubclass(slow[0], Exception))


@pytest.mark.parametrize("layout", [None, "matrix"])
def test_fills_that_are_equal_numbers_have_routes_of_their_own(layout: str | None) -> None:
    table = pl.DataFrame({"a": [1.0, None], "b": [None, 2.0]})
    for fill in (0.0, -0.0, 0, math.nan, 0.0):
        for _ in range(2):
            result = zc.convert(table, "numpy", nulls=fill, layout=layout)
            filled = result[1, 0] if layout else result["a"][1]
            assert np.isnan(filled) == np.isnan(fill)
            assert np.signbit(filled) == np.signbit(np.float64(fill))
    for _ in range(2):
        with pytest.raises(zc.ZeroCopyError):
            zc.convert(table, "numpy", nulls=True, layout=layout)


def test_values_below_nulls_are_not_read() -> None:
    """The bytes of a null are undefined; a cast must not refuse them."""
    values = pa.py_buffer(np.array([1e300, 1.0]))
    column = pa.Array.from_buffers(pa.float64(), 2, [pa.py_buffer(b"\x02"), values], null_count=1)
    table = pa.table({"a": column, "b": column})
    for _ in range(3):
        result = zc.convert(table, "numpy", layout="matrix", dtype="int8", nulls=7)
        assert result.tolist() == [[7, 7], [1, 1]]


def test_a_value_that_does_not_fit_is_named() -> None:
    fits, lossy = (pa.table({"a": [1, None], "b": [last, 3]}) for last in (2, 300))
    for layout in ({}, {"layout": "matrix"}):
        for _ in range(3):
            zc.convert(fits, "numpy", dtype="uint8", nulls=0, **layout)
        with pytest.raises(zc.LossyConversionError, match="300"):
            zc.convert(lossy, "numpy", dtype="uint8", nulls=0, **layout)
