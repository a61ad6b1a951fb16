"""The core casts columns as :mod:`zerocopy.casting.values` does, which NumPy's casts define."""

from __future__ import annotations

import numpy as np
import pytest

from zerocopy._native import core
from zerocopy.casting.values import cast_block
from zerocopy.dtype import by_name

pytestmark = pytest.mark.skipif(core is None, reason="the compiled core is not built")
TYPES = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)] + ["float32", "float64"]


def values_of(name: str) -> np.ndarray:
    """Return values of a type: small ones, and those at the limits of every type."""
    if name.startswith("float"):
        edges = [
            0.0,
            -0.0,
            1.5,
            np.nan,
            np.inf,
            -np.inf,
            1e300,
            -1e300,
            2.0**53 + 2,
            2.0**63,
            -(2.0**63),
            255,
            256,
        ]
        with np.errstate(over="ignore"):
            return np.array([*edges, np.finfo("f4").max, 3.4028235677973366e38, *range(-300, 300)]).astype(
                name
            )
    info = np.iinfo(name)
    bits = [1 << k for k in range(64)]
    edges = [x for b in bits for x in (b - 1, b, b + 1, -b, -b - 1) if info.min <= x <= info.max]
    return np.array([info.min, info.max, *edges], name)


@pytest.mark.parametrize("old", TYPES)
@pytest.mark.parametrize("new", TYPES)
def test_each_number_is_cast_or_refused_as_numpy_does(old: str, new: str) -> None:
    column = values_of(old)
    for value in column:
        one, out, expected = np.array([value]), np.zeros((1, 1), new), np.zeros(1, new)
        misfits = cast_block(one, expected, by_name(old), by_name(new))
        assert core.cast_columns(out, [one]) is (misfits is None), (value, old, new)
        if misfits is None:
            np.testing.assert_array_equal(out[:, 0], expected)
            assert np.signbit(out[0, 0]) == np.signbit(expected[0])


@pytest.mark.parametrize("rows", [0, 1, 255, 513, 3001])
@pytest.mark.parametrize("order", ["C", "F"])
def test_columns_of_any_strides_fill_a_matrix_in_any_order(rows: int, order: str) -> None:
    rng = np.random.default_rng(0)
    whole = rng.integers(-99, 99, (rows, 6))
    columns = [
        whole[:, 0],
        whole[:, 1].astype("i1"),
        whole[::-1, 2],
        whole[:, 3] / 2,
        (whole[:, 4] / 2).astype("f4"),
    ]
    columns += [np.repeat(whole[:, 5], 3)[::3].astype("i2")]
    out = np.full((rows, 6), 7, "f4", order=order)
    assert core.cast_columns(out, columns)
    np.testing.assert_array_equal(out, np.stack([c.astype("f4") for c in columns], 1))


def test_a_number_that_does_not_fit_is_found_in_any_block() -> None:
    for row in (0, 255, 256, 511, 512, 2999):
        column = np.zeros(3000)
        column[row] = 1e39
        assert core.cast_columns(np.zeros((3000, 2), "f4"), [np.zeros(3000), column]) is False
        column[row] = np.inf
        assert core.cast_columns(np.zeros((3000, 2), "f4"), [np.zeros(3000), column]) is True


def test_arrays_that_the_core_does_not_cast_are_refused() -> None:
    out, numbers = np.zeros((4, 1), "f4"), np.arange(4.0)
    unaligned = np.zeros(33, "u1")[1:].view("f8")
    invalid = [
        np.ones(4, bool),
        np.ones(4, "f2"),
        np.ones(4, ">f8"),
        np.ones(4, complex),
        np.ones(4, "m8[s]"),
        unaligned,
    ]
    invalid += [np.ones(4, object), np.ones(4, np.longdouble), np.ones((4, 1)), np.ones(3), [1.0] * 4, None]
    for column in invalid:
        with pytest.raises(ValueError, match="numbers"):
            core.cast_columns(out, [column])
    read_only = out.copy()
    read_only.flags.writeable = False
    for target in (read_only, np.zeros(4, "f4"), np.zeros((4, 2), "f4"), np.zeros((4, 1), bool)):
        with pytest.raises(ValueError, match="numbers"):
            core.cast_columns(target, [numbers])
