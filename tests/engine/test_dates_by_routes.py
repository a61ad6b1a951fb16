"""Dates and durations of NumPy in each unit: routes give the series and arrays of the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from helpers.oracle import CALLERS, check, planned

import zerocopy as zc

pytestmark = pytest.mark.filterwarnings("ignore")
UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "10ms")


def arrays(kind: str, unit: str) -> Iterator[np.ndarray]:
    """Yield arrays of a unit; the first has a route."""
    plain = np.arange(-3, 5).astype(f"{kind}8[{unit}]")
    plain.setflags(write=True)
    with_nat = plain.copy()
    with_nat[2] = "NaT"
    yield from (plain, with_nat, plain[:0], plain[::-1], plain[::2], plain.reshape(2, 4))
    yield plain.astype(plain.dtype.newbyteorder("S"))
    yield np.frombuffer(b"\0" + plain.tobytes(), "u1")[1:].view(plain.dtype)


def converted(call: Callable[..., Any], array: np.ndarray, to: str) -> tuple[str, Any]:
    """Return the type and the integers of a result, or the error: polars does not print large dates."""
    try:
        result = call(array, to)
    except zc.ZeroCopyError as error:
        return error.code, str(error)
    if to == "polars":
        return str(result.dtype), result.to_physical().to_list()
    return str(result.type), result.view("int32" if result.type.bit_width == 32 else "int64").to_pylist()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("to", ["polars", "pyarrow"])
def test_large_values(to: str, unit: str) -> None:
    pytest.importorskip(to)
    bounds = [2**31 - 1, 2**31, 2**53, *((2**63 - 1) // n for n in (60, 1000, 3600, 60_000, 3_600_000, 1))]
    for kind in "Mm":
        first = next(arrays(kind, unit))
        with suppress(zc.ZeroCopyError):
            zc.convert(first, to)
        for number in (sign * n + more for n in bounds for sign in (1, -1) for more in (0, sign)):
            if abs(number) < 2**63:
                array = np.array([0, number]).view(first.dtype)
                assert converted(zc.convert, array, to) == converted(planned, array, to), (number, kind)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("to", ["polars", "pyarrow", "pandas"])
def test_units(to: str, unit: str, caller: str) -> None:
    pytest.importorskip(to)
    for kind in "Mm":
        first, *others = arrays(kind, unit)
        for array in (first, *others):
            check(array, first, to, {}, caller)
