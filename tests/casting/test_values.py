"""Casts compared with exact arithmetic in Python, for every pair of dtypes."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import zerocopy as zc
from zerocopy.casting.values import always_fits, can_cast, cast_block
from zerocopy.dtype import ALL, DType, by_name, to_numpy

pytest.importorskip("ml_dtypes")
import ml_dtypes

CASTABLE = [dtype for dtype in ALL if can_cast(dtype)]
PAIRS = list(itertools.product(CASTABLE, CASTABLE))

#: Values at the edges of every type.
EDGES: list[Any] = [
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    -8,
    -9,
    15,
    16,
    17,
    127,
    128,
    -128,
    -129,
    255,
    256,
    257,
    2049,
    65504,
    65505,
]
EDGES += [
    65519,
    65520,
    65535,
    65536,
    2**24 + 1,
    2**31 - 1,
    2**31,
    -(2**31) - 1,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
]
EDGES += [-(2**63), 2**64 - 1, 2**64 - 2**11, 0.5, -0.5, 1.5, -0.0, 1e-40, 1e30, 1e300, 3.4028235e38, 3.5e38]
EDGES += [
    math.nan,
    math.inf,
    -math.inf,
    1j,
    1 + 0j,
    2.5 + 0j,
    complex(0, math.nan),
    complex(math.inf, 0),
    1e300 + 0j,
]


def real(value: Any) -> Any:
    """Return a real number exactly: a Fraction, or a float that is not finite."""
    return Fraction(value) if isinstance(value, int) or math.isfinite(value) else value


def stored(values: list[Any], dtype: DType) -> np.ndarray:
    """Return the values of a list that a type holds, rounded for floats; the others are left out."""
    numpy = to_numpy(dtype)
    kept = []
    for value in values:
        if isinstance(value, complex) and not dtype.name.startswith("complex"):
            continue
        if dtype.name.startswith(("int", "uint", "bool")):
            low, high = integer_limits(dtype)
            if not isinstance(value, int) or not low <= value <= high:
                continue
        kept.append(value)
    with np.errstate(all="ignore"):
        if dtype.name.startswith(("int", "uint", "bool")):
            wide = np.array(kept, "u8" if any(v > 2**63 - 1 for v in kept) else "i8")
            return wide.astype(np.int8 if not dtype.in_numpy and dtype.name[0] == "i" else wide.dtype).astype(
                numpy
            )
        if dtype.name.startswith("complex"):
            return np.array([complex(v) for v in kept], "c16").astype(numpy)
        return np.array([float(v) for v in kept], "f8").astype(numpy)


def integer_limits(dtype: DType) -> tuple[int, int]:
    if dtype.name == "bool":
        return 0, 1
    if dtype.name.startswith("u"):
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def python(value: Any, dtype: DType) -> Any:
    """Return one stored value as a Python number, exactly."""
    if dtype.name == "bool":
        return int(value)
    if dtype.name.startswith(("int", "uint")):
        return int(value)
    return value.item() if dtype.name.startswith("complex") else float(value)


def component(dtype: DType) -> DType:
    return {"complex64": by_name("float32"), "complex128": by_name("float64")}.get(dtype.name, dtype)


def expected(value: Any, new: DType) -> bool:
    """Whether a type holds a value, by exact arithmetic."""
    if new.name.startswith("complex"):
        parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
        return all(expected(part, component(new)) for part in parts)
    if isinstance(value, complex):
        return value.imag == 0 and expected(value.real, new)
    exact = real(value)
    if new.name.startswith(("int", "uint", "bool")):
        low, high = integer_limits(new)
        return isinstance(exact, Fraction) and exact.denominator == 1 and low <= exact <= high
    info = ml_dtypes.finfo(to_numpy(new))
    if isinstance(value, int):
        with np.errstate(all="ignore"):
            rounded = float(np.array(float(value)).astype(to_numpy(new)))
        return math.isfinite(rounded) and Fraction(rounded) == exact
    if not isinstance(exact, Fraction):
        with np.errstate(all="ignore"):
            kept = float(np.array(value).astype(to_numpy(new)))
        return math.isnan(kept) if math.isnan(value) else kept == value
    # Rounded to the nearest: the values up to half a unit beyond the largest become the largest, and those at
    # half a unit too if its last bit is 0, as in float8_e4m3fn.
    largest = Fraction(float(info.max))
    unit = Fraction(2) ** (math.frexp(float(info.max))[1] - 1 - info.nmant)
    beyond = abs(exact) - largest
    return beyond < unit / 2 or (beyond == unit / 2 and largest / unit % 2 == 0)


def nearest(value: Any, result: Any, new: DType) -> bool:
    """Whether a result is one of the two values of a float type on both sides of the exact value."""
    exact = real(value)
    if not isinstance(exact, Fraction):
        return math.isnan(result) if math.isnan(value) else result == value
    info = ml_dtypes.finfo(to_numpy(new))
    magnitude = max(abs(exact), Fraction(float(info.smallest_normal)))
    exponent = math.frexp(float(magnitude))[1]
    return abs(Fraction(result) - exact) <= Fraction(2) ** (exponent - 1 - info.nmant)


def check(array: np.ndarray, old: DType, new: DType) -> None:
    """Compare the cast of each value with exact arithmetic."""
    out = np.empty(array.shape, new.storage)
    misfits = cast_block(array.view(old.storage), out, old, new)
    refused = np.zeros(len(array), bool) if misfits is None else misfits
    for value, result, is_refused in zip(array, out.view(to_numpy(new)), refused, strict=True):
        number = python(value, old)
        assert is_refused == (not expected(number, new)), (number, old, new)
        if is_refused:
            continue
        kept = python(result, new)
        if isinstance(kept, complex) or isinstance(number, complex):
            before, after = complex(number), complex(kept)
            both = [(before.real, after.real), (before.imag, after.imag)]
        else:
            both = [(number, kept)]
        for before, after in both:
            if component(new).name.startswith("float") or new.name == "bfloat16" or new.name[0] == "c":
                assert nearest(before, after, component(new)), (number, kept, old, new)
            else:
                assert after == before, (number, kept, old, new)
    if always_fits(old, new):
        assert misfits is None


@pytest.mark.parametrize(("old", "new"), PAIRS, ids=str)
def test_every_edge_of_every_type_is_cast_or_refused_exactly(old: DType, new: DType) -> None:
    check(stored(EDGES, old), old, new)


numbers = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-300, 300),
    st.floats(),
    st.floats(width=32),
    st.floats(width=16),
    st.complex_numbers(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(numbers, max_size=5))
@example([math.nan, 2**63, -0.0])
def test_every_pair_of_types_casts_or_refuses_exactly(values: list[Any]) -> None:
    for old in CASTABLE:
        array = stored(values, old)
        for new in CASTABLE:
            check(array, old, new)


@pytest.mark.parametrize(("old", "new"), [p for p in PAIRS if p[0].in_numpy and p[1].in_numpy], ids=str)
def test_convert_and_explain_agree_with_exact_arithmetic(old: DType, new: DType) -> None:
    array = stored(EDGES, old)
    misfits = [i for i, value in enumerate(array) if not expected(python(value, old), new)]
    plan = zc.explain(array, "numpy", dtype=new.name)
    assert plan.possible == (not misfits or old is new)
    if not plan.possible:
        with pytest.raises(zc.LossyConversionError, match=rf"at \[{misfits[0]}\]") as error:
            zc.convert(array, "numpy", dtype=new.name)
        assert (error.value.why, error.value.remedy, error.value.code) == (
            plan.error.why, plan.error.remedy, "lossy-cast",
        )  # fmt: skip
        array = np.delete(array, misfits)
    result = zc.convert(array, "numpy", dtype=new.name)
    assert result.dtype == to_numpy(new)
    assert (
        zc.shares_memory(array, result)
        == zc.explain(array, "numpy", dtype=new.name).zero_copy
        == (old is new)
    )
